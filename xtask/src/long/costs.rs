//! Tables of what operations cost: processor time by who used it and for what, system calls, and the sum by
//! arithmetic from counted calls.

use super::{figure, shown};
use serde_json::Value;
use std::fmt::Write as _;

/// The middle one of the rounds' figures, with the least and the most: `12 (11 to 13)`.
pub(super) fn spread(figures: &Value) -> String {
    match figure(figures, "/median") {
        None => "-".into(),
        Some(median) => format!(
            "{} ({} to {})",
            shown(Some(median)),
            shown(figure(figures, "/min")),
            shown(figure(figures, "/max"))
        ),
    }
}

/// Both sides of each line, a row each; nothing where no line tells its costs.
pub(super) fn table(lines: &[Value]) -> String {
    let mut rows = String::new();
    for line in lines {
        let name = line["name"].as_str().unwrap_or("?");
        for side in ["ours", "base"].map(|side| &line[side]).into_iter().filter(|side| !side.is_null()) {
            rows.push_str(&row(name, side).unwrap_or_default());
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let head = [
        "line",
        "side",
        "servers, user us",
        "servers, kernel us",
        "generator, user us",
        "generator, kernel us",
        "together us",
        "wake-ups",
        "preemptions",
        "file calls",
        "packets",
        "calls counted by servers",
        "by the generator",
        "fsync us",
    ];
    format!(
        "What an operation costs: medians of the rounds, with the least and the most.\n\n| {} |\n{}|\n{rows}",
        head.join(" | "),
        "| --- ".repeat(head.len())
    )
}

fn row(name: &str, side: &Value) -> Option<String> {
    let cost = side.get("cost_per_op").filter(|cost| !cost.is_null())?;
    let label = side["label"].as_str().unwrap_or("?");
    let of = |what: &str| spread(&side["spread"][what]);
    let count = |what: &str| shown(figure(cost, &format!("/{what}")));
    let mut row = format!("| {name} | {label}");
    for what in ["servers_user_us", "servers_kernel_us", "generator_user_us", "generator_kernel_us"] {
        let _ = write!(row, " | {}", of(what));
    }
    let _ = write!(row, " | {}", of("cpu_us_per_op"));
    for what in ["wakeups", "preempted", "file_calls", "packets"] {
        let _ = write!(row, " | {}", count(what));
    }
    let calls = [&cost["server_calls"], &cost["generator_calls"]].map(calls);
    let _ = writeln!(row, " | {} | {} | {} |", calls[0], calls[1], of("fsync_latency_us"));
    Some(row)
}

/// Calls of one operation, in one cell.
fn calls(counted: &Value) -> String {
    let kinds = [
        ("polls", "polls"),
        ("reads", "reads"),
        ("writes", "writes"),
        ("wakes", "wakes"),
        ("file_writes", "log writes"),
        ("fsyncs", "fsyncs"),
    ];
    let told = kinds.iter().filter_map(|(name, word)| {
        let count = figure(counted, &format!("/{name}")).filter(|count| *count > 0.0)?;
        Some(format!("{count:.2} {word}"))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "-".into() } else { told.join(", ") }
}

/// The sum by arithmetic of our side of each line: counts times what each costs; nothing where none has one.
pub(super) fn sums(lines: &[Value]) -> String {
    let mut text = String::new();
    for line in lines {
        let sum = &line["ours"]["arithmetic"];
        let Some(terms) = sum["terms"].as_array() else { continue };
        if text.is_empty() {
            let whats: Vec<&str> = terms.iter().filter_map(|term| term["what"].as_str()).collect();
            let _ = writeln!(
                text,
                "Our side by arithmetic, us: calls for each operation times what one costs, which the same run has measured.\n\n\
                 | line | {} | sum | measured | rest |\n{}|",
                whats.join(" | "),
                "| --- ".repeat(whats.len() + 4)
            );
        }
        let _ = write!(text, "| {}", line["name"].as_str().unwrap_or("?"));
        for term in terms {
            let of = |name: &str| figure(term, &format!("/{name}"));
            let is_measured = term["what"].as_str().is_some_and(|what| what.ends_with("measured"));
            let _ = match is_measured {
                true => write!(text, " | {}", shown(of("us"))),
                false => {
                    let [count, unit, us] = ["count", "unit_us", "us"].map(|name| shown(of(name)));
                    write!(text, " | {count} x {unit} = {us}")
                }
            };
        }
        for what in ["sum_us", "measured_us", "rest_us"] {
            let _ = write!(text, " | {}", shown(figure(sum, &format!("/{what}"))));
        }
        text.push_str(" |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line() -> Value {
        let spread = json!({ "median": 12.0, "min": 11.0, "max": 13.5 });
        let cost = json!({
            "wakeups": 2.5, "preempted": 0.1, "file_calls": 1.0, "packets": 5.25,
            "server_calls": { "polls": 3.0, "fsyncs": 0.25, "wakes": 0.0 }, "generator_calls": null,
        });
        let side = json!({ "label": "us", "cost_per_op": cost, "spread": { "servers_user_us": spread, "fsync_latency_us": spread } });
        json!({ "name": "one", "ours": side, "base": { "label": "them", "cost_per_op": null } })
    }

    #[test]
    fn a_side_has_its_costs_in_one_row() {
        let text = table(&[line()]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), 3, "{text}");
        let expected = "| one | us | 12 (11 to 13.50) | - | - | - | - | 2.50 | 0.10 | 1 | 5.25 | 3.00 polls, 0.25 fsyncs | - | \
                        12 (11 to 13.50) |";
        assert_eq!(rows[2], expected);
        assert!(rows.iter().all(|row| row.matches('|').count() == 15), "{text}");
        assert_eq!(table(&[json!({ "name": "two", "ours": null, "base": null })]), "");
    }

    #[test]
    fn a_sum_has_its_terms_and_what_was_measured() {
        let mut line = line();
        line["ours"]["arithmetic"] = json!({
            "terms": [
                { "what": "polls", "count": 3.0, "unit_us": 0.5, "us": 1.5 },
                { "what": "user time of the nodes, measured", "count": 1.0, "unit_us": 20.0, "us": 20.0 },
            ],
            "sum_us": 21.5, "measured_us": 30.0, "rest_us": 8.5,
        });
        let text = sums(&[json!({ "name": "without", "ours": {} }), line]);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows[0], "| line | polls | user time of the nodes, measured | sum | measured | rest |");
        assert_eq!(rows[2], "| one | 3 x 0.50 = 1.50 | 20 | 21.50 | 30 | 8.50 |");
        assert!(rows.iter().all(|row| row.matches('|').count() == 7), "{text}");
        assert_eq!(sums(&[json!({ "name": "without", "ours": null })]), "");
    }
}

//! The sections of the page. Every text that comes from a record, a node or a controller goes through
//! [`esc`].

use super::look::Look;
use client::view::failovers::Line;
use client::view::overview::{NodeLine, PartitionLine, ReplicaLine, TableLine, size};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use types::data::Value;
use types::{NodeRecord, PartitionId};

/// The most partitions that are shown; those that do not serve come first.
const PARTITIONS: usize = 200;
/// With so many partitions or fewer their watermarks are unfolded.
const UNFOLDED: usize = 24;
/// The most failovers that are shown.
const FAILOVERS: usize = 50;

/// Text as it may stand in HTML, also in an attribute.
pub(super) fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// A number with commas between its thousands.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time given in microseconds.
pub(super) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        1_000_000..100_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => format!("{} s", number(us / 1_000_000)),
    }
}

fn is_system(partition: &PartitionLine) -> bool {
    PartitionId(partition.partition).is_system()
}

/// How the cluster is, in a sentence and a few numbers.
pub(super) fn summary(look: &Look) -> String {
    let seen = &look.overview;
    let up = seen.nodes.iter().filter(|node| node.live).count();
    let serving = seen.partitions.iter().filter(|partition| partition.state == "serving").count();
    let stopped = seen.tables.iter().filter(|table| table.stopped).count();
    let behind = seen.tables.iter().filter(|table| !table.behind.is_empty()).count();
    let (state, words) = match () {
        () if seen.nodes.is_empty() => ("bad", "This node has not heard of a cluster yet.".into()),
        () if stopped > 0 => {
            ("bad", format!("{} not served in full now.", of(stopped, "table is", "tables are")))
        }
        () if serving < seen.partitions.len() => {
            let lacking = seen.partitions.len() - serving;
            ("bad", format!("{} without a serving primary.", of(lacking, "partition is", "partitions are")))
        }
        () if up < seen.nodes.len() => {
            let away = seen.nodes.len() - up;
            ("warn", format!("Everything serves. {} not heard.", of(away, "node is", "nodes are")))
        }
        () if behind > 0 => ("warn", "Everything serves. Some copies are not level yet.".into()),
        () => ("good", "All is well: everything serves, and nobody is behind.".to_string()),
    };
    let latest = |values: &[Option<u64>]| values.iter().rev().flatten().next().copied();
    let mut out = format!("<p class=\"headline {state}\">{words}</p><dl class=\"tiles\">");
    let mut tile = |name: &str, value: String, what: &str| {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value} <small>{what}</small></dd></div>");
    };
    tile("nodes", format!("{up} of {}", seen.nodes.len()), "up");
    tile("partitions", format!("{serving} of {}", seen.partitions.len()), "serve");
    tile("commits", latest(&look.series.commits).map_or_else(|| "-".into(), number), "a second");
    tile("largest lag", latest(&look.series.lag_us).map_or_else(|| "-".into(), micros), "of a copy");
    let last = look.failovers.last();
    let last = last.map_or_else(
        || "none listed".into(),
        |line| format!("the last: {} ago", ago(look.at_ms, line.at_ms)),
    );
    tile("failovers", look.failovers.len().to_string(), &last);
    out.push_str("</dl>");
    out
}

/// A number with its noun.
fn of(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// How long ago something was, coarsely, so that it does not change at every look.
fn ago(now_ms: u64, then_ms: u64) -> String {
    match now_ms.saturating_sub(then_ms) / 1000 {
        0..60 => "moments".into(),
        seconds @ 60..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// What each table survives now.
pub(super) fn tables(look: &Look) -> String {
    let mut out = String::from("<h2>Tables</h2>");
    if look.overview.tables.is_empty() {
        out.push_str("<p class=\"none\">There are no tables yet.</p>");
        return out;
    }
    out.push_str(
        "<div class=\"wide\"><table class=\"stack\"><thead><tr><th>table</th><th>policy</th><th>a commit that is acknowledged now</th>\
         <th class=\"num\">copies in sync</th><th>who is behind</th></tr></thead><tbody>",
    );
    for table in &look.overview.tables {
        out.push_str(&table_row(table));
    }
    out.push_str("</tbody></table></div>");
    out
}

fn table_row(table: &TableLine) -> String {
    let state = match (table.stopped, table.behind.is_empty()) {
        (true, _) => "bad",
        (false, false) => "warn",
        (false, true) => "good",
    };
    let behind = if table.behind.is_empty() { "nobody".into() } else { table.behind.join("; ") };
    format!(
        "<tr data-table=\"{name}\"><th scope=\"row\">{name}</th><td>{}</td><td>{}</td>\
         <td class=\"num\" data-label=\"copies in sync\">{} of {}</td><td class=\"{state}\" data-label=\"behind\">{}</td></tr>",
        esc(&table.policy),
        esc(&table.survives),
        table.copies,
        table.factor,
        esc(&behind),
        name = esc(&table.table),
    )
}

/// A row per node.
pub(super) fn nodes(look: &Look) -> String {
    let act = if look.operable { "<th class=\"act\"></th>" } else { "" };
    let mut out = format!(
        "<h2>Nodes</h2><div class=\"wide\"><table><thead><tr><th>node</th><th>state</th><th class=\"num\">leads</th>\
         <th class=\"num\">holds</th><th class=\"num\">commits</th><th class=\"num\">fsyncs</th><th class=\"num\">log</th>\
         <th>clients</th><th>remarks</th>{act}</tr></thead><tbody>"
    );
    for node in &look.overview.nodes {
        out.push_str(&node_row(node, look));
    }
    out.push_str("</tbody></table></div>");
    out
}

fn node_row(node: &NodeLine, look: &Look) -> String {
    let (state, class) = match (node.live, node.drained, node.marks.first()) {
        (false, ..) => ("down", "bad"),
        (true, true, _) => ("drained", "warn"),
        (true, false, Some(mark)) => (*mark, "warn"),
        (true, false, None) => ("up", "good"),
    };
    let silent = node.heard_ms_ago.filter(|_| !node.live);
    let silent = silent.map(|ms| format!(" <small>not heard for {}</small>", micros(ms / 1000 * 1_000_000)));
    let mut remarks = Vec::new();
    if node.full {
        remarks.push("disk full: refuses writes".to_string());
    }
    remarks.extend(node.lost_directories());
    remarks.extend(node.hung_executors());
    if node.tails > 0 {
        remarks.push(of(node.tails, "divergent tail set aside", "divergent tails set aside"));
    }
    if !node.damaged.is_empty() {
        let partitions: Vec<String> = node.damaged.iter().map(|id| format!("p{id}")).collect();
        remarks.push(format!("damaged: {}", partitions.join(", ")));
    }
    let is_draining = node.marks.contains(&NodeRecord::DRAINING);
    let action = if is_draining { "undrain" } else { "drain" };
    let act = match look.operable && node.live {
        true => button(&serde_json::json!({ "action": action, "node": node.node }), action),
        false => String::new(),
    };
    let act = if look.operable { format!("<td class=\"act\">{act}</td>") } else { String::new() };
    let page = look.http.get(&node.node).filter(|_| node.node != look.me);
    let name = match page {
        Some(address) => format!("<a href=\"http://{}/\">node {}</a>", esc(address), node.node),
        None => format!("node {}", node.node),
    };
    format!(
        "<tr data-node=\"{id}\" data-state=\"{state}\"><th scope=\"row\">{name}</th><td class=\"state\"><span class=\"dot {class}\"></span>\
         {state}{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>\
         <td class=\"num\">{}</td><td>{}</td><td>{}</td>{act}</tr>",
        silent.unwrap_or_default(),
        node.leads,
        node.holds,
        number(node.commits),
        number(node.fsyncs),
        size(node.log_bytes),
        esc(&node.address),
        esc(&remarks.join("; ")),
        id = node.node,
    )
}

/// A button that the script shows to an operator.
fn button(command: &serde_json::Value, text: &str) -> String {
    format!("<button type=\"button\" data-do=\"{}\">{text}</button>", esc(&command.to_string()))
}

/// Partitions by table: who leads, who is in sync, who catches up; and all watermarks.
pub(super) fn partitions(look: &Look) -> String {
    let all = &look.overview.partitions;
    let mut out = String::from("<h2>Partitions</h2>");
    // Trouble first, then users' tables, so that what is cut off is what is least looked for.
    let mut chosen: Vec<&PartitionLine> = all.iter().collect();
    chosen.sort_by_key(|partition| (partition.state == "serving", is_system(partition), partition.partition));
    chosen.truncate(PARTITIONS);
    if chosen.len() < all.len() {
        let _ = write!(
            out,
            "<p class=\"none\">{PARTITIONS} of {} partitions are shown; <code>understudy partition list</code> has all.</p>",
            all.len()
        );
    }
    let mut tables: BTreeMap<(bool, &str), Vec<&PartitionLine>> = BTreeMap::new();
    for partition in chosen {
        tables.entry((is_system(partition), &partition.table)).or_default().push(partition);
    }
    for ((_, table), mut partitions) in tables {
        partitions.sort_by_key(|partition| partition.partition);
        let _ = write!(out, "<article><h3>{}</h3><ul class=\"partitions\">", esc(table));
        partitions.iter().for_each(|partition| out.push_str(&partition_item(partition, look)));
        let open = if all.len() <= UNFOLDED { " open" } else { "" };
        let _ = write!(
            out,
            "</ul><details{open}><summary>watermarks</summary>{}</details></article>",
            marks(&partitions)
        );
    }
    out
}

fn partition_item(partition: &PartitionLine, look: &Look) -> String {
    let class = match partition.state.as_str() {
        "serving" => "good",
        "promoting" | "starting" => "warn",
        _ => "bad",
    };
    let mut out = format!(
        "<li id=\"p{id}\" data-primary=\"{}\" data-state=\"{state}\"><span class=\"name\">p{id}</span>\
         <span class=\"state\"><span class=\"dot {class}\"></span>{state}</span><span class=\"copies\">",
        partition.primary,
        id = partition.partition,
        state = esc(&partition.state),
    );
    let mut replicas: Vec<&ReplicaLine> = partition.replicas.iter().collect();
    // Nodes keep their places, whoever leads.
    replicas.sort_by_key(|replica| replica.node);
    for replica in replicas {
        out.push_str(&badge(partition, replica, look));
    }
    let _ = write!(out, "</span><small>epoch {}", partition.epoch);
    if !partition.waits.is_empty() {
        let _ = write!(out, "; waits for {}", esc(&partition.waits));
    }
    out.push_str("</small></li>");
    out
}

fn badge(partition: &PartitionLine, replica: &ReplicaLine, look: &Look) -> String {
    let (class, role) = match replica.role.as_str() {
        "primary" if partition.state == "not heard" => ("primary away", "primary, not heard"),
        "primary" => ("primary", "primary"),
        "in sync" => ("in-sync", "in sync"),
        "catching up" => ("catching-up", "catching up"),
        other => ("away", other),
    };
    let command =
        serde_json::json!({ "action": "switchover", "partition": partition.partition, "to": replica.node });
    let act = match look.operable && class == "in-sync" {
        true => button(&command, "lead"),
        false => String::new(),
    };
    format!("<span class=\"copy {class}\">node {} <i>{}</i>{act}</span>", replica.node, esc(role))
}

/// Every replica's watermarks.
fn marks(partitions: &[&PartitionLine]) -> String {
    let mut out = String::from(
        "<div class=\"wide\"><table class=\"marks\"><thead><tr><th></th><th>copy</th><th class=\"num\">received</th>\
         <th class=\"num\">durable</th><th class=\"num\">applied</th><th class=\"num\">committed</th>\
         <th class=\"num\">persisted</th><th class=\"num\">behind</th></tr></thead><tbody>",
    );
    for partition in partitions {
        for (at, replica) in partition.replicas.iter().enumerate() {
            let name = match at {
                0 => format!(
                    "<th scope=\"rowgroup\" rowspan=\"{}\">p{}</th>",
                    partition.replicas.len(),
                    partition.partition
                ),
                _ => String::new(),
            };
            let behind = match (replica.lag_bytes, replica.lag_seconds) {
                (0, _) => "-".to_string(),
                (bytes, seconds) => format!("{}, {}", size(bytes), micros((seconds * 1e6) as u64)),
            };
            // Where nobody told anything there is no position.
            let mark = |lsn: u64| if replica.received == 0 { "-".to_string() } else { number(lsn) };
            let _ = write!(
                out,
                "<tr>{name}<td>node {} <small>{}</small></td><td class=\"num\">{}</td><td class=\"num\">{}</td>\
                 <td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{behind}</td></tr>",
                replica.node,
                esc(&replica.role),
                mark(replica.received),
                mark(replica.durable),
                mark(replica.applied),
                mark(replica.committed),
                mark(replica.persisted),
            );
        }
    }
    out.push_str("</tbody></table></div>");
    out
}

/// The failovers, newest first, each with how its time was spent.
pub(super) fn failovers(look: &Look) -> String {
    let mut out = String::from("<h2>Failovers</h2>");
    if let Some(why) = &look.no_failovers {
        let _ = write!(out, "<p class=\"warn\">No controller tells them now: {}</p>", esc(why));
    }
    if look.failovers.is_empty() {
        out.push_str("<p class=\"none\">None.</p>");
        return out;
    }
    out.push_str(
        "<p class=\"key\"><span class=\"k detect\">detect</span> <span class=\"k seal\">seal</span> \
         <span class=\"k reconcile\">reconcile</span> <span class=\"k serve\">serve</span></p>\
         <div class=\"wide\"><table class=\"stack\"><thead><tr><th>when (UTC)</th><th>partition</th><th>primary</th><th>cause</th>\
         <th>time</th><th class=\"num\">total</th><th>lost</th></tr></thead><tbody>",
    );
    let shown: Vec<&Line> = look.failovers.iter().rev().take(FAILOVERS).collect();
    let longest =
        shown.iter().map(|line| parts_of(line).iter().map(|(_, ms)| ms).sum::<u64>()).max().unwrap_or(1);
    shown.iter().for_each(|line| out.push_str(&failover_row(line, longest.max(1))));
    out.push_str("</tbody></table></div>");
    if look.failovers.len() > FAILOVERS {
        let _ = write!(
            out,
            "<p class=\"none\">The newest {FAILOVERS} of {}; <code>understudy failover list</code> has more.</p>",
            look.failovers.len()
        );
    }
    out
}

/// What is known of a failover's time, milliseconds.
fn parts_of(line: &Line) -> Vec<(&'static str, u64)> {
    let known = [
        ("detect", Some(line.detect_ms)),
        ("seal", Some(line.seal_ms)),
        ("reconcile", line.reconcile_ms),
        ("serve", line.serve_ms),
    ];
    known.into_iter().filter_map(|(name, ms)| Some((name, ms?))).collect()
}

fn failover_row(line: &Line, longest: u64) -> String {
    let (mut bar, mut words, mut at) = (String::new(), Vec::new(), 0.0);
    for (name, ms) in parts_of(line) {
        let width = ms as f64 / longest as f64 * 100.0;
        let _ = write!(bar, "<rect class=\"{name}\" x=\"{at:.2}\" width=\"{width:.2}\" height=\"8\"/>");
        at += width;
        words.push(format!("{name} {ms} ms"));
    }
    let total = line.total_ms.map_or_else(|| "not yet".into(), |ms| format!("{} ms", number(ms)));
    let lost = if line.loss_possible { "bad" } else { "" };
    format!(
        "<tr id=\"f{id}\" data-failover=\"{id}\" data-partition=\"{partition}\" data-total=\"{}\"><td>{}</td><td>{} p{partition}</td>\
         <td>node {} → node {}</td><td>{}</td><td class=\"split\"><svg viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" \
         aria-hidden=\"true\">{bar}</svg><small>{}</small></td><td class=\"num\" data-label=\"total\">{total}</td><td class=\"{lost}\" data-label=\"lost\">{}</td></tr>",
        line.total_ms.map_or_else(String::new, |ms| ms.to_string()),
        esc(&when(line.at_ms)),
        esc(&line.table),
        line.from,
        line.to,
        esc(&line.cause),
        words.join(", "),
        esc(&line.loss),
        id = line.id,
        partition = line.partition,
    )
}

/// A moment, given in milliseconds since 1970, to the second.
fn when(ms: u64) -> String {
    let text = Value::Timestamp((ms / 1000) as i64 * 1_000_000).to_string();
    text.trim_end_matches('Z').replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_legible() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(number), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(
            [7, 1_500, 43_000, 2_400_000, 3_600_000_000].map(micros),
            ["7 µs", "1.5 ms", "43 ms", "2.4 s", "3,600 s"]
        );
        assert_eq!(when(1_700_000_000_123), "2023-11-14 22:13:20");
    }
}

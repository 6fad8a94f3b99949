//! What is printed: one point for each configuration, and a table for each experiment.

use crate::report::Machine;
use crate::stats::Spread;
use serde::Serialize;
use serde_json::{Map, Value};

/// A goal of speed. Not a gate: the ratio is printed whether it is met or not.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Goal {
    /// What is compared.
    pub what: String,
    /// What was measured.
    pub value: f64,
    /// What it should be at most, or at least.
    pub limit: f64,
    /// True if it should be at least the limit.
    pub at_least: bool,
    /// Whether it is.
    pub met: bool,
}

impl Goal {
    /// A figure that should be at most this.
    pub fn at_most(what: &str, value: f64, limit: f64) -> Goal {
        Goal {
            what: what.into(),
            value: crate::stats::tidy(value),
            limit,
            at_least: false,
            met: value <= limit,
        }
    }

    /// A figure that should be at least this.
    pub fn at_least(what: &str, value: f64, limit: f64) -> Goal {
        Goal {
            what: what.into(),
            value: crate::stats::tidy(value),
            limit,
            at_least: true,
            met: value >= limit,
        }
    }

    /// In one line.
    pub fn in_words(&self) -> String {
        let bound = if self.at_least { "at least" } else { "at most" };
        let word = if self.met { "met" } else { "missed" };
        format!("{}: {}, goal {bound} {}: {word}", self.what, self.value, self.limit)
    }
}

/// One configuration of an experiment, measured: one JSON object.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// `gleambook` or `txn`.
    pub bench: &'static str,
    /// The experiment, as `--only` names it.
    pub name: &'static str,
    /// Where the figure has it on its horizontal axis.
    pub at: String,
    /// Which of its bars.
    pub series: String,
    /// Repetitions, in turn with those of the other configurations.
    pub rounds: usize,
    /// What `value` counts.
    pub unit: &'static str,
    /// What the figure shows; `null`: nothing could be measured.
    pub value: Option<Spread>,
    /// More than the first series of the same place and round, in percent.
    pub increase_percent: Option<Spread>,
    /// Settings and everything else that was measured.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
    /// Goals that belong to it.
    pub goals: Vec<Goal>,
    /// Where.
    pub machine: Machine,
}

impl Point {
    /// A figure, if it is there.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).and_then(Value::as_f64)
    }
}

/// What an experiment's table and figure look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The experiment.
    pub name: &'static str,
    /// What it is about, and the document's figure.
    pub title: &'static str,
    /// What is on the horizontal axis.
    pub across: &'static str,
    /// What is measured, with its unit.
    pub unit: &'static str,
    /// Further columns of its table: figure and heading.
    pub columns: &'static [(&'static str, &'static str)],
}

/// A table for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// Headings.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
    /// Below it: goals.
    pub remarks: Vec<String>,
}

impl Table {
    /// Of an experiment's points.
    pub fn of(shape: &Shape, points: &[Point]) -> Table {
        let increases = points.iter().any(|point| point.increase_percent.is_some());
        let mut head = vec![shape.across.to_string(), "series".into(), shape.unit.into()];
        head.extend(increases.then(|| "increase".into()));
        head.extend(shape.columns.iter().map(|(_, heading)| heading.to_string()));
        let row = |point: &Point| {
            let mut row = vec![point.at.clone(), point.series.clone(), spread(&point.value)];
            let increase = point.increase_percent.as_ref();
            let increase = || increase.map_or("-".into(), |spread| format!("{:+.1} %", spread.median));
            row.extend(increases.then(increase));
            row.extend(shape.columns.iter().map(|(name, _)| cell(point.figures.get(*name))));
            row
        };
        let goals = points.iter().flat_map(|point| {
            point.goals.iter().map(move |goal| format!("{}, {}: {}", point.at, point.series, goal.in_words()))
        });
        Table {
            title: format!("{}: {}", shape.name, shape.title),
            head,
            rows: points.iter().map(row).collect(),
            remarks: goals.collect(),
        }
    }
}

fn spread(spread: &Option<Spread>) -> String {
    match spread {
        None => "-".into(),
        Some(one) if one.rounds.len() == 1 => shown(one.median),
        Some(spread) => {
            format!("{} ({} to {})", shown(spread.median), shown(spread.min), shown(spread.max))
        }
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        Some(Value::Number(number)) => number.as_f64().map_or("-".into(), shown),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        _ => "-".into(),
    }
}

fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in super::super) const SHAPE: Shape = Shape {
        name: "ingestion-by-factor",
        title: "ingestion",
        across: "records",
        unit: "seconds",
        columns: &[("cpu", "CPU"), ("none", "none")],
    };

    pub(in super::super) fn point(at: &str, series: &str, value: f64, increase: Option<f64>) -> Point {
        let Value::Object(figures) = json!({ "cpu": 12.345 }) else { panic!("an object") };
        Point {
            bench: "gleambook",
            name: "ingestion-by-factor",
            at: at.into(),
            series: series.into(),
            rounds: 1,
            unit: "seconds",
            value: Spread::of([value]),
            increase_percent: increase.and_then(|increase| Spread::of([increase])),
            figures,
            goals: vec![Goal::at_most("ratio", 1.2, 1.6)],
            machine: Machine { cores: 2, filesystem: "ext4".into() },
        }
    }

    #[test]
    fn a_table_has_increases_beside_times_and_goals_below() {
        let points = [point("10", "factor 1", 2.0, None), point("10", "factor 3", 2.5, Some(25.0))];
        let table = Table::of(&SHAPE, &points);
        assert_eq!(table.head, ["records", "series", "seconds", "increase", "CPU", "none"]);
        assert_eq!(table.rows[1], ["10", "factor 3", "2.50", "+25.0 %", "12.3", "-"]);
        assert_eq!(table.rows[0][3], "-");
        assert_eq!(table.remarks[1], "10, factor 3: ratio: 1.2, goal at most 1.6: met");
    }

    #[test]
    fn a_point_is_one_flat_object() {
        let text = serde_json::to_string(&point("10", "factor 3", 2.5, Some(25.0))).expect("serialises");
        let value: Value = serde_json::from_str(&text).expect("reads");
        assert_eq!(value["cpu"], json!(12.345));
        assert_eq!(value["value"]["median"], json!(2.5));
        assert_eq!(value["goals"][0]["met"], json!(true));
    }

    #[test]
    fn goals_are_compared_by_their_side() {
        assert!(Goal::at_most("x", 1.0, 1.0).met && Goal::at_least("x", 1.0, 1.0).met);
        assert!(!Goal::at_most("x", 1.1, 1.0).met && !Goal::at_least("x", 0.9, 1.0).met);
    }
}

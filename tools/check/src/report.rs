//! What a check found out: as tables for people and as one JSON object.

use crate::gaps::Gap;
use comfy_table::{ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use history::Finding;
use local::demo::report::grouped;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What was called, and how it ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Operations in the history.
    pub operations: u64,
    /// Of these over SQL.
    pub sql: u64,
    /// Of these writes of which nobody knows whether they were done.
    pub unknown: u64,
    /// Operations that surely were not done, and are not in the history: refused, or no answer to a read.
    pub not_done: u64,
    /// By what was called.
    pub by_kind: BTreeMap<String, u64>,
    /// Rows that were worked on.
    pub rows: u64,
    /// Pairs of transactions each of which has read what the other one replaced: write skew, which snapshot
    /// isolation allows.
    pub skews: u64,
}

/// What the cluster reported lost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Lost {
    /// Acknowledged writes.
    pub reported: u64,
    /// Acknowledged writes over SQL around a loss, of which it is open on which side of it they are.
    pub unsure: u64,
    /// Their numbers in the history.
    pub unsure_operations: Vec<u64>,
    /// Reads of states that were lost.
    pub reads: u64,
}

/// Global transactions, where the load was a bank.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bank {
    /// Accounts.
    pub accounts: u64,
    /// What they hold together.
    pub total: i64,
    /// Transfers whose commit was acknowledged.
    pub committed: u64,
    /// Transfers that surely did nothing: another one was faster, or somebody was not there.
    pub aborted: u64,
    /// Snapshots of all accounts that were read.
    pub snapshots: u64,
}

/// A check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckReport {
    /// The table's policy.
    pub policy: String,
    /// Seconds of load.
    pub seconds: u64,
    /// How often each kind of fault was injected.
    pub injected: BTreeMap<String, u64>,
    /// Failovers.
    pub failovers: u64,
    /// Operations.
    #[serde(flatten)]
    pub counts: Counts,
    /// What a bank saw; none without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bank: Option<Bank>,
    /// What was subtracted; none where the policy promises that nothing is lost.
    pub lost: Option<Lost>,
    /// The longest gaps, per kind of fault.
    pub gaps: Vec<Gap>,
    /// Goals for gaps that were missed, a sentence each, where they are part of the verdict.
    pub missed_goals: Vec<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Where the wrong history is.
    pub history: Option<PathBuf>,
    /// Seconds that checking took.
    pub checked_in_s: f64,
}

impl CheckReport {
    /// True if the history is one that the promises allow, and no goal that counts was missed.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty() && self.missed_goals.is_empty()
    }

    /// Why it is not good, in a sentence; none if it is.
    pub fn why_not(&self) -> Option<String> {
        match (self.findings.is_empty(), self.missed_goals.is_empty()) {
            (false, _) => {
                Some("what clients saw is not what the policy promises; the history above shows it".into())
            }
            (true, false) => Some(format!("goals were missed: {}", self.missed_goals.join("; "))),
            (true, true) => None,
        }
    }

    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        u8::from(!self.is_good())
    }

    /// One object.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("a report has only text keys");
        value["good"] = self.is_good().into();
        value
    }

    /// For people: operations, losses, gaps.
    pub fn tables(&self) -> String {
        let mut counts = table();
        let injected: Vec<String> =
            self.injected.iter().map(|(fault, times)| format!("{fault} {times}")).collect();
        let sql = format!("{} over SQL, on {} rows", grouped(self.counts.sql), grouped(self.counts.rows));
        counts.add_row(["policy", &self.policy, ""]);
        counts.add_row(["faults", &injected.join(", "), &format!("{} failovers", self.failovers)]);
        counts.add_row(["operations", &grouped(self.counts.operations), &sql]);
        counts.add_row(["unknown", &grouped(self.counts.unknown), "writes that may have been done or not"]);
        counts.add_row(["not done", &grouped(self.counts.not_done), "refused, or reads without an answer"]);
        if self.counts.skews > 0 {
            let skews = grouped(self.counts.skews);
            counts.add_row(["write skews", &skews, "which snapshot isolation allows"]);
        }
        if let Some(bank) = &self.bank {
            let transfers = format!("{} transfers committed", grouped(bank.committed));
            let snapshots = format!("{} snapshots of {} accounts", grouped(bank.snapshots), bank.accounts);
            counts.add_row(["bank", &transfers, &snapshots]);
        }
        if let Some(lost) = &self.lost {
            let more = format!(
                "subtracted, with {} reads of it and {} writes over SQL around it",
                grouped(lost.reads),
                grouped(lost.unsure)
            );
            counts.add_row(["reported lost", &grouped(lost.reported), &more]);
        }
        let mut gaps = table();
        gaps.set_header(["fault", "rounds", "longest gap", "of it after the fault's end", "goal"]);
        for gap in &self.gaps {
            let ms = |ms: f64| format!("{ms:.0} ms");
            let goal = match (gap.goal_ms, gap.missed) {
                (None, _) => String::new(),
                (Some(goal), missed) => format!("{} {}", ms(goal), if missed { "missed" } else { "met" }),
            };
            let rounds = gap.rounds.to_string();
            gaps.add_row([&gap.fault, &rounds, &ms(gap.longest_ms), &ms(gap.healed_ms), &goal]);
        }
        format!("{counts}\n{gaps}")
    }

    /// The whole thing in a sentence.
    pub fn verdict(&self) -> String {
        let checked = format!("{:.1} s", self.checked_in_s);
        let operations = grouped(self.counts.operations);
        match (&self.history, self.findings.is_empty()) {
            (_, true) if self.is_good() => {
                format!("good: no anomaly in {operations} operations (checked in {checked})")
            }
            (_, true) => format!(
                "NOT good: no anomaly in {operations} operations (checked in {checked}), and goals were missed: {}",
                self.missed_goals.join("; ")
            ),
            (Some(path), false) => format!("NOT good: what is wrong is shown in {}", path.display()),
            (None, false) => "NOT good: see what is marked WRONG above".into(),
        }
    }
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Shape;
    use history::Rule;

    fn report() -> CheckReport {
        let gap = Gap {
            fault: "kill".into(),
            shape: Shape::One,
            rounds: 2,
            longest_ms: 312.4,
            healed_ms: 0.0,
            goal_ms: Some(400.0),
            missed: false,
        };
        CheckReport {
            policy: "async".into(),
            seconds: 60,
            injected: BTreeMap::from([("kill".into(), 2)]),
            failovers: 3,
            counts: Counts { operations: 12_345, sql: 2345, rows: 40, ..Counts::default() },
            bank: None,
            lost: Some(Lost { reported: 17, unsure: 1, unsure_operations: vec![9], reads: 5 }),
            gaps: vec![gap],
            missed_goals: Vec::new(),
            findings: Vec::new(),
            history: None,
            checked_in_s: 0.5,
        }
    }

    #[test]
    fn figures_are_for_people_and_for_machines() {
        let good = report();
        assert_eq!(good.exit_status(), 0);
        assert_eq!(good.verdict(), "good: no anomaly in 12,345 operations (checked in 0.5 s)");
        let text = good.tables();
        for part in ["12,345", "2,345 over SQL", "312 ms", "400 ms met", "with 5 reads", "kill 2"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let json = good.to_json();
        assert_eq!((&json["good"], &json["unknown"]), (&Value::Bool(true), &Value::from(0)));
        let finding = Finding {
            rule: Rule::Snapshot,
            key: None,
            place: Some(64),
            sentence: "x".into(),
            operations: vec![1],
        };
        let wrong = CheckReport { findings: vec![finding], history: Some("/tmp/x".into()), ..report() };
        assert_eq!((wrong.exit_status(), wrong.to_json()["good"].as_bool()), (1, Some(false)));
        assert!(wrong.verdict().starts_with("NOT good: what is wrong is shown in /tmp/x"));
        let late = CheckReport { missed_goals: vec!["kill: 455 ms, goal 400".into()], ..report() };
        assert_eq!((late.exit_status(), &late.to_json()["good"]), (1, &Value::Bool(false)));
        let said = late.verdict();
        assert!(said.starts_with("NOT good: no anomaly in 12,345 operations"), "{said}");
        assert!(said.ends_with("goals were missed: kill: 455 ms, goal 400"), "{said}");
        assert_eq!(late.why_not().as_deref(), Some("goals were missed: kill: 455 ms, goal 400"));
        assert_eq!(report().why_not(), None);
    }
}

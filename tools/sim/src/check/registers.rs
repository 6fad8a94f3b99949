//! R5: what was done to each register, by writes and reads of any kind.

use crate::check::history::{Action, Answer, KeyRange, Operation, RowChange};
use crate::check::linear::Step;
use crate::check::ranges;
use std::collections::{BTreeMap, BTreeSet};
use wire::request::ReadSnapshot;

/// The steps on each register. Where a loss was reported, what is lost counts as never having been.
pub fn steps<'a>(
    operations: &[&'a Operation],
    present: Option<&BTreeSet<u64>>,
) -> BTreeMap<&'a str, Vec<Step>> {
    let mut registers: BTreeMap<&str, Vec<Step>> = BTreeMap::new();
    let gone =
        |value: Option<u64>| value.is_some_and(|value| present.is_some_and(|all| !all.contains(&value)));
    for operation in operations {
        let (began, told) = (operation.invoked, Some(operation.completed));
        let (writes, ended) = match operation.told {
            Answer::Unknown => (true, None),
            Answer::Done { .. } => (true, told),
            Answer::Found { .. } | Answer::Rows { .. } => (false, told),
            _ => continue,
        };
        for (key, value) in values(operation) {
            if !gone(value) {
                registers.entry(key).or_default().push(Step { value, writes, began, ended });
            }
        }
    }
    registers
}

/// What had been asked before a time, in virtual microseconds: what had no answer by then may have been done.
pub fn before(operations: &[&Operation], time: u64) -> Vec<Operation> {
    let began = operations.iter().filter(|operation| operation.invoked < time);
    let known = began.map(|operation| match operation.completed < time {
        true => (*operation).clone(),
        false => Operation { told: Answer::Unknown, ..(*operation).clone() },
    });
    known.collect()
}

/// The registers that an operation wrote or read, with the value.
fn values(operation: &Operation) -> Vec<(&str, Option<u64>)> {
    let key = operation.key.as_str();
    match (&operation.action, &operation.told) {
        (Action::Put(value) | Action::Swap { value, .. }, _) if is_register(key) => vec![(key, Some(*value))],
        (Action::Get(_), Answer::Found { row, .. }) if is_register(key) => {
            vec![(key, row.map(|(_, value)| value))]
        }
        (Action::Batch(batch), Answer::Done { .. } | Answer::Unknown) => {
            let written =
                batch.ops.iter().filter(|(change, key)| *change != RowChange::Keep && is_register(key));
            written.map(|(_, key)| (key.as_str(), Some(batch.value))).collect()
        }
        (Action::Scan { range, at: ReadSnapshot::Newest | ReadSnapshot::Begin, any: None, .. }, told) => {
            scanned(range, told)
        }
        _ => Vec::new(),
    }
}

/// What a scan of the newest state shows of each register.
fn scanned<'a>(range: &KeyRange, told: &'a Answer) -> Vec<(&'a str, Option<u64>)> {
    const REGISTERS: [&str; 4] = ["r0", "r1", "r2", "r3"];
    let shown = |key: &'static str| {
        let row = ranges::shown(told, range, key)?;
        Some((key, row.map(|(_, _, value)| *value)))
    };
    REGISTERS.into_iter().filter_map(shown).collect()
}

fn is_register(key: &str) -> bool {
    key.starts_with('r')
}

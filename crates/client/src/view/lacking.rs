//! Partitions that acknowledge nothing because they have too few copies: what they lack, and who is waited
//! for.

use super::survive;
use super::words::{have, partitions_text};
use std::collections::BTreeSet;
use types::{NodeId, PartitionRecord, TableRecord};

/// The sentence for those of a table's partitions that have too few copies; none if all have enough. `hears`
/// is true for nodes that were heard lately.
pub(super) fn sentence(
    table: &TableRecord,
    records: &[&PartitionRecord],
    hears: impl Fn(NodeId) -> bool,
) -> Option<String> {
    let stopped: Vec<&PartitionRecord> =
        records.iter().copied().filter(|record| survive::stopped(record)).collect();
    let weakest = survive::weakest(stopped.iter().copied())?;
    let (fewest, min) = (weakest.in_sync.len(), weakest.policy.min_in_sync);
    Some(format!(
        "{} {} too few copies to acknowledge writes, {fewest} of at least {min} ({}; or go on with fewer: \
         `understudy table alter {} --min-in-sync {fewest}`, or `--available`)",
        partitions_text(stopped.len()),
        have(stopped.len()),
        waited_for(table, &stopped, hears),
        table.name
    ))
}

/// The nodes that are to have a further copy in sync, by what becomes of them.
fn waited_for(table: &TableRecord, stopped: &[&PartitionRecord], hears: impl Fn(NodeId) -> bool) -> String {
    let (mut silent, mut catching_up, mut outside) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for record in stopped {
        let row = record.id.0.wrapping_sub(table.first_partition.0) as usize;
        let placed = table.placement.get(row).into_iter().flatten().copied();
        for node in placed.chain(record.catching_up.iter().map(|member| member.node)) {
            let in_sync = record.in_sync.iter().any(|member| member.node == node);
            let found = match (in_sync, hears(node), record.member_on(node)) {
                (true, ..) => continue,
                (_, false, _) => &mut silent,
                (.., Some(_)) => &mut catching_up,
                (.., None) => &mut outside,
            };
            found.insert(node);
        }
    }
    let is = |nodes: &BTreeSet<NodeId>| if nodes.len() == 1 { "is" } else { "are" };
    let mut said = Vec::new();
    if !silent.is_empty() {
        said.push(format!("start {} again", list(&silent)));
    }
    if !catching_up.is_empty() {
        said.push(format!("{} {} catching up", list(&catching_up), is(&catching_up)));
    }
    if !outside.is_empty() {
        said.push(format!("{} {} heard, and let in again soon", list(&outside), is(&outside)));
    }
    if said.is_empty() {
        return "no other node is to have a copy".into();
    }
    said.join("; ")
}

fn list(nodes: &BTreeSet<NodeId>) -> String {
    let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    nodes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::overview::tests::{record, table};
    use super::*;

    #[test]
    fn who_is_waited_for_is_named_by_what_becomes_of_it() {
        let placement = vec![[1, 2, 3].map(NodeId).to_vec()];
        let table = TableRecord { placement, ..table(1) };
        let said = |in_sync: &[u32], catching_up: &[u32], heard: &[u32]| {
            let record = record(64, in_sync, catching_up);
            sentence(&table, &[&record], |node| heard.contains(&node.0))
        };
        let all = [1, 2, 3];
        let lacks = |who: &str| {
            Some(format!(
                "1 partition has too few copies to acknowledge writes, 1 of at least 2 ({who}; or go on with \
                 fewer: `understudy table alter t --min-in-sync 1`, or `--available`)"
            ))
        };
        assert_eq!(said(&[1, 2], &[3], &all), None);
        assert_eq!(said(&[1], &[], &[1]), lacks("start n2, n3 again"));
        assert_eq!(said(&[1], &[], &all), lacks("n2, n3 are heard, and let in again soon"));
        let both = "n2 is catching up; n3 is heard, and let in again soon";
        assert_eq!(said(&[1], &[2], &all), lacks(both));
        assert_eq!(said(&[1], &[2], &[1, 3]), lacks("start n2 again; n3 is heard, and let in again soon"));
        assert_eq!(said(&[1], &[4], &[1, 4]), lacks("start n2, n3 again; n4 is catching up"), "a spare");
    }
}

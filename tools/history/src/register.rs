//! Whether what happened to one key can have happened one after the other.
//!
//! Values are unique, so a value's write and its reads belong together. A write that rests on another value
//! (a conditional update, an increment) follows it immediately, and the row says which it was: such values
//! form a chain, which nothing else interrupts. A key has at most one delete, so absence is of two kinds:
//! before the first value, and after the delete. Chains are put in order as [`crate::zones`] does it. Takes
//! `n log n` steps.

use crate::operation::{Key, Operation, Over};
use crate::zones::{self, Span};
use std::collections::BTreeMap;

/// The absence before anything was written. No value is 0.
const NOTHING: u64 = 0;
/// The absence behind the delete. No value is this.
const REMOVED: u64 = u64::MAX;

/// What is wrong, and the operations that show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// In words.
    pub sentence: String,
    /// The numbers of operations that must be looked at.
    pub operations: Vec<u64>,
}

/// A value with its write and its reads.
#[derive(Clone, Debug)]
struct Cluster {
    /// The number of the write, once it is known.
    write: Option<u64>,
    certain: bool,
    write_began: u64,
    /// The earliest to end and the latest to begin, with their operations.
    first_end: (u64, u64),
    last_begin: (u64, u64),
    /// The read that ended first.
    first_read: Option<(u64, u64)>,
    /// The value that it has replaced, by its writer or by a row.
    prev: Option<u64>,
    count: Option<u64>,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster {
            write: None,
            certain: false,
            write_began: 0,
            first_end: (u64::MAX, 0),
            last_begin: (0, 0),
            first_read: None,
            prev: None,
            count: None,
        }
    }

    fn widen(&mut self, operation: &Operation) {
        let ended = operation.ended().unwrap_or(u64::MAX);
        self.first_end = self.first_end.min((ended, operation.number));
        self.last_begin = self.last_begin.max((operation.invoked, operation.number));
    }

    fn read_by(&mut self, operation: &Operation) {
        self.widen(operation);
        let end = (operation.ended().unwrap_or(u64::MAX), operation.number);
        self.first_read = Some(self.first_read.map_or(end, |first| first.min(end)));
    }

    fn written_by(&mut self, operation: &Operation) {
        self.widen(operation);
        self.write = Some(operation.number);
        self.certain = operation.ended().is_some();
        self.write_began = operation.invoked;
    }

    fn is_there(&self) -> bool {
        self.certain || self.first_read.is_some()
    }

    fn operations(&self) -> Vec<u64> {
        self.write.into_iter().chain([self.first_end.1, self.last_begin.1]).filter(|at| *at > 0).collect()
    }
}

/// Everything that happened to one key.
#[derive(Default)]
struct Register {
    clusters: BTreeMap<u64, Cluster>,
    /// Operations that found no row: when they began and ended, and which.
    absent: Vec<(u64, u64, u64)>,
    /// Writes that found none and are known to have been done.
    inserts: Vec<u64>,
    deletes: Vec<u64>,
}

/// Checks one key. `operations` are those that speak of it, in any order.
///
/// # Errors
///
/// The first thing found wrong.
pub fn check(key: Key, operations: &[&Operation]) -> Result<(), Wrong> {
    let mut register = Register::default();
    for operation in operations {
        register.take_in(key, operation)?;
    }
    register.drop_unseen();
    register.place_absence()?;
    register.check_writes()?;
    register.check_chains()
}

fn wrong<T>(sentence: String, operations: impl IntoIterator<Item = u64>) -> Result<T, Wrong> {
    let mut operations: Vec<u64> = operations.into_iter().collect();
    operations.sort_unstable();
    operations.dedup();
    Err(Wrong { sentence, operations })
}

/// A value in words.
fn named(value: u64) -> String {
    match value {
        NOTHING => "no row yet".into(),
        REMOVED => "the row's removal".into(),
        value => format!("value {value}"),
    }
}

impl Register {
    fn cluster(&mut self, value: u64) -> &mut Cluster {
        self.clusters.entry(value).or_insert_with(Cluster::new)
    }

    fn take_in(&mut self, key: Key, operation: &Operation) -> Result<(), Wrong> {
        for read in operation.reads.iter().filter(|read| read.key == key) {
            let Some(seen) = read.seen else {
                let ended = operation.ended().unwrap_or(u64::MAX);
                self.absent.push((operation.invoked, ended, operation.number));
                continue;
            };
            let cluster = self.cluster(seen.tag);
            cluster.read_by(operation);
            let (prev, count) =
                (*cluster.prev.get_or_insert(seen.prev), *cluster.count.get_or_insert(seen.count));
            if (prev, count) != (seen.prev, seen.count) {
                let found = (prev, count, seen.prev, seen.count);
                let shown = format!("value {} was shown in two ways: {found:?}", seen.tag);
                return wrong(shown, cluster.operations().into_iter().chain([operation.number]));
            }
        }
        for write in operation.writes.iter().filter(|write| write.key == key) {
            let value = write.tag.unwrap_or(REMOVED);
            if self.clusters.get(&value).is_some_and(|cluster| cluster.write.is_some()) {
                let twice = format!("{} was written twice, which no history may do", named(value));
                return wrong(
                    twice,
                    self.clusters[&value].operations().into_iter().chain([operation.number]),
                );
            }
            if value == REMOVED {
                self.deletes.push(operation.number);
            }
            let cluster = self.cluster(value);
            cluster.written_by(operation);
            match write.over {
                Over::Value(prev) if *cluster.prev.get_or_insert(prev) != prev => {
                    let said = format!("{} is not over value {prev}, as it was written", named(value));
                    return wrong(said, cluster.operations());
                }
                Over::Absence if let Some(ended) = operation.ended() => {
                    self.inserts.push(operation.number);
                    self.absent.push((operation.invoked, ended, operation.number));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes of which nobody knows, and that nobody saw, need not have been. What a row says that it has
    /// replaced was there.
    fn drop_unseen(&mut self) {
        let mut there: Vec<u64> =
            self.clusters.iter().filter(|(_, cluster)| cluster.is_there()).map(|(value, _)| *value).collect();
        let mut kept = BTreeMap::new();
        while let Some(value) = there.pop() {
            let Some(cluster) = self.clusters.remove(&value) else { continue };
            there.extend(cluster.prev.filter(|prev| *prev != NOTHING));
            kept.insert(value, cluster);
        }
        // A delete is also seen by those who find no row: that is decided later.
        if let Some(delete) = self.clusters.remove(&REMOVED) {
            kept.insert(REMOVED, delete);
        }
        self.clusters = kept;
    }

    /// Each value was written, and before it was read; each was replaced by one at most.
    fn check_writes(&self) -> Result<(), Wrong> {
        let mut replaced: BTreeMap<u64, u64> = BTreeMap::new();
        for (value, cluster) in &self.clusters {
            let Some(_) = cluster.write else {
                return wrong(format!("{} was read and never written", named(*value)), cluster.operations());
            };
            if let Some((end, read)) = cluster.first_read
                && end < cluster.write_began
            {
                let early = format!("{} was read before its write began", named(*value));
                return wrong(early, cluster.operations().into_iter().chain([read]));
            }
            let Some(prev) = cluster.prev.filter(|prev| *prev != NOTHING) else { continue };
            let Some(before) = self.clusters.get(&prev) else {
                return wrong(format!("value {prev} was replaced and never written"), cluster.operations());
            };
            if let Some(other) = replaced.insert(prev, *value) {
                let both = format!("{} and {} both replaced value {prev}", named(other), named(*value));
                let of_other = self.clusters[&other].operations();
                return wrong(both, of_other.into_iter().chain(cluster.operations()));
            }
            let counts = (before.count, cluster.count);
            if let (Some(before), Some(count)) = counts
                && count != before + 1
            {
                let text = format!("{} counts {count}, and value {prev} before it {before}", named(*value));
                return wrong(text, cluster.operations());
            }
        }
        if self.inserts.len() > 1 + self.deletes.len() {
            return wrong("the row was inserted where it was there".into(), self.inserts.iter().copied());
        }
        Ok(())
    }

    /// Whoever found no row found it before the first value, if that can be, and else behind the delete.
    ///
    /// It can be before the first value exactly if it began before anything of any value had ended: then it
    /// takes the value before nothing away from the order, and otherwise it contradicts what had ended.
    fn place_absence(&mut self) -> Result<(), Wrong> {
        let values = self.clusters.iter().filter(|(value, _)| **value != REMOVED);
        let first = values.map(|(_, cluster)| cluster.first_end).min().unwrap_or((u64::MAX, 0));
        for (began, ended, number) in std::mem::take(&mut self.absent) {
            if began <= first.0 {
                continue;
            }
            let delete = self.clusters.get_mut(&REMOVED).filter(|delete| delete.write_began <= ended);
            let Some(delete) = delete else {
                return wrong("the row was gone, and nobody had removed it".into(), [first.1, number]);
            };
            delete.first_end = delete.first_end.min((ended, number));
            delete.last_begin = delete.last_begin.max((began, number));
            delete.first_read =
                Some(delete.first_read.map_or((ended, number), |first| first.min((ended, number))));
        }
        if self.clusters.get(&REMOVED).is_some_and(|delete| !delete.is_there()) {
            self.clusters.remove(&REMOVED);
        }
        Ok(())
    }

    /// Within a chain the order is known; chains among each other must have one.
    fn check_chains(&self) -> Result<(), Wrong> {
        let follows = |cluster: &Cluster| cluster.prev.filter(|prev| *prev != NOTHING);
        let next: BTreeMap<u64, u64> =
            self.clusters.iter().filter_map(|(value, cluster)| Some((follows(cluster)?, *value))).collect();
        let roots = self.clusters.iter().filter(|(_, cluster)| follows(cluster).is_none());
        let (mut spans, mut ends, mut walked) = (Vec::new(), Vec::new(), 0);
        for (root, first) in roots {
            let (mut first_end, mut last_begin) = (first.first_end, first.last_begin);
            walked += 1;
            let mut value = root;
            while let Some(after) = next.get(value) {
                let cluster = &self.clusters[after];
                if cluster.first_end.0 < last_begin.0 {
                    let text = format!(
                        "{} was there, and {} before it still after that",
                        named(*after),
                        named(*value)
                    );
                    return wrong(text, cluster.operations().into_iter().chain([last_begin.1]));
                }
                first_end = first_end.min(cluster.first_end);
                last_begin = last_begin.max(cluster.last_begin);
                (value, walked) = (after, walked + 1);
            }
            spans.push(Span { first_end: first_end.0, last_begin: last_begin.0 });
            ends.push((*root, first_end, last_begin));
        }
        if walked < self.clusters.len() {
            let all = self.clusters.values().filter_map(|cluster| cluster.write);
            return wrong("values replaced each other in a circle".into(), all);
        }
        let Some((one, other)) = zones::conflict(&spans) else { return Ok(()) };
        let ((one, one_from, one_to), (other, other_from, other_to)) = (ends[one], ends[other]);
        let text = format!(
            "{} was there from {} to {} us, and {} within that, at {} to {} us",
            named(one),
            one_from.0,
            one_to.0,
            named(other),
            other_from.0.min(other_to.0),
            other_from.0.max(other_to.0)
        );
        let shown = [one_from.1, one_to.1, other_from.1, other_to.1].into_iter();
        wrong(text, shown.chain(self.clusters[&one].write).chain(self.clusters[&other].write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::made::*;

    fn verdict(operations: impl IntoIterator<Item = Operation>) -> Result<(), String> {
        let operations = history(operations);
        let all: Vec<&Operation> = operations.iter().collect();
        check(KEY, &all).map_err(|wrong| {
            assert!(!wrong.operations.is_empty(), "{wrong:?}");
            wrong.sentence
        })
    }

    fn value(tag: u64) -> Option<crate::operation::Seen> {
        seen(tag, 0)
    }

    fn counted(tag: u64, prev: u64, count: u64) -> Option<crate::operation::Seen> {
        seen(tag, prev).map(|seen| crate::operation::Seen { count, ..seen })
    }

    #[test]
    fn good_histories_pass() {
        let good: [Vec<Operation>; 10] = [
            vec![],
            vec![read(None, 1, 2), put(1, 3, 4), read(value(1), 5, 6)],
            vec![put(1, 1, 10), read(None, 2, 3), read(value(1), 4, 5)],
            vec![put(1, 1, 10), put(2, 2, 9), read(value(1), 11, 12)],
            vec![put(1, 1, 2), put(2, 3, None), read(value(1), 5, 6), read(value(2), 100, 101)],
            vec![put(1, 1, 2), delete(3, 4), read(None, 5, 6), put(2, 7, 8), read(value(2), 9, 10)],
            vec![put(1, 1, 2), delete(3, None), read(value(1), 5, 6), read(None, 7, 8), read(None, 9, 10)],
            vec![put(1, 1, 2), delete(3, None), read(value(1), 50, 60)],
            // An increment of which nobody knows, seen by the one that followed.
            vec![
                put(1, 1, 2),
                write(2, Over::Something, 3, None),
                write(3, Over::Value(2), 5, 6),
                read(seen(3, 2), 7, 8),
            ],
            vec![
                write(1, Over::Absence, 1, 2),
                delete(3, 4),
                write(2, Over::Absence, 5, 6),
                read(value(2), 7, 8),
            ],
        ];
        for operations in good {
            assert_eq!(verdict(operations.clone()), Ok(()), "{operations:?}");
        }
    }

    #[test]
    fn bad_histories_are_rejected() {
        let bad: [(&str, Vec<Operation>); 17] = [
            ("a stale read", vec![put(1, 1, 2), put(2, 3, 4), read(value(1), 5, 6)]),
            ("a lost write", vec![put(1, 1, 2), read(None, 3, 4)]),
            ("read before written", vec![read(value(1), 1, 2), put(1, 3, 4)]),
            ("never written", vec![read(value(9), 1, 2)]),
            ("new, then old", vec![put(1, 1, 2), put(2, 3, 20), read(value(2), 4, 5), read(value(1), 6, 7)]),
            (
                "an unknown write that comes and goes",
                vec![
                    put(1, 1, 2),
                    put(2, 3, None),
                    read(value(2), 4, 5),
                    read(value(1), 6, 7),
                    read(value(2), 8, 9),
                ],
            ),
            (
                "a row that comes back",
                vec![put(1, 1, 2), delete(3, 4), read(None, 5, 6), read(value(1), 7, 8)],
            ),
            ("a delete that was lost", vec![put(1, 1, 2), delete(3, 4), read(value(1), 7, 8)]),
            ("gone before it was removed", vec![put(1, 1, 2), read(None, 3, 4), delete(5, 6)]),
            (
                "an update that is lost",
                vec![put(1, 1, 2), write(2, Over::Value(1), 3, 9), write(3, Over::Value(1), 4, 8)],
            ),
            (
                "a lost increment that only rows tell of",
                vec![
                    put(1, 1, 2),
                    write(2, Over::Something, 3, None),
                    write(3, Over::Something, 3, None),
                    read(seen(2, 1), 4, 5),
                    read(seen(3, 1), 6, 7),
                ],
            ),
            (
                "something between a value and what replaced it",
                vec![put(1, 1, 2), put(2, 3, 4), write(3, Over::Value(1), 5, 6)],
            ),
            ("an insert where a row was", vec![put(1, 1, 2), write(2, Over::Absence, 3, 4)]),
            ("two inserts", vec![write(1, Over::Absence, 1, 9), write(2, Over::Absence, 1, 9)]),
            (
                "a counter that does not count",
                vec![
                    put(1, 1, 2),
                    write(2, Over::Value(1), 3, 4),
                    read(counted(1, 0, 0), 2, 3),
                    read(counted(2, 1, 2), 5, 6),
                ],
            ),
            (
                "two faces of one value",
                vec![put(1, 1, 2), read(value(1), 2, 3), read(counted(1, 0, 4), 4, 5)],
            ),
            ("a circle", vec![write(1, Over::Value(2), 1, 9), write(2, Over::Value(1), 1, 9)]),
        ];
        for (what, operations) in bad {
            assert!(verdict(operations).is_err(), "{what}");
        }
    }
}

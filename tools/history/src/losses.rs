//! What is taken out of a history where a cluster reported that it lost acknowledged writes, and nothing
//! else.
//!
//! A partition says of each term up to where it was kept. Whatever is known to be behind that is taken out:
//! writes, and what was read of a state that is no part of the history any more. Answers over SQL have no
//! positions; they are put between the native answers before and after them, and what is so known to be kept
//! stays. What remains open, writes of the moment at which a primary was lost that nobody saw afterwards, is
//! taken out and counted as unsure.

use crate::operation::{At, End, Key, Operation, Over, Write};
use crate::register::Wrong;
use std::collections::{BTreeMap, BTreeSet};

/// Up to where each term of each partition was kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// By partition and term: the last LSN that was kept; none: it goes on.
    terms: BTreeMap<(u32, u64), Option<u64>>,
}

/// A write of unclear place is called so long at most after the last answer that has one, or answered so long
/// at most before the next one is called that gets one. Microseconds: operations with positions are asked for
/// every few milliseconds, on a machine that may be busy.
const MOMENT: u64 = 2_000_000;

/// What was taken out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subtracted {
    /// Acknowledged writes that the cluster says are lost.
    pub writes: u64,
    /// Writes over SQL of which it is open on which side of a loss they are: their numbers.
    pub unsure: Vec<u64>,
    /// Reads of states that were lost.
    pub reads: u64,
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    Unsure,
    Lost,
    Kept,
}

impl Losses {
    /// A partition said where a term ended; none: it goes on.
    pub fn ended(&mut self, place: u32, term: u64, end: Option<u64>) {
        self.terms.insert((place, term), end);
    }

    /// True if the partition says that what stood at this position is lost.
    pub fn is_lost(&self, place: u32, at: At) -> bool {
        self.terms.get(&(place, at.term)).is_some_and(|end| end.is_some_and(|end| end < at.lsn))
    }

    /// Where the policy promises everything: no acknowledged write may be reported lost.
    ///
    /// # Errors
    /// The first one that is.
    pub fn none_of(&self, history: &[Operation]) -> Result<(), Wrong> {
        let lost = |operation: &&Operation| {
            let acknowledged = operation.end == End::Done && !operation.writes.is_empty();
            acknowledged && operation.at.is_some_and(|at| self.is_lost(operation.place, at))
        };
        let Some(operation) = history.iter().find(lost) else { return Ok(()) };
        Err(Wrong {
            sentence: "an acknowledged write is reported lost, and the policy promises that none is".into(),
            operations: vec![operation.number],
        })
    }

    /// The term of a configuration: the last one that had begun.
    fn term(&self, place: u32, epoch: u64) -> u64 {
        self.terms.range((place, 0)..=(place, epoch)).next_back().map_or(epoch, |((_, term), _)| *term)
    }

    /// Where an operation was; of a read the configuration's epoch is replaced by the term.
    fn place_of(&self, operation: &Operation) -> Option<At> {
        let at = operation.at?;
        match operation.writes.is_empty() {
            true => Some(At { term: self.term(operation.place, at.term), ..at }),
            false => Some(at),
        }
    }

    /// Takes out what was lost. The history keeps its numbers.
    ///
    /// # Errors
    ///
    /// If something that is reported lost was seen in a state that was kept, or if an acknowledged write is
    /// of unclear place and no term ended around it.
    pub fn subtract(&self, history: Vec<Operation>) -> Result<(Vec<Operation>, Subtracted), Wrong> {
        let fates = Fates::new(self, &history)?;
        let mut taken = Subtracted::default();
        let mut unsure = history.iter().filter(|operation| fates.is_unsure(operation));
        if let Some(operation) = unsure.find(|operation| !fates.is_of_a_loss(operation)) {
            return Err(Wrong {
                sentence: "nothing says whether an acknowledged write was lost, and no loss was near it"
                    .into(),
                operations: vec![operation.number],
            });
        }
        let kept = history.into_iter().filter_map(|operation| fates.rest(operation, &mut taken)).collect();
        Ok((kept, taken))
    }
}

/// Positions along time, of one partition.
#[derive(Default)]
struct Timeline {
    /// When something was told, and the furthest until then.
    done: Vec<(u64, At)>,
    /// When something was asked for, and the nearest from then on.
    asked: Vec<(u64, At)>,
}

impl Timeline {
    fn sort(&mut self) {
        self.done.sort_unstable_by_key(|(when, _)| *when);
        self.asked.sort_unstable_by_key(|(when, _)| *when);
        for at in 1..self.done.len() {
            self.done[at].1 = self.done[at].1.max(self.done[at - 1].1);
        }
        for at in (1..self.asked.len()).rev() {
            self.asked[at - 1].1 = self.asked[at - 1].1.min(self.asked[at].1);
        }
    }

    /// What had been told last before an operation began, and when.
    fn last(&self, operation: &Operation) -> Option<(u64, At)> {
        let before = self.done.partition_point(|(when, _)| *when < operation.invoked);
        before.checked_sub(1).map(|at| self.done[at])
    }

    /// What was asked for first after an operation ended, and when.
    fn next(&self, operation: &Operation) -> Option<(u64, At)> {
        let completed = operation.ended()?;
        self.asked.get(self.asked.partition_point(|(when, _)| *when <= completed)).copied()
    }

    /// What had been told before an operation began, and what was asked for only after it ended.
    fn around(&self, operation: &Operation) -> (Option<At>, Option<At>) {
        let before = self.last(operation).map(|(_, at)| at);
        (before, self.next(operation).map(|(_, at)| at))
    }
}

struct Fates<'a> {
    losses: &'a Losses,
    told: BTreeMap<u32, Timeline>,
    /// By the numbers of operations that wrote.
    of: BTreeMap<u64, Fate>,
    written_by: BTreeMap<u64, u64>,
    /// Rows whose removal was lost, or may have been.
    removals: BTreeSet<Key>,
    /// Rows of which a value was lost, or may have been: whether they were there is not clear.
    doubtful: BTreeSet<Key>,
}

impl<'a> Fates<'a> {
    fn new(losses: &'a Losses, history: &[Operation]) -> Result<Fates<'a>, Wrong> {
        let mut fates = Fates {
            losses,
            told: BTreeMap::new(),
            of: BTreeMap::new(),
            written_by: BTreeMap::new(),
            removals: BTreeSet::new(),
            doubtful: BTreeSet::new(),
        };
        for operation in history {
            for tag in operation.writes.iter().filter_map(|write| write.tag) {
                fates.written_by.insert(tag, operation.number);
            }
            let (Some(at), Some(ended)) = (losses.place_of(operation), operation.ended()) else { continue };
            let told = fates.told.entry(operation.place).or_default();
            told.done.push((ended, at));
            told.asked.push((operation.invoked, at));
        }
        fates.told.values_mut().for_each(Timeline::sort);
        for operation in history.iter().filter(|operation| !operation.writes.is_empty()) {
            let fate = fates.fate(operation);
            fates.of.insert(operation.number, fate);
        }
        fates.hear_witnesses(history)?;
        for operation in history {
            if fates.of.get(&operation.number).is_some_and(|fate| *fate != Fate::Kept) {
                for write in &operation.writes {
                    let rows = if write.tag.is_none() { &mut fates.removals } else { &mut fates.doubtful };
                    rows.insert(write.key);
                }
            }
        }
        Ok(fates)
    }

    /// By its position, or by what was told before and asked for after it.
    fn fate(&self, operation: &Operation) -> Fate {
        let place = operation.place;
        let by = |lost: bool| if lost { Fate::Lost } else { Fate::Kept };
        if let Some(at) = self.losses.place_of(operation) {
            return by(self.losses.is_lost(place, at));
        }
        let Some(told) = self.told.get(&place) else { return Fate::Unsure };
        let (before, after) = told.around(operation);
        let goes_on = |at: At| self.losses.terms.get(&(place, at.term)) == Some(&None);
        match (before, after) {
            (Some(before), _) if operation.end == End::Done && goes_on(before) => Fate::Kept,
            (Some(before), Some(after)) if before.term == after.term => {
                let (lost_before, lost_after) =
                    (self.losses.is_lost(place, before), self.losses.is_lost(place, after));
                match (lost_before, lost_after) {
                    (_, false) => Fate::Kept,
                    (true, true) => Fate::Lost,
                    (false, true) => Fate::Unsure,
                }
            }
            _ => Fate::Unsure,
        }
    }

    /// What was seen in a state that was kept, and what that rests on, was kept.
    fn hear_witnesses(&mut self, history: &[Operation]) -> Result<(), Wrong> {
        let mut rests_on: BTreeMap<u64, u64> = BTreeMap::new();
        let mut kept: Vec<(u64, u64)> = Vec::new();
        // What an operation wrote was kept or lost as a whole. A removal rests on the value that it removed.
        let mut wrote: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for operation in history {
            let shown = |write: &Write| {
                write.tag.or(match write.over {
                    Over::Value(removed) => Some(removed),
                    _ => None,
                })
            };
            wrote.insert(operation.number, operation.writes.iter().filter_map(shown).collect());
            for write in &operation.writes {
                if let (Some(tag), Over::Value(prev)) = (write.tag, write.over) {
                    rests_on.insert(tag, prev);
                }
            }
            if self.of.get(&operation.number) == Some(&Fate::Kept) {
                kept.extend(wrote[&operation.number].iter().map(|tag| (*tag, operation.number)));
            }
            let fate = if operation.reads.is_empty() { Fate::Unsure } else { self.fate(operation) };
            for seen in operation.reads.iter().filter_map(|read| read.seen) {
                if seen.prev > 0 {
                    rests_on.insert(seen.tag, seen.prev);
                }
                let place = self.losses.place_of(operation);
                let below = place
                    .zip(seen.lsn)
                    .is_some_and(|(at, lsn)| !self.losses.is_lost(operation.place, At { lsn, ..at }));
                if fate == Fate::Kept || below {
                    kept.push((seen.tag, operation.number));
                }
            }
        }
        let mut heard = BTreeSet::new();
        while let Some((tag, witness)) = kept.pop() {
            if !heard.insert(tag) {
                continue;
            }
            kept.extend(rests_on.get(&tag).map(|prev| (*prev, witness)));
            let Some(writer) = self.written_by.get(&tag) else { continue };
            let fate = self.of.entry(*writer).or_insert(Fate::Kept);
            if *fate == Fate::Lost {
                let sentence = format!("value {tag} is reported lost, and was seen in a state that was kept");
                return Err(Wrong { sentence, operations: vec![*writer, witness] });
            }
            *fate = Fate::Kept;
            kept.extend(wrote.get(writer).into_iter().flatten().map(|tag| (*tag, witness)));
        }
        Ok(())
    }

    /// True if this write was acknowledged, and it is open on which side of a loss it is.
    fn is_unsure(&self, operation: &Operation) -> bool {
        let fate = || self.of.get(&operation.number).copied().unwrap_or(Fate::Unsure);
        operation.end == End::Done && !operation.writes.is_empty() && fate() == Fate::Unsure
    }

    /// True if the term that was told of last before an operation has ended, and an answer of that term or of
    /// what came after it is near: then it may have been in the moment of a loss. Where nothing was told
    /// before, nothing says that it was not.
    fn is_of_a_loss(&self, operation: &Operation) -> bool {
        let Some(told) = self.told.get(&operation.place) else { return true };
        let Some((when, at)) = told.last(operation) else { return true };
        let ended = self.losses.terms.get(&(operation.place, at.term)).is_some_and(Option::is_some);
        let completed = operation.ended().unwrap_or(u64::MAX);
        let next = told.next(operation).is_some_and(|(asked, _)| asked - completed <= MOMENT);
        ended && (next || operation.invoked - when <= MOMENT)
    }

    fn is_kept(&self, tag: u64) -> bool {
        // A value that nobody wrote stays, for the checker to find.
        self.written_by.get(&tag).is_none_or(|writer| self.of.get(writer) == Some(&Fate::Kept))
    }

    /// What of an operation is left.
    fn rest(&self, mut operation: Operation, taken: &mut Subtracted) -> Option<Operation> {
        if !operation.writes.is_empty() {
            let fate = self.of.get(&operation.number).copied().unwrap_or(Fate::Unsure);
            match (fate, operation.end) {
                (Fate::Kept, _) => return Some(operation),
                // A removal leaves no value that somebody could have seen: it stays as one that may have
                // been.
                (Fate::Unsure, end) if operation.writes.iter().any(|write| write.tag.is_none()) => {
                    taken.unsure.extend((end == End::Done).then_some(operation.number));
                    (operation.end, operation.completed) = (End::Unknown, None);
                    operation.writes.iter_mut().for_each(|write| write.over = Over::Blind);
                    return Some(operation);
                }
                (Fate::Lost, End::Done) => taken.writes += 1,
                (Fate::Unsure, End::Done) => taken.unsure.push(operation.number),
                (_, End::Unknown) => {}
            }
            return None;
        }
        let fate = self.fate(&operation);
        if fate == Fate::Lost {
            taken.reads += 1;
            return None;
        }
        if fate == Fate::Unsure {
            let all = operation.reads.len();
            operation.reads.retain(|read| match read.seen {
                Some(seen) => self.is_kept(seen.tag),
                None => !self.removals.contains(&read.key),
            });
            taken.reads += u64::from(operation.reads.len() < all);
            operation.found.clear();
        }
        operation.found.retain(|key| !self.doubtful.contains(key));
        (!operation.reads.is_empty() || !operation.found.is_empty()).then_some(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::made::*;

    /// Term 1 was kept up to LSN 10, and term 2 goes on.
    fn losses() -> Losses {
        let mut losses = Losses::default();
        losses.ended(64, 1, Some(10));
        losses.ended(64, 2, None);
        losses
    }

    fn left(operations: impl IntoIterator<Item = Operation>) -> (Vec<u64>, Subtracted) {
        let (left, taken) = losses().subtract(history(operations)).expect("nothing is wrong");
        (left.iter().map(|operation| operation.number).collect(), taken)
    }

    #[test]
    fn what_is_behind_a_terms_end_is_taken_out_and_nothing_else() {
        let (left, taken) = left([
            put(1, 1, 2).at(1, 10),
            put(2, 3, 4).at(1, 11),
            read(seen(2, 0), 5, 6).at(1, 11),
            put(3, 20, 21).at(2, 11),
            read(seen(3, 0), 22, 23).at(2, 11),
            // The configuration changed within the term.
            read(seen(3, 0), 24, 25).at(5, 12),
        ]);
        assert_eq!(left, [1, 4, 5, 6]);
        assert_eq!(taken, Subtracted { writes: 1, unsure: vec![], reads: 1 });
    }

    #[test]
    fn where_everything_is_promised_nothing_acknowledged_may_be_reported_lost() {
        let kept = history([put(1, 1, 2).at(1, 10), put(3, 20, 21).at(2, 11)]);
        assert!(losses().none_of(&kept).is_ok());
        let lost = history([put(1, 1, 2).at(1, 10), put(2, 3, 4).at(1, 11), put(3, 20, 21).at(2, 11)]);
        assert_eq!(losses().none_of(&lost).map_err(|wrong| wrong.operations), Err(vec![2]));
    }

    #[test]
    fn what_has_no_position_is_put_between_what_has_one() {
        let (left, taken) = left([
            put(1, 1, 2).at(1, 9),
            // Between two that were kept.
            put(2, 3, 4).sql(),
            read(seen(2, 0), 3, 4).sql(),
            put(3, 5, 6).at(1, 10),
            // Nobody knows.
            put(4, 7, 8).sql(),
            // Seen afterwards: kept.
            put(5, 7, 8).sql(),
            put(6, 9, 10).at(1, 12),
            // Between two that were lost.
            put(7, 11, 12).sql(),
            read(seen(6, 0), 11, 12).sql(),
            put(8, 13, 14).at(1, 14),
            put(9, 20, 21).at(2, 11),
            // Of the term that goes on.
            put(10, 22, 23).sql(),
            read(seen(5, 0), 24, 25).sql(),
            // Rows that show something lost, from around the loss.
            read(seen(4, 0), 7, 22).sql(),
        ]);
        assert_eq!(left, [1, 2, 3, 4, 6, 11, 12, 13]);
        assert_eq!(taken, Subtracted { writes: 3, unsure: vec![5], reads: 2 });
    }

    #[test]
    fn all_that_a_witness_of_one_row_rests_on_was_kept() {
        let both = |tag, over, other: u64| {
            let mut operation = write(tag, over, 9, 10).sql();
            operation.writes.push(crate::Write { key: OTHER, tag: Some(other), over: Over::Value(5) });
            operation
        };
        let (left, taken) = left([
            put(1, 1, 2).at(1, 9),
            // Nobody knows on which side of the loss these two are, but a row shows one of both.
            put(5, 7, 8).sql().of(OTHER),
            both(6, Over::Value(1), 7),
            put(3, 20, 21).at(1, 12),
            put(9, 30, 31).at(2, 11),
            read(seen(6, 1), 40, 41).at(2, 11),
        ]);
        assert_eq!((left, taken.unsure), (vec![1, 2, 3, 5, 6], vec![]));
    }

    #[test]
    fn what_a_removal_that_was_kept_has_removed_was_kept() {
        let removal = || {
            let mut removal = delete(22, 23).sql();
            removal.writes[0].over = Over::Value(2);
            removal
        };
        let history = [
            put(1, 1, 2).at(1, 9),
            // Nobody knows, but it was there to be removed in the term that goes on.
            write(2, Over::Value(1), 7, None).sql(),
            put(3, 9, 10).at(1, 12).of(OTHER),
            put(4, 20, 21).at(2, 11).of(OTHER),
            removal(),
            read(None, 30, 31).at(2, 13),
        ];
        assert_eq!(left(history).0, [1, 2, 4, 5, 6]);
    }

    #[test]
    fn a_removal_that_may_be_lost_may_have_been() {
        let (left, _) = left([
            put(1, 1, 2).at(1, 9),
            delete(3, None),
            read(None, 4, 5).sql(),
            put(2, 6, 7).at(1, 12),
            put(3, 20, 21).at(2, 11),
            read(None, 24, 25).sql(),
        ]);
        assert_eq!(left, [1, 2, 5, 6]);
    }

    #[test]
    fn a_write_of_unclear_place_is_near_a_loss_or_rejected() {
        let open = |began| put(2, began, began + 1).sql();
        let unclear = |began| {
            let after = put(3, 9_000_000, 9_000_001).at(2, 11).of(OTHER);
            losses().subtract(history([put(1, 1, 2).at(1, 9), open(began), after]))
        };
        let (_, taken) = unclear(MOMENT).expect("in the moment of the loss");
        assert_eq!(taken.unsure, [2]);
        let wrong = unclear(MOMENT + 3).expect_err("long after the last answer of the term that ended");
        assert_eq!(wrong.operations, [2]);
        // Of the term that was told of last nobody says that it has ended.
        let unknown = history([put(1, 1, 2).at(7, 9), open(3), put(3, 5, 6).at(8, 11).of(OTHER)]);
        assert!(losses().subtract(unknown).is_err());
    }

    #[test]
    fn of_a_refusal_only_what_is_clear_is_left() {
        let (clear, _) = left([put(1, 1, 2).at(1, 9), refused(3, 4).at(1, 10), put(3, 20, 21).at(2, 11)]);
        assert_eq!(clear, [1, 2, 3]);
        let lost = [put(1, 1, 2).at(1, 9), put(2, 3, 4).at(1, 11), refused(5, 6).at(2, 12)];
        assert_eq!(left(lost).0, [1], "whether the row is there is open where one of its values was lost");
        let gone = [put(1, 1, 2).at(1, 9), refused(3, 4).at(1, 12), put(3, 20, 21).at(2, 11)];
        assert_eq!(left(gone).0, [1, 3], "the state was lost");
    }

    #[test]
    fn what_is_reported_lost_and_is_still_there_is_rejected() {
        let operations =
            [put(2, 3, 4).at(1, 11), put(3, 20, 21).at(2, 11), read(seen(2, 0), 24, 25).at(2, 12)];
        let wrong = losses().subtract(history(operations)).expect_err("it was seen");
        assert_eq!(wrong.operations, [1, 3]);
        assert!(wrong.sentence.contains("reported lost"), "{wrong:?}");
    }
}

//! What of one partition was refused for want of room, and what came after it.

use std::collections::BTreeMap;
use types::Lsn;
use wal::{Record, Ticket};

/// Refused records are tried again in submissions of about so many bytes: what is refused is refused as a
/// whole, and all that waits may be more than the log can ever take at once.
const PIECE: usize = 256 << 10;

/// Records of one partition that wait for room. Some of them were in submissions of which the answer came
/// late, so that they belong before what has been added since: so they are kept by submission.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// By the submission that a record was in, or that was the last when it came, and a number within that: 0
    /// for all that were in it.
    records: BTreeMap<(Ticket, u64), Vec<Record>>,
    next: u64,
}

impl Backlog {
    /// It was in this submission, which was refused. Those of one submission come in its order.
    pub(super) fn refused(&mut self, ticket: Ticket, record: Record) {
        self.records.entry((ticket, 0)).or_default().push(record);
    }

    /// It came after this submission, and follows what was refused.
    pub(super) fn follow(&mut self, last: Ticket, record: Record) {
        self.next += 1;
        self.records.insert((last, self.next), vec![record]);
    }

    /// All of them, in the order in which they are to be written.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values().flatten()
    }

    /// True if what is durable of the partition may not be part of its log behind these.
    pub(super) fn moves_the_end(&self) -> bool {
        self.records().any(moves_the_end)
    }

    /// What is to be tried again: the truncations that can go first, and the rest. Without what need not be
    /// written any more.
    pub(super) fn split(self, durable: Option<Lsn>) -> (Vec<Record>, Vec<Record>) {
        let records = without_replaced(self.records.into_values().flatten().collect());
        match records.iter().any(moves_the_end) {
            true => (Vec::new(), records),
            false => records.into_iter().partition(
                |record| matches!(record, Record::Trim { below, .. } if durable >= Some(below.prev())),
            ),
        }
    }
}

/// True if what is durable of a partition may not be part of its log behind this record.
pub(super) fn moves_the_end(record: &Record) -> bool {
    matches!(record, Record::Truncate { .. } | Record::Base { .. } | Record::Forget { .. })
}

/// One partition's records without those of a log that a later one of them begins anew, or ends: nobody waits
/// for these.
fn without_replaced(mut records: Vec<Record>) -> Vec<Record> {
    let begins = |record: &Record| matches!(record, Record::Base { .. } | Record::Forget { .. });
    let Some(begins) = records.iter().rposition(begins) else { return records };
    let mut at = 0;
    records.retain(|record| {
        at += 1;
        // Promises and notes are not the log's; what forgets them is needed.
        let of_the_log = matches!(record, Record::Entry(_) | Record::Trim { .. })
            || matches!(record, Record::Truncate { .. } | Record::Base { .. });
        at > begins || !of_the_log
    });
    records
}

/// The same records in the same order, in pieces of at least [`PIECE`] bytes but for the last. An entry and
/// the notes behind it stay together; what comes before the first one that needs room is a piece for itself,
/// which a full log takes, as it may make room. So is all up to the last marker of a term, which it takes too
/// (PR-126).
pub(super) fn pieces(mut records: Vec<Record>) -> Vec<Vec<Record>> {
    let entries = records.iter().position(Record::needs_room);
    let mut marked = records.split_off(entries.unwrap_or(records.len()));
    let entries = marked.split_off(marked.iter().rposition(Record::is_marker).map_or(0, |at| at + 1));
    let firsts = [records, marked].into_iter().filter(|piece| !piece.is_empty());
    let mut pieces: Vec<Vec<Record>> = firsts.collect();
    let mut bytes = PIECE;
    for record in entries {
        let length = if let Record::Entry(entry) = &record { entry.bytes().len() } else { 0 };
        match pieces.last_mut().filter(|_| length == 0 || bytes < PIECE) {
            Some(piece) => piece.push(record),
            None => {
                pieces.push(vec![record]);
                bytes = 0;
            }
        }
        bytes += length;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, PartitionId, Position, Term};
    use wire::Entry;
    use wire::entry::{Header, Kind};

    const P: PartitionId = PartitionId(64);

    fn entry(lsn: u64, bytes: usize) -> Record {
        let at = Position::new(Term(1), Lsn(lsn));
        Record::Entry(Entry::encode(Header::new(Kind::Noop, P, at, 7), &vec![7; bytes]))
    }

    fn base(lsn: u64) -> Record {
        Record::Base { partition: P, at: Position::new(Term(1), Lsn(lsn)), crc: 7 }
    }

    fn trim(below: u64) -> Record {
        Record::Trim { partition: P, below: Lsn(below) }
    }

    const PROMISE: Record = Record::Promise { partition: P, epoch: Epoch(1) };
    const FORGET: Record = Record::Forget { partition: P };

    #[test]
    fn what_a_later_record_replaces_need_not_be_written() {
        let truncate = Record::Truncate { partition: P, to: Position::new(Term(1), Lsn(2)) };
        let replaced = [entry(1, 10), FORGET, base(3), PROMISE, trim(2), truncate];
        for begins in [base(5), FORGET] {
            let stays = [begins, entry(6, 10), PROMISE];
            let all = replaced.iter().chain(&stays).cloned().collect();
            let left: Vec<Record> = [FORGET, PROMISE].into_iter().chain(stays).collect();
            assert_eq!(without_replaced(all), left);
        }
    }

    #[test]
    fn an_answer_that_comes_late_is_of_what_belongs_before() {
        let mut backlog = Backlog::default();
        backlog.refused(3, entry(1, 10));
        backlog.follow(4, entry(3, 10));
        backlog.follow(4, PROMISE);
        backlog.refused(4, entry(2, 10));
        let all: Vec<Record> = backlog.records().cloned().collect();
        assert_eq!(all, [entry(1, 10), entry(2, 10), entry(3, 10), PROMISE]);
    }

    #[test]
    fn f20_truncations_go_first_if_they_name_what_the_log_has() {
        // The backlog, what is durable, and what goes first of it.
        let cases = [
            (vec![entry(5, 10), trim(5)], Some(4), vec![trim(5)]),
            (vec![entry(5, 10), trim(6)], Some(4), vec![]),
            (vec![entry(5, 10), trim(5)], None, vec![]),
            (vec![base(4), trim(3)], Some(4), vec![]),
        ];
        for (records, durable, first) in cases {
            let mut backlog = Backlog::default();
            records.iter().for_each(|record| backlog.refused(1, record.clone()));
            let rest: Vec<Record> = records.into_iter().filter(|record| !first.contains(record)).collect();
            assert_eq!(backlog.split(durable.map(Lsn)), (first, rest));
        }
    }

    #[test]
    fn f20_what_comes_before_the_first_entry_is_a_piece_of_its_own() {
        let (small, large) = (entry(1, 10), entry(2, PIECE));
        let at = Position::new(Term(2), Lsn(3));
        let marker = Record::Entry(Entry::encode(Header::new(Kind::Configuration, P, at, 7), b""));
        // The records, and how many of them are in each piece.
        let cases = [
            (vec![], vec![]),
            (vec![PROMISE, base(1)], vec![2]),
            (vec![PROMISE, small.clone(), small.clone()], vec![1, 2]),
            (vec![large.clone(), PROMISE, small.clone()], vec![2, 1]),
            (vec![small.clone(), large.clone(), PROMISE, large.clone(), trim(1)], vec![3, 2]),
            (vec![PROMISE, large.clone(), large, marker, PROMISE, small], vec![1, 4, 1]),
        ];
        for (records, lengths) in cases {
            let pieces = pieces(records.clone());
            assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
            assert_eq!(pieces.concat(), records);
        }
    }
}

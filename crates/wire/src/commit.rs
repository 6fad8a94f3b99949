//! Global transactions: what is asked of the transaction manager's partition, and of those under it
//! ([`types::commits`]).

use crate::control::RecordText;
use crate::message::MAX_OPS;
use crate::request::{Op, ReadSnapshot, TablePart};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::engine::MAX_KEY_BYTES;
use types::{PartitionId, Position, SessionId, TableId};

/// The largest write-set of one transaction, in bytes, 16 for each row beside its key and value: it is one
/// row of the manager's partition.
pub const MAX_WRITE_SET_BYTES: usize = 6 << 20;
/// What a row takes in a write-set beside its key and value, in bytes.
pub const BESIDE_ROW: usize = 16;
/// The most changes of rows and of index entries that a partition is brought at once. An index that would
/// need more fails there, since what is committed is not refused (PR-257): so the commit is refused before.
pub const MAX_CHANGES: usize = crate::effects::MAX_MUTATIONS - 1_000;

/// The most transactions that one client, or one gateway, may say it has open.
pub const MAX_EXECUTING: u32 = 1_000_000;

/// The most partitions of a database.
const MAX_PARTITIONS: usize = 65_536;

/// Why a write-set is too large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooLarge {
    /// It has more than [`MAX_WRITE_SET_BYTES`].
    Bytes,
    /// It makes more than [`MAX_CHANGES`] changes in a partition.
    Changes,
}

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TooLarge::Bytes => {
                write!(f, "a transaction over several partitions writes at most {MAX_WRITE_SET_BYTES} bytes")
            }
            TooLarge::Changes => write!(
                f,
                "a transaction makes at most {MAX_CHANGES} changes of rows and of index entries in a partition"
            ),
        }
    }
}

/// How large a write-set is, counted as it grows (PR-320).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WriteSetSize {
    bytes: usize,
    changes: BTreeMap<PartitionId, usize>,
}

impl WriteSetSize {
    /// One row more, of so many bytes of key and value, of a table with so many indexes.
    pub fn add(&mut self, partition: PartitionId, bytes: usize, indexes: usize) -> Result<(), TooLarge> {
        // The row, and of each index one entry that goes and one that comes.
        let changes = self.changes.entry(partition).or_default();
        if *changes + 1 + 2 * indexes > MAX_CHANGES {
            return Err(TooLarge::Changes);
        }
        if self.bytes + bytes + BESIDE_ROW > MAX_WRITE_SET_BYTES {
            return Err(TooLarge::Bytes);
        }
        *changes += 1 + 2 * indexes;
        self.bytes += bytes + BESIDE_ROW;
        Ok(())
    }

    /// A row that was added is not written any more, or in another way.
    pub fn remove(&mut self, partition: PartitionId, bytes: usize, indexes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes + BESIDE_ROW);
        if let Some(changes) = self.changes.get_mut(&partition) {
            *changes = changes.saturating_sub(1 + 2 * indexes);
        }
    }
}

/// What a transaction writes in one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionWrites {
    /// The partition.
    pub partition: PartitionId,
    /// Puts and deletions, no table and no key twice.
    pub parts: Vec<TablePart>,
}

/// A transaction that wants to be committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommitRequest {
    /// The snapshot that it read, a timestamp: none of its rows may have been written by a later commit.
    /// Where its statements read several snapshots, the oldest.
    pub snapshot: Position,
    /// The partitions that it writes, ascending. A part may name for each row the snapshot at which that row
    /// was read first ([`TablePart::seen`]): then the row may have been written up to there.
    pub writes: Vec<PartitionWrites>,
}

impl CommitRequest {
    /// Every row that it writes, with the snapshot at which it was read.
    pub fn rows(&self) -> impl Iterator<Item = (TableId, &bytes::Bytes, Position)> {
        let parts = self.writes.iter().flat_map(|writes| &writes.parts);
        parts.flat_map(|part| {
            let seen = |at: usize| part.seen.get(at).copied().unwrap_or(self.snapshot);
            part.ops.iter().enumerate().map(move |(at, op)| (part.table, op.key(), seen(at)))
        })
    }

    /// The snapshots that it rests on.
    pub fn snapshots(&self) -> std::collections::BTreeSet<Position> {
        self.rows().map(|(_, _, seen)| seen).chain([self.snapshot]).collect()
    }
}

impl PartitionWrites {
    /// What the partition is told: the rows, and not what they rest on.
    pub fn told(&self) -> Vec<TablePart> {
        self.parts.iter().map(|part| TablePart { seen: Vec::new(), ..part.clone() }).collect()
    }
}

/// A row to which rows of a commit refer by values that are unique, and no key, as who commits them has found
/// it at the snapshot at which that was looked at (PR-369).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParentRow {
    /// The number of the foreign key.
    pub constraint: u32,
    /// What the rows that refer have in its columns, as an entry of an index of them begins with it
    /// ([`types::index::entry_prefix`]).
    pub value: bytes::Bytes,
    /// The table that is referred to.
    pub table: TableId,
    /// The encoded key of its row that has these values. One that no row can have: a row that is written as
    /// it was refers to nothing, since before there was the foreign key.
    pub key: bytes::Bytes,
}

impl ParentRow {
    /// How much it adds to a commit, in bytes, about.
    pub fn bytes(&self) -> usize {
        self.value.len() + self.key.len() + BESIDE_ROW
    }
}

/// A commit's part in one partition, as the partition is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Flush {
    /// The commit's timestamp.
    pub commit: Position,
    /// The commit before it that has a part in the same partition; zero: none has.
    pub previous: Position,
    /// What it writes there.
    pub parts: Vec<TablePart>,
}

/// A commit's part in one partition, as the manager keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptWrites {
    /// The partition.
    pub partition: PartitionId,
    /// As in [`Flush`].
    pub previous: Position,
    /// What it writes there.
    pub parts: Vec<TablePart>,
}

impl KeptWrites {
    /// As the partition is told.
    pub fn flush(self, commit: Position) -> Flush {
        Flush { commit, previous: self.previous, parts: self.parts }
    }
}

/// A write-set as it is stored.
pub fn encode_write_set(kept: &[KeptWrites]) -> Vec<u8> {
    postcard::to_stdvec(kept).expect("keys and rows")
}

/// A stored write-set. The error is a sentence.
pub fn decode_write_set(bytes: &[u8]) -> Result<Vec<KeptWrites>, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((kept, [])) => Ok(kept),
        Ok(_) => Err("there are bytes behind a write-set".into()),
        Err(error) => Err(format!("a write-set cannot be read: {error}")),
    }
}

/// How far a partition has come, for the transaction manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlushState {
    /// The newest commit that has arrived.
    pub newest: Position,
    /// The newest one that every copy that counts has durable, while there are as many as were asked for;
    /// zero: nothing is sure.
    pub secured: Position,
}

/// A partition in the transaction manager's books.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Threshold {
    /// The partition.
    pub partition: PartitionId,
    /// The newest commit with a part in it.
    pub newest: Position,
    /// Up to here its copies have everything durable.
    pub secured: Position,
}

/// What is asked of the transaction manager's partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ManagerOp {
    /// Commits a transaction. Answered with [`CommitAnswer::Committed`], the reply's position being the
    /// timestamp; refused with [`crate::Outcome::Changed`] if another one was faster.
    Commit(CommitRequest),
    /// The newest snapshot, and for every partition that has a commit above `since` the newest one.
    Snapshot {
        /// A snapshot that the client has had; zero: none.
        since: Position,
    },
    /// Flushes of a partition above a timestamp, in order, about 4 MiB of them. [`crate::Status::TooOld`] if
    /// the first of them are not kept any more.
    Chain {
        /// The partition.
        partition: PartitionId,
        /// What it has.
        after: Position,
        /// Where to go on; zero: at the beginning.
        from: Position,
    },
    /// All partitions in the manager's books, and what is kept.
    Thresholds,
    /// Partitions have secured so much: what every partition has secured need not be kept much longer.
    /// Answered with how many write-sets were removed: there may be more.
    Secured {
        /// Timestamps; lower ones than are known change nothing.
        partitions: Vec<(PartitionId, Position)>,
    },
    /// How many commits are kept, and what operators have given up. Answered with [`CommitAnswer::Kept`].
    Kept {
        /// Timestamps, at most 16: the commits up to each are counted.
        upto: Vec<Position>,
    },
    /// An operator's last word on a partition whose commits do not follow each other any more. It is noted
    /// for good. Refused with [`crate::Status::TooOld`] if commits between are gone that nobody gives up.
    Mend {
        /// The partition.
        partition: PartitionId,
        /// What it has.
        has: Position,
        /// It is to go on behind this one: what lies between is given up. The same as `has`: the manager is
        /// to go on behind what the partition has, though it does not know of it; by a commit without rows,
        /// if it has no later one there (PR-415).
        upto: Position,
    },
    /// The tables of a database whose first partition is this that the manager knows. Answered with
    /// [`CommitAnswer::Tables`].
    Tables {
        /// The partition.
        first: PartitionId,
    },
    /// Tables of a database are like this from here on (PR-323): a commit with a part in each of its
    /// partitions, and no rows. Transactions that began before it do not write these tables any more.
    /// Answered with [`CommitAnswer::Committed`], or with [`crate::Body::Affected`] if nothing is new.
    Define {
        /// All partitions of the database, ascending.
        partitions: Vec<PartitionId>,
        /// JSON of each table's [`types::TableRecord`].
        tables: Vec<RecordText>,
        /// Tables that are there no more.
        gone: Vec<TableId>,
    },
    /// As [`ManagerOp::Commit`], of rows of tables with values that are unique, or that refer to others: the
    /// second is the snapshot at which nothing stood against them (PR-324, PR-325).
    CommitChecked(CommitRequest, Position),
    /// What became of a commit whose client heard no answer to it (PR-361). Answered as the commit itself.
    /// One that was not executed never will be from here on: it is refused with [`crate::Outcome::Changed`],
    /// by an entry that uses its number up. [`crate::Status::TooOld`] if the session is not known any more,
    /// or has forgotten it.
    Outcome {
        /// The session of the commit.
        session: SessionId,
        /// Its number there.
        seq: u64,
    },
    /// What a client, or a gateway for its sessions, has open now. Sent once a second as long as it has some,
    /// and once behind that; nothing of it is logged, and nothing rests on it. Answered with
    /// [`CommitAnswer::Executing`] if `open` is 0, so whoever only asks says that; else with nothing.
    Executing {
        /// The sender: a number of its own, drawn at random when it starts. What it said before is replaced.
        who: u64,
        /// How many transactions it has open, at most [`MAX_EXECUTING`].
        open: u32,
        /// How long the oldest of them has been open, in milliseconds by the sender's clock.
        oldest_ms: u64,
    },
    /// As [`ManagerOp::CommitChecked`], of rows of which some refer by values that are unique, and no keys
    /// (PR-369).
    CommitLooked {
        /// The transaction.
        asked: CommitRequest,
        /// The snapshot at which nothing stood against its rows.
        checked: Position,
        /// What they refer to by values, each foreign key with each value once: at most
        /// [`crate::message::MAX_OPS`], and [`MAX_WRITE_SET_BYTES`] of them.
        parents: Vec<ParentRow>,
    },
    /// These partitions were dropped: the manager keeps nothing of them once all of their commits are secured
    /// and removed (PR-390). Others of them stay as they are, and may be named again.
    Forget {
        /// At most [`crate::message::MAX_OPS`].
        partitions: Vec<PartitionId>,
    },
}

impl ManagerOp {
    /// True if it makes an entry although it has no number: to do it twice is to do it once.
    pub fn is_told(&self) -> bool {
        matches!(
            self,
            ManagerOp::Secured { .. }
                | ManagerOp::Mend { .. }
                | ManagerOp::Outcome { .. }
                | ManagerOp::Forget { .. }
        )
    }

    /// True if it looks at the books, and nothing of it is counted, logged or kept.
    pub fn only_looks(&self) -> bool {
        let of_chains = matches!(self, ManagerOp::Snapshot { .. } | ManagerOp::Chain { .. });
        of_chains || matches!(self, ManagerOp::Thresholds | ManagerOp::Tables { .. })
    }

    /// The transaction that is to be committed, if one is.
    pub fn commit(&self) -> Option<&CommitRequest> {
        match self {
            ManagerOp::Commit(asked) | ManagerOp::CommitChecked(asked, _) => Some(asked),
            ManagerOp::CommitLooked { asked, .. } => Some(asked),
            _ => None,
        }
    }

    /// What the rows of that transaction refer to by values.
    pub fn parents(&self) -> &[ParentRow] {
        match self {
            ManagerOp::CommitLooked { parents, .. } => parents,
            _ => &[],
        }
    }
}

/// How many commits the manager keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeptCommits {
    /// For each timestamp that was asked for: the commits up to it, and when the next one was made.
    pub counts: Vec<(u64, Option<u64>)>,
    /// All of them.
    pub commits: u64,
    /// Bytes in the manager's memory, about.
    pub bytes: u64,
    /// When the oldest was made.
    pub oldest_ms: Option<u64>,
    /// The manager's clock now, in milliseconds since 1970, as all times here.
    pub now_ms: u64,
    /// Committed since this manager began to lead.
    pub committed: u64,
    /// Refused since then, because another transaction was faster.
    pub refused: u64,
    /// What operators have given up: the partition, from, up to, when.
    pub given_up: Vec<(PartitionId, Position, Position, u64)>,
}

/// Transactions that are open at clients and gateways, as far as these have said so in the last seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExecutingTransactions {
    /// So many.
    pub transactions: u64,
    /// Clients and gateways that have them.
    pub senders: u32,
    /// How long the oldest has been open, in milliseconds; none: there is none.
    pub oldest_ms: Option<u64>,
}

/// What the transaction manager's partition answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CommitAnswer {
    /// The transaction is committed. For each of its partitions, the commit before it.
    Committed(Vec<(PartitionId, Position)>),
    /// A snapshot.
    Snapshot {
        /// Its timestamp: every commit up to this one is in it.
        at: Position,
        /// The newest commit of each partition, where it lies above what was asked.
        heads: Vec<(PartitionId, Position)>,
    },
    /// Flushes, in order.
    Chain {
        /// Each names the one before it.
        flushes: Vec<Flush>,
        /// There may be more behind this.
        next: Option<Position>,
    },
    /// The manager's books.
    Thresholds {
        /// Every partition.
        partitions: Vec<Threshold>,
        /// The highest timestamp whose commit is not kept any more.
        truncated: Position,
    },
    /// How far a partition is.
    State(FlushState),
    /// How many commits are kept.
    Kept(KeptCommits),
    /// Tables, each with the version of its schema.
    Tables(Vec<(TableId, u32)>),
    /// What is open at clients and gateways.
    Executing(ExecutingTransactions),
}

impl Op {
    /// True if only a primary's books answer it. Thresholds only rise: older ones are true, too.
    pub(crate) fn is_of_books(&self) -> bool {
        match self {
            Op::Manager(ManagerOp::Thresholds) => false,
            Op::Manager(_) | Op::FlushState { .. } => true,
            _ => false,
        }
    }

    /// The snapshot of a read in a database of global transactions: its timestamp, and the newest commit that
    /// the partition must have. None: it is no such read.
    pub fn commit_snapshot_mut(&mut self) -> Option<(Position, &mut Position)> {
        let at = match self {
            Op::Get { at, .. } | Op::Scan { at, .. } | Op::Count { at, .. } => at,
            Op::Hold { at } | Op::Find { at, .. } => at,
            _ => return None,
        };
        match at {
            ReadSnapshot::Commit { at, after } => Some((*at, after)),
            _ => None,
        }
    }
}

/// What is wrong with a flush, as a sentence.
pub(crate) fn flush_fault(parts: &[TablePart]) -> Option<&'static str> {
    match parts.iter().all(|part| part.seen.is_empty()) {
        true => writes_fault(parts),
        false => Some("a flush rests on no snapshot: it was committed"),
    }
}

/// What is wrong with a write-set, as a sentence. Whether its rows can be stored is another question.
fn writes_fault(parts: &[TablePart]) -> Option<&'static str> {
    let mut keys = std::collections::BTreeSet::new();
    for part in parts {
        for op in &part.ops {
            if !matches!(op, crate::RowOp::Put { .. } | crate::RowOp::Delete { .. }) {
                return Some("a global transaction puts and deletes rows, and nothing else");
            }
            if !keys.insert((part.table, op.key())) {
                return Some("a global transaction writes a key twice");
            }
        }
    }
    None
}

/// What is wrong with a commit, as a sentence.
pub(crate) fn commit_fault(request: &CommitRequest) -> Option<&'static str> {
    let ascending = request.writes.windows(2).all(|pair| pair[0].partition < pair[1].partition);
    if !ascending || request.writes.is_empty() {
        return Some("a commit names the partitions that it writes, each once and in order");
    }
    if request.writes.iter().any(|writes| writes.parts.iter().all(|part| part.ops.is_empty())) {
        return Some("a commit names a partition in which it writes nothing");
    }
    let parts = || request.writes.iter().flat_map(|writes| &writes.parts);
    if parts().any(|part| !part.seen.is_empty() && part.seen.len() != part.ops.len()) {
        return Some("a commit names a snapshot for each row of a table, or for none");
    }
    if parts().flat_map(|part| &part.seen).any(|seen| *seen < request.snapshot) {
        return Some("a row of a commit rests on an older snapshot than the commit");
    }
    request.writes.iter().find_map(|writes| writes_fault(&writes.parts))
}

/// What is wrong with what rows of a commit refer to by values, as a sentence.
pub fn parents_fault(parents: &[ParentRow]) -> Option<&'static str> {
    let bytes: usize = parents.iter().map(ParentRow::bytes).sum();
    if parents.len() > MAX_OPS || bytes > MAX_WRITE_SET_BYTES {
        return Some("a transaction refers to too many rows by values");
    }
    let is_key = |key: &[u8]| !key.is_empty() && key.len() < MAX_KEY_BYTES;
    if !parents.iter().all(|one| is_key(&one.key) && is_key(&one.value)) {
        return Some("a commit names a row that it refers to by no key, or by a value that is too long");
    }
    let mut values = std::collections::BTreeSet::new();
    let twice = parents.iter().any(|one| !values.insert((one.constraint, &one.value)));
    twice.then_some("a commit names a row that it refers to twice")
}

/// What is wrong with a change of tables, as a sentence.
pub(crate) fn define_fault(
    partitions: &[PartitionId],
    tables: &[RecordText],
    gone: &[TableId],
) -> Option<&'static str> {
    let ascending = partitions.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascending || partitions.is_empty() || partitions.len() > MAX_PARTITIONS {
        return Some("a change of tables names the partitions of a database, each once and in order");
    }
    let bytes: usize = tables.iter().map(|text| text.0.len()).sum();
    let many = tables.len() + gone.len() > types::database::MAX_TABLES || bytes > MAX_WRITE_SET_BYTES / 2;
    many.then_some("a change of tables names too many of them")
}

/// The table and the encoded key of every row that a commit writes.
pub fn keys_of(parts: &[TablePart]) -> impl Iterator<Item = (TableId, &bytes::Bytes)> {
    parts.iter().flat_map(|part| part.ops.iter().map(move |op| (part.table, op.key())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pr320_a_write_set_is_counted_as_it_grows() {
        let (one, other) = (PartitionId(64), PartitionId(65));
        let mut size = WriteSetSize::default();
        assert_eq!(size.add(one, 4 << 20, 0), Ok(()));
        assert_eq!(size.add(other, 2 << 20, 0), Err(TooLarge::Bytes), "with what stands beside them");
        assert_eq!(size.add(other, (2 << 20) - 2 * BESIDE_ROW, 0), Ok(()));
        assert_eq!(size.add(other, 0, 0), Err(TooLarge::Bytes));
        size.remove(one, 4 << 20, 0);
        let wide = |size: &mut WriteSetSize| (0..MAX_CHANGES).find_map(|_| size.add(one, 0, 12).err());
        assert_eq!(wide(&mut size), Some(TooLarge::Changes), "each row changes 25 places");
        assert_eq!(size.add(other, 0, 12), Ok(()), "it is counted by partition");
        size.remove(one, 0, 12);
        assert_eq!((size.add(one, 0, 12), size.add(one, 0, 12)), (Ok(()), Err(TooLarge::Changes)));
    }

    #[test]
    fn what_was_added_last_has_the_last_number() {
        let first_byte = |bytes: Vec<u8>| bytes[0];
        let asked = ManagerOp::Executing { who: 7, open: 3, oldest_ms: 1_500 };
        let bytes = postcard::to_stdvec(&asked).expect("encodes");
        assert_eq!(postcard::from_bytes::<ManagerOp>(&bytes).ok(), Some(asked));
        assert_eq!(first_byte(bytes), 11, "operations keep their numbers");
        let forget = ManagerOp::Forget { partitions: vec![PartitionId(64)] };
        let bytes = postcard::to_stdvec(&forget).expect("encodes");
        assert_eq!(postcard::from_bytes::<ManagerOp>(&bytes).ok(), Some(forget));
        assert_eq!(first_byte(bytes), 13);
        let executing = ExecutingTransactions { transactions: 3, senders: 1, oldest_ms: Some(1_500) };
        let answer = CommitAnswer::Executing(executing);
        let bytes = postcard::to_stdvec(&answer).expect("encodes");
        assert_eq!(postcard::from_bytes::<CommitAnswer>(&bytes).ok(), Some(answer));
        assert_eq!(first_byte(bytes), 7, "answers keep their numbers");
    }

    #[test]
    fn pr369_what_is_referred_to_by_values_is_named_once_and_within_limits() {
        let parent = |constraint: u32, value: &str, key: usize| ParentRow {
            constraint,
            value: bytes::Bytes::copy_from_slice(value.as_bytes()),
            table: TableId(1),
            key: vec![b'k'; key].into(),
        };
        assert_eq!(parents_fault(&[]), None);
        assert_eq!(parents_fault(&[parent(1, "a", 1), parent(1, "b", 1), parent(2, "a", 1)]), None);
        assert!(parents_fault(&[parent(1, "a", 1), parent(1, "a", 2)]).is_some(), "one value twice");
        for wrong in [parent(1, "a", 0), parent(1, "", 1), parent(1, "a", MAX_KEY_BYTES)] {
            assert!(parents_fault(&[wrong]).is_some());
        }
        let many = |count: u32, key: usize| (0..count).map(|one| parent(one, "a", key)).collect::<Vec<_>>();
        assert_eq!(parents_fault(&many(200, MAX_KEY_BYTES / 2)), None);
        assert!(parents_fault(&many(400, MAX_KEY_BYTES / 2)).is_some(), "more bytes than a write-set has");
        assert!(parents_fault(&many(MAX_OPS as u32 + 1, 1)).is_some());
    }

    #[test]
    fn a_commit_with_what_it_refers_to_reads_back() {
        let (asked, at) = (CommitRequest { snapshot: Position::ZERO, writes: Vec::new() }, Position::ZERO);
        let parent = ParentRow { constraint: 7, value: "v".into(), table: TableId(1), key: "k".into() };
        let op = ManagerOp::CommitLooked { asked: asked.clone(), checked: at, parents: vec![parent] };
        let bytes = postcard::to_stdvec(&op).expect("encodes");
        assert_eq!(postcard::from_bytes::<ManagerOp>(&bytes).expect("reads"), op);
        // The others are written as before.
        let before = postcard::to_stdvec(&ManagerOp::CommitChecked(asked.clone(), at)).expect("encodes");
        assert_eq!((bytes[0], before[0]), (12, 9));
        assert_eq!((op.commit(), op.parents().len()), (Some(&asked), 1));
    }
}

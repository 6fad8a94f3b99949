//! What a client asks of a partition, and what it is told (design section 5, steps 1 and 4).

use crate::bulk::LoadStatus;
use crate::commit::{CommitAnswer, Flush, ManagerOp};
use crate::control::RecordText;
pub use crate::hint::Hint;
use crate::job::{JobRecord, JobStatus};
pub use crate::outcome::Outcome;
use crate::procedure::{CallRequest, CallResult};
use crate::row_turn::{TurnAnswer, TurnOp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{
    Component, Epoch, FeedId, IndexState, JobId, LoadId, Lsn, NodeId, PartitionId, Position, SessionId,
    TableId, Term,
};

/// Who may answer a read, and how old the answer may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ReadLevel {
    /// The primary, at `committed`, within its lease: never stale.
    #[default]
    Primary,
    /// Any replica, at its own `committed`.
    Any {
        /// Refused if the replica's news of `committed` is older than this, in milliseconds (PR-27).
        max_lag_ms: u64,
        /// The replica answers "not yet" below this LSN: a token for reading one's own writes.
        min_lsn: Lsn,
    },
}

/// At which state a read looks. A *snapshot* is named by what a primary's reply to a read said: its
/// configuration's epoch, and the LSN. It stays the same state as long as it lies on the partition's history,
/// which a failover that lost acknowledged commits may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ReadSnapshot {
    /// What is committed now.
    #[default]
    Newest,
    /// The same, and the replica keeps its versions for [`ReadSnapshot::At`], ten seconds from the last
    /// use on.
    Begin,
    /// An earlier read's. Refused with [`Status::TooOld`] if it is not kept any more, or is no part of the
    /// history.
    At(Position),
    /// Of a partition that global transactions write: what commits up to a timestamp have written. Refused
    /// with [`Status::Behind`] if a commit is not here yet that is to be seen.
    Commit {
        /// The timestamp.
        at: Position,
        /// The newest commit of this partition that is to be seen, or a later one that the reader knows of;
        /// zero: none has a part in it.
        after: Position,
    },
}

/// One row operation of a write.
///
/// A write that names a snapshot ([`Op::Write::since`]) is done only if none of its rows was changed after
/// it, by anybody: the first committer wins. `Put` alone does not look.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RowOp {
    /// Writes the row, whatever was there.
    Put {
        /// The encoded key, without space byte.
        key: Bytes,
        /// The encoded row.
        row: Bytes,
    },
    /// Writes the row if there is none; else the whole write is refused with [`Outcome::Exists`].
    Insert {
        /// The encoded key.
        key: Bytes,
        /// The encoded row.
        row: Bytes,
    },
    /// Removes the row if there is one. With a snapshot there must be one.
    Delete {
        /// The encoded key.
        key: Bytes,
    },
    /// Writes the row if there is one already; else nothing is done for it. With a snapshot there must be
    /// one.
    Update {
        /// The encoded key.
        key: Bytes,
        /// The encoded row.
        row: Bytes,
    },
    /// Changes nothing. With a snapshot the row must be there, unchanged.
    Keep {
        /// The encoded key.
        key: Bytes,
    },
}

impl RowOp {
    /// The key.
    pub fn key(&self) -> &Bytes {
        match self {
            RowOp::Put { key, .. } | RowOp::Insert { key, .. } | RowOp::Update { key, .. } => key,
            RowOp::Delete { key } | RowOp::Keep { key } => key,
        }
    }

    /// The row that it writes, if it writes one.
    pub fn row(&self) -> Option<&Bytes> {
        match self {
            RowOp::Put { row, .. } | RowOp::Insert { row, .. } | RowOp::Update { row, .. } => Some(row),
            RowOp::Delete { .. } | RowOp::Keep { .. } => None,
        }
    }
}

/// What a write does to the rows of one table of a database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TablePart {
    /// The table.
    pub table: TableId,
    /// The schema version by which keys and rows were encoded.
    pub schema: u32,
    /// The changes, in order.
    pub ops: Vec<RowOp>,
    /// For each of them the state that it rests on, where that is not the whole request's; or none.
    pub seen: Vec<Position>,
}

/// A change of a database's tables.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TableChange {
    /// A new table: JSON of a [`types::CatalogTable`]. Refused with [`Outcome::NameTaken`] if a table has its
    /// name.
    Create(RecordText),
    /// Another name, or more columns: JSON of a [`types::CatalogTable`] of a version that no table ever had.
    Alter {
        /// The version that it takes the place of; refused with [`Outcome::Stale`] if that is not the newest.
        from: u32,
        /// What the table is from here on.
        to: RecordText,
    },
    /// Nobody reads or writes the table from here on, and its rows go.
    Drop {
        /// The table.
        table: TableId,
        /// Its version; refused with [`Outcome::Stale`] if that is not the newest.
        schema: u32,
    },
}

/// How far a feed had read when it made this write: kept in the partition, at the same LSN as the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FeedMark {
    /// The feed.
    pub feed: FeedId,
    /// Records of the source that are in this partition, or belong to another: everything below this number.
    pub position: u64,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Op {
    /// The row of a key.
    Get {
        /// The encoded key.
        key: Bytes,
        /// At which state.
        at: ReadSnapshot,
    },
    /// Rows with `from <= key < to` in key order.
    Scan {
        /// First key.
        from: Bytes,
        /// End, not included; empty: none.
        to: Bytes,
        /// At most so many rows.
        limit: u32,
        /// At which state; that of the first page for the others. The versions of a state are kept while
        /// there are more pages.
        at: ReadSnapshot,
    },
    /// How many rows with `from <= key < to`.
    Count {
        /// First key.
        from: Bytes,
        /// End, not included; empty: none.
        to: Bytes,
        /// At which state.
        at: ReadSnapshot,
    },
    /// A hash of all rows at `committed`, reserved ones included.
    Digest,
    /// How far a feed has got in this partition.
    Feed {
        /// The feed.
        feed: FeedId,
    },
    /// Changes rows, all or none.
    Write {
        /// The changes, in order.
        ops: Vec<RowOp>,
        /// The position of the feed that makes them.
        mark: Option<FeedMark>,
        /// Only if the rows have not changed since this snapshot; else the whole write is refused with
        /// [`Outcome::Changed`].
        since: Option<Position>,
    },
    /// Opens a session. The reply's LSN and term are its id.
    OpenSession,
    /// Where a term ended: whether an acknowledged commit of it is still there (PR-29, PR-98).
    TermEnd {
        /// The term, from the position of the acknowledgement.
        term: Term,
    },
    /// Reads nothing, and keeps a state's versions: for whoever will read at it again.
    Hold {
        /// Which state.
        at: ReadSnapshot,
    },
    /// Rows by an index: those whose entries ([`types::index::entry_of`]) are in `from <= entry < to`, in the
    /// order of the entries. Answered with [`Body::Found`], or with [`Status::NoIndex`] where the state that
    /// is looked at has no such index that is ready.
    Find {
        /// The index's number.
        index: u32,
        /// First entry; empty: the first there is.
        from: Bytes,
        /// End, not included; empty: none.
        to: Bytes,
        /// At most so many rows, 1 to [`MAX_FOUND`].
        limit: u32,
        /// At which state, as with a scan.
        at: ReadSnapshot,
    },
    /// Which indexes the partition has, and how far they are.
    Indexes,
    /// Holds the primary's `committed` where it is, and with it every acknowledgement and what reads see,
    /// until [`Op::Resume`], so long at most. The reply's position is where, and its versions are kept as by
    /// [`Op::Hold`].
    Pause {
        /// Milliseconds; of more than 2,000 the rest is not heeded.
        for_ms: u32,
    },
    /// Ends a pause. The reply's LSN is where the primary's `committed` stood until now: if that is still the
    /// one that the pause was told, nothing was committed in between.
    Resume {
        /// The position that the pause was told. Refused with [`Status::TooOld`] if it is no part of the
        /// history any more.
        at: Position,
    },
    /// [`Op::Digest`] at an earlier read's state: to compare replicas at one position.
    DigestAt {
        /// Where.
        at: Position,
    },
    /// How far the replica is with reading its own files back ([`crate::scrub`]). For any replica.
    Scrub {
        /// Begin, unless it is at it.
        start: bool,
    },
    /// The replica gives itself up and is sent a copy: an operator has found it damaged. For any replica;
    /// refused with [`Status::Bad`] unless `source`, another node, leads the partition as the replica knows
    /// it.
    GiveUp {
        /// Whose replica is good: the copy comes from there.
        source: NodeId,
        /// Why, for the node's messages.
        why: String,
    },
    /// Has the files of a bulk load staged at every replica that counts, or asks how far they are:
    /// [`Body::Load`]. Also where it was loaded long ago.
    Stage {
        /// The load.
        load: LoadId,
        /// Its files, always the same.
        files: Vec<Component>,
    },
    /// A piece of such a file, for every replica that counts. That it was taken says the next [`Op::Stage`].
    StagePiece {
        /// The load.
        load: LoadId,
        /// An index into its files.
        file: u32,
        /// Its first byte.
        from: u64,
        /// At most [`crate::bulk::MAX_STAGED_BYTES`].
        bytes: Bytes,
    },
    /// Removes what is staged of a load that is not part of the state.
    Unstage {
        /// The load.
        load: LoadId,
    },
    /// Makes a staged load part of the state, all of it at one LSN. Its rows take the place of those that
    /// were there. "Not yet" if it is not staged everywhere.
    Load {
        /// The load.
        load: LoadId,
        /// `types::bulk::files_digest` of its files.
        digest: [u8; 16],
    },
    /// Records of a job ([`crate::job`]), each done for itself up to the first that is refused. Needs a
    /// session. Answered with [`Body::Job`]; refused with [`Outcome::Stopped`] unless all are done.
    Job {
        /// The job.
        job: JobId,
        /// The number of the job's record before these in this partition; 0: none. Nothing is done unless
        /// that one was.
        after: u64,
        /// The records, by ascending number.
        records: Vec<JobRecord>,
    },
    /// Ends a job in this partition: nothing more of it is done from here on. Needs a session. Answered with
    /// [`Body::Job`]. To commit fails, and is an abort, with [`Outcome::Stopped`], unless the job's records
    /// up to `through` were done. What was done by a job that is aborted here, or somewhere else, is told
    /// when it is secured: when every replica that may be promoted has it.
    EndJob {
        /// The job.
        job: JobId,
        /// The number of its last record in this partition; 0: none.
        through: u64,
        /// It does not go on, here or elsewhere.
        abort: bool,
    },
    /// What a job has done here: [`Body::Job`].
    ShowJob {
        /// The job.
        job: JobId,
    },
    /// Of a partition of a database: changes its tables, and rows of several of them, all or none. The
    /// request is the database's own. Refused with [`Outcome::Stale`] if a table is not as its part says.
    Transact {
        /// Changes of tables, in order. The parts see them.
        changes: Vec<TableChange>,
        /// Changes of rows: no table twice.
        parts: Vec<TablePart>,
        /// As for [`Op::Write`].
        since: Option<Position>,
    },
    /// Of a partition of a database: calls a procedure. The request is the database's own. Answered with
    /// [`Body::Called`]. Refused with [`Outcome::Stale`] if there is no such procedure, or another one.
    Call(CallRequest),
    /// Of the transaction manager's partition. Answered with [`Body::Commit`].
    Manager(ManagerOp),
    /// Of a partition that global transactions write: a commit's part in it, once, however often it comes.
    /// Refused with [`Status::Behind`] if the commit before it is not here.
    Flush(Flush),
    /// Of such a partition: how far its commits have come.
    FlushState {
        /// So many copies are to have durable what is called secured.
        copies: u8,
    },
    /// Turns at rows of the request's table ([`crate::row_turn`]). Answered with [`Body::Turn`].
    Turn(TurnOp),
    /// Of a bare table that is held ([`types::Moves`]): opens a session once the policy in force says so.
    /// What clients have written is before that entry, and nothing is behind it. Before it: "not yet".
    Held {
        /// The number of the move.
        number: TableId,
        /// It is to be closed as well.
        closed: bool,
    },
}

/// The most rows in one answer to [`Op::Find`]: each is looked up by itself.
pub const MAX_FOUND: usize = 1000;

impl Op {
    /// A write of these operations, all or none, whatever changed before.
    pub fn write(ops: Vec<RowOp>) -> Op {
        Op::Write { ops, mark: None, since: None }
    }

    /// The state that a read looks at.
    pub fn snapshot(&self) -> ReadSnapshot {
        match self {
            Op::Get { at, .. } | Op::Scan { at, .. } | Op::Count { at, .. } => *at,
            Op::Hold { at } | Op::Find { at, .. } => *at,
            Op::DigestAt { at } => ReadSnapshot::At(*at),
            _ => ReadSnapshot::Newest,
        }
    }

    /// True if it may change something, and so belongs into the log.
    pub fn writes(&self) -> bool {
        let rows = match self {
            Op::Write { .. } | Op::Transact { .. } => true,
            Op::Call(call) => !call.read_only,
            Op::Manager(asked) => asked.commit().is_some(),
            _ => false,
        };
        rows || matches!(self, Op::OpenSession | Op::Load { .. }) || self.job().is_some()
    }

    /// True if it makes an entry, be it one that no session numbers because doing it twice is doing it once.
    pub fn makes_entries(&self) -> bool {
        let told = matches!(self, Op::Manager(asked) if asked.is_told());
        self.writes() || matches!(self, Op::Flush(_) | Op::Held { .. }) || told
    }

    /// The job that it belongs to, if it does something for one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Op::Job { job, .. } | Op::EndJob { job, .. } => Some(*job),
            _ => None,
        }
    }

    /// True if it reads rows of one table, or where its feeds are; the request must name the table's schema
    /// right.
    pub fn reads_rows(&self) -> bool {
        let rows = matches!(self, Op::Get { .. } | Op::Scan { .. } | Op::Count { .. } | Op::Find { .. });
        rows || matches!(self, Op::Feed { .. })
    }

    /// True if only a primary can do it, whatever read level the request has.
    pub fn needs_primary(&self) -> bool {
        let staging = matches!(self, Op::Stage { .. } | Op::StagePiece { .. } | Op::Unstage { .. });
        let books = self.is_of_books();
        let held = matches!(self, Op::Pause { .. } | Op::Resume { .. } | Op::Call(_) | Op::Turn(_));
        self.makes_entries() || staging || held || books
    }
}

/// A client's request to one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Names the request on its connection.
    pub id: u64,
    /// The session, or [`SessionId::NONE`].
    pub session: SessionId,
    /// Its number within the session and partition, from 1 without gaps (N13). 0 without a session.
    pub seq: u64,
    /// The client has every reply up to this number.
    pub confirmed: u64,
    /// Milliseconds the client will still wait; the answer after that is "outcome unknown". 0: no limit.
    pub deadline_ms: u64,
    /// The table. In a partition of a database: one of its tables, or the database itself, whose rows are its
    /// catalog's.
    pub table: TableId,
    /// The schema version by which keys and rows were encoded. Refused if the database has another one.
    pub schema: u32,
    /// The partition.
    pub partition: PartitionId,
    /// For reads.
    pub read: ReadLevel,
    /// Follows the request through logs; 0: none.
    pub trace: u64,
    /// What is asked.
    pub op: Op,
}

impl Request {
    /// A request to the primary outside any session, which waits without a limit.
    pub fn new(table: TableId, schema: u32, partition: PartitionId, op: Op) -> Request {
        Request {
            id: 0,
            session: SessionId::NONE,
            seq: 0,
            confirmed: 0,
            deadline_ms: 0,
            table,
            schema,
            partition,
            read: ReadLevel::Primary,
            trace: 0,
            op,
        }
    }
}

/// How a request ended. Only [`Status::Ok`] and [`Status::Refused`] say for certain what happened to a write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Status {
    /// Done; for a write: committed under its policy.
    Ok,
    /// Decided against by the state of the data: an insert found its key, a row had changed. Committed as
    /// such.
    Refused(Outcome),
    /// Not here; the reply's `hint` has the newest configuration known. Nothing was done.
    NotPrimary,
    /// Nothing was done; try again later: a failover or a hand-over is going on.
    NotYet(String),
    /// Not done: the session's next number is this one (PR-47).
    Expected(u64),
    /// It may be done: no such session, or not decided in time; with a `hint` the primary has stepped down.
    Unknown(String),
    /// Never done, and never will be: the request itself is wrong.
    Bad(String),
    /// Fewer copies than the policy allows; the text says what is left and what goes on with fewer. Nothing
    /// was done.
    TooFewCopies(String),
    /// The node cannot take writes: its disk is full. Nothing was done.
    Full(String),
    /// No such partition or table here.
    NotFound(String),
    /// Damaged data were found; they were not returned.
    Corrupt(String),
    /// The snapshot cannot be read (any more): begin again at a newer one. Nothing was done.
    TooOld(String),
    /// The state that was to be read has no such index, or it is not ready. A scan finds the same rows.
    /// Nothing was done.
    NoIndex(String),
    /// The state that was to be read has another schema of the table than the request names, or no such
    /// table: look at the catalog again. Nothing was done.
    Stale(String),
    /// A commit that is to be seen or followed has not arrived in the partition: the newest one there is
    /// this. Nothing was done.
    Behind(Position),
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Nothing.
    None,
    /// A row and the LSN that wrote it, or none.
    Row(Option<(Lsn, Bytes)>),
    /// Rows: key without space byte, LSN, row. `more` if the range was not finished.
    Rows {
        /// The rows in key order.
        rows: Vec<(Bytes, Lsn, Bytes)>,
        /// The scan goes on behind the last key.
        more: bool,
    },
    /// A number: of rows, a digest, a feed's position.
    Number(u64),
    /// How many rows a write changed.
    Affected(u32),
    /// Up to which LSN that which was made in the term is here; zero if nothing of it is; `None`: it has not
    /// ended.
    TermEnd(Option<Lsn>),
    /// Rows by an index: key without space byte, LSN, row, in the order of the index's entries.
    Found {
        /// The rows.
        rows: Vec<(Bytes, Lsn, Bytes)>,
        /// Where the range goes on: the next request's `from`. Empty: it was finished.
        next: Bytes,
    },
    /// The partition's indexes, by number.
    Indexes(Vec<IndexStatus>),
    /// How a replica's own files are.
    Scrubbed(crate::scrub::Scrubbed),
    /// How far a bulk load is.
    Load(LoadStatus),
    /// What a job has done in the partition.
    Job(JobStatus),
    /// How a call of a procedure ended.
    Called(CallResult),
    /// Of global transactions.
    Commit(CommitAnswer),
    /// Of a turn at a row.
    Turn(TurnAnswer),
}

/// How far an index of a partition is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IndexStatus {
    /// Its number in the table's record.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: IndexState,
    /// Rows that were there before it and have been indexed so far.
    pub entries: u64,
    /// Why it failed, as a sentence; else empty.
    pub note: String,
}

/// The answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// The request's.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// For a write the LSN that carries its outcome; for a read the LSN at which it was made.
    pub lsn: Lsn,
    /// The epoch of that entry for a write, else of the configuration.
    pub epoch: Epoch,
    /// The policy's version.
    pub policy: u32,
    /// For a write, how many copies had what the policy demands when it was acknowledged.
    pub copies: u8,
    /// The newest configuration known, where it differs from what the client must have thought.
    pub hint: Option<Box<Hint>>,
    /// What came back.
    pub body: Body,
}

impl Reply {
    /// The position of the entry that a write made. Of a read: the state that it showed, with the
    /// configuration's epoch in the place of a term, which a later write may name ([`Op::Write`], `since`).
    pub fn position(&self) -> Position {
        Position::new(Term::of(self.epoch), self.lsn)
    }
}

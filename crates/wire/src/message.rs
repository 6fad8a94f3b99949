//! Messages are one enum; each has a number that is never reused, a cap on its size and a validator (habits
//! 4).

use crate::bulk::{MAX_STAGED_BYTES, StageAnswer, StageLoad, StagePiece, Unstage};
use crate::commit::{self, CommitRequest, MAX_EXECUTING, MAX_WRITE_SET_BYTES, ManagerOp};
use crate::control::{
    Admin, AdminAnswer, Advise, ClusterMap, MAX_STARTS, NodeStatus, Propose, Proposed, Register,
    RegisterRefused, Served, Suspect,
};
use crate::hello::{Hello, Welcome};
use crate::job::records_fault;
use crate::peer::{
    Ack, Append, AppendRefused, Copied, Copy, Fetch, Fetched, Heartbeat, HeartbeatAnswer, Inform, LogReport,
    LogSummary, Refusal, ReportRequest,
};
use crate::procedure::{CallRequest, MAX_ARGUMENT_BYTES};
use crate::request::{Op, Reply, Request, RowOp, TableChange, TablePart};
use crate::ship::{
    Chunk, FlushAnswer, FlushRequest, Installed, MAX_PIECES, MAX_REASON_BYTES, Outcome, TransferOffer,
    TransferRequest, Withdrawn,
};
use bytes::Bytes;
use types::bulk::files_fault;
use types::config::TailReport;
use types::engine::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use types::{Epoch, Lsn, Position, Staging, TableId, Term};

const KB: usize = 1024;
const MB: usize = 1024 * KB;

macro_rules! messages {
    ($($number:literal $name:ident($body:ty) cap $cap:expr;)*) => {
        /// Everything that travels in a frame.
        #[derive(Clone, PartialEq, Debug)]
        #[expect(missing_docs, reason = "each variant is documented at the struct of the same name")]
        pub enum Message { $($name($body),)* }

        impl Message {
            /// The number in the frame's header.
            pub fn number(&self) -> u16 {
                match self { $(Message::$name(_) => $number,)* }
            }

            /// Its name, for logs and metrics.
            pub fn name(&self) -> &'static str {
                match self { $(Message::$name(_) => stringify!($name),)* }
            }

            /// The longest body of the message with this number, in bytes; `None`: no such message.
            pub fn cap(number: u16) -> Option<usize> {
                match number { $($number => Some($cap),)* _ => None }
            }

            /// Appends the body to `out`.
            pub fn encode_body(&self, out: Vec<u8>) -> Result<Vec<u8>, String> {
                match self {
                    $(Message::$name(body) => postcard::to_extend(body, out).map_err(|error| error.to_string()),)*
                }
            }

            /// Decodes the body of the message with this number. The error is a sentence.
            pub fn decode_body(number: u16, body: &[u8]) -> Result<Message, String> {
                match number {
                    $($number => match postcard::take_from_bytes::<$body>(body) {
                        Ok((value, [])) => Ok(Message::$name(value)),
                        Ok((_, rest)) => Err(format!("{} bytes follow a {}", rest.len(), stringify!($name))),
                        Err(error) => Err(format!("not a {}: {error}", stringify!($name))),
                    },)*
                    unknown => Err(format!("there is no message {unknown}")),
                }
            }
        }

        $(impl From<$body> for Message {
            fn from(body: $body) -> Message { Message::$name(body) }
        })*
    };
}

messages! {
    1 Hello(Hello) cap 4 * KB;
    2 Welcome(Welcome) cap 4 * KB;
    10 Request(Request) cap 18 * MB;
    11 Reply(Reply) cap 32 * MB;
    20 Append(Append) cap 32 * MB;
    21 Ack(Ack) cap KB;
    22 AppendRefused(AppendRefused) cap 64 * KB;
    23 ReportRequest(ReportRequest) cap KB;
    24 LogReport(LogReport) cap 64 * KB;
    25 Fetch(Fetch) cap KB;
    26 Fetched(Fetched) cap 32 * MB;
    27 Copy(Copy) cap 32 * MB;
    28 Copied(Copied) cap KB;
    29 Inform(Inform) cap 64 * KB;
    30 Heartbeat(Heartbeat) cap 256 * KB;
    31 HeartbeatAnswer(HeartbeatAnswer) cap 256 * KB;
    32 TransferOffer(TransferOffer) cap 64 * KB;
    33 TransferRequest(TransferRequest) cap KB;
    34 Chunk(Chunk) cap 17 * MB;
    35 Installed(Installed) cap KB;
    36 Withdrawn(Withdrawn) cap KB;
    37 FlushRequest(FlushRequest) cap KB;
    38 FlushAnswer(FlushAnswer) cap KB;
    40 Register(Register) cap 64 * KB;
    41 ClusterMap(ClusterMap) cap 64 * MB;
    42 Propose(Propose) cap 64 * KB;
    43 Proposed(Proposed) cap 64 * KB;
    44 Suspect(Suspect) cap MB;
    45 NodeStatus(NodeStatus) cap 16 * MB;
    46 Served(Served) cap KB;
    47 Advise(Advise) cap 64 * KB;
    48 TailSetAside(TailReport) cap 16 * KB;
    49 RegisterRefused(RegisterRefused) cap 4 * KB;
    50 Admin(Admin) cap 4 * MB;
    51 AdminAnswer(AdminAnswer) cap 64 * MB;
    60 StageLoad(StageLoad) cap 256 * KB;
    61 StageAnswer(StageAnswer) cap KB;
    62 StagePiece(StagePiece) cap 2 * MB;
    63 Unstage(Unstage) cap KB;
}

/// The most row operations in one write.
pub const MAX_OPS: usize = 50_000;
/// The most changes of tables in one write.
pub const MAX_CHANGES: usize = 512;
/// Above every LSN and every epoch that there ever is: a message that names a higher one is not a sound
/// node's.
const BEYOND: u64 = 1 << 60;

impl Message {
    /// Appends the body to `out` but for its end, which is given, if others have that in memory, too: entries
    /// of an append.
    pub(crate) fn encode_begin(&self, out: Vec<u8>) -> Result<(Vec<u8>, Bytes), String> {
        match self {
            Message::Append(append) => Ok((append.encode_begin(out)?, append.entries.clone())),
            message => Ok((message.encode_body(out)?, Bytes::new())),
        }
    }

    /// Checks what the types cannot say. The error is a sentence for the other side's log.
    pub fn validate(&self) -> Result<(), String> {
        match self {
            Message::Hello(hello) => hello.validate(),
            Message::Request(request) => request.validate(),
            Message::Register(register) if register.starts.len() > MAX_STARTS => {
                Err(format!("{} starts are named, the limit is {MAX_STARTS}", register.starts.len()))
            }
            Message::Append(append) => state_in(append.epoch, append.prev),
            Message::AppendRefused(AppendRefused { why: Refusal::Mismatch(log), .. }) => log_is_possible(log),
            Message::LogReport(report) if report.log.end.lsn < report.log.base.lsn => {
                Err("a log ends before it begins".into())
            }
            Message::LogReport(report) => log_is_possible(&report.log),
            Message::Fetch(fetch) => state_in(fetch.epoch, fetch.after),
            Message::Copy(copy) => validate_copy(copy),
            Message::TransferOffer(offer) => match offer.fault() {
                Some(fault) => Err(fault.into()),
                None => state_in(offer.epoch, offer.at).and_then(|()| history_is_possible(&offer.history)),
            },
            Message::TransferRequest(want) if want.pieces.len() > MAX_PIECES => {
                Err(format!("{} pieces are wanted at once, the limit is {MAX_PIECES}", want.pieces.len()))
            }
            Message::StageLoad(stage) => {
                files_fault(stage.load, &stage.files).map_or(Ok(()), |fault| Err(fault.into()))
            }
            Message::StageAnswer(StageAnswer { staging: Staging::Refused(why), .. })
                if why.len() > MAX_REASON_BYTES =>
            {
                Err("a reason is too long".into())
            }
            Message::StagePiece(piece) if piece.bytes.len() > MAX_STAGED_BYTES => {
                Err("a piece of a load is too long".into())
            }
            Message::Installed(Installed { outcome: Outcome::Refused(why), .. })
                if why.len() > MAX_REASON_BYTES =>
            {
                Err("a reason is too long".into())
            }
            _ => Ok(()),
        }
    }
}

impl Request {
    /// Checks what the types cannot say: above all that no key or row is longer than an engine takes, in
    /// reads as in writes. The error is a sentence.
    pub fn validate(&self) -> Result<(), String> {
        if self.session.is_some() != (self.seq > 0) && self.op.writes() {
            return Err("a session and its sequence number come together".into());
        }
        if self.confirmed >= self.seq.max(1) {
            return Err(format!("sequence {} cannot confirm {}", self.seq, self.confirmed));
        }
        match &self.op {
            Op::Get { key, .. } if key.len() >= MAX_KEY_BYTES => Err(key_fault(key.len())),
            // The end of a range may be the key that follows the longest one.
            Op::Scan { from, to, .. } | Op::Count { from, to, .. } | Op::Find { from, to, .. }
                if from.len().max(to.len()) > MAX_KEY_BYTES =>
            {
                Err(format!("a range's end is over the limit of {MAX_KEY_BYTES} bytes"))
            }
            Op::Write { ops, .. } => validate_rows(ops.len(), ops.iter()),
            Op::Transact { changes, parts, .. } => validate_parts(changes, parts),
            Op::GiveUp { why, .. } if why.len() > MAX_REASON_BYTES => Err("a reason is too long".into()),
            Op::Stage { load, files } => files_fault(*load, files).map_or(Ok(()), |fault| Err(fault.into())),
            Op::StagePiece { bytes, .. } if bytes.len() > MAX_STAGED_BYTES => {
                Err("a piece of a load is too long".into())
            }
            Op::Call(call) => call_fault(call).map_or(Ok(()), Err),
            Op::Manager(op) => validate_manager(op),
            Op::Flush(flush) => validate_flush(&flush.parts).and_then(|()| is_possible(flush.commit)),
            Op::Turn(asked) => asked.fault().map_or(Ok(()), Err),
            Op::Job { job, .. } | Op::EndJob { job, .. } | Op::ShowJob { job } if !job.is_valid() => {
                Err("no job has this name".into())
            }
            Op::Job { after, records, .. } => match records_fault(*after, records) {
                Some(fault) => Err(fault.into()),
                None => validate_rows(records.len(), records.iter().map(|record| &record.op)),
            },
            _ => Ok(()),
        }
    }
}

/// What is wrong with a call, as a sentence.
fn call_fault(call: &CallRequest) -> Option<String> {
    if call.arguments.len() > MAX_ARGUMENT_BYTES {
        return Some(format!("arguments of a call are over the limit of {MAX_ARGUMENT_BYTES} bytes"));
    }
    (call.route.len() >= MAX_KEY_BYTES).then(|| key_fault(call.route.len()))
}

fn key_fault(bytes: usize) -> String {
    format!("a key of {bytes} bytes is outside 1 to {}", MAX_KEY_BYTES - 1)
}

fn is_possible(at: Position) -> Result<(), String> {
    match at.lsn.0 < BEYOND && at.term.0 < BEYOND {
        true => Ok(()),
        false => Err(format!("no log reaches {at}")),
    }
}

/// Checks a position that the sender of a message of this epoch claims to have.
fn state_in(epoch: Epoch, at: Position) -> Result<(), String> {
    is_possible(Position::new(Term::of(epoch), at.lsn))?;
    match at.term.began() <= epoch {
        true => Ok(()),
        false => Err(format!("a message of {epoch} names an entry of {}", at.term)),
    }
}

fn history_is_possible(history: &[(Term, Lsn)]) -> Result<(), String> {
    history.iter().try_for_each(|(term, lsn)| is_possible(Position::new(*term, *lsn)))
}

fn log_is_possible(log: &LogSummary) -> Result<(), String> {
    is_possible(log.base)?;
    is_possible(log.end)?;
    history_is_possible(&log.history)
}

fn validate_copy(copy: &Copy) -> Result<(), String> {
    state_in(copy.epoch, copy.at)?;
    history_is_possible(&copy.history)
}

/// Checks the rows of a write.
fn validate_rows<'a>(count: usize, ops: impl Iterator<Item = &'a RowOp>) -> Result<(), String> {
    if count > MAX_OPS {
        return Err(format!("a write of {count} rows is over the limit of {MAX_OPS}"));
    }
    for op in ops {
        if op.key().is_empty() || op.key().len() >= MAX_KEY_BYTES {
            return Err(key_fault(op.key().len()));
        }
        if op.row().is_some_and(|row| row.len() > MAX_VALUE_BYTES) {
            return Err(format!("a row is over the limit of {MAX_VALUE_BYTES} bytes"));
        }
    }
    Ok(())
}

/// Checks a commit of a global transaction.
fn validate_commit(commit: &CommitRequest) -> Result<(), String> {
    if let Some(fault) = commit::commit_fault(commit) {
        return Err(fault.into());
    }
    // With what stands beside them where they are kept: many small rows are one value, too.
    let row = |op: &RowOp| op.key().len() + op.row().map_or(0, |row| row.len()) + commit::BESIDE_ROW;
    let parts = || commit.writes.iter().flat_map(|writes| &writes.parts);
    let bytes: usize = parts().flat_map(|part| &part.ops).map(row).sum();
    if bytes > MAX_WRITE_SET_BYTES {
        let limit = MAX_WRITE_SET_BYTES;
        return Err(format!("a write-set of {bytes} bytes is over the limit of {limit}"));
    }
    commit.snapshots().into_iter().try_for_each(is_possible)?;
    commit.writes.iter().try_for_each(|writes| validate_parts(&[], &writes.parts))
}

/// Checks what the transaction manager is asked.
fn validate_manager(op: &ManagerOp) -> Result<(), String> {
    match op {
        ManagerOp::CommitChecked(commit, checked) => {
            is_possible(*checked)?;
            validate_commit(commit)
        }
        ManagerOp::CommitLooked { asked, checked, parents } => {
            if let Some(fault) = commit::parents_fault(parents) {
                return Err(fault.into());
            }
            is_possible(*checked)?;
            validate_commit(asked)
        }
        ManagerOp::Commit(commit) => validate_commit(commit),
        ManagerOp::Secured { partitions } if partitions.len() > MAX_OPS => {
            Err(format!("{} partitions are over the limit of {MAX_OPS}", partitions.len()))
        }
        ManagerOp::Secured { partitions } => partitions.iter().try_for_each(|(_, at)| is_possible(*at)),
        ManagerOp::Forget { partitions } if partitions.len() > MAX_OPS => {
            Err(format!("{} partitions are over the limit of {MAX_OPS}", partitions.len()))
        }
        ManagerOp::Kept { upto } if upto.len() > 16 => Err("at most 16 timestamps are counted to".into()),
        ManagerOp::Kept { upto } => upto.iter().copied().try_for_each(is_possible),
        ManagerOp::Mend { has, upto, .. } if upto < has => {
            Err("what is given up lies above what the partition has".into())
        }
        ManagerOp::Mend { has, upto, .. } => [*has, *upto].into_iter().try_for_each(is_possible),
        ManagerOp::Define { partitions, tables, gone } => {
            commit::define_fault(partitions, tables, gone).map_or(Ok(()), |fault| Err(fault.into()))
        }
        ManagerOp::Outcome { session, seq } if !session.is_some() || *seq == 0 => {
            Err("a commit has a number in a session".into())
        }
        ManagerOp::Outcome { session, .. } => is_possible(session.0),
        ManagerOp::Executing { open, .. } if *open > MAX_EXECUTING => {
            Err(format!("{open} open transactions are over the limit of {MAX_EXECUTING}"))
        }
        ManagerOp::Executing { .. } | ManagerOp::Snapshot { .. } | ManagerOp::Chain { .. } => Ok(()),
        ManagerOp::Thresholds | ManagerOp::Tables { .. } | ManagerOp::Forget { .. } => Ok(()),
    }
}

/// Checks what a partition is told of a commit.
fn validate_flush(parts: &[TablePart]) -> Result<(), String> {
    match commit::flush_fault(parts) {
        Some(fault) => Err(fault.into()),
        None => validate_parts(&[], parts),
    }
}

/// Checks the parts of a write to several tables.
fn validate_parts(changes: &[TableChange], parts: &[TablePart]) -> Result<(), String> {
    if changes.len() > MAX_CHANGES {
        return Err(format!("{} changes of tables are over the limit of {MAX_CHANGES}", changes.len()));
    }
    let mut tables: Vec<TableId> = parts.iter().map(|part| part.table).collect();
    tables.sort();
    if tables.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("a write names a table twice".into());
    }
    if parts.iter().any(|part| !part.seen.is_empty() && part.seen.len() != part.ops.len()) {
        return Err("a write rests on other states than it has changes of rows".into());
    }
    let ops = parts.iter().flat_map(|part| &part.ops);
    validate_rows(ops.clone().count(), ops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::ReadSnapshot;
    use types::{Member, PartitionId, TableId, Watermarks};

    fn asks(op: Op) -> Result<(), String> {
        let request = Request { id: 1, ..Request::new(TableId(1), 1, PartitionId(64), op) };
        Message::Request(request).validate()
    }

    #[test]
    fn a_request_whose_keys_no_engine_takes_is_refused() {
        let (at, long) = (ReadSnapshot::Newest, |bytes: usize| Bytes::from(vec![b'k'; bytes]));
        assert_eq!(asks(Op::Get { key: long(MAX_KEY_BYTES - 1), at }), Ok(()));
        assert!(asks(Op::Get { key: long(MAX_KEY_BYTES), at }).unwrap_err().contains("32768 bytes"));
        for (from, to) in [(MAX_KEY_BYTES, 0), (0, MAX_KEY_BYTES), (MAX_KEY_BYTES + 1, 0), (0, 66_000)] {
            let (fits, from, to) = (from.max(to) <= MAX_KEY_BYTES, long(from), long(to));
            let ranges = [
                Op::Scan { from: from.clone(), to: to.clone(), limit: 1, at },
                Op::Count { from: from.clone(), to: to.clone(), at },
                Op::Find { index: 1, from, to, limit: 1, at },
            ];
            for range in ranges {
                assert_eq!(
                    asks(range.clone()).is_ok(),
                    fits,
                    "{} and {} bytes",
                    range_len(&range).0,
                    range_len(&range).1
                );
            }
        }
        let put =
            |key: usize, row: usize| asks(Op::write(vec![RowOp::Put { key: long(key), row: long(row) }]));
        assert_eq!(put(MAX_KEY_BYTES - 1, MAX_VALUE_BYTES), Ok(()));
        assert!(put(MAX_KEY_BYTES, 0).is_err() && put(0, 0).is_err() && put(1, MAX_VALUE_BYTES + 1).is_err());
    }

    #[test]
    fn a_commit_that_is_asked_about_has_a_number_in_a_session() {
        let of = |lsn: u64, seq: u64| {
            let session = types::SessionId(Position::new(Term(u64::from(lsn > 0)), Lsn(lsn)));
            asks(Op::Manager(ManagerOp::Outcome { session, seq }))
        };
        assert_eq!(of(7, 1), Ok(()));
        assert!(of(0, 1).is_err() && of(7, 0).is_err() && of(u64::MAX, 1).is_err());
    }

    #[test]
    fn nobody_says_that_more_transactions_are_open_than_may_be() {
        let executing = |open: u32| asks(Op::Manager(ManagerOp::Executing { who: 1, open, oldest_ms: 0 }));
        assert_eq!(executing(MAX_EXECUTING), Ok(()));
        assert!(executing(MAX_EXECUTING + 1).unwrap_err().contains("over the limit of 1000000"));
    }

    #[test]
    fn pr390_no_more_partitions_are_forgotten_at_once_than_may_be_named() {
        let forget = |count: u32| {
            let partitions = (0..count).map(PartitionId).collect();
            asks(Op::Manager(ManagerOp::Forget { partitions }))
        };
        assert_eq!(forget(MAX_OPS as u32), Ok(()));
        assert!(forget(MAX_OPS as u32 + 1).unwrap_err().contains("over the limit"));
    }

    fn range_len(op: &Op) -> (usize, usize) {
        match op {
            Op::Scan { from, to, .. } | Op::Count { from, to, .. } | Op::Find { from, to, .. } => {
                (from.len(), to.len())
            }
            _ => (0, 0),
        }
    }

    #[test]
    fn positions_that_no_log_reaches_are_refused() {
        let (partition, from, epoch) = (PartitionId(64), Member::default(), Epoch(7));
        let report = |end: Position, history: Vec<(Term, Lsn)>| {
            let log = LogSummary { base: Position::ZERO, end, history };
            let (marks, committed) = (Watermarks::default(), Lsn::ZERO);
            Message::LogReport(LogReport {
                partition,
                epoch,
                from,
                log,
                marks,
                committed,
                torn: false,
                code: 0,
            })
            .validate()
        };
        let (good, far) = (Position::new(Term(7), Lsn(9)), Position::new(Term(7), Lsn::MAX));
        assert_eq!(report(good, vec![(Term(1), Lsn(1))]), Ok(()));
        assert!(report(far, Vec::new()).is_err() && report(good, vec![(Term(7), Lsn::MAX)]).is_err());
        let copy = |at: Position| {
            let (history, rows) = (Vec::new(), Vec::new());
            Message::Copy(Copy {
                partition,
                epoch,
                from,
                number: 1,
                piece: 0,
                at,
                at_crc: 0,
                history,
                rows,
                last: true,
            })
            .validate()
        };
        assert_eq!(copy(good), Ok(()));
        assert!(copy(far).is_err());
        assert!(copy(Position::new(Term(8), Lsn(9))).unwrap_err().contains("names an entry of t8"));
        let fetch = |after| Message::Fetch(Fetch { partition, epoch, from, after, to: Lsn(9) }).validate();
        assert!(fetch(good).is_ok() && fetch(far).is_err());
    }
}

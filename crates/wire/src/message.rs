//! Messages are one enum; each has a number that is never reused, a cap on its size and a validator (habits 4).

use crate::bulk::{MAX_STAGED_BYTES, Stage, StagePiece, StageTold, Unstage};
use crate::control::{
    Admin, AdminAnswer, Advise, NodeStatus, Picture, Propose, Proposed, Register, Served, Suspect,
};
use crate::hello::{Hello, Welcome};
use crate::job::records_fault;
use crate::peer::{
    Ack, Append, AppendRefused, Beacon, BeaconAnswer, Copied, Copy, Fetch, Fetched, Inform, PeerMessage,
    Report, ReportRequest,
};
use crate::request::{Op, Reply, Request, RowOp};
use crate::ship::{
    Chunk, FlushAnswer, FlushRequest, MAX_PIECES, MAX_REASON_BYTES, Offer, Outcome, Taken, Want, Withdrawn,
};
use types::Staging;
use types::bulk::files_fault;
use types::config::TailReport;

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
    10 Request(Request) cap 16 * MB;
    11 Reply(Reply) cap 32 * MB;
    20 Append(Append) cap 32 * MB;
    21 Ack(Ack) cap KB;
    22 AppendRefused(AppendRefused) cap 64 * KB;
    23 ReportRequest(ReportRequest) cap KB;
    24 Report(Report) cap 64 * KB;
    25 Fetch(Fetch) cap KB;
    26 Fetched(Fetched) cap 32 * MB;
    27 Copy(Copy) cap 32 * MB;
    28 Copied(Copied) cap KB;
    29 Inform(Inform) cap 64 * KB;
    30 Beacon(Beacon) cap 256 * KB;
    31 BeaconAnswer(BeaconAnswer) cap 256 * KB;
    32 Offer(Offer) cap 64 * KB;
    33 Want(Want) cap KB;
    34 Chunk(Chunk) cap 17 * MB;
    35 Taken(Taken) cap KB;
    36 Withdrawn(Withdrawn) cap KB;
    37 FlushRequest(FlushRequest) cap KB;
    38 FlushAnswer(FlushAnswer) cap KB;
    40 Register(Register) cap 16 * KB;
    41 Picture(Picture) cap 64 * MB;
    42 Propose(Propose) cap 64 * KB;
    43 Proposed(Proposed) cap 64 * KB;
    44 Suspect(Suspect) cap MB;
    45 NodeStatus(NodeStatus) cap 16 * MB;
    46 Served(Served) cap KB;
    47 Advise(Advise) cap 64 * KB;
    48 TailSetAside(TailReport) cap 16 * KB;
    50 Admin(Admin) cap 4 * MB;
    51 AdminAnswer(AdminAnswer) cap 64 * MB;
    60 Stage(Stage) cap 256 * KB;
    61 StageTold(StageTold) cap KB;
    62 StagePiece(StagePiece) cap 2 * MB;
    63 Unstage(Unstage) cap KB;
}

/// The most row operations in one write.
pub const MAX_OPS: usize = 50_000;

impl Message {
    /// Checks what the types cannot say. The error is a sentence for the other side's log.
    pub fn validate(&self) -> Result<(), String> {
        match self {
            Message::Request(request) => validate_request(request),
            Message::Append(append) if append.epoch < append.prev.epoch => {
                Err(format!("an append of {} follows an entry of {}", append.epoch, append.prev.epoch))
            }
            Message::Report(report) if report.log.end.lsn < report.log.base.lsn => {
                Err("a log ends before it begins".into())
            }
            Message::Offer(offer) => offer.fault().map_or(Ok(()), |fault| Err(fault.into())),
            Message::Want(want) if want.pieces.len() > MAX_PIECES => {
                Err(format!("{} pieces are wanted at once, the limit is {MAX_PIECES}", want.pieces.len()))
            }
            Message::Stage(stage) => {
                files_fault(stage.load, &stage.files).map_or(Ok(()), |fault| Err(fault.into()))
            }
            Message::StageTold(StageTold { staging: Staging::Refused(why), .. })
                if why.len() > MAX_REASON_BYTES =>
            {
                Err("a reason is too long".into())
            }
            Message::StagePiece(piece) if piece.bytes.len() > MAX_STAGED_BYTES => {
                Err("a piece of a load is too long".into())
            }
            Message::Taken(Taken { outcome: Outcome::Refused(why), .. }) if why.len() > MAX_REASON_BYTES => {
                Err("a reason is too long".into())
            }
            _ => Ok(()),
        }
    }

    /// As a message between replicas, if it is one.
    pub fn into_peer(self) -> Option<PeerMessage> {
        Some(match self {
            Message::Append(m) => PeerMessage::Append(m),
            Message::Ack(m) => PeerMessage::Ack(m),
            Message::AppendRefused(m) => PeerMessage::AppendRefused(m),
            Message::ReportRequest(m) => PeerMessage::ReportRequest(m),
            Message::Report(m) => PeerMessage::Report(m),
            Message::Fetch(m) => PeerMessage::Fetch(m),
            Message::Fetched(m) => PeerMessage::Fetched(m),
            Message::Copy(m) => PeerMessage::Copy(m),
            Message::Copied(m) => PeerMessage::Copied(m),
            Message::Inform(m) => PeerMessage::Inform(m),
            Message::Offer(m) => PeerMessage::Offer(m),
            Message::Want(m) => PeerMessage::Want(m),
            Message::Chunk(m) => PeerMessage::Chunk(m),
            Message::Taken(m) => PeerMessage::Taken(m),
            Message::Withdrawn(m) => PeerMessage::Withdrawn(m),
            Message::FlushRequest(m) => PeerMessage::FlushRequest(m),
            Message::FlushAnswer(m) => PeerMessage::FlushAnswer(m),
            Message::Stage(m) => PeerMessage::Stage(m),
            Message::StageTold(m) => PeerMessage::StageTold(m),
            Message::StagePiece(m) => PeerMessage::StagePiece(m),
            Message::Unstage(m) => PeerMessage::Unstage(m),
            _ => return None,
        })
    }
}

impl From<PeerMessage> for Message {
    fn from(message: PeerMessage) -> Message {
        match message {
            PeerMessage::Append(m) => Message::Append(m),
            PeerMessage::Ack(m) => Message::Ack(m),
            PeerMessage::AppendRefused(m) => Message::AppendRefused(m),
            PeerMessage::ReportRequest(m) => Message::ReportRequest(m),
            PeerMessage::Report(m) => Message::Report(m),
            PeerMessage::Fetch(m) => Message::Fetch(m),
            PeerMessage::Fetched(m) => Message::Fetched(m),
            PeerMessage::Copy(m) => Message::Copy(m),
            PeerMessage::Copied(m) => Message::Copied(m),
            PeerMessage::Inform(m) => Message::Inform(m),
            PeerMessage::Offer(m) => Message::Offer(m),
            PeerMessage::Want(m) => Message::Want(m),
            PeerMessage::Chunk(m) => Message::Chunk(m),
            PeerMessage::Taken(m) => Message::Taken(m),
            PeerMessage::Withdrawn(m) => Message::Withdrawn(m),
            PeerMessage::FlushRequest(m) => Message::FlushRequest(m),
            PeerMessage::FlushAnswer(m) => Message::FlushAnswer(m),
            PeerMessage::Stage(m) => Message::Stage(m),
            PeerMessage::StageTold(m) => Message::StageTold(m),
            PeerMessage::StagePiece(m) => Message::StagePiece(m),
            PeerMessage::Unstage(m) => Message::Unstage(m),
        }
    }
}

fn validate_request(request: &Request) -> Result<(), String> {
    use types::engine::MAX_KEY_BYTES;
    if request.session.is_some() != (request.seq > 0) && request.op.writes() {
        return Err("a session and its sequence number come together".into());
    }
    if request.confirmed >= request.seq.max(1) {
        return Err(format!("sequence {} cannot confirm {}", request.seq, request.confirmed));
    }
    if let Op::Find { from, to, .. } = &request.op
        && from.len().max(to.len()) > MAX_KEY_BYTES
    {
        return Err(format!("a range's end is over the limit of {MAX_KEY_BYTES} bytes"));
    }
    if let Op::GiveUp { why, .. } = &request.op
        && why.len() > MAX_REASON_BYTES
    {
        return Err("a reason is too long".into());
    }
    if let Op::Stage { load, files } = &request.op
        && let Some(fault) = files_fault(*load, files)
    {
        return Err(fault.into());
    }
    if let Op::StagePiece { bytes, .. } = &request.op
        && bytes.len() > MAX_STAGED_BYTES
    {
        return Err("a piece of a load is too long".into());
    }
    match &request.op {
        Op::Write { ops, .. } => validate_rows(ops.len(), ops.iter()),
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

/// Checks the rows of a write.
fn validate_rows<'a>(count: usize, ops: impl Iterator<Item = &'a RowOp>) -> Result<(), String> {
    use types::engine::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
    if count > MAX_OPS {
        return Err(format!("a write of {count} rows is over the limit of {MAX_OPS}"));
    }
    for op in ops {
        if op.key().is_empty() || op.key().len() >= MAX_KEY_BYTES {
            return Err(format!("a key of {} bytes is outside 1 to {}", op.key().len(), MAX_KEY_BYTES - 1));
        }
        if op.row().is_some_and(|row| row.len() > MAX_VALUE_BYTES) {
            return Err(format!("a row is over the limit of {MAX_VALUE_BYTES} bytes"));
        }
    }
    Ok(())
}

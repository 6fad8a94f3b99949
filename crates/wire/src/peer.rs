//! What nodes tell each other: log shipping, reconciliation, heartbeats.

use crate::bulk::{StageAnswer, StageLoad, StagePiece, Unstage};
use crate::message::Message;
use crate::ship::{Chunk, FlushAnswer, FlushRequest, Installed, TransferOffer, TransferRequest, Withdrawn};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{Epoch, Lsn, Member, PartitionId, Position, Term, Watermarks};

/// Entries from a primary to one member. Refused unless the member's log has exactly `prev` (R2, R3).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Append {
    /// The partition.
    pub partition: PartitionId,
    /// The configuration's epoch in which the sender acts (N2); entries have their own.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// Names this append in answers; grows with each one sent to a member in a term.
    pub number: u64,
    /// The entry just before the first one here.
    pub prev: Position,
    /// Its checksum; 0 at the log's very start.
    pub prev_crc: u32,
    /// The partition's `committed`.
    pub committed: Lsn,
    /// The lowest LSN that every in-sync member has durable: components stop here (R7).
    pub secured: Lsn,
    /// The lowest LSN that every in-sync member has persisted or needs no more: the log may be dropped below
    /// (R8).
    pub log_floor: Lsn,
    /// When the primary sent this, on its own clock, microseconds: echoed in acknowledgements.
    pub sent_us: u64,
    /// Of an acknowledgement that came while the primary surely led: its `sent_us`. The age of `committed`
    /// counts from there (PR-27).
    pub echo_us: u64,
    /// A run of entries, verbatim. May be empty: then it carries the positions only.
    pub entries: Bytes,
}

impl Append {
    /// Appends the message's body to `out`, up to the entries.
    pub(crate) fn encode_begin(&self, out: Vec<u8>) -> Result<Vec<u8>, String> {
        let fault = |error: postcard::Error| error.to_string();
        let without = Append { entries: Bytes::new(), ..self.clone() };
        let mut out = postcard::to_extend(&without, out).map_err(fault)?;
        // The entries' length takes the place of that of none.
        assert_eq!(out.pop(), Some(0), "entries are the last field");
        postcard::to_extend(&(self.entries.len() as u64), out).map_err(fault)
    }
}

/// A member's progress, in answer to appends. Never sent before the writes it claims (habits 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ack {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch in which the member answers: that of the append.
    pub epoch: Epoch,
    /// Who.
    pub from: Member,
    /// Its last entry.
    pub end: Position,
    /// How far it has got.
    pub marks: Watermarks,
    /// When this was sent, on the member's own clock, microseconds.
    pub sent_us: u64,
    /// Of the newest append it has processed: its `sent_us`.
    pub echo_us: u64,
    /// Of the newest append it has processed.
    pub number: u64,
}

/// Why an append was not taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// The member knows a newer configuration: JSON of its record.
    OldEpoch(String),
    /// The member's log does not have `prev`; it ends here and has this history.
    Mismatch(LogSummary),
    /// The member does not hold this partition, or does not know this configuration yet.
    NotMine,
    /// The member cannot take entries: its disk is full or it is busy installing.
    Busy,
    /// The next entry, at this LSN, makes a bulk load part of the state whose files the member does not have
    /// (PR-39).
    Unstaged(Lsn),
    /// The next entry, at this LSN, is a call that the member cannot make itself now: it wants to be sent
    /// what the call came to (PR-240).
    Effects(Lsn),
}

/// An append that was not taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendRefused {
    /// The partition.
    pub partition: PartitionId,
    /// The append's epoch.
    pub epoch: Epoch,
    /// Who refuses.
    pub from: Member,
    /// The append's number.
    pub number: u64,
    /// Why.
    pub why: Refusal,
}

/// What a log holds, in few words.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogSummary {
    /// The entry before the first one kept: everything at or below is in the engine only.
    pub base: Position,
    /// The last entry.
    pub end: Position,
    /// Where each epoch begins in this log: (epoch, its first LSN), ascending. At most [`MAX_HISTORY`].
    pub history: Vec<(Term, Lsn)>,
}

/// The most epochs a history names; older ones are forgotten first.
pub const MAX_HISTORY: usize = 512;

/// A primary that takes over asks each member for its log (R6).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReportRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that was written by the seal, or a later one of the same term.
    pub epoch: Epoch,
    /// Who asks.
    pub from: Member,
}

/// A member's report (R6, PR-74).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LogReport {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the request.
    pub epoch: Epoch,
    /// Who reports.
    pub from: Member,
    /// Its log.
    pub log: LogSummary,
    /// How far it has got.
    pub marks: Watermarks,
    /// The highest `committed` it knows.
    pub committed: Lsn,
    /// True if its log lost a torn end or was damaged since it last acknowledged (PR-18).
    pub torn: bool,
    /// The code with which it makes calls of procedures itself; 0: it makes none (PR-240).
    pub code: u64,
}

/// A new primary fetches what another member has more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetch {
    /// The partition.
    pub partition: PartitionId,
    /// The asker's epoch.
    pub epoch: Epoch,
    /// Who asks.
    pub from: Member,
    /// The entry before the first one wanted.
    pub after: Position,
    /// The last LSN wanted.
    pub to: Lsn,
}

/// The answer to [`Fetch`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Fetched {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch of the request.
    pub epoch: Epoch,
    /// Who answers.
    pub from: Member,
    /// The entry before the first.
    pub after: Position,
    /// A run of entries, verbatim; empty: this member does not have what follows `after`.
    pub entries: Bytes,
}

/// A catching-up member whose log is too old gets the state itself, by a scan at one LSN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// Names this copy: a new number starts again from nothing.
    pub number: u64,
    /// Counts the pieces of this copy from 0; each is answered before the next is sent.
    pub piece: u32,
    /// The position at which the state is copied: the same in all pieces.
    pub at: Position,
    /// The checksum of the entry at that position.
    pub at_crc: u32,
    /// The epochs of the primary's log. What begins above that position is not part of the copy: it tells the
    /// member which of its own entries the primary never had (R9).
    pub history: Vec<(Term, Lsn)>,
    /// Rows in key order: stored key, LSN, value.
    pub rows: Vec<(Bytes, Lsn, Bytes)>,
    /// True if this is the last piece.
    pub last: bool,
}

/// A piece was taken in, and is on disk if it was the last.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Copied {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// Who answers.
    pub from: Member,
    /// The copy.
    pub number: u64,
    /// The piece.
    pub piece: u32,
}

/// "I am here, and I lead these." Sent to every other node, in both directions, on connections of their own
/// (PR-65).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Who.
    pub from: Member,
    /// When it was sent, on the sender's clock, microseconds: the lease counts from here (PR-03).
    pub sent_us: u64,
    /// The partitions that the sender leads and vouches for, with the epochs it acts in (PR-05).
    pub leads: Vec<(PartitionId, Term)>,
}

/// "For the grace time from now, by my clock, nothing newer than what you named is served here" (R5, N5).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// Who promises.
    pub from: Member,
    /// To whom: another life of the same node must not take it for its own.
    pub to: Member,
    /// The heartbeat's `sent_us`.
    pub echo_us: u64,
    /// Partitions named in the heartbeat for which this promise is not given: a newer epoch is known here
    /// (PR-05).
    pub except: Vec<PartitionId>,
}

/// A configuration passed on: the other side acts in an older one (PR-07, PR-11). JSON of its record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inform {
    /// The partition.
    pub partition: PartitionId,
    /// The record, as the metastore has it.
    pub record: crate::control::RecordText,
}

/// Makes the enum of messages between replicas, and all that is the same for each of them.
macro_rules! peer_messages {
    ($($name:ident)*; unsigned: $($bare:ident)*) => {
        /// Messages between replicas, one enum for handling (habits 4, 5).
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "each variant is documented at the struct of the same name")]
        pub enum PeerMessage { $($name($name),)* $($bare($bare),)* }

        impl PeerMessage {
            /// The partition it is about.
            pub fn partition(&self) -> PartitionId {
                match self {
                    $(PeerMessage::$name(m) => m.partition,)*
                    $(PeerMessage::$bare(m) => m.partition,)*
                }
            }

            /// Who says that it sent this.
            pub fn sender(&self) -> Option<Member> {
                match self {
                    $(PeerMessage::$name(m) => Some(m.from),)*
                    $(PeerMessage::$bare(_) => None,)*
                }
            }
        }

        impl From<PeerMessage> for Message {
            fn from(message: PeerMessage) -> Message {
                match message {
                    $(PeerMessage::$name(m) => Message::$name(m),)*
                    $(PeerMessage::$bare(m) => Message::$bare(m),)*
                }
            }
        }

        impl Message {
            /// As a message between replicas, if it is one.
            pub fn into_peer(self) -> Option<PeerMessage> {
                Some(match self {
                    $(Message::$name(m) => PeerMessage::$name(m),)*
                    $(Message::$bare(m) => PeerMessage::$bare(m),)*
                    _ => return None,
                })
            }
        }
    };
}

peer_messages! {
    Append Ack AppendRefused ReportRequest LogReport Fetch
    Fetched Copy Copied TransferOffer TransferRequest Chunk
    Installed Withdrawn FlushRequest FlushAnswer StageLoad StageAnswer
    StagePiece Unstage;
    unsigned: Inform
}

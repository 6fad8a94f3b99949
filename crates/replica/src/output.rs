//! What a replica asks its driver to do: one closed enum, carried out in order (habits 1).

use std::fmt;
use types::config::TailReport;
use types::engine::Version;
use types::{Epoch, Lsn, Member, Micros, PartitionId, PartitionRecord, Position};
use wire::control::{Propose, Served, Suspect};
use wire::log::Record;
use wire::peer::Fetch;
use wire::{Entry, PeerMessage, Reply};

/// Names a client's request for the driver: which connection, which request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientRef {
    /// The driver's name for the connection.
    pub connection: u64,
    /// The request's id on it.
    pub request: u64,
}

/// Whom a message to another replica is from, and in which configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub me: Member,
}

/// A small value kept beside a partition's log; the newest counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum Note {
    /// The epochs in the log: [`crate::history::History::encode`].
    History = 1,
    /// What may be published at a restart without asking anyone: an LSN, little-endian.
    Secured = 2,
    /// A torn end was cut off. The log sets it when it is opened; this takes it away, with an empty value
    /// (PR-18).
    Torn = u16::MAX,
}

/// Why entries are read back from the log; comes back with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFor {
    /// To send them to a member.
    Ship(Member),
    /// For the checksum of the entry before, which an offer of files to this member names.
    Offer {
        /// Who is offered files.
        to: Member,
        /// Where the files end.
        at: Position,
    },
    /// To answer this fetch of a new primary.
    Fetch(Fetch),
    /// To execute them: the engine follows its log later.
    Replay {
        /// The first LSN that was asked for.
        from: Lsn,
    },
    /// To set them aside (R9).
    Aside {
        /// The first that was asked for.
        from: Lsn,
    },
    /// To compare them with their checksums.
    Scrub {
        /// The first that was asked for.
        from: Lsn,
    },
}

/// What the driver is asked to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Change the log. Nothing else waits for it: what is durable is told by `Host::synced`.
    Log(Record),
    /// Send to another replica. Lost if that life of that node is not connected.
    Send {
        /// To whom.
        to: Member,
        /// What.
        message: PeerMessage,
    },
    /// Answer a client. If `valid_until` has passed on the monotonic clock when the bytes leave, the answer
    /// is not given: the client hears "not yet" for a read and "unknown" for a write instead (F01).
    Reply {
        /// The partition that was asked.
        partition: PartitionId,
        /// Whom.
        to: ClientRef,
        /// The answer.
        reply: Box<Reply>,
        /// The end of the lease on which the answer rests.
        valid_until: Option<Micros>,
    },
    /// Ask the controllers for a change of the set this replica leads.
    Propose(Propose),
    /// Tell the controllers that a primary is missed.
    Suspect(Suspect),
    /// Tell the controllers how a failover went.
    Served(Served),
    /// Write a divergent tail to a file, durably, before carrying out what follows (R9).
    SetAside {
        /// What it is; the driver names the file.
        report: TailReport,
        /// The entries; none where they are not in the log any more.
        entries: Vec<Entry>,
        /// What the engine still has of them then, in the order of keys.
        rows: Vec<Version>,
    },
    /// Read entries back and give them to `Host::log_read`.
    ReadLog {
        /// The partition.
        partition: PartitionId,
        /// The first LSN.
        from: Lsn,
        /// About so many bytes; at least one entry.
        max_bytes: usize,
        /// For what.
        purpose: ReadFor,
    },
    /// The files that were received are whole: call `Host::install` until it says that it is through, first
    /// now and then whenever the wake it is given was called.
    Install {
        /// The partition.
        partition: PartitionId,
    },
    /// A member needs files: begin a checkpoint of this partition, whatever the log's length.
    Checkpoint {
        /// The partition.
        partition: PartitionId,
    },
    /// Something that an operator should read of.
    Notice {
        /// The partition.
        partition: PartitionId,
        /// What.
        what: Notice,
    },
    /// The replica found damage, and stops until it is given a copy. One sentence.
    Damaged {
        /// The partition.
        partition: PartitionId,
        /// What.
        reason: String,
    },
}

impl Output {
    /// The partition that it is about. None: a suspicion is about many; a proposal that cannot be read is
    /// about none.
    pub fn partition(&self) -> Option<PartitionId> {
        Some(match self {
            Output::Log(op) => op.partition(),
            Output::Send { message, .. } => message.partition(),
            Output::Reply { partition, .. }
            | Output::ReadLog { partition, .. }
            | Output::Install { partition }
            | Output::Checkpoint { partition }
            | Output::Notice { partition, .. }
            | Output::Damaged { partition, .. } => *partition,
            Output::Propose(propose) => propose.record.read::<PartitionRecord>().ok()?.id,
            Output::Served(served) => served.partition,
            Output::SetAside { report, .. } => report.partition,
            Output::Suspect(_) => return None,
        })
    }
}

/// What an operator should read of: one sentence, and by its kind what a program may conclude. Byte counts
/// are of the log or of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A replica comes back by the log alone, since that is less than the files that it lacks.
    BackByLog {
        /// The log alone.
        log_alone: u64,
        /// What it lacks of the files.
        lacking: u64,
        /// The files.
        set: u64,
        /// The log above the files.
        log_above: u64,
    },
    /// A replica comes back by files, since the log alone would be more.
    BackByFiles {
        /// The log alone.
        log_alone: u64,
        /// What it lacks of the files.
        lacking: u64,
        /// The files.
        set: u64,
        /// The log above the files.
        log_above: u64,
    },
    /// Anything else.
    Other(String),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::BackByLog { log_alone, lacking, set, log_above } => write!(
                f,
                "comes back by the log: {log_alone} bytes; it lacks {lacking} of {set} bytes of files, and {log_above} of log \
                 above them"
            ),
            Notice::BackByFiles { log_alone, lacking, set, log_above } => write!(
                f,
                "comes back by files: it lacks {lacking} of {set} bytes, and {log_above} of log above them; the log alone \
                 would be {log_alone}"
            ),
            Notice::Other(sentence) => f.write_str(sentence),
        }
    }
}

impl From<String> for Notice {
    fn from(sentence: String) -> Notice {
        Notice::Other(sentence)
    }
}

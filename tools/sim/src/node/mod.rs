//! A simulated node: what stays of it while it is down, and what a process has.

pub mod files;
pub mod health;
pub mod heard;
pub mod hosts;
pub mod kept_journal;
pub mod links;
pub mod logs;
pub mod reports;
pub mod second;
pub mod standing;
pub mod starts;
pub mod storage;
pub mod turn;
pub mod watched;

pub use files::{FIRST, PartFiles, SECOND, SnapshotFile};
pub use health::Health;
pub use heard::Heard;
pub use hosts::Hosts;
pub use kept_journal::KeptJournal;
pub use links::Links;
pub use logs::Logs;
pub use reports::Reports;
pub use second::{Second, SecondDirectory};
pub use standing::Standing;
pub use starts::Starts;
pub use storage::Storage;
pub use turn::Turn;
pub use watched::Watched;

use crate::clock::Clock;
use crate::disk::Disk;
use driver::progress::makes_progress;
use replica::{LeaseManager, Settings};
use std::collections::BTreeSet;
use std::io;
use types::{Generation, Incarnation, Member, Micros, NodeId, PartitionId, StoreId};

/// A machine: it outlives its processes.
pub struct Machine {
    /// Its node.
    pub id: u32,
    /// Its disk.
    pub disk: Disk,
    /// How that is.
    pub health: Health,
    /// The second directory on it.
    pub second: SecondDirectory,
    /// Its clocks.
    pub clock: Clock,
    /// When processes start.
    pub starts: Starts,
    /// The replicas with a log on the disk that were made here and not removed: their directories say so,
    /// whatever became of the log.
    pub made: BTreeSet<PartitionId>,
    /// The cluster's records, as far as it was told (PR-107). They are durable at once.
    pub kept: KeptJournal,
    /// How often it was asked for them.
    pub asked: u32,
    /// For which generations.
    pub askings: Vec<Generation>,
    /// It listens to controllers of no lower one (PR-107). Durable at once, too.
    pub generation: Generation,
    /// The running process.
    pub process: Option<Process>,
    /// Whether it goes on.
    pub standing: Standing,
}

/// A process: one life of a node.
pub struct Process {
    /// Names this life to the world.
    pub incarnation: u64,
    /// Who it is to the others.
    pub member: Member,
    /// The replicas, each at its executor.
    pub host: Hosts,
    /// Their logs.
    pub logs: Logs,
    /// What wants something of its disk beside the logs.
    pub storage: Storage,
    /// Its connections.
    pub links: Links,
    /// True if the log had been shut down properly.
    pub clean_start: bool,
    /// A number for each life on this disk, this one's last (PR-145).
    pub starts: Vec<u64>,
    /// It talks to other nodes (PR-157). Where the disk is the node's newest that may be before a controller
    /// has let it in: what it says then is true all the same.
    pub let_in: bool,
    /// A controller has let it in.
    pub admitted: bool,
    /// What it tells the controllers.
    pub reports: Reports,
    /// What they told it.
    pub heard: Heard,
    /// Its executor.
    pub turn: Turn,
    /// What the checkers remember of it.
    pub watched: Watched,
}

impl Machine {
    /// A machine that was never started.
    pub fn new(id: u32, disk: Disk, clock: Clock) -> Machine {
        Machine {
            id,
            disk,
            health: Health::default(),
            second: SecondDirectory::default(),
            clock,
            starts: Starts::default(),
            made: BTreeSet::new(),
            kept: KeptJournal::default(),
            asked: 0,
            askings: Vec::new(),
            generation: Generation::default(),
            process: None,
            standing: Standing::default(),
        }
    }

    /// The life that runs now.
    pub fn incarnation(&self) -> Option<u64> {
        self.process.as_ref().map(|process| process.incarnation)
    }

    /// The member that runs now.
    pub fn member(&self) -> Option<Member> {
        self.process.as_ref().map(|process| process.member)
    }

    /// True if this very member's process is over.
    pub fn has_ended(&self, member: &Member) -> bool {
        self.member() != Some(*member)
    }

    /// Reads, and counts up, who this disk's node is in its next life. `keep` plants PR-01: the life stays
    /// the same.
    pub fn next_member(&self, fresh_store: u64, keep: bool) -> io::Result<Member> {
        let number = |name: &str| match self.disk.read(name) {
            Ok(bytes) => Ok(bytes[..].try_into().ok().map(u64::from_le_bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let store = match number("store")? {
            Some(store) => store,
            None => {
                self.disk.replace("store", &fresh_store.to_le_bytes())?;
                fresh_store
            }
        };
        let last = number("life")?;
        let incarnation = if keep { last.unwrap_or(1) } else { last.unwrap_or(0) + 1 };
        if last != Some(incarnation) {
            self.disk.replace("life", &incarnation.to_le_bytes())?;
        }
        Ok(Member { node: NodeId(self.id), store: StoreId(store), incarnation: Incarnation(incarnation) })
    }
}

impl Process {
    /// Whether the disk and the executor make progress, so that heartbeats may vouch for the partitions.
    pub fn vouches(&self, now: u64) -> bool {
        let progress_at = Micros(self.turn.progress_at());
        makes_progress(progress_at, self.logs.oldest_pending(), Micros(now))
    }
}

/// A beat for a process that starts now.
pub fn lease_manager(member: Member, settings: &Settings, clock: Micros) -> LeaseManager {
    LeaseManager::new(member, settings, clock)
}

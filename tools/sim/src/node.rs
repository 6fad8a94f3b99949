//! A simulated node: what stays of it while it is down, and what a process has.

use crate::clock::Clock;
use crate::disk::Disk;
use crate::network::Conn;
use crate::world::Event;
use replica::{Host, LeaseManager, Output, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use types::config::TailReport;
use types::{Incarnation, Lsn, Member, NodeId, PartitionId, StoreId, TableId, TableRecord};
use wal::{Log, MemoryLog, Record};
use wire::control::Served;

/// A machine: it outlives its processes.
pub struct Machine {
    /// Its node.
    pub id: u32,
    /// Its disk.
    pub disk: Disk,
    /// Its clocks.
    pub clock: Clock,
    /// The running process.
    pub process: Option<Process>,
    /// It stands still, clocks excepted.
    pub paused: bool,
    /// Its executor stands still.
    pub stalled: bool,
    /// It will not be started again by itself.
    pub dead: bool,
    /// It was removed from the cluster.
    pub removed: bool,
    /// A start is on its way.
    pub starting: bool,
    /// What happens when it goes on.
    pub deferred: Vec<Event>,
    /// Microseconds that a sync takes, at most.
    pub sync_us: u64,
    /// Its disk does nothing until this time.
    pub stuck_until: u64,
    /// Its disk lost or changed something that counted, and it has not been made good yet.
    pub impaired: bool,
    /// Starts that failed in a row.
    pub failed_starts: u32,
    /// Failed syncs of its disk that somebody was told of.
    pub told_syncs: u64,
    /// A process has started since its disk was harmed.
    pub restarted_since_fault: bool,
    /// Replicas in the second directory.
    pub second: BTreeSet<PartitionId>,
    /// What became of that directory.
    pub second_is: Second,
    /// Members that lived here, oldest first, with the virtual time at which each ended.
    pub incarnations: Vec<(Member, Option<u64>)>,
}

/// What names in the first directory of replicas begin with.
pub const FIRST: &str = "";
/// The same for the second one.
pub const SECOND: &str = "second/";

/// What became of the second directory of a node's replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Second {
    /// It can be used.
    There,
    /// It cannot, and may be there again at a later start, as it was.
    Away,
    /// It is lost with all that was in it.
    Gone,
}

/// A process: one life of a node.
pub struct Process {
    /// Names this life to the world.
    pub incarnation: u64,
    /// Who it is to the others.
    pub member: Member,
    /// The replicas.
    pub host: Host<LeaseManager>,
    /// The log on the disk.
    pub log: Log,
    /// The log of main-memory tables.
    pub memory: MemoryLog,
    /// Partitions whose log is in memory.
    pub in_memory: BTreeSet<PartitionId>,
    /// Records that wait for the disk.
    pub queue: Vec<Record>,
    /// Since when a batch has been on its way to the disk.
    pub syncing: Option<u64>,
    /// Since when the disk has refused.
    pub refused: Option<u64>,
    /// Partitions whose replica was sound until its directory was lost in this life: its log is as whole as it was.
    pub only_log: BTreeSet<PartitionId>,
    /// Members that chose the log, of partitions that this node leads, and may still rely on it.
    pub by_log: BTreeSet<(PartitionId, Member)>,
    /// Connections to nodes: of log shipping and of heartbeats.
    pub peers: BTreeMap<u32, (Conn, Member)>,
    /// Connections for heartbeats.
    pub heartbeats: BTreeMap<u32, (Conn, Member)>,
    /// Connections to controllers.
    pub control: BTreeMap<u32, Conn>,
    /// A flush is on its way.
    pub flush_due: bool,
    /// Partitions that are said to be damaged.
    pub damaged: Vec<PartitionId>,
    /// True if the log had been shut down properly.
    pub clean_start: bool,
    /// Tails on its disk, to be told.
    pub tails: Vec<TailReport>,
    /// Failovers that were led, to be told, with how often they were.
    pub served: Vec<(Served, u32)>,
    /// What was last seen of each replica: serving, committed.
    pub seen: BTreeMap<PartitionId, (bool, Lsn)>,
    /// The newest record of each table that it was told of.
    pub tables: BTreeMap<TableId, TableRecord>,
    /// Since when replicas have had no place here.
    pub moved: BTreeMap<PartitionId, u64>,
    /// The newest revision of the metastore that it was told of.
    pub mapped_revision: u64,
    /// Reused for outputs.
    pub out: Vec<Output>,
    /// When the executor last made progress.
    pub progress_at: u64,
}

impl Machine {
    /// A machine that was never started.
    pub fn new(id: u32, disk: Disk, clock: Clock) -> Machine {
        Machine {
            id,
            disk,
            clock,
            process: None,
            paused: false,
            stalled: false,
            dead: false,
            removed: false,
            starting: false,
            deferred: Vec::new(),
            sync_us: 400,
            stuck_until: 0,
            impaired: false,
            failed_starts: 0,
            told_syncs: 0,
            restarted_since_fault: false,
            second: BTreeSet::new(),
            second_is: Second::There,
            incarnations: Vec::new(),
        }
    }

    /// What the names of this replica's files begin with; none if its directory cannot be used.
    pub fn directory_of(&self, partition: PartitionId) -> Option<&'static str> {
        match (self.second.contains(&partition), self.second_is) {
            (false, _) => Some(FIRST),
            (true, Second::There) => Some(SECOND),
            (true, Second::Away | Second::Gone) => None,
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

    /// Reads, and counts up, who this disk's node is in its next life. `keep` plants PR-01: the life stays the same.
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
        const WAIT_LIMIT_US: u64 = 1_000_000;
        let slow = |since: Option<u64>| since.is_some_and(|since| now > since + WAIT_LIMIT_US);
        !slow(self.syncing) && !slow(self.refused) && now <= self.progress_at + WAIT_LIMIT_US
    }
}

/// A beat for a process that starts now.
pub fn lease_manager(member: Member, settings: &Settings, clock: types::Micros) -> LeaseManager {
    LeaseManager::new(member, settings, clock)
}

/// Where a simulated memory engine keeps its snapshot.
pub struct SnapshotFile {
    disk: Disk,
    name: String,
}

impl SnapshotFile {
    /// The place for this partition's.
    pub fn new(disk: &Disk, directory_of: &str, partition: PartitionId) -> SnapshotFile {
        SnapshotFile { disk: disk.clone(), name: SnapshotFile::name(directory_of, partition) }
    }

    /// Its file.
    pub fn name(directory_of: &str, partition: PartitionId) -> String {
        format!("{directory_of}snapshot/{}", partition.0)
    }
}

impl engine::memory::SnapshotStore for SnapshotFile {
    fn save(&mut self, write: engine::memory::SnapshotWriter<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        self.disk.replace(&self.name, &bytes)
    }

    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        match self.disk.read(&self.name) {
            Ok(bytes) => Ok(Some(Box::new(io::Cursor::new(bytes)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        self.disk.remove(&self.name)
    }
}

/// Where a simulated engine keeps the files that it ships and receives.
pub struct PartFiles {
    disk: Disk,
    dir: String,
}

impl PartFiles {
    /// The place for this partition's.
    pub fn new(disk: &Disk, directory_of: &str, partition: PartitionId) -> PartFiles {
        PartFiles { disk: disk.clone(), dir: PartFiles::dir(directory_of, partition) }
    }

    /// What their names begin with.
    pub fn dir(directory_of: &str, partition: PartitionId) -> String {
        format!("{directory_of}parts/{}/", partition.0)
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.dir)
    }
}

impl test_engines::Parts for PartFiles {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(&self.path(name))
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        self.disk.create(&self.path(name))
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.append(&self.path(name), bytes, false)
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.replace(&self.path(name), bytes)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.path(name))
    }

    fn names(&self) -> Vec<String> {
        let names = self.disk.names(&self.dir);
        names.into_iter().filter_map(|name| name.strip_prefix(&self.dir).map(str::to_string)).collect()
    }
}

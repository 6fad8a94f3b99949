//! What nodes, operators and controllers tell each other. Records travel as JSON, as the metastore has them.

mod cluster_status;

pub use cluster_status::{BackOff, ClusterStatus, HungDisk};
use serde::{Deserialize, Serialize};
use types::config::{Addresses, TailReport};
use types::{
    Epoch, Executors, Generation, Lsn, Member, NodeId, PartitionId, Position, ProposalId, TableId, Watermarks,
};

/// A record as JSON text. Kept as text on the wire so that unknown fields survive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordText(pub String);

impl RecordText {
    /// From any record.
    pub fn new<T: Serialize>(record: &T) -> RecordText {
        RecordText(serde_json::to_string(record).expect("records have only text keys"))
    }

    /// As the record it should be. The error is a sentence.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_str(&self.0).map_err(|error| format!("a record cannot be read: {error}"))
    }
}

/// A node that starts says who it is and where; repeated on every new connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register {
    /// The node in its present life.
    pub member: Member,
    /// True if it consumed a clean-shutdown mark.
    pub clean_start: bool,
    /// Where it is reached.
    pub addresses: Addresses,
    /// Its zone.
    pub zone: String,
    /// Partitions whose log or engine on this node is damaged: not to be promoted (PR-18, F10).
    pub damaged: Vec<PartitionId>,
    /// A number for each life of a process on its data directory that has registered, oldest first, the
    /// present one last; at most [`MAX_STARTS`] (PR-145).
    pub starts: Box<[u64]>,
    /// How many executors it has.
    pub executors: Executors,
}

/// The most starts that a data directory keeps, and a registration names.
pub const MAX_STARTS: usize = 1_000;

/// A node is not registered, and its connection is closed: what it runs on is not what the cluster knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegisterRefused {
    /// Why, and what to do, as a sentence.
    pub why: String,
    /// It will be no other later: the process ends.
    pub for_good: bool,
}

/// A controller's cluster map for nodes and clients: everything that changed since `since`, or all.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterMap {
    /// The metastore's revision that this cluster map has.
    pub revision: u64,
    /// The cluster's record, if it changed.
    pub cluster: Option<RecordText>,
    /// Changed nodes.
    pub nodes: Vec<RecordText>,
    /// Changed tables.
    pub tables: Vec<RecordText>,
    /// Changed partitions.
    pub partitions: Vec<RecordText>,
    /// Tables that are gone.
    pub dropped: Vec<u32>,
    /// Everything up to `revision` is in it, and nothing of it was unreadable to the controller: what is not
    /// there does not exist. Only such a cluster map may cost a node what it holds.
    pub whole: bool,
}

/// A primary's proposal for the set it leads (R1): to be written if the partition is still in `expected`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Propose {
    /// The epoch that the proposal replaces.
    pub expected: Epoch,
    /// The wanted [`types::PartitionRecord`], its epoch `expected + 1`.
    pub record: RecordText,
}

/// What became of a proposal, or what the record is now. Learnt from a transaction, never from a read
/// (PR-16).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposed {
    /// The proposal.
    pub proposal: ProposalId,
    /// The partition.
    pub partition: PartitionId,
    /// True if the record now in force is the proposal's.
    pub accepted: bool,
    /// The record in force.
    pub record: RecordText,
}

/// An in-sync backup misses its primary (R6, PR-07).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Suspect {
    /// Who misses.
    pub by: Member,
    /// Whom.
    pub primary: Member,
    /// Microseconds since it was last heard.
    pub silent_us: u64,
    /// The partitions concerned: the epoch known, and the end of the suspecting replica's log.
    pub partitions: Vec<(PartitionId, Epoch, Position)>,
}

/// What a node tells its controllers regularly. For people and planning; safety never rests on it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub member: Member,
    /// Nodes it hears, with the microseconds since.
    pub hears: Vec<(NodeId, u64)>,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// Bytes of log kept.
    pub log_bytes: u64,
    /// Fsyncs since it started.
    pub fsyncs: u64,
    /// Commits acknowledged since it started.
    pub commits: u64,
    /// Bytes sent to other nodes and clients since it started.
    pub sent_bytes: u64,
    /// Processor time of the process so far, microseconds.
    pub cpu_us: u64,
    /// True if it refuses writes because its disk is full.
    pub full: bool,
    /// Tails on its disk.
    pub tails: Vec<TailReport>,
    /// The directories of its replicas, the data directory first, where there are several.
    #[serde(default)]
    pub directories: Vec<DirectoryStatus>,
    /// Microseconds for which the oldest write that was handed to its log has had no answer; 0: none waits.
    /// One that was refused for want of room was answered (PR-351).
    #[serde(default)]
    pub log_waits_us: u64,
    /// Its executors by their numbers, where there are several.
    #[serde(default)]
    pub executors: Vec<ExecutorStatus>,
    /// Databases that clients of its SQL gateway are in, with how many: not of the one that is always there.
    #[serde(default)]
    pub sessions: Vec<(TableId, u32)>,
}

impl NodeStatus {
    /// True if the executor of this partition hangs: what is said of its replica here is from before.
    pub fn hangs(&self, partition: PartitionId) -> bool {
        let executors = u32::try_from(self.executors.len()).ok().and_then(Executors::new);
        executors.is_some_and(|all| self.executors[all.of(partition)].hangs_us > 0)
    }
}

/// One of several executors of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ExecutorStatus {
    /// Replicas that it has.
    pub partitions: u32,
    /// Connections that it has: of clients, and to and from nodes.
    pub connections: u32,
    /// Microseconds for which it has done nothing, if it hangs; 0: it goes on.
    pub hangs_us: u64,
}

/// A directory of a node's replicas.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DirectoryStatus {
    /// Where it is on that node.
    pub path: String,
    /// Bytes of replicas' files there, measured a while ago.
    pub bytes: u64,
    /// Bytes that are free there.
    pub free: u64,
    /// Replicas there; if it is lost, those that have no other place yet.
    pub replicas: u32,
    /// Why it is not used until the node starts again; empty: it is used.
    pub lost: String,
}

/// What a replica is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Role {
    /// Not a member.
    #[default]
    Idle,
    /// Leads and serves.
    Primary,
    /// Will lead: gathering, fetching, waiting for promises to run out.
    Promoting,
    /// In-sync backup.
    Backup,
    /// Being brought level.
    CatchingUp,
    /// Damaged; needs a copy.
    Damaged,
}

/// One replica's progress, as its node sees it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// The partition.
    pub partition: PartitionId,
    /// The configuration it acts in.
    pub epoch: Epoch,
    /// What it is doing.
    pub role: Role,
    /// Its last entry.
    pub end: Position,
    /// How far it has got.
    pub marks: Watermarks,
    /// Its `committed`.
    pub committed: Lsn,
    /// Bytes behind the primary, as the primary sees it (0 for the primary itself).
    pub lag_bytes: u64,
    /// Microseconds behind the primary.
    pub lag_us: u64,
    /// For the primary: each other member with its lag in bytes and microseconds.
    pub members: Vec<(Member, Watermarks, u64, u64)>,
    /// One sentence about what it waits for, or empty.
    pub waits: String,
    /// For the primary: each member that files are shipped to, with how many of their bytes it has, of how
    /// many.
    pub shipping: Vec<(Member, u64, u64)>,
    /// Nanoseconds that executing one entry of its log takes, as its engine measured; 0: not measured.
    pub replay_ns: u64,
    /// For others: how it comes back into the set, or came back last.
    pub failback: Failback,
    /// For a primary that does not serve: who has more than it can get, and should lead (PR-345).
    pub yields_to: Option<Member>,
}

/// How far a replica has come on its way into the set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailbackStage {
    /// It was never on its way in this life.
    #[default]
    Idle,
    /// It is to be brought level, and has nothing of this primary yet.
    Admitted,
    /// Files were offered; what they are comes in.
    Offered,
    /// What it lacks of the files comes in.
    Files,
    /// The files are checked and become its state.
    Installing,
    /// The state comes in as rows.
    Rows,
    /// It follows the log until it is level.
    Log,
    /// It is in the set.
    InSync,
}

/// By what a replica was brought level, beside the log above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By the log alone.
    #[default]
    Log,
    /// By files, of which those that it had were not sent.
    Files,
    /// By rows: all of them.
    Rows,
}

/// How a replica comes back into its set, or came back last in this life of its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Failback {
    /// How far it has come.
    pub stage: FailbackStage,
    /// By what.
    pub way: Way,
    /// It ignores what it had: everything is sent.
    pub full: bool,
    /// Bytes of files that came in, descriptions of sets included.
    pub file_bytes: u64,
    /// Bytes of all the files of the newest set that was offered; 0: none was.
    pub set_bytes: u64,
    /// Bytes that it lacked of these files and of the log above them; 0: nobody looked.
    pub lacking_bytes: u64,
    /// Bytes of log that would have done instead, if the log reached back so far.
    pub log_alone_bytes: Option<u64>,
    /// Bytes of rows that came in, keys included.
    pub row_bytes: u64,
    /// Bytes of entries of the log that came in.
    pub log_bytes: u64,
    /// Microseconds from its admission until it was in the set, or until now.
    pub took_us: u64,
}

/// A new primary tells how its failover went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Served {
    /// The failover.
    pub failover: u64,
    /// The partition.
    pub partition: PartitionId,
    /// Milliseconds since 1970 when its log was complete.
    pub reconciled_ms: u64,
    /// Milliseconds since 1970 when it served.
    pub serving_ms: u64,
    /// The last entry of older terms that it kept.
    pub kept: Position,
    /// The highest LSN that anybody had heard of from the old primary.
    pub last_heard: Lsn,
}

/// A controller asks a primary for something (R1: only the primary changes the set it leads).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Advice {
    /// Take this member in to catch up.
    Admit(Member),
    /// Remove this member.
    Remove(Member),
    /// Hand over to this in-sync member.
    HandOver(Member),
    /// Change the policy to this one: JSON of a [`types::Policy`].
    Policy(RecordText),
}

/// [`Advice`] for one partition, valid in one epoch only (F16).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Advise {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch it was thought of in; ignored in any other.
    pub epoch: Epoch,
    /// What.
    pub advice: Advice,
}

/// An operator's request to a controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Admin {
    /// Names it on its connection.
    pub id: u64,
    /// What.
    pub command: AdminCommand,
}

/// What an operator can ask for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AdminCommand {
    /// The whole cluster map, once, and changes as they come on this connection.
    Watch,
    /// The last status of every node: JSON of [`ClusterStatus`] in the answer.
    Status,
    /// Creates a table. JSON of [`CreateTable`].
    CreateTable(RecordText),
    /// Drops a table with all its data.
    DropTable(String),
    /// Changes a table's policy, factor or `min_in_sync`, adds columns, adds or drops an index. JSON of
    /// [`AlterTable`].
    AlterTable(RecordText),
    /// Hands a partition's lead to a node; an id of `None` balances all.
    Switchover {
        /// The partition, or all.
        partition: Option<PartitionId>,
        /// The node; `None`: as placed.
        to: Option<NodeId>,
    },
    /// Hands everything this node leads to others.
    Drain(NodeId),
    /// Moves a replica to another node.
    Move {
        /// The partition.
        partition: PartitionId,
        /// From here.
        from: NodeId,
        /// To there.
        to: NodeId,
    },
    /// Promotes the best living replica although acknowledged commits may be lost.
    Force {
        /// The partition.
        partition: PartitionId,
        /// The node, or the best.
        node: Option<NodeId>,
    },
    /// Failovers, newest last: JSON list of `FailoverRecord`.
    Failovers,
    /// Moves copies to this node until it has as many as the others; takes back a [`AdminCommand::Remove`] or
    /// a drain.
    Add(NodeId),
    /// Moves everything away from this node, then forgets it.
    Remove {
        /// The node.
        node: NodeId,
        /// Also if it may have acknowledged commits that nobody else has, and has been away since.
        losing: bool,
    },
    /// To a node, not a controller: what it keeps of the records, JSON of [`crate::KeptRecords`]. With a
    /// generation it first notes durably that it takes no word of a lower one any more (PR-107).
    Records(Option<Generation>),
    /// Creates a database. JSON of [`CreateTable`], whose columns are those of a catalog.
    CreateDatabase(RecordText),
    /// Changes a database's policy, factor or `min_in_sync`, or its name. JSON of [`AlterTable`].
    AlterDatabase(RecordText),
    /// Drops a database with all its tables.
    DropDatabase(String),
    /// Gives out so many numbers that no table of the cluster has or had as its id: JSON of the first. They
    /// are for tables of databases, and for versions of their schemas. 1 to [`MOST_NUMBERS`].
    Numbers(u32),
    /// A step of a bare table that moves. JSON of [`crate::moves::MoveTable`].
    MoveTable(RecordText),
}

/// The most numbers in one answer to [`AdminCommand::Numbers`].
pub const MOST_NUMBERS: u32 = 10_000;

/// A table to be created.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CreateTable {
    /// Its name.
    pub name: String,
    /// Columns and key.
    pub schema: types::data::Schema,
    /// Engine.
    pub engine: types::EngineKind,
    /// Log.
    pub log: types::LogKind,
    /// Policy preset.
    pub policy: String,
    /// Copies; `None`: 3, or as many as there are nodes.
    pub factor: Option<u8>,
    /// Fewest copies with which commits are allowed; `None`: the preset's.
    pub min_in_sync: Option<u8>,
    /// Go on below `min_in_sync`.
    pub available: bool,
    /// Partitions.
    pub partitions: u32,
    /// Explicit placement: nodes per partition; empty: by the scheme.
    pub placement: Vec<Vec<NodeId>>,
    /// How copies are placed where nothing explicit is said.
    #[serde(default)]
    pub scheme: types::Scheme,
    /// What backups do; `None`: they are hot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<types::policy::Standby>,
    /// At most so many milliseconds of log are to be replayed in a failover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover_target_ms: Option<u64>,
    /// What its partitions hold: one bare table, or a database.
    #[serde(default, skip_serializing_if = "types::Holds::is_table")]
    pub holds: types::Holds,
    /// Of a database: transactions reach over all its partitions, and its tables are spread by their own
    /// keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub global: bool,
    /// Of a database: what members are sent of a call of a procedure.
    #[serde(default, skip_serializing_if = "types::Ship::is_effects")]
    pub ship: types::Ship,
    /// Of a database of several partitions: their bounds, where rows are not spread by a hash.
    #[serde(default, skip_serializing_if = "types::Ranges::is_empty")]
    pub ranges: types::Ranges,
}

impl CreateTable {
    /// A table of one partition in files, of which the cluster decides what is not said here.
    pub fn new(name: &str, schema: types::data::Schema, policy: &str) -> CreateTable {
        CreateTable {
            name: name.into(),
            schema,
            engine: types::EngineKind::Lsm,
            log: types::LogKind::Disk,
            policy: policy.into(),
            factor: None,
            min_in_sync: None,
            available: false,
            partitions: 1,
            placement: Vec::new(),
            scheme: types::Scheme::default(),
            standby: None,
            failover_target_ms: None,
            holds: types::Holds::Table,
            global: false,
            ship: types::Ship::Effects,
            ranges: types::Ranges::default(),
        }
    }

    /// A database of one partition in files, of which the cluster decides what is not said here.
    pub fn database(name: &str, policy: &str) -> CreateTable {
        let schema = types::database::catalog_schema();
        CreateTable { holds: types::Holds::Database, ..CreateTable::new(name, schema, policy) }
    }

    /// One of the cluster's own tables ([`types::system`]), in a cluster of so many nodes: up to three
    /// copies, on disk. None if there is no such table in this version.
    pub fn system(name: &str, nodes: usize) -> Option<CreateTable> {
        let copies = nodes.clamp(1, 3) as u8;
        Some(CreateTable {
            factor: Some(copies),
            engine: match name {
                types::system::COMMITS => types::EngineKind::Memory,
                _ => types::EngineKind::Lsm,
            },
            ..CreateTable::new(
                name,
                types::system::schema(name)?,
                if copies > 1 { "durable" } else { "local" },
            )
        })
    }
}

/// A change of a table.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct AlterTable {
    /// Its name.
    pub name: String,
    /// The new policy preset.
    pub policy: Option<String>,
    /// The new fewest copies.
    pub min_in_sync: Option<u8>,
    /// `available` or `strict`.
    pub available: Option<bool>,
    /// What backups do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<types::policy::Standby>,
    /// At most so many milliseconds of log are to be replayed in a failover; 0: no bound but the log's
    /// budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover_target_ms: Option<u64>,
    /// Of a database: what members are sent of a call of a procedure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ship: Option<types::Ship>,
    /// Copies of each partition. What is there stays where it is as far as it stays at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<u8>,
    /// Columns that are added, nullable ones; those that are there just so already are skipped, so that the
    /// request can be repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_columns: Vec<types::data::Column>,
    /// An index to be added; skipped if it is there just so already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_index: Option<AddIndex>,
    /// The name of an index to be dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_index: Option<String>,
    /// Another name, for a database, or for a table that has got the rows of one that moves
    /// ([`types::system::moving`]). Nothing else is changed with it. That there is neither a table of the one
    /// name nor of the other is answered only if it is so in the metastore (PR-380).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
}

/// An index to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddIndex {
    /// Its name, unique in its table.
    pub name: String,
    /// Its columns by name, most significant first.
    pub columns: Vec<String>,
}

/// What became of an [`Admin`] request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdminAnswer {
    /// The request's.
    pub id: u64,
    /// JSON of the result, or one sentence with the exit status that fits it (conventions).
    pub result: Result<String, (u8, String)>,
}

//! The records that the metastore keeps. Written as JSON, each with a format number; unknown fields are kept,
//! so that an older process does not lose what a newer one wrote (design section 8).

use crate::data::Schema;
use crate::engine::EngineKind;
use crate::executors::Executors;
use crate::ids::{
    ClusterId, Generation, Incarnation, Member, NodeId, PartitionId, ProposalId, StoreId, TableId,
};
use crate::index::Indexes;
use crate::policy::{LogKind, Policy};
use crate::position::{Epoch, Lsn, Position, Term};
use crate::ranges::Ranges;
use crate::scheme::Scheme;
use crate::ship::Ship;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fields that this version does not know.
pub type Unknown = BTreeMap<String, serde_json::Value>;

/// What [`TableRecord::TRANSACTIONS`] and [`PartitionRecord::TRANSACTIONS`] say of what global transactions
/// write.
pub const GLOBAL: &str = "global";

/// What [`PartitionRecord::TRANSACTIONS`] says of the transaction manager's partition.
const MANAGER: &str = "manager";

/// The format number that this version writes.
pub const FORMAT: u16 = 1;

/// The cluster itself: one record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Format number.
    pub format: u16,
    /// Chosen at random at creation.
    pub id: ClusterId,
    /// When it was created, milliseconds since 1970.
    pub created_ms: u64,
    /// The next free table id.
    pub next_table: u32,
    /// The next free partition id.
    pub next_partition: u32,
    /// The next free partition id of a system table.
    #[serde(default = "first_system")]
    pub next_system: u32,
    /// The next free number of a failover.
    pub next_failover: u64,
    /// How often the records were made anew from the nodes.
    #[serde(default, skip_serializing_if = "Generation::is_first")]
    pub generation: Generation,
    /// How often any node had been asked for what it keeps when these records were made (PR-160).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// What this version does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ClusterRecord {
    /// True if this id has been given out: then a partition that is in no newer cluster map was dropped.
    pub fn has_given_out(&self, partition: PartitionId) -> bool {
        let next = if partition.is_system() { self.next_system } else { self.next_partition };
        partition.0 < next
    }
}

fn first_system() -> u32 {
    PartitionId::FIRST_SYSTEM
}

/// Where a node can be reached. Each is `host:port`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Addresses {
    /// Native clients.
    pub client: String,
    /// Other nodes: log shipping.
    pub peer: String,
    /// Other nodes: heartbeats, on connections of their own (PR-65).
    pub heartbeat: String,
    /// People and monitors.
    pub http: String,
}

/// A node and its present life.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Format number.
    pub format: u16,
    /// The node.
    pub id: NodeId,
    /// Its data directory.
    pub store: StoreId,
    /// Its present life.
    pub incarnation: Incarnation,
    /// True if it consumed a clean-shutdown mark when it started (F06).
    pub clean_start: bool,
    /// Where it is reached.
    pub addresses: Addresses,
    /// Copies of one partition avoid sharing a zone. Empty: none given.
    pub zone: String,
    /// Partitions whose log or engine on this node is damaged: not to be promoted (PR-18, F10).
    pub damaged: Vec<PartitionId>,
    /// The number of the start that its present life drew: a directory that does not know of it is an older
    /// copy (PR-145). Zero: unknown.
    #[serde(default)]
    pub start: u64,
    /// How many executors its present life has: clients keep a connection for each.
    #[serde(default, skip_serializing_if = "Executors::is_one")]
    pub executors: Executors,
    /// What this version does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl NodeRecord {
    /// A field among those that older versions do not know: the node leads nothing until its next life.
    pub const DRAINING: &str = "draining";

    /// Such a field: everything is moved away from the node, then it is removed. Outlives its process.
    pub const DECOMMISSIONING: &str = "leaving";

    /// Such a field: the node is given copies until it has as many as the others.
    pub const JOINING: &str = "joining";

    /// True if the record has this mark. They are kept in the record so that every controller knows.
    pub fn is_marked(&self, mark: &str) -> bool {
        self.unknown.get(mark) == Some(&serde_json::Value::Bool(true))
    }

    /// Sets or takes a mark.
    pub fn mark(&mut self, mark: &str, set: bool) {
        match set {
            true => drop(self.unknown.insert(mark.into(), serde_json::Value::Bool(true))),
            false => drop(self.unknown.remove(mark)),
        }
    }

    /// The node in its present life.
    pub fn member(&self) -> Member {
        Member { node: self.id, store: self.store, incarnation: self.incarnation }
    }
}

/// What the partitions of a record hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holds {
    /// The rows of this one table, which is bare: their keys have no table's id.
    #[default]
    Table,
    /// The tables of this database ([`crate::database`]).
    Database,
    /// The rows of this table among those of other tables of the database. Only clients make such records,
    /// from the database's and its catalog.
    TableOf(TableId),
}

impl Holds {
    /// True for one bare table.
    pub fn is_table(&self) -> bool {
        *self == Holds::Table
    }
}

/// What partitions belong to: a table, or a database. How they are spread, what their commits promise, and
/// the table's columns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableRecord {
    /// Format number.
    pub format: u16,
    /// The table.
    pub id: TableId,
    /// Its name: letters, digits, `_`; starts with a letter; at most 63 bytes.
    pub name: String,
    /// Columns and key.
    pub schema: Schema,
    /// Which engine.
    pub engine: EngineKind,
    /// Where its log lives.
    pub log: LogKind,
    /// The rule for commits of partitions created now. Each partition's record holds the one in force.
    pub policy: Policy,
    /// The first partition's id; the others follow.
    pub first_partition: PartitionId,
    /// How many partitions.
    pub partitions: u32,
    /// Name of the hash that spreads keys: `xxh3-64`.
    pub hash: String,
    /// Its seed.
    pub seed: u64,
    /// Wanted copies per partition: nodes in order of preference, the first leads when it can.
    pub placement: Vec<Vec<NodeId>>,
    /// When it was created, milliseconds since 1970.
    pub created_ms: u64,
    /// The indexes it is to have. Each partition's own state says how far they are.
    #[serde(default, skip_serializing_if = "Indexes::is_empty")]
    pub indexes: Indexes,
    /// At most so many milliseconds of log are to be replayed when a primary's node is lost; `None`: what the
    /// log's budget allows. Primaries flush early enough for it. Nothing else rests on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover_target_ms: Option<u64>,
    /// One bare table, or a database.
    #[serde(default, skip_serializing_if = "Holds::is_table")]
    pub holds: Holds,
    /// Of a database: what members are sent of a call of a procedure.
    #[serde(default, skip_serializing_if = "Ship::is_effects")]
    pub ship: Ship,
    /// Of a database: the bounds of its partitions, where rows are spread by ranges and not by the hash.
    #[serde(default, skip_serializing_if = "Ranges::is_empty")]
    pub ranges: Ranges,
    /// What this version does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl TableRecord {
    /// A table of one partition with its log on disk, in memory otherwise, that nobody has placed yet.
    pub fn new(id: TableId, name: &str, schema: Schema, policy: Policy) -> TableRecord {
        TableRecord {
            format: FORMAT,
            id,
            name: name.into(),
            schema,
            engine: EngineKind::Memory,
            log: LogKind::Disk,
            policy,
            first_partition: PartitionId(PartitionId::FIRST_USER),
            partitions: 1,
            hash: crate::data::HASH_NAME.into(),
            seed: 0,
            placement: Vec::new(),
            created_ms: 0,
            indexes: Indexes::default(),
            failover_target_ms: None,
            holds: Holds::Table,
            ship: Ship::Effects,
            ranges: Ranges::default(),
            unknown: Unknown::default(),
        }
    }

    /// A field among those that older versions do not know: somebody wrote the placement down, so copies are
    /// not moved to make nodes even.
    pub const PINNED: &str = "pinned";

    /// Such a field: the name of the scheme that copies were placed by, where it is not the default one.
    pub const SCHEME: &str = "scheme";

    /// Such a field: how far a transaction of the database reaches. [`GLOBAL`]: over all its partitions
    /// ([`crate::commits`]); where it is not there, over one of them.
    pub const TRANSACTIONS: &str = "transactions";

    /// True if a transaction of this database may have parts in any of its partitions. Tables of such a
    /// database are spread by their own keys.
    pub fn is_global(&self) -> bool {
        self.unknown.get(TableRecord::TRANSACTIONS).and_then(|value| value.as_str()) == Some(GLOBAL)
    }

    /// The scheme by which copies are placed.
    pub fn scheme(&self) -> Scheme {
        let name = self.unknown.get(TableRecord::SCHEME).and_then(|value| value.as_str());
        name.and_then(|name| Scheme::parse(name).ok()).unwrap_or_default()
    }

    /// True if the placement was written down by somebody.
    pub fn is_pinned(&self) -> bool {
        self.unknown.get(TableRecord::PINNED) == Some(&serde_json::Value::Bool(true))
    }

    /// The ids of this table's partitions, in order.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let first = self.first_partition.0;
        (first..first + self.partitions).map(PartitionId)
    }
}

/// Why a configuration was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The table was created.
    Created,
    /// In-sync backups missed the primary's heartbeats.
    Suspected,
    /// The primary's process came back in another life (N1).
    Restarted,
    /// The primary removed a backup that it could not reach.
    EvictedSilent,
    /// The primary removed a backup that acknowledged too late.
    EvictedSlow,
    /// The primary removed a member whose life or store had changed, or whose `durable` went back.
    EvictedChanged,
    /// The primary took a replica in to catch up.
    CatchingUp,
    /// A catching-up replica was level.
    InSync,
    /// The primary handed over.
    Switchover,
    /// The policy is changing or has changed.
    Policy,
    /// An operator promoted a replica although entries may be lost.
    Forced,
    /// The records were made anew from the nodes (PR-107).
    Rebuilt,
    /// A replica left because its data were damaged.
    Damaged,
}

/// Who led before, and what must still be waited for (R5, R6).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PreviousTerm {
    /// The epoch that was sealed.
    pub epoch: Epoch,
    /// Its term: a log that has nothing of it is of a primary that never came to serve (PR-103).
    pub term: Term,
    /// Its primary.
    pub primary: Member,
    /// True if that primary itself agreed to stop (switchover): its promises need not run out.
    pub handed_over: bool,
    /// Everyone in its in-sync set when it was sealed.
    pub in_sync: Vec<Member>,
}

/// A partition's configuration (R1). Its epoch exists because a compare-and-set wrote this record (N2).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// Format number.
    pub format: u16,
    /// The partition.
    pub id: PartitionId,
    /// Its table, or its database.
    pub table: TableId,
    /// Grows by one with every change.
    pub epoch: Epoch,
    /// Who leads. Serves only after all of R6.
    pub primary: Member,
    /// The epoch in which `primary` began to lead: the one whose marker it commits.
    pub term: Term,
    /// Who counts for commits and may be promoted, the primary included, by rank.
    pub in_sync: Vec<Member>,
    /// Who is being brought level. Never promoted automatically.
    pub catching_up: Vec<Member>,
    /// The rule for commits in force.
    pub policy: Policy,
    /// The rule that replaces it; while this is set both must be met (PR-24).
    pub next_policy: Option<Policy>,
    /// The proposal that wrote this record (PR-16).
    pub proposal: ProposalId,
    /// Why.
    pub cause: Cause,
    /// The term before this one. None for a partition's first.
    pub before: Option<PreviousTerm>,
    /// The failover that this term came from, if any.
    pub failover: Option<u64>,
    /// True if the promotion may have lost acknowledged commits: said in the failover's report before it
    /// serves. A change of the set by a primary that serves takes it back (PR-232).
    pub lossy: bool,
    /// What this version does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl PartitionRecord {
    /// The configuration in which the first of `in_sync` begins to lead, with no term before it and no change
    /// under way: a partition's first one, if the epoch is 1.
    pub fn new(
        id: PartitionId,
        table: TableId,
        epoch: Epoch,
        in_sync: Vec<Member>,
        policy: Policy,
    ) -> PartitionRecord {
        PartitionRecord {
            format: FORMAT,
            id,
            table,
            epoch,
            primary: in_sync[0],
            term: Term::of(epoch),
            in_sync,
            catching_up: Vec::new(),
            policy,
            next_policy: None,
            proposal: ProposalId(0),
            cause: Cause::Created,
            before: None,
            failover: None,
            lossy: false,
            unknown: Unknown::default(),
        }
    }

    /// A field among those that older versions do not know: the partition is a database's.
    pub const DATABASE: &str = "database";

    /// Such a field: what part the partition has in global transactions ([`crate::commits`]).
    pub const TRANSACTIONS: &str = "transactions";

    /// True if its rows are written by the transaction manager's commits alone. That never changes.
    pub fn is_global(&self) -> bool {
        self.part_in_transactions() == Some(GLOBAL)
    }

    /// True if it is the transaction manager's own: commits are its entries. That never changes.
    pub fn keeps_commits(&self) -> bool {
        self.part_in_transactions() == Some(MANAGER)
    }

    /// True if what it has acknowledged may be on its primary alone, and nowhere else. Of global transactions
    /// partitions are told again what they have lost (PR-291).
    pub fn rests_alone(&self) -> bool {
        self.policy.rests_on().is_primary() && !self.is_global()
    }

    /// True if nothing commits in this configuration, however long it is waited for: it has too few copies.
    pub fn starves(&self) -> bool {
        let mut policies = std::iter::once(&self.policy).chain(&self.next_policy);
        policies.any(|policy| !policy.allows(self.in_sync.len()))
    }

    fn part_in_transactions(&self) -> Option<&str> {
        self.unknown.get(PartitionRecord::TRANSACTIONS)?.as_str()
    }

    /// The same, of a partition of this table.
    pub fn with_transactions_of(mut self, table: &TableRecord) -> PartitionRecord {
        let part = match (table.is_global(), table.name == crate::system::COMMITS) {
            (true, _) => GLOBAL,
            (false, true) => MANAGER,
            (false, false) => return self,
        };
        self.unknown.insert(PartitionRecord::TRANSACTIONS.into(), part.into());
        self
    }

    /// True if it is a partition of a database: its rows' keys begin with their table's id, and it has a
    /// catalog. That never changes.
    pub fn is_of_database(&self) -> bool {
        self.unknown.get(PartitionRecord::DATABASE) == Some(&serde_json::Value::Bool(true))
    }

    /// The same, of a partition of a database.
    pub fn of_database(mut self) -> PartitionRecord {
        self.unknown.insert(PartitionRecord::DATABASE.into(), serde_json::Value::Bool(true));
        self
    }

    /// The rank of this very member in the in-sync set; the primary is 0.
    pub fn rank(&self, member: &Member) -> Option<usize> {
        self.in_sync.iter().position(|other| other == member)
    }

    /// True if the member is in the in-sync set or catching up.
    pub fn holds(&self, member: &Member) -> bool {
        self.in_sync.contains(member) || self.catching_up.contains(member)
    }

    /// Every member, in-sync ones first.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.in_sync.iter().chain(self.catching_up.iter())
    }

    /// Who most likely leads next if the primary is lost: the first node of this order, the wanted copies,
    /// that is in sync; none if no other copy is. An election also looks at what each of them has, so this is
    /// for estimates.
    pub fn successor(&self, order: &[NodeId]) -> Option<&Member> {
        let others = || self.in_sync.iter().filter(|member| **member != self.primary);
        let first = order.iter().find_map(|node| others().find(|member| member.node == *node));
        first.or_else(|| others().next())
    }

    /// The member that lives on this node, if any.
    pub fn member_on(&self, node: NodeId) -> Option<&Member> {
        self.members().find(|member| member.node == node)
    }

    /// Checks what must hold of every record that is written (I10). The error is a sentence.
    pub fn validate(&self) -> Result<(), String> {
        if self.in_sync.first() != Some(&self.primary) {
            return Err(format!("partition {}: the primary must head the in-sync set", self.id));
        }
        let mut nodes: Vec<NodeId> = self.members().map(|member| member.node).collect();
        nodes.sort();
        if nodes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("partition {}: a node holds two replicas", self.id));
        }
        if self.term.began() > self.epoch || self.epoch == Epoch::ZERO {
            return Err(format!("partition {}: led since {} in {}", self.id, self.term, self.epoch));
        }
        Ok(())
    }
}

/// What a failover lost, as far as it can be known (R9, PR-29).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LossReport {
    /// True if acknowledged commits may have been lost, and nobody brings them again.
    pub possible: bool,
    /// True if commits of global transactions that are missing are brought again from the log of their
    /// manager, so that at most changes of tables may have been lost (PR-368).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub brought_again: bool,
    /// The LSN of the last entry of older terms that the new primary kept.
    pub kept: Option<Lsn>,
    /// The term of that entry. Whatever was acknowledged at a later position is lost: in a later term also at
    /// the same LSN or below it (PR-98).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_term: Option<Term>,
    /// The highest LSN that anybody had heard of from the old primary when it was sealed.
    pub last_heard: Option<Lsn>,
    /// Tails that returned and were set aside.
    pub tails: Vec<TailReport>,
}

impl LossReport {
    /// The position of the last entry of older terms that was kept, once it is known.
    pub fn kept_position(&self) -> Option<Position> {
        Some(Position::new(self.kept_term?, self.kept?))
    }
}

/// A divergent tail that was set aside on some node (R9).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TailReport {
    /// The partition.
    pub partition: PartitionId,
    /// Where the file lies.
    pub node: NodeId,
    /// The file's name below that node's `tails` directory.
    pub file: String,
    /// The term of the tail's last entry.
    pub term: Term,
    /// The first LSN set aside.
    pub from: Lsn,
    /// The last LSN set aside.
    pub to: Lsn,
    /// Entries with a client's effect among them, but for parts of global transactions that are brought again
    /// from the log of their manager (PR-368).
    pub commits: u64,
    /// Of these, surely acknowledged: at or below the `committed` that the old primary had written.
    pub surely_acknowledged: u64,
    /// Distinct sessions that wrote them.
    pub sessions: u64,
    /// Of a tail that the log did not have any more: versions of rows in the file, in place of entries.
    /// `commits` are all entries from `from` to `to` then, whatever kind they were of, and
    /// `surely_acknowledged` those of which a version is left. If the rows are in several files, the last one
    /// counts these.
    #[serde(default)]
    pub rows: Option<u64>,
}

/// One change of a primary that was not asked for, with its time split.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FailoverRecord {
    /// Format number.
    pub format: u16,
    /// Its number; grows.
    pub id: u64,
    /// The partition.
    pub partition: PartitionId,
    /// Why.
    pub cause: Cause,
    /// The epoch that was sealed.
    pub old_epoch: Epoch,
    /// Who led it.
    pub old_primary: Member,
    /// The epoch in which that term began; 0 in records of an older version, which does not say it.
    #[serde(default)]
    pub old_term: Term,
    /// The first epoch of the new primary.
    pub new_epoch: Epoch,
    /// Who leads now.
    pub new_primary: Member,
    /// When the old primary was last heard, milliseconds since 1970, as the first to ask for the seal knew
    /// it.
    pub last_heard_ms: u64,
    /// When the seal was asked for.
    pub suspected_ms: u64,
    /// When the seal was in the metastore.
    pub sealed_ms: u64,
    /// When the new primary had its log: reports gathered, missing entries fetched.
    pub reconciled_ms: Option<u64>,
    /// When it served: marker committed, old promises run out.
    pub serving_ms: Option<u64>,
    /// What was lost.
    pub loss: LossReport,
    /// What this version does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

//! What a statement knows besides the rows of tables: the catalog, its session, and what the cluster says of
//! itself.

use crate::bind::Source;
use crate::catalog::Catalog;
use crate::driver::Handle;
use crate::engine::Reader;
use crate::read::{Tables, Values};
use crate::sequences::{SequenceValues, Sequences};
use crate::system::attributes::{Attribute, literal};
use crate::system::names::written;
use crate::system::relations::{Relation, relations};
use crate::system::sessions::Sessions;
use crate::txn::View;
use crate::txn::turns::Leaver;
use ::types::system::COMMITS;
use ::types::{FailoverRecord, NodeId, PartitionRecord, TableId, TableRecord};
use client::view::transactions::Transactions;
use client::{Client, Map, Options};
use pg::{Cancel, Failure};
use rusqlite::types::Value as Kept;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wire::control::{AdminCommand, ClusterStatus, NodeStatus, ReplicaStatus};

/// How long a controller may take to say what it knows.
pub const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// A node that was not heard for so long, milliseconds, says nothing any more.
const SILENT_MS: u64 = 1_500;

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// The number of its connection.
    pub pid: i32,
    /// Its parameters that are set.
    pub settings: crate::settings::Settings,
    /// All sessions of this node.
    pub sessions: Arc<Sessions>,
    /// What sequences have given its session.
    pub told: Arc<SequenceValues>,
    /// Where numbers come from, and where they are waited for.
    pub numbers: Option<(Arc<Sequences>, tokio::runtime::Handle)>,
    /// Rows that sessions of this node have, for a transaction that takes turns.
    pub held: Option<Leaver>,
    /// A commit of its session was not secured in the time that it is waited for: it is to be told.
    pub late: Arc<AtomicBool>,
}

impl std::fmt::Debug for Sequences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sequences")
    }
}

/// What the cluster says.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The records.
    pub map: Map,
    /// The last status of every node.
    pub status: ClusterStatus,
    /// The newest failovers, as the controllers keep them.
    pub failovers: Vec<FailoverRecord>,
}

/// Everything. What must be asked for is asked for once, when it is first wanted.
pub struct Facts {
    /// The tables.
    pub catalog: Arc<Catalog>,
    /// Who asks.
    pub asker: Asker,
    handle: Option<Handle>,
    cancel: Cancel,
    now: i64,
    seen: OnceLock<Seen>,
    transactions: OnceLock<Option<Transactions>>,
    relations: OnceLock<BTreeMap<u32, Relation>>,
}

impl Facts {
    /// For a statement that began at `now`, in microseconds since 1970.
    pub fn new(catalog: Arc<Catalog>, asker: Asker, handle: Handle, cancel: Cancel, now: i64) -> Facts {
        Facts {
            catalog,
            asker,
            handle: Some(handle),
            cancel,
            now,
            seen: OnceLock::new(),
            transactions: OnceLock::new(),
            relations: OnceLock::new(),
        }
    }

    /// What is known without a cluster.
    pub fn fixed(catalog: Arc<Catalog>, asker: Asker, seen: Seen) -> Facts {
        Facts {
            catalog,
            asker,
            handle: None,
            cancel: Cancel::default(),
            now: 0,
            seen: OnceLock::from(seen),
            transactions: OnceLock::from(None),
            relations: OnceLock::new(),
        }
    }

    /// A column's default, with the sequence's name if it is the next number of one.
    pub fn default_of(&self, attribute: &Attribute) -> Option<String> {
        let Some(id) = attribute.sequence else { return attribute.default.clone() };
        let (name, _) = self.catalog.sequence_by_id(TableId(id))?;
        Some(format!("nextval({}::regclass)", literal(&written(&self.catalog, name))))
    }

    /// Does something with sequences, and waits for it. The threads of queries may.
    pub fn counting<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        work: impl FnOnce(Arc<Sequences>, Handle, Arc<SequenceValues>) -> F,
    ) -> Result<T, Failure> {
        let (Some(handle), Some((sequences, runtime))) = (&self.handle, &self.asker.numbers) else {
            return Err(crate::read::no_facts());
        };
        runtime.block_on(work(sequences.clone(), handle.clone(), self.asker.told.clone()))
    }

    /// All relations, by their numbers.
    pub fn relations(&self) -> &BTreeMap<u32, Relation> {
        let by_oid = |relation: Relation| (relation.oid, relation);
        self.relations.get_or_init(|| relations(&self.catalog).into_iter().map(by_oid).collect())
    }

    /// What the cluster says now. If no controller answers in time, the records that this node knows, and
    /// nothing else.
    pub fn seen(&self) -> &Seen {
        self.seen.get_or_init(|| {
            let Some(handle) = &self.handle else { return Seen::default() };
            ask(handle.options()).unwrap_or_else(|| Seen { map: (*handle.map()).clone(), ..Seen::default() })
        })
    }

    /// True if there is a transaction manager.
    pub fn is_global(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.map().table(COMMITS).is_some())
    }

    /// What the transaction manager and the partitions say of global transactions now; none: there is no
    /// manager, or it does not answer in time.
    pub fn transactions(&self) -> Option<&Transactions> {
        let ask = |handle: &Handle| {
            let options = Options { timeout: STATUS_TIMEOUT, wait: false, ..handle.options().clone() };
            Transactions::ask(&mut Client::connect(options).ok()?).ok().flatten()
        };
        self.transactions.get_or_init(|| self.handle.as_ref().and_then(ask)).as_ref()
    }

    /// The last status of a node that was heard lately, and how many milliseconds ago.
    pub fn status(&self, node: NodeId) -> Option<(&NodeStatus, u64)> {
        let all = &self.seen().status.nodes;
        let found = all.iter().find(|(status, _)| status.member.node == node);
        found.map(|(status, age)| (status, *age)).filter(|(_, age)| *age < SILENT_MS)
    }

    /// A replica as its node, in the life that the record names, told of it lately.
    pub fn replica(&self, member: &types::Member, record: &PartitionRecord) -> Option<&ReplicaStatus> {
        let (status, _) = self.status(member.node)?;
        let same = status.member == *member;
        status.replicas.iter().find(|replica| same && replica.partition == record.id)
    }

    /// The records of partitions, the newest that anybody has told of.
    pub fn partitions(&self) -> BTreeMap<types::PartitionId, PartitionRecord> {
        let seen = self.seen();
        let mut records: BTreeMap<_, _> =
            seen.map.partitions().map(|record| (record.id, record.clone())).collect();
        for record in &seen.status.partitions {
            if records.get(&record.id).is_none_or(|known| known.epoch < record.epoch) {
                records.insert(record.id, record.clone());
            }
        }
        records
    }

    /// All rows of a table of the cluster, of all its columns.
    pub fn read(&self, table: &Arc<TableRecord>) -> Result<Vec<Vec<Kept>>, Failure> {
        let Some(handle) = &self.handle else { return Ok(Vec::new()) };
        let source = Source::whole(table.clone());
        let values = Values { parameters: Vec::new(), now: self.now };
        let tables = Tables::new(handle.clone(), vec![source], values, View::default(), self.cancel.clone());
        let mut pages = tables.open(0)?;
        let mut rows = Vec::new();
        while let Some(page) = pages.next()? {
            rows.extend(page);
        }
        Ok(rows)
    }
}

/// Asks a controller, with a client of its own: what takes long must not keep others waiting.
fn ask(options: &Options) -> Option<Seen> {
    let options = Options { timeout: STATUS_TIMEOUT, wait: false, ..options.clone() };
    let mut client = Client::connect(options).ok()?;
    let read = |client: &mut Client, command| client.admin_within(command, STATUS_TIMEOUT).ok();
    let status = read(&mut client, AdminCommand::Status)?;
    let status = serde_json::from_str(&status).unwrap_or_default();
    let failovers = read(&mut client, AdminCommand::Failovers);
    let failovers = failovers.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Some(Seen { map: client.cluster_map().clone(), status, failovers })
}

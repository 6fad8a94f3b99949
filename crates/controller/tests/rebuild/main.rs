//! The records made anew from what nodes keep (PR-107): what is refused, what is written, and that nothing
//! acknowledged is given up, whatever happened before.

mod numbers;

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use types::config::{
    Addresses, ClusterRecord, FORMAT, FailoverRecord, Holds, NodeRecord, PartitionRecord, TableRecord,
};
use types::data::{Column, ColumnType, Schema};
use types::{
    ClusterId, Epoch, Generation, Incarnation, LogKind, Member, NodeId, PartitionId, Policy,
    RemovedDirectories, Rules, StoreId, TableId,
};
use understudy_controller::Key;
use understudy_controller::rebuild::{Order, Rebuilt, Refusal, addresses, newest_generation, rebuild};
use wire::{KeptRecords, RecordText};

const P: PartitionId = PartitionId(64);
const T: TableId = TableId(1);

fn member(node: u32) -> Member {
    Member { node: NodeId(node), store: StoreId(100 + u64::from(node)), incarnation: Incarnation(1) }
}

fn members(nodes: &[u32]) -> Vec<Member> {
    nodes.iter().map(|node| member(*node)).collect()
}

fn cluster() -> ClusterRecord {
    ClusterRecord {
        format: FORMAT,
        id: ClusterId(7),
        created_ms: 0,
        next_table: 2,
        next_partition: 65,
        next_system: PartitionId::FIRST_SYSTEM,
        next_failover: 5,
        generation: Generation(0),
        asked: 0,
        unknown: Default::default(),
    }
}

fn node(id: u32) -> NodeRecord {
    let member = member(id);
    NodeRecord {
        format: FORMAT,
        id: member.node,
        store: member.store,
        incarnation: member.incarnation,
        clean_start: false,
        addresses: Addresses { client: format!("host-{id}:1"), ..Addresses::default() },
        zone: String::new(),
        damaged: Vec::new(),
        start: 0,
        executors: Default::default(),
        unknown: Default::default(),
    }
}

fn table(id: TableId, name: &str, first: PartitionId) -> TableRecord {
    let columns = vec![Column { nullable: false, ..Column::new("id", ColumnType::Int) }];
    let schema = Schema::new(columns, &["id"], 1, false).expect("a schema");
    TableRecord { first_partition: first, ..TableRecord::new(id, name, schema, policy()) }
}

fn policy() -> Policy {
    Policy::preset("durable", 3, LogKind::Disk).expect("a policy")
}

fn record(epoch: u64, nodes: &[u32]) -> PartitionRecord {
    PartitionRecord::new(P, T, Epoch(epoch), members(nodes), policy())
}

/// What a node keeps in a cluster of these nodes with one table of one partition.
fn keeps(of: u32, nodes: &[u32], record: &PartitionRecord) -> KeptRecords {
    let mut records = vec![
        ("cluster".to_string(), RecordText::new(&cluster())),
        (Key::Table(T).to_string(), RecordText::new(&table(T, "t", P))),
        (Key::Partition(P).to_string(), RecordText::new(record)),
    ];
    records.extend(nodes.iter().map(|id| (Key::Node(NodeId(*id)).to_string(), RecordText::new(&node(*id)))));
    KeptRecords {
        member: member(of),
        cluster: Some(ClusterId(7)),
        generation: Generation(1),
        revision: 50,
        whole: Some(10),
        records,
        ..KeptRecords::default()
    }
}

fn order(accept_missing: bool) -> Order {
    Order { generation: Generation(1), accept_missing, wall_ms: 1_000, seed: 3, rules: Rules::ALL }
}

/// The record with this key.
fn read<R: serde::de::DeserializeOwned>(rebuilt: &Rebuilt, key: Key) -> Option<R> {
    let found = rebuilt.entries.iter().find(|(other, _)| *other == key);
    found.map(|(_, bytes)| serde_json::from_slice(bytes).expect("a record"))
}

fn partition(rebuilt: &Rebuilt) -> PartitionRecord {
    read(rebuilt, Key::Partition(P)).expect("it is written")
}

#[test]
fn pr107_the_highest_epoch_is_sealed_beyond_what_the_old_controllers_gave_out() {
    let (old, new) = (record(4, &[1, 2, 3]), record(6, &[2, 3]));
    let reports = [keeps(1, &[1, 2, 3], &old), keeps(2, &[1, 2, 3], &new), keeps(3, &[1, 2, 3], &old)];
    let rebuilt = rebuild(&reports, &order(false)).expect("all are there");
    let record = partition(&rebuilt);
    assert_eq!((record.epoch, record.primary), (Epoch(1 << 32), member(2)));
    assert_eq!((record.term.began(), record.lossy), (record.epoch, false));
    assert_eq!(record.in_sync, members(&[2, 3]));
    let before = record.before.expect("a term was sealed");
    assert_eq!((before.epoch, before.primary, before.handed_over), (Epoch(6), member(2), false));
    let cluster: ClusterRecord = read(&rebuilt, Key::Cluster).expect("it is written");
    assert_eq!((cluster.generation, cluster.id, cluster.next_partition), (Generation(1), ClusterId(7), 65));
    let failover: FailoverRecord =
        read(&rebuilt, Key::Failover(record.failover.expect("it has a report"))).expect("it is written");
    assert_eq!((failover.old_epoch, failover.loss.possible), (Epoch(6), false));
    assert!(cluster.next_failover > failover.id && rebuilt.revision > 50);
    assert_eq!(read::<TableId>(&rebuilt, Key::Name("t".into())), Some(T));
    assert_eq!(read::<NodeRecord>(&rebuilt, Key::Node(NodeId(1))), Some(node(1)));
    // And once more, should that controller be lost too.
    let mut again: Vec<KeptRecords> = (1..=3).map(|of| keeps(of, &[1, 2, 3], &record_of(&rebuilt))).collect();
    again.iter_mut().for_each(|report| report.records[0].1 = RecordText::new(&cluster));
    assert_eq!(newest_generation(&again), Generation(1));
    let again = rebuild(&again, &Order { generation: Generation(2), ..order(false) }).expect("all are there");
    assert_eq!(partition(&again).epoch, Epoch(2 << 32));
}

/// A node that was removed does not come back on its old disk.
#[test]
fn pr159_it_is_known_who_was_removed() {
    let mut reports = [keeps(1, &[1, 2], &record(4, &[1, 2])), keeps(2, &[1, 2], &record(4, &[1, 2]))];
    reports[0].removed = vec![(NodeId(3), StoreId(7)), (NodeId(4), StoreId(104))];
    reports[1].removed = vec![(NodeId(3), StoreId(103))];
    reports[1].revision += 1;
    let rebuilt = rebuild(&reports, &order(false)).expect("all are there");
    let removed = |node| read::<RemovedDirectories>(&rebuilt, Key::Removed(NodeId(node)));
    let stores = |node| removed(node).map(|removed| removed.iter().map(|store| store.0).collect::<Vec<_>>());
    assert_eq!(stores(3), Some(vec![7, 103]), "PR-280: it came once more, and went");
    assert_eq!((stores(4), stores(1)), (Some(vec![104]), None));
    assert_eq!(read::<NodeRecord>(&rebuilt, Key::Node(NodeId(3))), None);
}

fn record_of(rebuilt: &Rebuilt) -> PartitionRecord {
    partition(rebuilt)
}

#[test]
fn pr107_two_records_of_one_epoch_are_refused() {
    let reports = [keeps(1, &[1, 2], &record(4, &[1, 2])), keeps(2, &[1, 2], &record(4, &[2, 1]))];
    let refused = rebuild(&reports, &order(true)).expect_err("they differ");
    assert_eq!(refused, Refusal::Differ(P, Epoch(4), NodeId(1), NodeId(2)));
    assert!(!refused.is_acceptable() && refused.to_string().contains("n1 and n2"), "{refused}");
}

/// Each of two operators goes on without what the other one has.
#[test]
fn pr107_two_rebuilds_meet_in_no_generation_and_no_epoch() {
    let alone = |of: u32, wall_ms: u64| {
        let reports = [keeps(of, &[1, 2, 3], &record(4, &[2, 1, 3]))];
        let generation = Generation::beyond(newest_generation(&reports), wall_ms);
        let rebuilt = rebuild(&reports, &Order { generation, wall_ms, ..order(true) }).expect("accepted");
        (generation, partition(&rebuilt))
    };
    let minute = 60_000;
    let (one, other) = (alone(1, 30_000_000 * minute), alone(3, 30_000_001 * minute));
    assert_eq!((one.1.primary, other.1.primary), (member(1), member(3)));
    assert!(one.0 < other.0 && one.1.epoch < other.1.epoch, "{one:?} {other:?}");
    assert!(one.1.epoch.0 < 1 << 60, "positions in it are believed");
}

#[test]
fn pr107_an_epoch_that_nobody_gave_out_is_refused() {
    let mut reports: Vec<KeptRecords> =
        (1..=3).map(|of| keeps(of, &[1, 2, 3], &record(4, &[1, 2, 3]))).collect();
    reports[1].seen = vec![(P, Epoch(u64::MAX))];
    let refused = rebuild(&reports, &order(true)).expect_err("nonsense");
    assert!(matches!(&refused, Refusal::Unreadable(NodeId(2), _)), "{refused}");
}

#[test]
fn pr107_a_missing_node_may_know_a_higher_epoch() {
    let reports = [keeps(1, &[1, 2, 3], &record(4, &[2, 1])), keeps(3, &[1, 2, 3], &record(4, &[2, 1]))];
    let refused = rebuild(&reports, &order(false)).expect_err("n2 is missing");
    assert_eq!(refused, Refusal::Missing(vec![NodeId(2)]));
    let rebuilt = rebuild(&reports, &order(true)).expect("an operator goes on without it");
    let record = partition(&rebuilt);
    assert_eq!((record.primary, &record.in_sync), (member(1), &members(&[1])));
    assert!(record.lossy && rebuilt.missing == [NodeId(2)]);
    assert_eq!(rebuilt.partitions[0].left_out, [NodeId(2)]);
    let failover = &rebuilt.partitions[0].failover;
    assert!(failover.loss.possible && failover.old_epoch.next() == record.epoch, "also what n2 did in e5");
    let cluster: ClusterRecord = read(&rebuilt, Key::Cluster).expect("it is written");
    assert!(cluster.next_partition > 65 && cluster.next_table > 2, "it may know of more tables");
    assert_eq!(read::<NodeRecord>(&rebuilt, Key::Node(NodeId(2))), Some(node(2)), "it may come back");
}

#[test]
fn pr107_a_disk_that_forgot_what_it_kept_counts_as_missing() {
    let both = record(4, &[1, 2]);
    let mut reports = [keeps(1, &[1, 2], &both), keeps(2, &[1, 2], &both)];
    reports[1].whole = None;
    assert_eq!(rebuild(&reports, &order(false)), Err(Refusal::Missing(vec![NodeId(2)])));
    // Another disk under the same number knows nothing of what was acknowledged on the one before.
    reports[1].whole = Some(10);
    reports[1].member.store = StoreId(9);
    assert_eq!(rebuild(&reports, &order(false)), Err(Refusal::Missing(vec![NodeId(2)])));
    let rebuilt = rebuild(&reports, &order(true)).expect("an operator goes on without it");
    assert_eq!(partition(&rebuilt).in_sync, members(&[1]));
}

#[test]
fn pr107_a_replica_that_has_seen_more_than_any_record_is_told() {
    let both = record(4, &[1, 2]);
    let mut reports = [keeps(1, &[1, 2], &both), keeps(2, &[1, 2], &both)];
    reports[1].seen = vec![(P, Epoch(4))];
    assert!(rebuild(&reports, &order(false)).is_ok());
    reports[1].seen = vec![(P, Epoch(1 << 33))];
    assert_eq!(rebuild(&reports, &order(false)), Err(Refusal::Ahead(P, Epoch(1 << 33), NodeId(2))));
    let record = partition(&rebuild(&reports, &order(true)).expect("an operator goes on"));
    assert!(record.lossy && record.epoch > Epoch(1 << 33));
}

#[test]
fn pr107_a_partition_of_which_nobody_that_counts_is_there_stays_closed() {
    let reports = [keeps(3, &[1, 2, 3], &record(4, &[1, 2]))];
    let rebuilt = rebuild(&reports, &order(true)).expect("an operator goes on");
    let record = partition(&rebuilt);
    assert_eq!((record.primary, &record.in_sync), (member(1), &members(&[1, 2])));
    assert!(record.lossy && rebuilt.partitions[0].closed);
}

#[test]
fn pr107_a_database_comes_back_beside_a_table_of_the_same_name() {
    let database = TableId(9);
    let mut reports: Vec<KeptRecords> =
        (1..=3).map(|of| keeps(of, &[1, 2, 3], &record(4, &[1, 2, 3]))).collect();
    for report in &mut reports {
        let record = TableRecord { holds: Holds::Database, ..table(database, "t", PartitionId(70)) };
        report.records.push((Key::Table(database).to_string(), RecordText::new(&record)));
        let record = PartitionRecord::new(PartitionId(70), database, Epoch(2), members(&[1, 2, 3]), policy());
        report.records.push((Key::Partition(PartitionId(70)).to_string(), RecordText::new(&record)));
    }
    let rebuilt = rebuild(&reports, &order(false)).expect("all are there");
    assert_eq!(read::<TableId>(&rebuilt, Key::Name("t".into())), Some(T));
    assert_eq!(read::<TableId>(&rebuilt, Key::Database("t".into())), Some(database));
}

#[test]
fn pr107_what_is_gone_stays_gone() {
    // n2 was away when the table was dropped and n3 was removed.
    let (both, all) = (record(4, &[1, 2]), [1, 2, 3]);
    let mut reports = [keeps(1, &[1, 2], &both), keeps(2, &all, &both)];
    reports[1].revision = 20;
    assert_eq!(
        rebuild(&reports, &order(false)),
        Err(Refusal::Missing(vec![NodeId(3)])),
        "n1 was told all at 10 only"
    );
    reports[0].whole = Some(30);
    let rebuilt = rebuild(&reports, &order(false)).expect("n3 was gone at 30");
    assert_eq!(read::<NodeRecord>(&rebuilt, Key::Node(NodeId(3))), None);
    reports[0].records.retain(|(key, _)| !key.starts_with("table/") && !key.starts_with("partition/"));
    let rebuilt = rebuild(&reports, &order(false)).expect("the table was gone at 30");
    assert!(rebuilt.partitions.is_empty() && read::<TableRecord>(&rebuilt, Key::Table(T)).is_none());
    // The number is not given again.
    let cluster: ClusterRecord = read(&rebuilt, Key::Cluster).expect("it is written");
    assert!(cluster.next_table > 1_000_000, "somebody may have been given more than any node was told of");
    assert_eq!(cluster.next_partition, 65);
    reports[0].whole = Some(10);
    assert_eq!(rebuild(&reports, &order(false)).map(drop), Err(Refusal::Missing(vec![NodeId(3)])));
    reports[1] = keeps(2, &[1, 2], &both);
    assert_eq!(rebuild(&reports, &order(false)).expect("the table is there").partitions.len(), 1);
    reports[0].dropped = vec![T];
    assert!(rebuild(&reports, &order(false)).expect("n1 heard it").partitions.is_empty());
}

#[test]
fn pr107_what_cannot_be_put_together_is_refused() {
    let both = record(4, &[1, 2]);
    let good = || [keeps(1, &[1, 2], &both), keeps(2, &[1, 2], &both)];
    let refused = |reports: &[KeptRecords]| rebuild(reports, &order(true)).expect_err("it is refused");
    assert_eq!(refused(&[]), Refusal::Nothing);
    assert_eq!(refused(&[KeptRecords { records: Vec::new(), ..keeps(1, &[1], &both) }]), Refusal::Nothing);
    let mut other = good();
    other[1].cluster = Some(ClusterId(8));
    assert_eq!(refused(&other), Refusal::Clusters(NodeId(1), NodeId(2)));
    let mut twice = good();
    twice[1].member = twice[0].member;
    assert_eq!(refused(&twice), Refusal::Twice(NodeId(1)));
    let mut led = good();
    led[1].controllers = vec!["host:7400".into()];
    assert_eq!(refused(&led), Refusal::HasController(NodeId(2), "host:7400".into()));
    let mut newer = good();
    newer[1].generation = Generation(2);
    assert_eq!(refused(&newer), Refusal::Newer(NodeId(2), Generation(2)));
    let mut broken = good();
    broken[0].records[2].1 = RecordText("{}".into());
    assert!(matches!(refused(&broken), Refusal::Unreadable(NodeId(1), _)));
    let mut none = good();
    none.iter_mut().for_each(|report| report.records.retain(|(key, _)| !key.starts_with("partition/")));
    assert_eq!(refused(&none), Refusal::NoRecord(P, "t".into()));
    let mut same = good();
    let second = table(TableId(2), "t", PartitionId(65));
    let of_second = PartitionRecord { id: PartitionId(65), table: TableId(2), ..both.clone() };
    same[0].records.push((Key::Table(TableId(2)).to_string(), RecordText::new(&second)));
    same[0].records.push((Key::Partition(PartitionId(65)).to_string(), RecordText::new(&of_second)));
    assert_eq!(refused(&same), Refusal::SameName("t".into()));
    // One that never took part has nothing to say.
    let stranger = KeptRecords { member: member(9), ..KeptRecords::default() };
    let with_stranger = [good().to_vec(), vec![stranger]].concat();
    assert!(rebuild(&with_stranger, &order(false)).is_ok());
    assert_eq!(addresses(&good())[1], (NodeId(2), "host-2:1".into()));
}

/// What can happen to one partition, its nodes chosen by number.
#[derive(Clone, Debug)]
enum Event {
    /// A node hears the newest record.
    Heard(u32),
    /// Whoever believes to lead writes: acknowledged if everybody that counts takes it.
    Write(u32),
    /// The leader removes somebody; it need not hear what became of it.
    Evict(u32, u32, bool),
    /// The leader takes somebody in to catch up.
    CatchUp(u32, u32, bool),
    /// The leader counts somebody who caught up.
    Admit(u32, u32, bool),
    /// A controller names another leader; nobody need hear of it.
    Seal(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let node = || 1..=4u32;
    prop_oneof![
        3 => node().prop_map(Event::Heard),
        4 => node().prop_map(Event::Write),
        2 => (node(), node(), any::<bool>()).prop_map(|(by, who, hears)| Event::Evict(by, who, hears)),
        2 => (node(), node(), any::<bool>()).prop_map(|(by, who, hears)| Event::CatchUp(by, who, hears)),
        2 => (node(), node(), any::<bool>()).prop_map(|(by, who, hears)| Event::Admit(by, who, hears)),
        2 => node().prop_map(Event::Seal),
    ]
}

/// One partition whose commits are acknowledged by everybody in its set, as far as its sets and what nodes
/// hear of them go.
struct Model {
    /// What the metastore has.
    record: PartitionRecord,
    /// What each node was told, and keeps.
    kept: BTreeMap<u32, PartitionRecord>,
    /// What each node has.
    has: BTreeMap<u32, BTreeSet<u32>>,
    /// A set that a leader proposed and does not know the outcome of.
    proposed: BTreeMap<u32, Vec<Member>>,
    acknowledged: BTreeSet<u32>,
    written: u32,
}

impl Model {
    fn new() -> Model {
        let record = record(1, &[1, 2, 3]);
        let kept = (1..=4).map(|node| (node, record.clone())).collect();
        let has = (1..=4).map(|node| (node, BTreeSet::new())).collect();
        let (proposed, acknowledged) = (BTreeMap::new(), BTreeSet::new());
        Model { record, kept, has, proposed, acknowledged, written: 0 }
    }

    fn hear(&mut self, node: u32, record: PartitionRecord) {
        if record.epoch > self.kept[&node].epoch {
            self.proposed.remove(&node);
            self.kept.insert(node, record);
        }
    }

    fn leads(&self, node: u32) -> bool {
        self.kept[&node].primary == member(node)
    }

    fn write(&mut self, by: u32) {
        if !self.leads(by) {
            return;
        }
        self.written += 1;
        let (record, commit) = (self.kept[&by].clone(), self.written);
        self.has.get_mut(&by).expect("a node").insert(commit);
        let state = self.has[&by].clone();
        let mut counts: BTreeSet<u32> = record.in_sync.iter().map(|member| member.node.0).collect();
        counts.extend(self.proposed.get(&by).into_iter().flatten().map(|member| member.node.0));
        let mut all = true;
        for node in counts {
            if self.kept[&node].epoch > record.epoch {
                all = false;
                continue;
            }
            self.hear(node, record.clone());
            // It is brought to the leader's log, whatever it had.
            self.has.insert(node, state.clone());
        }
        if all {
            self.acknowledged.insert(commit);
        }
    }

    /// The leader proposes another set, one at a time.
    fn propose(&mut self, by: u32, change: impl FnOnce(&mut PartitionRecord), hears: bool) {
        let known = self.kept[&by].clone();
        let mut record = PartitionRecord { epoch: known.epoch.next(), ..known.clone() };
        change(&mut record);
        self.proposed.insert(by, record.in_sync.clone());
        if self.record.epoch == known.epoch {
            self.record = record;
        }
        if hears {
            self.hear(by, self.record.clone());
        }
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Heard(node) => self.hear(node, self.record.clone()),
            Event::Write(by) => self.write(by),
            Event::Evict(by, who, hears) => {
                let counts = self.kept[&by].in_sync.contains(&member(who));
                if self.leads(by) && by != who && counts && !self.proposed.contains_key(&by) {
                    self.propose(by, |record| record.in_sync.retain(|other| *other != member(who)), hears);
                }
            }
            Event::CatchUp(by, who, hears) => {
                if self.leads(by) && !self.kept[&by].holds(&member(who)) && !self.proposed.contains_key(&by) {
                    self.propose(by, |record| record.catching_up.push(member(who)), hears);
                }
            }
            Event::Admit(by, who, hears) => {
                let known = self.kept[&by].clone();
                let level = self.kept[&who].epoch <= known.epoch && known.catching_up.contains(&member(who));
                if self.leads(by) && level && !self.proposed.contains_key(&by) {
                    self.hear(who, known);
                    self.has.insert(who, self.has[&by].clone());
                    let change = |record: &mut PartitionRecord| {
                        record.catching_up.retain(|other| *other != member(who));
                        record.in_sync.push(member(who));
                    };
                    self.propose(by, change, hears);
                }
            }
            Event::Seal(who) => {
                let counts = self.record.in_sync.contains(&member(who));
                if counts && self.record.primary != member(who) {
                    let epoch = self.record.epoch.next();
                    let mut set = self.record.in_sync.clone();
                    set.retain(|other| *other != member(who) && *other != self.record.primary);
                    set.insert(0, member(who));
                    self.record = PartitionRecord {
                        epoch,
                        primary: member(who),
                        term: types::Term::of(epoch),
                        in_sync: set,
                        ..self.record.clone()
                    };
                }
            }
        }
    }

    fn has_all(&self, set: &[Member]) -> bool {
        set.iter().all(|member| self.acknowledged.is_subset(&self.has[&member.node.0]))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn pr107_nothing_acknowledged_is_given_up(
        events in proptest::collection::vec(event(), 0..60),
        there in proptest::collection::btree_set(1..=4u32, 0..=4),
    ) {
        let mut model = Model::new();
        events.iter().for_each(|event| model.happens(event));
        prop_assert!(model.has_all(&model.record.in_sync), "the model itself is wrong: {:?}", model.record);
        let reports: Vec<KeptRecords> =
            there.iter().map(|node| keeps(*node, &[1, 2, 3, 4], &model.kept[node])).collect();
        let strict = rebuild(&reports, &order(false));
        prop_assert_eq!(strict.is_ok(), there.len() == 4, "all are needed, and all suffice");
        if let Ok(rebuilt) = strict {
            let record = partition(&rebuilt);
            prop_assert!(!record.lossy && model.has_all(&record.in_sync), "{:?}", record);
        }
        if let Ok(rebuilt) = rebuild(&reports, &order(true)) {
            let record = partition(&rebuilt);
            prop_assert!(record.lossy || model.has_all(&record.in_sync), "{:?}", record);
            let left: Vec<u32> = record.in_sync.iter().map(|member| member.node.0).collect();
            prop_assert!(
                rebuilt.partitions[0].closed || left.iter().all(|node| there.contains(node)),
                "who is missing does not count: {:?}", record
            );
            prop_assert!(record.epoch > model.record.epoch);
        }
    }
}

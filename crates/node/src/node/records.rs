//! The records that controllers told, kept durably before this node acts on them (PR-107).
//!
//! Whatever brings records waits until they are kept: cluster maps, outcomes of proposals, and what other
//! replicas pass on. So a primary counts a set, and a candidate leads, only by a record that its node
//! will not forget. Nothing else waits.

use crate::clock;
use crate::kept::{Change, Keeper};
use crate::stop::Stopper;
use driver::Kept;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use types::{Epoch, Micros, PartitionId};
use wire::{KeptRecords, Message, PeerMessage};

/// What waits until the records in it are kept.
pub enum AwaitingRecords {
    /// From a controller, on this connection.
    Controller(u64, Message),
    /// From another replica.
    Peer(PeerMessage),
}

/// The records that this node keeps, and what waits for them.
pub struct Records {
    /// None: the coordinator keeps them, and this is another one.
    keeper: Option<Keeper>,
    /// What is kept, or on its way to the disk.
    kept: Kept,
    /// The highest epochs that the log had when this incarnation began.
    promised: BTreeMap<PartitionId, Epoch>,
    /// In order, each with the number of the write that it waits for, and since when.
    waiting: VecDeque<(u64, Micros, AwaitingRecords)>,
}

impl Records {
    /// What the data directory has.
    pub fn open(
        root: &Path,
        promised: BTreeMap<PartitionId, Epoch>,
        stopper: &Stopper,
    ) -> std::io::Result<Records> {
        let (keeper, kept) = Keeper::start(root, stopper)?;
        Ok(Records { keeper: Some(keeper), kept: Kept::read(kept), promised, waiting: VecDeque::new() })
    }

    /// For an executor beside the coordinator: it is told of records only when they are kept.
    pub fn elsewhere() -> Records {
        let (promised, waiting) = (BTreeMap::new(), VecDeque::new());
        Records { keeper: None, kept: Kept::default(), promised, waiting }
    }

    /// Takes a message of a controller. Gives it back if it need not wait.
    pub fn of_controller(&mut self, key: u64, message: Message) -> Option<Message> {
        let changes = self.kept.of_controller(&message);
        let number = self.keep(changes);
        // What comes later is about what waits, and each that waits has a write that is not done.
        if number.is_none() && self.waiting.is_empty() {
            return Some(message);
        }
        self.await_records(AwaitingRecords::Controller(key, message));
        None
    }

    /// Takes a message of another replica. Gives it back if it need not wait.
    pub fn of_peer(&mut self, message: PeerMessage) -> Option<PeerMessage> {
        let Some(changes) = self.kept.of_peer(&message) else { return Some(message) };
        if self.keep(changes).is_none() && self.waiting.is_empty() {
            return Some(message);
        }
        self.await_records(AwaitingRecords::Peer(message));
        None
    }

    /// Controllers of lower generations are not listened to any more: what they have said and waits here is
    /// not acted on. Its records are kept all the same.
    pub fn forget_controllers(&mut self) {
        self.waiting.retain(|(_, _, held)| matches!(held, AwaitingRecords::Peer(_)));
    }

    fn await_records(&mut self, what: AwaitingRecords) {
        let given = self.keeper.as_ref().map_or(0, Keeper::given);
        self.waiting.push_back((given, clock::mono(), what));
    }

    /// The next of what waited, if its records are kept.
    pub fn next(&mut self) -> Option<AwaitingRecords> {
        let (number, _, _) = self.waiting.front()?;
        if !self.keeper.as_ref().is_some_and(|keeper| keeper.is_done(*number)) {
            return None;
        }
        self.waiting.pop_front().map(|(_, _, held)| held)
    }

    /// Since when the oldest of what waits has waited. A node whose disk keeps nothing hears no controller,
    /// and must not look alive for long (N18).
    pub fn oldest_waiting(&self) -> Option<Micros> {
        self.waiting.front().map(|(_, since, _)| *since)
    }

    /// All that is kept.
    pub fn report(&self) -> KeptRecords {
        let seen = self.promised.iter().map(|(id, epoch)| (*id, *epoch)).collect();
        KeptRecords { seen, ..self.kept.report() }
    }

    /// Hands changes over; gives the number of the write, if there is one.
    fn keep(&mut self, changes: Vec<Change>) -> Option<u64> {
        let keeper = self.keeper.as_mut()?;
        (!changes.is_empty()).then(|| keeper.give(changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token, Waker};
    use std::sync::Arc;
    use std::time::Duration;
    use types::config::{Addresses, ClusterRecord, FORMAT, NodeRecord};
    use types::{
        ClusterId, Generation, Incarnation, LogKind, Member, NodeId, PartitionRecord, Policy, StoreId,
        TableId,
    };
    use wire::RecordText;
    use wire::control::{ClusterMap, Proposed};

    const P: PartitionId = PartitionId(64);

    struct Disk {
        dir: tempfile::TempDir,
        poll: Poll,
        stopper: Stopper,
    }

    impl Disk {
        fn new() -> Disk {
            let poll = Poll::new().expect("a poll");
            let waker = Waker::new(poll.registry(), Token(0)).expect("a waker");
            let dir = tempfile::tempdir().expect("a directory");
            Disk { dir, poll, stopper: Stopper::new(Arc::new(waker)) }
        }

        fn open(&self) -> Records {
            Records::open(self.dir.path(), BTreeMap::new(), &self.stopper).expect("opens")
        }

        /// What was held first, once its records are kept.
        fn next(&mut self, records: &mut Records) -> AwaitingRecords {
            let mut events = Events::with_capacity(4);
            loop {
                if let Some(held) = records.next() {
                    return held;
                }
                self.poll.poll(&mut events, Some(Duration::from_secs(30))).expect("polls");
                assert!(!events.is_empty(), "nothing is kept");
            }
        }
    }

    fn partition(epoch: u64) -> RecordText {
        let policy = Policy::preset("durable", 1, LogKind::Disk).expect("a policy");
        RecordText::new(&PartitionRecord::new(P, TableId(1), Epoch(epoch), vec![Member::default()], policy))
    }

    fn map(revision: u64, generation: u64, epoch: u64) -> ClusterMap {
        let cluster = ClusterRecord {
            format: FORMAT,
            id: ClusterId(7),
            created_ms: 0,
            next_table: 2,
            next_partition: 65,
            next_system: PartitionId::FIRST_SYSTEM,
            next_failover: 1,
            generation: Generation(generation),
            asked: 0,
            unknown: Default::default(),
        };
        ClusterMap {
            revision,
            cluster: Some(RecordText::new(&cluster)),
            nodes: Vec::new(),
            tables: Vec::new(),
            partitions: vec![partition(epoch)],
            dropped: Vec::new(),
            whole: true,
        }
    }

    fn kept(records: &Records) -> Option<PartitionRecord> {
        let report = records.report();
        let found = report.records.iter().find(|(key, _)| key == "partition/64");
        found.map(|(_, text)| text.read().expect("a record"))
    }

    #[test]
    fn pr107_nobody_acts_on_a_record_before_it_is_kept() {
        let mut disk = Disk::new();
        let mut records = disk.open();
        assert_eq!((records.report().whole, kept(&records)), (None, None), "it knows that it knows nothing");
        assert!(records.of_controller(1, map(5, 0, 3).into()).is_none());
        // What follows is about what waits, whatever it is.
        let proposed =
            Proposed { proposal: types::ProposalId(1), partition: P, accepted: true, record: partition(3) };
        assert!(records.of_controller(1, proposed.clone().into()).is_none());
        assert!(matches!(disk.next(&mut records), AwaitingRecords::Controller(1, Message::ClusterMap(_))));
        assert!(matches!(disk.next(&mut records), AwaitingRecords::Controller(1, Message::Proposed(_))));
        assert!(records.of_controller(1, proposed.into()).is_some(), "nothing of it is news");
        assert!(records.of_controller(1, map(5, 0, 3).into()).is_some());
        drop(records);
        let records = disk.open();
        assert_eq!(records.report().whole, Some(5));
        assert_eq!(kept(&records).map(|record| record.epoch), Some(Epoch(3)));
    }

    #[test]
    fn pr107_older_news_change_nothing_and_another_metastore_begins_to_count() {
        let mut disk = Disk::new();
        let mut records = disk.open();
        assert!(records.of_controller(1, map(500, 0, 3).into()).is_none());
        disk.next(&mut records);
        assert!(records.of_controller(1, map(400, 0, 2).into()).is_some());
        assert_eq!(records.report().revision, 500);
        assert!(records.of_controller(2, map(7, 1, 9).into()).is_none());
        disk.next(&mut records);
        let report = records.report();
        assert_eq!((report.revision, report.whole), (7, Some(7)));
        assert_eq!(kept(&records).map(|record| record.epoch), Some(Epoch(9)));
        let dropped = ClusterMap { dropped: vec![1], whole: false, revision: 8, ..map(8, 1, 9) };
        assert!(records.of_controller(2, dropped.into()).is_none());
        disk.next(&mut records);
        assert_eq!((kept(&records), records.report().dropped), (None, vec![TableId(1)]));
    }

    #[test]
    fn pr107_what_a_controller_has_said_that_was_replaced_meanwhile_is_not_acted_on() {
        let mut disk = Disk::new();
        let mut records = disk.open();
        assert!(records.of_controller(1, map(5, 0, 3).into()).is_none());
        records.forget_controllers();
        assert!(records.of_controller(2, map(7, 1, 9).into()).is_none());
        assert!(matches!(disk.next(&mut records), AwaitingRecords::Controller(2, Message::ClusterMap(_))));
        assert_eq!(records.report().whole, Some(7));
    }

    #[test]
    fn pr159_who_is_gone_is_remembered_with_the_disk_that_it_had() {
        let node = |id: u64| NodeRecord {
            format: FORMAT,
            id: NodeId(id as u32),
            store: StoreId(100 + id),
            incarnation: Incarnation(1),
            clean_start: false,
            addresses: Addresses::default(),
            zone: String::new(),
            damaged: Vec::new(),
            start: 0,
            executors: Default::default(),
            unknown: Default::default(),
        };
        let with = |revision, generation, nodes: &[u64]| ClusterMap {
            nodes: nodes.iter().map(|id| RecordText::new(&node(*id))).collect(),
            ..map(revision, generation, 3)
        };
        let disk = Disk::new();
        let mut records = disk.open();
        for told in [with(5, 0, &[1, 2]), with(6, 0, &[2]), with(7, 1, &[2, 3])] {
            assert!(records.of_controller(1, told.into()).is_none());
        }
        let removed = vec![(NodeId(1), StoreId(101))];
        assert_eq!(records.report().removed, removed);
        drop(records);
        let mut records = disk.open();
        assert_eq!(records.report().removed, removed, "in the next life too");
        // Others, who have not heard of it, come before it does (PR-211).
        assert!(records.of_controller(1, with(8, 1, &[1, 2, 3]).into()).is_none());
        assert!(records.report().removed.is_empty(), "it is there, with that disk");
        drop(records);
        assert!(disk.open().report().removed.is_empty());
    }
}

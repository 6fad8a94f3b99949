//! The records that controllers told, kept durably before this node acts on them (PR-107).
//!
//! Whatever brings records waits until they are kept: cluster maps, outcomes of proposals, and what other
//! replicas pass on. So a primary counts a set, and a candidate leads, only by a record that its node
//! will not forget. Nothing else waits.

use crate::clock;
use crate::kept::{Change, Keeper};
use crate::stop::Stopper;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use types::{
    ClusterRecord, Epoch, Generation, Micros, NodeRecord, PartitionId, PartitionRecord, TableId, TableRecord,
};
use wire::control::ClusterMap;
use wire::peer::Refusal;
use wire::{KeptRecords, Message, PeerMessage, RecordText};

/// What waits until the records in it are kept.
pub enum Held {
    /// From a controller, on this connection.
    Controller(u64, Message),
    /// From another replica.
    Peer(PeerMessage),
}

/// Up to when this node was told what it keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Told {
    generation: Generation,
    revision: u64,
    /// The newest revision at which it was told everything.
    whole: Option<u64>,
    dropped: BTreeSet<TableId>,
}

/// The key of [`Told`], beside those that the metastore has.
const TOLD: &str = "told";

/// The records that this node keeps, and what waits for them.
pub struct Records {
    keeper: Keeper,
    /// What is kept, or on its way to the disk: a record under each of the metastore's keys.
    records: BTreeMap<String, String>,
    told: Told,
    /// The epochs of the partitions' records, and the tables.
    epochs: BTreeMap<PartitionId, (Epoch, TableId)>,
    /// The highest epochs that the log had when this incarnation began.
    promised: BTreeMap<PartitionId, Epoch>,
    /// In order, each with the number of the write that it waits for, and since when.
    waiting: VecDeque<(u64, Micros, Held)>,
}

impl Records {
    /// What the data directory has.
    pub fn open(
        root: &Path,
        promised: BTreeMap<PartitionId, Epoch>,
        stopper: &Stopper,
    ) -> std::io::Result<Records> {
        let (keeper, kept) = Keeper::start(root, stopper)?;
        let mut records: BTreeMap<String, String> = kept
            .into_iter()
            .map(|(key, bytes)| (key, String::from_utf8_lossy(&bytes).into_owned()))
            .collect();
        let told = records.remove(TOLD).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let epoch = |(key, text): (&String, &String)| {
            let record: PartitionRecord = partition_key(key).and_then(|_| serde_json::from_str(text).ok())?;
            Some((record.id, (record.epoch, record.table)))
        };
        let epochs = records.iter().filter_map(epoch).collect();
        Ok(Records { keeper, records, told, epochs, promised, waiting: VecDeque::new() })
    }

    /// Takes a message of a controller. Gives it back if it need not wait.
    pub fn of_controller(&mut self, key: u64, message: Message) -> Option<Message> {
        let changes = match &message {
            Message::ClusterMap(map) => self.of_map(map),
            Message::Proposed(proposed) => self.of_partition(&proposed.record),
            _ => Vec::new(),
        };
        let number = self.keep(changes);
        // What comes later is about what waits, and each that waits has a write that is not done.
        if number.is_none() && self.waiting.is_empty() {
            return Some(message);
        }
        self.waiting.push_back((self.keeper.given(), clock::mono(), Held::Controller(key, message)));
        None
    }

    /// Takes a message of another replica. Gives it back if it need not wait.
    pub fn of_peer(&mut self, message: PeerMessage) -> Option<PeerMessage> {
        let changes = match &message {
            PeerMessage::Inform(inform) => self.of_peers(inform.partition, &inform.record),
            PeerMessage::AppendRefused(refused) => match &refused.why {
                Refusal::OldEpoch(text) => self.of_peers(refused.partition, &RecordText(text.clone())),
                _ => return Some(message),
            },
            _ => return Some(message),
        };
        if self.keep(changes).is_none() && self.waiting.is_empty() {
            return Some(message);
        }
        self.waiting.push_back((self.keeper.given(), clock::mono(), Held::Peer(message)));
        None
    }

    /// The next of what waited, if its records are kept.
    pub fn next(&mut self) -> Option<Held> {
        let (number, _, _) = self.waiting.front()?;
        if !self.keeper.is_done(*number) {
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
        KeptRecords {
            generation: self.told.generation,
            revision: self.told.revision,
            whole: self.told.whole,
            dropped: self.told.dropped.iter().copied().collect(),
            records: self.records.iter().map(|(key, text)| (key.clone(), RecordText(text.clone()))).collect(),
            seen: self.promised.iter().map(|(id, epoch)| (*id, *epoch)).collect(),
            ..KeptRecords::default()
        }
    }

    /// Hands changes over; gives the number of the write, if there is one.
    fn keep(&mut self, changes: Vec<Change>) -> Option<u64> {
        (!changes.is_empty()).then(|| self.keeper.give(changes))
    }

    /// What another replica of this partition passes on; of another partition it says nothing.
    fn of_peers(&mut self, partition: PartitionId, text: &RecordText) -> Vec<Change> {
        match text.read::<PartitionRecord>() {
            Ok(record) if record.id == partition => self.of_partition(text),
            _ => Vec::new(),
        }
    }

    /// A partition's record, if it is newer than the one that is kept.
    fn of_partition(&mut self, text: &RecordText) -> Vec<Change> {
        let mut changes = Vec::new();
        self.note_partition(text, &mut changes);
        changes
    }

    fn note_partition(&mut self, text: &RecordText, changes: &mut Vec<Change>) {
        // What cannot be read, or is no sound record, is not acted upon either.
        let Ok(record) = text.read::<PartitionRecord>() else { return };
        if record.validate().is_err() {
            return;
        }
        if self.epochs.get(&record.id).is_some_and(|(known, _)| *known >= record.epoch) {
            return;
        }
        self.epochs.insert(record.id, (record.epoch, record.table));
        self.put(format!("partition/{}", record.id.0), &text.0, changes);
    }

    fn put(&mut self, key: String, text: &str, changes: &mut Vec<Change>) {
        if self.records.get(&key).map(String::as_str) != Some(text) {
            self.records.insert(key.clone(), text.to_owned());
            changes.push((key, Some(text.as_bytes().to_vec())));
        }
    }

    fn remove(&mut self, key: &str, changes: &mut Vec<Change>) {
        if self.records.remove(key).is_some() {
            changes.push((key.to_owned(), None));
        }
        if let Some(id) = partition_key(key) {
            self.epochs.remove(&id);
        }
    }

    /// What a cluster map says that is news.
    fn of_map(&mut self, map: &ClusterMap) -> Vec<Change> {
        let mut changes = Vec::new();
        for text in &map.partitions {
            self.note_partition(text, &mut changes);
        }
        let before = self.told.clone();
        let cluster = map.cluster.as_ref().and_then(|text| text.read::<ClusterRecord>().ok());
        let generation = cluster.map_or(self.told.generation, |cluster| cluster.generation);
        if generation > self.told.generation {
            // Another metastore counts from somewhere else.
            self.told = Told { generation, dropped: before.dropped.clone(), ..Told::default() };
        }
        if generation < self.told.generation || map.revision < self.told.revision {
            return changes;
        }
        self.told.revision = map.revision;
        let mut named: BTreeSet<String> = BTreeSet::new();
        let mut readable = true;
        if let Some(text) = &map.cluster {
            self.put("cluster".into(), &text.0, &mut changes);
        }
        for text in &map.nodes {
            match text.read::<NodeRecord>() {
                Ok(record) => drop(named.insert(format!("node/{}", record.id.0))),
                Err(_) => readable = false,
            }
            text.read::<NodeRecord>().iter().for_each(|record| {
                self.put(format!("node/{}", record.id.0), &text.0, &mut changes);
            });
        }
        for text in &map.tables {
            match text.read::<TableRecord>() {
                Ok(record) => {
                    let key = format!("table/{}", record.id.0);
                    self.put(key.clone(), &text.0, &mut changes);
                    named.insert(key);
                }
                Err(_) => readable = false,
            }
        }
        map.dropped.iter().for_each(|id| self.drop_table(TableId(*id), &mut changes));
        if map.whole && readable {
            self.forget_unnamed(&named, &mut changes);
            self.told.whole = Some(map.revision);
        }
        if self.told != before {
            let text = serde_json::to_vec(&self.told).expect("plain fields");
            changes.push((TOLD.into(), Some(text)));
        }
        changes
    }

    /// A whole cluster map does not name it.
    fn forget_unnamed(&mut self, named: &BTreeSet<String>, changes: &mut Vec<Change>) {
        let gone =
            |key: &&String| (key.starts_with("node/") || key.starts_with("table/")) && !named.contains(*key);
        let gone: Vec<String> = self.records.keys().filter(gone).cloned().collect();
        for key in gone {
            match key.strip_prefix("table/").and_then(|id| id.parse().ok()) {
                Some(id) => self.drop_table(TableId(id), changes),
                None => self.remove(&key, changes),
            }
        }
    }

    fn drop_table(&mut self, table: TableId, changes: &mut Vec<Change>) {
        self.told.dropped.insert(table);
        self.remove(&format!("table/{}", table.0), changes);
        let of_table = self.epochs.iter().filter(|(_, (_, of))| *of == table);
        let partitions: Vec<PartitionId> = of_table.map(|(id, _)| *id).collect();
        partitions.iter().for_each(|id| self.remove(&format!("partition/{}", id.0), changes));
    }
}

fn partition_key(key: &str) -> Option<PartitionId> {
    key.strip_prefix("partition/").and_then(|id| id.parse().ok()).map(PartitionId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token, Waker};
    use std::sync::Arc;
    use std::time::Duration;
    use types::config::FORMAT;
    use types::{ClusterId, LogKind, Member, Policy};
    use wire::control::Proposed;

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
        fn next(&mut self, records: &mut Records) -> Held {
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
        assert!(matches!(disk.next(&mut records), Held::Controller(1, Message::ClusterMap(_))));
        assert!(matches!(disk.next(&mut records), Held::Controller(1, Message::Proposed(_))));
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
}

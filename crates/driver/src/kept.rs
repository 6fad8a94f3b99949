//! What a node keeps of the cluster's records (PR-107): which of what it is told is news, and what it tells
//! when the records are made anew. Whoever has this sees to it that changes are durable before they are acted
//! on.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use types::{
    ClusterRecord, Epoch, Generation, NodeId, NodeRecord, PartitionId, PartitionRecord, RemovedDirectories,
    Rules, StoreId, TableId, TableRecord,
};
use wire::control::ClusterMap;
use wire::peer::Refusal;
use wire::{KeptRecords, Message, PeerMessage, RecordText};

/// A key's new bytes; none: it is removed.
pub type Change = (String, Option<Vec<u8>>);

/// Up to when a node was told what it keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct KeptRevision {
    generation: Generation,
    revision: u64,
    /// The newest revision at which it was told everything.
    whole: Option<u64>,
    dropped: BTreeSet<TableId>,
    /// Nodes that it was told are gone, and their disks.
    #[serde(default)]
    removed: BTreeMap<NodeId, RemovedDirectories>,
}

impl KeptRevision {
    /// This node is there, on this disk.
    fn is_there(&mut self, node: &NodeRecord) {
        if let Some(removed) = self.removed.get_mut(&node.id) {
            removed.take(node.store);
        }
        self.removed.retain(|_, removed| !removed.is_empty());
    }
}

/// True if a node that listens to controllers of `known` listens to one of `theirs` (PR-107): one of before
/// the records were made anew is refused, whatever it has written since.
pub fn listens_to(rules: Rules, known: Generation, theirs: Generation) -> bool {
    theirs >= known || !rules.older_generations_are_refused()
}

/// True if a message of another replica may bring records ([`Kept::of_peer`]).
pub fn brings_records(message: &PeerMessage) -> bool {
    match message {
        PeerMessage::Inform(_) => true,
        PeerMessage::AppendRefused(refused) => matches!(refused.why, Refusal::OldEpoch(_)),
        _ => false,
    }
}

/// The key of [`KeptRevision`], beside those that the metastore has.
const KEPT_REVISION: &str = "told";

/// The records that a node keeps.
#[derive(Debug, Default)]
pub struct Kept {
    /// What is kept, or on its way to the disk: a record under each of the metastore's keys.
    records: BTreeMap<String, String>,
    told: KeptRevision,
    /// The epochs of the partitions' records, and the tables.
    epochs: BTreeMap<PartitionId, (Epoch, TableId)>,
}

impl Kept {
    /// What was kept under each key.
    pub fn read(kept: BTreeMap<String, Vec<u8>>) -> Kept {
        let text = |(key, bytes): (String, Vec<u8>)| (key, String::from_utf8_lossy(&bytes).into_owned());
        let mut records: BTreeMap<String, String> = kept.into_iter().map(text).collect();
        let told = records
            .remove(KEPT_REVISION)
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let epoch = |(key, text): (&String, &String)| {
            let record: PartitionRecord = partition_key(key).and_then(|_| serde_json::from_str(text).ok())?;
            Some((record.id, (record.epoch, record.table)))
        };
        let epochs = records.iter().filter_map(epoch).collect();
        Kept { records, told, epochs }
    }

    /// Takes what a controller says. Gives what of it is news.
    pub fn of_controller(&mut self, message: &Message) -> Vec<Change> {
        match message {
            Message::ClusterMap(map) => self.of_map(map),
            Message::Proposed(proposed) => self.of_partition(&proposed.record),
            _ => Vec::new(),
        }
    }

    /// Takes what another replica passes on. None: that brings no records.
    pub fn of_peer(&mut self, message: &PeerMessage) -> Option<Vec<Change>> {
        match message {
            PeerMessage::Inform(inform) => Some(self.of_peers(inform.partition, &inform.record)),
            PeerMessage::AppendRefused(refused) => match &refused.why {
                Refusal::OldEpoch(text) => Some(self.of_peers(refused.partition, &RecordText(text.clone()))),
                _ => None,
            },
            _ => None,
        }
    }

    /// The newest epoch of which it keeps a partition's record.
    pub fn epochs(&self) -> impl Iterator<Item = (PartitionId, Epoch)> + '_ {
        self.epochs.iter().map(|(id, (epoch, _))| (*id, *epoch))
    }

    /// All that is kept. What only the node knows (who it is, its cluster, epochs in its logs) is left out.
    pub fn report(&self) -> KeptRecords {
        KeptRecords {
            generation: self.told.generation,
            revision: self.told.revision,
            whole: self.told.whole,
            dropped: self.told.dropped.iter().copied().collect(),
            removed: self.removed().collect(),
            records: self.records.iter().map(|(key, text)| (key.clone(), RecordText(text.clone()))).collect(),
            ..KeptRecords::default()
        }
    }

    /// Nodes that it was told are gone, with each disk that they had.
    fn removed(&self) -> impl Iterator<Item = (NodeId, StoreId)> + '_ {
        self.told.removed.iter().flat_map(|(node, all)| all.iter().map(|store| (*node, store)))
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
            let KeptRevision { dropped, removed, .. } = before.clone();
            self.told = KeptRevision { generation, dropped, removed, ..KeptRevision::default() };
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
                Ok(record) => {
                    let key = format!("node/{}", record.id.0);
                    self.put(key.clone(), &text.0, &mut changes);
                    named.insert(key);
                    // It is there with that disk: a map of other controllers did not have it yet (PR-211).
                    self.told.is_there(&record);
                }
                Err(_) => readable = false,
            }
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
            changes.push((KEPT_REVISION.into(), Some(text)));
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
                None => self.remove_node(&key, changes),
            }
        }
    }

    fn remove_node(&mut self, key: &str, changes: &mut Vec<Change>) {
        let known = self.records.get(key).and_then(|text| serde_json::from_str::<NodeRecord>(text).ok());
        if let Some(known) = known {
            let removed = self.told.removed.entry(known.id).or_default();
            known.directories().for_each(|store| removed.add(store));
        }
        self.remove(key, changes);
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
    use types::Member;
    use wire::peer::{AppendRefused, Inform};

    #[test]
    fn pr397_what_brings_records_is_known_before_they_are_read() {
        let (partition, epoch, from) = (PartitionId(64), Epoch(1), Member::default());
        let refused =
            |why| PeerMessage::AppendRefused(AppendRefused { partition, epoch, from, number: 1, why });
        let messages = [
            PeerMessage::Inform(Inform { partition, record: RecordText("nonsense".into()) }),
            refused(Refusal::OldEpoch("nonsense".into())),
            refused(Refusal::Busy),
            refused(Refusal::NotMine),
        ];
        let brings: Vec<bool> = messages.iter().map(brings_records).collect();
        assert_eq!(brings, [true, true, false, false]);
        let mut kept = Kept::default();
        let brought: Vec<bool> = messages.iter().map(|message| kept.of_peer(message).is_some()).collect();
        assert_eq!(brought, brings);
    }
}

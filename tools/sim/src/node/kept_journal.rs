//! What a machine keeps of the cluster's records (PR-107), with the journal in which it lies on a real node's
//! disk: a file that can lose its end.

use crate::random::Stream;
use driver::Kept;
use driver::kept::Change;
use metastore::embedded::journal::{self, Record};
use metastore::table::Table;
use std::collections::BTreeMap;
use types::{Epoch, PartitionId};
use wire::{KeptRecords, Message, PeerMessage};

/// The records that are kept, and all that was written to keep them. Whatever is written is durable at once.
#[derive(Debug, Default)]
pub struct KeptJournal {
    kept: Kept,
    /// The keys that were written together, with their new bytes.
    batches: Vec<BTreeMap<String, Option<Vec<u8>>>>,
}

impl KeptJournal {
    /// As of [`Kept`]; what is news is written.
    pub fn of_controller(&mut self, message: &Message) -> Vec<Change> {
        let news = self.kept.of_controller(message);
        self.write(&news);
        news
    }

    /// As of [`Kept`]; what is news is written.
    pub fn of_peer(&mut self, message: &PeerMessage) -> Option<Vec<Change>> {
        let news = self.kept.of_peer(message)?;
        self.write(&news);
        Some(news)
    }

    /// As of [`Kept`].
    pub fn epochs(&self) -> impl Iterator<Item = (PartitionId, Epoch)> + '_ {
        self.kept.epochs()
    }

    /// As of [`Kept`].
    pub fn report(&self) -> KeptRecords {
        self.kept.report()
    }

    /// The journal loses its end, at any byte, and the next process reads what is left; it knows nothing if
    /// that is damaged. False if it is. The error says what is wrong with what was read.
    pub fn cut(&mut self, random: &mut Stream) -> Result<bool, String> {
        let bytes = self.bytes();
        let at = random.below(bytes.len() as u64) as usize;
        let Ok(found) = journal::replay(&bytes[..at]).map(|found| found.table.snapshot("")) else {
            *self = KeptJournal::default();
            return Ok(false);
        };
        self.batches.truncate((found.revision - Table::new().revision()) as usize);
        let read: BTreeMap<String, Vec<u8>> =
            found.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        if read != self.written() {
            return Err(format!("a journal of records that was cut at byte {at} has what was never there"));
        }
        self.kept = Kept::read(read);
        Ok(true)
    }

    fn write(&mut self, news: &[Change]) {
        if !news.is_empty() {
            self.batches.push(news.iter().cloned().collect());
        }
    }

    /// What all batches come to.
    fn written(&self) -> BTreeMap<String, Vec<u8>> {
        let mut written = BTreeMap::new();
        for (key, value) in self.batches.iter().flatten() {
            match value {
                Some(value) => drop(written.insert(key.clone(), value.clone())),
                None => drop(written.remove(key)),
            }
        }
        written
    }

    /// The journal as a node writes it: a transaction for each batch.
    fn bytes(&self) -> Vec<u8> {
        let empty = Table::new();
        let mut bytes = journal::fresh(&empty);
        for (revision, batch) in (empty.revision() + 1..).zip(&self.batches) {
            let puts = batch.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
            let deletes = batch.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.clone());
            let record = Record::Txn { revision, puts: puts.collect(), deletes: deletes.collect() };
            bytes.extend(record.encode());
            bytes.extend(Record::Synced { revision }.encode());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Concern;
    use std::collections::BTreeSet;

    #[test]
    fn a_journal_that_is_cut_is_damaged_or_has_what_was_there_once() {
        let put = |key: &str, value: &str| (key.to_string(), Some(value.as_bytes().to_vec()));
        let mut left = BTreeSet::new();
        for seed in 0..200 {
            let mut journal = KeptJournal::default();
            journal.write(&[put("node/1", "there"), put("table/1", "first")]);
            journal.write(&[]);
            journal.write(&[put("table/1", "second"), ("node/1".into(), None)]);
            journal.write(&[put("table/2", "third")]);
            let mut random = Stream::new(seed, Concern::FileFaults, 1);
            let readable = journal.cut(&mut random).expect("it is one or the other");
            left.insert((readable, journal.report().records.len()));
            assert_eq!(journal.written().len(), journal.report().records.len());
        }
        // Damaged; nothing yet; one batch; two, of which the second one removes a key; or all three.
        let expected = [(false, 0), (true, 0), (true, 1), (true, 2)];
        assert!(left.is_subset(&BTreeSet::from(expected)) && left.contains(&(false, 0)), "{left:?}");
        assert!(left.contains(&(true, 1)) && left.contains(&(true, 2)), "{left:?}");
    }
}

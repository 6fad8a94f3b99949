//! Data directories on which a node ran before: a copy of one of them is not the node (PR-145, PR-210,
//! PR-280).

use crate::config::NodeRecord;
use crate::ids::StoreId;
use serde::{Deserialize, Serialize};

/// A field of a node's record that older versions do not know: the directories on which it ran before,
/// oldest first, each with the number of the newest life there (PR-210).
const FORMER: &str = "former";

/// So many of them are remembered.
const MOST_FORMER: usize = 16;

/// So many directories of nodes that had one number and were removed are remembered.
const MOST_REMOVED: usize = 256;

impl NodeRecord {
    /// The directories on which the node ran before, oldest first, each with the number of its newest life.
    pub fn former(&self) -> Vec<(StoreId, u64)> {
        let value = self.unknown.get(FORMER).cloned().unwrap_or_default();
        serde_json::from_value(value).unwrap_or_default()
    }

    /// This record takes the place of `known`: what is remembered of other directories than its own.
    pub fn remember_former(&mut self, known: &NodeRecord) {
        if known.store == self.store {
            return;
        }
        let mut all = known.former();
        all.retain(|(store, _)| *store != self.store && *store != known.store);
        if known.start != 0 {
            all.push((known.store, known.start));
        }
        let excess = all.len().saturating_sub(MOST_FORMER);
        all.drain(..excess);
        let value = serde_json::to_value(&all).expect("pairs of numbers");
        match all.is_empty() {
            true => drop(self.unknown.remove(FORMER)),
            false => drop(self.unknown.insert(FORMER.into(), value)),
        }
    }

    /// All directories on which the node ran, as far as they are remembered; its present one is the last.
    pub fn directories(&self) -> impl Iterator<Item = StoreId> {
        self.former().into_iter().map(|(store, _)| store).chain([self.store])
    }
}

/// The data directories of the nodes of one number that were removed: none of them is let in again (PR-280).
/// As JSON, one is a number and several are a list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct RemovedDirectories(Vec<StoreId>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    One(StoreId),
    Several(Vec<StoreId>),
}

impl From<Written> for RemovedDirectories {
    fn from(written: Written) -> RemovedDirectories {
        match written {
            Written::One(store) => RemovedDirectories(vec![store]),
            Written::Several(stores) => RemovedDirectories(stores),
        }
    }
}

impl From<RemovedDirectories> for Written {
    fn from(RemovedDirectories(stores): RemovedDirectories) -> Written {
        match stores[..] {
            [store] => Written::One(store),
            _ => Written::Several(stores),
        }
    }
}

impl RemovedDirectories {
    /// One more; it is the last one then.
    pub fn add(&mut self, store: StoreId) {
        self.0.retain(|other| *other != store);
        self.0.push(store);
        let excess = self.0.len().saturating_sub(MOST_REMOVED);
        self.0.drain(..excess);
    }

    /// This one was not removed.
    pub fn take(&mut self, store: StoreId) {
        self.0.retain(|other| *other != store);
    }

    /// True if this is one of them.
    pub fn has(&self, store: StoreId) -> bool {
        self.0.contains(&store)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them; the one that was removed last is the last.
    pub fn iter(&self) -> impl Iterator<Item = StoreId> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pr280_one_directory_is_written_as_before() {
        let mut removed = RemovedDirectories::default();
        for (store, text) in [(7, "7"), (9, "[7,9]"), (7, "[9,7]")] {
            removed.add(StoreId(store));
            assert_eq!(serde_json::to_string(&removed).expect("numbers"), text);
            assert_eq!(serde_json::from_str::<RemovedDirectories>(text).expect("it is one"), removed);
        }
        removed.take(StoreId(9));
        assert!(removed.has(StoreId(7)) && !removed.has(StoreId(9)) && !removed.is_empty());
        assert_eq!(removed.iter().collect::<Vec<_>>(), [StoreId(7)]);
        (0..1000).for_each(|store| removed.add(StoreId(store)));
        assert_eq!(removed.iter().count(), MOST_REMOVED);
        assert!(removed.has(StoreId(999)) && !removed.has(StoreId(700)));
    }
}

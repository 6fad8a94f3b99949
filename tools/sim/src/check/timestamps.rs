//! PR-363, PR-250: a timestamp is that of one commit, and names the entry that has it. What the manager's log
//! has lost with a promotion may be in partitions: if its timestamp were given again, they would take the new
//! commit for the one that they have. What is compared is every log that there ever was: of the manager, what
//! has which timestamp, and of partitions, what they store under it.

use super::lineage::{self, Commit, Transactional};
use crate::rows::{self, LETTERS, NOTES, PEOPLE, TABLE};
use std::collections::BTreeMap;
use types::commits::{decode_timestamp, newest_flush_key};
use types::{KeySpace, Mutation, Position};
use wire::{Effects, Entry};

/// Which commits have which timestamps.
#[derive(Debug, Default)]
pub struct Timestamps {
    given: BTreeMap<Position, Commit>,
    /// Commits that do not name their own entries, in sentences.
    misnamed: Vec<String>,
}

/// The row that a change of a partition makes or removes, if clients of global transactions read it.
fn row(change: &Mutation) -> Option<(String, Option<u64>)> {
    let tables = [TABLE, PEOPLE, LETTERS, NOTES];
    let table = tables.into_iter().find(|table| KeySpace::Table(*table).has(&change.key))?;
    let name = rows::name_of(&KeySpace::Table(table).key_of(&change.key));
    Some((name, change.value.as_ref().map(|value| rows::table_value(value))))
}

impl Timestamps {
    /// Takes note of an entry of any log, once. The error is a sentence.
    pub fn add(&mut self, transactional: &Transactional, entry: &Entry) -> Result<(), String> {
        let partition = entry.header().partition;
        if transactional.manager == Some(partition) {
            // What cannot be read is told by others.
            let commits = lineage::commits(entry).unwrap_or_default();
            return commits.into_iter().try_for_each(|(stamp, written)| {
                let mut rows: Commit = written.into_iter().map(|(name, value, _)| (name, value)).collect();
                rows.sort();
                self.give(entry.at(), (stamp, rows))
            });
        }
        if !transactional.written.contains(&partition) {
            return Ok(());
        }
        let effects = entry.effects().and_then(|effects| Effects::decode(effects).ok());
        self.compare(entry, &effects.map_or(Vec::new(), |effects| effects.mutations))
    }

    /// Takes a commit of the manager's log in. One that an operator has follow another one in a partition is
    /// written again, as it was.
    fn give(&mut self, at: Position, (stamp, rows): (Position, Commit)) -> Result<(), String> {
        match self.given.get(&stamp) {
            Some(before) if *before != rows => {
                return Err(format!("{at} has a commit with the timestamp of another one, {stamp}"));
            }
            None if stamp != at => {
                self.misnamed.push(format!("{at} has a commit that calls itself {stamp}"));
            }
            _ => {}
        }
        self.given.insert(stamp, rows);
        Ok(())
    }

    /// What an entry of a partition stores under a timestamp is of the commit that has it.
    fn compare(&self, entry: &Entry, changes: &[Mutation]) -> Result<(), String> {
        let newest = changes.iter().find(|change| change.key == newest_flush_key());
        let stamp = newest.and_then(|newest| decode_timestamp(newest.value.as_ref()?));
        let Some(stamp) = stamp else { return Ok(()) };
        let commit = self.given.get(&stamp);
        let is_of_it = |row: &(String, Option<u64>)| commit.is_some_and(|commit| commit.contains(row));
        match changes.iter().filter_map(row).find(|row| !is_of_it(row)) {
            Some((name, value)) => {
                let (partition, at) = (entry.header().partition, entry.at());
                Err(format!("{partition} stores {name} as {value:?} of {stamp} at {at}: it has {commit:?}"))
            }
            None => Ok(()),
        }
    }

    /// The first commit that does not name its own entry, in a sentence.
    pub fn misnamed(&self) -> Option<&String> {
        self.misnamed.first()
    }
}

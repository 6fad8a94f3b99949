//! I3, R3: one content per (epoch, LSN), and every entry follows the one whose checksum it names. Keeps all
//! entries that were ever made, so that other checkers can ask what a log that ends in one of them holds.

use crate::check::catalog::{CatalogChange, Table, is_reserved};
use crate::programs;
use crate::rows;
use bytes::Bytes;
use std::collections::BTreeMap;
use types::engine::space;
use types::{KeySpace, LoadId, Lsn, PartitionId, Position, SessionId, TableId, Term};
use wire::bulk::LoadMark;
use wire::entry::Kind;
use wire::{Effects, Entry};

/// A change of a user's row in an entry.
pub type Change = (String, Option<u64>);

/// What one commit of the manager's log writes: keys and values.
pub type Commit = Vec<(String, Option<u64>)>;

/// The partition of the transaction manager, and those under it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transactional {
    /// The manager's.
    pub manager: Option<PartitionId>,
    /// Those that its commits write.
    pub written: Vec<PartitionId>,
}

impl Transactional {
    /// True if a partition has a part in global transactions.
    pub fn has(&self, partition: PartitionId) -> bool {
        self.manager == Some(partition) || self.written.contains(&partition)
    }
}

/// An entry that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Where.
    pub at: Position,
    /// Its checksum.
    pub crc: u32,
    /// The checksum of the entry before.
    pub prev_crc: u32,
    /// True if a client wrote with it, and did not only open a session: such entries are what a tail counts.
    pub is_write: bool,
    /// The session and number that asked for it.
    pub session: Option<(SessionId, u64)>,
    /// What it changes.
    pub changes: Vec<Change>,
    /// Marks of feeds: which, and how far.
    pub marks: Vec<(u64, u64)>,
    /// What becomes of a database's tables.
    pub tables: Vec<CatalogChange>,
    /// What the commit of a global transaction writes, by key.
    pub commits: Commit,
    /// What becomes of the rows that procedures are about.
    pub counters: Vec<(i64, Option<i64>)>,
}

/// Every entry of every partition.
#[derive(Debug, Default)]
pub struct Lineage {
    entries: BTreeMap<(PartitionId, Lsn), Vec<Known>>,
    /// What bulk loads change.
    loads: BTreeMap<LoadId, Vec<Change>>,
    /// The partitions of the database, if there is one: the first one first.
    databases: Vec<PartitionId>,
    transactional: Transactional,
    /// In which partition each key lies that global transactions have written.
    places: BTreeMap<String, PartitionId>,
}

impl Lineage {
    /// These partitions have a part in global transactions.
    pub fn will_have_transactions(&mut self, transactional: Transactional) {
        self.transactional = transactional;
    }

    /// The partitions that have a part in global transactions.
    pub fn transactional(&self) -> &Transactional {
        &self.transactional
    }

    /// In which partition each key lies that global transactions have written.
    pub fn places(&self) -> &BTreeMap<String, PartitionId> {
        &self.places
    }

    /// A client will load this.
    pub fn will_load(&mut self, load: LoadId, changes: Vec<Change>) {
        self.loads.insert(load, changes);
    }

    /// A partition is a database's.
    pub fn will_have_tables(&mut self, partition: PartitionId) {
        self.databases.push(partition);
    }

    /// True if a partition is a database's.
    pub fn has_tables(&self, partition: PartitionId) -> bool {
        self.databases.contains(&partition)
    }

    /// The partitions of the database: the first one first.
    pub fn databases(&self) -> &[PartitionId] {
        &self.databases
    }

    fn changes(&self, entry: &Entry) -> Vec<Change> {
        if entry.header().kind == Kind::Bulk {
            let mark = LoadMark::decode(entry.payload()).ok();
            return mark.and_then(|mark| self.loads.get(&mark.load)).cloned().unwrap_or_default();
        }
        // What commits write in partitions is compared by what clients read, and their own log.
        if self.transactional.has(entry.header().partition) {
            return Vec::new();
        }
        changes(entry, self.has_tables(entry.header().partition))
    }

    /// What the commit of a global transaction writes, and where. Whether it names its own entry is looked at
    /// by `timestamps`. The error is a sentence.
    fn commits(&self, entry: &Entry) -> Result<(Commit, Located), String> {
        let (mut commit, mut places) = (Commit::new(), Located::new());
        for (_, own) in commits(entry)?.into_iter().filter(|(at, _)| *at == entry.at()) {
            commit.extend(own.iter().map(|(name, value, _)| (name.clone(), *value)));
            places.extend(own.into_iter().map(|(name, _, partition)| (name, partition)));
        }
        commit.sort();
        Ok((commit, places))
    }

    /// Takes note of an entry. The error is a sentence.
    pub fn add(&mut self, entry: &Entry) -> Result<(), String> {
        let header = entry.header();
        let (changes, marks) = (self.changes(entry), marks(entry));
        let tables = if self.has_tables(header.partition) { tables(entry)? } else { Vec::new() };
        let (commits, places) = match self.transactional.manager == Some(header.partition) {
            true => self.commits(entry)?,
            false => (Commit::new(), Located::new()),
        };
        self.places.extend(places);
        let same = self.entries.entry((header.partition, header.at.lsn)).or_default();
        if let Some(known) = same.iter().find(|known| known.at == header.at) {
            if known.crc != entry.crc() {
                return Err(format!(
                    "{} {} has checksum {:08x} here and {:08x} there",
                    header.partition,
                    header.at,
                    entry.crc(),
                    known.crc
                ));
            }
            return Ok(());
        }
        let session = header.session.is_some().then_some((header.session, header.seq));
        let known = Known {
            at: header.at,
            crc: entry.crc(),
            prev_crc: header.prev_crc,
            is_write: matches!(header.kind, Kind::Rows | Kind::Call | Kind::Bulk),
            session,
            changes,
            marks,
            tables,
            commits,
            counters: counters(entry),
        };
        same.push(known);
        let (partition, before) = (header.partition, header.at.lsn.prev());
        let follows = header.at.lsn == Lsn(1)
            || self
                .entries
                .get(&(partition, before))
                .is_some_and(|before| before.iter().any(|known| known.crc == header.prev_crc));
        if follows {
            Ok(())
        } else {
            Err(format!("{partition} {} follows an entry that was never made", header.at))
        }
    }

    /// The entry at a position.
    pub fn get(&self, partition: PartitionId, at: Position) -> Option<&Known> {
        self.entries.get(&(partition, at.lsn))?.iter().find(|known| known.at == at)
    }

    /// Every entry that was ever made of a partition.
    pub fn all(&self, partition: PartitionId) -> impl Iterator<Item = &Known> {
        self.entries.range((partition, Lsn::ZERO)..=(partition, Lsn::MAX)).flat_map(|(_, same)| same)
    }

    /// The newest entry that was ever made in each term.
    pub fn tips(&self, partition: PartitionId) -> BTreeMap<Term, Position> {
        // By LSN: the last one of a term is its newest.
        self.all(partition).map(|known| (known.at.term, known.at)).collect()
    }

    /// The log that ends with this entry, newest first.
    pub fn line(&self, partition: PartitionId, tip: Position) -> impl Iterator<Item = &Known> {
        let mut next = self.get(partition, tip);
        std::iter::from_fn(move || {
            let known = next?;
            let before = self.entries.get(&(partition, known.at.lsn.prev()));
            next = before.and_then(|before| before.iter().find(|other| other.crc == known.prev_crc));
            Some(known)
        })
    }

    /// True if the log that ends at `tip` has the entry at `at`.
    pub fn has(&self, partition: PartitionId, tip: Position, at: Position) -> bool {
        tip == at
            || tip.lsn > at.lsn
                && self
                    .line(partition, tip)
                    .take_while(|known| known.at.lsn >= at.lsn)
                    .any(|known| known.at == at)
    }
}

/// What an entry changes, where it may: one that removes a dropped table's rows is of another kind.
fn effects(entry: &Entry, of_database: bool) -> Option<Effects> {
    let own = of_database && entry.header().kind == Kind::Schema;
    let effects = entry.effects().or_else(|| own.then(|| entry.payload()));
    effects.and_then(|effects| Effects::decode(effects).ok())
}

/// What an entry does to the rows that procedures are about.
fn counters(entry: &Entry) -> Vec<(i64, Option<i64>)> {
    let mutations = effects(entry, false).map_or(Vec::new(), |effects| effects.mutations);
    mutations.iter().filter_map(|one| programs::counter(&one.key, one.value.as_deref())).collect()
}

/// True for what is about a procedure, or the table of procedures: it has a checker of its own.
fn of_procedures(stored: &Bytes) -> bool {
    KeySpace::table_of(stored).is_some_and(programs::is_reserved)
}

fn changes(entry: &Entry, of_database: bool) -> Vec<Change> {
    let Some(effects) = effects(entry, of_database) else { return Vec::new() };
    let user = |mutation: &&types::Mutation| {
        mutation.key[0] == space::ROW && !(of_database && of_procedures(&mutation.key))
    };
    let user = effects.mutations.iter().filter(user);
    let change =
        |mutation: &types::Mutation| rows::stored(of_database, &mutation.key, mutation.value.as_deref());
    user.map(change).collect()
}

/// What an entry of a database's partition does to its catalog. The error is a sentence.
fn tables(entry: &Entry) -> Result<Vec<CatalogChange>, String> {
    let Some(effects) = effects(entry, true) else { return Ok(Vec::new()) };
    let of_catalog = effects.mutations.iter().filter(|mutation| KeySpace::Catalog.has(&mutation.key));
    let of_catalog = of_catalog.filter(|mutation| !is_reserved(&KeySpace::Catalog.key_of(&mutation.key)));
    let change = |mutation: &types::Mutation| {
        let key = KeySpace::Catalog.key_of(&mutation.key);
        let table = mutation.value.as_ref().map(|value| Table::read(&key, value)).transpose()?;
        let id = key[..].try_into().map(u32::from_be_bytes);
        let id = id.map_err(|_| format!("{} has a table without an id", entry.at()))?;
        Ok((TableId(id), table))
    };
    of_catalog.map(change).collect()
}

/// Keys, and where they lie.
type Located = Vec<(String, PartitionId)>;

/// A row that a commit writes: its key, its value, and where it lies.
pub(super) type Written = (String, Option<u64>, PartitionId);

/// The commits that an entry of the manager's log has, with what each writes. The error is a sentence.
pub(super) fn commits(entry: &Entry) -> Result<Vec<(Position, Vec<Written>)>, String> {
    let mut all = Vec::new();
    let Some(effects) = effects(entry, false) else { return Ok(all) };
    for (key, value) in effects.mutations.iter().filter_map(|one| Some((&one.key, one.value.as_ref()?))) {
        if !KeySpace::Bare.has(key) {
            continue;
        }
        let (at, _, write_set) = types::system::read_commit(&KeySpace::Bare.key_of(key), value)?;
        let mut rows = Vec::new();
        for writes in wire::commit::decode_write_set(&write_set)? {
            for op in writes.parts.iter().flat_map(|part| &part.ops) {
                let value = op.row().map(|row| rows::table_value(row));
                rows.push((rows::name_of(op.key()), value, writes.partition));
            }
        }
        all.push((at, rows));
    }
    Ok(all)
}

/// The marks of feeds that an entry has.
fn marks(entry: &Entry) -> Vec<(u64, u64)> {
    let Some(effects) = effects(entry, false) else { return Vec::new() };
    let number = |bytes: &[u8]| bytes.try_into().ok();
    let mark = |mutation: &types::Mutation| {
        let (space, feed) = mutation.key.split_first()?;
        let position = number(mutation.value.as_ref().filter(|_| *space == space::FEED)?)?;
        Some((u64::from_be_bytes(number(feed)?), u64::from_le_bytes(position)))
    };
    effects.mutations.iter().filter_map(mark).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use wire::Header;

    /// An entry of term 1 that changes rows, and marks of feeds.
    pub(crate) fn known(lsn: u64, changes: &[(&str, Option<u64>)], marks: &[(u64, u64)]) -> Known {
        let changes = changes.iter().map(|(key, value)| (key.to_string(), *value)).collect();
        Known {
            at: at(1, lsn),
            crc: 0,
            prev_crc: 0,
            is_write: true,
            session: None,
            changes,
            marks: marks.to_vec(),
            tables: Vec::new(),
            commits: Vec::new(),
            counters: Vec::new(),
        }
    }

    pub(crate) const P: PartitionId = PartitionId(64);

    pub(crate) fn at(epoch: u64, lsn: u64) -> Position {
        Position::new(Term(epoch), Lsn(lsn))
    }

    /// An entry that writes `value` to `key`.
    pub(crate) fn entry(at: Position, prev_crc: u32, key: &str, value: u64) -> Entry {
        let key = [&[space::ROW], key.as_bytes()].concat();
        let value = Some(Bytes::copy_from_slice(&value.to_le_bytes()));
        let mutation = types::Mutation { key: Bytes::from(key), value };
        let effects =
            Effects { request_hash: 0, confirmed: 0, outcome: 0, affected: 1, mutations: vec![mutation] };
        Entry::encode(Header::new(Kind::Rows, P, at, prev_crc), &effects.encode())
    }

    #[test]
    fn two_contents_under_one_name_are_rejected() {
        let mut lineage = Lineage::default();
        lineage.add(&entry(at(1, 1), 0, "a", 1)).expect("the first");
        lineage.add(&entry(at(1, 1), 0, "a", 1)).expect("the same again");
        assert!(lineage.add(&entry(at(1, 1), 0, "a", 2)).is_err());
    }

    #[test]
    fn an_entry_behind_nothing_is_rejected() {
        let mut lineage = Lineage::default();
        let first = entry(at(1, 1), 0, "a", 1);
        lineage.add(&first).expect("the first");
        assert!(lineage.add(&entry(at(1, 2), first.crc() ^ 1, "a", 2)).is_err());
        assert!(lineage.add(&entry(at(1, 4), first.crc(), "a", 2)).is_err());
    }

    #[test]
    fn lines_part_where_an_epoch_ended() {
        let mut lineage = Lineage::default();
        let first = entry(at(1, 1), 0, "a", 1);
        let old = entry(at(1, 2), first.crc(), "a", 2);
        let new = entry(at(2, 2), first.crc(), "a", 3);
        [&first, &old, &new].into_iter().for_each(|entry| lineage.add(entry).expect("follows"));
        assert!(lineage.has(P, at(2, 2), at(1, 1)) && lineage.has(P, at(1, 2), at(1, 2)));
        assert!(!lineage.has(P, at(2, 2), at(1, 2)) && !lineage.has(P, at(1, 1), at(1, 2)));
        let values: Vec<_> = lineage.line(P, at(2, 2)).map(|known| known.changes[0].1).collect();
        assert_eq!(values, [Some(3), Some(1)]);
        assert_eq!(lineage.tips(P), [(Term(1), at(1, 2)), (Term(2), at(2, 2))].into());
        assert_eq!(lineage.tips(PartitionId(65)), BTreeMap::new());
    }
}

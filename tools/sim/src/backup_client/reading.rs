//! A point that is being read: the catalog of the database there, if there is one, then the rows of every
//! table, page by page.

use super::{Purpose, ROWS};
use crate::check::backups::Backup;
use crate::check::catalog::{Table, is_reserved};
use crate::rows;
use ::client::{Answer, Call};
use replica::SnapshotPages;
use std::collections::BTreeSet;
use types::{PartitionId, Rules, TableId};
use wire::request::ReadSnapshot;
use wire::{Body, Op};

/// Definitions of the page that a catalog is read with: more than any has here.
const DEFINITIONS: u32 = 1_000;

/// What is asked of a partition under one name: the rows of a table there, or of a database its catalog.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub partition: PartitionId,
    pub table: TableId,
    /// The version of its columns; 0: it is a database.
    pub version: u32,
}

impl Source {
    pub fn is_database(&self) -> bool {
        self.version == 0
    }

    pub fn call(&self, op: Op) -> Call {
        Call::new(self.table, self.version, self.partition, op)
    }
}

/// A reading under way.
pub(super) struct Reading {
    rules: Rules,
    backup: Backup,
    /// The database whose catalog is not asked for yet.
    catalog: Option<Source>,
    sources: Vec<Source>,
    /// None until the catalog is there.
    pages: Option<SnapshotPages>,
    /// When states were asked to be kept last, virtual microseconds.
    pub kept_at: u64,
}

impl Reading {
    /// Of a backup without rows, from all these.
    pub fn new(now: u64, backup: Backup, all: impl Iterator<Item = Source>, rules: Rules) -> Reading {
        let (databases, sources): (Vec<_>, Vec<_>) = all.partition(Source::is_database);
        let catalog = databases.first().copied();
        let mut reading = Reading { rules, backup, catalog, sources, pages: None, kept_at: now };
        if catalog.is_none() {
            reading.begin_pages();
        }
        reading
    }

    fn begin_pages(&mut self) {
        let stream = |source: &Source| (source.partition, self.backup.at[&source.partition]);
        self.pages = Some(SnapshotPages::new(self.sources.iter().map(stream).collect(), ROWS, self.rules));
    }

    /// What is to be asked next, of which source, and what for.
    pub fn next_ask(&mut self) -> Option<(Source, Op, Purpose)> {
        if let Some(database) = self.catalog.take() {
            let at = ReadSnapshot::At(self.backup.at[&database.partition]);
            let op = Op::Scan { from: "".into(), to: "".into(), limit: DEFINITIONS, at };
            return Some((database, op, Purpose::Catalog(database.partition)));
        }
        let (stream, op) = self.pages.as_mut()?.next_ask()?;
        Some((self.sources[stream], op, Purpose::Page(stream)))
    }

    /// The catalog came: what has a name is read. The error is a sentence.
    pub fn catalog_came(&mut self, partition: PartitionId, answer: &Answer) -> Result<(), String> {
        let Body::Rows { rows, more: false } = &answer.body else {
            return Err(format!("a catalog was asked for, and {:?} came", answer.body));
        };
        for (key, _, value) in rows.iter().filter(|(key, ..)| !is_reserved(key)) {
            let table = Table::read(key, value)?;
            if table.standing.has_name() {
                self.sources.push(Source { partition, table: table.id, version: table.version });
                self.backup.tables.insert(table.id, (table, Vec::new()));
            }
        }
        self.begin_pages();
        Ok(())
    }

    /// A page came. The error is a sentence.
    pub fn page_came(&mut self, stream: usize, answer: Answer) -> Result<(), String> {
        let (Body::Rows { rows, more }, Some(pages)) = (answer.body, &mut self.pages) else {
            return Err("a page of a backup was answered with something else".into());
        };
        pages.heard(stream, &rows, more)?;
        let Source { partition, table, .. } = self.sources[stream];
        match self.backup.tables.get_mut(&table) {
            Some((_, found)) => found.extend(
                rows.into_iter().map(|(key, lsn, row)| (rows::name_of(&key), lsn, rows::table_value(&row))),
            ),
            None => self.backup.rows.entry(partition).or_default().extend(
                rows.into_iter().map(|(key, lsn, row)| (rows::name_of(&key), lsn, rows::value_of(&row))),
            ),
        }
        Ok(())
    }

    /// Partitions of which something is not read yet, with the positions that are needed.
    pub fn unread(&self) -> Vec<(PartitionId, types::Position)> {
        let unread: BTreeSet<PartitionId> = match &self.pages {
            Some(pages) => pages.unread(),
            None => self.backup.at.keys().copied().collect(),
        };
        unread.into_iter().map(|partition| (partition, self.backup.at[&partition])).collect()
    }

    /// The backup, if all of it is read.
    pub fn done(&self) -> Option<&Backup> {
        let done = self.pages.as_ref().is_some_and(SnapshotPages::is_done);
        done.then_some(&self.backup)
    }
}

//! A backup on its way into another table: its rows are put in batches, and what is there then is read back
//! page by page, of each partition in one state.

use super::{Purpose, ROWS};
use crate::check::backups::{Backup, Restored};
use crate::check::ranges::Shown;
use crate::rows;
use ::client::Answer;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use types::{PartitionId, Position};
use wire::request::ReadSnapshot;
use wire::{Body, Op, RowOp};

/// Rows of a batch.
const BATCH: usize = 4;
/// Batches that are on their way at once.
const WIDTH: usize = 4;

/// A restoration under way.
pub(super) struct Restoring {
    typed: bool,
    /// What names of its keys begin with, which no other one's do.
    prefix: String,
    wanted: BTreeMap<String, u64>,
    found: BTreeMap<String, u64>,
    /// Batches that are not sent.
    left: VecDeque<Vec<(String, u64)>>,
    /// Calls on their way.
    flying: usize,
    /// Which partition of the table is read back, and from where on; none: it was asked for.
    look: (usize, Option<(Bytes, Option<Position>)>),
}

impl Restoring {
    /// Of a backup, under a name that none before had.
    pub fn new(backup: &Backup, named: &str, typed: bool) -> Restoring {
        let prefix = format!("b{named}-");
        let put = |of: String, rows: &[Shown]| -> Vec<(String, u64)> {
            rows.iter().map(|(key, _, value)| (format!("{prefix}{of}-{key}"), *value)).collect()
        };
        let bare = backup.rows.iter().flat_map(|(partition, rows)| put(partition.0.to_string(), rows));
        let tables = backup.tables.values().flat_map(|(table, rows)| put(format!("t{}", table.id.0), rows));
        let wanted: Vec<(String, u64)> = bare.chain(tables).collect();
        Restoring {
            typed,
            left: wanted.chunks(BATCH).map(<[_]>::to_vec).collect(),
            wanted: wanted.into_iter().collect(),
            found: BTreeMap::new(),
            prefix,
            flying: 0,
            look: (0, Some((Bytes::new(), None))),
        }
    }

    /// What is to be asked next: of which partition of the table, by its place, and what for.
    pub fn next_ask(&mut self, partitions: usize) -> Option<(usize, Op, Purpose)> {
        if self.flying < WIDTH
            && let Some(batch) = self.left.pop_front()
        {
            self.flying += 1;
            let put = |(name, value): &(String, u64)| RowOp::Put {
                key: rows::key(name, self.typed),
                row: rows::row(name, *value, self.typed),
            };
            return Some((
                self.left.len() % partitions,
                Op::write(batch.iter().map(put).collect()),
                Purpose::Put,
            ));
        }
        if self.flying > 0 || self.look.0 == partitions {
            return None;
        }
        // Not before the last row is acknowledged.
        let (from, at) = self.look.1.take()?;
        let from = if from.is_empty() { rows::key(&self.prefix, self.typed) } else { from };
        self.flying += 1;
        let at = at.map_or(ReadSnapshot::Begin, ReadSnapshot::At);
        Some((self.look.0, Op::Scan { from, to: Bytes::new(), limit: ROWS, at }, Purpose::Look))
    }

    /// An answer came. The error is a sentence: it is none to what was asked.
    pub fn heard(&mut self, answer: &Answer) -> Result<(), String> {
        self.flying -= 1;
        match &answer.body {
            Body::Rows { rows, more } => {
                let named = rows.iter().map(|(key, _, row)| (rows::name_of(key), rows::value_of(row)));
                let ours = |(name, _): &(String, u64)| name.starts_with(&self.prefix);
                let (before, own) = (self.found.len(), named.filter(ours).collect::<Vec<_>>());
                self.found.extend(own);
                let all_ours = self.found.len() - before == rows.len();
                self.look = match rows.last().filter(|_| *more && all_ours) {
                    Some((last, ..)) => {
                        let next = [last, &[0u8][..]].concat().into();
                        (self.look.0, Some((next, Some(answer.snapshot()))))
                    }
                    None => (self.look.0 + 1, Some((Bytes::new(), None))),
                };
                Ok(())
            }
            _ if self.look.1.is_some() => Ok(()),
            other => Err(format!("a page of what was restored was answered with {other:?}")),
        }
    }

    /// What came of it, once everything is read back.
    pub fn done(&self, into: &[PartitionId]) -> Option<Restored> {
        let through = self.left.is_empty() && self.flying == 0 && self.look.0 == into.len();
        through.then(|| Restored {
            into: into.to_vec(),
            wanted: self.wanted.clone(),
            found: self.found.clone(),
        })
    }
}

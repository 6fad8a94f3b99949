//! `load` into a table that only global transactions write.
//!
//! Rows are committed in the order of the file: up to 2,000 of them, or a megabyte, in each transaction, one
//! transaction after the other. So each transaction is in or not, and behind one that is not nothing is.

use crate::failure::Failure;
use crate::load::{LoadPlan, Watcher};
use crate::reading::{LoadReport, Reading, Rows};
use bytes::Bytes;
use client::table::Table;
use client::{Client, ClientError, Database, Transaction};
use input::Record;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use types::system::COMMITS;

/// The most rows of one transaction.
pub const MOST_ROWS: usize = 2_000;
/// The most bytes of keys and rows of one transaction of several rows.
const MOST_BYTES: usize = 1 << 20;

/// Loads the rows. The file was checked before if the rule is `abort`. With `insert` a row whose key is there
/// is refused, with all of its transaction, and ends the load.
pub fn load(
    client: &mut Client,
    table: &Table,
    plan: &LoadPlan,
    insert: bool,
    watcher: &mut dyn Watcher,
) -> Result<LoadReport, Failure> {
    table.takes_transactions()?;
    let database = client.database_of(table)?;
    // What was acknowledged is kept as the transaction manager's log is.
    let policy = client.cluster_map().table(COMMITS).map(|record| record.policy.name.clone());
    let mut reading = Reading::begin(plan, table, "loading", watcher)?;
    let mut committing = Committing {
        client,
        table,
        database,
        insert,
        most_rows: plan.limits.rows.clamp(1, MOST_ROWS),
        patience: plan.limits.deadline,
        forming: Forming::default(),
        rows: 0,
        bytes: 0,
        unknown: 0,
    };
    let read = reading.read(&mut committing, watcher);
    let ended = read.and_then(|()| committing.finish());
    let Committing { rows, bytes, unknown, .. } = committing;
    watcher.rows(rows);
    reading.close_bad_rows(watcher)?;
    ended.map_err(|failure| failure.and(so_far(rows, unknown)))?;
    let report = reading.report(table, rows, bytes, None)?;
    Ok(LoadReport { policy: policy.unwrap_or_else(|| report.policy.clone()), ..report })
}

/// Why rows of such a table do not come by a job: each partition would commit its own.
pub fn no_job(table: &str) -> Failure {
    Failure::refused(format!(
        "a job has each partition commit rows by itself, and rows of `{table}` are written by global transactions: load \
         without --job, or use COPY or SQL"
    ))
}

/// Why they do not come by a feed: it keeps its position in the entries of each partition.
pub fn no_feed(table: &str) -> Failure {
    Failure::refused(format!(
        "a feed has each partition commit rows with its position, and rows of `{table}` are written by global transactions: \
         use `understudy load`, COPY or SQL"
    ))
}

/// Why they do not come in files that each copy of a partition installs.
pub fn no_bulk(table: &str) -> Failure {
    Failure::refused(format!(
        "a bulk load has each partition install rows by itself, and rows of `{table}` are written by global transactions: \
         load without --bulk, or use COPY or SQL; a new table is filled so with --create"
    ))
}

/// What is said of a load that did not end well.
fn so_far(rows: u64, unknown: u64) -> String {
    match unknown {
        0 => format!("{rows} rows are in, the rest is not"),
        unknown => format!("{rows} rows are in, of {unknown} it is not known, the rest is not"),
    }
}

/// A row on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Given {
    /// Which record of the file it is, from 1.
    record: u64,
    key: Bytes,
    row: Bytes,
}

impl Given {
    fn bytes(&self) -> usize {
        self.key.len() + self.row.len()
    }
}

/// Rows of the next transaction.
#[derive(Default)]
struct Forming {
    rows: Vec<Given>,
    bytes: usize,
}

impl Forming {
    /// True if these are to be committed before this row comes.
    fn is_full_for(&self, row: &Given, most_rows: usize) -> bool {
        let too_large = self.bytes + row.bytes() > MOST_BYTES;
        !self.rows.is_empty() && (self.rows.len() >= most_rows || too_large)
    }

    fn add(&mut self, row: Given) {
        self.bytes += row.bytes();
        self.rows.push(row);
    }
}

/// Commits rows as they come.
struct Committing<'a> {
    client: &'a mut Client,
    table: &'a Table,
    database: Database,
    insert: bool,
    most_rows: usize,
    /// So long a transaction is begun again while others are faster.
    patience: Duration,
    forming: Forming,
    /// Rows that are committed.
    rows: u64,
    /// Bytes of their keys and rows.
    bytes: u64,
    /// Rows of which it is not known whether they are committed.
    unknown: u64,
}

impl Rows for Committing<'_> {
    fn take(&mut self, record: Record) -> Result<(), Failure> {
        let row = Given { record: record.index + 1, key: record.key.into(), row: record.value.into() };
        if self.forming.is_full_for(&row, self.most_rows) {
            self.commit()?;
        }
        self.forming.add(row);
        Ok(())
    }

    fn look(&mut self, _: u64) -> Result<u64, Failure> {
        Ok(self.rows)
    }
}

impl Committing<'_> {
    /// Commits what is left, and waits until the partitions were told of all of it: else who reads them next
    /// would bring it there.
    fn finish(&mut self) -> Result<(), Failure> {
        self.commit()?;
        self.client.flush_commits().map_err(Failure::from)
    }

    /// Commits the rows that have come, all or none.
    fn commit(&mut self) -> Result<(), Failure> {
        let Forming { rows, bytes } = std::mem::take(&mut self.forming);
        if rows.is_empty() {
            return Ok(());
        }
        let (table, insert, deadline) = (self.table, self.insert, Instant::now() + self.patience);
        let mut refused = None;
        let ended = loop {
            let ended = self.client.transact(&self.database, |client, transaction| {
                if insert {
                    refused = first_there(client, transaction, (table, &rows[..]))?;
                }
                match refused {
                    Some(_) => Err(ClientError::Exists),
                    None => write(transaction, table, &rows),
                }
            });
            match ended {
                Err(error) if error.begins_again() && Instant::now() < deadline => {}
                ended => break ended,
            }
        };
        match (ended, refused) {
            (Ok(()), _) => {
                self.rows += rows.len() as u64;
                self.bytes += bytes as u64;
                Ok(())
            }
            (Err(ClientError::Exists), Some(record)) => {
                let why = format!("record {record} was refused: a row with its key exists already");
                Err(Failure::failed(why))
            }
            (Err(error), _) => {
                let unknown = matches!(error, ClientError::OutcomeUnknown(_));
                self.unknown += if unknown { rows.len() as u64 } else { 0 };
                Err(error.into())
            }
        }
    }
}

/// The first record whose key is there, or comes before it among these.
fn first_there(
    client: &mut Client,
    transaction: &Transaction,
    (table, rows): (&Table, &[Given]),
) -> Result<Option<u64>, ClientError> {
    let keys: Vec<Bytes> = rows.iter().map(|row| row.key.clone()).collect();
    let there = client.stored_all_in(transaction, table, &keys)?;
    Ok(first_of(rows, &there))
}

fn first_of(rows: &[Given], there: &[Option<Bytes>]) -> Option<u64> {
    let mut before: BTreeSet<&Bytes> = BTreeSet::new();
    for (row, there) in rows.iter().zip(there) {
        if there.is_some() || !before.insert(&row.key) {
            return Some(row.record);
        }
    }
    None
}

fn write(transaction: &mut Transaction, table: &Table, rows: &[Given]) -> Result<(), ClientError> {
    let mut all = rows.iter();
    all.try_for_each(|row| transaction.write_stored(table, row.key.clone(), Some(row.row.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(record: u64, key: u8, bytes: usize) -> Given {
        Given { record, key: Bytes::copy_from_slice(&[key]), row: vec![0u8; bytes].into() }
    }

    #[test]
    fn a_transaction_has_so_many_rows_or_bytes_and_one_row_in_any_case() {
        let mut forming = Forming::default();
        assert!(!forming.is_full_for(&given(1, 1, 2 * MOST_BYTES), 3), "it has none yet");
        (1..=2).for_each(|record| forming.add(given(record, 1, 10)));
        assert_eq!((forming.rows.len(), forming.bytes), (2, 22));
        assert!(!forming.is_full_for(&given(3, 1, 10), 3));
        assert!(forming.is_full_for(&given(3, 1, 10), 2));
        assert!(!forming.is_full_for(&given(3, 1, MOST_BYTES - 23), 3));
        assert!(forming.is_full_for(&given(3, 1, MOST_BYTES - 22), 3));
    }

    #[test]
    fn an_insert_is_refused_at_the_first_key_that_is_there_or_comes_twice() {
        let rows = [given(5, 1, 1), given(7, 2, 1), given(8, 1, 1)];
        assert_eq!(first_of(&rows[..2], &[None, None]), None);
        assert_eq!(first_of(&rows, &[None, None, None]), Some(8));
        assert_eq!(first_of(&rows, &[None, Some(Bytes::new()), None]), Some(7));
    }

    #[test]
    fn what_is_in_is_said() {
        assert_eq!(so_far(2_000, 0), "2000 rows are in, the rest is not");
        assert_eq!(so_far(5, 3), "5 rows are in, of 3 it is not known, the rest is not");
    }
}

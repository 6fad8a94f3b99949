//! What every load has in common: how its file is read, how far it is said to be, and what is said of its
//! end.

use crate::badrows::BadRows;
use crate::failure::Failure;
use crate::load::{LOOK_EVERY, LoadPlan, OnBad, Watcher, header, open};
use client::table::Table;
use input::{Item, Reader, Record};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// How a load ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadReport {
    /// The table.
    pub table: String,
    /// Whether the load made it.
    pub created: bool,
    /// Rows that are committed.
    pub rows: u64,
    /// Malformed rows left out.
    pub bad_rows: u64,
    /// Where they are.
    pub bad_rows_file: Option<PathBuf>,
    /// Bytes of keys and rows that were given to it.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Committed rows per second of it.
    pub rows_per_second: f64,
    /// The policy under which every row is committed.
    pub policy: String,
    /// The fewest copies that an acknowledgement counted.
    pub copies: Option<u8>,
}

/// Takes the well-formed rows of a load.
pub(crate) trait Rows {
    /// The next one.
    fn take(&mut self, record: Record) -> Result<(), Failure>;

    /// Called every few records, of which so many were read: sees how far the rows have come, and says how
    /// many are done.
    fn look(&mut self, records: u64) -> Result<u64, Failure>;

    /// True if there is no use in more rows.
    fn is_over(&self) -> bool {
        false
    }
}

/// The file of a load while it is read.
pub(crate) struct Reading {
    reader: Reader,
    bad_rows: BadRows,
    on_bad: OnBad,
    begun: Instant,
}

impl Reading {
    /// Opens the file of a plan that was checked before if its rule is `abort`.
    pub fn begin(
        plan: &LoadPlan,
        table: &Table,
        phase: &'static str,
        watcher: &mut dyn Watcher,
    ) -> Result<Reading, Failure> {
        let bad_rows = match plan.on_bad {
            OnBad::Abort => BadRows::counted(),
            OnBad::Skip => BadRows::kept_in(&plan.bad_rows, header(plan)?)?,
        };
        let reader = open(plan)?.reader(table.schema())?;
        let begun = Instant::now();
        watcher.phase(phase, Some(reader.progress()));
        Ok(Reading { reader, bad_rows, on_bad: plan.on_bad, begun })
    }

    /// Hands every well-formed row on, until the file ends or nobody wants more.
    pub fn read(&mut self, rows: &mut dyn Rows, watcher: &mut dyn Watcher) -> Result<(), Failure> {
        while let Some(item) = self.reader.next_item()? {
            match item {
                Item::Row(record) => rows.take(record)?,
                Item::Bad(bad) if self.on_bad == OnBad::Abort => {
                    return Err(Failure::failed(format!("the file changed while it was loaded: {bad}")));
                }
                Item::Bad(bad) => {
                    if let Some(sentence) = self.bad_rows.take(&bad)? {
                        watcher.say(&sentence);
                    }
                }
            }
            let records = self.reader.records();
            if records.is_multiple_of(LOOK_EVERY) {
                watcher.rows(rows.look(records)?);
                if watcher.stopped() {
                    return Err(Failure::failed("stopped"));
                }
            }
            if rows.is_over() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Closes the file of the malformed rows, and says how many there were if not each was named.
    pub fn close_bad_rows(&mut self, watcher: &mut dyn Watcher) -> Result<(), Failure> {
        self.bad_rows.finish()?;
        if let Some(rest) = self.bad_rows.rest() {
            watcher.say(&rest);
        }
        Ok(())
    }

    /// The report of a load of which so many rows, with so many bytes given to it, are committed.
    pub fn report(
        &mut self,
        table: &Table,
        rows: u64,
        bytes: u64,
        copies: Option<u8>,
    ) -> Result<LoadReport, Failure> {
        let seconds = self.begun.elapsed().as_secs_f64().max(1e-6);
        Ok(LoadReport {
            table: table.name().to_string(),
            created: false,
            rows,
            bad_rows: self.bad_rows.count(),
            bad_rows_file: self.bad_rows.finish()?,
            bytes,
            seconds,
            rows_per_second: rows as f64 / seconds,
            policy: table.record().policy.name.clone(),
            copies,
        })
    }
}

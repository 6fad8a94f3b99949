//! `load`: a file into a table.
//!
//! With [`OnBad::Abort`] the whole file is read once before anything is written, so that a malformed row
//! means that nothing was loaded and no table was made. With [`OnBad::Skip`] there is one pass, and bad rows
//! are kept in a file.

use crate::badrows::BadRows;
use crate::design::Choices;
use crate::failure::Failure;
use crate::pipeline::{Done, Limits, Pipeline, Placed};
use crate::port::Port;
use crate::reading::{LoadReport, Reading, Rows};
use client::table::Table;
use input::{Format, Inferred, Input, Item, Options, Progress, Record};
use std::path::{Path, PathBuf};
use types::data::Schema;

/// What becomes of malformed rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnBad {
    /// Nothing is loaded if there is one.
    Abort,
    /// They are left out.
    Skip,
}

/// A file to be loaded.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The file.
    pub file: PathBuf,
    /// How it is to be read.
    pub options: Options,
    /// What becomes of malformed rows.
    pub on_bad: OnBad,
    /// Where they are kept.
    pub bad_rows: PathBuf,
    /// How rows are cut into batches.
    pub limits: Limits,
}

/// Is told how a long work goes.
pub trait Watcher {
    /// Something to be said once, on a line of its own.
    fn say(&mut self, line: &str);
    /// A phase begins: its name, and how much of the file it has read at any time.
    fn phase(&mut self, name: &'static str, progress: Option<Progress>);
    /// So many rows of the phase are done.
    fn rows(&mut self, rows: u64);
    /// True if the work is to stop.
    fn stopped(&mut self) -> bool {
        false
    }
}

/// Between two looks at acknowledgements.
pub(crate) const LOOK_EVERY: u64 = 64;

/// Opens the file. With the `abort` rule it must be one that can be read twice.
pub fn open(plan: &LoadPlan) -> Result<Input, Failure> {
    let input = Input::open(&plan.file, plan.options.clone())?;
    if plan.on_bad == OnBad::Abort && input.progress().total().is_none() {
        return Err(Failure::usage(format!(
            "{} cannot be read twice, which --on-error abort needs to check it first; use --on-error skip, or \
             `understudy ingest`",
            plan.file.display()
        )));
    }
    Ok(input)
}

/// The schema of a table that the file is to make, and what it was inferred from.
pub fn infer(plan: &LoadPlan, key: &[String], choices: &Choices) -> Result<(Schema, Inferred), Failure> {
    let inferred = open(plan)?.infer()?;
    let schema = inferred.schema(key, choices.partition_by.unwrap_or(key.len()), choices.open);
    let names = || inferred.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
    let schema = schema.map_err(|error| {
        Failure::usage(format!("{error}; the columns of {} are {}", plan.file.display(), names()))
    })?;
    Ok((schema, inferred))
}

/// Whether rows of a file can be loaded into the table at all.
pub fn takes_rows(table: &Table) -> Result<(), Failure> {
    table.takes_rows()?;
    match table.schema().has_hidden_key() {
        true => Err(Failure::failed(format!(
            "table `{}` has no primary key, and SQL alone numbers its rows: use COPY, or add a key",
            table.name()
        ))),
        false => Ok(()),
    }
}

/// Checks that malformed rows can be kept, before anything is written.
pub fn check_bad_rows(plan: &LoadPlan) -> Result<(), Failure> {
    BadRows::kept_in(&plan.bad_rows, None).map(|_| ())
}

/// Reads the whole file and says how many rows it has; a failure if any is malformed.
pub fn check(plan: &LoadPlan, schema: &Schema, watcher: &mut dyn Watcher) -> Result<u64, Failure> {
    let mut reader = open(plan)?.reader(schema)?;
    watcher.phase("checking", Some(reader.progress()));
    let mut bad_rows = BadRows::counted();
    let mut hint = false;
    while let Some(item) = reader.next_item()? {
        if let Item::Bad(bad) = item {
            hint |= matches!(bad.reason, input::Reason::Value(_));
            if let Some(sentence) = bad_rows.take(&bad)? {
                watcher.say(&sentence);
            }
        }
        if reader.records().is_multiple_of(LOOK_EVERY) {
            watcher.rows(reader.records());
            if watcher.stopped() {
                return Err(Failure::failed("stopped; nothing was loaded"));
            }
        }
    }
    watcher.rows(reader.records());
    if bad_rows.count() == 0 {
        return Ok(reader.records());
    }
    if let Some(rest) = bad_rows.rest() {
        watcher.say(&rest);
    }
    let types = if hint { ", or give other types with --types" } else { "" };
    Err(Failure::failed(format!(
        "{} of {} rows of {} are malformed, so nothing was loaded; correct them{types}, or leave them out with \
         --on-error skip",
        bad_rows.count(),
        reader.records(),
        plan.file.display()
    )))
}

/// Loads the rows. The file was checked before if the rule is `abort`.
pub fn load<P: Port>(
    port: &mut P,
    table: &Table,
    plan: &LoadPlan,
    watcher: &mut dyn Watcher,
) -> Result<LoadReport, Failure> {
    let mut reading = Reading::begin(plan, table, "loading", watcher)?;
    let mut pipeline = Pipeline::new(port, table.clone(), plan.limits.clone(), None);
    let read = reading.read(&mut Placing { table, pipeline: &mut pipeline }, watcher);
    // What is on its way is waited for in any case, so that the figures are right.
    let drained = pipeline.drain();
    let (done, trouble) = pipeline.finish();
    watcher.rows(done.rows);
    reading.close_bad_rows(watcher)?;
    let so_far = format!("{} rows are in, the rest is not", done.rows);
    read.map_err(|failure| failure.and(&so_far))?;
    drained.map_err(|error| Failure::from(error).and(&so_far))?;
    if let Some(trouble) = trouble {
        return Err(trouble.failure.and(unfinished(&done, trouble.unknown_rows, trouble.lost_batches)));
    }
    reading.report(table, done.rows, done.bytes, done.copies)
}

/// What is said of a load that did not end well.
fn unfinished(done: &Done, unknown: u64, lost: u64) -> String {
    let mut text = format!("{} rows were acknowledged", done.rows);
    if unknown > 0 {
        text.push_str(&format!(", of {unknown} it is not known"));
    }
    if lost > 0 {
        text.push_str(&format!(", {lost} batches of them are lost again"));
    }
    text.push_str("; loading the file again writes every row once more, and none twice");
    text
}

/// Puts rows into batches for their partitions.
pub(crate) struct Placing<'a, 'p, P: Port> {
    /// Whose rows they are.
    pub table: &'a Table,
    /// Takes the batches.
    pub pipeline: &'a mut Pipeline<'p, P>,
}

impl<P: Port> Rows for Placing<'_, '_, P> {
    fn take(&mut self, record: Record) -> Result<(), Failure> {
        let partition = self.table.partition_of(&record.key)?;
        let (key, row) = (record.key.into(), record.value.into());
        Ok(self.pipeline.add(Placed { index: record.index, partition, key, row })?)
    }

    fn look(&mut self, _: u64) -> Result<u64, Failure> {
        self.pipeline.look()?;
        Ok(self.pipeline.done().rows)
    }

    fn is_over(&self) -> bool {
        self.pipeline.trouble().is_some()
    }
}

/// The header line of a CSV file, for the file of its bad rows.
pub(crate) fn header(plan: &LoadPlan) -> Result<Option<String>, Failure> {
    if plan.options.columns.is_some() {
        return Ok(None);
    }
    let mut input = open(plan)?;
    if input.format() != Format::Csv {
        return Ok(None);
    }
    // A pipe can be read once only: its header stays where it is.
    if input.progress().total().is_none() {
        return Ok(None);
    }
    let inferred = input.infer()?;
    let tabs = plan.file.to_string_lossy().trim_end_matches(".gz").ends_with(".tsv");
    let delimiter = plan.options.delimiter.unwrap_or(if tabs { b'\t' } else { b',' }) as char;
    let quoted = |name: &str| {
        let special = |c: char| c == delimiter || matches!(c, '"' | '\n' | '\r');
        if name.contains(special) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name.to_string() }
    };
    let names: Vec<String> = inferred.columns.iter().map(|column| quoted(&column.name)).collect();
    Ok(Some(names.join(&delimiter.to_string())))
}

/// Where the bad rows of a file are kept if nothing else is said: beside the working directory's other files,
/// under the file's name with `.bad` behind it.
pub fn default_bad_rows(file: &Path) -> PathBuf {
    let name = file.file_name().map_or_else(|| "rows".into(), |name| name.to_string_lossy().into_owned());
    PathBuf::from(format!("{}.bad", name.trim_end_matches(".gz")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeStore, table};

    #[derive(Default)]
    struct Said {
        lines: Vec<String>,
        phases: Vec<&'static str>,
    }

    impl Watcher for Said {
        fn say(&mut self, line: &str) {
            self.lines.push(line.into());
        }
        fn phase(&mut self, name: &'static str, _: Option<Progress>) {
            self.phases.push(name);
        }
        fn rows(&mut self, _: u64) {}
    }

    fn plan(dir: &Path, text: &str, on_bad: OnBad) -> LoadPlan {
        let file = dir.join("t.csv");
        std::fs::write(&file, text).expect("writable");
        let bad_rows = dir.join("t.csv.bad");
        LoadPlan { file, options: Options::default(), on_bad, bad_rows, limits: Limits::default() }
    }

    #[test]
    fn abort_finds_every_malformed_row_before_anything_is_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let plan = plan(dir.path(), "id,name\n1,a\nx,b\n3\n4,d\n", OnBad::Abort);
        let mut said = Said::default();
        let failure = check(&plan, table(2).schema(), &mut said).expect_err("two are bad");
        assert_eq!(failure.status, 1);
        assert!(failure.sentence.starts_with("2 of 4 rows of "), "{failure}");
        assert!(failure.sentence.contains("nothing was loaded"), "{failure}");
        assert_eq!(said.lines.len(), 2);
        assert!(said.lines[0].contains("line 3, column `id`"), "{}", said.lines[0]);
        assert!(said.lines[1].contains("line 4: it has 1 field,"), "{}", said.lines[1]);
    }

    #[test]
    fn skip_loads_the_rest_and_keeps_the_bad_rows() {
        let dir = tempfile::tempdir().expect("a directory");
        let plan = plan(dir.path(), "id,name\n1,a\nx,b\n3,c\n", OnBad::Skip);
        let table = table(2);
        let mut store = FakeStore::new(&table);
        let mut said = Said::default();
        let report = load(&mut store, &table, &plan, &mut said).expect("loads");
        assert_eq!((report.rows, report.bad_rows, report.copies), (2, 1, Some(3)));
        assert_eq!(report.policy, "durable");
        assert_eq!(store.rows(), 2);
        let kept = std::fs::read_to_string(&plan.bad_rows).expect("kept");
        assert_eq!(kept, "id,name\nx,b\n");
        assert_eq!(load(&mut store, &table, &plan, &mut said).expect_err("the file is there").status, 5);
    }

    #[test]
    fn a_load_that_breaks_off_says_what_is_in() {
        let dir = tempfile::tempdir().expect("a directory");
        let plan = plan(dir.path(), "id,name\n1,a\n", OnBad::Skip);
        let table = table(1);
        let mut store = FakeStore::new(&table);
        store.fail_write(1);
        let failure = load(&mut store, &table, &plan, &mut Said::default()).expect_err("the write fails");
        assert_eq!(failure.status, 4);
        assert!(failure.sentence.contains("0 rows were acknowledged"), "{failure}");
    }

    #[test]
    fn names_of_bad_row_files() {
        assert_eq!(default_bad_rows(Path::new("/x/flights.csv.gz")), PathBuf::from("flights.csv.bad"));
    }
}

//! `bench calls`: what a call of a procedure costs that reads and writes one row, through a cluster: compiled
//! in, and in the language for users.

use crate::closed::{self, Asking};
use crate::cluster::{Ours, Shared, TableKind, Target};
use crate::error::BenchError;
use crate::options::Common;
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::{Counters, Load, Sources, Subject, Way, interleave};
use client::{Call, LoadOptions, Outcome, Procedure, Table};
use serde_json::json;
use std::io::Write;
use std::time::Duration;
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, ColumnType, Row, Schema, Value};
use types::random::Random;
use wire::{Body, CallResult};

/// Names of the lines, with the language, and the calls a second that are the goal.
const CALLS: [(&str, Language, f64); 2] =
    [("calls-builtin", Language::Builtin, 100_000.0), ("calls-wasm", Language::Wasm, 20_000.0)];
/// Names of the lines.
pub const CALL_LINES: [&str; 2] = [CALLS[0].0, CALLS[1].0];

/// Options of `bench calls`.
#[derive(Clone, Debug)]
pub struct CallsOptions {
    /// Options of every bench.
    pub common: Common,
    /// Which cluster of ours: one that is started.
    pub target: Target,
    /// `--rows N` of the table.
    pub rows: u64,
    /// `--clients N`: calls that are on their way at once.
    pub clients: u32,
    /// The database: of one partition.
    pub kind: TableKind,
}

impl Default for CallsOptions {
    fn default() -> CallsOptions {
        CallsOptions {
            common: Common::default(),
            target: Target::default(),
            rows: 10_000,
            clients: 100,
            kind: TableKind::main_memory("none", 1, 1),
        }
    }
}

/// Runs `bench calls`. Each line goes to `emit` as soon as it is there.
pub fn calls(
    options: &CallsOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    options.common.check(&CALL_LINES)?;
    if options.rows == 0 || options.clients == 0 {
        return Err(BenchError::Usage("rows and clients are at least 1".into()));
    }
    let _ = writeln!(progress, "calls: starting");
    let shared = Ours::start(&options.common, &options.target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let wanted = CALLS.into_iter().filter(|(name, ..)| options.common.wants(name));
    let mut subjects = Vec::new();
    for (name, language, goal) in wanted {
        subjects.push((name, goal, Counting::create(options, &shared, language)?));
    }
    let mut all: Vec<&mut dyn Subject> = Vec::new();
    all.extend(subjects.iter_mut().map(|(_, _, subject)| subject as &mut dyn Subject));
    let series = interleave(&mut all, options.common.plan(), progress)?;
    let mut lines = Vec::new();
    for ((name, goal, counting), series) in subjects.iter_mut().zip(&series) {
        counting.verify()?;
        let _ = writeln!(progress, "calls: {name}: the numbers add up to the {} calls made", counting.made);
        let workload = json!({
            "rows": options.rows, "clients": options.clients, "language": counting.language.name(), "partitions": 1,
        });
        let line = Line::new("calls", name, workload, machine.clone());
        let line = line.at_least(series, "the goal: calls a second", *goal);
        let _ = writeln!(progress, "{}", line.in_words());
        emit(&line);
        lines.push(line);
    }
    plot::write(&options.common, "calls", &lines)?;
    Ok(lines)
}

/// A table of numbers, and a procedure that adds to one of them.
struct Counting {
    shared: Shared,
    kind: TableKind,
    table: Table,
    procedure: Procedure,
    language: Language,
    random: Random,
    rows: u64,
    clients: u32,
    /// Calls that were answered.
    made: u64,
}

impl Counting {
    fn create(options: &CallsOptions, shared: &Shared, language: Language) -> Result<Counting, BenchError> {
        let int = |name: &str| Column::new(name, ColumnType::Int);
        let columns = vec![int("id").not_null(), int("n").not_null()];
        let schema = Schema::new(columns, &["id"], 1, false).expect("the key is one of the columns");
        let mut ours = shared.borrow_mut();
        let (database, table) = ours.empty_database(&options.kind, "counters", schema)?;
        let mut loader = ours.client().load(&table, LoadOptions::default());
        for id in 0..options.rows {
            loader.add(ours.client(), &Row::new(vec![Value::Int(id as i64), Value::Int(0)]))?;
        }
        loader.finish(ours.client())?;
        let source = match language {
            Language::Builtin => "count",
            Language::Wasm => include_str!("calls/count.wat"),
        };
        let definition = Definition {
            language,
            source: source.into(),
            results: vec![int("n")],
            read_only: false,
            checked: false,
        };
        let parameters = [int("id").not_null(), int("by").not_null()];
        let procedure = ours.client().create_procedure(&database, "count", &parameters, definition)?;
        drop(ours);
        Ok(Counting {
            shared: shared.clone(),
            kind: options.kind.clone(),
            table,
            procedure,
            language,
            random: Random::new(options.common.seed),
            rows: options.rows,
            clients: options.clients,
            made: 0,
        })
    }

    /// Refuses a table whose numbers do not add up to the calls made.
    fn verify(&self) -> Result<(), BenchError> {
        let mut ours = self.shared.borrow_mut();
        let mut sum = 0_i64;
        for row in ours.client().scan_all(&self.table) {
            let row = row?;
            match self.table.decode(&row.key, &row.stored)?.values.as_slice() {
                [_, Value::Int(number)] => sum += number,
                other => return Err(BenchError::Wrong(format!("a row of counters is {other:?}"))),
            }
        }
        match sum as u64 == self.made {
            true => Ok(()),
            false => Err(BenchError::Wrong(format!("{} calls were answered and {sum} are there", self.made))),
        }
    }
}

impl Asking for Counting {
    fn call(&mut self) -> Result<Call, BenchError> {
        let id = self.random.below(self.rows);
        Ok(self.procedure.call(vec![Value::Int(id as i64), Value::Int(1)])?)
    }

    fn check(&mut self, outcome: &Outcome) -> Result<(), BenchError> {
        match outcome {
            Outcome::Ok(answer) => match &answer.body {
                Body::Called(CallResult::Rows(rows)) if rows.len() == 1 => {
                    self.made += 1;
                    Ok(())
                }
                other => Err(BenchError::Wrong(format!("a call was answered with {other:?}"))),
            },
            other => Err(BenchError::Wrong(format!("a call under load ended with {other:?}"))),
        }
    }
}

impl Subject for Counting {
    fn label(&self) -> String {
        format!("understudy calls, {}, {}", self.kind.in_words(), self.language.name())
    }

    fn settings(&self) -> String {
        format!(
            "one partition; {} clients are lanes of one client on one thread: each waits for its answer",
            self.clients
        )
    }

    fn processes(&self) -> Vec<u32> {
        self.shared.borrow().processes()
    }

    fn sources(&self) -> Sources {
        self.shared.borrow().sources()
    }

    fn way(&self) -> Way {
        self.shared.borrow().way(&self.kind, 100)
    }

    fn counters(&mut self) -> Result<Counters, BenchError> {
        self.shared.borrow_mut().counters()
    }

    fn run(&mut self, time: Duration) -> Result<Load, BenchError> {
        let shared = self.shared.clone();
        let mut ours = shared.borrow_mut();
        closed::drive(ours.client(), self.clients, time, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_there_is_not_is_refused() {
        let mut options = CallsOptions::default();
        options.common.only = vec!["python".into()];
        let refused = calls(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
        assert!(refused.to_string().contains("calls-wasm"), "{refused}");
        let options = CallsOptions { clients: 0, ..CallsOptions::default() };
        assert!(calls(&options, &mut std::io::sink(), &mut |_| ()).is_err());
    }
}

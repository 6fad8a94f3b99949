//! What operations are for a cluster: calls of a table, or of procedures in a database.

use super::letters::{Mix, Operation};
use crate::cluster::{Shared, TableKind, row};
use crate::error::BenchError;
use crate::generate::{Workload, key};
use bytes::Bytes;
use client::{Call, Client, Database, Outcome, Procedure, Table};
use std::fmt;
use std::str::FromStr;
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, ColumnType, Value};
use wire::request::ReadSnapshot;
use wire::{Body, CallResult, Op};

/// The most bytes that a call of a procedure may give; a little is left for keys and lengths.
const MAX_RESULT_BYTES: usize = 60 << 10;

/// By what operations are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Asking {
    /// Gets, puts and scans of a table.
    #[default]
    Put,
    /// Calls of procedures in a database of one partition.
    Procedure,
}

impl FromStr for Asking {
    type Err = String;

    fn from_str(text: &str) -> Result<Asking, String> {
        match text {
            "put" => Ok(Asking::Put),
            "procedure" => Ok(Asking::Procedure),
            other => Err(format!("'{other}' is none of put and procedure")),
        }
    }
}

impl fmt::Display for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Asking::Put { "put" } else { "procedure" })
    }
}

/// The procedures, in the order in which they are made.
#[derive(Debug)]
struct Procedures {
    read: Procedure,
    write: Procedure,
    modify: Procedure,
    scan: Procedure,
}

impl Procedures {
    fn create(client: &mut Client, database: &Database) -> Result<Procedures, BenchError> {
        let (text, bytes) = (ColumnType::Text, ColumnType::Bytes);
        let key = Column::new("k", text).not_null();
        let value = Column::new("v", bytes).not_null();
        let rows = Column::new("n", ColumnType::Int).not_null();
        let of_value = std::slice::from_ref(&value);
        let mut make = |name: &str, source: &str, parameters: &[&Column], results: &[Column], read_only| {
            let parameters: Vec<Column> = parameters.iter().map(|column| (*column).clone()).collect();
            let definition = Definition {
                language: Language::Wasm,
                source: source.into(),
                results: results.to_vec(),
                read_only,
                checked: false,
            };
            client.create_procedure(database, name, &parameters, definition)
        };
        Ok(Procedures {
            read: make("read", include_str!("read.wat"), &[&key], of_value, true)?,
            write: make("write", include_str!("write.wat"), &[&key, &value], &[], false)?,
            modify: make("modify", include_str!("modify.wat"), &[&key, &value], of_value, false)?,
            scan: make("scan", include_str!("scan.wat"), &[&key, &rows], of_value, true)?,
        })
    }
}

/// Records in a cluster.
#[derive(Debug)]
pub struct Store {
    table: Table,
    procedures: Option<Procedures>,
    value_bytes: usize,
}

impl Store {
    /// Makes what is needed, and loads the records.
    pub fn create(
        shared: &Shared,
        kind: &TableKind,
        workload: &Workload,
        asking: Asking,
    ) -> Result<Store, BenchError> {
        let mut ours = shared.borrow_mut();
        let (table, procedures) = match asking {
            Asking::Put => (ours.table(kind, workload)?, None),
            Asking::Procedure => {
                let (database, table) = ours.database(kind, workload)?;
                (table, Some(Procedures::create(ours.client(), &database)?))
            }
        };
        Ok(Store { table, procedures, value_bytes: workload.value_bytes })
    }

    /// Why this mix cannot be asked for, if so.
    pub fn refuses(asking: Asking, mix: Mix, value_bytes: usize) -> Option<String> {
        let most = super::letters::MAX_SCAN as usize * value_bytes;
        (asking == Asking::Procedure && mix.scan > 0 && most > MAX_RESULT_BYTES).then(|| {
            format!(
                "a call gives at most {MAX_RESULT_BYTES} bytes and a scan up to {most}: use --value-bytes {} or --by put",
                MAX_RESULT_BYTES / super::letters::MAX_SCAN as usize
            )
        })
    }

    /// The most calls that an operation has on their way at once.
    pub fn widest(&self) -> u32 {
        if self.procedures.is_some() { 1 } else { self.table.partitions().count() as u32 }
    }

    /// The calls with which an operation begins. All of them are made at once.
    pub fn begin(&self, operation: &Operation) -> Result<Vec<Call>, BenchError> {
        let name = |record: &u64| Value::Text(key(*record));
        let bytes = |value: &Bytes| Value::Bytes(value.to_vec());
        if let Some(procedures) = &self.procedures {
            let (procedure, arguments) = match operation {
                Operation::Read { record } => (&procedures.read, vec![name(record)]),
                Operation::Update { record, value } | Operation::Insert { record, value } => {
                    (&procedures.write, vec![name(record), bytes(value)])
                }
                Operation::Modify { record, value } => (&procedures.modify, vec![name(record), bytes(value)]),
                Operation::Scan { record, rows, .. } => {
                    (&procedures.scan, vec![name(record), Value::Int(i64::from(*rows))])
                }
            };
            return Ok(vec![procedure.call(arguments)?]);
        }
        Ok(match operation {
            Operation::Read { record } | Operation::Modify { record, .. } => {
                vec![self.table.get(&[name(record)])?]
            }
            Operation::Update { record, value } => vec![self.table.put(&row(*record, value))?],
            Operation::Insert { record, value } => vec![self.table.insert(&row(*record, value))?],
            // Keys are spread over the partitions by a hash: each may have all of the rows.
            Operation::Scan { record, rows, .. } => {
                let from = self.table.key(&[name(record)])?;
                let scan = || Op::Scan {
                    from: from.clone(),
                    to: Bytes::new(),
                    limit: *rows,
                    at: ReadSnapshot::Newest,
                };
                self.table.partitions().map(|partition| self.table.call(partition, scan())).collect()
            }
        })
    }

    /// The call with which it goes on, behind the answers to the first ones.
    pub fn go_on(&self, operation: &Operation) -> Result<Option<Call>, BenchError> {
        Ok(match operation {
            Operation::Modify { record, value } if self.procedures.is_none() => {
                Some(self.table.put(&row(*record, value))?)
            }
            _ => None,
        })
    }

    /// How many rows an answer has. The error: it is none to this operation; only what did the work counts.
    pub fn rows(&self, operation: &Operation, outcome: &Outcome) -> Result<u32, BenchError> {
        let wrong =
            || Err(BenchError::Wrong(format!("an operation under load was answered with {outcome:?}")));
        let Outcome::Ok(answer) = outcome else { return wrong() };
        let scans = matches!(operation, Operation::Scan { .. });
        match &answer.body {
            Body::Affected(1) => Ok(0),
            Body::Row(Some((_, row))) if row.len() >= self.value_bytes => Ok(1),
            Body::Rows { rows, .. } if scans => Ok(rows.len() as u32),
            Body::Called(CallResult::Rows(rows)) => Ok(rows.len() as u32),
            _ => wrong(),
        }
    }

    /// Refuses an operation that has found less than there was.
    pub fn check(&self, operation: &Operation, rows: u32) -> Result<(), BenchError> {
        let least = match operation {
            Operation::Scan { least, .. } => *least,
            Operation::Read { .. } | Operation::Modify { .. } => 1,
            Operation::Update { .. } | Operation::Insert { .. } => 0,
        };
        match rows >= least {
            true => Ok(()),
            false => Err(BenchError::Wrong(format!(
                "{rows} rows were found, and {least} are there: {operation:?}"
            ))),
        }
    }
}

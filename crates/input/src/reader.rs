//! Yields the records of a file as rows of a schema, encoded for storing.

use crate::MAX_RECORD_BYTES;
use crate::csv::{CsvRecords, Shape};
use crate::error::{BadRow, InputError, Reason};
use crate::infer::json_text;
use crate::input::{BUFFER_BYTES, Bytes, Format, Input};
use crate::ndjson::{Fields, JsonRecords};
use crate::progress::Progress;
use std::collections::HashMap;
use std::io::{self, BufReader};
use types::data::key::encode_row_key;
use types::data::{Json, Row, Schema, Value, encode_row};

/// A record that is a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// How many records come before it in the file, good or bad.
    pub index: u64,
    /// The line it begins on, from 1.
    pub line: u64,
    /// The row.
    pub row: Row,
    /// Its encoded key.
    pub key: Vec<u8>,
    /// Its stored value.
    pub value: Vec<u8>,
}

/// What a record turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A row.
    Row(Record),
    /// Something that makes no row. Reading goes on after it.
    Bad(BadRow),
}

/// Yields the records of a file as rows of a schema. After an error there are no more.
pub struct Reader {
    source: Source,
    table: Table,
    name: String,
    gzip: bool,
    records: u64,
    failed: bool,
    progress: Progress,
}

enum Source {
    Csv { records: CsvRecords<BufReader<Bytes>>, targets: Vec<Target> },
    Ndjson(JsonRecords<BufReader<Bytes>>),
}

/// Where a field of a CSV file goes.
enum Target {
    Column(usize),
    Extra(String),
}

/// What rows are made for.
struct Table {
    schema: Schema,
    places: HashMap<String, usize>,
    /// What stands for no value: a text in CSV, a text's JSON form in NDJSON.
    null: Option<String>,
    /// The last record that had a value for the column, to notice a field that comes twice.
    seen: Vec<u64>,
}

/// Why a record is bad: the column and the reason.
type Fault = (Option<String>, Reason);

impl Input {
    /// Reads rows of this schema. Columns go by name; what is no column becomes an extra field of an open
    /// table.
    ///
    /// Extra fields of a CSV file are texts.
    pub fn reader(mut self, schema: &Schema) -> Result<Reader, InputError> {
        let places = schema.columns().iter().enumerate().map(|(index, column)| (column.name.clone(), index));
        let mut table = Table {
            schema: schema.clone(),
            places: places.collect(),
            null: self.options.null.clone(),
            seen: vec![u64::MAX; schema.columns().len()],
        };
        let progress = self.progress();
        let bytes = std::mem::replace(&mut self.bytes, Box::new(io::empty()));
        let buffered = BufReader::with_capacity(BUFFER_BYTES, bytes);
        let source = match self.format {
            Format::Csv => {
                table.null.get_or_insert_default();
                let mut records = CsvRecords::new(buffered, self.delimiter);
                let targets = self.targets(&table, self.csv_names(&mut records)?)?;
                Source::Csv { records, targets }
            }
            Format::Ndjson => {
                table.null = table.null.map(|null| json_text(&null));
                Source::Ndjson(JsonRecords::new(buffered))
            }
        };
        let (name, gzip) = (self.name, self.gzip);
        Ok(Reader { source, table, name, gzip, records: 0, failed: false, progress })
    }

    fn targets(&self, table: &Table, names: Vec<String>) -> Result<Vec<Target>, InputError> {
        let needed =
            table.schema.columns().iter().find(|column| !column.nullable && !names.contains(&column.name));
        if let Some(column) = needed {
            return Err(InputError::MissingColumn { file: self.name.clone(), column: column.name.clone() });
        }
        let target = |name: String| match table.places.get(&name) {
            Some(index) => Ok(Target::Column(*index)),
            None if table.schema.is_open() => Ok(Target::Extra(name)),
            None => Err(InputError::UnknownColumn { file: self.name.clone(), column: name }),
        };
        names.into_iter().map(target).collect()
    }
}

impl Reader {
    /// How many records have been consumed, good or bad: what [`Reader::skip_records`] takes to go on from
    /// here.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How much of the file has been read.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Passes over records without looking into them. Says how many there were, fewer than `count` at the end
    /// of the file.
    pub fn skip_records(&mut self, count: u64) -> Result<u64, InputError> {
        for skipped in 0..count {
            if !self.advance()? {
                return Ok(skipped);
            }
            self.records += 1;
        }
        Ok(count)
    }

    /// The next record; `None` at the end of the file.
    pub fn next_item(&mut self) -> Result<Option<Item>, InputError> {
        if !self.advance()? {
            return Ok(None);
        }
        let index = self.records;
        self.records += 1;
        let (line, raw) = match &self.source {
            Source::Csv { records, .. } => (records.line(), records.raw()),
            Source::Ndjson(records) => (records.line(), records.raw()),
        };
        let row = match &self.source {
            Source::Csv { records, targets } => self.table.row_of_csv(records, targets),
            Source::Ndjson(records) => self.table.row_of_json(records, index),
        };
        Ok(Some(match row.and_then(|row| self.table.encode(row)) {
            Ok((row, key, value)) => Item::Row(Record { index, line, row, key, value }),
            Err((column, reason)) => {
                let (file, raw) = (self.name.clone(), raw.to_vec());
                Item::Bad(BadRow { file, index, line, column, reason, raw })
            }
        }))
    }

    /// Goes to the next record, if there is one.
    fn advance(&mut self) -> Result<bool, InputError> {
        if self.failed {
            return Ok(false);
        }
        let advanced = match &mut self.source {
            Source::Csv { records, .. } => records.advance().map(|shape| shape.is_some()),
            Source::Ndjson(records) => records.advance().map(|line| line.is_some()),
        };
        self.failed = advanced.is_err();
        advanced.map_err(|error| InputError::reading(&self.name, self.gzip, self.records, error))
    }
}

impl Iterator for Reader {
    type Item = Result<Item, InputError>;

    fn next(&mut self) -> Option<Result<Item, InputError>> {
        self.next_item().transpose()
    }
}

impl Table {
    fn row_of_csv(&self, records: &CsvRecords<BufReader<Bytes>>, targets: &[Target]) -> Result<Row, Fault> {
        match records.shape() {
            Shape::Whole => {}
            Shape::TooLong => return Err((None, Reason::TooLong { limit: MAX_RECORD_BYTES })),
            Shape::OpenQuote => return Err((None, Reason::OpenQuote)),
        }
        if records.count() != targets.len() {
            return Err((None, Reason::Ragged { found: records.count(), expected: targets.len() }));
        }
        let mut row = Row::new(vec![Value::Null; self.schema.columns().len()]);
        for (target, text) in targets.iter().zip(records.texts()) {
            let Some(text) = text else {
                return Err((Some(self.name_of(target).to_string()), Reason::NotUtf8));
            };
            if self.null.as_deref() == Some(text) {
                continue;
            }
            match target {
                Target::Column(index) => {
                    let column = &self.schema.columns()[*index];
                    let value = column.column_type.parse(text);
                    row.values[*index] = value.map_err(|error| (Some(column.name.clone()), error.into()))?;
                }
                Target::Extra(name) => {
                    row.open.insert(name.clone(), Json::Text(text.to_string()));
                }
            }
        }
        Ok(row)
    }

    fn row_of_json(&mut self, records: &JsonRecords<BufReader<Bytes>>, index: u64) -> Result<Row, Fault> {
        if records.too_long() {
            return Err((None, Reason::TooLong { limit: MAX_RECORD_BYTES }));
        }
        let text = std::str::from_utf8(records.raw()).map_err(|_| (None, Reason::NotUtf8))?;
        let parsed = serde_json::from_str(text);
        let Fields(fields) = parsed.map_err(|error| (None, Reason::NotAnObject(error.to_string())))?;
        let mut row = Row::new(vec![Value::Null; self.schema.columns().len()]);
        for (name, value) in fields {
            let fault = |reason: Reason| (Some(name.to_string()), reason);
            let is_null = self.null.as_deref() == Some(value.get());
            if let Some(place) = self.places.get(name.as_ref()) {
                if std::mem::replace(&mut self.seen[*place], index) == index {
                    return Err(fault(Reason::DuplicateField));
                }
                if !is_null {
                    let column_type = self.schema.columns()[*place].column_type;
                    let value = Value::from_json_text(column_type, value.get());
                    row.values[*place] = value.map_err(|error| fault(error.into()))?;
                }
            } else if !self.schema.is_open() {
                return Err(fault(Reason::UnknownField));
            } else if !is_null {
                let tree = Json::parse(value.get());
                let tree = tree.map_err(|error| fault(Reason::ExtraField(error.to_string())))?;
                if row.open.insert(name.to_string(), tree).is_some() {
                    return Err(fault(Reason::DuplicateField));
                }
            }
        }
        Ok(row)
    }

    fn encode(&self, row: Row) -> Result<(Row, Vec<u8>, Vec<u8>), Fault> {
        let fault = |reason: Reason| (reason.column().map(str::to_string), reason);
        let key = encode_row_key(&self.schema, &row).map_err(|error| fault(error.into()))?;
        let value = encode_row(&self.schema, &row).map_err(|error| fault(error.into()))?;
        Ok((row, key, value))
    }

    fn name_of<'a>(&'a self, target: &'a Target) -> &'a str {
        match target {
            Target::Column(index) => &self.schema.columns()[*index].name,
            Target::Extra(name) => name,
        }
    }
}

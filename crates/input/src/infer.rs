//! Infers columns and their types from the first records of a file.

use crate::csv::{CsvRecords, Shape};
use crate::error::InputError;
use crate::guess::{Fits, fits_json, fits_text};
use crate::input::{BUFFER_BYTES, Bytes, Format, Input};
use crate::ndjson::{Fields, JsonRecords};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use types::data::schema::MAX_COLUMNS;
use types::data::{Column, ColumnType, Schema};

/// A column as its first values suggest it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InferredColumn {
    /// Its name.
    pub name: String,
    /// The narrowest type that all values seen fit without loss, or the one that was given.
    pub column_type: ColumnType,
    /// Whether the type was given, not inferred.
    pub given: bool,
    /// In how many of the records looked at it has no value.
    pub nulls: u64,
}

/// The columns of a file, as its first records suggest them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inferred {
    /// The columns, in the order of the file.
    pub columns: Vec<InferredColumn>,
    /// How many records were looked at.
    pub records: u64,
    /// How many of those could not be taken apart.
    pub bad: u64,
    /// Whether the file has no others.
    pub complete: bool,
}

/// No more than this is kept in memory, however few records it has.
const SAMPLE_BYTES: usize = 64 * 1024 * 1024;

impl Inferred {
    /// A schema with this key. Its columns in the key are not null; the others may be, whatever the records
    /// so far.
    pub fn schema<Name: AsRef<str>>(
        &self,
        key: &[Name],
        partition_by: usize,
        open: bool,
    ) -> Result<Schema, InputError> {
        let in_key = |name: &str| key.iter().any(|key| key.as_ref() == name);
        let column = |inferred: &InferredColumn| {
            let column = Column::new(inferred.name.clone(), inferred.column_type);
            if in_key(&inferred.name) { column.not_null() } else { column }
        };
        Ok(Schema::new(self.columns.iter().map(column).collect(), key, partition_by, open)?)
    }
}

impl fmt::Display for Inferred {
    /// A line of what was looked at, then one per column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = if self.complete { "all" } else { "the first" };
        write!(f, "types of {} columns from {which} {} records", self.columns.len(), self.records)?;
        writeln!(f, "{}", if self.bad > 0 { format!(", {} of them bad", self.bad) } else { String::new() })?;
        let width = self.columns.iter().map(|column| column.name.chars().count()).max().unwrap_or(0);
        for column in &self.columns {
            let mut line = format!("{:width$}  {:9}", column.name, column.column_type);
            if column.given {
                line.push_str("  as given");
            }
            if column.nulls > 0 {
                line.push_str(&format!("  {} without a value", column.nulls));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl Input {
    /// Looks at the first records. They are kept, so that a [`crate::Reader`] made afterwards begins with
    /// them.
    pub fn infer(&mut self) -> Result<Inferred, InputError> {
        let bytes = std::mem::replace(&mut self.bytes, Box::new(io::empty()));
        let mut tee = Tee { inner: bytes, kept: Vec::new() };
        let result = match self.format {
            Format::Csv => self.infer_csv(&mut tee),
            Format::Ndjson => self.infer_ndjson(&mut tee),
        };
        self.bytes = Box::new(Cursor::new(tee.kept).chain(tee.inner));
        let mut inferred = result?;
        self.apply_given_types(&mut inferred)?;
        Ok(inferred)
    }

    fn infer_csv(&self, tee: &mut Tee) -> Result<Inferred, InputError> {
        let null = self.options.null.as_deref().unwrap_or("");
        let buffered = BufReader::with_capacity(BUFFER_BYTES, tee);
        let mut records = CsvRecords::new(buffered, self.delimiter);
        let mut sample = Sample::default();
        for name in self.csv_names(&mut records)? {
            sample.columns.push(Seen { name, fits: Fits::ANY, values: 0 });
        }
        while sample.wants_more(&self.options.sample, records.input().get_ref()) {
            let failed = |error| InputError::reading(&self.name, self.gzip, sample.records, error);
            let Some(shape) = records.advance().map_err(failed)? else {
                sample.complete = true;
                break;
            };
            sample.records += 1;
            let whole = shape == Shape::Whole && records.count() == sample.columns.len();
            if !whole || records.texts().any(|text| text.is_none()) {
                sample.bad += 1;
                continue;
            }
            for (column, text) in sample.columns.iter_mut().zip(records.texts().flatten()) {
                if text != null {
                    column.see(fits_text(text));
                }
            }
        }
        Ok(sample.finish())
    }

    fn infer_ndjson(&self, tee: &mut Tee) -> Result<Inferred, InputError> {
        let null = self.options.null.as_deref().map(json_text);
        let mut records = JsonRecords::new(BufReader::with_capacity(BUFFER_BYTES, tee));
        let mut sample = Sample::default();
        let mut places: HashMap<String, usize> = HashMap::new();
        while sample.wants_more(&self.options.sample, records.input().get_ref()) {
            let failed = |error| InputError::reading(&self.name, self.gzip, sample.records, error);
            let Some(too_long) = records.advance().map_err(failed)? else {
                sample.complete = true;
                break;
            };
            sample.records += 1;
            let text = std::str::from_utf8(records.raw()).ok().filter(|_| !too_long);
            let Some(Fields(fields)) = text.and_then(|text| serde_json::from_str(text).ok()) else {
                sample.bad += 1;
                continue;
            };
            for (name, value) in fields {
                let place = match places.get(name.as_ref()) {
                    Some(place) => *place,
                    // A table has no more columns; the others stay extra fields.
                    None if sample.columns.len() == MAX_COLUMNS => continue,
                    None => {
                        places.insert(name.to_string(), sample.columns.len());
                        sample.columns.push(Seen { name: name.into_owned(), fits: Fits::ANY, values: 0 });
                        sample.columns.len() - 1
                    }
                };
                let is_null = null.as_deref() == Some(value.get());
                if let Some(fits) = fits_json(value.get()).filter(|_| !is_null) {
                    sample.columns[place].see(fits);
                }
            }
        }
        Ok(sample.finish())
    }

    /// The names of a CSV file's columns: from its header line, or as given. A column without a name gets a
    /// number.
    pub(crate) fn csv_names<R: BufRead>(
        &self,
        records: &mut CsvRecords<R>,
    ) -> Result<Vec<String>, InputError> {
        let bad = |why: String| InputError::BadHeader { file: self.name.clone(), why };
        let names = match &self.options.columns {
            Some(names) => names.clone(),
            None => {
                let failed = |error| InputError::reading(&self.name, self.gzip, 0, error);
                let shape = records.advance().map_err(failed)?;
                let shape = shape.ok_or_else(|| InputError::NoHeader { file: self.name.clone() })?;
                if shape != Shape::Whole {
                    return Err(bad("it does not end".into()));
                }
                let names = records.texts().map(|text| text.map(str::to_string));
                names.collect::<Option<Vec<_>>>().ok_or_else(|| bad("it is not UTF-8 text".into()))?
            }
        };
        let number = |(index, name): (usize, String)| match name.is_empty() {
            true => format!("column{}", index + 1),
            false => name,
        };
        let names: Vec<String> = names.into_iter().enumerate().map(number).collect();
        let mut seen = BTreeSet::new();
        match names.iter().find(|name| !seen.insert(name.as_str())) {
            Some(twice) => Err(bad(format!("`{twice}` is in it more than once"))),
            None => Ok(names),
        }
    }

    fn apply_given_types(&self, inferred: &mut Inferred) -> Result<(), InputError> {
        for (name, column_type) in &self.options.types {
            match inferred.columns.iter_mut().find(|column| column.name == *name) {
                Some(column) => (column.column_type, column.given) = (*column_type, true),
                None if self.format == Format::Ndjson => inferred.columns.push(InferredColumn {
                    name: name.clone(),
                    column_type: *column_type,
                    given: true,
                    nulls: inferred.records,
                }),
                None => {
                    return Err(InputError::NoSuchColumn { file: self.name.clone(), column: name.clone() });
                }
            }
        }
        Ok(())
    }
}

/// A text as JSON writes it.
pub(crate) fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Keeps what is read through it.
struct Tee {
    inner: Bytes,
    kept: Vec<u8>,
}

impl Read for Tee {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.kept.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

struct Seen {
    name: String,
    fits: Fits,
    values: u64,
}

impl Seen {
    fn see(&mut self, fits: Fits) {
        self.fits = self.fits.and(fits);
        self.values += 1;
    }
}

#[derive(Default)]
struct Sample {
    columns: Vec<Seen>,
    records: u64,
    bad: u64,
    complete: bool,
}

impl Sample {
    fn wants_more(&self, records: &u64, tee: &Tee) -> bool {
        self.records < *records && tee.kept.len() < SAMPLE_BYTES
    }

    fn finish(self) -> Inferred {
        let good = self.records - self.bad;
        let column = |seen: Seen| InferredColumn {
            name: seen.name,
            column_type: seen.fits.choose(),
            given: false,
            // A field that is twice in a record counts twice.
            nulls: good.saturating_sub(seen.values),
        };
        Inferred {
            columns: self.columns.into_iter().map(column).collect(),
            records: self.records,
            bad: self.bad,
            complete: self.complete,
        }
    }
}

//! What can be wrong: with the file, and with one record.

use std::fmt;
use std::io;
use types::data::{KeyError, RowError, SchemaError, ValueError};

/// Why a file cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It could not be opened or read.
    #[error("cannot read {file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        error: io::Error,
    },
    /// The compressed data is damaged or ends too early.
    #[error("{file} is damaged after {records} records: {error}")]
    Damaged {
        /// The file.
        file: String,
        /// How many records came out whole.
        records: u64,
        /// What is wrong.
        error: io::Error,
    },
    /// There is no header line to read the columns' names from.
    #[error("{file} is empty: there is no header line")]
    NoHeader {
        /// The file.
        file: String,
    },
    /// The header line cannot be used.
    #[error("the header line of {file} cannot be used: {why}")]
    BadHeader {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// The file is not of the form it was said to be.
    #[error("{file} is not {expected}: {why}")]
    NotTheFormat {
        /// The file.
        file: String,
        /// What it was taken for.
        expected: &'static str,
        /// What is there.
        why: &'static str,
    },
    /// A character that cannot separate fields.
    #[error("{0:?} cannot separate the fields of a CSV file")]
    BadDelimiter(char),
    /// A column that the table has not.
    #[error(
        "{file} has a column `{column}` that the table does not have, and the table takes no other fields"
    )]
    UnknownColumn {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// A column that every row needs.
    #[error("{file} has no column `{column}`, which must have a value in every row")]
    MissingColumn {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// A type was given for a column that is not there.
    #[error("{file} has no column `{column}` to give a type")]
    NoSuchColumn {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// The columns make no schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl InputError {
    /// Sorts out what reading said: damage within a compressed stream, or a fault of the system.
    pub(crate) fn reading(file: &str, gzip: bool, records: u64, error: io::Error) -> InputError {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        let file = file.to_string();
        match error.kind() {
            UnexpectedEof | InvalidData | InvalidInput if gzip => {
                InputError::Damaged { file, records, error }
            }
            _ => InputError::Io { file, error },
        }
    }
}

/// A record that makes no row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadRow {
    /// The file.
    pub file: String,
    /// How many records come before it in the file, good or bad.
    pub index: u64,
    /// The line it begins on, from 1.
    pub line: u64,
    /// The column at fault, if it is one.
    pub column: Option<String>,
    /// What is wrong.
    pub reason: Reason,
    /// The record as it stands in the file, without its line end; of one that is too long, its beginning.
    pub raw: Vec<u8>,
}

impl BadRow {
    /// The record for a person to read: at most `limit` characters of it.
    pub fn raw_text(&self, limit: usize) -> String {
        let text = String::from_utf8_lossy(&self.raw);
        let mut short: String = text.chars().take(limit).collect();
        if short.len() < text.len() {
            short.push_str("...");
        }
        short
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}", self.file, self.line)?;
        if let Some(column) = &self.column {
            write!(f, ", column `{column}`")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// What is wrong with a record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// A value that is not of its column's type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Bytes that are not UTF-8.
    #[error("it is not UTF-8 text")]
    NotUtf8,
    /// Longer than a row can be.
    #[error("it is longer than the {limit} bytes a row can have")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// More or fewer fields than the header line.
    #[error("it has {found} field{}, but the header line has {expected}", if *.found == 1 { "" } else { "s" })]
    Ragged {
        /// How many it has.
        found: usize,
        /// How many the header has.
        expected: usize,
    },
    /// A quote that does not end before the file does.
    #[error("a quote is not closed before the end of the file")]
    OpenQuote,
    /// Not a JSON object.
    #[error("it is not a JSON object: {0}")]
    NotAnObject(String),
    /// A field that is there more than once.
    #[error("the field is there more than once")]
    DuplicateField,
    /// A field that the table has not.
    #[error("it is not a column, and the table takes no other fields")]
    UnknownField,
    /// An extra field that cannot be kept.
    #[error("{0}")]
    ExtraField(String),
    /// The row makes no key: a value is missing, or the key is too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The row cannot be stored.
    #[error(transparent)]
    Row(#[from] RowError),
}

impl Reason {
    /// The column that the reason names itself.
    pub(crate) fn column(&self) -> Option<&str> {
        match self {
            Reason::Key(KeyError::Null { column } | KeyError::WrongType { column, .. })
            | Reason::Row(RowError::Null { column } | RowError::WrongType { column, .. }) => Some(column),
            Reason::Row(RowError::TooDeep(name)) => Some(name),
            _ => None,
        }
    }
}

//! The data of COPY as PostgreSQL writes and reads it, in the formats text and csv.
//!
//! | what | where |
//! | --- | --- |
//! | data that come in pieces, cut into records | [`Reader`] |
//! | the fields of a record | `fields` |
//! | rows as lines | [`Writer`] |

mod fields;
mod reader;
mod writer;

pub use reader::{Reader, Record, shortened};
pub use writer::Writer;

use crate::failure::{Failure, code};

/// The longest record, in bytes as it is sent: a row that can be stored is no longer, even with its bytes in
/// hexadecimal.
pub const MAX_RECORD_BYTES: usize = 32 << 20;

/// The characters that may not delimit fields of the format text: they mean something after a backslash.
const NO_DELIMITERS: &str = "\\.abcdefghijklmnopqrstuvwxyz0123456789";

/// What a header line is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Header {
    /// There is none.
    #[default]
    None,
    /// It is written, and skipped when it is read.
    Names,
    /// When it is read, its names must be those of the columns.
    Match,
}

/// Columns that an option names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Columns {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// These, by their place among those that are copied.
    These(Vec<usize>),
}

impl Columns {
    /// True if the column at this place is one of them.
    pub fn has(&self, place: usize) -> bool {
        match self {
            Columns::None => false,
            Columns::All => true,
            Columns::These(places) => places.contains(&place),
        }
    }
}

/// What only the format csv has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Csv {
    /// Stands around values that need it.
    pub quote: u8,
    /// Stands before a quote within quotes.
    pub escape: u8,
    /// Values of these columns are quoted, needed or not.
    pub force_quote: Columns,
    /// Values of these columns are never null when they are read.
    pub force_not_null: Columns,
    /// Values of these columns are null if they look so, also in quotes.
    pub force_null: Columns,
}

/// How records are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    /// Stands between fields.
    pub delimiter: u8,
    /// Stands for null.
    pub null: String,
    /// The first line.
    pub header: Header,
    /// `None`: the format text.
    pub csv: Option<Csv>,
}

impl Format {
    /// The format text as it is without options.
    pub fn text() -> Format {
        Format { delimiter: b'\t', null: r"\N".into(), header: Header::None, csv: None }
    }

    /// The format csv as it is without options.
    pub fn csv() -> Format {
        let csv = Csv {
            quote: b'"',
            escape: b'"',
            force_quote: Columns::None,
            force_not_null: Columns::None,
            force_null: Columns::None,
        };
        Format { delimiter: b',', null: String::new(), header: Header::None, csv: Some(csv) }
    }

    /// Refuses what could not be read again, with PostgreSQL's sentences.
    pub fn check(&self) -> Result<(), Failure> {
        let invalid = |message: String| Err(Failure::new("22023", message));
        let unsupported = |message: &str| Err(Failure::new(code::UNSUPPORTED, message));
        let ends_lines = |byte: u8| byte == b'\n' || byte == b'\r';
        if ends_lines(self.delimiter) {
            return invalid("COPY delimiter cannot be newline or carriage return".into());
        }
        if self.null.bytes().any(ends_lines) {
            return invalid("COPY null representation cannot use newline or carriage return".into());
        }
        match &self.csv {
            None if NO_DELIMITERS.as_bytes().contains(&self.delimiter) => {
                return invalid(format!("COPY delimiter cannot be \"{}\"", self.delimiter as char));
            }
            Some(csv) if csv.quote == self.delimiter => {
                return invalid("COPY delimiter and quote must be different".into());
            }
            _ => {}
        }
        if self.null.as_bytes().contains(&self.delimiter) {
            return unsupported("COPY delimiter must not appear in the NULL specification");
        }
        if self.csv.as_ref().is_some_and(|csv| self.null.as_bytes().contains(&csv.quote)) {
            return unsupported("CSV quote character must not appear in the NULL specification");
        }
        Ok(())
    }
}

/// The error of data that are not of the format.
fn bad_format(message: impl Into<String>) -> Failure {
    Failure::new(code::BAD_COPY, message)
}

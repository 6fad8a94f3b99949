//! Layer 2: reads files of rows: CSV and NDJSON, plain or gzipped, with inferred types.
//!
//! An [`Input`] is an open file or stream. [`Input::infer`] looks at its first records and says which types
//! the columns have ([`Inferred`]); nothing it looked at is lost, so that it works on a pipe too.
//! [`Input::reader`] then yields each record as a row of a given schema, encoded for storing ([`Record`]), or
//! says what is wrong with it ([`BadRow`]). A record that is wrong does not stop the reading; a file that
//! cannot be read, or is damaged, does ([`InputError`]).
//!
//! A feed that goes on where it stopped keeps [`Reader::records`] and gives it to [`Reader::skip_records`].

mod csv;
mod error;
mod guess;
mod infer;
mod input;
mod ndjson;
mod progress;
mod reader;

pub use error::{BadRow, InputError, Reason};
pub use infer::{Inferred, InferredColumn};
pub use input::{Format, Input, Options};
pub use progress::Progress;
pub use reader::{Item, Reader, Record};
pub use types::data::parse_columns;

/// The longest record, in bytes as it stands in the file: no longer one could be stored.
pub const MAX_RECORD_BYTES: usize = types::engine::MAX_VALUE_BYTES;

/// How much of a record that is too long is kept to show it.
pub(crate) const SHOWN_BYTES: usize = 64 * 1024;

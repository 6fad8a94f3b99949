//! Typed data: values, schemas, and how keys and rows are laid out in bytes.
//!
//! A row has typed columns and, in an open table, extra fields. Its key columns become the stored key
//! ([`key`]), in an encoding whose byte order is the order of the values, so that a range of keys is a range
//! of bytes. The other columns and the extra fields become the stored value ([`row`]), which names the schema
//! version it was written under. The first columns of the key decide the partition ([`route`]). Text and JSON
//! forms are in [`text`].
//!
//! Nothing here does IO. What comes from a disk, a peer or a file is never trusted: decoding answers with an
//! error.

pub mod calendar;
pub mod clock;
mod codec;
pub mod constraint;
pub mod decimal;
pub mod interval;
pub mod json;
pub mod key;
pub mod kind;
pub mod route;
pub mod row;
pub mod rules;
pub mod schema;
pub mod signature;
pub mod text;
pub mod uuid;
pub mod value;

#[cfg(test)]
mod tests;

pub use constraint::{Action, Constraint, Demand, Reference, Standing, Target};
pub use decimal::Decimal;
pub use interval::Interval;
pub use json::{Bag, Json};
pub use key::{KeyError, MAX_ENCODED_KEY_BYTES, decode_key, encode_key, encode_key_prefix, prefix_end};
pub use route::{HASH_NAME, hash_key, partition_key, partition_of, route_key};
pub use row::{Row, RowError, decode_known, decode_row, encode_row, row_version, with_row_version};
pub use rules::{Breach, Fallback, Identity, Rules};
pub use schema::{Column, Schema, SchemaError, SchemaParts, parse_columns};
pub use signature::Signature;
pub use text::{key_from_text, key_to_text, row_from_json, row_to_json, row_to_json_text, row_to_text};
pub use value::{ColumnType, Value, ValueError};

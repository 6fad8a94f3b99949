//! Rows, and how what is not in their key is stored.
//!
//! The stored value: a format byte (1), the schema's version, the number n of columns, n bits that say which
//! have a value (rounded up to bytes, lowest bit first), those values in the order of the columns, and the
//! extra fields of an open table: their number, then each with its name, names ascending. Numbers are 7 bits
//! a byte, lowest first, signed ones zigzag.
//!
//! | type | bytes |
//! | --- | --- |
//! | int, date, time | signed number |
//! | float, timestamp | 8 bytes little-endian |
//! | uuid | 16 bytes |
//! | interval | months, days, microseconds: signed numbers |
//! | decimal | scale (1 byte), mantissa as a signed number |
//! | text, bytes | length, bytes |
//! | bool | 1 byte, 0 or 1 |
//! | json | a kind (1 byte), then as above; lists and objects: a number of items, items |

use super::clock::MICROS_PER_DAY;
use super::codec::{Input, put_bytes, put_signed, put_varint};
use super::decimal::Decimal;
use super::interval::Interval;
use super::json::{self, Json};
use super::key::{KeyError, decode_key};
use super::rules::Breach;
use super::schema::Schema;
use super::value::{ColumnType, Value};
use crate::engine::MAX_VALUE_BYTES;
use std::collections::BTreeMap;

/// A row: a value for each column, and fields that are not columns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row {
    /// The columns' values, in the order of the schema.
    pub values: Vec<Value>,
    /// Fields that are not columns; only in an open table.
    pub open: BTreeMap<String, Json>,
}

impl Row {
    /// A row without extra fields.
    pub fn new(values: Vec<Value>) -> Row {
        Row { values, open: BTreeMap::new() }
    }
}

/// Why a row cannot be encoded or decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RowError {
    /// Not as many values as the table has columns.
    #[error("the table has {expected} columns, but the row has {given} values")]
    WrongCount {
        /// How many the table has.
        expected: usize,
        /// How many came.
        given: usize,
    },
    /// A value of another type.
    #[error("the column `{column}` is of type {expected}, not {found}")]
    WrongType {
        /// The column.
        column: String,
        /// Its type.
        expected: ColumnType,
        /// The value's type.
        found: ColumnType,
    },
    /// A value beyond the column's bounds.
    #[error("a value of the column `{column}` is out of its bounds: {breach}")]
    Beyond {
        /// The column.
        column: String,
        /// Which.
        breach: Breach,
    },
    /// No value where one must be.
    #[error("the column `{column}` must have a value")]
    Null {
        /// The column.
        column: String,
    },
    /// An extra field in a table that has none.
    #[error("`{0}` is not a column, and the table takes no other fields")]
    NotOpen(String),
    /// An extra field with the name of a column.
    #[error("`{0}` is a column; its value cannot also be an extra field")]
    OpenColumn(String),
    /// Nested too deep.
    #[error("`{0}` is nested deeper than 60 levels")]
    TooDeep(String),
    /// Longer than can be stored.
    #[error("the row is {bytes} bytes long, but at most {MAX_VALUE_BYTES} can be stored")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Written under a later version of the schema.
    #[error(
        "the row was written under schema version {row}, newer than {schema}: learn the table's schema again"
    )]
    NewerSchema {
        /// The version in the row.
        row: u32,
        /// The version it was to be read with.
        schema: u32,
    },
    /// A format that this release does not know.
    #[error("the row is stored in format {0}, which this release does not know")]
    UnknownFormat(u8),
    /// Bytes that are no row of this schema.
    #[error("the stored row is damaged: {0}")]
    Damaged(&'static str),
    /// The key is not one.
    #[error(transparent)]
    Key(#[from] KeyError),
}

const FORMAT: u8 = 1;

/// The stored value of a row: its columns outside the key, and its extra fields.
pub fn encode_row(schema: &Schema, row: &Row) -> Result<Vec<u8>, RowError> {
    check(schema, row)?;
    let columns = schema.values();
    let values = columns.iter().map(|index| &row.values[*index]);
    let mut out = Vec::with_capacity(16 + columns.len() / 8 + values.map(room_for).sum::<usize>());
    out.push(FORMAT);
    put_varint(&mut out, schema.version().into());
    put_varint(&mut out, columns.len() as u128);
    let bits = out.len();
    out.resize(bits + columns.len().div_ceil(8), 0);
    for (place, index) in columns.iter().enumerate() {
        let value = &row.values[*index];
        if !value.is_null() {
            out[bits + place / 8] |= 1 << (place % 8);
            encode_value(&mut out, value);
        }
    }
    json::encode_fields(&row.open, &mut out);
    if out.len() > MAX_VALUE_BYTES {
        return Err(RowError::TooLong { bytes: out.len() });
    }
    Ok(out)
}

/// The row with this encoded key and this stored value.
///
/// A row of an older version has null in the columns that came later, or what they say rows have that were
/// there before them. If the table was open and the row had
/// an extra field of such a column's name, the field becomes the column's value; one that does not fit its
/// type stays an extra field.
pub fn decode_row(schema: &Schema, key: &[u8], stored: &[u8]) -> Result<Row, RowError> {
    let mut row = Row::new(vec![Value::Null; schema.columns().len()]);
    for (index, value) in schema.key().iter().zip(decode_key(schema, key)?) {
        row.values[*index] = value;
    }
    decode_stored(schema, stored, &mut row, false)?;
    Ok(row)
}

/// The columns that this schema knows of a row that may have been written under a later version of it. Of
/// such a row the extra fields are left out.
pub fn decode_known(schema: &Schema, key: &[u8], stored: &[u8]) -> Result<Row, RowError> {
    let mut row = Row::new(vec![Value::Null; schema.columns().len()]);
    for (index, value) in schema.key().iter().zip(decode_key(schema, key)?) {
        row.values[*index] = value;
    }
    decode_stored(schema, stored, &mut row, true)?;
    Ok(row)
}

/// The schema version that a stored row was written under; `None`: these are not the bytes of a row.
pub fn row_version(stored: &[u8]) -> Option<u32> {
    let mut input = Input::new(stored);
    input.byte().filter(|format| *format == FORMAT)?;
    u32::try_from(input.varint()?).ok()
}

/// The same stored row under another version. `None`: these are not the bytes of a row.
pub fn with_row_version(stored: &[u8], version: u32) -> Option<Vec<u8>> {
    let mut input = Input::new(stored);
    input.byte().filter(|format| *format == FORMAT)?;
    u32::try_from(input.varint()?).ok()?;
    let rest = &stored[stored.len() - input.left()..];
    let mut out = Vec::with_capacity(6 + rest.len());
    out.push(FORMAT);
    put_varint(&mut out, version.into());
    out.extend_from_slice(rest);
    Some(out)
}

fn check(schema: &Schema, row: &Row) -> Result<(), RowError> {
    if row.values.len() != schema.columns().len() {
        return Err(RowError::WrongCount { expected: schema.columns().len(), given: row.values.len() });
    }
    for (column, value) in schema.columns().iter().zip(&row.values) {
        let name = || column.name.clone();
        if !column.accepts(value) {
            return Err(match value.column_type() {
                None => RowError::Null { column: name() },
                Some(found) => RowError::WrongType { column: name(), expected: column.column_type, found },
            });
        }
        if let Err(breach) = column.rules.check(value) {
            return Err(RowError::Beyond { column: name(), breach });
        }
        if matches!(value, Value::Json(tree) if tree.depth() > json::MAX_DEPTH) {
            return Err(RowError::TooDeep(name()));
        }
    }
    for (name, value) in &row.open {
        if !schema.is_open() {
            return Err(RowError::NotOpen(name.clone()));
        }
        if schema.column_index(name).is_some() {
            return Err(RowError::OpenColumn(name.clone()));
        }
        if value.depth() > json::MAX_DEPTH {
            return Err(RowError::TooDeep(name.clone()));
        }
    }
    Ok(())
}

fn decode_stored(schema: &Schema, stored: &[u8], row: &mut Row, known: bool) -> Result<(), RowError> {
    if stored.len() > MAX_VALUE_BYTES {
        return Err(RowError::TooLong { bytes: stored.len() });
    }
    let short = RowError::Damaged("it ends too early");
    let mut input = Input::new(stored);
    match input.byte() {
        None => return Err(short),
        Some(FORMAT) => {}
        Some(other) => return Err(RowError::UnknownFormat(other)),
    }
    let version = input.varint().and_then(|number| u32::try_from(number).ok());
    let version = version.ok_or(RowError::Damaged("it has no schema version"))?;
    let newer = version > schema.version();
    if newer && !known {
        return Err(RowError::NewerSchema { row: version, schema: schema.version() });
    }
    let count = input.varint().and_then(|number| usize::try_from(number).ok()).ok_or(short.clone())?;
    let columns = schema.values();
    // Columns are only ever appended: an older row has fewer or as many, one of this version exactly as many.
    if !newer && count > columns.len() || version >= schema.version() && count < columns.len() {
        return Err(RowError::Damaged("its number of columns is not that of its schema version"));
    }
    let bits = input.take(count.div_ceil(8)).ok_or(short)?;
    for (place, index) in columns.iter().take(count).enumerate() {
        if bits[place / 8] & (1 << (place % 8)) != 0 {
            let value = decode_value(&mut input, schema.columns()[*index].column_type);
            row.values[*index] = value.ok_or(RowError::Damaged("a column's bytes make no value"))?;
        }
    }
    for index in columns.iter().skip(count) {
        let column = &schema.columns()[*index];
        if let Some(text) = &column.rules.missing {
            let value = column.column_type.parse(text);
            row.values[*index] = value.map_err(|_| RowError::Damaged("what older rows have is no value"))?;
        }
    }
    if newer {
        return Ok(());
    }
    let open = json::decode_fields(&mut input, json::MAX_DEPTH);
    row.open = open.ok_or(RowError::Damaged("its extra fields make no values"))?;
    if input.left() > 0 {
        return Err(RowError::Damaged("there are bytes after its end"));
    }
    if !row.open.is_empty() {
        adopt_fields(schema, &columns[count..], row);
    }
    Ok(())
}

/// Makes extra fields the values of columns that came after the row was written.
fn adopt_fields(schema: &Schema, newer: &[usize], row: &mut Row) {
    for index in newer {
        let column = &schema.columns()[*index];
        let fits = |tree: &Json| Value::from_json(column.column_type, tree.to_json()).ok();
        if let Some(value) = row.open.get(&column.name).and_then(fits) {
            row.values[*index] = value;
            row.open.remove(&column.name);
        }
    }
}

/// About how many bytes a value takes, and seldom less than it does: so a row is written without being moved.
fn room_for(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        Value::Text(text) => 4 + text.len(),
        Value::Bytes(bytes) => 4 + bytes.len(),
        Value::Uuid(_) | Value::Decimal(_) | Value::Interval(_) => 20,
        Value::Json(_) => 64,
        _ => 10,
    }
}

fn encode_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => unreachable!("nulls are bits, not bytes"),
        Value::Int(number) => put_signed(out, (*number).into()),
        Value::Float(number) => out.extend_from_slice(&number.to_bits().to_le_bytes()),
        Value::Decimal(number) => {
            out.push(number.scale() as u8);
            put_signed(out, number.mantissa());
        }
        Value::Text(text) => put_bytes(out, text.as_bytes()),
        Value::Bytes(bytes) => put_bytes(out, bytes),
        Value::Bool(truth) => out.push(u8::from(*truth)),
        Value::Date(days) => put_signed(out, (*days).into()),
        Value::Timestamp(micros) => out.extend_from_slice(&micros.to_le_bytes()),
        Value::Json(tree) => tree.encode(out),
        Value::Uuid(bytes) => out.extend_from_slice(bytes),
        Value::Time(micros) => put_signed(out, (*micros).into()),
        Value::Interval(Interval { months, days, micros }) => {
            let parts: [i64; 3] = [(*months).into(), (*days).into(), *micros];
            parts.iter().for_each(|part| put_signed(out, (*part).into()));
        }
    }
}

fn decode_value(input: &mut Input<'_>, column_type: ColumnType) -> Option<Value> {
    Some(match column_type {
        ColumnType::Int => Value::Int(input.signed()?.try_into().ok()?),
        ColumnType::Float => Value::Float(f64::from_bits(u64::from_le_bytes(input.array()?))),
        ColumnType::Decimal => {
            let scale = input.byte()?;
            Value::Decimal(Decimal::new(input.signed()?, scale.into())?)
        }
        ColumnType::Text => Value::Text(input.text()?.to_string()),
        ColumnType::Bytes => Value::Bytes(input.bytes()?.to_vec()),
        ColumnType::Bool => Value::Bool(match input.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        }),
        ColumnType::Date => Value::Date(input.signed()?.try_into().ok()?),
        ColumnType::Timestamp => Value::Timestamp(i64::from_le_bytes(input.array()?)),
        ColumnType::Json => Value::Json(Json::decode(input)?),
        ColumnType::Uuid => Value::Uuid(input.array()?),
        ColumnType::Time => {
            let micros: i64 = input.signed()?.try_into().ok()?;
            Value::Time((0..=MICROS_PER_DAY).contains(&micros).then_some(micros)?)
        }
        ColumnType::Interval => {
            let (months, days) = (input.signed()?.try_into().ok()?, input.signed()?.try_into().ok()?);
            Value::Interval(Interval { months, days, micros: input.signed()?.try_into().ok()? })
        }
    })
}

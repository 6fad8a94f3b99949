//! Keys as bytes whose order is the order of the values.
//!
//! Each column is a tag byte and a payload; a key is its columns one after the other. No encoded column is
//! the beginning of another one, so comparing whole keys byte by byte compares column by column.
//!
//! | value | tag | payload |
//! | --- | --- | --- |
//! | null | `02` | none |
//! | int | `10` | 8 bytes big-endian, sign bit flipped |
//! | float | `18` | 8 bytes big-endian, sign bit flipped, all bits if negative; -0 as 0, any NaN as one, last |
//! | decimal | `20` | see [`decimal layout`](#decimals) |
//! | text | `28` | UTF-8, a zero byte as `00 FF`, then `00 01` |
//! | bytes | `30` | like text |
//! | bool | `38` | `00` or `01` |
//! | date | `40` | 4 bytes like an int |
//! | timestamp | `48` | like an int |
//! | uuid | `50` | 16 bytes |
//! | time | `58` | like an int |
//!
//! # Decimals
//!
//! A sign byte: `01` negative, `02` zero, `03` positive. For all but zero, of the number as 0.DIGITS x
//! 10^exponent: one byte exponent + 128, then two digits a byte as their number + 1, trailing zeros left out,
//! then `00`. Of a negative number all bytes after the sign are inverted.

use super::clock::MICROS_PER_DAY;
use super::codec::Input;
use super::decimal::{Decimal, MAX_DIGITS};
use super::row::Row;
use super::schema::{Column, Schema};
use super::value::{ColumnType, Value};
use crate::engine::MAX_KEY_BYTES;

/// The longest encoded key: a stored key has one more byte in front, its space.
pub const MAX_ENCODED_KEY_BYTES: usize = MAX_KEY_BYTES - 1;

/// Why a key cannot be encoded or decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyError {
    /// Not as many values as the key has columns.
    #[error("the key has {expected} columns, but {given} values were given")]
    WrongCount {
        /// How many the key has.
        expected: usize,
        /// How many came.
        given: usize,
    },
    /// A value of another type.
    #[error("the key column `{column}` is of type {expected}, not {found}")]
    WrongType {
        /// The column.
        column: String,
        /// Its type.
        expected: ColumnType,
        /// The value's type.
        found: ColumnType,
    },
    /// No value where one must be.
    #[error("the key column `{column}` must have a value")]
    Null {
        /// The column.
        column: String,
    },
    /// Longer than can be stored.
    #[error("the key is {bytes} bytes long, but at most {MAX_ENCODED_KEY_BYTES} can be stored")]
    TooLong {
        /// How long it is, or how long the part is that is already too long.
        bytes: usize,
    },
    /// Bytes that are no key of this schema.
    #[error("the stored key is damaged: {0}")]
    Damaged(&'static str),
}

pub(crate) const NULL: u8 = 0x02;
const NEGATIVE: u8 = 1;
const ZERO: u8 = 2;
const POSITIVE: u8 = 3;

/// The bytes of a whole key. `values` are the key's columns in the order of the key.
pub fn encode_key(schema: &Schema, values: &[Value]) -> Result<Vec<u8>, KeyError> {
    if values.len() != schema.key().len() {
        return Err(KeyError::WrongCount { expected: schema.key().len(), given: values.len() });
    }
    encode_key_prefix(schema, values)
}

/// The bytes that all keys begin with whose first columns are `values`. No values: no bytes.
pub fn encode_key_prefix(schema: &Schema, values: &[Value]) -> Result<Vec<u8>, KeyError> {
    if values.len() > schema.key().len() {
        return Err(KeyError::WrongCount { expected: schema.key().len(), given: values.len() });
    }
    encode_columns(schema.key_columns().zip(values))
}

/// The bytes of a row's key. The row has a value for each column of the schema.
pub fn encode_row_key(schema: &Schema, row: &Row) -> Result<Vec<u8>, KeyError> {
    if row.values.len() != schema.columns().len() {
        return Err(KeyError::WrongCount { expected: schema.columns().len(), given: row.values.len() });
    }
    encode_columns(schema.key().iter().map(|index| (&schema.columns()[*index], &row.values[*index])))
}

/// The values of a key's columns, in the order of the key.
pub fn decode_key(schema: &Schema, key: &[u8]) -> Result<Vec<Value>, KeyError> {
    let mut input = Input::new(key);
    let decode = |column: &Column| decode_column(&mut input, column.column_type);
    let values = schema.key_columns().map(decode).collect::<Result<_, _>>()?;
    if input.left() > 0 {
        return Err(KeyError::Damaged("there are bytes after the last column"));
    }
    Ok(values)
}

/// The smallest bytes above everything that begins with `prefix`: the end of its range. Empty if there is no
/// end.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The length of the first `count` columns of an encoded key, found without decoding them.
pub(crate) fn columns_length(key: &[u8], count: usize) -> Result<usize, KeyError> {
    let mut at = 0;
    for _ in 0..count {
        let rest = key.get(at..).unwrap_or(&[]);
        let (tag, payload) = rest.split_first().ok_or(KeyError::Damaged("it ends too early"))?;
        let length = match *tag {
            NULL => Some(0),
            0x10 | 0x18 | 0x48 | 0x58 => Some(8),
            0x50 => Some(16),
            0x40 => Some(4),
            0x38 => Some(1),
            0x20 => decimal_length(payload),
            0x28 | 0x30 => escaped_length(payload),
            _ => return Err(KeyError::Damaged("unknown type of column")),
        };
        at += 1 + length.ok_or(KeyError::Damaged("it ends too early"))?;
    }
    if at > key.len() { Err(KeyError::Damaged("it ends too early")) } else { Ok(at) }
}

/// Appends a value of any type that may be in a key, null included, for whoever knows the columns' types
/// already.
pub(crate) fn encode_any(out: &mut Vec<u8>, value: &Value) -> Result<(), KeyError> {
    if matches!(value, Value::Json(_)) {
        return Err(KeyError::Damaged("json cannot be in a key"));
    }
    encode_value(out, value)?;
    if out.len() > MAX_ENCODED_KEY_BYTES { Err(KeyError::TooLong { bytes: out.len() }) } else { Ok(()) }
}

fn encode_columns<'a>(pairs: impl Iterator<Item = (&'a Column, &'a Value)>) -> Result<Vec<u8>, KeyError> {
    let mut out = Vec::with_capacity(64);
    for (column, value) in pairs {
        if !column.accepts(value) {
            let name = column.name.clone();
            return Err(match value.column_type() {
                None => KeyError::Null { column: name },
                Some(found) => KeyError::WrongType { column: name, expected: column.column_type, found },
            });
        }
        encode_value(&mut out, value)?;
        if out.len() > MAX_ENCODED_KEY_BYTES {
            return Err(KeyError::TooLong { bytes: out.len() });
        }
    }
    Ok(out)
}

fn tag(column_type: ColumnType) -> u8 {
    match column_type {
        ColumnType::Int => 0x10,
        ColumnType::Float => 0x18,
        ColumnType::Decimal => 0x20,
        ColumnType::Text => 0x28,
        ColumnType::Bytes => 0x30,
        ColumnType::Bool => 0x38,
        ColumnType::Date => 0x40,
        ColumnType::Timestamp => 0x48,
        ColumnType::Uuid => 0x50,
        ColumnType::Time => 0x58,
        ColumnType::Json | ColumnType::Interval => unreachable!("a schema has no key column of such a type"),
    }
}

fn encode_value(out: &mut Vec<u8>, value: &Value) -> Result<(), KeyError> {
    out.push(value.column_type().map_or(NULL, tag));
    match value {
        Value::Null => {}
        Value::Int(number) | Value::Timestamp(number) | Value::Time(number) => {
            out.extend_from_slice(&((*number as u64) ^ (1 << 63)).to_be_bytes());
        }
        Value::Float(number) => out.extend_from_slice(&ordered_bits(*number).to_be_bytes()),
        Value::Decimal(number) => encode_decimal(out, *number),
        Value::Text(text) => encode_escaped(out, text.as_bytes())?,
        Value::Bytes(bytes) => encode_escaped(out, bytes)?,
        Value::Bool(truth) => out.push(u8::from(*truth)),
        Value::Date(days) => out.extend_from_slice(&((*days as u32) ^ (1 << 31)).to_be_bytes()),
        Value::Uuid(bytes) => out.extend_from_slice(bytes),
        Value::Json(_) | Value::Interval(_) => unreachable!("a schema has no key column of such a type"),
    }
    Ok(())
}

fn decode_column(input: &mut Input<'_>, column_type: ColumnType) -> Result<Value, KeyError> {
    let found = input.byte().ok_or(KeyError::Damaged("it ends too early"))?;
    if found == NULL {
        return Ok(Value::Null);
    }
    if found != tag(column_type) {
        return Err(KeyError::Damaged("a column is of another type"));
    }
    let value = match column_type {
        ColumnType::Int => decode_int(input).map(Value::Int),
        ColumnType::Timestamp => decode_int(input).map(Value::Timestamp),
        ColumnType::Float => input.array().map(|bytes| Value::Float(float_of(u64::from_be_bytes(bytes)))),
        ColumnType::Decimal => decode_decimal(input).map(Value::Decimal),
        ColumnType::Text => {
            decode_escaped(input).and_then(|bytes| String::from_utf8(bytes).ok()).map(Value::Text)
        }
        ColumnType::Bytes => decode_escaped(input).map(Value::Bytes),
        ColumnType::Bool => input.byte().filter(|byte| *byte <= 1).map(|byte| Value::Bool(byte == 1)),
        ColumnType::Date => {
            input.array().map(|bytes| Value::Date((u32::from_be_bytes(bytes) ^ (1 << 31)) as i32))
        }
        ColumnType::Uuid => input.array().map(Value::Uuid),
        ColumnType::Time => {
            decode_int(input).filter(|micros| (0..=MICROS_PER_DAY).contains(micros)).map(Value::Time)
        }
        ColumnType::Json | ColumnType::Interval => None,
    };
    value.ok_or(KeyError::Damaged("a column's bytes make no value"))
}

fn decode_int(input: &mut Input<'_>) -> Option<i64> {
    input.array().map(|bytes| (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64)
}

/// The bits of a float in the order of floats: larger numbers have larger bits.
fn ordered_bits(number: f64) -> u64 {
    let canonical = if number == 0.0 {
        0.0
    } else if number.is_nan() {
        f64::from_bits(0x7ff8 << 48)
    } else {
        number
    };
    let bits = canonical.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn float_of(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

fn encode_decimal(out: &mut Vec<u8>, number: Decimal) {
    let negative = number.mantissa() < 0;
    if number.mantissa() == 0 {
        return out.push(ZERO);
    }
    out.push(if negative { NEGATIVE } else { POSITIVE });
    let start = out.len();
    let (exponent, mut digits) = number.scientific();
    out.push((exponent + 128) as u8);
    let mut unit = 10u128.pow(MAX_DIGITS - 2);
    while digits > 0 {
        out.push((digits / unit) as u8 + 1);
        digits %= unit;
        unit /= 100;
    }
    out.push(0);
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn decode_decimal(input: &mut Input<'_>) -> Option<Decimal> {
    let (negative, mask) = match input.byte()? {
        ZERO => return Some(Decimal::ZERO),
        NEGATIVE => (true, 0xff),
        POSITIVE => (false, 0),
        _ => return None,
    };
    let exponent = i32::from(input.byte()? ^ mask) - 128;
    let mut digits = 0u128;
    let mut unit = 10u128.pow(MAX_DIGITS);
    loop {
        match input.byte()? ^ mask {
            0 => return Decimal::from_scientific(negative, exponent, digits),
            pair @ 1..=100 if unit > 1 => {
                unit /= 100;
                digits += u128::from(pair - 1) * unit;
            }
            _ => return None,
        }
    }
}

/// The length of a decimal's payload.
fn decimal_length(payload: &[u8]) -> Option<usize> {
    let end = match *payload.first()? {
        ZERO => return Some(1),
        NEGATIVE => 0xff,
        POSITIVE => 0,
        _ => return None,
    };
    let digits = payload.get(2..)?;
    digits.iter().position(|byte| *byte == end).map(|at| at + 3)
}

fn encode_escaped(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), KeyError> {
    // Nothing is copied that could not be stored anyhow.
    if bytes.len() > MAX_ENCODED_KEY_BYTES {
        return Err(KeyError::TooLong { bytes: bytes.len() });
    }
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
    Ok(())
}

fn decode_escaped(input: &mut Input<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match input.byte()? {
            0 => match input.byte()? {
                1 => return Some(bytes),
                0xff => bytes.push(0),
                _ => return None,
            },
            byte => bytes.push(byte),
        }
    }
}

/// The length of an escaped payload, its terminator included.
fn escaped_length(payload: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += payload.get(at..)?.iter().position(|byte| *byte == 0)? + 2;
        if *payload.get(at - 1)? == 1 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(types: &[ColumnType]) -> Schema {
        let columns =
            types.iter().enumerate().map(|(index, column)| Column::new(format!("c{index}"), *column));
        let names: Vec<String> = (0..types.len()).map(|index| format!("c{index}")).collect();
        Schema::new(columns.collect(), &names, 1, false).expect("valid")
    }

    /// The layout is on disk: it must not change by accident.
    #[test]
    fn the_layout_stays_as_it_is() {
        let decimal = |text: &str| Value::Decimal(text.parse().expect("decimal"));
        let cases: [(Value, ColumnType, &[u8]); 15] = [
            (Value::Null, ColumnType::Int, &[0x02]),
            (Value::Int(1), ColumnType::Int, &[0x10, 0x80, 0, 0, 0, 0, 0, 0, 1]),
            (Value::Int(-1), ColumnType::Int, &[0x10, 0x7f, 255, 255, 255, 255, 255, 255, 255]),
            (Value::Float(-0.0), ColumnType::Float, &[0x18, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            (Value::Float(1.0), ColumnType::Float, &[0x18, 0xbf, 0xf0, 0, 0, 0, 0, 0, 0]),
            (decimal("0"), ColumnType::Decimal, &[0x20, 2]),
            (decimal("123.45"), ColumnType::Decimal, &[0x20, 3, 131, 13, 35, 51, 0]),
            (decimal("-123.45"), ColumnType::Decimal, &[0x20, 1, !131, !13, !35, !51, !0]),
            (Value::from("a\0b"), ColumnType::Text, &[0x28, b'a', 0, 0xff, b'b', 0, 1]),
            (Value::Bytes(vec![255]), ColumnType::Bytes, &[0x30, 255, 0, 1]),
            (Value::Bool(true), ColumnType::Bool, &[0x38, 1]),
            (Value::Date(-1), ColumnType::Date, &[0x40, 0x7f, 255, 255, 255]),
            (Value::Timestamp(0), ColumnType::Timestamp, &[0x48, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            (Value::Uuid([7; 16]), ColumnType::Uuid, &[0x50, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]),
            (Value::Time(1), ColumnType::Time, &[0x58, 0x80, 0, 0, 0, 0, 0, 0, 1]),
        ];
        for (value, column_type, bytes) in cases {
            let schema = schema(&[column_type]);
            let key = encode_key(&schema, std::slice::from_ref(&value)).expect("encodes");
            assert_eq!(key, bytes, "{value}");
            assert_eq!(decode_key(&schema, &key), Ok(vec![value]));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_in_a_sentence() {
        let two = schema(&[ColumnType::Int, ColumnType::Text]);
        let error = |values: &[Value]| encode_key(&two, values).expect_err("refused").to_string();
        assert_eq!(error(&[Value::Int(1)]), "the key has 2 columns, but 1 values were given");
        assert_eq!(error(&["x".into(), "x".into()]), "the key column `c0` is of type int, not text");
        let strict = Schema::new(vec![Column::new("id", ColumnType::Int).not_null()], &["id"], 1, false);
        let error = encode_key(&strict.expect("valid"), &[Value::Null]).expect_err("refused");
        assert_eq!(error.to_string(), "the key column `id` must have a value");
    }

    #[test]
    fn the_longest_key_is_kept_and_a_longer_one_refused() {
        let text = schema(&[ColumnType::Text]);
        let longest = "x".repeat(MAX_ENCODED_KEY_BYTES - 3);
        let key = encode_key(&text, &[longest.as_str().into()]).expect("fits");
        assert_eq!(key.len(), 32 * 1024 - 1);
        let longer = longest + "x";
        assert_eq!(encode_key(&text, &[longer.as_str().into()]), Err(KeyError::TooLong { bytes: 32 * 1024 }));
        let huge = Value::Bytes(vec![0; 1 << 20]);
        let bytes = schema(&[ColumnType::Bytes]);
        assert_eq!(encode_key(&bytes, &[huge]), Err(KeyError::TooLong { bytes: 1 << 20 }));
    }

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(prefix_end(b"ab"), b"ac");
        assert_eq!(prefix_end(&[1, 255, 255]), [2]);
        assert_eq!(prefix_end(&[255, 255]), [0u8; 0]);
        assert_eq!(prefix_end(&[]), [0u8; 0]);
    }
}

//! Values as the evaluating engine keeps them: so that its own comparison is the type's order.
//!
//! | type | kept as |
//! | --- | --- |
//! | boolean, integer, bigint, date, time, timestamptz | integer |
//! | text, json | text, ordered by bytes |
//! | bytea, uuid | bytes |
//! | interval | bytes: how long it is, by which intervals are compared, then its months and days |
//! | double precision, numeric | the bytes of a key (`types::data::key`), whose order is the order of the numbers, NaN last |

use crate::ty::Ty;
use pg::{Failure, code};
use rusqlite::types::{Value as Kept, ValueRef};
use std::sync::OnceLock;
use types::data::{Column, ColumnType, Interval, Json, Schema, Value, decode_key, encode_key};

fn schema(of: ColumnType) -> &'static Schema {
    static FLOAT: OnceLock<Schema> = OnceLock::new();
    static DECIMAL: OnceLock<Schema> = OnceLock::new();
    let one = if of == ColumnType::Float { &FLOAT } else { &DECIMAL };
    one.get_or_init(|| Schema::new(vec![Column::new("n", of)], &["n"], 1, false).expect("one column"))
}

/// How many bytes of a kept interval say how long it is.
pub const LENGTH_BYTES: usize = 16;

fn interval(bytes: &[u8]) -> Option<Value> {
    let bytes: &[u8; LENGTH_BYTES + 8] = bytes.try_into().ok()?;
    let (length, parts) = bytes.split_at(LENGTH_BYTES);
    let length = (u128::from_be_bytes(length.try_into().ok()?) ^ 1 << 127) as i128;
    let word = |at: usize| Some(i32::from_be_bytes(parts[at..at + 4].try_into().ok()?));
    let whole = Interval { months: word(0)?, days: word(4)?, micros: 0 };
    let micros = i64::try_from(length - whole.length()).ok()?;
    Some(Value::Interval(Interval { micros, ..whole }))
}

/// A value as the engine keeps it.
pub fn encode(value: &Value) -> Kept {
    match value {
        Value::Null => Kept::Null,
        Value::Int(number) | Value::Timestamp(number) | Value::Time(number) => Kept::Integer(*number),
        Value::Bool(truth) => Kept::Integer((*truth).into()),
        Value::Date(days) => Kept::Integer((*days).into()),
        Value::Text(text) => Kept::Text(text.clone()),
        Value::Json(tree) => Kept::Text(tree.to_string()),
        Value::Bytes(bytes) => Kept::Blob(bytes.clone()),
        Value::Uuid(bytes) => Kept::Blob(bytes.to_vec()),
        Value::Interval(interval) => {
            let length = interval.length() as u128 ^ 1 << 127;
            let (months, days) = (interval.months.to_be_bytes(), interval.days.to_be_bytes());
            Kept::Blob([&length.to_be_bytes()[..], &months, &days].concat())
        }
        Value::Float(_) | Value::Decimal(_) => {
            let of = value.column_type().expect("not null");
            Kept::Blob(
                encode_key(schema(of), std::slice::from_ref(value)).expect("a number makes a short key"),
            )
        }
    }
}

/// What the engine has kept, as a value of the type.
pub fn decode(kept: ValueRef<'_>, ty: Ty) -> Result<Value, Failure> {
    let wrong = || {
        let message = format!("the engine gave {} for {}", kept.data_type(), ty.name());
        Failure::new(code::INTERNAL, message)
    };
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| wrong());
    Ok(match (kept, ty) {
        (ValueRef::Null, _) => Value::Null,
        (ValueRef::Integer(number), Ty::Bool) => Value::Bool(number != 0),
        (ValueRef::Integer(number), ty) if ty.column() == ColumnType::Int => Value::Int(number),
        (ValueRef::Integer(number), Ty::Date) => Value::Date(i32::try_from(number).map_err(|_| wrong())?),
        (ValueRef::Integer(number), Ty::Timestamp | Ty::Timestamptz) => Value::Timestamp(number),
        (ValueRef::Text(bytes), ty) if ty.column() == ColumnType::Text => {
            Value::Text(text(bytes)?.to_string())
        }
        (ValueRef::Text(bytes), Ty::Json) => Value::Json(Json::parse(text(bytes)?).map_err(|_| wrong())?),
        (ValueRef::Integer(number), Ty::Time) => Value::Time(number),
        (ValueRef::Blob(bytes), Ty::Bytea) => Value::Bytes(bytes.to_vec()),
        (ValueRef::Blob(bytes), Ty::Uuid) => Value::Uuid(bytes.try_into().map_err(|_| wrong())?),
        (ValueRef::Blob(bytes), Ty::Interval) => interval(bytes).ok_or_else(wrong)?,
        (ValueRef::Blob(bytes), Ty::Float4 | Ty::Float8 | Ty::Numeric) => {
            let mut values = decode_key(schema(ty.column()), bytes).map_err(|_| wrong())?;
            values.pop().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    })
}

//! Casts between types, as PostgreSQL does them.

use super::numeric;
use crate::ty::Ty;
use pg::{Failure, code};
use types::data::{ColumnType, Decimal, Interval, Value};

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// True if there is a cast that can be written.
pub fn exists(from: Ty, to: Ty) -> bool {
    use Ty::*;
    from == to
        || from == Text
        || to == Text
        || to == Bpchar
        || (from.is_number() && to.is_number())
        || from.becomes(to)
        || (from.is_textual() && to.is_textual() && from != Member && to != Member)
        || matches!(
            (from, to),
            (Oid, Int4 | Int8 | Xid) | (Regproc | Regclass | Regtype | Regnamespace, Int4 | Int8)
        )
        || (matches!(from, Oid | Int4 | Int8) && to.is_reg())
        || matches!((from.element(), to.element()), (Some(from), Some(to)) if exists(from, to))
        || matches!(
            (from, to),
            (Bool, Int4)
                | (Int4, Bool)
                | (Date | Timestamptz, Timestamp)
                | (Timestamp | Timestamptz, Date | Time)
                | (Time, Interval)
                | (Interval, Time)
        )
}

/// The value as one of another type. Null stays null.
pub fn cast(value: Value, from: Ty, to: Ty) -> Result<Value, Failure> {
    let value = match (value, to) {
        (Value::Null, _) => return Ok(Value::Null),
        (value, to) if from == to => return check(value, to),
        (Value::Bool(truth), Ty::Text) => Value::Text(truth.to_string()),
        (value, Ty::Text | Ty::Bpchar) => {
            let mut text = String::new();
            pg::text::write_as(&mut text, from.kind(), &value);
            if to == Ty::Bpchar { pg::text::parse(to.kind(), &text)? } else { Value::Text(text) }
        }
        (Value::Text(text), to) if from.element().is_some() && to.element().is_some() => {
            elements(&text, from, to)?
        }
        (Value::Text(text), to) => pg::text::parse(to.kind(), &text)?,
        (Value::Bool(truth), Ty::Int4) => Value::Int(truth.into()),
        (Value::Int(number), Ty::Bool) => Value::Bool(number != 0),
        // PostgreSQL takes its bits.
        (Value::Int(number), Ty::Oid) if matches!(from, Ty::Int2 | Ty::Int4) => {
            Value::Int((number as u32).into())
        }
        (Value::Int(number), to) if to.column() == ColumnType::Int => Value::Int(number),
        (Value::Int(number), Ty::Numeric) => Value::Decimal(Decimal::from(number)),
        (Value::Int(number), Ty::Float4) => real(number as f64)?,
        (Value::Int(number), Ty::Float8) => Value::Float(number as f64),
        (Value::Decimal(number), Ty::Int2 | Ty::Int4 | Ty::Int8) => {
            Value::Int(numeric::to_int(number).ok_or_else(|| out_of_range(to))?)
        }
        (Value::Decimal(number), Ty::Float4) => real(number.to_f64())?,
        (Value::Decimal(number), Ty::Float8) => Value::Float(number.to_f64()),
        (Value::Float(number), Ty::Int2 | Ty::Int4 | Ty::Int8) => {
            // Halves go to the even neighbour; 2^63 itself is one too many.
            let whole = number.round_ties_even();
            let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&whole);
            Value::Int(if fits { whole as i64 } else { return Err(out_of_range(to)) })
        }
        (Value::Float(number), Ty::Float4) => real(number)?,
        (Value::Float(number), Ty::Float8) => Value::Float(number),
        (Value::Float(number), Ty::Numeric) => Value::Decimal(numeric::from_float(number)?),
        (moment @ Value::Timestamp(_), Ty::Timestamp | Ty::Timestamptz) => moment,
        (Value::Date(days), Ty::Timestamp | Ty::Timestamptz) => {
            Value::Timestamp(i64::from(days).checked_mul(MICROS_PER_DAY).ok_or_else(|| out_of_range(to))?)
        }
        (Value::Timestamp(micros), Ty::Time) => Value::Time(micros.rem_euclid(MICROS_PER_DAY)),
        (Value::Time(micros), Ty::Interval) => Value::Interval(Interval { micros, ..Interval::default() }),
        (Value::Interval(interval), Ty::Time) => Value::Time(interval.micros.rem_euclid(MICROS_PER_DAY)),
        (Value::Timestamp(micros), Ty::Date) => Value::Date(micros.div_euclid(MICROS_PER_DAY) as i32),
        (value, to) => {
            let from = value.column_type().map_or("null", |of| of.name());
            return Err(Failure::new("42846", format!("cannot cast type {from} to {}", to.name())));
        }
    };
    check(value, to)
}

/// An array's elements, each cast.
fn elements(text: &str, from: Ty, to: Ty) -> Result<Value, Failure> {
    let (Some(one), Some(two)) = (from.element(), to.element()) else {
        return Err(super::mistyped(&[Value::Text(text.into())]));
    };
    let mut elements = pg::arrays::elements(from.kind(), text)?;
    for element in elements.iter_mut().flatten() {
        let value = cast(pg::text::parse(one.kind(), element)?, one, two)?;
        element.clear();
        pg::text::write_as(element, two.kind(), &value);
    }
    Ok(Value::Text(pg::arrays::render(to.kind(), &elements)))
}

/// A number as one of 32 bits.
pub fn real(number: f64) -> Result<Value, Failure> {
    let kept = number as f32;
    if kept.is_infinite() && number.is_finite() {
        return Err(Failure::new(code::OUT_OF_RANGE, "value out of range: overflow"));
    }
    if kept == 0.0 && number != 0.0 {
        return Err(Failure::new(code::OUT_OF_RANGE, "value out of range: underflow"));
    }
    Ok(Value::Float(kept.into()))
}

fn check(value: Value, to: Ty) -> Result<Value, Failure> {
    match value {
        Value::Int(number) if !pg::text::fits(to.kind(), number) => Err(out_of_range(to)),
        value => Ok(value),
    }
}

/// The error of a number that the type does not hold.
pub fn out_of_range(ty: Ty) -> Failure {
    Failure::new(code::OUT_OF_RANGE, format!("{} out of range", ty.name()))
}

//! Functions that the engine calls for each row, and aggregates.

use super::encode::{decode, encode};
use super::{FLAGS, failed};
use crate::eval::{self, cast, numeric};
use crate::system;
use crate::ty::Ty;
use pg::{Failure, code};
use rusqlite::functions::{Aggregate, Context, FunctionFlags, WindowAggregate};
use rusqlite::types::{Value as Kept, ValueRef};
use rusqlite::{Connection, Error, Result};
use std::collections::VecDeque;
use types::TableId;
use types::data::{Decimal, Value};

/// Makes every function known to a connection.
pub fn register(connection: &Connection) -> Result<()> {
    for (id, function) in eval::all().iter().enumerate() {
        let name = format!("f{id}_");
        let call = move |context: &Context<'_>| scalar(context, id, function);
        connection.create_scalar_function(&*name, function.arguments.len() as i32, FLAGS, call)?;
    }
    // They look at more than their arguments.
    let flags = FLAGS.difference(FunctionFlags::SQLITE_DETERMINISTIC);
    for (id, function) in system::functions::all().iter().enumerate() {
        let name = format!("s{id}_");
        let call = move |context: &Context<'_>| asking(context, function);
        connection.create_scalar_function(&*name, function.arguments.len() as i32, flags, call)?;
    }
    connection.create_scalar_function("random_", 1, flags, |context| {
        // The upper 53 of 64 random bits.
        let number = (context.get::<i64>(0)? as u64 >> 11) as f64 / (1_u64 << 53) as f64;
        Ok(encode(&Value::Float(number)))
    })?;
    connection.create_scalar_function("float_", 1, FLAGS, |context| {
        Ok(encode(&Value::Float(context.get::<f64>(0)?)))
    })?;
    connection.create_scalar_function("free_", 2, flags, free)?;
    connection.create_scalar_function("uuid_", 1, flags, |_| Ok(encode(&eval::random_uuid())))?;
    connection.create_scalar_function("convert_", 3, FLAGS, convert)?;
    connection
        .create_scalar_function("limit_", 1, FLAGS, |context| row_count(context, "LIMIT", -1, "2201W"))?;
    connection
        .create_scalar_function("offset_", 1, FLAGS, |context| row_count(context, "OFFSET", 0, "2201X"))?;
    connection.create_aggregate_function("one_", 1, FLAGS, One)?;
    connection.create_window_function(
        "sum_int4_",
        1,
        FLAGS,
        Sum { ty: Ty::Int4, result: Ty::Int8, mean: false },
    )?;
    connection.create_window_function(
        "sum_int8_",
        1,
        FLAGS,
        Sum { ty: Ty::Int8, result: Ty::Numeric, mean: false },
    )?;
    let numbers = |mean| Sum { ty: Ty::Numeric, result: Ty::Numeric, mean };
    connection.create_window_function("sum_numeric_", 1, FLAGS, numbers(false))?;
    connection.create_window_function("avg_numeric_", 1, FLAGS, numbers(true))?;
    connection.create_window_function(
        "avg_int_",
        1,
        FLAGS,
        Sum { ty: Ty::Int8, result: Ty::Numeric, mean: true },
    )?;
    connection.create_aggregate_function("sum_float_", 1, FLAGS, SumFloat { mean: false })?;
    connection.create_window_function("moving_sum_float_", 1, FLAGS, MovingFloat { mean: false })?;
    connection.create_aggregate_function("avg_float_", 1, FLAGS, SumFloat { mean: true })?;
    connection.create_window_function("moving_avg_float_", 1, FLAGS, MovingFloat { mean: true })?;
    connection.create_aggregate_function("string_agg_", 2, FLAGS, StringAgg)
}

/// True if no other session of this node has a row: its key, and its table's id. No row is nobody's.
fn free(context: &Context<'_>) -> Result<bool> {
    let Some(key) = context.get::<Option<Vec<u8>>>(0)? else { return Ok(true) };
    let row = (TableId(context.get::<u32>(1)?), key.into());
    super::with_facts(|facts| Ok(facts.asker.held.as_ref().is_none_or(|held| held.may_have(&row))))
        .map_err(failed)
}

fn scalar(context: &Context<'_>, id: usize, function: &eval::Function) -> Result<Kept> {
    let mut arguments = Vec::with_capacity(function.arguments.len());
    for (at, ty) in function.arguments.iter().enumerate() {
        match context.get_raw(at) {
            ValueRef::Null => return Ok(Kept::Null),
            kept => arguments.push(decode(kept, *ty).map_err(failed)?),
        }
    }
    eval::call(id, &arguments).map(|value| encode(&value)).map_err(failed)
}

fn asking(context: &Context<'_>, function: &system::functions::Asking) -> Result<Kept> {
    let mut arguments = Vec::with_capacity(function.arguments.len());
    for (at, ty) in function.arguments.iter().enumerate() {
        let value = decode(context.get_raw(at), *ty).map_err(failed)?;
        if value.is_null() && function.strict {
            return Ok(Kept::Null);
        }
        arguments.push(value);
    }
    super::with_facts(|facts| (function.eval)(facts, &arguments)).map(|value| encode(&value)).map_err(failed)
}

fn convert(context: &Context<'_>) -> Result<Kept> {
    let (from, to) = (super::arrays::ty(context, 1)?, super::arrays::ty(context, 2)?);
    let value = decode(context.get_raw(0), from).map_err(failed)?;
    cast::cast(value, from, to).map(|value| encode(&value)).map_err(failed)
}

fn row_count(context: &Context<'_>, place: &str, none: i64, code: &'static str) -> Result<i64> {
    match context.get::<Option<i64>>(0)? {
        None => Ok(none),
        Some(count) if count < 0 => Err(failed(Failure::new(code, format!("{place} must not be negative")))),
        Some(count) => Ok(count),
    }
}

/// The only row of a subquery.
struct One;

impl Aggregate<Option<Kept>, Kept> for One {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<Kept>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, found: &mut Option<Kept>) -> Result<()> {
        if found.is_some() {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(failed(Failure::new("21000", message)));
        }
        *found = Some(context.get::<Kept>(0)?);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, found: Option<Option<Kept>>) -> Result<Kept> {
        Ok(found.flatten().unwrap_or(Kept::Null))
    }
}

/// Sums and means of exact numbers.
struct Sum {
    ty: Ty,
    result: Ty,
    mean: bool,
}

impl Sum {
    fn number(&self, context: &Context<'_>) -> Result<Option<Decimal>> {
        match decode(context.get_raw(0), self.ty).map_err(failed)? {
            Value::Null => Ok(None),
            Value::Int(number) => Ok(Some(Decimal::from(number))),
            Value::Decimal(number) => Ok(Some(number)),
            _ => Err(Error::InvalidQuery),
        }
    }

    fn result(&self, (sum, count): (Decimal, i64)) -> Result<Kept> {
        let result = match (count, self.mean) {
            (0, _) => Ok(Value::Null),
            (count, true) => numeric::divide(sum, Decimal::from(count)).map(Value::Decimal),
            (_, false) => cast::cast(Value::Decimal(sum), Ty::Numeric, self.result),
        };
        result.map(|value| encode(&value)).map_err(failed)
    }
}

impl Aggregate<(Decimal, i64), Kept> for Sum {
    fn init(&self, _: &mut Context<'_>) -> Result<(Decimal, i64)> {
        Ok((Decimal::ZERO, 0))
    }

    fn step(&self, context: &mut Context<'_>, (sum, count): &mut (Decimal, i64)) -> Result<()> {
        let Some(number) = self.number(context)? else { return Ok(()) };
        *sum = numeric::add(*sum, number).map_err(failed)?;
        *count += 1;
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, found: Option<(Decimal, i64)>) -> Result<Kept> {
        self.result(found.unwrap_or((Decimal::ZERO, 0)))
    }
}

impl WindowAggregate<(Decimal, i64), Kept> for Sum {
    fn value(&self, found: Option<&mut (Decimal, i64)>) -> Result<Kept> {
        self.result(found.map_or((Decimal::ZERO, 0), |found| *found))
    }

    fn inverse(&self, context: &mut Context<'_>, (sum, count): &mut (Decimal, i64)) -> Result<()> {
        let Some(number) = self.number(context)? else { return Ok(()) };
        *sum = numeric::subtract(*sum, number).map_err(failed)?;
        *count -= 1;
        Ok(())
    }
}

/// Sums and means of floats.
struct SumFloat {
    mean: bool,
}

/// The floats of a window, oldest first, and their sum if it is known. What leaves the window is not
/// subtracted: the difference need not be the sum of the others.
#[derive(Default)]
struct Floats {
    all: VecDeque<f64>,
    sum: Option<f64>,
}

impl Floats {
    fn sum(&mut self) -> Result<f64> {
        match self.sum {
            Some(sum) => Ok(sum),
            None => {
                let mut numbers = self.all.iter();
                let sum = numbers.try_fold(0.0, |sum, number| added(sum, *number))?;
                self.sum = Some(sum);
                Ok(sum)
            }
        }
    }
}

fn added(sum: f64, number: f64) -> Result<f64> {
    let more = sum + number;
    match more.is_infinite() && sum.is_finite() && number.is_finite() {
        true => Err(failed(Failure::new(code::OUT_OF_RANGE, "value out of range: overflow"))),
        false => Ok(more),
    }
}

impl Aggregate<(f64, u64), Kept> for SumFloat {
    fn init(&self, _: &mut Context<'_>) -> Result<(f64, u64)> {
        Ok((0.0, 0))
    }

    fn step(&self, context: &mut Context<'_>, (sum, count): &mut (f64, u64)) -> Result<()> {
        if let Value::Float(number) = decode(context.get_raw(0), Ty::Float8).map_err(failed)? {
            (*sum, *count) = (added(*sum, number)?, *count + 1);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, found: Option<(f64, u64)>) -> Result<Kept> {
        Ok(match found {
            None | Some((_, 0)) => Kept::Null,
            Some((sum, count)) if self.mean => encode(&Value::Float(sum / count as f64)),
            Some((sum, _)) => encode(&Value::Float(sum)),
        })
    }
}

/// The same over the rows of a window, which come and go.
struct MovingFloat {
    mean: bool,
}

impl MovingFloat {
    fn result(&self, found: Option<&mut Floats>) -> Result<Kept> {
        let Some(found) = found.filter(|found| !found.all.is_empty()) else { return Ok(Kept::Null) };
        let (sum, count) = (found.sum()?, found.all.len());
        Ok(encode(&Value::Float(if self.mean { sum / count as f64 } else { sum })))
    }
}

impl Aggregate<Floats, Kept> for MovingFloat {
    fn init(&self, _: &mut Context<'_>) -> Result<Floats> {
        Ok(Floats { all: VecDeque::new(), sum: Some(0.0) })
    }

    fn step(&self, context: &mut Context<'_>, found: &mut Floats) -> Result<()> {
        if let Value::Float(number) = decode(context.get_raw(0), Ty::Float8).map_err(failed)? {
            found.sum = found.sum.map(|sum| added(sum, number)).transpose()?;
            found.all.push_back(number);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, mut found: Option<Floats>) -> Result<Kept> {
        self.result(found.as_mut())
    }
}

impl WindowAggregate<Floats, Kept> for MovingFloat {
    fn value(&self, found: Option<&mut Floats>) -> Result<Kept> {
        self.result(found)
    }

    fn inverse(&self, context: &mut Context<'_>, found: &mut Floats) -> Result<()> {
        if let Value::Float(_) = decode(context.get_raw(0), Ty::Float8).map_err(failed)? {
            found.all.pop_front();
            found.sum = None;
        }
        Ok(())
    }
}

/// Texts one after the other, each but the first behind its separator.
struct StringAgg;

impl Aggregate<Option<String>, Kept> for StringAgg {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<String>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, all: &mut Option<String>) -> Result<()> {
        let Some(text) = context.get::<Option<String>>(0)? else { return Ok(()) };
        match all {
            None => *all = Some(text),
            Some(all) => {
                all.push_str(&context.get::<Option<String>>(1)?.unwrap_or_default());
                all.push_str(&text);
            }
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, all: Option<Option<String>>) -> Result<Kept> {
        Ok(all.flatten().map_or(Kept::Null, Kept::Text))
    }
}

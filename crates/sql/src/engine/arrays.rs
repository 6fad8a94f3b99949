//! Arrays and numbers of rows, as functions of the engine: their arguments' types come as
//! numbers beside them.

use super::encode::{decode, encode};
use super::{FLAGS, failed};
use crate::eval::cast;
use crate::ty::Ty;
use pg::arrays::{elements, of_value, render};
use pg::{Failure, code};
use rusqlite::functions::{Aggregate, Context};
use rusqlite::types::Value as Kept;
use rusqlite::{Connection, Error, Result};
use std::cmp::Ordering;
use types::data::Value;

/// Makes them known to a connection.
pub fn register(connection: &Connection) -> Result<()> {
    connection.create_scalar_function("len_", 2, FLAGS, |context| {
        Ok(array(context, 0)?.map(|all| all.len() as i64))
    })?;
    connection.create_scalar_function("elem_", 3, FLAGS, element)?;
    connection.create_scalar_function("array_", -1, FLAGS, construct)?;
    connection.create_scalar_function("join_", 4, FLAGS, joined)?;
    connection.create_scalar_function("cat_", 3, FLAGS, concatenated)?;
    connection.create_scalar_function("any_", 7, FLAGS, any)?;
    connection.create_scalar_function("steps_", 3, FLAGS, steps)?;
    connection.create_scalar_function("member_", 2, FLAGS, member)?;
    connection.create_aggregate_function("gather_", 2, FLAGS, Gather)
}

/// A type by its number, which stands at this place.
pub fn ty(context: &Context<'_>, at: usize) -> Result<Ty> {
    let number = context.get::<u8>(at)?;
    Ty::ALL.get(usize::from(number)).copied().ok_or(Error::InvalidQuery)
}

/// An array and, behind it, its type; `None`: null.
fn array(context: &Context<'_>, at: usize) -> Result<Option<Vec<Option<String>>>> {
    let Some(text) = context.get::<Option<String>>(at)? else { return Ok(None) };
    let of = ty(context, at + 1)?;
    elements(of.kind(), &text).map(Some).map_err(failed)
}

fn parsed(of: Ty, text: &str) -> Result<Value> {
    pg::text::parse(of.kind(), text).map_err(failed)
}

/// Array, its type, an index: the element there, or null.
fn element(context: &Context<'_>) -> Result<Kept> {
    let (Some(all), Some(index)) = (array(context, 0)?, context.get::<Option<i64>>(2)?) else {
        return Ok(Kept::Null);
    };
    let of = ty(context, 1)?;
    let at = usize::try_from(index - of.first_index()).ok();
    match at.and_then(|at| all.get(at)).and_then(Option::as_ref) {
        None => Ok(Kept::Null),
        Some(text) => Ok(encode(&parsed(of.element().ok_or(Error::InvalidQuery)?, text)?)),
    }
}

/// The array's type, then its elements.
fn construct(context: &Context<'_>) -> Result<Kept> {
    let of = ty(context, 0)?;
    let element = of.element().ok_or(Error::InvalidQuery)?;
    let mut all = Vec::new();
    for at in 1..context.len() {
        all.push(of_value(&decode(context.get_raw(at), element).map_err(failed)?));
    }
    Ok(Kept::Text(render(of.kind(), &all)))
}

/// Array, its type, what stands between elements, what stands for null (null: nothing does).
fn joined(context: &Context<'_>) -> Result<Kept> {
    let (Some(all), Some(between)) = (array(context, 0)?, context.get::<Option<String>>(2)?) else {
        return Ok(Kept::Null);
    };
    let null = context.get::<Option<String>>(3)?;
    let texts: Vec<String> = all.into_iter().filter_map(|element| element.or_else(|| null.clone())).collect();
    Ok(Kept::Text(texts.join(&between)))
}

/// Two arrays and their type, one behind the other. A null is no elements.
fn concatenated(context: &Context<'_>) -> Result<Kept> {
    let of = ty(context, 2)?;
    let mut all = Vec::new();
    let mut some = false;
    for at in 0..2 {
        if let Some(text) = context.get::<Option<String>>(at)? {
            some = true;
            all.extend(elements(of.kind(), &text).map_err(failed)?);
        }
    }
    Ok(if some { Kept::Text(render(of.kind(), &all)) } else { Kept::Null })
}

/// Value, its type, operator, array, its type, the type that both become, whether all are meant.
fn any(context: &Context<'_>) -> Result<Option<bool>> {
    let Some(all) = array(context, 3)? else { return Ok(None) };
    let (of, common, every) = (ty(context, 4)?, ty(context, 5)?, context.get::<bool>(6)?);
    let operator = context.get::<String>(2)?;
    if all.is_empty() {
        return Ok(Some(every));
    }
    let value = decode(context.get_raw(0), ty(context, 1)?).map_err(failed)?;
    if value.is_null() {
        return Ok(None);
    }
    let kept = encode(&cast::cast(value, ty(context, 1)?, common).map_err(failed)?);
    let element = of.element().ok_or(Error::InvalidQuery)?;
    let mut unknown = false;
    for text in all {
        let Some(text) = text else {
            unknown = true;
            continue;
        };
        let other = encode(&cast::cast(parsed(element, &text)?, element, common).map_err(failed)?);
        let order = ordering(&kept, &other).ok_or(Error::InvalidQuery)?;
        let holds = match operator.as_str() {
            "=" => order.is_eq(),
            "<>" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            ">=" => order.is_ge(),
            _ => return Err(Error::InvalidQuery),
        };
        if holds != every {
            return Ok(Some(holds));
        }
    }
    Ok(if unknown { None } else { Some(every) })
}

fn ordering(one: &Kept, two: &Kept) -> Option<Ordering> {
    Some(match (one, two) {
        (Kept::Integer(one), Kept::Integer(two)) => one.cmp(two),
        (Kept::Text(one), Kept::Text(two)) => one.as_bytes().cmp(two.as_bytes()),
        (Kept::Blob(one), Kept::Blob(two)) => one.cmp(two),
        _ => return None,
    })
}

/// How many numbers there are from one to another in steps.
fn steps(context: &Context<'_>) -> Result<i64> {
    let number = |at| context.get::<Option<i64>>(at);
    let (Some(from), Some(to), Some(step)) = (number(0)?, number(1)?, number(2)?) else { return Ok(0) };
    if step == 0 {
        return Err(failed(Failure::new("22023", "step size cannot equal zero")));
    }
    let distance = i128::from(to) - i128::from(from);
    let steps = distance / i128::from(step);
    let none = (distance < 0) != (step < 0) && distance != 0;
    Ok(if none { 0 } else { i64::try_from(steps + 1).unwrap_or(i64::MAX) })
}

/// A field of a [`Ty::Member`]: 0 the element, 1 its position.
fn member(context: &Context<'_>) -> Result<Option<i64>> {
    let Some(text) = context.get::<Option<String>>(0)? else { return Ok(None) };
    let fields = text.trim_matches(['(', ')']).split(',').nth(usize::from(context.get::<u8>(1)?));
    Ok(fields.and_then(|field| field.parse().ok()))
}

/// The values of a group, and the type of their array, as an array.
struct Gather;

impl Aggregate<Option<(Ty, Vec<Option<String>>)>, Kept> for Gather {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<(Ty, Vec<Option<String>>)>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, all: &mut Option<(Ty, Vec<Option<String>>)>) -> Result<()> {
        let of = ty(context, 1)?;
        let element = of.element().ok_or(Error::InvalidQuery)?;
        let value = decode(context.get_raw(0), element).map_err(failed)?;
        let (_, all) = all.get_or_insert((of, Vec::new()));
        if all.len() >= pg::arrays::MAX_ELEMENTS {
            let message = format!("an array has at most {} elements", pg::arrays::MAX_ELEMENTS);
            return Err(failed(Failure::new(code::LIMIT, message)));
        }
        all.push(of_value(&value));
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, all: Option<Option<(Ty, Vec<Option<String>>)>>) -> Result<Kept> {
        Ok(match all.flatten() {
            None => Kept::Null,
            Some((of, all)) => Kept::Text(render(of.kind(), &all)),
        })
    }
}

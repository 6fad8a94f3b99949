//! JSON made of values, as functions of the engine: the values' types come as numbers beside them.

use super::arrays::ty;
use super::encode::{decode, encode};
use super::{FLAGS, failed};
use crate::ty::Ty;
use pg::arrays::elements;
use pg::{Failure, code};
use rusqlite::functions::{Aggregate, Context};
use rusqlite::types::{Value as Kept, ValueRef};
use rusqlite::{Connection, Result};
use serde_json::Value as Tree;
use types::data::{Json, Value};

/// The most bytes of JSON that an aggregate makes of a group.
const MAX_BYTES: usize = 8 << 20;

/// What an element costs beside its text.
const OVERHEAD: usize = 64;

/// Makes them known to a connection.
pub fn register(connection: &Connection) -> Result<()> {
    connection.create_scalar_function("object_", -1, FLAGS, object)?;
    connection.create_scalar_function("list_", -1, FLAGS, list)?;
    connection.create_scalar_function("tree_", 2, FLAGS, |context| match context.get_raw(0) {
        ValueRef::Null => Ok(Kept::Null),
        _ => kept(tree(context, 0)?),
    })?;
    connection.create_aggregate_function("gather_list_", 2, FLAGS, GatherList)?;
    connection.create_aggregate_function("gather_object_", 3, FLAGS, GatherObject)
}

fn kept(tree: Tree) -> Result<Kept> {
    let tree = Json::from_json(tree);
    let tree = tree.map_err(|_| failed(Failure::new(code::LIMIT, "a value cannot be kept in JSON")))?;
    Ok(encode(&Value::Json(tree)))
}

/// The value at this place, whose type stands behind it.
fn tree(context: &Context<'_>, at: usize) -> Result<Tree> {
    let of = ty(context, at + 1)?;
    match context.get_raw(at) {
        ValueRef::Null => Ok(Tree::Null),
        kept => of_value(&decode(kept, of).map_err(failed)?, of),
    }
}

fn of_value(value: &Value, of: Ty) -> Result<Tree> {
    if value.is_null() {
        return Ok(Tree::Null);
    }
    if let (Some(element), Value::Text(array)) = (of.element(), value) {
        let all = elements(of.kind(), array).map_err(failed)?;
        let all = all.into_iter().map(|one| match one {
            None => Ok(Tree::Null),
            Some(text) => of_value(&pg::text::parse(element.kind(), &text).map_err(failed)?, element),
        });
        return Ok(Tree::Array(all.collect::<Result<_>>()?));
    }
    let mut text = String::new();
    pg::text::write_as(&mut text, of.kind(), value);
    Ok(match (value, of) {
        (Value::Bool(truth), _) => Tree::Bool(*truth),
        // Numbers that JSON does not know are texts.
        (_, of) if of.is_number() || of == Ty::Json => {
            serde_json::from_str(&text).unwrap_or(Tree::String(text))
        }
        // As in ISO 8601.
        (_, Ty::Timestamp) => Tree::String(text.replacen(' ', "T", 1)),
        (_, Ty::Timestamptz) => Tree::String(format!("{}:00", text.replacen(' ', "T", 1))),
        _ => Tree::String(text),
    })
}

fn name(context: &Context<'_>, at: usize) -> Result<String> {
    let name = context.get::<Option<String>>(at)?;
    name.ok_or_else(|| failed(Failure::new("22004", "null value not allowed for object key")))
}

/// Names, values and the values' types: an object.
fn object(context: &Context<'_>) -> Result<Kept> {
    let mut members = serde_json::Map::new();
    for at in (0..context.len()).step_by(3) {
        members.insert(name(context, at)?, tree(context, at + 1)?);
    }
    kept(Tree::Object(members))
}

/// Values and their types: a list.
fn list(context: &Context<'_>) -> Result<Kept> {
    let items = (0..context.len()).step_by(2).map(|at| tree(context, at));
    kept(Tree::Array(items.collect::<Result<_>>()?))
}

/// Values of a group as they come, and how many bytes they take.
#[derive(Default)]
struct Gathered<T> {
    all: T,
    bytes: usize,
}

impl<T> Gathered<T> {
    fn count(&mut self, tree: &Tree, name: usize) -> Result<()> {
        self.bytes += name + tree.to_string().len() + OVERHEAD;
        match self.bytes > MAX_BYTES {
            true => Err(failed(Failure::new(
                code::LIMIT,
                format!("JSON of a group has at most {MAX_BYTES} bytes"),
            ))),
            false => Ok(()),
        }
    }
}

/// A value and its type, for each row of a group: a list; null if there is no row.
struct GatherList;

impl Aggregate<Option<Gathered<Vec<Tree>>>, Kept> for GatherList {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<Gathered<Vec<Tree>>>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, all: &mut Option<Gathered<Vec<Tree>>>) -> Result<()> {
        let one = tree(context, 0)?;
        let gathered = all.get_or_insert_default();
        gathered.count(&one, 0)?;
        gathered.all.push(one);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, all: Option<Option<Gathered<Vec<Tree>>>>) -> Result<Kept> {
        all.flatten().map_or(Ok(Kept::Null), |gathered| kept(Tree::Array(gathered.all)))
    }
}

/// A name, a value and its type, for each row of a group: an object; null if there is no row.
struct GatherObject;

type Members = serde_json::Map<String, Tree>;

impl Aggregate<Option<Gathered<Members>>, Kept> for GatherObject {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<Gathered<Members>>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, all: &mut Option<Gathered<Members>>) -> Result<()> {
        let Some(name) = context.get::<Option<String>>(0)? else {
            return Err(failed(Failure::new("22023", "field name must not be null")));
        };
        let value = tree(context, 1)?;
        let gathered = all.get_or_insert_default();
        gathered.count(&value, name.len())?;
        gathered.all.insert(name, value);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, all: Option<Option<Gathered<Members>>>) -> Result<Kept> {
        all.flatten().map_or(Ok(Kept::Null), |gathered| kept(Tree::Object(gathered.all)))
    }
}

//! Operators and functions on JSON. `json` and `jsonb` are one type here; what it is told of is what
//! PostgreSQL has for `jsonb`.

use super::{Eval, Function, mistyped};
use crate::ty::Ty::{self, *};
use pg::{Failure, code};
use types::data::json::MAX_DEPTH;
use types::data::{Json as Tree, Value};

/// The most that an operator or a function makes of others, in bytes.
const MAX_BYTES: usize = 8 << 20;

/// How many elements a list has. None of these names can be written in SQL.
pub const LIST_SIZE: &str = "#list_size";
/// How many members an object has.
pub const OBJECT_SIZE: &str = "#object_size";
/// The k-th member, from 1 on.
pub const MEMBER: &str = "#member";
/// The k-th member's name.
pub const NAME: &str = "#name";
/// A tree as text: a text without its quotes, null where it is JSON's.
pub const TEXT: &str = "#text";

/// Every function on JSON.
pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    let mut add = |name, arguments: &'static [Ty], result, eval: Eval| {
        all.push(Function { name, arguments, result, eval });
    };
    add("->", &[Json, Text], Json, |a| by_name(a, |found| found.map_or(Value::Null, Value::Json)));
    add("->", &[Json, Int4], Json, |a| by_place(a, |found| found.map_or(Value::Null, Value::Json)));
    add("->>", &[Json, Text], Text, |a| by_name(a, shown));
    add("->>", &[Json, Int4], Text, |a| by_place(a, shown));
    add("#>", &[Json, TextArray], Json, |a| by_path(a, |found| found.map_or(Value::Null, Value::Json)));
    add("#>>", &[Json, TextArray], Text, |a| by_path(a, shown));
    add("@>", &[Json, Json], Bool, |a| two(a, |one, other| Ok(Value::Bool(contains(one, other, true)))));
    add("<@", &[Json, Json], Bool, |a| two(a, |one, other| Ok(Value::Bool(contains(other, one, true)))));
    add("||", &[Json, Json], Json, |a| two(a, |one, other| kept(joined(one, other))));
    add("?", &[Json, Text], Bool, |a| with_text(a, |tree, name| Ok(Value::Bool(has(tree, name)))));
    add("?|", &[Json, TextArray], Bool, |a| {
        with_texts(a, |tree, names| Ok(Value::Bool(names.iter().any(|name| has(tree, name)))))
    });
    add("?&", &[Json, TextArray], Bool, |a| {
        with_texts(a, |tree, names| Ok(Value::Bool(names.iter().all(|name| has(tree, name)))))
    });
    add("-", &[Json, Text], Json, |a| with_text(a, |tree, name| without(tree, &[name.to_string()])));
    add("-", &[Json, Int4], Json, |a| match a {
        [Value::Json(tree), Value::Int(at)] => without_place(tree, *at),
        other => Err(mistyped(other)),
    });
    add("-", &[Json, TextArray], Json, |a| with_texts(a, |tree, names| without(tree, &names)));
    add("#-", &[Json, TextArray], Json, |a| {
        with_text(a, |tree, at| match tree {
            Tree::List(_) | Tree::Object(_) => kept(changed(tree.clone(), (&path(at)?, 1), &Change::Remove)?),
            _ => Err(Failure::new("22023", "cannot delete path in scalar")),
        })
    });
    for name in ["json_array_length", "jsonb_array_length"] {
        add(name, &[Json], Int4, |a| one(a, length));
    }
    for name in ["json_typeof", "jsonb_typeof"] {
        add(name, &[Json], Text, |a| one(a, |tree| Ok(Value::Text(type_of(tree).into()))));
    }
    for name in ["json_strip_nulls", "jsonb_strip_nulls"] {
        add(name, &[Json], Json, |a| one(a, |tree| Ok(Value::Json(without_nulls(tree)))));
    }
    add("jsonb_set", &[Json, TextArray, Json], Json, |a| set(a, true));
    add("jsonb_set", &[Json, TextArray, Json, Bool], Json, |a| match a {
        [rest @ .., Value::Bool(adds)] => set(rest, *adds),
        other => Err(mistyped(other)),
    });
    add(LIST_SIZE, &[Json], Int8, |a| one(a, list_size));
    add(OBJECT_SIZE, &[Json], Int8, |a| one(a, object_size));
    add(MEMBER, &[Json, Int8], Json, |a| {
        nth(a, |tree, at| match tree {
            Tree::List(items) => items.get(at).cloned().map(Value::Json),
            Tree::Object(fields) => fields.values().nth(at).cloned().map(Value::Json),
            _ => None,
        })
    });
    add(NAME, &[Json, Int8], Text, |a| {
        nth(a, |tree, at| match tree {
            Tree::Object(fields) => fields.keys().nth(at).cloned().map(Value::Text),
            _ => None,
        })
    });
    add(TEXT, &[Json], Text, |a| one(a, |tree| Ok(shown(Some(tree.clone())))));
    all
}

fn one(a: &[Value], eval: impl Fn(&Tree) -> Result<Value, Failure>) -> Result<Value, Failure> {
    match a {
        [Value::Json(tree)] => eval(tree),
        other => Err(mistyped(other)),
    }
}

fn two(a: &[Value], eval: impl Fn(&Tree, &Tree) -> Result<Value, Failure>) -> Result<Value, Failure> {
    match a {
        [Value::Json(one), Value::Json(other)] => eval(one, other),
        other => Err(mistyped(other)),
    }
}

fn with_text(a: &[Value], eval: impl Fn(&Tree, &str) -> Result<Value, Failure>) -> Result<Value, Failure> {
    match a {
        [Value::Json(tree), Value::Text(text)] => eval(tree, text),
        other => Err(mistyped(other)),
    }
}

/// An array's elements that are not null.
fn texts(array: &str) -> Result<Vec<String>, Failure> {
    Ok(pg::arrays::elements(TextArray.kind(), array)?.into_iter().flatten().collect())
}

/// The elements of a path; none: one of them is null.
fn optional(array: &str) -> Result<Option<Vec<String>>, Failure> {
    Ok(pg::arrays::elements(TextArray.kind(), array)?.into_iter().collect())
}

/// The elements of a path, none of which may be null.
fn path(array: &str) -> Result<Vec<String>, Failure> {
    let all = pg::arrays::elements(TextArray.kind(), array)?.into_iter().enumerate();
    all.map(|(at, one)| {
        let message = || format!("path element at position {} is null", at + 1);
        one.ok_or_else(|| Failure::new("22004", message()))
    })
    .collect()
}

/// A tree that was made of others, unless it is too much to be kept.
fn kept(tree: Tree) -> Result<Value, Failure> {
    match tree.depth() > MAX_DEPTH || weight(&tree) > MAX_BYTES {
        true => {
            let message = format!("JSON has at most {MAX_DEPTH} levels and about {MAX_BYTES} bytes");
            Err(Failure::new(code::LIMIT, message))
        }
        false => Ok(Value::Json(tree)),
    }
}

/// About how many bytes a tree takes.
fn weight(tree: &Tree) -> usize {
    match tree {
        Tree::Null | Tree::Bool(_) | Tree::Int(_) | Tree::Float(_) => 8,
        Tree::Text(text) => 8 + text.len(),
        Tree::List(items) => 8 + items.iter().map(weight).sum::<usize>(),
        Tree::Bag(bag) => 8 + bag.items().iter().map(weight).sum::<usize>(),
        Tree::Object(fields) => {
            8 + fields.iter().map(|(name, value)| 8 + name.len() + weight(value)).sum::<usize>()
        }
    }
}

fn with_texts(
    a: &[Value],
    eval: impl Fn(&Tree, Vec<String>) -> Result<Value, Failure>,
) -> Result<Value, Failure> {
    with_text(a, |tree, array| eval(tree, texts(array)?))
}

fn nth(a: &[Value], eval: impl Fn(&Tree, usize) -> Option<Value>) -> Result<Value, Failure> {
    match a {
        [Value::Json(tree), Value::Int(k)] => {
            let at = k.checked_sub(1).and_then(|at| usize::try_from(at).ok());
            Ok(at.and_then(|at| eval(tree, at)).unwrap_or_default())
        }
        other => Err(mistyped(other)),
    }
}

fn by_name(a: &[Value], give: fn(Option<Tree>) -> Value) -> Result<Value, Failure> {
    with_text(a, |tree, name| {
        Ok(give(match tree {
            Tree::Object(fields) => fields.get(name).cloned(),
            _ => None,
        }))
    })
}

fn by_place(a: &[Value], give: fn(Option<Tree>) -> Value) -> Result<Value, Failure> {
    match a {
        [Value::Json(tree), Value::Int(at)] => Ok(give(match tree {
            Tree::List(items) => place(*at, items.len()).map(|at| items[at].clone()),
            Tree::Object(_) => None,
            // As PostgreSQL keeps it: a list of one.
            scalar => place(*at, 1).map(|_| scalar.clone()),
        })),
        other => Err(mistyped(other)),
    }
}

fn by_path(a: &[Value], give: fn(Option<Tree>) -> Value) -> Result<Value, Failure> {
    with_text(a, |tree, at| {
        let Some(path) = optional(at)? else { return Ok(Value::Null) };
        let step = |tree: &Tree, name: &String| match tree {
            Tree::Object(fields) => fields.get(name).cloned(),
            Tree::List(items) => {
                name.parse().ok().and_then(|at| place(at, items.len())).map(|at| items[at].clone())
            }
            _ => None,
        };
        Ok(give(path.iter().try_fold(tree.clone(), |tree, name| step(&tree, name))))
    })
}

/// Where a list's element with this number is: below zero it counts from the end.
fn place(at: i64, length: usize) -> Option<usize> {
    let at = if at < 0 { at + length as i64 } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// A tree as text; null if there is none, or JSON's null.
fn shown(tree: Option<Tree>) -> Value {
    match tree {
        None | Some(Tree::Null) => Value::Null,
        Some(Tree::Text(text)) => Value::Text(text),
        Some(tree) => Value::Text(tree.to_string()),
    }
}

fn list_size(tree: &Tree) -> Result<Value, Failure> {
    match tree {
        Tree::List(items) => Ok(Value::Int(items.len() as i64)),
        Tree::Object(_) => Err(Failure::new("22023", "cannot extract elements from an object")),
        _ => Err(Failure::new("22023", "cannot extract elements from a scalar")),
    }
}

fn object_size(tree: &Tree) -> Result<Value, Failure> {
    match tree {
        Tree::Object(fields) => Ok(Value::Int(fields.len() as i64)),
        _ => Err(Failure::new("22023", "cannot take members of a non-object")),
    }
}

fn length(tree: &Tree) -> Result<Value, Failure> {
    match tree {
        Tree::List(items) => Ok(Value::Int(items.len() as i64)),
        Tree::Object(_) => Err(Failure::new("22023", "cannot get array length of a non-array")),
        _ => Err(Failure::new("22023", "cannot get array length of a scalar")),
    }
}

fn type_of(tree: &Tree) -> &'static str {
    match tree {
        Tree::Null => "null",
        Tree::Bool(_) => "boolean",
        Tree::Int(_) | Tree::Float(_) => "number",
        Tree::Text(_) => "string",
        Tree::List(_) | Tree::Bag(_) => "array",
        Tree::Object(_) => "object",
    }
}

/// Numbers are compared by what they are worth.
fn alike(one: &Tree, other: &Tree) -> bool {
    match (one, other) {
        (Tree::Int(one), Tree::Float(two)) | (Tree::Float(two), Tree::Int(one)) => {
            // Floats from here on are whole numbers, and none of 64 bits is as large as the last.
            let fits = two.fract() == 0.0 && two.abs() < 9.3e18;
            fits && *two as i128 == i128::from(*one)
        }
        (one, other) => one == other,
    }
}

/// True if `one` has all that `other` has. At the top a list has a scalar that is an element of it.
fn contains(one: &Tree, other: &Tree, top: bool) -> bool {
    match (one, other) {
        (Tree::Object(one), Tree::Object(other)) => {
            other.iter().all(|(name, value)| one.get(name).is_some_and(|own| contains(own, value, false)))
        }
        (Tree::List(one), Tree::List(other)) => {
            other.iter().all(|value| one.iter().any(|own| contains(own, value, false)))
        }
        (Tree::List(_), Tree::Object(_)) => false,
        (Tree::List(one), scalar) if top => one.iter().any(|own| alike(own, scalar)),
        (one, other) => alike(one, other),
    }
}

/// A name of an object, or a text of a list.
fn has(tree: &Tree, name: &str) -> bool {
    let is = |tree: &Tree| matches!(tree, Tree::Text(text) if text == name);
    match tree {
        Tree::Object(fields) => fields.contains_key(name),
        Tree::List(items) => items.iter().any(is),
        tree => is(tree),
    }
}

/// Objects become one; anything else a list.
fn joined(one: &Tree, other: &Tree) -> Tree {
    if let (Tree::Object(one), Tree::Object(other)) = (one, other) {
        let all = one.iter().chain(other).map(|(name, value)| (name.clone(), value.clone()));
        return Tree::Object(all.collect());
    }
    let items = |tree: &Tree| match tree {
        Tree::List(items) => items.clone(),
        tree => vec![tree.clone()],
    };
    Tree::List([items(one), items(other)].concat())
}

fn without(tree: &Tree, names: &[String]) -> Result<Value, Failure> {
    let named = |tree: &Tree| matches!(tree, Tree::Text(text) if names.contains(text));
    Ok(Value::Json(match tree {
        Tree::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !names.contains(name));
            Tree::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Tree::List(items) => Tree::List(items.iter().filter(|item| !named(item)).cloned().collect()),
        _ => return Err(Failure::new("22023", "cannot delete from scalar")),
    }))
}

fn without_place(tree: &Tree, at: i64) -> Result<Value, Failure> {
    let Tree::List(items) = tree else {
        let why = match tree {
            Tree::Object(_) => "cannot delete from object using integer index",
            _ => "cannot delete from scalar",
        };
        return Err(Failure::new("22023", why));
    };
    let mut items = items.clone();
    if let Some(at) = place(at, items.len()) {
        items.remove(at);
    }
    Ok(Value::Json(Tree::List(items)))
}

fn without_nulls(tree: &Tree) -> Tree {
    match tree {
        Tree::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| **value != Tree::Null);
            Tree::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Tree::List(items) => Tree::List(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

/// What is done at the end of a path.
enum Change<'a> {
    Remove,
    /// Whether it is added where it is not there.
    Set(&'a Tree, bool),
}

fn set(a: &[Value], adds: bool) -> Result<Value, Failure> {
    let [Value::Json(tree), Value::Text(path), Value::Json(new)] = a else { return Err(mistyped(a)) };
    if !matches!(tree, Tree::List(_) | Tree::Object(_)) {
        return Err(Failure::new("22023", "cannot set path in scalar"));
    }
    kept(changed(tree.clone(), (&self::path(path)?, 1), &Change::Set(new, adds))?)
}

/// The tree with a change at the end of the path, whose first element is at this position of the whole one;
/// where the path leads nowhere, as it is.
fn changed(tree: Tree, (path, at): (&[String], usize), change: &Change<'_>) -> Result<Tree, Failure> {
    let Some((name, rest)) = path.split_first() else { return Ok(tree) };
    Ok(match (tree, change, rest.is_empty()) {
        (Tree::Object(mut fields), Change::Remove, true) => {
            fields.remove(name);
            Tree::Object(fields)
        }
        (Tree::Object(mut fields), Change::Set(new, adds), true) => {
            if *adds || fields.contains_key(name) {
                fields.insert(name.clone(), (*new).clone());
            }
            Tree::Object(fields)
        }
        (Tree::Object(mut fields), change, false) => {
            if let Some(inner) = fields.get_mut(name) {
                *inner = changed(std::mem::replace(inner, Tree::Null), (rest, at + 1), change)?;
            }
            Tree::Object(fields)
        }
        (Tree::List(items), change, _) => Tree::List(changed_list(items, (path, at), change)?),
        (other, ..) => other,
    })
}

fn changed_list(
    mut items: Vec<Tree>,
    (path, at): (&[String], usize),
    change: &Change<'_>,
) -> Result<Vec<Tree>, Failure> {
    let Some((name, rest)) = path.split_first() else { return Ok(items) };
    let wanted = name.parse::<i64>().map_err(|_| {
        let message = format!("path element at position {at} is not an integer: \"{name}\"");
        Failure::new("22P02", message)
    })?;
    match (place(wanted, items.len()), change, rest.is_empty()) {
        (Some(at), Change::Remove, true) => drop(items.remove(at)),
        (Some(at), Change::Set(new, _), true) => items[at] = (*new).clone(),
        (None, Change::Set(new, true), true) if wanted < 0 => items.insert(0, (*new).clone()),
        (None, Change::Set(new, true), true) => items.push((*new).clone()),
        (Some(place), change, false) => {
            let inner = std::mem::replace(&mut items[place], Tree::Null);
            items[place] = changed(inner, (rest, at + 1), change)?;
        }
        _ => {}
    }
    Ok(items)
}

//! Operators and functions on text. Positions count characters, from 1.

use super::like::{self, lower, upper};
use super::{Eval, Function, mistyped};
use crate::ty::Ty::{self, *};
use pg::{Failure, code};
use types::data::Value;

/// The longest text that a function makes, in bytes.
const MAX_TEXT: usize = 8 << 20;

pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    let mut add = |name, arguments: &'static [Ty], result, eval: Eval| {
        all.push(Function { name, arguments, result, eval });
    };
    add("||", &[Text, Text], Text, |a| two(a, |one, two| Ok(Value::Text(format!("{one}{two}")))));
    for name in ["length", "char_length", "character_length"] {
        add(name, &[Text], Int4, |a| one(a, |text| count(text.chars().count())));
    }
    add("octet_length", &[Text], Int4, |a| one(a, |text| count(text.len())));
    for name in ["octet_length", "length"] {
        add(name, &[Bytea], Int4, |a| match a {
            [Value::Bytes(bytes)] => count(bytes.len()),
            other => Err(mistyped(other)),
        });
    }
    add("upper", &[Text], Text, |a| one(a, |text| Ok(Value::Text(text.chars().map(upper).collect()))));
    add("lower", &[Text], Text, |a| one(a, |text| Ok(Value::Text(text.chars().map(lower).collect()))));
    add("reverse", &[Text], Text, |a| one(a, |text| Ok(Value::Text(text.chars().rev().collect()))));
    for name in ["substring", "substr"] {
        add(name, &[Text, Int4], Text, |a| text_int(a, |text, from| substring(text, from, None)));
        add(name, &[Text, Int4, Int4], Text, |a| match a {
            [Value::Text(text), Value::Int(from), Value::Int(length)] => {
                substring(text, *from, Some(*length))
            }
            other => Err(mistyped(other)),
        });
    }
    for (name, left, right) in [("btrim", true, true), ("ltrim", true, false), ("rtrim", false, true)] {
        add(
            name,
            &[Text],
            Text,
            match (left, right) {
                (true, true) => |a| one(a, |text| trimmed(text, " ", true, true)),
                (true, false) => |a| one(a, |text| trimmed(text, " ", true, false)),
                _ => |a| one(a, |text| trimmed(text, " ", false, true)),
            },
        );
        add(
            name,
            &[Text, Text],
            Text,
            match (left, right) {
                (true, true) => |a| two(a, |text, what| trimmed(text, what, true, true)),
                (true, false) => |a| two(a, |text, what| trimmed(text, what, true, false)),
                _ => |a| two(a, |text, what| trimmed(text, what, false, true)),
            },
        );
    }
    searching(&mut all);
    all
}

fn searching(all: &mut Vec<Function>) {
    let mut add = |name, arguments: &'static [Ty], result, eval: Eval| {
        all.push(Function { name, arguments, result, eval });
    };
    for name in ["strpos", "position"] {
        add(name, &[Text, Text], Int4, |a| {
            two(a, |text, what| count(text.find(what).map_or(0, |at| text[..at].chars().count() + 1)))
        });
    }
    add("starts_with", &[Text, Text], Bool, |a| two(a, |text, what| Ok(Value::Bool(text.starts_with(what)))));
    add("like", &[Text, Text], Bool, |a| two(a, |text, what| likeness(text, what, Some('\\'), false)));
    add("ilike", &[Text, Text], Bool, |a| two(a, |text, what| likeness(text, what, Some('\\'), true)));
    add("like", &[Text, Text, Text], Bool, |a| escaped(a, false));
    add("ilike", &[Text, Text, Text], Bool, |a| escaped(a, true));
    add("replace", &[Text, Text, Text], Text, |a| match a {
        [Value::Text(text), Value::Text(from), Value::Text(_)] if from.is_empty() => {
            Ok(Value::Text(text.clone()))
        }
        [Value::Text(text), Value::Text(from), Value::Text(to)] => {
            let found = text.matches(from.as_str()).count();
            bounded(text.len() + found.saturating_mul(to.len())).map(|()| Value::Text(text.replace(from, to)))
        }
        other => Err(mistyped(other)),
    });
    add("repeat", &[Text, Int4], Text, |a| {
        text_int(a, |text, times| {
            let times = times.max(0) as usize;
            bounded(text.len().saturating_mul(times)).map(|()| Value::Text(text.repeat(times)))
        })
    });
    add("left", &[Text, Int4], Text, |a| {
        text_int(a, |text, wanted| {
            let kept = if wanted < 0 { text.chars().count() as i64 + wanted } else { wanted };
            Ok(Value::Text(text.chars().take(kept.max(0) as usize).collect()))
        })
    });
    add("right", &[Text, Int4], Text, |a| {
        text_int(a, |text, wanted| {
            let length = text.chars().count() as i64;
            let skipped = if wanted < 0 { -wanted } else { length - wanted };
            Ok(Value::Text(text.chars().skip(skipped.max(0) as usize).collect()))
        })
    });
}

fn one(arguments: &[Value], op: impl Fn(&str) -> Result<Value, Failure>) -> Result<Value, Failure> {
    match arguments {
        [Value::Text(text)] => op(text),
        other => Err(mistyped(other)),
    }
}

fn two(arguments: &[Value], op: impl Fn(&str, &str) -> Result<Value, Failure>) -> Result<Value, Failure> {
    match arguments {
        [Value::Text(one), Value::Text(two)] => op(one, two),
        other => Err(mistyped(other)),
    }
}

fn text_int(arguments: &[Value], op: impl Fn(&str, i64) -> Result<Value, Failure>) -> Result<Value, Failure> {
    match arguments {
        [Value::Text(text), Value::Int(number)] => op(text, *number),
        other => Err(mistyped(other)),
    }
}

fn count(number: usize) -> Result<Value, Failure> {
    Ok(Value::Int(number as i64))
}

fn bounded(length: usize) -> Result<(), Failure> {
    match length > MAX_TEXT {
        true => Err(Failure::new(code::LIMIT, "requested length too large")),
        false => Ok(()),
    }
}

fn substring(text: &str, from: i64, length: Option<i64>) -> Result<Value, Failure> {
    if length.is_some_and(|length| length < 0) {
        return Err(Failure::new("22011", "negative substring length not allowed"));
    }
    let end = length.map_or(i64::MAX, |length| from.saturating_add(length));
    let start = from.max(1);
    let (skipped, taken) = ((start - 1) as usize, (end - start).max(0) as usize);
    Ok(Value::Text(text.chars().skip(skipped).take(taken).collect()))
}

fn trimmed(text: &str, what: &str, left: bool, right: bool) -> Result<Value, Failure> {
    let gone = |c: char| what.contains(c);
    let text = if left { text.trim_start_matches(gone) } else { text };
    Ok(Value::Text(if right { text.trim_end_matches(gone) } else { text }.to_string()))
}

fn likeness(text: &str, pattern: &str, escape: Option<char>, fold: bool) -> Result<Value, Failure> {
    like::like(text, pattern, escape, fold).map(Value::Bool)
}

fn escaped(arguments: &[Value], fold: bool) -> Result<Value, Failure> {
    let [Value::Text(text), Value::Text(pattern), Value::Text(escape)] = arguments else {
        return Err(mistyped(arguments));
    };
    let mut chars = escape.chars();
    let (first, more) = (chars.next(), chars.next());
    if more.is_some() {
        return Err(Failure::new("22019", "invalid escape string")
            .hint("escape string must be empty or one character"));
    }
    likeness(text, pattern, first, fold)
}

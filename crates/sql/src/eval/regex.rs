//! Regular expressions: `~` and its like. What PostgreSQL's mean and this engine's do not is refused.

use super::{Eval, Function, mistyped};
use crate::ty::Ty::{Bool, Int2, Int4, Int8, Text};
use pg::{Failure, code};
use regex_lite::{Regex, RegexBuilder};
use std::cell::RefCell;
use types::data::Value;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 4_096;
/// The most memory that a pattern may need, in bytes.
const MAX_SIZE: usize = 1 << 20;

thread_local! {
    /// The pattern that was used last: a statement uses one for many rows.
    static LAST: RefCell<Option<(String, bool, Regex)>> = const { RefCell::new(None) };
}

pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    let mut add =
        |name, eval: Eval| all.push(Function { name, arguments: &[Text, Text], result: Bool, eval });
    add("~", |a| matches(a, false).map(Value::Bool));
    add("~*", |a| matches(a, true).map(Value::Bool));
    add("!~", |a| matches(a, false).map(|found| Value::Bool(!found)));
    add("!~*", |a| matches(a, true).map(|found| Value::Bool(!found)));
    for (arguments, result) in [(&[Int2, Int2], Int2), (&[Int4, Int4], Int4), (&[Int8, Int8], Int8)] {
        all.push(Function { name: "&", arguments, result, eval: |a| bits(a, |one, two| one & two) });
        all.push(Function { name: "|", arguments, result, eval: |a| bits(a, |one, two| one | two) });
    }
    all
}

fn bits(arguments: &[Value], of: fn(i64, i64) -> i64) -> Result<Value, Failure> {
    match arguments {
        [Value::Int(one), Value::Int(two)] => Ok(Value::Int(of(*one, *two))),
        other => Err(mistyped(other)),
    }
}

fn matches(arguments: &[Value], fold: bool) -> Result<bool, Failure> {
    let [Value::Text(text), Value::Text(pattern)] = arguments else { return Err(mistyped(arguments)) };
    LAST.with_borrow_mut(|last| {
        let known = last.as_ref().is_some_and(|(known, folds, _)| known == pattern && *folds == fold);
        if !known {
            *last = Some((pattern.clone(), fold, compile(pattern, fold)?));
        }
        Ok(last.as_ref().is_some_and(|(.., regex)| regex.is_match(text)))
    })
}

fn compile(pattern: &str, fold: bool) -> Result<Regex, Failure> {
    if pattern.len() > MAX_PATTERN {
        return Err(Failure::new(
            code::LIMIT,
            format!("a regular expression has at most {MAX_PATTERN} bytes"),
        ));
    }
    let translated = translate(pattern)?;
    if fold && !pattern.is_ascii() {
        let hint = "use lower(text) ~ lower(pattern)";
        return Err(Failure::unsupported(
            "a regular expression without case with letters beyond ASCII",
            hint,
        ));
    }
    let built = RegexBuilder::new(&translated)
        .case_insensitive(fold)
        .dot_matches_new_line(true)
        .size_limit(MAX_SIZE)
        .nest_limit(50)
        .build();
    built.map_err(|error| Failure::new("2201B", format!("invalid regular expression: {error}")))
}

/// The same in this engine's language. Classes are those of ASCII; what would mean something else is refused.
fn translate(pattern: &str) -> Result<String, Failure> {
    let refuse = |what: &str| {
        Err(Failure::unsupported(
            format!("{what} in a regular expression"),
            "docs/sql.md lists what is understood",
        ))
    };
    if pattern.starts_with("***") {
        return refuse("a director");
    }
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut depth = 0;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                None => {
                    return Err(Failure::new(
                        "2201B",
                        "invalid regular expression: invalid escape \\ sequence",
                    ));
                }
                Some('m') => return refuse("\\m"),
                Some('M') => return refuse("\\M"),
                Some('A') => out.push_str("\\A"),
                Some('Z') => out.push_str("\\z"),
                Some('y') => out.push_str("\\b"),
                Some('Y') => out.push_str("\\B"),
                Some(escape @ ('d' | 'w' | 's' | 'D' | 'W' | 'S' | 'n' | 't' | 'r')) => {
                    out.push('\\');
                    out.push(escape);
                }
                Some(escape) if escape.is_ascii_alphanumeric() => return refuse(&format!("\\{escape}")),
                Some(other) => out.push_str(&regex_lite::escape(&other.to_string())),
            },
            '[' => bracket(&mut chars, &mut out)?,
            '(' => {
                depth += 1;
                out.push('(');
                if chars.next_if_eq(&'?').is_some() {
                    if chars.next_if_eq(&':').is_none() {
                        return refuse("(?");
                    }
                    out.push_str("?:");
                }
            }
            // Without an open one, PostgreSQL refuses it, too.
            ')' => {
                depth -= 1;
                out.push(')');
            }
            // What would be special to this engine alone.
            '&' | '~' | '#' | '-' => out.push_str(&regex_lite::escape(&c.to_string())),
            // A brace without a number is plain text to PostgreSQL.
            '{' if !chars.peek().is_some_and(char::is_ascii_digit) => out.push_str("\\{"),
            '}' if !out.ends_with(|last: char| last.is_ascii_digit() || last == ',') => out.push_str("\\}"),
            other => out.push(other),
        }
    }
    match depth {
        0 => Ok(out),
        _ => Err(Failure::new("2201B", "invalid regular expression: parentheses () not balanced")),
    }
}

/// The rest of a bracket expression. A backslash is an escape in it, `[` alone is plain.
fn bracket(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Result<(), Failure> {
    let open = || Failure::new("2201B", "invalid regular expression: brackets [] not balanced");
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        match chars.next().ok_or_else(open)? {
            ']' if !first => break,
            '[' => match chars.peek() {
                Some(':') => {
                    let mut name = String::from("[");
                    while !name.ends_with(":]") || name.len() < 4 {
                        name.push(chars.next().ok_or_else(open)?);
                    }
                    out.push_str(&name);
                }
                Some('.' | '=') => {
                    let what = "a collating element in a regular expression";
                    return Err(Failure::unsupported(what, "name the characters themselves"));
                }
                _ => out.push_str("\\["),
            },
            '\\' => {
                out.push('\\');
                match chars.next().ok_or_else(open)? {
                    c @ ('d' | 'w' | 's' | 'n' | 't' | 'r') => out.push(c),
                    c if c.is_ascii_alphanumeric() => {
                        let what = format!("\\{c} in a regular expression");
                        return Err(Failure::unsupported(what, "docs/sql.md lists what is understood"));
                    }
                    c => out.push(c),
                }
            }
            c @ (']' | '&' | '~' | '^') => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
        first = false;
    }
    out.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_what_postgresql_finds() {
        for (text, pattern, fold, found) in [
            ("people", "^(people)$", false, true),
            ("people2", "^(people)$", false, false),
            ("pg_toast", "^pg_", false, true),
            ("People", "^people", true, true),
            ("People", "^people", false, false),
            ("a\nb", "a.b", false, true),
            ("a\nb", "a$", false, false),
            ("a.b", r"^a\.b$", false, true),
            ("x1", "[[:digit:]]", false, true),
            ("x-", "[x-]$", false, true),
            ("]", "[]]", false, true),
            ("{", "{", false, true),
            ("aaa", "^a{3}$", false, true),
            ("pets", "^(pe.*|x)$", false, true),
            ("a&b~", "a&b~", false, true),
        ] {
            let given = [Value::Text(text.into()), Value::Text(pattern.into())];
            assert_eq!(matches(&given, fold), Ok(found), "{text} {pattern}");
        }
        for (pattern, code) in [
            ("(", "2201B"),
            ("a)", "2201B"),
            ("[a", "2201B"),
            (r"\mword", "0A000"),
            (r"(a)\1", "0A000"),
            ("(?=a)", "0A000"),
            ("***=a", "0A000"),
            ("((a{50}){50}){50}", "2201B"),
        ] {
            assert_eq!(compile(pattern, false).map(drop).expect_err(pattern).code, code, "{pattern}");
        }
    }
}

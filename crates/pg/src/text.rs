//! Values as text, the way PostgreSQL writes and reads them with its default settings (ISO dates, UTC, hex
//! bytea).

use crate::arrays;
use crate::failure::{Failure, code};
use crate::kind::Kind;
use std::fmt::Write;
use types::data::{ColumnType, Value, ValueError, calendar};

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Appends a value's text. Null has none: the caller writes it as a length.
pub fn write(out: &mut String, value: &Value) {
    match value {
        Value::Null => {}
        Value::Bool(truth) => out.push(if *truth { 't' } else { 'f' }),
        Value::Float(number) => write_float(out, *number),
        Value::Date(days) => write_day(out, i64::from(*days)),
        Value::Timestamp(micros) => write_timestamp(out, *micros),
        other => write!(out, "{other}").expect("writing to a string"),
    }
    if let (Value::Date(_) | Value::Timestamp(_), true) = (value, is_before_christ(value)) {
        out.push_str(" BC");
    }
}

/// Appends the text of a value of a type: of a moment that is of no place without what says where it is.
pub fn write_as(out: &mut String, kind: Kind, value: &Value) {
    if let (Kind::Float4, Value::Float(number)) = (kind, value) {
        return write_single(out, *number as f32);
    }
    write(out, value);
    if kind == Kind::Timestamp
        && let Some(at) = out.rfind("+00")
    {
        out.replace_range(at..at + 3, "");
    }
}

/// A value's text.
pub fn to_text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value);
    out
}

/// Reads a value of a type. What PostgreSQL would read and this does not is refused, never read differently.
pub fn parse(kind: Kind, text: &str) -> Result<Value, Failure> {
    let wrong =
        || Failure::new(code::BAD_TEXT, format!("invalid input syntax for type {}: \"{text}\"", kind.name()));
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let typed = |of: ColumnType, text: &str| of.parse(text).map_err(|error| refuse(kind, text, &error));
    match kind {
        Kind::Int2 | Kind::Int4 | Kind::Int8 => {
            let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(wrong());
            }
            let number: Option<i64> = trimmed.parse().ok();
            number.filter(|number| fits(kind, *number)).map(Value::Int).ok_or_else(|| {
                let what = format!("value \"{text}\" is out of range for type {}", kind.name());
                Failure::new(code::OUT_OF_RANGE, what)
            })
        }
        Kind::Float8 => parse_float(trimmed).map(Value::Float).ok_or_else(wrong),
        Kind::Float4 => single(text, parse_float(trimmed).ok_or_else(wrong)?).map(Value::Float),
        Kind::Uuid => typed(ColumnType::Uuid, trimmed),
        Kind::Time => typed(ColumnType::Time, time_of(trimmed)),
        Kind::Interval => typed(ColumnType::Interval, trimmed),
        Kind::Bool => parse_bool(trimmed).map(Value::Bool).ok_or_else(wrong),
        Kind::Numeric => typed(ColumnType::Decimal, trimmed),
        Kind::Bytea if text.starts_with(r"\x") => typed(ColumnType::Bytes, text),
        Kind::Bytea => unescape(text).map(Value::Bytes).ok_or_else(wrong),
        Kind::Date => typed(ColumnType::Date, day_of(trimmed)),
        Kind::Timestamptz => typed(ColumnType::Timestamp, trimmed),
        Kind::Timestamp => typed(ColumnType::Timestamp, of_no_place(trimmed)),
        Kind::Json | Kind::Jsonb => typed(ColumnType::Json, text),
        Kind::Text | Kind::Varchar | Kind::Unknown => Ok(Value::Text(text.to_string())),
        Kind::Bpchar => Ok(Value::Text(text.trim_end_matches(' ').to_string())),
        Kind::Name => Ok(Value::Text(shortened(text, 63).to_string())),
        Kind::Char => Ok(Value::Text(text.chars().take(1).collect())),
        Kind::Oid | Kind::Xid => match parse_oid(trimmed) {
            Some(number) => Ok(Value::Int(number)),
            None if !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit()) => {
                let what = format!("value \"{text}\" is out of range for type {}", kind.name());
                Err(Failure::new(code::OUT_OF_RANGE, what))
            }
            None => Err(wrong()),
        },
        kind if kind.element().is_some() => arrays::canonical(kind, text).map(Value::Text),
        Kind::NodeTree | Kind::Inet | Kind::PgLsn => Ok(Value::Text(trimmed.to_string())),
        kind => Err(Failure::unsupported(
            format!("reading a value of type {}", kind.name()),
            "its values are shown, not taken",
        )),
    }
}

/// The beginning of a text, at most so many bytes of whole characters.
fn shortened(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn parse_oid(text: &str) -> Option<i64> {
    // What is negative is taken by its bits.
    let negative = || text.parse::<i32>().ok().map(|number| number as u32);
    text.parse::<u32>().ok().or_else(negative).map(i64::from)
}

/// The day of a text that goes on with a time, or with the offset of one, as pgjdbc sends days: PostgreSQL
/// passes over it.
fn day_of(text: &str) -> &str {
    let Some((day, rest)) = text.split_once([' ', 'T']) else { return text };
    let offset = rest.strip_prefix(['+', '-']).is_some_and(|offset| {
        let digits = offset.bytes().filter(u8::is_ascii_digit).count();
        (digits == 2 || digits == 4) && offset.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
    });
    if offset || ColumnType::Timestamp.parse(text).is_ok() { day } else { text }
}

/// The time of a text that begins with a day: PostgreSQL passes over the day.
fn time_of(text: &str) -> &str {
    match text.split_once([' ', 'T']) {
        Some((day, time)) if ColumnType::Date.parse(day).is_ok() => time,
        _ => text,
    }
}

/// A day and a time without the offset behind it: PostgreSQL passes over it.
fn of_no_place(text: &str) -> &str {
    let time = text.find([' ', 'T']).map_or(text.len(), |at| at + 1);
    let offset = text[time..].find(['+', '-', 'Z', 'z']).map(|at| time + at);
    offset.map_or(text, |at| text[..at].trim_end())
}

/// True if a whole number can be one of this type.
pub fn fits(kind: Kind, number: i64) -> bool {
    match kind {
        Kind::Int2 => i16::try_from(number).is_ok(),
        Kind::Int4 => i32::try_from(number).is_ok(),
        Kind::Oid | Kind::Xid | Kind::Regproc | Kind::Regclass | Kind::Regtype | Kind::Regnamespace => {
            u32::try_from(number).is_ok()
        }
        _ => true,
    }
}

fn refuse(kind: Kind, text: &str, error: &ValueError) -> Failure {
    let sentence = format!("invalid input syntax for type {}: \"{text}\"", kind.name());
    match kind {
        Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz if error.out_of_range => {
            Failure::new("22008", format!("date/time field value out of range: \"{text}\""))
        }
        Kind::Interval if error.why.starts_with("it is") => {
            Failure::new("22015", format!("interval field value out of range: \"{text}\""))
        }
        Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz | Kind::Interval => {
            Failure::new(code::BAD_DATE, sentence).hint(error.why.clone())
        }
        // PostgreSQL says no more of it.
        Kind::Uuid => Failure::new(code::BAD_TEXT, sentence),
        Kind::Numeric if error.out_of_range => {
            let message = format!("value \"{text}\" overflows numeric format");
            Failure::new(code::OUT_OF_RANGE, message).hint(error.why.clone())
        }
        _ => Failure::new(code::BAD_TEXT, sentence).hint(error.why.clone()),
    }
}

/// The shortest text that is read back as the same number, with an exponent where PostgreSQL has one.
fn write_float(out: &mut String, number: f64) {
    if number.is_nan() {
        return out.push_str("NaN");
    }
    if number.is_infinite() {
        return out.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    if (-4..15).contains(&exponent) {
        write!(out, "{number}").expect("writing to a string");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.abs()).expect("writing to a string");
    }
}

/// The same of a number of 32 bits.
fn write_single(out: &mut String, number: f32) {
    if !number.is_finite() {
        return write_float(out, number.into());
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    if (-4..6).contains(&exponent) {
        write!(out, "{number}").expect("writing to a string");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.abs()).expect("writing to a string");
    }
}

/// A number as 32 bits hold it.
fn single(text: &str, number: f64) -> Result<f64, Failure> {
    let kept = number as f32;
    match (kept.is_infinite() && number.is_finite()) || (kept == 0.0 && number != 0.0) {
        true => Err(Failure::new(code::OUT_OF_RANGE, format!("\"{text}\" is out of range for type real"))),
        false => Ok(kept.into()),
    }
}

fn parse_float(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "nan" => return Some(f64::NAN),
        "infinity" | "inf" | "+infinity" | "+inf" => return Some(f64::INFINITY),
        "-infinity" | "-inf" => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    // What is left must begin like a number; Rust knows words that PostgreSQL does not.
    let starts = lower.trim_start_matches(['-', '+']);
    let number: f64 = lower.parse().ok()?;
    (starts.starts_with(|first: char| first.is_ascii_digit() || first == '.') && number.is_finite())
        .then_some(number)
}

/// PostgreSQL takes any beginning of a word that leaves no doubt.
fn parse_bool(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" {
        Some(false)
    } else {
        None
    }
}

/// Reads `bytea` in its old form: `\\` and three octal digits.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next()? {
            b'\\' => out.push(b'\\'),
            high @ b'0'..=b'3' => {
                let octal = |byte: u8| byte.checked_sub(b'0').filter(|digit| *digit < 8);
                let (middle, low) = (octal(bytes.next()?)?, octal(bytes.next()?)?);
                out.push((high - b'0') * 64 + middle * 8 + low);
            }
            _ => return None,
        }
    }
    Some(out)
}

/// Years before 1 are counted from 1 BC backwards, which is year 0 of the calendar here.
fn write_day(out: &mut String, days: i64) {
    let mut plain = String::new();
    calendar::write_date(&mut plain, days).expect("writing to a string");
    let (sign, rest) = match plain.strip_prefix(['-', '+']) {
        Some(rest) if plain.starts_with('-') => (-1, rest),
        Some(rest) => (1, rest),
        None => (1, plain.as_str()),
    };
    let (year, month_and_day) = rest.split_once('-').unwrap_or((rest, ""));
    let year = sign * year.parse::<i64>().unwrap_or_default();
    let shown = if year > 0 { year } else { 1 - year };
    write!(out, "{shown:04}-{month_and_day}").expect("writing to a string");
}

fn write_timestamp(out: &mut String, micros: i64) {
    write_day(out, micros.div_euclid(MICROS_PER_DAY));
    let in_day = micros.rem_euclid(MICROS_PER_DAY);
    let (seconds, fraction) = (in_day / 1_000_000, in_day % 1_000_000);
    write!(out, " {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
        .expect("writing to a string");
    if fraction != 0 {
        out.push_str(format!(".{fraction:06}").trim_end_matches('0'));
    }
    out.push_str("+00");
}

/// Days before 0001-01-01.
fn is_before_christ(value: &Value) -> bool {
    const FIRST: i64 = -719_162;
    match value {
        Value::Date(days) => i64::from(*days) < FIRST,
        Value::Timestamp(micros) => *micros < FIRST * MICROS_PER_DAY,
        _ => false,
    }
}

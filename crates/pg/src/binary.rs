//! Values as bytes, the way PostgreSQL's binary format has them: big-endian, days and microseconds since
//! 2000.

use crate::arrays;
use crate::failure::{Failure, code};
use crate::kind::Kind;
use crate::text;
use types::data::clock::MICROS_PER_DAY;
use types::data::{Decimal, Interval, Value};

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// Appends a value's bytes. Null has none. Fails for a moment that PostgreSQL's format cannot hold.
pub fn write(out: &mut Vec<u8>, kind: Kind, value: &Value) -> Result<(), Failure> {
    let far = || Failure::new(code::OUT_OF_RANGE, format!("{} is out of range", kind.name()));
    match (kind, value) {
        (_, Value::Null) => {}
        (Kind::Int2, Value::Int(number)) => out.extend((*number as i16).to_be_bytes()),
        (Kind::Int4, Value::Int(number)) => out.extend((*number as i32).to_be_bytes()),
        (Kind::Oid | Kind::Xid, Value::Int(number)) => out.extend((*number as u32).to_be_bytes()),
        (_, Value::Int(number)) => out.extend(number.to_be_bytes()),
        (Kind::Float4, Value::Float(number)) => out.extend((*number as f32).to_be_bytes()),
        (_, Value::Float(number)) => out.extend(number.to_be_bytes()),
        (_, Value::Bool(truth)) => out.push(u8::from(*truth)),
        (_, Value::Bytes(bytes)) => out.extend_from_slice(bytes),
        (Kind::Char, Value::Text(text)) => out.push(text.bytes().next().unwrap_or(0)),
        (Kind::PgLsn, Value::Text(text)) => out.extend(lsn(text).ok_or_else(far)?.to_be_bytes()),
        (kind, Value::Text(text)) if kind.element().is_some() => arrays::write_binary(out, kind, text)?,
        (
            Kind::Regproc | Kind::Regclass | Kind::Regtype | Kind::Regnamespace | Kind::Inet | Kind::Record,
            Value::Text(_),
        ) => {
            let what = format!("{} in binary format", kind.name());
            return Err(Failure::unsupported(what, "ask for text format, or cast it to text"));
        }
        (_, Value::Text(text)) => out.extend_from_slice(text.as_bytes()),
        (_, Value::Date(days)) => {
            out.extend(days.checked_sub(EPOCH_DAYS).ok_or_else(far)?.to_be_bytes());
        }
        (_, Value::Timestamp(micros)) => {
            out.extend(micros.checked_sub(EPOCH_MICROS).ok_or_else(far)?.to_be_bytes());
        }
        (_, Value::Decimal(number)) => write_numeric(out, *number),
        (_, Value::Uuid(bytes)) => out.extend_from_slice(bytes),
        (_, Value::Time(micros)) => out.extend(micros.to_be_bytes()),
        (_, Value::Interval(Interval { months, days, micros })) => {
            out.extend(micros.to_be_bytes());
            out.extend(days.to_be_bytes());
            out.extend(months.to_be_bytes());
        }
        (Kind::Jsonb, Value::Json(tree)) => {
            out.push(1);
            out.extend_from_slice(tree.to_string().as_bytes());
        }
        (_, Value::Json(tree)) => out.extend_from_slice(tree.to_string().as_bytes()),
    }
    Ok(())
}

/// Reads a value of a type.
pub fn parse(kind: Kind, bytes: &[u8]) -> Result<Value, Failure> {
    let wrong = || {
        let message = format!("incorrect binary data format for type {}", kind.name());
        Failure::new(code::BAD_BINARY, message)
    };
    let far = || Failure::new(code::OUT_OF_RANGE, format!("{} is out of range", kind.name()));
    let value = match kind {
        Kind::Bool => match bytes {
            [0] => Value::Bool(false),
            [_] => Value::Bool(true),
            _ => return Err(wrong()),
        },
        Kind::Int2 => Value::Int(i16::from_be_bytes(bytes.try_into().map_err(|_| wrong())?).into()),
        Kind::Int4 => Value::Int(i32::from_be_bytes(bytes.try_into().map_err(|_| wrong())?).into()),
        Kind::Int8 => Value::Int(i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?)),
        Kind::Float4 => Value::Float(f32::from_be_bytes(bytes.try_into().map_err(|_| wrong())?).into()),
        Kind::Float8 => Value::Float(f64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?)),
        Kind::Bytea => Value::Bytes(bytes.to_vec()),
        Kind::Date => {
            let days = i32::from_be_bytes(bytes.try_into().map_err(|_| wrong())?);
            Value::Date(days.checked_add(EPOCH_DAYS).ok_or_else(far)?)
        }
        Kind::Timestamp | Kind::Timestamptz => {
            let micros = i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?);
            Value::Timestamp(micros.checked_add(EPOCH_MICROS).ok_or_else(far)?)
        }
        Kind::Numeric => read_numeric(bytes).ok_or_else(wrong)??,
        Kind::Uuid => Value::Uuid(bytes.try_into().map_err(|_| wrong())?),
        Kind::Time => {
            let micros = i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?);
            match (0..=MICROS_PER_DAY).contains(&micros) {
                true => Value::Time(micros),
                false => return Err(Failure::new("22008", "time out of range")),
            }
        }
        Kind::Interval => {
            let bytes: &[u8; 16] = bytes.try_into().map_err(|_| wrong())?;
            let word = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
            let micros = i64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
            Value::Interval(Interval { months: word(12), days: word(8), micros })
        }
        Kind::Jsonb => match bytes.split_first() {
            Some((1, rest)) => text::parse(kind, utf8(rest)?)?,
            _ => return Err(wrong()),
        },
        Kind::Oid | Kind::Xid => {
            Value::Int(u32::from_be_bytes(bytes.try_into().map_err(|_| wrong())?).into())
        }
        Kind::Char => match bytes {
            [0] => Value::Text(String::new()),
            [byte] if byte.is_ascii() => Value::Text(char::from(*byte).to_string()),
            _ => return Err(wrong()),
        },
        kind if kind.element().is_some() => Value::Text(arrays::read_binary(kind, bytes)?),
        Kind::Json | Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name | Kind::Unknown => {
            text::parse(kind, utf8(bytes)?)?
        }
        _ => {
            let what = format!("{} in binary format", kind.name());
            return Err(Failure::unsupported(what, "send it as text"));
        }
    };
    Ok(value)
}

/// Two halves in hexadecimal: `16/B374D848`.
fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let half = |digits| u32::from_str_radix(digits, 16).ok().map(u64::from);
    Some((half(high)? << 32) + half(low)?)
}

/// Text from a client: UTF-8, and without the zero byte, which PostgreSQL does not keep either.
pub fn utf8(bytes: &[u8]) -> Result<&str, Failure> {
    let bad = || Failure::new(code::BAD_ENCODING, "invalid byte sequence for encoding \"UTF8\"");
    let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
    if text.contains('\0') { Err(bad()) } else { Ok(text) }
}

/// Groups of four digits, the weight of the first group, a sign, and how many digits stand after the point.
fn write_numeric(out: &mut Vec<u8>, number: Decimal) {
    let mut digits = number.mantissa().unsigned_abs();
    let scale = number.scale();
    // The point falls between two groups once the last group is filled up; 10^41 still fits.
    let fill = (4 - scale % 4) % 4;
    let mut groups: Vec<i16> = Vec::with_capacity(12);
    let mut first = true;
    while digits > 0 {
        let (unit, factor) = match first {
            true => (10u128.pow(4 - fill), 10i16.pow(fill)),
            false => (10_000, 1),
        };
        groups.push((digits % unit) as i16 * factor);
        digits /= unit;
        first = false;
    }
    let weight = groups.len() as i32 - 1 - ((scale + fill) / 4) as i32;
    groups.reverse();
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let weight = if groups.is_empty() { 0 } else { weight };
    out.extend((groups.len() as i16).to_be_bytes());
    out.extend((weight as i16).to_be_bytes());
    out.extend(if number.mantissa() < 0 { 0x4000u16 } else { 0 }.to_be_bytes());
    out.extend((scale as i16).to_be_bytes());
    groups.iter().for_each(|group| out.extend(group.to_be_bytes()));
}

/// `None`: not a number's bytes. The error: a number that cannot be kept.
fn read_numeric(bytes: &[u8]) -> Option<Result<Value, Failure>> {
    let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at * 2..at * 2 + 2)?.try_into().ok()?));
    let (count, weight, sign) = (usize::from(word(0)?), i32::from(word(1)? as i16), word(2)?);
    if bytes.len() != 8 + 2 * count || word(3)? > 0x3fff {
        return None;
    }
    let beyond =
        || Failure::new(code::OUT_OF_RANGE, "value overflows numeric format: at most 38 digits are kept");
    if sign == 0xc000 {
        return Some(Err(Failure::unsupported(
            "the numeric value NaN",
            "numeric columns hold numbers alone",
        )));
    }
    if sign != 0 && sign != 0x4000 {
        return None;
    }
    let mut plain = String::from(if sign == 0x4000 { "-0" } else { "0" });
    for at in 0..count {
        let group = word(4 + at)?;
        if group > 9999 {
            return None;
        }
        plain.push_str(&format!("{group:04}"));
    }
    plain.push_str(&format!("e{}", (weight + 1 - count as i32) * 4));
    Some(plain.parse().map(Value::Decimal).map_err(|_| beyond()))
}

//! The fields of one record. A record is cut out before it is taken apart, as PostgreSQL does it.

use super::reader::Record;
use super::{Csv, Format, bad_format};
use crate::binary::utf8;
use crate::failure::Failure;

fn too_many() -> Failure {
    bad_format("extra data after last expected column")
}

fn finished(bytes: &[u8]) -> Result<Option<String>, Failure> {
    utf8(bytes).map(|text| Some(text.to_string()))
}

/// Fields of the format text: between delimiters, with backslashes for what could be mistaken.
pub fn text_fields(format: &Format, line: &[u8], limit: usize) -> Result<Record, Failure> {
    let mut fields = Vec::with_capacity(limit);
    let (mut rest, mut value) = (line, Vec::new());
    loop {
        if fields.len() == limit {
            return Err(too_many());
        }
        value.clear();
        let mut at = 0;
        let mut more = false;
        while let Some(byte) = rest.get(at).copied() {
            at += 1;
            match byte {
                byte if byte == format.delimiter => {
                    more = true;
                    break;
                }
                b'\\' => at += unescape(&rest[at..], &mut value),
                byte => value.push(byte),
            }
        }
        let raw = &rest[..at - usize::from(more)];
        fields.push(if raw == format.null.as_bytes() { None } else { finished(&value)? });
        rest = &rest[at..];
        if !more {
            return Ok(fields);
        }
    }
}

/// Appends what stands after a backslash. How many bytes that were.
fn unescape(rest: &[u8], value: &mut Vec<u8>) -> usize {
    let Some(first) = rest.first().copied() else { return 0 };
    let digits = |from: usize, most: usize, base: u32| {
        let digits = rest[from..].iter().take(most).map_while(|byte| (*byte as char).to_digit(base));
        digits.fold((0u32, 0), |(number, count), digit| (number * base + digit, count + 1))
    };
    match first {
        b'0'..=b'7' => {
            let (number, count) = digits(0, 3, 8);
            value.push(number as u8);
            return count;
        }
        b'x' => {
            let (number, count) = digits(1, 2, 16);
            value.push(if count > 0 { number as u8 } else { b'x' });
            return 1 + count;
        }
        b'b' => value.push(8),
        b'f' => value.push(12),
        b'n' => value.push(b'\n'),
        b'r' => value.push(b'\r'),
        b't' => value.push(b'\t'),
        b'v' => value.push(11),
        other => value.push(other),
    }
    1
}

/// Fields of the format csv: between delimiters, in quotes where needed.
pub fn csv_fields(format: &Format, csv: &Csv, line: &[u8], limit: usize) -> Result<Record, Failure> {
    let mut fields: Record = Vec::with_capacity(limit);
    let (mut rest, mut value) = (line, Vec::new());
    loop {
        if fields.len() == limit {
            return Err(too_many());
        }
        value.clear();
        let (length, quoted) = csv_value(format.delimiter, csv, rest, &mut value)?;
        let raw = &rest[..length];
        let place = fields.len();
        let null = match quoted {
            true => csv.force_null.has(place) && value == format.null.as_bytes(),
            false => raw == format.null.as_bytes() && !csv.force_not_null.has(place),
        };
        fields.push(if null { None } else { finished(&value)? });
        match rest.get(length) {
            None => return Ok(fields),
            Some(_) => rest = &rest[length + 1..],
        }
    }
}

/// Appends a field's value. How long it is as it is written, and whether there was a quote.
fn csv_value(delimiter: u8, csv: &Csv, rest: &[u8], value: &mut Vec<u8>) -> Result<(usize, bool), Failure> {
    let (mut at, mut inside, mut quoted) = (0, false, false);
    while let Some(byte) = rest.get(at).copied() {
        at += 1;
        if !inside {
            match byte {
                byte if byte == delimiter => return Ok((at - 1, quoted)),
                byte if byte == csv.quote => (inside, quoted) = (true, true),
                byte => value.push(byte),
            }
            continue;
        }
        // The escape may be the quote itself, so it is looked at first.
        let after = rest.get(at).copied();
        match after {
            Some(next) if byte == csv.escape && (next == csv.escape || next == csv.quote) => {
                value.push(next);
                at += 1;
            }
            _ if byte == csv.quote => inside = false,
            _ => value.push(byte),
        }
    }
    if inside { Err(bad_format("unterminated CSV quoted field")) } else { Ok((at, quoted)) }
}

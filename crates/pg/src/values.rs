//! Values between their bytes on the wire and what they are, in the format that the client asked for.

use crate::binary;
use crate::failure::{Failure, code};
use crate::kind::Kind;
use crate::text;
use bytes::Bytes;
use types::data::Value;

/// For each column whether it is written in binary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Formats {
    /// Of every column, if `each` is empty.
    all: bool,
    each: Vec<bool>,
}

impl Formats {
    /// Everything as text.
    pub fn text() -> Formats {
        Formats { all: false, each: Vec::new() }
    }

    /// From a message: none means text, one means all, else one for each of `columns`.
    pub fn of(codes: &[i16], columns: usize) -> Result<Formats, Failure> {
        match codes {
            [] => Ok(Formats::text()),
            [one] => Ok(Formats { all: binary(*one)?, each: Vec::new() }),
            codes if codes.len() == columns => {
                let each = codes.iter().map(|code| binary(*code)).collect::<Result<_, _>>()?;
                Ok(Formats { all: false, each })
            }
            codes => Err(Failure::new(
                code::PROTOCOL,
                format!("bind message has {} result formats but query has {columns} columns", codes.len()),
            )),
        }
    }

    /// True if this column is written in binary.
    pub fn is_binary(&self, column: usize) -> bool {
        self.each.get(column).copied().unwrap_or(self.all)
    }
}

fn binary(code: i16) -> Result<bool, Failure> {
    match code {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Failure::new(code::PROTOCOL, format!("unsupported format code: {other}"))),
    }
}

/// The values of a statement's parameters.
pub fn read_all(kinds: &[Kind], formats: &[i16], values: &[Option<Bytes>]) -> Result<Vec<Value>, Failure> {
    let formats = Formats::of(formats, values.len())?;
    let pairs = kinds.iter().zip(values).enumerate();
    pairs.map(|(at, (kind, bytes))| read(*kind, formats.is_binary(at), bytes.as_deref())).collect()
}

fn read(kind: Kind, is_binary: bool, bytes: Option<&[u8]>) -> Result<Value, Failure> {
    match bytes {
        None => Ok(Value::Null),
        Some(bytes) if is_binary => binary::parse(kind, bytes),
        Some(bytes) => text::parse(kind, binary::utf8(bytes)?),
    }
}

/// Appends a value with its length, as a row has it.
pub fn write(
    out: &mut Vec<u8>,
    scratch: &mut String,
    kind: Kind,
    is_binary: bool,
    value: &Value,
) -> Result<(), Failure> {
    if value.is_null() {
        out.extend((-1i32).to_be_bytes());
        return Ok(());
    }
    let at = out.len();
    out.extend([0; 4]);
    if is_binary {
        binary::write(out, kind, value)?;
    } else {
        scratch.clear();
        text::write_as(scratch, kind, value);
        out.extend_from_slice(scratch.as_bytes());
    }
    let length = i32::try_from(out.len() - at - 4)
        .map_err(|_| Failure::new(code::LIMIT, "a value is longer than the protocol can say"))?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::data::ColumnType;

    /// Value, its type, its text, its bytes in hexadecimal: what PostgreSQL 15 sends for them.
    const CASES: &[(Kind, ColumnType, &str, &str, &str)] = &[
        (Kind::Bool, ColumnType::Bool, "true", "t", "01"),
        (Kind::Int4, ColumnType::Int, "-2", "-2", "fffffffe"),
        (Kind::Int8, ColumnType::Int, "258", "258", "0000000000000102"),
        (Kind::Float8, ColumnType::Float, "1", "1", "3ff0000000000000"),
        (Kind::Float8, ColumnType::Float, "1e15", "1e+15", "430c6bf526340000"),
        (Kind::Float8, ColumnType::Float, "1e14", "100000000000000", "42d6bcc41e900000"),
        (Kind::Float8, ColumnType::Float, "0.00001", "1e-05", "3ee4f8b588e368f1"),
        (Kind::Float8, ColumnType::Float, "0.0001", "0.0001", "3f1a36e2eb1c432d"),
        (Kind::Float8, ColumnType::Float, "-inf", "-Infinity", "fff0000000000000"),
        (Kind::Numeric, ColumnType::Decimal, "0", "0", "0000000000000000"),
        (Kind::Numeric, ColumnType::Decimal, "12345.678", "12345.678", "0003000100000003000109291a7c"),
        (Kind::Numeric, ColumnType::Decimal, "-0.0001", "-0.0001", "0001ffff400000040001"),
        (Kind::Numeric, ColumnType::Decimal, "10000", "10000", "00010001000000000001"),
        (Kind::Text, ColumnType::Text, "é", "é", "c3a9"),
        (Kind::Bytea, ColumnType::Bytes, r"\x00ff", r"\x00ff", "00ff"),
        (Kind::Date, ColumnType::Date, "2000-01-01", "2000-01-01", "00000000"),
        (Kind::Date, ColumnType::Date, "1999-12-31", "1999-12-31", "ffffffff"),
        (
            Kind::Timestamptz,
            ColumnType::Timestamp,
            "2000-01-01T00:00:01.5Z",
            "2000-01-01 00:00:01.5+00",
            "000000000016e360",
        ),
        (
            Kind::Timestamp,
            ColumnType::Timestamp,
            "2000-01-01T00:00:01.5Z",
            "2000-01-01 00:00:01.5",
            "000000000016e360",
        ),
        (Kind::Bpchar, ColumnType::Text, "ab", "ab", "6162"),
        (Kind::Float4, ColumnType::Float, "0.5", "0.5", "3f000000"),
        (Kind::Float4, ColumnType::Float, "1e6", "1e+06", "49742400"),
        (
            Kind::Uuid,
            ColumnType::Uuid,
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ),
        (Kind::Time, ColumnType::Time, "04:05:06.5", "04:05:06.5", "000000036c9361a0"),
        (
            Kind::Interval,
            ColumnType::Interval,
            "1 year 2 mons -3 days 04:05:06.5",
            "1 year 2 mons -3 days +04:05:06.5",
            "000000036c9361a0fffffffd0000000e",
        ),
        (Kind::Json, ColumnType::Json, r#"{"a":1}"#, r#"{"a":1}"#, "7b2261223a317d"),
        (Kind::Jsonb, ColumnType::Json, "[1]", "[1]", "015b315d"),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
        digits.chunks(2).map(pair).collect()
    }

    #[test]
    fn values_go_out_and_come_back_in_both_formats() {
        for (kind, of, value, text, hex) in CASES {
            let value = of.parse(value).expect(value);
            let written = |is_binary| {
                let mut out = Vec::new();
                write(&mut out, &mut String::new(), *kind, is_binary, &value).expect("fits");
                assert_eq!(out[..4], ((out.len() - 4) as i32).to_be_bytes());
                out[4..].to_vec()
            };
            assert_eq!(String::from_utf8(written(false)).as_deref(), Ok(*text), "{kind:?}");
            assert_eq!(written(true), bytes(hex), "{kind:?} {text}");
            assert_eq!(read(*kind, false, Some(text.as_bytes())), Ok(value.clone()), "{kind:?}");
            assert_eq!(read(*kind, true, Some(&bytes(hex))), Ok(value), "{kind:?} {text}");
        }
        let mut out = Vec::new();
        write(&mut out, &mut String::new(), Kind::Int8, true, &Value::Null).expect("fits");
        assert_eq!(out, [255; 4]);
        assert_eq!(read(Kind::Int8, true, None), Ok(Value::Null));
    }

    #[test]
    fn years_before_the_first_and_after_the_9999th() {
        for (days, text) in
            [(-719_162, "0001-01-01"), (-719_163, "0001-12-31 BC"), (2_932_897, "10000-01-01")]
        {
            assert_eq!(text::to_text(&Value::Date(days)), text);
        }
    }

    #[test]
    fn what_is_no_value_is_refused_with_its_code() {
        let cases: &[(Kind, &str, &str)] = &[
            (Kind::Int4, "12x", "22P02"),
            (Kind::Int4, "2147483648", "22003"),
            (Kind::Int2, "-32769", "22003"),
            (Kind::Int8, "9223372036854775808", "22003"),
            (Kind::Bool, "o", "22P02"),
            (Kind::Float8, "infinit", "22P02"),
            (Kind::Numeric, "1e40", "22003"),
            (Kind::Numeric, "NaN", "22P02"),
            (Kind::Date, "2001-02-29", "22008"),
            (Kind::Date, "yesterday", "22007"),
            (Kind::Timestamp, "2001-01-01 25:00:00", "22008"),
            (Kind::Json, "{", "22P02"),
            (Kind::Bytea, r"\9", "22P02"),
            (Kind::Uuid, "x", "22P02"),
            (Kind::Time, "25:00", "22008"),
            (Kind::Time, "noon", "22007"),
            (Kind::Interval, "soon", "22007"),
            (Kind::Float4, "1e39", "22003"),
        ];
        for (kind, text, code) in cases {
            let refused = text::parse(*kind, text).expect_err(text);
            assert_eq!(refused.code, *code, "{kind:?} {text}: {refused}");
        }
        let binary: &[(Kind, &[u8], &str)] = &[
            (Kind::Int4, &[1], "22P03"),
            (Kind::Int8, &[], "22P03"),
            (Kind::Numeric, &[0, 1, 0, 0, 0, 0, 0, 0], "22P03"),
            (Kind::Numeric, &[0, 0, 0, 0, 0xc0, 0, 0, 0], "0A000"),
            (Kind::Jsonb, &[2, b'1'], "22P03"),
            (Kind::Text, &[0xff], "22021"),
            (Kind::Text, &[b'a', 0], "22021"),
            (Kind::Date, &i32::MAX.to_be_bytes(), "22003"),
        ];
        for (kind, bytes, code) in binary {
            let refused = read(*kind, true, Some(bytes)).expect_err("refused");
            assert_eq!(refused.code, *code, "{kind:?}: {refused}");
        }
        assert_eq!(text::parse(Kind::Bool, " YE "), Ok(Value::Bool(true)));
        for day in ["2001-02-03 +00", "2001-02-03 -05:30", "2001-02-03 23:59:59+00"] {
            assert_eq!(text::parse(Kind::Date, day), text::parse(Kind::Date, "2001-02-03"), "{day}");
        }
        assert_eq!(text::parse(Kind::Date, "2001-02-03 noon").expect_err("no day").code, "22007");
        assert_eq!(text::parse(Kind::Bytea, r"a\\\101"), Ok(Value::Bytes(b"a\\A".to_vec())));
    }

    #[test]
    fn formats_are_none_one_or_one_each() {
        assert!(!Formats::of(&[], 3).expect("text").is_binary(2));
        assert!(Formats::of(&[1], 3).expect("binary").is_binary(2));
        let mixed = Formats::of(&[0, 1], 2).expect("two");
        assert!(!mixed.is_binary(0) && mixed.is_binary(1));
        assert!(Formats::of(&[0, 1], 3).is_err() && Formats::of(&[2], 1).is_err());
    }
}

//! Values and their types, as text and as JSON.

use super::calendar::{self, CalendarError};
use super::clock;
use super::decimal::{Decimal, DecimalError};
use super::interval::Interval;
use super::json::Json;
use super::uuid;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::str::FromStr;

/// The type of a column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// Whole numbers of 64 bits.
    Int,
    /// Numbers of 64 bits with a binary exponent.
    Float,
    /// Exact numbers of up to 38 digits.
    Decimal,
    /// Unicode text.
    Text,
    /// Bytes; as text `\x` and hexadecimal digits.
    Bytes,
    /// True or false.
    Bool,
    /// A day.
    Date,
    /// A moment, to the microsecond.
    Timestamp,
    /// A nested value. Not for keys.
    Json,
    /// Sixteen bytes that name something.
    Uuid,
    /// A time of day, of no day and no place.
    Time,
    /// A span of time. Not for keys.
    Interval,
}

/// A value of a column, or none.
///
/// Values of one type are ordered as people expect; nulls come first, NaN last, -0 equals 0, and values of
/// different types are ordered by type. The encoding of keys keeps this order.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// See [`ColumnType::Int`].
    Int(i64),
    /// See [`ColumnType::Float`].
    Float(f64),
    /// See [`ColumnType::Decimal`].
    Decimal(Decimal),
    /// See [`ColumnType::Text`].
    Text(String),
    /// See [`ColumnType::Bytes`].
    Bytes(Vec<u8>),
    /// See [`ColumnType::Bool`].
    Bool(bool),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01 00:00:00 UTC.
    Timestamp(i64),
    /// See [`ColumnType::Json`].
    Json(Json),
    /// See [`ColumnType::Uuid`].
    Uuid([u8; 16]),
    /// Microseconds since midnight, up to the end of the day.
    Time(i64),
    /// See [`ColumnType::Interval`].
    Interval(Interval),
}

/// Why a text or a JSON value is not of a type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found} is not {}: {why}", expected.with_article())]
pub struct ValueError {
    /// The type that was asked for.
    pub expected: ColumnType,
    /// What was there instead, shortened.
    pub found: String,
    /// The reason.
    pub why: String,
    /// True if it is written as it should be, and no such value is there or can be kept.
    pub out_of_range: bool,
}

impl ColumnType {
    /// Every type.
    pub const ALL: [ColumnType; 12] = [
        ColumnType::Int,
        ColumnType::Float,
        ColumnType::Decimal,
        ColumnType::Text,
        ColumnType::Bytes,
        ColumnType::Bool,
        ColumnType::Date,
        ColumnType::Timestamp,
        ColumnType::Json,
        ColumnType::Uuid,
        ColumnType::Time,
        ColumnType::Interval,
    ];

    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Int => "int",
            ColumnType::Float => "float",
            ColumnType::Decimal => "decimal",
            ColumnType::Text => "text",
            ColumnType::Bytes => "bytes",
            ColumnType::Bool => "bool",
            ColumnType::Date => "date",
            ColumnType::Timestamp => "timestamp",
            ColumnType::Json => "json",
            ColumnType::Uuid => "uuid",
            ColumnType::Time => "time",
            ColumnType::Interval => "interval",
        }
    }

    /// Whether a column of this type can be part of a key: all but `json`, whose values have no useful order,
    /// and `interval`, of which different values are equal.
    pub fn may_be_key(self) -> bool {
        !matches!(self, ColumnType::Json | ColumnType::Interval)
    }

    /// Reads a value from text. Never gives null: what stands for null is the caller's choice.
    pub fn parse(self, text: &str) -> Result<Value, ValueError> {
        let refuse = |why: &dyn fmt::Display| self.refuse(&format!("{text:?}"), why);
        let no_time = |error: CalendarError| {
            let out_of_range = matches!(error, CalendarError::NoSuchDay | CalendarError::NoSuchTime);
            ValueError { out_of_range, ..refuse(&error) }
        };
        let no_decimal = |error: DecimalError| ValueError {
            out_of_range: error == DecimalError::TooLong,
            ..refuse(&error)
        };
        Ok(match self {
            ColumnType::Int => Value::Int(text.parse().map_err(|_| refuse(&why_not_int(text)))?),
            ColumnType::Float => Value::Float(text.parse().map_err(|_| refuse(&"expected a number"))?),
            ColumnType::Decimal => Value::Decimal(text.parse().map_err(no_decimal)?),
            ColumnType::Text => Value::Text(text.to_string()),
            ColumnType::Bytes => Value::Bytes(
                parse_hex(text).ok_or_else(|| refuse(&r"expected \x and pairs of hexadecimal digits"))?,
            ),
            ColumnType::Bool => {
                Value::Bool(parse_bool(text).ok_or_else(|| refuse(&"expected true or false"))?)
            }
            ColumnType::Date => Value::Date(calendar::parse_date(text).map_err(no_time)?),
            ColumnType::Timestamp => Value::Timestamp(calendar::parse_timestamp(text).map_err(no_time)?),
            ColumnType::Json => Value::Json(Json::parse(text).map_err(|error| refuse(&error))?),
            ColumnType::Uuid => Value::Uuid(
                uuid::parse(text).ok_or_else(|| refuse(&"expected 32 hexadecimal digits in groups"))?,
            ),
            ColumnType::Time => Value::Time(clock::parse(text).map_err(|error| ValueError {
                out_of_range: error == clock::ClockError::NoSuchTime,
                ..refuse(&error)
            })?),
            ColumnType::Interval => Value::Interval(Interval::parse(text).map_err(|why| refuse(&why))?),
        })
    }

    /// The name as a sentence has it.
    fn with_article(self) -> String {
        match self {
            ColumnType::Int | ColumnType::Interval => format!("an {self}"),
            ColumnType::Bytes => "bytes".to_string(),
            ColumnType::Json => "JSON".to_string(),
            other => format!("a {other}"),
        }
    }

    fn refuse(self, found: &str, why: &dyn fmt::Display) -> ValueError {
        ValueError { expected: self, found: shortened(found, 60), why: why.to_string(), out_of_range: false }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no type's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is not a type; the types are int, float, decimal, text, bytes, bool, date, timestamp, json, uuid, time and \
     interval"
)]
pub struct UnknownType(pub String);

impl FromStr for ColumnType {
    type Err = UnknownType;

    /// Reads a name, SQL's usual ones included.
    fn from_str(text: &str) -> Result<ColumnType, UnknownType> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "int" | "integer" | "bigint" | "int8" => ColumnType::Int,
            "float" | "double" | "float8" | "double precision" => ColumnType::Float,
            "decimal" | "numeric" => ColumnType::Decimal,
            "text" | "string" | "varchar" => ColumnType::Text,
            "bytes" | "bytea" | "blob" => ColumnType::Bytes,
            "bool" | "boolean" => ColumnType::Bool,
            "date" => ColumnType::Date,
            "timestamp" | "timestamptz" => ColumnType::Timestamp,
            "json" | "jsonb" => ColumnType::Json,
            "uuid" => ColumnType::Uuid,
            "time" => ColumnType::Time,
            "interval" => ColumnType::Interval,
            _ => return Err(UnknownType(text.to_string())),
        })
    }
}

impl Value {
    /// The value's type; null has none.
    pub fn column_type(&self) -> Option<ColumnType> {
        Some(match self {
            Value::Null => return None,
            Value::Int(_) => ColumnType::Int,
            Value::Float(_) => ColumnType::Float,
            Value::Decimal(_) => ColumnType::Decimal,
            Value::Text(_) => ColumnType::Text,
            Value::Bytes(_) => ColumnType::Bytes,
            Value::Bool(_) => ColumnType::Bool,
            Value::Date(_) => ColumnType::Date,
            Value::Timestamp(_) => ColumnType::Timestamp,
            Value::Json(_) => ColumnType::Json,
            Value::Uuid(_) => ColumnType::Uuid,
            Value::Time(_) => ColumnType::Time,
            Value::Interval(_) => ColumnType::Interval,
        })
    }

    /// True for null.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Takes over a JSON value as one of type `expected`. JSON null is null, also for a JSON column.
    ///
    /// A decimal comes best as a string: a JSON number with more than 15 digits may already have been
    /// rounded, and is refused. [`Value::from_json_text`] sees the digits themselves.
    pub fn from_json(expected: ColumnType, value: serde_json::Value) -> Result<Value, ValueError> {
        use serde_json::Value as J;
        let wrong = |value: &J| expected.refuse(&value.to_string(), &"it is of another JSON type");
        Ok(match (expected, value) {
            (_, J::Null) => Value::Null,
            (ColumnType::Json, value) => {
                Value::Json(Json::from_json(value).map_err(|error| expected.refuse("the value", &error))?)
            }
            (ColumnType::Int, J::Number(number)) => {
                let whole = number.as_i64().or_else(|| whole_float(number.as_f64()?));
                let refuse = || expected.refuse(&number.to_string(), &"not a whole number of 64 bits");
                Value::Int(whole.ok_or_else(refuse)?)
            }
            (ColumnType::Float, J::Number(number)) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            (ColumnType::Decimal, J::Number(number)) => {
                let text = number.to_string();
                let parsed: Decimal = text.parse().map_err(|error| expected.refuse(&text, &error))?;
                if number.is_f64() && parsed.mantissa().unsigned_abs() >= 10u128.pow(15) {
                    return Err(expected.refuse(&text, &"a number of more than 15 digits must be a string"));
                }
                Value::Decimal(parsed)
            }
            (ColumnType::Bool, J::Bool(truth)) => Value::Bool(truth),
            (ColumnType::Text, J::String(text)) => Value::Text(text),
            (ColumnType::Float, J::String(text)) if matches!(text.as_str(), "NaN" | "inf" | "-inf") => {
                return expected.parse(&text);
            }
            (ColumnType::Int | ColumnType::Bool | ColumnType::Float, value) => return Err(wrong(&value)),
            (_, J::String(text)) => return expected.parse(&text),
            (_, value) => return Err(wrong(&value)),
        })
    }

    /// Reads a value of type `expected` from the text of one JSON value, decimals with all their digits.
    pub fn from_json_text(expected: ColumnType, text: &str) -> Result<Value, ValueError> {
        let text = text.trim_ascii();
        let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        match expected {
            ColumnType::Int if is_number => {
                if let Ok(number) = text.parse() {
                    return Ok(Value::Int(number));
                }
            }
            ColumnType::Decimal if is_number => return expected.parse(text),
            _ => {}
        }
        let value = serde_json::from_str(text).map_err(|error| expected.refuse(text, &error))?;
        Value::from_json(expected, value)
    }

    /// The JSON value it is written as: what JSON has no type for, decimals included, becomes a string. A
    /// JSON column that holds JSON's null is written as one that holds nothing.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Null => serde_json::Value::Null,
            Value::Int(number) => (*number).into(),
            Value::Float(number) if number.is_finite() => (*number).into(),
            Value::Bool(truth) => (*truth).into(),
            Value::Text(text) => text.as_str().into(),
            Value::Json(tree) => tree.to_json(),
            other => other.to_string().into(),
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Int(one), Value::Int(two)) => one.cmp(two),
            (Value::Float(one), Value::Float(two)) => compare_floats(*one, *two),
            (Value::Decimal(one), Value::Decimal(two)) => one.cmp(two),
            (Value::Text(one), Value::Text(two)) => one.cmp(two),
            (Value::Bytes(one), Value::Bytes(two)) => one.cmp(two),
            (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
            (Value::Date(one), Value::Date(two)) => one.cmp(two),
            (Value::Timestamp(one), Value::Timestamp(two)) => one.cmp(two),
            (Value::Json(one), Value::Json(two)) => one.cmp(two),
            (Value::Uuid(one), Value::Uuid(two)) => one.cmp(two),
            (Value::Time(one), Value::Time(two)) => one.cmp(two),
            (Value::Interval(one), Value::Interval(two)) => one.cmp(two),
            _ => self.column_type().cmp(&other.column_type()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    /// The text that [`ColumnType::parse`] reads back; null is `null`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Int(number) => number.fmt(f),
            Value::Float(number) => write!(f, "{number:?}"),
            Value::Decimal(number) => number.fmt(f),
            Value::Text(text) => f.write_str(text),
            Value::Bytes(bytes) => {
                f.write_str(r"\x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Value::Bool(truth) => truth.fmt(f),
            Value::Date(days) => calendar::write_date(f, (*days).into()),
            Value::Timestamp(micros) => calendar::write_timestamp(f, *micros),
            Value::Json(tree) => tree.fmt(f),
            Value::Uuid(bytes) => uuid::write(f, *bytes),
            Value::Time(micros) => clock::write(f, *micros),
            Value::Interval(interval) => interval.fmt(f),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

/// The order of floats: -0 equals 0, all NaN are equal and last.
pub(crate) fn compare_floats(one: f64, two: f64) -> Ordering {
    one.partial_cmp(&two).unwrap_or_else(|| one.is_nan().cmp(&two.is_nan()))
}

/// At most `limit` characters of `text`, with a mark where it was cut.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_string(),
        Some((at, _)) => {
            let mut short = text[..at].to_string();
            short.write_str("...").expect("writing to a string");
            short
        }
    }
}

/// A float that is a whole number below 2^53, where floats still know every whole number.
fn whole_float(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}

fn why_not_int(text: &str) -> &'static str {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        "it is beyond 64 bits"
    } else {
        "expected digits"
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["true", "t", "yes", "on", "1"]) {
        Some(true)
    } else if is(&["false", "f", "no", "off", "0"]) {
        Some(false)
    } else {
        None
    }
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(r"\x")?.as_bytes();
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_every_type_is_read() {
        let cases = [
            (ColumnType::Int, "-5", Value::Int(-5)),
            (ColumnType::Float, "1e3", Value::Float(1000.0)),
            (ColumnType::Decimal, "1.50", Value::Decimal(Decimal::new(15, 1).expect("small"))),
            (ColumnType::Text, "", Value::Text(String::new())),
            (ColumnType::Bytes, r"\x00FF", Value::Bytes(vec![0, 255])),
            (ColumnType::Bool, "TRUE", Value::Bool(true)),
            (ColumnType::Bool, "no", Value::Bool(false)),
            (ColumnType::Date, "1970-01-02", Value::Date(1)),
            (ColumnType::Timestamp, "1970-01-01T00:00:01Z", Value::Timestamp(1_000_000)),
            (ColumnType::Json, "[1]", Value::Json(Json::List(vec![Json::Int(1)]))),
        ];
        for (column_type, text, value) in cases {
            assert_eq!(column_type.parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_refusal_is_one_sentence() {
        let sentence =
            |column_type: ColumnType, text: &str| column_type.parse(text).expect_err(text).to_string();
        assert_eq!(sentence(ColumnType::Int, "12x"), r#""12x" is not an int: expected digits"#);
        assert_eq!(
            sentence(ColumnType::Int, "9223372036854775808"),
            r#""9223372036854775808" is not an int: it is beyond 64 bits"#
        );
        assert_eq!(
            sentence(ColumnType::Date, "2013-02-30"),
            r#""2013-02-30" is not a date: there is no such day in the calendar"#
        );
        assert_eq!(
            sentence(ColumnType::Bytes, "ff"),
            r#""ff" is not bytes: expected \x and pairs of hexadecimal digits"#
        );
        let long = sentence(ColumnType::Bool, &"é".repeat(1000));
        assert!(long.contains("...") && long.len() < 250, "{long}");
    }

    #[test]
    fn names_of_types_are_read_as_they_are_written() {
        for column_type in ColumnType::ALL {
            assert_eq!(column_type.to_string().parse(), Ok(column_type));
            let unordered = matches!(column_type, ColumnType::Json | ColumnType::Interval);
            assert_eq!(column_type.may_be_key(), !unordered);
        }
        assert_eq!("BIGINT".parse(), Ok(ColumnType::Int));
        let error = "money".parse::<ColumnType>().expect_err("not a type").to_string();
        assert!(error.starts_with("`money` is not a type; the types are int,"), "{error}");
    }

    #[test]
    fn json_that_fits_is_taken_and_the_rest_refused() {
        let from = |column_type, text: &str| Value::from_json_text(column_type, text);
        assert_eq!(from(ColumnType::Int, "5.0"), Ok(Value::Int(5)));
        assert_eq!(from(ColumnType::Int, " 7 "), Ok(Value::Int(7)));
        assert_eq!(from(ColumnType::Float, "5"), Ok(Value::Float(5.0)));
        assert_eq!(from(ColumnType::Float, r#""NaN""#), Ok(Value::Float(f64::NAN)));
        assert_eq!(from(ColumnType::Json, "null"), Ok(Value::Null));
        assert_eq!(from(ColumnType::Date, r#""1970-01-01""#), Ok(Value::Date(0)));
        let long = "0.1234567890123456789";
        assert_eq!(from(ColumnType::Decimal, long).map(|value| value.to_string()), Ok(long.to_string()));
        for (column_type, text) in [
            (ColumnType::Int, "5.5"),
            (ColumnType::Int, "1e300"),
            (ColumnType::Int, r#""5""#),
            (ColumnType::Float, r#""5""#),
            (ColumnType::Bool, r#""true""#),
            (ColumnType::Text, "5"),
            (ColumnType::Date, "5"),
            (ColumnType::Json, "{"),
        ] {
            assert!(from(column_type, text).is_err(), "{column_type} {text}");
        }
        let rounded = serde_json::json!(0.1234567890123456);
        assert!(Value::from_json(ColumnType::Decimal, rounded).is_err());
    }
}

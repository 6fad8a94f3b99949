//! What a column demands of its values beyond their type, and what it has for rows that say nothing.
//!
//! Bounds hold for whatever is written: [`encode_row`](super::encode_row) refuses values beyond them.
//! Defaults and identities are filled in by SQL's INSERT and COPY; other writers give whole rows.

use super::decimal::Decimal;
use super::value::{ColumnType, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The most characters that can be demanded.
pub const MAX_CHARS: u32 = 10_485_760;
/// The most digits of a decimal.
pub const MAX_PRECISION: u8 = 38;

/// Rules of one column.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Rules {
    /// Of an int: it is one of so many bits, 16 or 32; of a float: 32, which who writes sees to; `None`: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u8>,
    /// Of a text: at most so many characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<u32>,
    /// Of a decimal: so many digits, and how many of them stand after the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digits: Option<(u8, u8)>,
    /// What a row has that gives no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Fallback>,
    /// Of an int: rows that give no value are numbered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Of an int that is numbered: by the counter of this column of this table, whose rows the table has
    /// taken over; `None`: by its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<(u32, u32)>,
    /// The sequence that goes with the column, by its id: it numbers its rows if they are numbered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
    /// Of a text: blanks at its end do not count, and are not kept (SQL's `char(n)`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub padded: bool,
    /// Of a timestamp: it is a day and a time of whatever clock (SQL's `timestamp` without a time zone).
    #[serde(default, skip_serializing_if = "is_false")]
    pub local: bool,
    /// What SQL calls its type, where that is kept as another one: `integer[]`, whose text is canonical,
    /// `name`, `oid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// What rows have here that were written before there was this column, as its type reads it; `None`:
    /// null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Nobody sees it in SQL: the key of a table that has no other, or a column that was dropped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// Fields of a later release.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(truth: &bool) -> bool {
    !truth
}

/// A default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// This value, as the column's type reads it.
    Value(String),
    /// The moment at which the statement began, or its day.
    Now,
    /// A UUID that is drawn for each row.
    Random,
    /// The next number of the sequence with this id.
    Next(u32),
}

/// Who may number rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// Rows may also give a number themselves.
    ByDefault,
    /// The cluster alone.
    Always,
}

/// Why a value is not one of its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Breach {
    /// Too large or too small.
    #[error("a whole number of {0} bits does not hold it")]
    Range(u8),
    /// Too long.
    #[error("it has at most {0} characters")]
    Chars(u32),
    /// Too many digits.
    #[error("it has at most {0} digits, {1} of them after the point")]
    Digits(u8, u8),
}

impl Rules {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        *self == Rules::default()
    }

    /// Why these cannot be rules of a column of this type; `None`: they can.
    pub fn fault(&self, of: ColumnType) -> Option<String> {
        if let Some(bits) = self.bits
            && !matches!((of, bits), (ColumnType::Int, 16 | 32) | (ColumnType::Float, 32))
        {
            return Some(format!("{of} of {bits} bits"));
        }
        if let Some(chars) = self.max_chars
            && (of != ColumnType::Text || !(1..=MAX_CHARS).contains(&chars))
        {
            return Some(format!("{of} of at most {chars} characters"));
        }
        if let Some((precision, scale)) = self.digits
            && (of != ColumnType::Decimal || !(1..=MAX_PRECISION).contains(&precision) || scale > precision)
        {
            return Some(format!("{of} of {precision} digits, {scale} of them after the point"));
        }
        if self.identity.is_some() && (of != ColumnType::Int || self.default.is_some()) {
            return Some(format!("numbers for {of}, or for what has a default"));
        }
        if self.counter.is_some() && self.identity.is_none() {
            return Some(format!("a counter for {of} that is not numbered"));
        }
        if self.padded && self.max_chars.is_none() {
            return Some(format!("blanks at the end of {of} without a length"));
        }
        if self.local && of != ColumnType::Timestamp {
            return Some(format!("the time of a place for {of}"));
        }
        if let Some(name) = &self.shown
            && (!matches!(of, ColumnType::Int | ColumnType::Text) || name.is_empty() || name.len() > 63)
        {
            return Some(format!("the type {name:?} for {of}"));
        }
        if let Some(text) = &self.missing
            && let Err(error) = of.parse(text)
        {
            return Some(format!("{text:?} in rows that are there: {error}"));
        }
        let default = self.default.as_ref()?;
        match default {
            Fallback::Now if matches!(of, ColumnType::Timestamp | ColumnType::Date) => None,
            Fallback::Now => Some(format!("the time as the default of {of}")),
            Fallback::Random if of == ColumnType::Uuid => None,
            Fallback::Random => Some(format!("a UUID as the default of {of}")),
            Fallback::Next(_) if of == ColumnType::Int => None,
            Fallback::Next(_) => Some(format!("numbers as the default of {of}")),
            Fallback::Value(text) => match of.parse(text) {
                Ok(value) => self.check(&value).err().map(|breach| format!("the default {text:?}: {breach}")),
                Err(error) => Some(error.to_string()),
            },
        }
    }

    /// Whether a value keeps the bounds.
    pub fn check(&self, value: &Value) -> Result<(), Breach> {
        match value {
            Value::Int(number) => match self.bits {
                Some(16) if i16::try_from(*number).is_err() => Err(Breach::Range(16)),
                Some(32) if i32::try_from(*number).is_err() => Err(Breach::Range(32)),
                _ => Ok(()),
            },
            Value::Text(text) => match self.max_chars {
                Some(most) if text.chars().count() > most as usize => Err(Breach::Chars(most)),
                _ => Ok(()),
            },
            Value::Decimal(number) => match self.digits {
                Some((precision, scale)) if !holds(*number, precision, scale) => {
                    Err(Breach::Digits(precision, scale))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// The value as the column keeps it: decimals are rounded, halves away from zero; blanks beyond the last
    /// character that is kept are dropped.
    pub fn fit(&self, value: Value) -> Result<Value, Breach> {
        let value = match (value, self.digits, self.max_chars) {
            (Value::Decimal(number), Some((precision, scale)), _) => {
                let rounded = rounded(number, scale).ok_or(Breach::Digits(precision, scale))?;
                Value::Decimal(rounded)
            }
            (Value::Text(mut text), ..) if self.padded => {
                text.truncate(text.trim_end_matches(' ').len());
                Value::Text(text)
            }
            (Value::Text(text), _, Some(most)) => Value::Text(without_blanks(text, most as usize)),
            (value, ..) => value,
        };
        self.check(&value).map(|()| value)
    }
}

fn holds(number: Decimal, precision: u8, scale: u8) -> bool {
    let own = number.scale();
    let whole = number.mantissa().unsigned_abs() / 10u128.pow(own);
    own <= u32::from(scale) && whole < 10u128.pow(u32::from(precision - scale))
}

fn rounded(number: Decimal, scale: u8) -> Option<Decimal> {
    let (mantissa, own) = (number.mantissa(), number.scale());
    let Some(surplus) = own.checked_sub(scale.into()).filter(|surplus| *surplus > 0) else {
        return Some(number);
    };
    let unit = 10i128.pow(surplus);
    let (kept, rest) = (mantissa / unit, (mantissa % unit).unsigned_abs());
    // Twice the rest could be too much for 128 bits.
    let up = rest >= unit.unsigned_abs() - rest;
    Decimal::new(kept + if up { mantissa.signum() } else { 0 }, scale.into())
}

fn without_blanks(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most)
        && text[end..].bytes().all(|byte| byte == b' ')
    {
        text.truncate(end);
    }
    text
}

impl fmt::Display for Rules {
    /// Words for people, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.bits.map(|bits| format!("{bits} bits")));
        words.extend(self.shown.clone());
        words.extend(self.max_chars.map(|chars| format!("at most {chars} characters")));
        words.extend(
            self.digits.map(|(precision, scale)| format!("{precision} digits, {scale} after the point")),
        );
        words.extend(self.default.as_ref().map(|default| match default {
            Fallback::Value(text) => format!("default {text:?}"),
            Fallback::Now => "default now".to_string(),
            Fallback::Random => "default random".to_string(),
            Fallback::Next(sequence) => format!("default the next number of {sequence}"),
        }));
        words.extend(self.identity.map(|identity| match identity {
            Identity::ByDefault => "numbered by default".to_string(),
            Identity::Always => "always numbered".to_string(),
        }));
        words.extend(self.missing.as_ref().map(|text| format!("{text:?} in older rows")));
        let marks = [(self.padded, "blanks at its end do not count"), (self.local, "of any place")];
        words.extend(marks.iter().filter(|(there, _)| *there).map(|(_, mark)| mark.to_string()));
        words.extend(self.hidden.then(|| "hidden".to_string()));
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Value {
        Value::Decimal(text.parse().expect("a number"))
    }

    #[test]
    fn values_are_made_to_fit_or_refused() {
        let money = Rules { digits: Some((5, 2)), ..Rules::default() };
        for (given, kept) in [
            ("1.005", Some("1.01")),
            ("-1.005", Some("-1.01")),
            ("1.004999", Some("1")),
            ("999.994", Some("999.99")),
            ("999.995", None),
            ("-1000", None),
            ("0.00000000000000000000000000000000000009", Some("0")),
        ] {
            assert_eq!(money.fit(decimal(given)).ok(), kept.map(decimal), "{given}");
        }
        let all = Rules { digits: Some((38, 38)), ..Rules::default() };
        assert!(all.fit(decimal("0.99999999999999999999999999999999999999")).is_ok());
        assert_eq!(all.fit(decimal("1")), Err(Breach::Digits(38, 38)));
        let short = Rules { max_chars: Some(2), ..Rules::default() };
        assert_eq!(short.fit("éé".into()), Ok("éé".into()));
        assert_eq!(short.fit("ab   ".into()), Ok("ab".into()));
        assert_eq!(short.fit("a".into()), Ok("a".into()));
        assert_eq!(short.fit("abc".into()), Err(Breach::Chars(2)));
        for (bits, most) in [(16, i64::from(i16::MAX)), (32, i64::from(i32::MAX))] {
            let small = Rules { bits: Some(bits), ..Rules::default() };
            assert!(small.check(&Value::Int(most)).is_ok() && small.check(&Value::Int(-most - 1)).is_ok());
            assert_eq!(small.check(&Value::Int(most + 1)), Err(Breach::Range(bits)));
        }
        assert!(short.check(&Value::Null).is_ok());
    }

    #[test]
    fn rules_fit_their_type() {
        let none = Rules::default();
        let default = |text: &str| Rules { default: Some(Fallback::Value(text.into())), ..none.clone() };
        let good = [
            (ColumnType::Int, Rules { bits: Some(16), ..default("32767") }),
            (ColumnType::Text, Rules { max_chars: Some(3), ..default("abc") }),
            (ColumnType::Decimal, Rules { digits: Some((3, 3)), ..default("0.5") }),
            (ColumnType::Date, Rules { default: Some(Fallback::Now), ..none.clone() }),
            (ColumnType::Int, Rules { identity: Some(Identity::Always), ..none.clone() }),
            (ColumnType::Uuid, Rules { default: Some(Fallback::Random), ..none.clone() }),
            (ColumnType::Float, Rules { bits: Some(32), ..default("0.5") }),
            (ColumnType::Text, Rules { shown: Some("integer[]".into()), ..default("{1,2}") }),
        ];
        for (of, rules) in good {
            assert_eq!(rules.fault(of), None);
            let text = serde_json::to_string(&rules).expect("serialises");
            assert_eq!(serde_json::from_str::<Rules>(&text).expect("reads"), rules, "{text}");
        }
        let bad = [
            (ColumnType::Int, Rules { bits: Some(16), ..default("32768") }),
            (ColumnType::Int, Rules { bits: Some(8), ..none.clone() }),
            (ColumnType::Float, Rules { bits: Some(16), ..none.clone() }),
            (ColumnType::Text, Rules { default: Some(Fallback::Random), ..none.clone() }),
            (ColumnType::Date, Rules { shown: Some("oid".into()), ..none.clone() }),
            (ColumnType::Int, default("x")),
            (ColumnType::Text, Rules { max_chars: Some(0), ..none.clone() }),
            (ColumnType::Int, Rules { max_chars: Some(3), ..none.clone() }),
            (ColumnType::Decimal, Rules { digits: Some((2, 3)), ..none.clone() }),
            (ColumnType::Decimal, Rules { digits: Some((39, 0)), ..none.clone() }),
            (ColumnType::Text, Rules { default: Some(Fallback::Now), ..none.clone() }),
            (ColumnType::Text, Rules { identity: Some(Identity::Always), ..none.clone() }),
            (ColumnType::Int, Rules { identity: Some(Identity::ByDefault), ..default("1") }),
        ];
        for (of, rules) in bad {
            assert!(rules.fault(of).is_some(), "{rules}");
        }
    }
}

//! Operators and functions on dates and moments, in UTC.

use super::cast::out_of_range;
use super::{Eval, Function, mistyped};
use crate::ty::Ty::{self, *};
use pg::Failure;
use types::data::{Decimal, Value, calendar};

const MICROS_PER_DAY: i64 = 86_400_000_000;

pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    let mut add = |name, arguments: &'static [Ty], result, eval: Eval| {
        all.push(Function { name, arguments, result, eval });
    };
    add("+", &[Date, Int4], Date, |a| shifted(&a[0], &a[1], 1));
    add("+", &[Int4, Date], Date, |a| shifted(&a[1], &a[0], 1));
    add("-", &[Date, Int4], Date, |a| shifted(&a[0], &a[1], -1));
    add("-", &[Date, Date], Int4, |a| match a {
        [Value::Date(one), Value::Date(two)] => {
            let days = i64::from(*one) - i64::from(*two);
            i32::try_from(days).map(|days| Value::Int(days.into())).map_err(|_| out_of_range(Int4))
        }
        other => Err(mistyped(other)),
    });
    add("extract", &[Text, Date], Numeric, |a| field(a, false).map(Value::Decimal));
    add("extract", &[Text, Timestamptz], Numeric, |a| field(a, true).map(Value::Decimal));
    add("date_part", &[Text, Date], Float8, |a| field(a, true).map(|number| Value::Float(number.to_f64())));
    add("date_part", &[Text, Timestamptz], Float8, |a| {
        field(a, true).map(|number| Value::Float(number.to_f64()))
    });
    add("date_trunc", &[Text, Timestamptz], Timestamptz, truncated);
    add("extract", &[Text, Timestamp], Numeric, |a| field(a, true).map(Value::Decimal));
    add("date_part", &[Text, Timestamp], Float8, |a| {
        field(a, true).map(|number| Value::Float(number.to_f64()))
    });
    add("date_trunc", &[Text, Timestamp], Timestamp, truncated);
    all
}

fn shifted(date: &Value, days: &Value, sign: i64) -> Result<Value, Failure> {
    let (Value::Date(date), Value::Int(days)) = (date, days) else {
        return Err(mistyped(&[date.clone(), days.clone()]));
    };
    let moved = i64::from(*date) + sign * days;
    i32::try_from(moved).map(Value::Date).map_err(|_| Failure::new("22008", "date out of range"))
}

/// Year, month and day of a number of days since 1970.
pub(super) fn civil(days: i64) -> (i64, i64, i64) {
    let mut text = String::new();
    calendar::write_date(&mut text, days).expect("writing to a string");
    let (sign, rest) = match text.as_bytes()[0] {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, &text[..]),
    };
    let mut parts = rest.split('-').map(|part| part.parse::<i64>().unwrap_or_default());
    let mut next = || parts.next().unwrap_or_default();
    (sign * next(), next(), next())
}

/// The days since 1970 of a day of the calendar.
pub(super) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let sign = if year < 0 { "-" } else { "+" };
    calendar::parse_date(&format!("{sign}{:04}-{month:02}-{day:02}", year.abs())).ok().map(i64::from)
}

/// A field of a date or a moment. `time` is whether fields below the day are there.
fn field(arguments: &[Value], time: bool) -> Result<Decimal, Failure> {
    let [Value::Text(name), moment] = arguments else { return Err(mistyped(arguments)) };
    let micros = match moment {
        Value::Date(days) => i128::from(*days) * i128::from(MICROS_PER_DAY),
        Value::Timestamp(micros) => i128::from(*micros),
        _ => return Err(mistyped(arguments)),
    };
    let day = micros.div_euclid(MICROS_PER_DAY.into()) as i64;
    let in_day = micros.rem_euclid(MICROS_PER_DAY.into()) as i64;
    let (year, month, of_month) = civil(day);
    let name = name.to_ascii_lowercase();
    let number = match name.as_str() {
        // There is no year 0: before 1 comes -1.
        "year" => {
            if year > 0 {
                year
            } else {
                year - 1
            }
        }
        "month" => month,
        "day" => of_month,
        "quarter" => (month + 2) / 3,
        "dow" => (day + 4).rem_euclid(7),
        "isodow" => (day + 3).rem_euclid(7) + 1,
        "doy" => day - days(year, 1, 1).ok_or_else(|| out_of_range(Date))? + 1,
        "hour" if time => in_day / 3_600_000_000,
        "minute" if time => in_day / 60_000_000 % 60,
        "second" if time => return fraction((in_day % 60_000_000).into()),
        "epoch" => return fraction(micros),
        "hour" | "minute" | "second" => {
            return Err(Failure::new("0A000", format!("unit \"{name}\" not supported for type date")));
        }
        "week" | "isoyear" | "century" | "decade" | "millennium" | "julian" | "microseconds"
        | "milliseconds" => {
            return Err(Failure::unsupported(format!("the field {name}"), "use year, month, day or epoch"));
        }
        other => {
            return Err(Failure::new(
                "22023",
                format!(
                    "unit \"{other}\" not recognized for type {}",
                    moment.column_type().map_or("date", |of| of.name())
                ),
            ));
        }
    };
    Ok(Decimal::from(number))
}

/// Microseconds as seconds.
pub(super) fn fraction(micros: i128) -> Result<Decimal, Failure> {
    Decimal::new(micros, 6).ok_or_else(|| out_of_range(Numeric))
}

fn truncated(arguments: &[Value]) -> Result<Value, Failure> {
    let [Value::Text(name), Value::Timestamp(micros)] = arguments else { return Err(mistyped(arguments)) };
    let unit = match name.to_ascii_lowercase().as_str() {
        "microseconds" => 1,
        "milliseconds" => 1_000,
        "second" => 1_000_000,
        "minute" => 60_000_000,
        "hour" => 3_600_000_000,
        "day" => MICROS_PER_DAY,
        calendar => return truncated_day(calendar, micros.div_euclid(MICROS_PER_DAY)),
    };
    Ok(Value::Timestamp(micros - micros.rem_euclid(unit)))
}

fn truncated_day(name: &str, day: i64) -> Result<Value, Failure> {
    let (year, month, _) = civil(day);
    let first = match name {
        "week" => Some(day - (day + 3).rem_euclid(7)),
        "month" => days(year, month, 1),
        "quarter" => days(year, (month - 1) / 3 * 3 + 1, 1),
        "year" => days(year, 1, 1),
        "decade" | "century" | "millennium" => {
            return Err(Failure::unsupported(
                format!("date_trunc by {name}"),
                "use year, month, week or day",
            ));
        }
        other => {
            let message = format!("unit \"{other}\" not recognized for type timestamp with time zone");
            return Err(Failure::new("22023", message));
        }
    };
    let micros = first.and_then(|first| first.checked_mul(MICROS_PER_DAY));
    micros.map(Value::Timestamp).ok_or_else(|| out_of_range(Timestamptz))
}

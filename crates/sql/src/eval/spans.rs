//! Operators and functions on intervals and times of day.

use super::cast::out_of_range;
use super::{Eval, Function, mistyped};
use crate::ty::Ty::{self, *};
use pg::Failure;
use types::data::{Decimal, Interval as Span, Value};

const MICROS_PER_DAY: i64 = 86_400_000_000;

pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    let mut add = |name, arguments: &'static [Ty], result, eval: Eval| {
        all.push(Function { name, arguments, result, eval });
    };
    add("+", &[Timestamptz, Interval], Timestamptz, |a| moved(&a[0], &a[1], false));
    add("+", &[Interval, Timestamptz], Timestamptz, |a| moved(&a[1], &a[0], false));
    add("-", &[Timestamptz, Interval], Timestamptz, |a| moved(&a[0], &a[1], true));
    add("+", &[Timestamp, Interval], Timestamp, |a| moved(&a[0], &a[1], false));
    add("+", &[Interval, Timestamp], Timestamp, |a| moved(&a[1], &a[0], false));
    add("-", &[Timestamp, Interval], Timestamp, |a| moved(&a[0], &a[1], true));
    add("+", &[Date, Interval], Timestamp, |a| moved(&a[0], &a[1], false));
    add("+", &[Interval, Date], Timestamp, |a| moved(&a[1], &a[0], false));
    add("-", &[Date, Interval], Timestamp, |a| moved(&a[0], &a[1], true));
    add("-", &[Timestamptz, Timestamptz], Interval, between);
    add("-", &[Timestamp, Timestamp], Interval, between);
    add("+", &[Date, Time], Timestamp, |a| at(&a[0], &a[1]));
    add("+", &[Time, Date], Timestamp, |a| at(&a[1], &a[0]));
    add("+", &[Time, Interval], Time, |a| turned(&a[0], &a[1], 1));
    add("-", &[Time, Interval], Time, |a| turned(&a[0], &a[1], -1));
    add("-", &[Time, Time], Interval, |a| match a {
        [Value::Time(one), Value::Time(two)] => {
            Ok(Value::Interval(Span { micros: one - two, ..Span::default() }))
        }
        other => Err(mistyped(other)),
    });
    add("+", &[Interval, Interval], Interval, |a| spans(a, |one, two| one.plus(two)));
    add("-", &[Interval, Interval], Interval, |a| spans(a, |one, two| one.plus(&two.negated()?)));
    add("-", &[Interval], Interval, |a| match a {
        [Value::Interval(one)] => one.negated().map(Value::Interval).ok_or_else(too_long),
        other => Err(mistyped(other)),
    });
    add("*", &[Interval, Float8], Interval, |a| times(&a[0], &a[1]));
    add("*", &[Float8, Interval], Interval, |a| times(&a[1], &a[0]));
    add("/", &[Interval, Float8], Interval, |a| match &a[1] {
        Value::Float(0.0) => Err(super::numeric::by_zero()),
        Value::Float(by) => times(&a[0], &Value::Float(1.0 / by)),
        _ => Err(mistyped(a)),
    });
    for of in [&[Text, Interval][..], &[Text, Time]] {
        add("extract", of, Numeric, |a| field(a).map(Value::Decimal));
        add("date_part", of, Float8, |a| field(a).map(|number| Value::Float(number.to_f64())));
    }
    all
}

fn too_long() -> Failure {
    Failure::new("22008", "interval out of range")
}

fn spans(arguments: &[Value], both: impl Fn(&Span, &Span) -> Option<Span>) -> Result<Value, Failure> {
    match arguments {
        [Value::Interval(one), Value::Interval(two)] => {
            both(one, two).map(Value::Interval).ok_or_else(too_long)
        }
        other => Err(mistyped(other)),
    }
}

fn times(span: &Value, by: &Value) -> Result<Value, Failure> {
    match (span, by) {
        (Value::Interval(span), Value::Float(by)) => {
            span.times(*by).map(Value::Interval).ok_or_else(too_long)
        }
        _ => Err(mistyped(&[span.clone(), by.clone()])),
    }
}

/// A moment that is so much later, or earlier: first by months, whose last day is not passed, then by days
/// and what is below.
fn moved(moment: &Value, span: &Value, back: bool) -> Result<Value, Failure> {
    let micros = match moment {
        Value::Timestamp(micros) => *micros,
        Value::Date(days) => {
            i64::from(*days).checked_mul(MICROS_PER_DAY).ok_or_else(|| out_of_range(Timestamp))?
        }
        other => return Err(mistyped(std::slice::from_ref(other))),
    };
    let Value::Interval(span) = span else { return Err(mistyped(std::slice::from_ref(span))) };
    let span = if back { span.negated().ok_or_else(too_long)? } else { *span };
    let far = || Failure::new("22008", "timestamp out of range");
    let (day, in_day) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    let day = later(day, span.months).ok_or_else(far)?;
    let total = (i128::from(day) + i128::from(span.days)) * i128::from(MICROS_PER_DAY);
    let total = total + i128::from(in_day) + i128::from(span.micros);
    i64::try_from(total).map(Value::Timestamp).map_err(|_| far())
}

/// The day so many months after one, or the last of that month.
fn later(day: i64, months: i32) -> Option<i64> {
    if months == 0 {
        return Some(day);
    }
    let (year, month, of_month) = super::dates::civil(day);
    let all = year.checked_mul(12)?.checked_add(month - 1 + i64::from(months))?;
    let (year, month) = (all.div_euclid(12), all.rem_euclid(12) + 1);
    (of_month.saturating_sub(3)..=of_month).rev().find_map(|day| super::dates::days(year, month, day))
}

/// How much later one moment is than another: in days and what is below.
fn between(arguments: &[Value]) -> Result<Value, Failure> {
    let [Value::Timestamp(one), Value::Timestamp(two)] = arguments else { return Err(mistyped(arguments)) };
    let micros = one.checked_sub(*two).ok_or_else(too_long)?;
    let days = i32::try_from(micros / MICROS_PER_DAY).map_err(|_| too_long())?;
    Ok(Value::Interval(Span { months: 0, days, micros: micros % MICROS_PER_DAY }))
}

fn at(day: &Value, time: &Value) -> Result<Value, Failure> {
    match (day, time) {
        (Value::Date(days), Value::Time(micros)) => {
            let all = i64::from(*days).checked_mul(MICROS_PER_DAY).and_then(|day| day.checked_add(*micros));
            all.map(Value::Timestamp).ok_or_else(|| out_of_range(Timestamp))
        }
        _ => Err(mistyped(&[day.clone(), time.clone()])),
    }
}

/// A time of day so much later, around midnight.
fn turned(time: &Value, span: &Value, sign: i64) -> Result<Value, Failure> {
    match (time, span) {
        (Value::Time(time), Value::Interval(span)) => {
            let moved = i128::from(*time) + i128::from(sign) * i128::from(span.micros);
            Ok(Value::Time(moved.rem_euclid(MICROS_PER_DAY.into()) as i64))
        }
        _ => Err(mistyped(&[time.clone(), span.clone()])),
    }
}

/// A field of an interval or of a time of day.
fn field(arguments: &[Value]) -> Result<Decimal, Failure> {
    let [Value::Text(name), of] = arguments else { return Err(mistyped(arguments)) };
    let (span, what) = match of {
        Value::Interval(span) => (*span, "interval"),
        Value::Time(micros) => (Span { micros: *micros, ..Span::default() }, "time without time zone"),
        _ => return Err(mistyped(arguments)),
    };
    let whole = |number: i64| Ok(Decimal::from(number));
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "hour" => whole(span.micros / 3_600_000_000),
        "minute" => whole(span.micros / 60_000_000 % 60),
        "second" => super::dates::fraction((span.micros % 60_000_000).into()),
        // A year has 365 days and a quarter there.
        "epoch" => {
            let years = i128::from(span.months / 12) * 31_557_600;
            let months = i128::from(span.months % 12) * 30 * 86_400;
            let seconds = years + months + i128::from(span.days) * 86_400;
            super::dates::fraction(seconds * 1_000_000 + i128::from(span.micros))
        }
        "day" if what == "interval" => whole(span.days.into()),
        "month" if what == "interval" => whole((span.months % 12).into()),
        "year" if what == "interval" => whole((span.months / 12).into()),
        "year" | "month" | "day" | "quarter" | "dow" | "doy" | "isodow" => {
            Err(Failure::new("0A000", format!("unit \"{name}\" not supported for type {what}")))
        }
        _ => Err(Failure::new("22023", format!("unit \"{name}\" not recognized for type {what}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> i64 {
        types::data::calendar::parse_date(text).expect("a day").into()
    }

    #[test]
    fn a_month_later_is_no_later_than_the_end_of_that_month() {
        for (from, months, to) in [
            ("2024-01-31", 1, "2024-02-29"),
            ("2023-01-31", 1, "2023-02-28"),
            ("2024-03-31", -1, "2024-02-29"),
            ("2024-12-15", 1, "2025-01-15"),
            ("2024-02-29", 12, "2025-02-28"),
            ("2024-05-31", -6, "2023-11-30"),
        ] {
            assert_eq!(later(day(from), months), Some(day(to)), "{from} {months}");
        }
    }
}

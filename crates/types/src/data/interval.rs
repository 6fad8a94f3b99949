//! Intervals as PostgreSQL has them: months, days and microseconds, each counted by itself, since no one of
//! them is always as long as so many of another.

use super::clock::fraction_of;
use std::cmp::Ordering;
use std::fmt;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// A span of time.
///
/// They are ordered, and equal, by how long they are where a month has 30 days and a day 24 hours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interval {
    /// Months; a year has twelve.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

impl Interval {
    /// How long it is, in microseconds.
    pub fn length(&self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * i128::from(DAY) + i128::from(self.micros)
    }

    /// The same backwards. `None`: it cannot be counted.
    pub fn negated(&self) -> Option<Interval> {
        let (months, days) = (self.months.checked_neg()?, self.days.checked_neg()?);
        Some(Interval { months, days, micros: self.micros.checked_neg()? })
    }

    /// Both together. `None`: it cannot be counted.
    pub fn plus(&self, other: &Interval) -> Option<Interval> {
        let months = self.months.checked_add(other.months)?;
        let days = self.days.checked_add(other.days)?;
        Some(Interval { months, days, micros: self.micros.checked_add(other.micros)? })
    }

    /// So many times as long: what is left of months goes on into days, and of days into microseconds.
    /// `None`: it cannot be counted.
    pub fn times(&self, factor: f64) -> Option<Interval> {
        let months = f64::from(self.months) * factor;
        let days = f64::from(self.days) * factor;
        let whole = |number: f64| (number.abs() <= f64::from(i32::MAX)).then_some(number.trunc() as i32);
        let left = rounded((months - months.trunc()) * 30.0);
        let (whole_months, whole_days) = (whole(months)?, whole(days)?);
        let of_days = rounded((days - days.trunc() + left - left.trunc()) * DAY as f64 / SECOND as f64);
        let micros = (self.micros as f64 * factor + of_days * SECOND as f64).round_ties_even();
        let fits = micros.abs() < i64::MAX as f64;
        let days = whole_days.checked_add(whole(left)?)?;
        fits.then_some(Interval { months: whole_months, days, micros: micros as i64 })
    }

    /// Reads what PostgreSQL writes and what people do: `1 year 2 mons -3 days 04:05:06.7`, `2 hours ago`,
    /// and ISO 8601's `P1Y2M3DT4H5M6S`. The error says why not.
    pub fn parse(text: &str) -> Result<Interval, &'static str> {
        let text = text.trim();
        match text.strip_prefix(['P', 'p']) {
            Some(rest) => iso(rest),
            None => Words::read(text),
        }
    }

    fn add(&mut self, number: f64, unit: Unit) -> Result<(), &'static str> {
        let far = "it is too long";
        let mut rest = (0.0, 0.0);
        match unit {
            Unit::Months(count) => {
                let months = number * count;
                let whole = months.trunc();
                self.months = self.months.checked_add(fitting(whole)?).ok_or(far)?;
                // Of a year only months are kept, of a month days.
                rest.0 = if count > 1.0 { 0.0 } else { rounded((months - whole) * 30.0) };
            }
            Unit::Days(count) => rest.0 = number * count,
            Unit::Micros(count) => rest.1 = number * count as f64,
        }
        let whole = rest.0.trunc();
        self.days = self.days.checked_add(fitting(whole)?).ok_or(far)?;
        let micros = (rounded(rest.0 - whole) * DAY as f64 + rest.1).round_ties_even();
        if micros.abs() >= i64::MAX as f64 {
            return Err(far);
        }
        self.micros = self.micros.checked_add(micros as i64).ok_or(far)?;
        Ok(())
    }
}

/// Without what is below a millionth: sums of binary fractions are not exact.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round_ties_even() / 1e6
}

fn fitting(number: f64) -> Result<i32, &'static str> {
    (number.abs() <= f64::from(i32::MAX)).then_some(number as i32).ok_or("it is too long")
}

#[derive(Clone, Copy)]
enum Unit {
    Months(f64),
    Days(f64),
    Micros(i64),
}

fn unit(word: &str) -> Option<Unit> {
    Some(match word {
        "microsecond" | "microseconds" | "us" | "usec" | "usecs" | "usecond" | "useconds" => Unit::Micros(1),
        "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Unit::Micros(1_000),
        "second" | "seconds" | "s" | "sec" | "secs" => Unit::Micros(SECOND),
        "minute" | "minutes" | "m" | "min" | "mins" => Unit::Micros(60 * SECOND),
        "hour" | "hours" | "h" | "hr" | "hrs" => Unit::Micros(HOUR),
        "day" | "days" | "d" => Unit::Days(1.0),
        "week" | "weeks" | "w" => Unit::Days(7.0),
        "month" | "months" | "mon" | "mons" => Unit::Months(1.0),
        "year" | "years" | "y" | "yr" | "yrs" => Unit::Months(12.0),
        "decade" | "decades" => Unit::Months(120.0),
        "century" | "centuries" => Unit::Months(1200.0),
        _ => return None,
    })
}

/// Numbers with units, and a time of day at the end.
struct Words;

const NONE: &str = "expected a span such as 1 day 02:03:04";

impl Words {
    fn read(text: &str) -> Result<Interval, &'static str> {
        let lower = text.to_ascii_lowercase();
        let (body, ago) = match lower.strip_suffix("ago") {
            Some(body) => (body.trim_end(), true),
            None => (lower.as_str(), false),
        };
        let body = body.strip_prefix('@').unwrap_or(body);
        let mut found = Interval::default();
        let mut rest = body.trim();
        if rest.is_empty() {
            return Err(NONE);
        }
        while !rest.is_empty() {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let (word, more) = rest.split_at(end);
            if word.contains(':') {
                found.micros = found.micros.checked_add(clock(word)?).ok_or("it is too long")?;
                rest = more.trim_start();
                continue;
            }
            let digits = word.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(word.len());
            let number: f64 = word[..digits].parse().map_err(|_| NONE)?;
            let (name, after) = match word[digits..].is_empty() {
                false => (&word[digits..], more),
                true => {
                    let next = more.trim_start();
                    let end = next.find(char::is_whitespace).unwrap_or(next.len());
                    // A number alone at the end is one of seconds.
                    if next.is_empty() { ("s", next) } else { next.split_at(end) }
                }
            };
            found.add(number, unit(name).ok_or(NONE)?)?;
            rest = after.trim_start();
        }
        if ago { found.negated().ok_or("it is too long") } else { Ok(found) }
    }
}

/// `[-]HH:MM[:SS[.ffffff]]`.
fn clock(word: &str) -> Result<i64, &'static str> {
    let (sign, plain) = match word.strip_prefix('-') {
        Some(plain) => (-1, plain),
        None => (1, word.strip_prefix('+').unwrap_or(word)),
    };
    let parts: Vec<&str> = plain.split(':').collect();
    let whole = |text: &str| -> Result<i64, &'static str> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse().map_err(|_| "it is too long") } else { Err(NONE) }
    };
    let (hours, minutes, seconds) = match parts.as_slice() {
        [hours, minutes] => (whole(hours)?, whole(minutes)?, "0"),
        [hours, minutes, seconds] => (whole(hours)?, whole(minutes)?, *seconds),
        _ => return Err(NONE),
    };
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let (seconds, micros) = (whole(seconds)?, fraction_of(fraction).ok_or(NONE)?);
    if minutes > 59 || seconds > 60 {
        return Err("it is out of range");
    }
    let total = hours.checked_mul(3600).and_then(|all| all.checked_add(minutes * 60 + seconds));
    let total = total.and_then(|all| all.checked_mul(SECOND)).and_then(|all| all.checked_add(micros));
    total.map(|total| sign * total).ok_or("it is too long")
}

/// `1Y2M3W4DT5H6M7.8S`, behind its P.
fn iso(text: &str) -> Result<Interval, &'static str> {
    let mut found = Interval::default();
    let (mut time, mut rest, mut any) = (false, text, false);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(['T', 't']).filter(|_| !time) {
            (time, rest) = (true, after);
            continue;
        }
        let digits = rest.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).ok_or(NONE)?;
        let number: f64 = rest[..digits].parse().map_err(|_| NONE)?;
        let letter = rest[digits..].chars().next().ok_or(NONE)?.to_ascii_uppercase();
        let unit = match (letter, time) {
            ('Y', false) => Unit::Months(12.0),
            ('M', false) => Unit::Months(1.0),
            ('W', false) => Unit::Days(7.0),
            ('D', false) => Unit::Days(1.0),
            ('H', true) => Unit::Micros(HOUR),
            ('M', true) => Unit::Micros(60 * SECOND),
            ('S', true) => Unit::Micros(SECOND),
            _ => return Err(NONE),
        };
        found.add(number, unit)?;
        (rest, any) = (&rest[digits + 1..], true);
    }
    if any { Ok(found) } else { Err(NONE) }
}

impl Ord for Interval {
    fn cmp(&self, other: &Interval) -> Ordering {
        self.length().cmp(&other.length())
    }
}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Interval) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Interval {
    fn eq(&self, other: &Interval) -> bool {
        self.length() == other.length()
    }
}

impl Eq for Interval {}

impl fmt::Display for Interval {
    /// As PostgreSQL writes it: `1 year 2 mons -3 days +04:05:06.7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = Vec::new();
        let mut negative = false;
        let (years, months) = (self.months / 12, self.months % 12);
        for (number, name) in [(years, "year"), (months, "mon"), (self.days, "day")] {
            if number == 0 {
                continue;
            }
            // Behind something negative a sign says that this is not.
            let sign = if negative && number > 0 { "+" } else { "" };
            let plural = if number == 1 { "" } else { "s" };
            parts.push(format!("{sign}{number} {name}{plural}"));
            negative = number < 0;
        }
        if self.micros != 0 || parts.is_empty() {
            let sign = match (self.micros < 0, negative) {
                (true, _) => "-",
                (false, true) => "+",
                (false, false) => "",
            };
            let micros = self.micros.unsigned_abs();
            let (seconds, fraction) = (micros / SECOND as u64, micros % SECOND as u64);
            let mut time =
                format!("{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
            if fraction != 0 {
                time.push_str(format!(".{fraction:06}").trim_end_matches('0'));
            }
            parts.push(time);
        }
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is given, and what PostgreSQL 15 shows of it.
    const CASES: &[(&str, &str)] = &[
        ("1 day", "1 day"),
        ("36 hours", "36:00:00"),
        ("1 year 2 months 3 days 4:05:06.789", "1 year 2 mons 3 days 04:05:06.789"),
        ("-1 days +02:03:00", "-1 days +02:03:00"),
        ("1.5 days", "1 day 12:00:00"),
        ("1.5 months", "1 mon 15 days"),
        ("0.5 years", "6 mons"),
        ("2 weeks ago", "-14 days"),
        ("1 mon -1 days", "1 mon -1 days"),
        ("-1 mon 1 day", "-1 mons +1 day"),
        ("10", "00:00:10"),
        ("1 hour 30 min", "01:30:00"),
        ("P1Y2M3DT4H5M6.5S", "1 year 2 mons 3 days 04:05:06.5"),
        ("PT36H", "36:00:00"),
        ("0", "00:00:00"),
        ("-00:00:01", "-00:00:01"),
        ("@ 1 minute", "00:01:00"),
    ];

    #[test]
    fn spans_are_read_and_shown_as_postgresql_does() {
        for (text, shown) in CASES {
            let interval = Interval::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(interval.to_string(), *shown, "{text}");
            let again = Interval::parse(shown).expect("what is shown is read");
            let parts = |of: &Interval| (of.months, of.days, of.micros);
            assert_eq!(parts(&again), parts(&interval), "{shown}");
        }
        for wrong in ["", "x", "1 parsec", "1 day day", "P", "PT", "1:2:3:4", "1:99", "99999999999 years"] {
            assert!(Interval::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_month_is_as_long_as_thirty_days_and_no_longer() {
        let of = |text| Interval::parse(text).expect("one");
        assert_eq!(of("1 mon"), of("30 days"));
        assert_eq!(of("1 day"), of("24:00:00"));
        assert!(of("1 mon") < of("31 days") && of("-1 days") < of("0"));
        assert_eq!(of("1 day 02:00").times(1.5).expect("counts").to_string(), "1 day 15:00:00");
        assert_eq!(of("1 mon").times(0.5).expect("counts").to_string(), "15 days");
        assert_eq!(of("1 mon 1 day").plus(&of("-1 days")).expect("counts").to_string(), "1 mon");
    }
}

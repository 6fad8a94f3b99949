//! Dates and timestamps as text, in the proleptic Gregorian calendar and UTC.

use std::fmt;

/// Why a text is not a date or a timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CalendarError {
    /// Not written the way a date is.
    #[error("expected YYYY-MM-DD")]
    NotADate,
    /// Not written the way a timestamp is.
    #[error("expected YYYY-MM-DD HH:MM:SS or RFC 3339, as in 2013-01-31T12:00:00Z")]
    NotATimestamp,
    /// There is no such day.
    #[error("there is no such day in the calendar")]
    NoSuchDay,
    /// There is no such time of day.
    #[error("there is no such time of day")]
    NoSuchTime,
    /// Further from 1970 than can be counted.
    #[error("too far from 1970")]
    TooFar,
    /// Digits below the microsecond that are not zero.
    #[error("finer than a microsecond")]
    TooFine,
}

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Reads `YYYY-MM-DD` as days since 1970. Years beyond four digits, or before year 0, carry a sign.
pub fn parse_date(text: &str) -> Result<i32, CalendarError> {
    let (days, rest) = split_date(text.as_bytes()).ok_or(CalendarError::NotADate)?;
    if !rest.is_empty() {
        return Err(CalendarError::NotADate);
    }
    i32::try_from(days?).map_err(|_| CalendarError::TooFar)
}

/// Reads a timestamp as microseconds since 1970. Without an offset it is UTC; a date alone is its midnight.
pub fn parse_timestamp(text: &str) -> Result<i64, CalendarError> {
    let (days, rest) = split_date(text.as_bytes()).ok_or(CalendarError::NotATimestamp)?;
    let days = days?;
    let micros = match rest.split_first() {
        None => 0,
        Some((b'T' | b't' | b' ', time)) => parse_time(time)?,
        Some(_) => return Err(CalendarError::NotATimestamp),
    };
    let total = i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(micros);
    i64::try_from(total).map_err(|_| CalendarError::TooFar)
}

/// Writes days since 1970 as a date.
pub fn write_date(f: &mut impl fmt::Write, days: i64) -> fmt::Result {
    let (year, month, day) = civil_from_days(days);
    match year {
        0..=9999 => write!(f, "{year:04}-{month:02}-{day:02}"),
        _ => write!(f, "{}{:04}-{month:02}-{day:02}", if year < 0 { '-' } else { '+' }, year.abs()),
    }
}

/// Writes microseconds since 1970 as RFC 3339 in UTC, with a fraction only if there is one.
pub fn write_timestamp(f: &mut impl fmt::Write, micros: i64) -> fmt::Result {
    write_date(f, micros.div_euclid(MICROS_PER_DAY))?;
    let in_day = micros.rem_euclid(MICROS_PER_DAY);
    let (seconds, fraction) = (in_day / MICROS_PER_SECOND, in_day % MICROS_PER_SECOND);
    write!(f, "T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    f.write_char('Z')
}

/// The date at the front, and what follows it. `None`: it does not look like a date.
fn split_date(text: &[u8]) -> Option<(Result<i64, CalendarError>, &[u8])> {
    let (sign, unsigned) = match text.first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let signed = unsigned.len() != text.len();
    let width = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if width != 4 && !(signed && (4..=7).contains(&width)) {
        return None;
    }
    let year = sign * number(&unsigned[..width])?;
    let rest = &unsigned[width..];
    let (date, rest) = rest.split_at_checked(6)?;
    if date[0] != b'-' || date[3] != b'-' {
        return None;
    }
    let (month, day) = (number(&date[1..3])?, number(&date[4..6])?);
    let exists = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    let days = if exists { Ok(days_from_civil(year, month, day)) } else { Err(CalendarError::NoSuchDay) };
    Some((days, rest))
}

/// `HH:MM:SS[.ffffff][offset]` as microseconds since midnight UTC.
fn parse_time(text: &[u8]) -> Result<i64, CalendarError> {
    let (clock, rest) = text.split_at_checked(8).ok_or(CalendarError::NotATimestamp)?;
    if clock[2] != b':' || clock[5] != b':' {
        return Err(CalendarError::NotATimestamp);
    }
    let part = |at: usize| number(&clock[at..at + 2]).ok_or(CalendarError::NotATimestamp);
    let (hour, minute, second) = (part(0)?, part(3)?, part(6)?);
    if hour > 23 || minute > 59 || second > 59 {
        return Err(CalendarError::NoSuchTime);
    }
    let (fraction, rest) = parse_fraction(rest)?;
    let offset = parse_offset(rest)?;
    Ok((hour * 3600 + minute * 60 + second - offset * 60) * MICROS_PER_SECOND + fraction)
}

/// `.ffffff` as microseconds, and what follows.
fn parse_fraction(text: &[u8]) -> Result<(i64, &[u8]), CalendarError> {
    let Some((b'.', digits)) = text.split_first() else { return Ok((0, text)) };
    let width = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if width == 0 {
        return Err(CalendarError::NotATimestamp);
    }
    let (kept, finer) = digits[..width].split_at(width.min(6));
    if finer.iter().any(|digit| *digit != b'0') {
        return Err(CalendarError::TooFine);
    }
    let fraction = number(kept).ok_or(CalendarError::NotATimestamp)?;
    Ok((fraction * 10i64.pow(6 - kept.len() as u32), &digits[width..]))
}

/// `Z`, `+HH:MM`, `-HHMM`, `+HH` or nothing, in minutes east of UTC.
fn parse_offset(text: &[u8]) -> Result<i64, CalendarError> {
    let (sign, digits) = match text.split_first() {
        None => return Ok(0),
        Some((b'Z' | b'z', [])) => return Ok(0),
        Some((b'+', digits)) => (1, digits),
        Some((b'-', digits)) => (-1, digits),
        Some(_) => return Err(CalendarError::NotATimestamp),
    };
    let (hours, minutes) = match digits {
        [_, _] => (digits, &b"00"[..]),
        [_, _, _, _] => digits.split_at(2),
        [_, _, b':', _, _] => (&digits[..2], &digits[3..]),
        _ => return Err(CalendarError::NotATimestamp),
    };
    let hours = number(hours).ok_or(CalendarError::NotATimestamp)?;
    let minutes = number(minutes).ok_or(CalendarError::NotATimestamp)?;
    if hours > 23 || minutes > 59 {
        return Err(CalendarError::NoSuchTime);
    }
    Ok(sign * (hours * 60 + minutes))
}

/// Digits and nothing else. At most seven are ever asked for, so it cannot overflow.
fn number(digits: &[u8]) -> Option<i64> {
    let mut number = 0;
    for digit in digits {
        number = number * 10 + i64::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
    }
    Some(number)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counts in eras of 400 years that start in March, so that the leap day is the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(days: i64) -> String {
        let mut text = String::new();
        write_date(&mut text, days).expect("writing to a string");
        text
    }

    fn timestamp(micros: i64) -> String {
        let mut text = String::new();
        write_timestamp(&mut text, micros).expect("writing to a string");
        text
    }

    #[test]
    fn known_days() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1969-12-31", -1),
            ("2000-02-29", 11_016),
            ("2013-01-01", 15_706),
            ("0000-03-01", -719_468),
            ("-0001-12-31", -719_529),
            ("+12345-06-07", 3_789_548),
        ] {
            assert_eq!(parse_date(text), Ok(days), "{text}");
            assert_eq!(date(days.into()), text);
        }
    }

    #[test]
    fn every_day_of_a_leap_cycle_comes_back() {
        for days in -150_000..150_000 {
            assert_eq!(parse_date(&date(days.into())), Ok(days));
        }
        for days in [i32::MIN, i32::MAX] {
            assert_eq!(parse_date(&date(days.into())), Ok(days));
        }
    }

    #[test]
    fn timestamps_in_their_forms() {
        let noon = 1_359_633_600_000_000;
        for text in [
            "2013-01-31T12:00:00Z",
            "2013-01-31t12:00:00z",
            "2013-01-31 12:00:00",
            "2013-01-31 12:00:00.000000000",
            "2013-01-31T14:00:00+02:00",
            "2013-01-31T07:30:00-0430",
            "2013-01-31 13:00:00+01",
        ] {
            assert_eq!(parse_timestamp(text), Ok(noon), "{text}");
        }
        assert_eq!(timestamp(noon), "2013-01-31T12:00:00Z");
        assert_eq!(timestamp(noon + 120_000), "2013-01-31T12:00:00.12Z");
        assert_eq!(parse_timestamp("1970-01-01"), Ok(0));
        assert_eq!(timestamp(-1), "1969-12-31T23:59:59.999999Z");
        for micros in [i64::MIN, i64::MAX] {
            assert_eq!(parse_timestamp(&timestamp(micros)), Ok(micros));
        }
    }

    #[test]
    fn refuses_with_the_reason() {
        use CalendarError::*;
        for (text, reason) in [
            ("", NotATimestamp),
            ("13-01-01", NotATimestamp),
            ("2013-1-1", NotATimestamp),
            ("2013-02-29", NoSuchDay),
            ("2013-13-01", NoSuchDay),
            ("2013-01-00", NoSuchDay),
            ("2013-01-01T24:00:00Z", NoSuchTime),
            ("2013-01-01T23:59:60Z", NoSuchTime),
            ("2013-01-01T12:00Z", NotATimestamp),
            ("2013-01-01T12:00:00.Z", NotATimestamp),
            ("2013-01-01T12:00:00.1234567Z", TooFine),
            ("2013-01-01T12:00:00Zx", NotATimestamp),
            ("2013-01-01T12:00:00+25:00", NoSuchTime),
            ("2013-01-01x12:00:00", NotATimestamp),
            ("+300000-01-01T00:00:00Z", TooFar),
            ("20é3-01-01", NotATimestamp),
        ] {
            assert_eq!(parse_timestamp(text), Err(reason), "{text}");
        }
        assert_eq!(parse_date("2013-01-01T00:00:00Z"), Err(NotADate));
        assert_eq!(parse_date("+9999999-01-01"), Err(TooFar));
    }
}

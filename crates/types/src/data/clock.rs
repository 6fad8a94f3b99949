//! Times of day, of no day and no place, to the microsecond.

use std::fmt;

const MICROS_PER_SECOND: i64 = 1_000_000;
/// A day has so many microseconds; the last time of day is its end.
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Why a text is no time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClockError {
    /// Not written the way a time is.
    #[error("expected HH:MM:SS")]
    NotATime,
    /// There is no such time of day.
    #[error("there is no such time of day")]
    NoSuchTime,
}

/// Reads `HH:MM[:SS[.ffffff]]`, with AM or PM behind it or not, as microseconds since midnight. Digits below
/// the microsecond are rounded, an offset behind it is passed over, as PostgreSQL does.
pub fn parse(text: &str) -> Result<i64, ClockError> {
    let (text, half) = without_half(text.trim());
    let text = match text.find(['+', '-', 'Z', 'z']) {
        Some(at) => text[..at].trim_end(),
        None => text,
    };
    let mut parts = text.split(':');
    let whole = |part: Option<&str>| -> Result<i64, ClockError> {
        let digits = part.filter(|part| (1..=2).contains(&part.len()));
        let digits = digits.filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).ok_or(ClockError::NotATime)
    };
    let (mut hour, minute) = (whole(parts.next())?, whole(parts.next())?);
    let (second, micros) = match parts.next() {
        None => (0, 0),
        Some(part) => {
            let (seconds, fraction) = part.split_once('.').unwrap_or((part, ""));
            (whole(Some(seconds))?, fraction_of(fraction).ok_or(ClockError::NotATime)?)
        }
    };
    if parts.next().is_some() {
        return Err(ClockError::NotATime);
    }
    if let Some(after_noon) = half {
        if !(1..=12).contains(&hour) {
            return Err(ClockError::NoSuchTime);
        }
        hour = hour % 12 + if after_noon { 12 } else { 0 };
    }
    let total = (hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros;
    match minute < 60 && second <= 60 && (0..=MICROS_PER_DAY).contains(&total) {
        true => Ok(total),
        false => Err(ClockError::NoSuchTime),
    }
}

fn without_half(text: &str) -> (&str, Option<bool>) {
    let Some(start) = text.len().checked_sub(2).filter(|start| text.is_char_boundary(*start)) else {
        return (text, None);
    };
    match text[start..].to_ascii_lowercase().as_str() {
        "am" => (text[..start].trim_end(), Some(false)),
        "pm" => (text[..start].trim_end(), Some(true)),
        _ => (text, None),
    }
}

/// The digits behind a point as microseconds, rounded.
pub(super) fn fraction_of(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &digits[..digits.len().min(6)];
    let up = digits.as_bytes().get(6).is_some_and(|digit| *digit >= b'5');
    let number: i64 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
    Some(number * 10i64.pow(6 - kept.len() as u32) + i64::from(up))
}

/// Writes microseconds since midnight, with a fraction only if there is one.
pub fn write(f: &mut impl fmt::Write, micros: i64) -> fmt::Result {
    let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
    write!(f, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    if fraction != 0 {
        write!(f, ".{}", format!("{fraction:06}").trim_end_matches('0'))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        for (text, shown) in [
            ("04:05:06.789", "04:05:06.789"),
            ("04:05", "04:05:00"),
            ("4:05 PM", "16:05:00"),
            ("12:00 am", "00:00:00"),
            ("24:00:00", "24:00:00"),
            ("04:05:06-08:00", "04:05:06"),
            ("00:00:00.0000005", "00:00:00.000001"),
            ("23:59:60", "24:00:00"),
        ] {
            let mut out = String::new();
            write(&mut out, parse(text).expect(text)).expect("writes");
            assert_eq!(out, shown, "{text}");
        }
        for (wrong, why) in [
            ("", ClockError::NotATime),
            ("noon", ClockError::NotATime),
            ("12", ClockError::NotATime),
            ("1:2:3:4", ClockError::NotATime),
            ("12:00:00.x", ClockError::NotATime),
            ("24:00:01", ClockError::NoSuchTime),
            ("12:60", ClockError::NoSuchTime),
            ("13:00 pm", ClockError::NoSuchTime),
        ] {
            assert_eq!(parse(wrong), Err(why), "{wrong}");
        }
    }
}

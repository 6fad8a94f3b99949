//! Which types a value fits without losing anything, and which type that leaves for a column.

use types::data::{ColumnType, Decimal, calendar};

/// The types that every value seen so far fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fits(u16);

impl Fits {
    /// Nothing seen yet.
    pub(crate) const ANY: Fits = Fits(u16::MAX);

    const fn of(column_type: ColumnType) -> Fits {
        Fits(1 << column_type as u16)
    }

    fn or(self, column_type: ColumnType) -> Fits {
        Fits(self.0 | Fits::of(column_type).0)
    }

    /// What both leave.
    pub(crate) fn and(self, other: Fits) -> Fits {
        Fits(self.0 & other.0)
    }

    fn has(self, column_type: ColumnType) -> bool {
        self.0 & Fits::of(column_type).0 != 0
    }

    /// The narrowest type left. A column without any value is text.
    pub(crate) fn choose(self) -> ColumnType {
        if self == Fits::ANY {
            return ColumnType::Text;
        }
        let narrowest_first = [
            ColumnType::Bool,
            ColumnType::Int,
            ColumnType::Float,
            ColumnType::Decimal,
            ColumnType::Date,
            ColumnType::Timestamp,
            ColumnType::Text,
        ];
        narrowest_first.into_iter().find(|column_type| self.has(*column_type)).unwrap_or(ColumnType::Json)
    }
}

/// What a field of a CSV file fits. All fit text.
pub(crate) fn fits_text(text: &str) -> Fits {
    let fits = match text.as_bytes().first() {
        Some(b'0'..=b'9' | b'-' | b'.') => fits_number(text),
        Some(b't' | b'T' | b'f' | b'F') if is_bool(text) => Fits::of(ColumnType::Bool),
        _ => Fits(0),
    };
    Fits(fits.0 | fits_moment(text).0).or(ColumnType::Text)
}

/// What a value of an NDJSON file fits, from its JSON text; `None` for null. All fit JSON.
pub(crate) fn fits_json(text: &str) -> Option<Fits> {
    let fits = match text.as_bytes().first()? {
        b'n' => return None,
        b't' | b'f' => Fits::of(ColumnType::Bool),
        b'-' | b'0'..=b'9' => fits_number(text),
        // A text with escapes is no date.
        b'"' => fits_moment(text.trim_matches('"')).or(ColumnType::Text),
        _ => Fits(0),
    };
    Some(fits.or(ColumnType::Json))
}

fn is_bool(text: &str) -> bool {
    text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false")
}

/// A number fits a float only if the float still is that number. Leading zeros, as in post codes, make it no
/// number.
fn fits_number(text: &str) -> Fits {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    if matches!(digits, [b'0', b'0'..=b'9', ..]) {
        return Fits(0);
    }
    let Ok(float) = text.parse::<f64>() else { return Fits(0) };
    if !digits.iter().any(u8::is_ascii_digit) || float.is_infinite() {
        return Fits(0);
    }
    let Ok(exact) = text.parse::<Decimal>() else {
        // Beyond the range of decimals there are only floats, unless it is too small even for them.
        return if float == 0.0 { Fits(0) } else { Fits::of(ColumnType::Float) };
    };
    if exact == Decimal::ZERO && text.starts_with('-') {
        // The other types would lose the sign.
        return Fits::of(ColumnType::Float);
    }
    let mut fits = Fits::of(ColumnType::Decimal);
    if text.parse::<i64>().is_ok() {
        fits = fits.or(ColumnType::Int);
    }
    // Many programs print floats with 17 digits, more than they need: 48.053808600000004 is their 48.0538086.
    let printed_long = text.contains('.') && format!("{float:.16e}").parse() == Ok(exact);
    if printed_long || format!("{float:?}").parse() == Ok(exact) {
        fits = fits.or(ColumnType::Float);
    }
    fits
}

fn fits_moment(text: &str) -> Fits {
    // Only what begins with a year is looked at closer.
    if text.as_bytes().get(4) != Some(&b'-') {
        return Fits(0);
    }
    if calendar::parse_date(text).is_ok() {
        return Fits::of(ColumnType::Date);
    }
    if calendar::parse_timestamp(text).is_ok() { Fits::of(ColumnType::Timestamp) } else { Fits(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(texts: &[&str]) -> ColumnType {
        texts.iter().fold(Fits::ANY, |fits, text| fits.and(fits_text(text))).choose()
    }

    fn json(texts: &[&str]) -> ColumnType {
        texts.iter().filter_map(|text| fits_json(text)).fold(Fits::ANY, Fits::and).choose()
    }

    #[test]
    fn columns_of_text() {
        for (texts, expected) in [
            (&["1", "-2", "9223372036854775807"][..], ColumnType::Int),
            (&["1", "9223372036854775808"], ColumnType::Decimal),
            (&["1", "2.5", "-.5", "1e300"], ColumnType::Float),
            (&["41.1304722", "0.1"], ColumnType::Float),
            (&["48.053808600000004", "-80.697472200000007"], ColumnType::Float),
            (&["0.12345678901234567890"], ColumnType::Decimal),
            (&["1e-400"], ColumnType::Text),
            (&["12345678901234567", "0.5"], ColumnType::Decimal),
            (&["-0", "1"], ColumnType::Float),
            (&["00501", "10001"], ColumnType::Text),
            (&["+15551234567"], ColumnType::Text),
            (&["0", "0.5", "-0.5"], ColumnType::Float),
            (&["true", "FALSE"], ColumnType::Bool),
            (&["t", "f"], ColumnType::Text),
            (&["true", "1"], ColumnType::Text),
            (&["2013-01-31"], ColumnType::Date),
            (&["2013-01-31T00:00:00Z", "2013-01-31 10:00:00"], ColumnType::Timestamp),
            (&["2013-01-31", "2013-01-31 10:00:00"], ColumnType::Text),
            (&["2013-02-31"], ColumnType::Text),
            (&["2013-01-31T00:00:00.123456789Z"], ColumnType::Text),
            (&["inf", "nan"], ColumnType::Text),
            (&["1e999"], ColumnType::Text),
            (&["-", "."], ColumnType::Text),
            (&["[1]"], ColumnType::Text),
            (&[""], ColumnType::Text),
            (&[], ColumnType::Text),
        ] {
            assert_eq!(csv(texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn columns_of_json() {
        for (texts, expected) in [
            (&["1", "null"][..], ColumnType::Int),
            (&["1", "1.5"], ColumnType::Float),
            (&["0.30000000000000004"], ColumnType::Float),
            (&["18446744073709551616000"], ColumnType::Decimal),
            (&["18446744073709551615"], ColumnType::Decimal),
            (&["true"], ColumnType::Bool),
            (&["\"x\"", "\"2013-01-01\""], ColumnType::Text),
            (&["\"2013-01-01\""], ColumnType::Date),
            (&["\"1\""], ColumnType::Text),
            (&["\"1\"", "1"], ColumnType::Json),
            (&["[1]", "1"], ColumnType::Json),
            (&["{}"], ColumnType::Json),
            (&["null"], ColumnType::Text),
        ] {
            assert_eq!(json(texts), expected, "{texts:?}");
        }
    }
}

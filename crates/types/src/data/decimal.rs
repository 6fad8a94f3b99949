//! Exact decimal numbers of up to 38 digits.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A number with up to 38 significant digits, of which up to 38 stand after the point.
///
/// Always in its shortest form: `1.50` and `1.5` are the same value and print as `1.5`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Decimal {
    /// The digits with their sign. Below 10^38; not a multiple of ten unless `scale` is 0.
    mantissa: i128,
    /// How many of the digits stand after the point.
    scale: u8,
}

/// The most digits a [`Decimal`] has, and the most after its point.
pub const MAX_DIGITS: u32 = 38;

const LIMIT: u128 = 10u128.pow(MAX_DIGITS);

impl Decimal {
    /// Zero.
    pub const ZERO: Decimal = Decimal { mantissa: 0, scale: 0 };

    /// `mantissa` with the point moved `scale` digits to the left; `None` if that takes more than 38 digits.
    pub fn new(mantissa: i128, scale: u32) -> Option<Decimal> {
        let (mut mantissa, mut scale) = (mantissa, scale);
        while scale > 0 && mantissa % 10 == 0 {
            if mantissa == 0 {
                return Some(Decimal::ZERO);
            }
            mantissa /= 10;
            scale -= 1;
        }
        let fits = mantissa.unsigned_abs() < LIMIT && scale <= MAX_DIGITS;
        fits.then_some(Decimal { mantissa, scale: scale as u8 })
    }

    /// The digits with their sign.
    pub fn mantissa(self) -> i128 {
        self.mantissa
    }

    /// How many of the digits stand after the point.
    pub fn scale(self) -> u32 {
        self.scale.into()
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        self.to_string().parse().expect("a decimal's text is a number")
    }

    /// The number as 0.DIGITS x 10^exponent: the exponent, and the digits moved up to 38 places. For
    /// ordering.
    pub(crate) fn scientific(self) -> (i32, u128) {
        let magnitude = self.mantissa.unsigned_abs();
        let digits = magnitude.checked_ilog10().map_or(0, |log| log + 1);
        (digits as i32 - i32::from(self.scale), magnitude * 10u128.pow(MAX_DIGITS - digits))
    }

    /// The inverse of [`Decimal::scientific`]; `None` if no decimal looks like that.
    pub(crate) fn from_scientific(negative: bool, exponent: i32, digits: u128) -> Option<Decimal> {
        if !(LIMIT / 10..LIMIT).contains(&digits) || exponent > MAX_DIGITS as i32 {
            return None;
        }
        let mut magnitude = digits;
        let mut scale = MAX_DIGITS as i32 - exponent;
        while scale > 0 && magnitude.is_multiple_of(10) {
            magnitude /= 10;
            scale -= 1;
        }
        let mantissa = if negative { -(magnitude as i128) } else { magnitude as i128 };
        Decimal::new(mantissa, u32::try_from(scale).ok()?)
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Decimal {
        Decimal { mantissa: number.into(), scale: 0 }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let by_sign = self.mantissa.signum().cmp(&other.mantissa.signum());
        by_sign.then_with(|| match self.mantissa.signum() {
            1 => self.scientific().cmp(&other.scientific()),
            -1 => other.scientific().cmp(&self.scientific()),
            _ => Ordering::Equal,
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let digits = self.mantissa.unsigned_abs();
        if self.scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let unit = 10u128.pow(self.scale.into());
        write!(f, "{sign}{}.{:0width$}", digits / unit, digits % unit, width = self.scale.into())
    }
}

/// Why a text is not a [`Decimal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecimalError {
    /// Something else than sign, digits, one point and an exponent.
    #[error("expected digits with at most one point, and at most one exponent")]
    Malformed,
    /// More digits than fit.
    #[error("at most 38 digits, and 38 after the point, can be kept")]
    TooLong,
}

impl FromStr for Decimal {
    type Err = DecimalError;

    /// Reads `-12.50`, `.5`, `7.` and `1.5e-3`.
    fn from_str(text: &str) -> Result<Decimal, DecimalError> {
        let (unsigned, negative) = match text.as_bytes().first() {
            Some(b'-') => (&text[1..], true),
            Some(b'+') => (&text[1..], false),
            _ => (text, false),
        };
        let (number, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(DecimalError::Malformed);
        }
        let mut magnitude = 0u128;
        // Zeros are only counted until another digit follows them, so that trailing ones cost no room.
        let mut zeros = 0u32;
        for digit in whole.bytes().chain(fraction.bytes()) {
            match digit {
                b'0' => zeros += 1,
                b'1'..=b'9' => {
                    if magnitude == 0 {
                        zeros = 0;
                    }
                    magnitude = shift(magnitude, zeros + 1)?;
                    magnitude += u128::from(digit - b'0');
                    zeros = 0;
                }
                _ => return Err(DecimalError::Malformed),
            }
        }
        if magnitude == 0 {
            return Ok(Decimal::ZERO);
        }
        let exponent = exponent + i64::from(zeros) - fraction.len() as i64;
        let (magnitude, scale) = match u32::try_from(exponent) {
            Ok(up) => (shift(magnitude, up)?, 0),
            Err(_) => (magnitude, u32::try_from(-exponent).map_err(|_| DecimalError::TooLong)?),
        };
        let mantissa = if negative { -(magnitude as i128) } else { magnitude as i128 };
        Decimal::new(mantissa, scale).ok_or(DecimalError::TooLong)
    }
}

/// `magnitude` x 10^`places`, if it stays below the limit.
fn shift(magnitude: u128, places: u32) -> Result<u128, DecimalError> {
    let factor = 10u128.checked_pow(places).ok_or(DecimalError::TooLong)?;
    let shifted = magnitude.checked_mul(factor).ok_or(DecimalError::TooLong)?;
    if shifted < LIMIT { Ok(shifted) } else { Err(DecimalError::TooLong) }
}

fn parse_exponent(text: &str) -> Result<i64, DecimalError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DecimalError::Malformed);
    }
    text.parse::<i32>().map(i64::from).map_err(|_| DecimalError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn reads_and_prints_the_shortest_form() {
        let cases = [
            ("0", "0"),
            ("-0.00", "0"),
            ("1.50", "1.5"),
            ("-12.5", "-12.5"),
            (".5", "0.5"),
            ("7.", "7"),
            ("+3", "3"),
            ("1.5e3", "1500"),
            ("1.5E-3", "0.0015"),
            ("0.001", "0.001"),
            ("100", "100"),
            ("00000000000000000000000000000000000000000000000012", "12"),
            ("1.0000000000000000000000000000000000000000000000000", "1"),
            ("99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
            ("0.00000000000000000000000000000000000001", "0.00000000000000000000000000000000000001"),
        ];
        for (text, printed) in cases {
            assert_eq!(decimal(text).to_string(), printed, "{text}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_keep_exactly() {
        for text in
            ["", "-", ".", "1.2.3", "1e", "1e+", "x", "1x", "--1", "1e1.5", " 1", "1_0", "+-1", "1e+-5"]
        {
            assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Malformed), "{text}");
        }
        for text in
            ["1e38", "1e-39", "123456789012345678901234567890123456789", "1e99999999999", "1e-2147483648"]
        {
            assert_eq!(text.parse::<Decimal>(), Err(DecimalError::TooLong), "{text}");
        }
        assert_eq!(decimal("0e99999"), Decimal::ZERO);
    }

    #[test]
    fn orders_by_value() {
        let ascending = [
            "-1e37", "-10", "-9.99", "-1", "-0.1", "-0.01", "0", "0.001", "0.01", "0.1", "1", "1.1", "2",
            "10",
        ];
        for pair in ascending.windows(2) {
            assert!(decimal(pair[0]) < decimal(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn makes_floats() {
        assert_eq!(decimal("-12.5").to_f64(), -12.5);
        assert_eq!(decimal("0.1").to_f64(), 0.1);
    }
}

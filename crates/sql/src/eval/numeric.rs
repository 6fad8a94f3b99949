//! Exact arithmetic on decimals of up to 38 digits. What does not fit is an error, never a rounded result.

use pg::{Failure, code};
use types::data::{Decimal, Value};

/// The error of a result beyond what a number holds.
pub fn overflow() -> Failure {
    Failure::new(code::OUT_OF_RANGE, "value overflows numeric format")
        .hint("numbers have at most 38 digits, and 38 after the point")
}

/// The error of a division by zero.
pub fn by_zero() -> Failure {
    Failure::new("22012", "division by zero")
}

fn made(mantissa: i128, scale: u32) -> Result<Decimal, Failure> {
    Decimal::new(mantissa, scale).ok_or_else(overflow)
}

/// Both numbers' digits at the larger of their scales.
fn aligned(one: Decimal, two: Decimal) -> Result<(i128, i128, u32), Failure> {
    let scale = one.scale().max(two.scale());
    let at = |number: Decimal| {
        let factor = 10i128.checked_pow(scale - number.scale()).ok_or_else(overflow)?;
        number.mantissa().checked_mul(factor).ok_or_else(overflow)
    };
    Ok((at(one)?, at(two)?, scale))
}

/// The sum.
pub fn add(one: Decimal, two: Decimal) -> Result<Decimal, Failure> {
    let (one, two, scale) = aligned(one, two)?;
    made(one.checked_add(two).ok_or_else(overflow)?, scale)
}

/// The difference.
pub fn subtract(one: Decimal, two: Decimal) -> Result<Decimal, Failure> {
    let (one, two, scale) = aligned(one, two)?;
    made(one.checked_sub(two).ok_or_else(overflow)?, scale)
}

/// The product.
pub fn multiply(one: Decimal, two: Decimal) -> Result<Decimal, Failure> {
    let product = one.mantissa().checked_mul(two.mantissa()).ok_or_else(overflow)?;
    made(product, one.scale() + two.scale())
}

/// What is left of `one` after dividing it by `two` a whole number of times; it has the sign of `one`.
pub fn remainder(one: Decimal, two: Decimal) -> Result<Decimal, Failure> {
    if two.mantissa() == 0 {
        return Err(by_zero());
    }
    let (one, two, scale) = aligned(one, two)?;
    made(one % two, scale)
}

/// The quotient, with as many digits after the point as PostgreSQL gives it: at least 16 significant ones,
/// and no fewer than either number has. The last one is rounded, halves away from zero.
pub fn divide(one: Decimal, two: Decimal) -> Result<Decimal, Failure> {
    if two.mantissa() == 0 {
        return Err(by_zero());
    }
    quotient(one, two, division_scale(one, two))
}

/// PostgreSQL counts in groups of four digits: the quotient's first group is estimated from both first
/// groups.
fn division_scale(one: Decimal, two: Decimal) -> u32 {
    let ((weight_one, first_one), (weight_two, first_two)) = (first_group(one), first_group(two));
    let weight = weight_one - weight_two - i32::from(first_one <= first_two);
    let scale = 16 - weight * 4;
    scale.max(one.scale() as i32).max(two.scale() as i32).max(0) as u32
}

/// The power of 10,000 of a number's first group of digits, and the group.
fn first_group(number: Decimal) -> (i32, u128) {
    let digits = number.mantissa().unsigned_abs();
    if digits == 0 {
        return (0, 0);
    }
    // The exponent of the first digit: 0 for 1 to 9.99.
    let exponent = digits.ilog10() as i32 - number.scale() as i32;
    let weight = exponent.div_euclid(4);
    // The group's last digit stands at 10^(4 x weight).
    let shift = number.scale() as i32 + 4 * weight;
    let group = if shift >= 0 {
        digits / 10u128.checked_pow(shift as u32).unwrap_or(u128::MAX)
    } else {
        digits * 10u128.pow(shift.unsigned_abs())
    };
    (weight, group)
}

/// The quotient with `scale` digits after the point, digit by digit, so that nothing overflows on the way.
fn quotient(one: Decimal, two: Decimal, scale: u32) -> Result<Decimal, Failure> {
    let negative = (one.mantissa() < 0) != (two.mantissa() < 0);
    let (mut above, mut below) = (one.mantissa().unsigned_abs(), two.mantissa().unsigned_abs());
    // one / two = above / below x 10^-difference.
    let mut places = scale as i32 - (one.scale() as i32 - two.scale() as i32);
    while places < 0 {
        below = below.checked_mul(10).ok_or_else(overflow)?;
        places += 1;
    }
    let mut digits = above / below;
    above %= below;
    for _ in 0..places {
        // Below 10^38: ten times that still fits, and half of it is exact.
        let (digit, rest) = times_ten(above, below)?;
        digits = digits.checked_mul(10).and_then(|digits| digits.checked_add(digit)).ok_or_else(overflow)?;
        above = rest;
    }
    if above >= below - above {
        digits = digits.checked_add(1).ok_or_else(overflow)?;
    }
    let digits = i128::try_from(digits).map_err(|_| overflow())?;
    made(if negative { -digits } else { digits }, scale)
}

/// The next digit of a long division and what is left.
fn times_ten(rest: u128, below: u128) -> Result<(u128, u128), Failure> {
    let rest = rest.checked_mul(10).ok_or_else(overflow)?;
    Ok((rest / below, rest % below))
}

/// Rounded to `places` after the point (before it, if negative), halves away from zero.
pub fn round(number: Decimal, places: i64) -> Result<Decimal, Failure> {
    reduce(number, places, |rest, unit| rest.unsigned_abs() >= unit.unsigned_abs().div_ceil(2))
}

/// Cut to `places` after the point.
pub fn truncate(number: Decimal, places: i64) -> Result<Decimal, Failure> {
    reduce(number, places, |_, _| false)
}

fn reduce(number: Decimal, places: i64, up: impl Fn(i128, i128) -> bool) -> Result<Decimal, Failure> {
    let drop = i64::from(number.scale()) - places;
    if drop <= 0 {
        return Ok(number);
    }
    let Some(unit) = u32::try_from(drop).ok().and_then(|drop| 10i128.checked_pow(drop)) else {
        return Ok(Decimal::ZERO);
    };
    let (whole, rest) = (number.mantissa() / unit, number.mantissa() % unit);
    let whole = whole + if up(rest, unit) { number.mantissa().signum() } else { 0 };
    match u32::try_from(places) {
        Ok(places) => made(whole, places),
        Err(_) => {
            let factor = u32::try_from(-places).ok().and_then(|up| 10i128.checked_pow(up));
            made(factor.and_then(|factor| whole.checked_mul(factor)).ok_or_else(overflow)?, 0)
        }
    }
}

/// The largest whole number that is not larger.
pub fn floor(number: Decimal) -> Result<Decimal, Failure> {
    let whole = truncate(number, 0)?;
    if whole > number { subtract(whole, Decimal::from(1)) } else { Ok(whole) }
}

/// The smallest whole number that is not smaller.
pub fn ceil(number: Decimal) -> Result<Decimal, Failure> {
    let whole = truncate(number, 0)?;
    if whole < number { add(whole, Decimal::from(1)) } else { Ok(whole) }
}

/// As a whole number of 64 bits, rounded.
pub fn to_int(number: Decimal) -> Option<i64> {
    let rounded = round(number, 0).ok()?;
    i64::try_from(rounded.mantissa()).ok().filter(|_| rounded.scale() == 0)
}

/// From a float, with the 15 digits that PostgreSQL takes.
pub fn from_float(number: f64) -> Result<Decimal, Failure> {
    if !number.is_finite() {
        let shown = pg::text::to_text(&Value::Float(number));
        return Err(Failure::unsupported(format!("the numeric value {shown}"), "use double precision"));
    }
    format!("{number:.14e}").parse().map_err(|_| overflow())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The quotients are PostgreSQL 15's, without trailing zeros.
    #[test]
    fn arithmetic_is_exact_and_quotients_are_postgresqls() {
        type Op = fn(Decimal, Decimal) -> Result<Decimal, Failure>;
        let cases: &[(Op, &str, &str, &str)] = &[
            (add, "0.1", "0.2", "0.3"),
            (add, "99999999999999999999999999999999999998", "1", "99999999999999999999999999999999999999"),
            (subtract, "1", "0.0001", "0.9999"),
            (multiply, "1.5", "-1.5", "-2.25"),
            (divide, "10", "3", "3.3333333333333333"),
            (divide, "1", "3", "0.33333333333333333333"),
            (divide, "2", "3", "0.66666666666666666667"),
            (divide, "-2", "3", "-0.66666666666666666667"),
            (divide, "10", "2", "5"),
            (divide, "1", "7000", "0.00014285714285714286"),
            (divide, "100000", "3", "33333.333333333333"),
            (divide, "1", "0.0003", "3333.3333333333333333"),
            (divide, "0", "3", "0"),
            (remainder, "7.5", "2", "1.5"),
            (remainder, "-7", "2", "-1"),
        ];
        for (op, one, two, result) in cases {
            assert_eq!(op(decimal(one), decimal(two)), Ok(decimal(result)), "{one} {two}");
        }
        for op in [divide, remainder] {
            assert_eq!(op(decimal("1"), Decimal::ZERO).expect_err("zero").code, "22012");
        }
        let huge = decimal("99999999999999999999999999999999999999");
        assert_eq!(add(huge, decimal("1")).expect_err("too large").code, "22003");
        assert_eq!(multiply(huge, huge).expect_err("too large").code, "22003");
    }

    #[test]
    fn rounding_goes_away_from_zero() {
        for (number, places, rounded, cut) in [
            ("2.5", 0, "3", "2"),
            ("-2.5", 0, "-3", "-2"),
            ("2.449", 1, "2.4", "2.4"),
            ("155", -1, "160", "150"),
            ("155", -3, "0", "0"),
            ("555", -3, "1000", "0"),
            ("1.25", 5, "1.25", "1.25"),
            ("0.05", 1, "0.1", "0"),
        ] {
            assert_eq!(round(decimal(number), places), Ok(decimal(rounded)), "{number} {places}");
            assert_eq!(truncate(decimal(number), places), Ok(decimal(cut)), "{number} {places}");
        }
        assert_eq!((floor(decimal("-1.5")), ceil(decimal("-1.5"))), (Ok(decimal("-2")), Ok(decimal("-1"))));
        assert_eq!((floor(decimal("2")), ceil(decimal("2.1"))), (Ok(decimal("2")), Ok(decimal("3"))));
        assert_eq!(to_int(decimal("9223372036854775807.4")), Some(i64::MAX));
        assert_eq!(to_int(decimal("9223372036854775807.5")), None);
        assert_eq!(from_float(0.1), Ok(decimal("0.1")));
        assert_eq!(from_float(1.0 / 3.0), Ok(decimal("0.333333333333333")));
        assert!(from_float(f64::NAN).is_err());
    }
}

//! Operators and functions on numbers. Overflow is an error, as PostgreSQL has it, never a wrapped or rounded
//! result.

use super::cast::out_of_range;
use super::numeric::{self, by_zero};
use super::{Eval, Function, mistyped};
use crate::ty::Ty::{self, *};
use pg::{Failure, code};
use types::data::{Decimal, Value};

pub fn functions() -> Vec<Function> {
    let mut all = Vec::new();
    let mut add = |name, arguments: &'static [Ty], result, eval: Eval| {
        all.push(Function { name, arguments, result, eval });
    };
    add("+", &[Int4, Int4], Int4, |a| int4(a, i64::checked_add));
    add("+", &[Int8, Int8], Int8, |a| int8(a, i64::checked_add));
    add("+", &[Numeric, Numeric], Numeric, |a| decimals(a, numeric::add));
    add("+", &[Float8, Float8], Float8, |a| floats(a, |one, two| one + two));
    add("-", &[Int4, Int4], Int4, |a| int4(a, i64::checked_sub));
    add("-", &[Int8, Int8], Int8, |a| int8(a, i64::checked_sub));
    add("-", &[Numeric, Numeric], Numeric, |a| decimals(a, numeric::subtract));
    add("-", &[Float8, Float8], Float8, |a| floats(a, |one, two| one - two));
    add("*", &[Int4, Int4], Int4, |a| int4(a, i64::checked_mul));
    add("*", &[Int8, Int8], Int8, |a| int8(a, i64::checked_mul));
    add("*", &[Numeric, Numeric], Numeric, |a| decimals(a, numeric::multiply));
    add("*", &[Float8, Float8], Float8, |a| scaled(a, |one, two| one * two));
    add("/", &[Int4, Int4], Int4, |a| nonzero(a).and_then(|()| int4(a, i64::checked_div)));
    add("/", &[Int8, Int8], Int8, |a| nonzero(a).and_then(|()| int8(a, i64::checked_div)));
    add("/", &[Numeric, Numeric], Numeric, |a| decimals(a, numeric::divide));
    add("/", &[Float8, Float8], Float8, |a| nonzero(a).and_then(|()| scaled(a, |one, two| one / two)));
    reals(&mut add);
    for name in ["%", "mod"] {
        add(name, &[Int4, Int4], Int4, |a| nonzero(a).and_then(|()| int4(a, rest)));
        add(name, &[Int8, Int8], Int8, |a| nonzero(a).and_then(|()| int8(a, rest)));
        add(name, &[Numeric, Numeric], Numeric, |a| decimals(a, numeric::remainder));
    }
    add("-", &[Int4], Int4, |a| int4(&[Value::Int(0), a[0].clone()], i64::checked_sub));
    add("-", &[Int8], Int8, |a| int8(&[Value::Int(0), a[0].clone()], i64::checked_sub));
    add("-", &[Numeric], Numeric, |a| {
        decimals(&[Value::Decimal(Decimal::ZERO), a[0].clone()], numeric::subtract)
    });
    add("-", &[Float8], Float8, |a| float(a, |number| Ok(-number)));
    add("abs", &[Int4], Int4, |a| int4(&[a[0].clone(), a[0].clone()], |number, _| number.checked_abs()));
    add("abs", &[Int8], Int8, |a| int8(&[a[0].clone(), a[0].clone()], |number, _| number.checked_abs()));
    add("abs", &[Numeric], Numeric, |a| {
        decimal(
            a,
            |number| {
                if number < Decimal::ZERO { numeric::subtract(Decimal::ZERO, number) } else { Ok(number) }
            },
        )
    });
    add("abs", &[Float8], Float8, |a| float(a, |number| Ok(number.abs())));
    rounding(&mut all);
    all
}

/// Of numbers of 32 bits alone; with another number they are double precision.
fn reals(add: &mut impl FnMut(&'static str, &'static [Ty], Ty, Eval)) {
    const BOTH: &[Ty] = &[Float4, Float4];
    add("+", BOTH, Float4, |a| floats(a, |one, two| one + two).and_then(cast_real));
    add("-", BOTH, Float4, |a| floats(a, |one, two| one - two).and_then(cast_real));
    add("*", BOTH, Float4, |a| scaled(a, |one, two| one * two).and_then(cast_real));
    add("/", BOTH, Float4, |a| nonzero(a).and_then(|()| scaled(a, |one, two| one / two)).and_then(cast_real));
    add("-", &[Float4], Float4, |a| float(a, |number| Ok(-number)));
    add("abs", &[Float4], Float4, |a| float(a, |number| Ok(number.abs())));
    for mixed in [&[Float4, Float8][..], &[Float8, Float4]] {
        add("+", mixed, Float8, |a| floats(a, |one, two| one + two));
        add("-", mixed, Float8, |a| floats(a, |one, two| one - two));
        add("*", mixed, Float8, |a| scaled(a, |one, two| one * two));
        add("/", mixed, Float8, |a| nonzero(a).and_then(|()| scaled(a, |one, two| one / two)));
    }
}

fn cast_real(value: Value) -> Result<Value, Failure> {
    match value {
        Value::Float(number) => super::cast::real(number),
        other => Err(mistyped(&[other])),
    }
}

fn rounding(all: &mut Vec<Function>) {
    let mut add = |name, arguments: &'static [Ty], result, eval: Eval| {
        all.push(Function { name, arguments, result, eval });
    };
    add("round", &[Numeric], Numeric, |a| decimal(a, |number| numeric::round(number, 0)));
    add("round", &[Float8], Float8, |a| float(a, |number| Ok(number.round_ties_even())));
    add("round", &[Numeric, Int4], Numeric, |a| places(a, numeric::round));
    add("trunc", &[Numeric], Numeric, |a| decimal(a, |number| numeric::truncate(number, 0)));
    add("trunc", &[Float8], Float8, |a| float(a, |number| Ok(number.trunc())));
    add("trunc", &[Numeric, Int4], Numeric, |a| places(a, numeric::truncate));
    add("floor", &[Numeric], Numeric, |a| decimal(a, numeric::floor));
    add("floor", &[Float8], Float8, |a| float(a, |number| Ok(number.floor())));
    for name in ["ceil", "ceiling"] {
        add(name, &[Numeric], Numeric, |a| decimal(a, numeric::ceil));
        add(name, &[Float8], Float8, |a| float(a, |number| Ok(number.ceil())));
    }
    add("sign", &[Numeric], Numeric, |a| {
        decimal(a, |number| Ok(Decimal::from(number.mantissa().signum() as i64)))
    });
    add("sqrt", &[Float8], Float8, |a| {
        float(a, |number| match number < 0.0 {
            true => Err(Failure::new("2201F", "cannot take square root of a negative number")),
            false => Ok(number.sqrt()),
        })
    });
    for name in ["power", "pow", "^"] {
        add(name, &[Float8, Float8], Float8, power);
    }
}

fn rest(one: i64, two: i64) -> Option<i64> {
    // The one case that overflows has nothing left.
    Some(one.wrapping_rem(two))
}

fn ints(arguments: &[Value]) -> Result<(i64, i64), Failure> {
    match arguments {
        [Value::Int(one), Value::Int(two)] => Ok((*one, *two)),
        other => Err(mistyped(other)),
    }
}

fn int4(arguments: &[Value], op: fn(i64, i64) -> Option<i64>) -> Result<Value, Failure> {
    let (one, two) = ints(arguments)?;
    let result = op(one, two).filter(|number| i32::try_from(*number).is_ok());
    result.map(Value::Int).ok_or_else(|| out_of_range(Int4))
}

fn int8(arguments: &[Value], op: fn(i64, i64) -> Option<i64>) -> Result<Value, Failure> {
    let (one, two) = ints(arguments)?;
    op(one, two).map(Value::Int).ok_or_else(|| out_of_range(Int8))
}

fn nonzero(arguments: &[Value]) -> Result<(), Failure> {
    match arguments {
        [_, Value::Int(0)] => Err(by_zero()),
        [_, Value::Float(number)] if *number == 0.0 => Err(by_zero()),
        _ => Ok(()),
    }
}

fn decimals(
    arguments: &[Value],
    op: fn(Decimal, Decimal) -> Result<Decimal, Failure>,
) -> Result<Value, Failure> {
    match arguments {
        [Value::Decimal(one), Value::Decimal(two)] => op(*one, *two).map(Value::Decimal),
        other => Err(mistyped(other)),
    }
}

fn decimal(arguments: &[Value], op: impl Fn(Decimal) -> Result<Decimal, Failure>) -> Result<Value, Failure> {
    match arguments {
        [Value::Decimal(number)] => op(*number).map(Value::Decimal),
        other => Err(mistyped(other)),
    }
}

fn places(arguments: &[Value], op: fn(Decimal, i64) -> Result<Decimal, Failure>) -> Result<Value, Failure> {
    match arguments {
        [Value::Decimal(number), Value::Int(places)] => op(*number, *places).map(Value::Decimal),
        other => Err(mistyped(other)),
    }
}

fn float(arguments: &[Value], op: impl Fn(f64) -> Result<f64, Failure>) -> Result<Value, Failure> {
    match arguments {
        [Value::Float(number)] => op(*number).map(Value::Float),
        other => Err(mistyped(other)),
    }
}

/// The same for products and quotients, where zero from other numbers is an error too: the result is only too
/// small.
fn scaled(arguments: &[Value], op: fn(f64, f64) -> f64) -> Result<Value, Failure> {
    let result = floats(arguments, op)?;
    match (&result, arguments) {
        (Value::Float(result), [Value::Float(one), Value::Float(two)])
            if *result == 0.0 && *one != 0.0 && *two != 0.0 && two.is_finite() =>
        {
            Err(Failure::new(code::OUT_OF_RANGE, "value out of range: underflow"))
        }
        _ => Ok(result),
    }
}

/// Infinity from finite numbers is an error.
fn floats(arguments: &[Value], op: fn(f64, f64) -> f64) -> Result<Value, Failure> {
    match arguments {
        [Value::Float(one), Value::Float(two)] => {
            let result = op(*one, *two);
            if result.is_infinite() && one.is_finite() && two.is_finite() {
                return Err(Failure::new(code::OUT_OF_RANGE, "value out of range: overflow"));
            }
            Ok(Value::Float(result))
        }
        other => Err(mistyped(other)),
    }
}

fn power(arguments: &[Value]) -> Result<Value, Failure> {
    let [Value::Float(base), Value::Float(exponent)] = arguments else { return Err(mistyped(arguments)) };
    if *base == 0.0 && *exponent < 0.0 {
        return Err(Failure::new("2201F", "zero raised to a negative power is undefined"));
    }
    if *base < 0.0 && base.is_finite() && exponent.is_finite() && exponent.fract() != 0.0 {
        return Err(Failure::new(
            "2201F",
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    let result = base.powf(*exponent);
    if result.is_infinite() && base.is_finite() && exponent.is_finite() {
        return Err(Failure::new(code::OUT_OF_RANGE, "value out of range: overflow"));
    }
    if result == 0.0 && *base != 0.0 && base.is_finite() && exponent.is_finite() {
        return Err(Failure::new(code::OUT_OF_RANGE, "value out of range: underflow"));
    }
    Ok(Value::Float(result))
}

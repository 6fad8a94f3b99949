//! Types meet: comparisons, coercions, casts, and operators as functions.

use super::{Binder, Comparison, Condition, Form, Quick, Slot, Typed};
use crate::eval::{self, Found, cast};
use crate::ty::{Ty, common};
use pg::Failure;
use sqlparser::ast::{ArrayElemTypeDef, DataType, ExactNumberInfo, Expr, ObjectName, TimezoneInfo};
use types::data::Value;

impl Binder<'_> {
    /// An expression where one of type `ty` is expected. Only what PostgreSQL does without being asked.
    pub(crate) fn becoming(&mut self, typed: Typed, ty: Ty) -> Result<Typed, Failure> {
        match typed.ty {
            Some(from) if from == ty => Ok(typed),
            Some(from) if from.becomes(ty) => self.converted(typed, from, ty),
            Some(from) => {
                let message =
                    format!("an expression is of type {} where {} is expected", from.name(), ty.name());
                Err(Failure::new("42804", message).hint("You might need to add an explicit type cast."))
            }
            None => self.decide(typed, ty),
        }
    }

    /// An expression as the value of a column: also what PostgreSQL converts only for that.
    pub(crate) fn assigned(&mut self, typed: Typed, ty: Ty, column: &str) -> Result<Typed, Failure> {
        match typed.ty {
            Some(from) if from != ty && from.assigns(ty) => self.converted(typed, from, ty),
            Some(from) if from != ty => {
                let message = format!(
                    "column \"{column}\" is of type {} but expression is of type {}",
                    ty.name(),
                    from.name()
                );
                let hint = "You will need to rewrite or cast the expression.";
                Err(Failure::new("42804", message).hint(hint))
            }
            _ => self.becoming(typed, ty),
        }
    }

    /// A literal or parameter without a type gets one.
    fn decide(&mut self, typed: Typed, ty: Ty) -> Result<Typed, Failure> {
        match typed.form {
            form @ Form::Slot(Slot::Const(Value::Text(_)) | Slot::Param(_)) if ty.is_reg() => {
                self.looked_up(Typed { form, ..typed }, ty)
            }
            Form::Slot(Slot::Const(Value::Text(text))) => {
                Ok(Typed::constant(pg::text::parse(ty.kind(), &text)?, ty))
            }
            Form::Slot(Slot::Param(number)) => match self.params[number] {
                Some(known) if known == ty => Ok(Typed::slot(Slot::Param(number), Some(ty))),
                // It was decided elsewhere in the statement meanwhile.
                Some(known) => self.becoming(Typed::slot(Slot::Param(number), Some(known)), ty),
                None => {
                    self.params[number] = Some(ty);
                    Ok(Typed::slot(Slot::Param(number), Some(ty)))
                }
            },
            Form::Slot(slot) => Ok(Typed::slot(slot, Some(ty))),
            Form::Engine(text) => Ok(Typed::engine(text, ty).with(typed.quick)),
        }
    }

    /// A conversion that is known to exist.
    fn converted(&mut self, typed: Typed, from: Ty, to: Ty) -> Result<Typed, Failure> {
        if from.is_reg() && to.is_textual() {
            let named = self.named(typed, from)?;
            return self.becoming(named, Ty::Text).map(|named| Typed { ty: Some(to), ..named });
        }
        if from.is_textual() && to.is_reg() {
            return self.looked_up(typed, to);
        }
        if let Some(value) = typed.known() {
            return Ok(Typed::constant(cast::cast(value.clone(), from, to)?, to));
        }
        // Both are the same to the engine, and to a scan.
        if matches!((from, to), (Ty::Int2, Ty::Int4 | Ty::Int8) | (Ty::Int4, Ty::Int8)) {
            return Ok(Typed { ty: Some(to), ..typed });
        }
        // Both are the same to the engine.
        if from.is_kept_as(to) {
            let (text, quick) = (self.text(&typed), typed.quick());
            return Ok(Typed::engine(text, to).with(quick));
        }
        let (text, quick) = (self.text(&typed), typed.quick());
        let quick = quick.map(|quick| Quick::Cast(Box::new(quick), from, to));
        Ok(Typed::engine(format!("convert_({text}, {}, {})", from as u8, to as u8), to).with(quick))
    }

    /// A cast that the client has written.
    /// `AT TIME ZONE`: what is of a zone becomes of none, and the other way round.
    pub(super) fn at_zone(&mut self, time: &Expr, zone: &Expr) -> Result<Typed, Failure> {
        let zone = self.expr(zone)?;
        let utc = match &zone.form {
            Form::Slot(Slot::Const(Value::Text(name))) => eval::is_utc(name),
            _ => false,
        };
        if !utc {
            return Err(Failure::unsupported("AT TIME ZONE of another zone than UTC", "write 'UTC'"));
        }
        let time = self.expr(time)?;
        match time.ty {
            Some(Ty::Timestamp) => self.cast_to(time, Ty::Timestamptz),
            _ => {
                let time = self.cast_to(time, Ty::Timestamptz)?;
                self.cast_to(time, Ty::Timestamp)
            }
        }
    }

    pub(super) fn cast_to(&mut self, typed: Typed, to: Ty) -> Result<Typed, Failure> {
        match typed.ty {
            None => self.decide(typed, to),
            Some(from) if from == to => Ok(typed),
            Some(from) if cast::exists(from, to) => self.converted(typed, from, to),
            Some(from) => {
                let message = format!("cannot cast type {} to {}", from.name(), to.name());
                Err(Failure::new("42846", message))
            }
        }
    }

    /// Two expressions, brought to one type.
    pub(super) fn alike(&mut self, one: Typed, two: Typed) -> Result<(Typed, Typed, Ty), Failure> {
        let ty = match (one.ty, two.ty) {
            (Some(a), Some(b)) => common(a, b).ok_or_else(|| {
                let message = format!("operator does not exist: {} = {}", a.name(), b.name());
                Failure::new("42883", message).hint(NO_OPERATOR)
            })?,
            (Some(ty), None) | (None, Some(ty)) => ty,
            (None, None) => Ty::Text,
        };
        self.comparable(ty, "=")?;
        Ok((self.becoming(one, ty)?, self.becoming(two, ty)?, ty))
    }

    pub(super) fn comparable(&self, ty: Ty, sign: &str) -> Result<(), Failure> {
        if ty.compares() || (ty.equates() && sign == "=") {
            return Ok(());
        }
        let name = ty.name();
        Err(Failure::new("42883", format!("operator does not exist: {name} {sign} {name}")).hint(NO_OPERATOR))
    }

    /// A comparison. Every type's values are kept so that the engine's own order is the type's.
    pub(super) fn compare(
        &mut self,
        one: Typed,
        sign: &str,
        comparison: Option<Comparison>,
        two: Typed,
    ) -> Result<Typed, Failure> {
        let (one, two, ty) = self.alike(one, two)?;
        self.comparable(ty, if ["=", "<>"].contains(&sign) { "=" } else { sign })?;
        let (left, right) = (self.text(&one), self.text(&two));
        let text = match ty {
            // Different ones are equal, if they are as long.
            Ty::Interval => {
                let length =
                    |kept: &str| format!("substr({kept}, 1, {})", crate::engine::encode::LENGTH_BYTES);
                format!("({} {sign} {})", length(&left), length(&right))
            }
            _ => format!("({left} {sign} {right})"),
        };
        let mut typed = Typed::engine(text, Ty::Bool);
        let condition = match (&one, &two) {
            (Typed { column: Some((of, column)), .. }, Typed { form: Form::Slot(slot), .. }) => {
                comparison.map(|comparison| (*of, *column, comparison, slot))
            }
            (Typed { form: Form::Slot(slot), .. }, Typed { column: Some((of, column)), .. }) => {
                comparison.map(|comparison| (*of, *column, mirrored(comparison), slot))
            }
            _ => None,
        };
        if let Some((of, column, comparison, slot)) = condition {
            typed.conditions.push((of, Condition { column, comparison, slot: slot.clone() }));
            typed.exact = true;
        }
        Ok(typed)
    }

    /// An operator. `||` makes text of the other side, unless that is JSON and this one is only written so.
    pub(super) fn operator(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, Failure> {
        let text = |typed: &Typed| typed.ty.is_none_or(|ty| ty == Ty::Text);
        if name == "||" && arguments.iter().any(|typed| typed.ty.is_some_and(|ty| ty.element().is_some())) {
            let two = arguments.pop().expect("two sides");
            return self.concatenated(arguments.remove(0), two);
        }
        let tree = arguments.iter().any(|typed| typed.ty == Some(Ty::Json));
        let written = arguments.iter().any(|typed| typed.ty == Some(Ty::Text));
        if name == "||" && arguments.iter().any(text) && (written || !tree) {
            let cast = |typed| self.cast_to(typed, Ty::Text);
            arguments = arguments.into_iter().map(cast).collect::<Result<_, _>>()?;
        }
        let types: Vec<Option<Ty>> = arguments.iter().map(|typed| typed.ty).collect();
        refuse_other_types(name, &types)?;
        match eval::find(name, &types) {
            Found::One(id) => self.called(id, arguments),
            _ => {
                let shown: Vec<&str> = types.iter().map(|ty| ty.map_or("unknown", Ty::name)).collect();
                let message = match shown.as_slice() {
                    [one] => format!("operator does not exist: {name} {one}"),
                    shown => format!("operator does not exist: {}", shown.join(&format!(" {name} "))),
                };
                Err(Failure::new("42883", message).hint(NO_OPERATOR))
            }
        }
    }

    /// A function by its name.
    pub(super) fn function(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, Failure> {
        let types: Vec<Option<Ty>> = arguments.iter().map(|typed| typed.ty).collect();
        refuse_other_types(name, &types)?;
        let found = match eval::find(name, &types) {
            Found::One(id) => return self.called(id, arguments),
            found => match self.asking(name, arguments) {
                Ok(asked) => return asked,
                Err(true) => Found::OtherArguments,
                Err(false) => found,
            },
        };
        let shown: Vec<&str> = types.iter().map(|ty| ty.map_or("unknown", Ty::name)).collect();
        let message = format!("function {name}({}) does not exist", shown.join(", "));
        Err(match found {
            Found::Nothing => Failure::unsupported(format!("function {name}"), "docs/sql.md lists those that are"),
            _ => Failure::new("42883", message).hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            ),
        })
    }

    fn called(&mut self, id: eval::FunctionId, arguments: Vec<Typed>) -> Result<Typed, Failure> {
        let function = &eval::all()[id];
        let mut ready = Vec::new();
        for (typed, to) in arguments.into_iter().zip(function.arguments) {
            ready.push(self.becoming(typed, *to)?);
        }
        let known: Option<Vec<Value>> = ready.iter().map(|typed| typed.known().cloned()).collect();
        // An error waits until the expression is evaluated, if it ever is.
        if let Some(Ok(value)) = known.map(|values| eval::call(id, &values)) {
            return Ok(Typed::constant(value, function.result));
        }
        let texts: Vec<String> = ready.iter().map(|typed| self.text(typed)).collect();
        let quick = ready.iter().map(Typed::quick).collect::<Option<_>>();
        let quick = quick.map(|arguments| Quick::Call(id, arguments));
        Ok(Typed::engine(format!("f{id}_({})", texts.join(", ")), function.result).with(quick))
    }
}

const NO_OPERATOR: &str =
    "No operator matches the given name and argument types. You might need to add explicit type casts.";

/// What PostgreSQL has for these types and this has not: with other types it would be answered otherwise.
fn refuse_other_types(name: &str, types: &[Option<Ty>]) -> Result<(), Failure> {
    let has = |ty| types.contains(&Some(ty));
    if ["^", "power", "pow", "sqrt"].contains(&name) && has(Ty::Numeric) && !has(Ty::Float8) {
        return Err(Failure::unsupported(
            format!("{name} of numeric"),
            "cast to double precision: value::float8",
        ));
    }
    Ok(())
}

fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::Equal,
        Comparison::Less => Comparison::Greater,
        Comparison::AtMost => Comparison::AtLeast,
        Comparison::Greater => Comparison::Less,
        Comparison::AtLeast => Comparison::AtMost,
    }
}

/// True for a type without a word of its own that a column may have.
fn is_kept(name: &ObjectName) -> bool {
    let parts = super::parts(name).unwrap_or_default();
    parts.last().is_some_and(|name| matches!(name.as_str(), "oid" | "name" | "uuid"))
}

/// Types of PostgreSQL without a word of their own that there are not here.
const ELSEWHERE: &[&str] = &[
    "box",
    "cid",
    "cidr",
    "circle",
    "daterange",
    "inet",
    "int4range",
    "int8range",
    "jsonpath",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "numrange",
    "path",
    "pg_lsn",
    "pg_snapshot",
    "point",
    "polygon",
    "tid",
    "tsquery",
    "tsrange",
    "tstzrange",
    "tsvector",
    "txid_snapshot",
    "xid8",
    "xml",
];

/// True if PostgreSQL by itself has no type of this name either.
fn is_unknown(name: &ObjectName) -> bool {
    let parts = super::parts(name).unwrap_or_default();
    let known =
        |name: &String| crate::system::named_type(name).is_some() || ELSEWHERE.contains(&name.as_str());
    !parts.last().is_some_and(known)
}

/// The error of a type that there is not.
fn no_type(name: &ObjectName) -> Failure {
    Failure::new("42704", format!("type \"{name}\" does not exist"))
        .hint("docs/sql.md lists the types that are understood")
}

/// An array's type as it is written.
fn array_type(written: &DataType, definition: &ArrayElemTypeDef, column: bool) -> Result<Ty, Failure> {
    let refused = |hint: &str| Err(Failure::unsupported(format!("type {written}"), hint));
    let ArrayElemTypeDef::SquareBracket(element, length) = definition else {
        return refused("write integer[]");
    };
    match (data_type(element, false)?, length) {
        (_, Some(_)) => refused("leave the length out: PostgreSQL does not keep it either"),
        (Ty::Json, None) if column => refused("use json, which has lists of its own"),
        (of, None) if column && of.element().is_some() => refused("use one dimension, or json"),
        (of, None) => super::arrays::array_type(of),
    }
}

/// A type as it is written. `column` is true where it is a column's: those are kept without bounds, so bounds
/// are refused.
pub fn data_type(written: &DataType, column: bool) -> Result<Ty, Failure> {
    let bounded = |hint: &str| Err(Failure::unsupported(format!("type {written}"), hint));
    Ok(match written {
        DataType::Boolean | DataType::Bool => Ty::Bool,
        DataType::SmallInt(None) | DataType::Int2(None) if !column => Ty::Int2,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) if !column => Ty::Int4,
        DataType::SmallInt(None)
        | DataType::Int2(None)
        | DataType::Int(None)
        | DataType::Integer(None)
        | DataType::Int4(None)
        | DataType::BigInt(None)
        | DataType::Int8(None) => Ty::Int8,
        DataType::Float8 | DataType::DoublePrecision | DataType::Float(ExactNumberInfo::None) => Ty::Float8,
        DataType::Real | DataType::Float4 => Ty::Float4,
        DataType::Float(ExactNumberInfo::Precision(bits @ 1..=53)) => {
            if *bits <= 24 {
                Ty::Float4
            } else {
                Ty::Float8
            }
        }
        DataType::Uuid => Ty::Uuid,
        DataType::Time(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Ty::Time,
        DataType::Time(..) => {
            return bounded("use time, which is of no zone and kept to the microsecond, or timestamptz");
        }
        DataType::Interval { fields: None, precision: None } => Ty::Interval,
        DataType::Interval { .. } => return bounded("use interval: it has all fields, to the microsecond"),
        DataType::Numeric(ExactNumberInfo::None)
        | DataType::Decimal(ExactNumberInfo::None)
        | DataType::Dec(ExactNumberInfo::None) => Ty::Numeric,
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => {
            return bounded("use numeric, which keeps every number as it is given");
        }
        DataType::Text | DataType::Varchar(None) | DataType::CharacterVarying(None) => Ty::Text,
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::Char(_) | DataType::Character(_) => {
            return bounded("use text");
        }
        DataType::Bytea => Ty::Bytea,
        DataType::Date => Ty::Date,
        DataType::Timestamp(None, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => Ty::Timestamptz,
        DataType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Ty::Timestamp,
        DataType::TimestampNtz(_) | DataType::Timestamp(..) => {
            return bounded("use timestamp or timestamptz: times are kept to the microsecond");
        }
        DataType::JSON | DataType::JSONB => Ty::Json,
        DataType::Regclass if !column => Ty::Regclass,
        DataType::Array(definition) => array_type(written, definition, column)?,
        DataType::Custom(name, modifiers) if modifiers.is_empty() && (!column || is_kept(name)) => {
            let parts = super::parts(name)?;
            let plain = match parts.as_slice() {
                [name] => Some(name),
                [schema, name] if schema == "pg_catalog" => Some(name),
                _ => None,
            };
            match plain.and_then(|name| crate::system::named_type(name)) {
                Some(ty) => ty,
                None => return Err(no_type(name)),
            }
        }
        DataType::Custom(name, modifiers) if modifiers.is_empty() && is_unknown(name) => {
            return Err(no_type(name));
        }
        _ => {
            return bounded("docs/sql.md lists the types that columns have");
        }
    })
}

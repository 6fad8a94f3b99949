//! Columns as the catalogs tell of them: type, bounds, default, who numbers them.

use crate::bind::Slot;
use crate::columns::default_slot;
use crate::ty::Ty;
use ::types::data::{Column, ColumnType, Fallback, Identity, Value};
use pg::Kind;

/// Added to bounds in a type's modifier, as PostgreSQL adds it.
const BIAS: i64 = 4;

/// A column of a relation.
#[derive(Clone, PartialEq, Debug)]
pub struct Attribute {
    /// Its place in the relation, from 1. What was dropped leaves a gap.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Ty,
    /// What the catalogs call its type: `smallint` and `varchar(n)` are other types' values within bounds.
    pub kind: Kind,
    /// Its bounds as PostgreSQL puts them into a number; -1: none.
    pub modifier: i64,
    /// It is never null.
    pub not_null: bool,
    /// Its default, as an expression.
    pub default: Option<String>,
    /// The sequence whose next number is its default.
    pub sequence: Option<u32>,
    /// Who numbers its rows.
    pub identity: Option<Identity>,
}

impl Attribute {
    /// A column of a table of the cluster, in the first place.
    pub fn of(column: &Column, not_null: bool) -> Attribute {
        let rules = &column.rules;
        let ty = Ty::of_column(column);
        let kind = match (column.column_type, rules.bits, rules.max_chars) {
            (ColumnType::Int, Some(16), _) => Kind::Int2,
            (ColumnType::Text, _, Some(_)) if !rules.padded => Kind::Varchar,
            _ => ty.kind(),
        };
        let modifier = match (rules.max_chars, rules.digits) {
            (Some(most), _) => i64::from(most) + BIAS,
            (None, Some((precision, scale))) => ((i64::from(precision) << 16) | i64::from(scale)) + BIAS,
            (None, None) => -1,
        };
        let default = default(column, ty, kind);
        Attribute {
            number: 1,
            name: column.name.clone(),
            ty,
            kind,
            modifier,
            not_null,
            default,
            sequence: match rules.default {
                Some(Fallback::Next(sequence)) => Some(sequence),
                _ => None,
            },
            identity: rules.identity,
        }
    }

    /// The same in another place.
    pub fn at(self, number: usize) -> Attribute {
        Attribute { number, ..self }
    }

    /// A column of a system table, in the first place.
    pub fn of_system(name: &str, ty: Ty) -> Attribute {
        Attribute {
            number: 1,
            name: name.into(),
            ty,
            kind: ty.kind(),
            modifier: -1,
            not_null: false,
            default: None,
            sequence: None,
            identity: None,
        }
    }

    /// At most so many characters.
    pub fn most_characters(&self) -> Option<i64> {
        (matches!(self.kind, Kind::Varchar | Kind::Bpchar) && self.modifier >= BIAS)
            .then(|| self.modifier - BIAS)
    }

    /// So many digits, and how many of them stand after the point.
    pub fn digits(&self) -> Option<(i64, i64)> {
        (self.kind == Kind::Numeric && self.modifier >= BIAS).then(|| digits(self.modifier))
    }
}

fn digits(modifier: i64) -> (i64, i64) {
    ((modifier - BIAS) >> 16, (modifier - BIAS) & 0xffff)
}

/// What PostgreSQL writes behind a type's name for this modifier.
pub fn bounds(kind: Kind, modifier: i64) -> String {
    match kind {
        Kind::Varchar | Kind::Bpchar if modifier >= BIAS => format!("({})", modifier - BIAS),
        Kind::Numeric if modifier >= BIAS => {
            let (precision, scale) = digits(modifier);
            format!("({precision},{scale})")
        }
        _ => String::new(),
    }
}

/// A text as a literal.
pub fn literal(text: &str) -> String {
    let plain = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!("E'{}'", plain.replace('\\', "\\\\")),
        false => format!("'{plain}'"),
    }
}

/// A default as PostgreSQL writes it.
fn default(column: &Column, ty: Ty, kind: Kind) -> Option<String> {
    Some(match default_slot(column).ok()?? {
        Slot::Const(Value::Null) | Slot::Param(_) => return None,
        Slot::Now => "now()".into(),
        Slot::Today => "CURRENT_DATE".into(),
        Slot::Random => "gen_random_uuid()".into(),
        Slot::Const(Value::Bool(truth)) => truth.to_string(),
        Slot::Const(value) => {
            let mut text = String::new();
            pg::text::write_as(&mut text, ty.kind(), &value);
            // A sign would be an operator.
            let number = ty.is_number() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            if number { text } else { format!("{}::{}", literal(&text), kind.name()) }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::types::data::{Fallback, Rules};

    #[test]
    fn defaults_are_written_as_postgresql_writes_them() {
        for (of, text, shown) in [
            (ColumnType::Int, "7", "7"),
            (ColumnType::Int, "-7", "'-7'::bigint"),
            (ColumnType::Decimal, "1.5", "1.5"),
            (ColumnType::Float, "NaN", "'NaN'::double precision"),
            (ColumnType::Float, "1.0", "1"),
            (ColumnType::Text, "it's", "'it''s'::text"),
            (ColumnType::Text, r"a\b", r"E'a\\b'::text"),
            (ColumnType::Bool, "true", "true"),
            (ColumnType::Date, "2024-01-02", "'2024-01-02'::date"),
            (
                ColumnType::Timestamp,
                "2024-01-02T03:04:05Z",
                "'2024-01-02 03:04:05+00'::timestamp with time zone",
            ),
        ] {
            let rules = Rules { default: Some(Fallback::Value(text.into())), ..Rules::default() };
            let attribute = Attribute::of(&Column::new("c", of).with(rules), false);
            assert_eq!(attribute.default.as_deref(), Some(shown), "{of} {text}");
        }
        let rules = Rules { max_chars: Some(20), ..Rules::default() };
        let attribute = Attribute::of(&Column::new("c", ColumnType::Text).with(rules), true);
        assert_eq!(
            (attribute.kind, attribute.modifier, attribute.default.as_ref()),
            (Kind::Varchar, 24, None)
        );
        assert_eq!(bounds(Kind::Numeric, ((5 << 16) | 2) + 4), "(5,2)");
        assert_eq!((bounds(Kind::Numeric, -1), bounds(Kind::Text, 24)), (String::new(), String::new()));
    }
}

//! The types of expressions: those that columns have, and PostgreSQL's `integer`, which literals have.

use pg::Kind;
use types::data::{Column, ColumnType, Value};

/// A type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ty {
    /// `boolean`.
    Bool,
    /// `integer`, and `smallint`, which is an integer that stays small.
    Int4,
    /// `bigint`.
    Int8,
    /// `numeric`.
    Numeric,
    /// `double precision`.
    Float8,
    /// `text`.
    Text,
    /// `bytea`.
    Bytea,
    /// `date`.
    Date,
    /// `timestamptz`.
    Timestamptz,
    /// `json`.
    Json,
}

impl Ty {
    /// Of a column.
    pub fn of_column(column: &Column) -> Ty {
        match column.rules.bits {
            Some(_) => Ty::Int4,
            None => Ty::of(column.column_type),
        }
    }

    /// Of values of this type, without bounds.
    pub fn of(column: ColumnType) -> Ty {
        match column {
            ColumnType::Int => Ty::Int8,
            ColumnType::Float => Ty::Float8,
            ColumnType::Decimal => Ty::Numeric,
            ColumnType::Text => Ty::Text,
            ColumnType::Bytes => Ty::Bytea,
            ColumnType::Bool => Ty::Bool,
            ColumnType::Date => Ty::Date,
            ColumnType::Timestamp => Ty::Timestamptz,
            ColumnType::Json => Ty::Json,
        }
    }

    /// What its values are kept as.
    pub fn column(self) -> ColumnType {
        match self {
            Ty::Bool => ColumnType::Bool,
            Ty::Int4 | Ty::Int8 => ColumnType::Int,
            Ty::Numeric => ColumnType::Decimal,
            Ty::Float8 => ColumnType::Float,
            Ty::Text => ColumnType::Text,
            Ty::Bytea => ColumnType::Bytes,
            Ty::Date => ColumnType::Date,
            Ty::Timestamptz => ColumnType::Timestamp,
            Ty::Json => ColumnType::Json,
        }
    }

    /// What clients know it as.
    pub fn kind(self) -> Kind {
        match self {
            Ty::Bool => Kind::Bool,
            Ty::Int4 => Kind::Int4,
            Ty::Int8 => Kind::Int8,
            Ty::Numeric => Kind::Numeric,
            Ty::Float8 => Kind::Float8,
            Ty::Text => Kind::Text,
            Ty::Bytea => Kind::Bytea,
            Ty::Date => Kind::Date,
            Ty::Timestamptz => Kind::Timestamptz,
            Ty::Json => Kind::Json,
        }
    }

    /// What a parameter of this kind is here; `None`: undecided. The error: there is no such type here.
    pub fn of_kind(kind: Kind) -> Result<Option<Ty>, pg::Failure> {
        Ok(Some(match kind {
            Kind::Bool => Ty::Bool,
            Kind::Int2 | Kind::Int4 => Ty::Int4,
            Kind::Int8 => Ty::Int8,
            Kind::Numeric => Ty::Numeric,
            Kind::Float4 | Kind::Float8 => Ty::Float8,
            Kind::Text | Kind::Varchar | Kind::Name => Ty::Text,
            Kind::Bytea => Ty::Bytea,
            Kind::Date => Ty::Date,
            Kind::Timestamptz => Ty::Timestamptz,
            Kind::Timestamp => return Err(pg::text::no_timestamp()),
            Kind::Json | Kind::Jsonb => Ty::Json,
            Kind::Unknown => return Ok(None),
        }))
    }

    /// PostgreSQL's name of it.
    pub fn name(self) -> &'static str {
        self.kind().name()
    }

    /// A rank among numbers; `None`: it is none.
    fn rank(self) -> Option<u8> {
        Some(match self {
            Ty::Int4 => 0,
            Ty::Int8 => 1,
            Ty::Numeric => 2,
            Ty::Float8 => 3,
            _ => return None,
        })
    }

    /// True if it is a number's.
    pub fn is_number(self) -> bool {
        self.rank().is_some()
    }

    /// True if its values become the other type's wherever those are expected.
    pub fn becomes(self, other: Ty) -> bool {
        match (self.rank(), other.rank()) {
            (Some(one), Some(two)) => one <= two,
            _ => self == other || (self, other) == (Ty::Date, Ty::Timestamptz),
        }
    }

    /// True if its values become the other type's when they are stored in a column.
    pub fn assigns(self, other: Ty) -> bool {
        let numbers = self.is_number() && other.is_number();
        numbers || self.becomes(other) || other == Ty::Text || (self, other) == (Ty::Timestamptz, Ty::Date)
    }

    /// True if its values can be compared with each other.
    pub fn compares(self) -> bool {
        self != Ty::Json
    }

    /// True if the value is of this type, or none.
    pub fn has(self, value: &Value) -> bool {
        value.column_type().is_none_or(|of| of == self.column())
    }
}

/// A column's type as PostgreSQL writes it.
pub fn written(column: &Column) -> String {
    let rules = &column.rules;
    match (column.column_type, rules.bits, rules.max_chars, rules.digits) {
        (ColumnType::Int, Some(16), ..) => "smallint".into(),
        (ColumnType::Text, _, Some(most), _) => format!("character varying({most})"),
        (ColumnType::Decimal, .., Some((precision, scale))) => format!("numeric({precision},{scale})"),
        _ => Ty::of_column(column).name().into(),
    }
}

/// The type that values of both become, where one of two is expected: in CASE, UNION, IN and comparisons.
pub fn common(one: Ty, two: Ty) -> Option<Ty> {
    if one.becomes(two) {
        Some(two)
    } else if two.becomes(one) {
        Some(one)
    } else {
        None
    }
}

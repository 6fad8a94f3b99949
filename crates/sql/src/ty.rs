//! The types of expressions: those that columns have, PostgreSQL's `integer`, which literals have, and those
//! that its catalogs have.

use pg::Kind;
use types::data::{Column, ColumnType, Rules, Value};

/// Makes the enum, the list of all of it, and what clients know each type as: the kind of the same name, or
/// the one that is named.
macro_rules! types {
    (@kind $name:ident) => { Kind::$name };
    (@kind $name:ident $kind:ident) => { Kind::$kind };
    ($($(#[$doc:meta])+ $name:ident $(as $kind:ident)?,)+) => {
        /// A type. Columns of the cluster's tables have the first ones; the others come from system tables,
        /// casts and literals.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Ty {
            $($(#[$doc])+ $name,)+
        }

        impl Ty {
            /// All types, by the number that they have in the engine's statements.
            pub const ALL: [Ty; 51] = [$(Ty::$name),+];

            /// What clients know it as.
            pub fn kind(self) -> Kind {
                match self { $(Ty::$name => types!(@kind $name $($kind)?),)+ }
            }
        }
    };
}

types! {
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
    /// `smallint`.
    Int2,
    /// `real`.
    Float4,
    /// `name`: a text of at most 63 bytes.
    Name,
    /// `"char"`: a text of at most one byte.
    Char,
    /// `oid`.
    Oid,
    /// `xid`.
    Xid,
    /// `regproc`: an oid that is shown as a function's name.
    Regproc,
    /// `regclass`: an oid that is shown as a relation's name.
    Regclass,
    /// `regtype`: an oid that is shown as a type's name.
    Regtype,
    /// `regnamespace`: an oid that is shown as a schema's name.
    Regnamespace,
    /// `pg_lsn`, kept as text.
    PgLsn,
    /// `inet`, kept as text.
    Inet,
    /// `interval`.
    Interval,
    /// `pg_node_tree`, kept as text.
    NodeTree,
    /// A member of an array with its position, as `_pg_expandarray` gives it.
    Member as Record,
    /// `int2vector`.
    Int2Vector,
    /// `oidvector`.
    OidVector,
    /// `boolean[]`.
    BoolArray,
    /// `bytea[]`.
    ByteaArray,
    /// `"char"[]`.
    CharArray,
    /// `name[]`.
    NameArray,
    /// `smallint[]`.
    Int2Array,
    /// `integer[]`.
    Int4Array,
    /// `bigint[]`.
    Int8Array,
    /// `text[]`.
    TextArray,
    /// `oid[]`.
    OidArray,
    /// `real[]`.
    Float4Array,
    /// `double precision[]`.
    Float8Array,
    /// `numeric[]`.
    NumericArray,
    /// `date[]`.
    DateArray,
    /// `timestamptz[]`.
    TimestamptzArray,
    /// `json[]`.
    JsonArray,
    /// `aclitem[]`.
    AclArray,
    /// `timestamp` without time zone.
    Timestamp,
    /// `char(n)`: a text whose blanks at the end do not count, kept without them.
    Bpchar,
    /// `uuid`.
    Uuid,
    /// `time` without time zone.
    Time,
    /// `timestamp[]`.
    TimestampArray,
    /// `uuid[]`.
    UuidArray,
    /// `time[]`.
    TimeArray,
    /// `interval[]`.
    IntervalArray,
}

use Ty::*;

impl Ty {
    /// Of a column.
    pub fn of_column(column: &Column) -> Ty {
        let rules = &column.rules;
        let shown = rules.shown.as_ref();
        if let Some(ty) = shown.and_then(|name| Ty::ALL.into_iter().find(|ty| ty.name() == name)) {
            return ty;
        }
        match (rules.bits, rules.local, rules.padded) {
            (Some(_), ..) if column.column_type == ColumnType::Float => Ty::Float4,
            (Some(_), ..) => Ty::Int4,
            (_, true, _) => Ty::Timestamp,
            (.., true) => Ty::Bpchar,
            _ => Ty::of(column.column_type),
        }
    }

    /// Of values of this type, without bounds.
    pub fn of(column: ColumnType) -> Ty {
        match column {
            ColumnType::Int => Int8,
            ColumnType::Float => Float8,
            ColumnType::Decimal => Numeric,
            ColumnType::Text => Text,
            ColumnType::Bytes => Bytea,
            ColumnType::Bool => Bool,
            ColumnType::Date => Date,
            ColumnType::Timestamp => Timestamptz,
            ColumnType::Json => Json,
            ColumnType::Uuid => Uuid,
            ColumnType::Time => Time,
            ColumnType::Interval => Interval,
        }
    }

    /// The rules of a column of this type that say what its values are beyond what they are kept as.
    pub fn rules(self) -> Rules {
        let none = Rules::default();
        match self {
            Int2 => Rules { bits: Some(16), ..none },
            Int4 | Float4 => Rules { bits: Some(32), ..none },
            Timestamp => Rules { local: true, ..none },
            Oid | Name => Rules { shown: Some(self.name().into()), ..none },
            of if of.element().is_some() => Rules { shown: Some(of.name().into()), ..none },
            _ => none,
        }
    }

    /// What its values are kept as.
    pub fn column(self) -> ColumnType {
        match self {
            Bool => ColumnType::Bool,
            Int2 | Int4 | Int8 | Oid | Xid | Regproc | Regclass | Regtype | Regnamespace => ColumnType::Int,
            Numeric => ColumnType::Decimal,
            Float4 | Float8 => ColumnType::Float,
            Bytea => ColumnType::Bytes,
            Date => ColumnType::Date,
            Timestamp | Timestamptz => ColumnType::Timestamp,
            Json => ColumnType::Json,
            Uuid => ColumnType::Uuid,
            Time => ColumnType::Time,
            Interval => ColumnType::Interval,
            _ => ColumnType::Text,
        }
    }

    /// What a parameter of this kind is here; `None`: undecided. The error: there is no such type here.
    pub fn of_kind(kind: Kind) -> Result<Option<Ty>, pg::Failure> {
        Ok(Some(match kind {
            // A parameter's type does not limit what is computed with it.
            Kind::Int2 | Kind::Int4 => Int4,
            Kind::Float4 | Kind::Float8 => Float8,
            Kind::Text | Kind::Varchar | Kind::Name => Text,
            Kind::VarcharArray => TextArray,
            Kind::Json | Kind::Jsonb => Json,
            Kind::Unknown => return Ok(None),
            // They are looked up by name when the statement is executed.
            Kind::Regproc | Kind::Regclass | Kind::Regtype | Kind::Regnamespace => return Ok(None),
            Kind::Record => {
                let what = format!("a parameter of type {}", kind.name());
                return Err(pg::Failure::unsupported(what, "docs/sql.md lists the types"));
            }
            kind => return Ok(Ty::ALL.into_iter().find(|ty| ty.kind() == kind)),
        }))
    }

    /// PostgreSQL's name of it.
    pub fn name(self) -> &'static str {
        self.kind().name()
    }

    /// The type of an array's elements; `None`: it is no array.
    pub fn element(self) -> Option<Ty> {
        let of = self.kind().element()?;
        Ty::ALL.into_iter().find(|ty| ty.kind() == of)
    }

    /// The type of an array of such elements; `None`: there is none here.
    pub fn array(self) -> Option<Ty> {
        let mut arrays = Ty::ALL.into_iter().filter(|ty| !matches!(ty, Int2Vector | OidVector | AclArray));
        arrays.find(|ty| ty.element() == Some(self))
    }

    /// Where arrays of this type begin to count.
    pub fn first_index(self) -> i64 {
        i64::from(!matches!(self, Int2Vector | OidVector))
    }

    /// True for an oid that is shown as a name.
    pub fn is_reg(self) -> bool {
        matches!(self, Regproc | Regclass | Regtype | Regnamespace)
    }

    /// True if its values are texts for the engine, none of them an array.
    pub fn is_textual(self) -> bool {
        matches!(self, Text | Bpchar | Name | Char | NodeTree | PgLsn | Inet | Member)
    }

    /// A rank among numbers; `None`: it is none.
    fn rank(self) -> Option<u8> {
        Some(match self {
            Int2 => 0,
            Int4 => 1,
            Int8 => 2,
            Numeric => 3,
            Float4 => 4,
            Float8 => 5,
            _ => return None,
        })
    }

    /// True if it is a number's.
    pub fn is_number(self) -> bool {
        self.rank().is_some()
    }

    /// True if the engine keeps both alike, so that a conversion to the other changes nothing.
    pub fn is_kept_as(self, other: Ty) -> bool {
        matches!(
            (self, other),
            (Int2, Int4 | Int8)
                | (Int4, Int8)
                | (Oid | Regproc | Regclass | Regtype | Regnamespace, Oid)
                | (Oid, Int8 | Regproc | Regclass | Regtype | Regnamespace)
                | (Bpchar | Name | Char | NodeTree | PgLsn | Inet | Member, Text)
                | (Timestamp, Timestamptz)
                | (Timestamptz, Timestamp)
                | (Text, NodeTree)
        )
    }

    /// True if its values become the other type's wherever those are expected.
    pub fn becomes(self, other: Ty) -> bool {
        match (self.rank(), other.rank()) {
            (Some(one), Some(two)) => one <= two,
            _ => {
                self == other
                    || matches!(
                        (self, other),
                        (Date, Timestamp | Timestamptz)
                            | (Timestamp, Timestamptz)
                            | (Bpchar | Name | Char | NodeTree, Text)
                            | (Int2 | Int4 | Int8 | Regproc | Regclass | Regtype | Regnamespace, Oid)
                            | (Int2Vector, Int2Array)
                            | (OidVector, OidArray)
                    )
            }
        }
    }

    /// True if its values become the other type's when they are stored in a column.
    pub fn assigns(self, other: Ty) -> bool {
        let numbers = self.is_number() && other.is_number();
        let text = matches!(other, Text | Bpchar) && self != Member;
        let others = matches!(
            (self, other),
            (Timestamptz, Date | Timestamp | Time)
                | (Timestamp, Date | Time)
                | (Oid, Int8)
                | (Time, Interval)
                | (Interval, Time)
                | (Text, Name)
        );
        let elements =
            matches!((self.element(), other.element()), (Some(one), Some(two)) if one.assigns(two));
        numbers || self.becomes(other) || text || others || elements
    }

    /// True if its values can be compared with each other for equality.
    pub fn equates(self) -> bool {
        !matches!(self, Json | Inet | NodeTree | Float4Array | Float8Array | JsonArray)
    }

    /// True if its values have an order, which is the engine's.
    pub fn compares(self) -> bool {
        self.equates() && self.element().is_none() && !matches!(self, PgLsn | Member | Xid)
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
        (ColumnType::Text, _, Some(most), _) if rules.padded => format!("character({most})"),
        (ColumnType::Text, _, Some(most), _) => format!("character varying({most})"),
        (ColumnType::Decimal, .., Some((precision, scale))) => format!("numeric({precision},{scale})"),
        _ => Ty::of_column(column).name().into(),
    }
}

/// The type that values of both become, where one of two is expected: in CASE, UNION, IN and comparisons.
pub fn common(one: Ty, two: Ty) -> Option<Ty> {
    let other_number = |ty: Ty, other: Ty| ty == Float4 && other != Float4 && other.is_number();
    // PostgreSQL prefers double precision where a number of 32 bits meets another one.
    if other_number(one, two) || other_number(two, one) {
        Some(Float8)
    } else if one.becomes(two) {
        Some(two)
    } else if two.becomes(one) {
        Some(one)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_numbers_and_one_kind_each() {
        for (number, ty) in Ty::ALL.into_iter().enumerate() {
            assert_eq!(ty as usize, number);
            assert_eq!(Ty::ALL.into_iter().filter(|other| other.kind() == ty.kind()).count(), 1, "{ty:?}");
        }
        assert_eq!(
            (Text.array(), Int2.array(), TextArray.element()),
            (Some(TextArray), Some(Int2Array), Some(Text))
        );
        assert_eq!(
            (common(Char, Text), common(Oid, Int4), common(Regclass, Oid)),
            (Some(Text), Some(Oid), Some(Oid))
        );
    }
}

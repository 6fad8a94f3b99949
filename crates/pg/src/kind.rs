//! The types that values have on the wire, with PostgreSQL's numbers and names for them.

/// A type as PostgreSQL's clients know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// `boolean`.
    Bool,
    /// `bytea`.
    Bytea,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// `numeric`.
    Numeric,
    /// `text`.
    Text,
    /// `character varying`.
    Varchar,
    /// `name`.
    Name,
    /// `date`.
    Date,
    /// `timestamp without time zone`.
    Timestamp,
    /// `timestamp with time zone`.
    Timestamptz,
    /// `json`.
    Json,
    /// `jsonb`.
    Jsonb,
    /// A literal or parameter whose type nothing has decided.
    Unknown,
}

use Kind::*;

const ALL: [(Kind, u32, i16, &str); 17] = [
    (Bool, 16, 1, "boolean"),
    (Bytea, 17, -1, "bytea"),
    (Int2, 21, 2, "smallint"),
    (Int4, 23, 4, "integer"),
    (Int8, 20, 8, "bigint"),
    (Float4, 700, 4, "real"),
    (Float8, 701, 8, "double precision"),
    (Numeric, 1700, -1, "numeric"),
    (Text, 25, -1, "text"),
    (Varchar, 1043, -1, "character varying"),
    (Name, 19, 64, "name"),
    (Date, 1082, 4, "date"),
    (Timestamp, 1114, 8, "timestamp without time zone"),
    (Timestamptz, 1184, 8, "timestamp with time zone"),
    (Json, 114, -1, "json"),
    (Jsonb, 3802, -1, "jsonb"),
    (Unknown, 705, -2, "unknown"),
];

impl Kind {
    fn row(self) -> &'static (Kind, u32, i16, &'static str) {
        ALL.iter().find(|row| row.0 == self).expect("every kind is listed")
    }

    /// PostgreSQL's number of the type.
    pub fn oid(self) -> u32 {
        self.row().1
    }

    /// The bytes a value takes; negative: it varies.
    pub fn size(self) -> i16 {
        self.row().2
    }

    /// PostgreSQL's name of the type.
    pub fn name(self) -> &'static str {
        self.row().3
    }

    /// The type with this number; `None`: it is not known here.
    pub fn from_oid(oid: u32) -> Option<Kind> {
        ALL.iter().find(|row| row.1 == oid).map(|row| row.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds_are_one_to_one() {
        for (kind, oid, ..) in ALL {
            assert_eq!(Kind::from_oid(kind.oid()), Some(kind));
            assert_eq!(kind.oid(), oid);
        }
        assert_eq!(Kind::from_oid(1), None);
        assert_eq!((Int8.oid(), Numeric.oid(), Timestamptz.oid()), (20, 1700, 1184));
    }
}

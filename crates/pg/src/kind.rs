//! The types that values have on the wire, with PostgreSQL's numbers and names for them.

/// Makes the enum and the list of all of it: each with its number, the bytes a value takes, and its name.
macro_rules! kinds {
    ($($name:ident $oid:literal $size:literal $text:literal,)+) => {
        /// A type as PostgreSQL's clients know it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Kind {
            $(#[doc = concat!("`", $text, "`.")] $name,)+
        }

        const ALL: [(Kind, u32, i16, &str); 55] = [$((Kind::$name, $oid, $size, $text),)+];
    };
}

kinds! {
    Bool 16 1 "boolean",
    Bytea 17 -1 "bytea",
    Int2 21 2 "smallint",
    Int4 23 4 "integer",
    Int8 20 8 "bigint",
    Float4 700 4 "real",
    Float8 701 8 "double precision",
    Numeric 1700 -1 "numeric",
    Text 25 -1 "text",
    Varchar 1043 -1 "character varying",
    // Blanks at the end of its values do not count.
    Bpchar 1042 -1 "character",
    Name 19 64 "name",
    Date 1082 4 "date",
    Timestamp 1114 8 "timestamp without time zone",
    Timestamptz 1184 8 "timestamp with time zone",
    Json 114 -1 "json",
    Jsonb 3802 -1 "jsonb",
    // One byte.
    Char 18 1 "\"char\"",
    // The number of an object.
    Oid 26 4 "oid",
    // A function by its number, shown by its name.
    Regproc 24 4 "regproc",
    // A relation by its number, shown by its name.
    Regclass 2205 4 "regclass",
    // A type by its number, shown by its name.
    Regtype 2206 4 "regtype",
    // A schema by its number, shown by its name.
    Regnamespace 4089 4 "regnamespace",
    Xid 28 4 "xid",
    // As text.
    PgLsn 3220 8 "pg_lsn",
    // As text.
    Inet 869 -1 "inet",
    Interval 1186 16 "interval",
    Uuid 2950 16 "uuid",
    Time 1083 8 "time without time zone",
    // An expression, as text.
    NodeTree 194 -1 "pg_node_tree",
    // A row of several values, as text.
    Record 2249 -1 "record",
    Int2Vector 22 -1 "int2vector",
    OidVector 30 -1 "oidvector",
    BoolArray 1000 -1 "boolean[]",
    ByteaArray 1001 -1 "bytea[]",
    CharArray 1002 -1 "\"char\"[]",
    NameArray 1003 -1 "name[]",
    Int2Array 1005 -1 "smallint[]",
    Int4Array 1007 -1 "integer[]",
    Int8Array 1016 -1 "bigint[]",
    TextArray 1009 -1 "text[]",
    VarcharArray 1015 -1 "character varying[]",
    OidArray 1028 -1 "oid[]",
    Float4Array 1021 -1 "real[]",
    Float8Array 1022 -1 "double precision[]",
    NumericArray 1231 -1 "numeric[]",
    DateArray 1182 -1 "date[]",
    TimestamptzArray 1185 -1 "timestamp with time zone[]",
    TimestampArray 1115 -1 "timestamp without time zone[]",
    UuidArray 2951 -1 "uuid[]",
    TimeArray 1183 -1 "time without time zone[]",
    IntervalArray 1187 -1 "interval[]",
    JsonArray 199 -1 "json[]",
    AclArray 1034 -1 "aclitem[]",
    // A literal or parameter whose type nothing has decided.
    Unknown 705 -2 "unknown",
}

use Kind::*;

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

    /// What an array's elements are; `None`: it is no array.
    pub fn element(self) -> Option<Kind> {
        Some(match self {
            BoolArray => Bool,
            ByteaArray => Bytea,
            CharArray => Char,
            NameArray => Name,
            Int2Array | Int2Vector => Int2,
            Int4Array => Int4,
            Int8Array => Int8,
            TextArray => Text,
            VarcharArray => Varchar,
            OidArray | OidVector => Oid,
            Float4Array => Float4,
            Float8Array => Float8,
            NumericArray => Numeric,
            DateArray => Date,
            TimestamptzArray => Timestamptz,
            TimestampArray => Timestamp,
            UuidArray => Uuid,
            TimeArray => Time,
            IntervalArray => Interval,
            JsonArray => Json,
            // Access rights are never given here, so no array of them has an element.
            AclArray => Text,
            _ => return None,
        })
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

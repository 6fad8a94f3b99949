//! From the definition of a column to a column: its type with bounds, its default, who numbers it.

use crate::bind::{self, Slot, data_type, folded};
use crate::catalog::Catalog;
use crate::numbering::Counting;
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{
    CharacterLength, ColumnDef, ColumnOption, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, GeneratedAs, SequenceOptions, TimezoneInfo,
};
use types::TableId;
use types::data::rules::{MAX_CHARS, MAX_PRECISION};
use types::data::{Column, Fallback, Identity, Rules, Value};

/// The name of a column that nobody sees. As in PostgreSQL no column that is seen has it.
pub const HIDDEN: &str = "ctid";

/// Reads a column. A primary key that it is told to be is added to `key`.
pub fn read(column: &ColumnDef, key: &mut Vec<String>) -> Result<Column, Failure> {
    let name = folded(&column.name);
    if name == HIDDEN {
        let message = format!("column name \"{name}\" conflicts with a system column name");
        return Err(Failure::new("42701", message));
    }
    let (ty, rules) = bounded(&column.data_type)?;
    let mut made = Column::new(name.clone(), ty.column()).with(rules);
    made.nullable = made.rules.identity.is_none();
    for option in &column.options {
        match &option.option {
            ColumnOption::Null if made.rules.identity.is_none() => made.nullable = true,
            ColumnOption::NotNull => made.nullable = false,
            ColumnOption::PrimaryKey(_) if key.is_empty() => key.push(name.clone()),
            ColumnOption::PrimaryKey(_) => {
                return Err(Failure::new("42P16", "multiple primary keys are not allowed")
                    .hint("several columns: PRIMARY KEY (one, two) after the columns"));
            }
            ColumnOption::Default(_) if made.rules.identity.is_some() => {
                return Err(Failure::new(
                    "42601",
                    format!("both default and identity specified for column \"{name}\""),
                ));
            }
            // It is resolved where sequences are known.
            ColumnOption::Default(expr) if next_of(expr).is_some() => {
                made.rules.default = Some(Fallback::Next(0));
            }
            ColumnOption::Default(expr) => made.rules.default = fallback(expr, &made, ty)?,
            ColumnOption::Generated { generated_as, generation_expr: None, .. } => {
                made.rules.identity = Some(identity(Some(generated_as)));
                made.nullable = false;
            }
            // They are read as constraints.
            ColumnOption::ForeignKey(_) | ColumnOption::Unique(_) | ColumnOption::Check(_) => {}
            other => {
                let hint = "columns have a type, NOT NULL, PRIMARY KEY, DEFAULT a constant, now() or gen_random_uuid(), and GENERATED ... AS IDENTITY";
                return Err(Failure::unsupported(format!("{other} of column \"{name}\""), hint));
            }
        }
    }
    if let Some(why) = made.rules.fault(made.column_type) {
        return Err(Failure::new("42P16", format!("column \"{name}\": {why}")));
    }
    Ok(made)
}

/// Who numbers the rows of an identity column.
pub fn identity(generated: Option<&GeneratedAs>) -> Identity {
    match generated {
        Some(GeneratedAs::Always) => Identity::Always,
        _ => Identity::ByDefault,
    }
}

/// Numbers go from 1 on in steps of 1: options that say so are taken.
pub fn check_counting(options: &[SequenceOptions]) -> Result<(), Failure> {
    let one = |expr: &Expr| expr.to_string() == "1";
    for option in options {
        let plain = match option {
            SequenceOptions::StartWith(start, _) => one(start),
            SequenceOptions::IncrementBy(step, _) => one(step),
            SequenceOptions::MinValue(least) => least.as_ref().is_none_or(one),
            SequenceOptions::MaxValue(most) => most.is_none(),
            SequenceOptions::Cycle(no) => *no,
            SequenceOptions::Cache(_) => true,
        };
        if !plain {
            let hint = "numbers of an identity column go from 1 on in steps of 1";
            return Err(Failure::unsupported(format!("the option {option} of an identity column"), hint));
        }
    }
    Ok(())
}

/// A column's type and its bounds.
pub fn bounded(written: &DataType) -> Result<(Ty, Rules), Failure> {
    let none = Rules::default();
    let integer = |bits: u8| (Ty::Int4, Rules { bits: Some(bits), ..Rules::default() });
    let serial = |bits: Option<u8>| {
        let ty = if bits.is_some() { Ty::Int4 } else { Ty::Int8 };
        (ty, Rules { bits, identity: Some(Identity::ByDefault), ..Rules::default() })
    };
    Ok(match written {
        DataType::SmallInt(None) | DataType::Int2(None) => integer(16),
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => integer(32),
        DataType::Varchar(Some(length)) | DataType::CharacterVarying(Some(length)) => {
            (Ty::Text, Rules { max_chars: Some(characters(length, "varchar")?), ..none })
        }
        DataType::Char(length) | DataType::Character(length) => {
            let most = length.as_ref().map_or(Ok(1), |length| characters(length, "char"))?;
            (Ty::Bpchar, Rules { max_chars: Some(most), padded: true, ..none })
        }
        DataType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            (Ty::Timestamp, Rules { local: true, ..none })
        }
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            let digits = match info {
                ExactNumberInfo::None => return Ok((Ty::Numeric, none)),
                ExactNumberInfo::Precision(precision) => (*precision, 0),
                ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
            };
            (Ty::Numeric, Rules { digits: Some(precision(digits.0, digits.1)?), ..none })
        }
        DataType::Custom(name, parameters) if parameters.is_empty() => {
            match bind::parts(name)?.concat().as_str() {
                "serial" | "serial4" => serial(Some(32)),
                "smallserial" | "serial2" => serial(Some(16)),
                "bigserial" | "serial8" => serial(None),
                _ => kept(data_type(written, true)?),
            }
        }
        other => kept(data_type(other, true)?),
    })
}

/// A type with what says that a column is of it.
fn kept(ty: Ty) -> (Ty, Rules) {
    (ty, ty.rules())
}

/// How many characters a text of this type has at most.
fn characters(length: &CharacterLength, of: &str) -> Result<u32, Failure> {
    let CharacterLength::IntegerLength { length, unit: None } = length else {
        return Err(Failure::unsupported(format!("type {of}({length})"), "write varchar(20)"));
    };
    let most = u32::try_from(*length).ok().filter(|length| (1..=MAX_CHARS).contains(length));
    most.ok_or_else(|| Failure::new("22023", format!("length for type {of} must be 1 to {MAX_CHARS}")))
}

fn precision(precision: u64, scale: i64) -> Result<(u8, u8), Failure> {
    let digits = u8::try_from(precision).ok().filter(|digits| (1..=MAX_PRECISION).contains(digits));
    let Some(digits) = digits else {
        let message = format!("NUMERIC precision {precision} must be between 1 and {MAX_PRECISION}");
        return Err(Failure::new("22023", message));
    };
    match u8::try_from(scale).ok().filter(|scale| *scale <= digits) {
        Some(scale) => Ok((digits, scale)),
        None => Err(Failure::unsupported(
            format!("numeric({precision},{scale})"),
            "the scale is 0 up to the precision",
        )),
    }
}

/// A default that is written: a constant, or the moment of the statement.
pub fn fallback(expr: &Expr, column: &Column, ty: Ty) -> Result<Option<Fallback>, Failure> {
    let name = &column.name;
    if ty == Ty::Uuid && is_random_uuid(expr) {
        return Ok(Some(Fallback::Random));
    }
    let hint = "a default is a constant, now(), current_timestamp, current_date or gen_random_uuid()";
    match bind::constant(&Catalog::default(), expr, name, ty)? {
        Some(Slot::Const(Value::Null)) => Ok(None),
        Some(Slot::Const(value)) => {
            let value = column.rules.fit(value).map_err(|breach| crate::rows::breach(column, breach))?;
            Ok(Some(Fallback::Value(value.to_string())))
        }
        Some(Slot::Now | Slot::Today) => Ok(Some(Fallback::Now)),
        Some(Slot::Param(_) | Slot::Random) | None => {
            Err(Failure::unsupported(format!("DEFAULT {expr} of column \"{name}\""), hint))
        }
    }
}

/// True for a call of the function that draws a UUID.
fn is_random_uuid(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let name = bind::parts(&function.name).unwrap_or_default();
    let none = matches!(&function.args, FunctionArguments::List(list) if list.args.is_empty());
    none && name.last().is_some_and(|name| matches!(name.as_str(), "gen_random_uuid" | "uuid_generate_v4"))
}

/// True if the cluster numbers rows that say nothing.
pub fn is_numbered(column: &Column) -> bool {
    column.rules.identity.is_some() || matches!(column.rules.default, Some(Fallback::Next(_)))
}

/// The sequence that numbers a column's rows; `None`: a counter of its own, or nobody.
pub fn numbering(column: &Column) -> Option<TableId> {
    match (&column.rules.default, column.rules.identity) {
        (Some(Fallback::Next(sequence)), _) => Some(TableId(*sequence)),
        (_, Some(_)) => column.rules.sequence.map(TableId),
        _ => None,
    }
}

/// The sequence that a default names: `nextval('name')`.
pub fn next_of(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    let name = bind::parts(&function.name).ok()?;
    let FunctionArguments::List(list) = &function.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = list.args.as_slice() else { return None };
    let mut argument = argument;
    while let Expr::Cast { expr, .. } | Expr::Nested(expr) = argument {
        argument = expr;
    }
    let Expr::Value(value) = argument else { return None };
    let text = value.value.clone().into_string()?;
    (name.last().is_some_and(|name| name == "nextval")).then_some(text)
}

/// How a column's rows are numbered, as CREATE TABLE says it.
#[derive(Clone, PartialEq, Debug)]
pub enum Numbered {
    /// SERIAL: a sequence comes with it, and is its default.
    Serial,
    /// GENERATED AS IDENTITY: a sequence comes with it.
    Identity(Counting),
    /// By a sequence that is there.
    By(String),
}

/// The error of numbers that the cluster does not give to tables with partitions for themselves.
pub fn numbered_by_cluster(column: &ColumnDef) -> Result<(), Failure> {
    for option in &column.options {
        match &option.option {
            ColumnOption::Generated { sequence_options, .. } => {
                check_counting(sequence_options.as_deref().unwrap_or_default())?;
            }
            ColumnOption::Default(expr) if next_of(expr).is_some() => {
                let hint =
                    "a table with partitions for itself has none: use serial, or make it without options";
                return Err(Failure::unsupported("nextval outside of databases", hint));
            }
            _ => {}
        }
    }
    Ok(())
}

/// How a column's rows are numbered, if they are.
pub fn numbered(column: &ColumnDef) -> Result<Option<Numbered>, Failure> {
    for option in &column.options {
        match &option.option {
            ColumnOption::Generated { sequence_options, generation_expr: None, .. } => {
                let options = sequence_options.as_deref().unwrap_or_default();
                let text: Vec<String> = options.iter().map(ToString::to_string).collect();
                return Ok(Some(Numbered::Identity(Counting::of_column(&text.join(" "))?)));
            }
            ColumnOption::Default(expr) => {
                if let Some(name) = next_of(expr) {
                    return Ok(Some(Numbered::By(name)));
                }
            }
            _ => {}
        }
    }
    Ok(bounded(&column.data_type)?.1.identity.map(|_| Numbered::Serial))
}

/// The slot of a column's default; `None`: the cluster numbers it.
pub fn default_slot(column: &Column) -> Result<Option<Slot>, Failure> {
    if is_numbered(column) {
        return Ok(None);
    }
    Ok(Some(match &column.rules.default {
        None | Some(Fallback::Next(_)) => Slot::Const(Value::Null),
        Some(Fallback::Random) => Slot::Random,
        Some(Fallback::Now) if Ty::of_column(column) == Ty::Date => Slot::Today,
        Some(Fallback::Now) => Slot::Now,
        Some(Fallback::Value(text)) => {
            let value = column.column_type.parse(text);
            Slot::Const(value.map_err(|error| Failure::new(pg::code::INTERNAL, error.to_string()))?)
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::ast::Statement;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;

    fn columns(text: &str) -> Result<Vec<String>, String> {
        let text = format!("CREATE TABLE t ({text})");
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).map_err(|error| error.to_string())?;
        let [Statement::CreateTable(create)] = parsed.as_slice() else { panic!("{text}") };
        let mut key = Vec::new();
        let shown = |column: &ColumnDef| {
            let column = read(column, &mut key).map_err(|failure| format!("{} {failure}", failure.code))?;
            let null = if column.nullable { "" } else { " not null" };
            Ok(format!("{}{null} [{}]", crate::ty::written(&column), column.rules))
        };
        let columns = create.columns.iter().map(shown).collect::<Result<_, String>>()?;
        Ok(columns)
    }

    #[test]
    fn columns_have_bounds_defaults_and_numbers() {
        for (text, column) in [
            ("a int", "integer [32 bits]"),
            ("a smallint NOT NULL DEFAULT -1", "smallint not null [16 bits, default \"-1\"]"),
            ("a bigint DEFAULT '7'", "bigint [default \"7\"]"),
            (
                "a varchar(20) DEFAULT 'it''s'",
                "character varying(20) [at most 20 characters, default \"it's\"]",
            ),
            ("a varchar(3) DEFAULT 'abc  '", "character varying(3) [at most 3 characters, default \"abc\"]"),
            ("a character varying(2)", "character varying(2) [at most 2 characters]"),
            ("a text DEFAULT NULL", "text []"),
            ("a numeric(5,2) DEFAULT 1.005", "numeric(5,2) [5 digits, 2 after the point, default \"1.01\"]"),
            (
                "a char(3) DEFAULT 'ab'",
                "character(3) [at most 3 characters, default \"ab\", blanks at its end do not count]",
            ),
            ("a char", "character(1) [at most 1 characters, blanks at its end do not count]"),
            ("a timestamp DEFAULT now()", "timestamp without time zone [default now, of any place]"),
            ("a numeric(5)", "numeric(5,0) [5 digits, 0 after the point]"),
            ("a timestamptz DEFAULT now()", "timestamp with time zone [default now]"),
            ("a timestamptz DEFAULT CURRENT_TIMESTAMP", "timestamp with time zone [default now]"),
            ("a date DEFAULT current_date", "date [default now]"),
            ("a boolean DEFAULT true", "boolean [default \"true\"]"),
            ("a float8 DEFAULT 1", "double precision [default \"1.0\"]"),
            ("a real DEFAULT 0.1", "real [32 bits, default \"0.10000000149011612\"]"),
            ("a float(24)", "real [32 bits]"),
            ("a float(25)", "double precision []"),
            ("a uuid DEFAULT gen_random_uuid()", "uuid [default random]"),
            (
                "a uuid DEFAULT 'A0EEBC999C0B4EF8BB6D6BB9BD380A11'",
                "uuid [default \"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"]",
            ),
            ("a time DEFAULT '4:05'", "time without time zone [default \"04:05:00\"]"),
            ("a interval DEFAULT '36 hours'", "interval [default \"36:00:00\"]"),
            ("a int[] DEFAULT '{1, 2}'", "integer[] [integer[], default \"{1,2}\"]"),
            ("a text[]", "text[] [text[]]"),
            ("a uuid[]", "uuid[] [uuid[]]"),
            ("a oid", "oid [oid]"),
            ("a name", "name [name]"),
            ("a serial PRIMARY KEY", "integer not null [32 bits, numbered by default]"),
            ("a BIGSERIAL", "bigint not null [numbered by default]"),
            ("a int GENERATED ALWAYS AS IDENTITY", "integer not null [32 bits, always numbered]"),
            ("a bigint GENERATED BY DEFAULT AS IDENTITY", "bigint not null [numbered by default]"),
            ("a int REFERENCES b (c) NOT ENFORCED", "integer [32 bits]"),
        ] {
            assert_eq!(columns(text).as_deref(), Ok(&[column.to_string()][..]), "{text}");
        }
    }

    #[test]
    fn what_is_not_kept_is_refused() {
        for (text, code) in [
            ("a char(0)", "22023"),
            ("a varchar(0)", "22023"),
            ("a varchar(3) DEFAULT 'abcd'", "22001"),
            ("a smallint DEFAULT 40000", "22003"),
            ("a int DEFAULT 'x'", "22P02"),
            ("a int DEFAULT random()", "0A000"),
            ("a uuid DEFAULT 'x'", "22P02"),
            ("a int[][]", "0A000"),
            ("a int[3]", "0A000"),
            ("a json[]", "0A000"),
            ("a time(3)", "0A000"),
            ("a timetz", "0A000"),
            ("a interval(3)", "0A000"),
            ("a int DEFAULT now()", "42804"),
            ("a numeric(39,2)", "22023"),
            ("a numeric(3,-2)", "0A000"),
            ("a numeric(2,1) DEFAULT 10", "22003"),
            ("a text GENERATED ALWAYS AS IDENTITY", "42P16"),
            ("a serial DEFAULT 1", "42601"),
            ("a int GENERATED ALWAYS AS (1 + 1) STORED", "0A000"),
        ] {
            assert_eq!(columns(text).expect_err(text).get(..5), Some(code), "{text}: {:?}", columns(text));
        }
    }
}

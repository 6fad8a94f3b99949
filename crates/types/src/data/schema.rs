//! Schemas: which columns a table has, which are its key, and which of those decide the partition.

use super::constraint::{Constraint, Demand, MAX_CONSTRAINTS};
use super::kind::{Kind, Procedure};
use super::rules::Rules;
use super::value::{ColumnType, UnknownType, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The most columns a table has.
pub const MAX_COLUMNS: usize = 1024;
/// The longest name of a column, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Column {
    /// Its name, unique within the table; upper and lower case differ.
    pub name: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Whether a row may have no value here.
    pub nullable: bool,
    /// What else it demands.
    #[serde(flatten)]
    pub rules: Rules,
}

impl Column {
    /// A column that may be null.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Column {
        Column { name: name.into(), column_type, nullable: true, rules: Rules::default() }
    }

    /// The same column, with rules.
    pub fn with(self, rules: Rules) -> Column {
        Column { rules, ..self }
    }

    /// The same column, never null.
    pub fn not_null(self) -> Column {
        Column { nullable: false, ..self }
    }
}

/// A table's columns and key. Always valid: it can only be made through a check.
///
/// Versions grow by appending columns, so that rows written under an older version stay readable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "SchemaParts", into = "SchemaParts")]
pub struct Schema {
    parts: SchemaParts,
    /// The columns that are not in the key, in order: those in a row's stored value.
    values: Vec<usize>,
}

/// What a [`Schema`] consists of, not yet checked. Also its serialised form.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SchemaParts {
    /// The columns, in the order of a row's values.
    pub columns: Vec<Column>,
    /// The key's columns, as indexes, in the order of the key. Of any type but `json`.
    pub key: Vec<usize>,
    /// How many leading columns of the key are hashed to choose the partition; rows alike in these lie
    /// together.
    pub partition_by: usize,
    /// Whether a row may have fields that are not columns.
    pub open: bool,
    /// Counts the changes of this table's schema, from 1.
    pub version: u32,
    /// What rows must be, of a table of a database.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<Constraint>,
    /// What it is, if not a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Every partition of its database has all of its rows, whatever their keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replicated: bool,
}

/// Why a schema is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemaError {
    /// No columns, or too many.
    #[error("a table has 1 to {MAX_COLUMNS} columns, not {0}")]
    ColumnCount(usize),
    /// An unusable name.
    #[error(
        "{0:?} cannot be the name of a column: a name has 1 to {MAX_NAME_BYTES} bytes and no control characters"
    )]
    BadName(String),
    /// Two columns of one name.
    #[error("there is more than one column `{0}`")]
    DuplicateColumn(String),
    /// Rules that do not fit a column's type.
    #[error("the column `{column}` cannot have this rule: {why}")]
    BadRule {
        /// The column.
        column: String,
        /// What is wrong with it.
        why: String,
    },
    /// A constraint that cannot be one.
    #[error("the constraint `{name}` cannot be one: {why}")]
    BadConstraint {
        /// The constraint.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A sequence or a view that cannot be one.
    #[error("{0}")]
    BadKind(String),
    /// A key without columns.
    #[error("the key needs at least one column")]
    NoKey,
    /// A key column that is not a column.
    #[error("the key column `{0}` is not a column of the table")]
    UnknownKeyColumn(String),
    /// A column that is twice in the key.
    #[error("the column `{0}` is in the key more than once")]
    DuplicateKeyColumn(String),
    /// A key column of a type without an order.
    #[error("the column `{0}` is of type json and cannot be in the key; every other type can")]
    JsonKey(String),
    /// A key column of a type of which different values are equal.
    #[error("the column `{0}` is of type interval and cannot be in the key: different intervals are equal")]
    IntervalKey(String),
    /// More hashed columns than the key has, or none.
    #[error("the partition is chosen by 1 to {key} leading columns of the key, not {asked}")]
    PartitionBy {
        /// How many the key has.
        key: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// Version 0 is kept for "no schema".
    #[error("schema versions count from 1")]
    VersionZero,
    /// A new column that old rows cannot fill.
    #[error("the new column `{0}` must be nullable: rows that are already there have no value for it")]
    NotNullable(String),
    /// A `name:type` that is not one.
    #[error("`{0}` is not of the form name:type")]
    NotNameAndType(String),
    /// An unknown type in a `name:type`.
    #[error("column `{column}`: {error}")]
    UnknownType {
        /// The column.
        column: String,
        /// What was there.
        error: UnknownType,
    },
}

impl Schema {
    /// Version 1 of a schema. `key` names the key's columns, of which the first `partition_by` choose the
    /// partition.
    pub fn new<Name: AsRef<str>>(
        columns: Vec<Column>,
        key: &[Name],
        partition_by: usize,
        open: bool,
    ) -> Result<Schema, SchemaError> {
        let index = |name: &Name| {
            let found = columns.iter().position(|column| column.name == name.as_ref());
            found.ok_or_else(|| SchemaError::UnknownKeyColumn(name.as_ref().to_string()))
        };
        let key = key.iter().map(index).collect::<Result<_, _>>()?;
        Schema::from_parts(SchemaParts {
            columns,
            key,
            partition_by,
            open,
            version: 1,
            constraints: Vec::new(),
            kind: None,
            replicated: false,
        })
    }

    /// Checks the parts.
    pub fn from_parts(parts: SchemaParts) -> Result<Schema, SchemaError> {
        check_columns(&parts.columns)?;
        check_key(&parts)?;
        check_constraints(&parts)?;
        if let Some(why) = parts.kind.as_ref().and_then(Kind::fault) {
            return Err(SchemaError::BadKind(why));
        }
        if parts.version == 0 {
            return Err(SchemaError::VersionZero);
        }
        let values = (0..parts.columns.len()).filter(|index| !parts.key.contains(index)).collect();
        Ok(Schema { parts, values })
    }

    /// The next version, with `column` appended. Rows that are already there have null in it.
    pub fn with_column(&self, column: Column) -> Result<Schema, SchemaError> {
        if !column.nullable {
            return Err(SchemaError::NotNullable(column.name));
        }
        let mut parts = self.parts.clone();
        parts.columns.push(column);
        parts.version += 1;
        Schema::from_parts(parts)
    }

    /// The columns, in the order of a row's values.
    pub fn columns(&self) -> &[Column] {
        &self.parts.columns
    }

    /// The key's columns as indexes, in the order of the key.
    pub fn key(&self) -> &[usize] {
        &self.parts.key
    }

    /// The key's columns, in the order of the key.
    pub fn key_columns(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.parts.key.iter().map(|index| &self.parts.columns[*index])
    }

    /// The columns that are not in the key, as indexes, in order.
    pub fn values(&self) -> &[usize] {
        &self.values
    }

    /// The columns that SQL shows, as indexes, in order: all but a hidden key.
    pub fn visible(&self) -> impl Iterator<Item = usize> {
        (0..self.parts.columns.len()).filter(|at| !self.parts.columns[*at].rules.hidden)
    }

    /// True if the key is one that SQL does not show: the table has none of its own.
    pub fn has_hidden_key(&self) -> bool {
        self.key_columns().any(|column| column.rules.hidden)
    }

    /// How many leading columns of the key choose the partition.
    pub fn partition_by(&self) -> usize {
        self.parts.partition_by
    }

    /// True if every partition of its database has all of its rows. As long as such a table has a name its
    /// rows do not change: other rows come under another id (PR-406).
    pub fn is_replicated(&self) -> bool {
        self.parts.replicated
    }

    /// Whether a row may have fields that are not columns.
    pub fn is_open(&self) -> bool {
        self.parts.open
    }

    /// Counts the changes of the schema, from 1.
    pub fn version(&self) -> u32 {
        self.parts.version
    }

    /// The index of the column with this name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.parts.columns.iter().position(|column| column.name == name)
    }

    /// What rows must be, those constraints among it that are being removed.
    pub fn constraints(&self) -> &[Constraint] {
        &self.parts.constraints
    }

    /// The same columns with these constraints.
    pub fn with_constraints(self, constraints: Vec<Constraint>) -> Result<Schema, SchemaError> {
        Schema::from_parts(SchemaParts { constraints, ..self.parts })
    }

    /// What it is, if not a table.
    pub fn kind(&self) -> Option<&Kind> {
        self.parts.kind.as_ref()
    }

    /// The procedure that it is, with its parameters; none: it is something else.
    pub fn procedure(&self) -> Option<(&[Column], &Procedure)> {
        match self.kind() {
            Some(Kind::Procedure(procedure)) => {
                let parameters = self.columns().iter().position(|column| column.rules.hidden);
                Some((&self.columns()[..parameters.unwrap_or(self.columns().len())], procedure))
            }
            _ => None,
        }
    }

    /// The same columns of something else than a table.
    pub fn of_kind(self, kind: Kind) -> Result<Schema, SchemaError> {
        Schema::from_parts(SchemaParts { kind: Some(kind), ..self.parts })
    }

    /// Why only SQL writes rows of it, as the end of a sentence, if so: what has no rows, what is in all
    /// partitions, types that only SQL reads, and conditions that only SQL looks at.
    pub fn of_sql_alone(&self) -> Option<String> {
        if let Some(kind) = self.kind() {
            return Some(format!("it is a {} and has no rows", kind.name()));
        }
        if self.is_replicated() {
            return Some(
                "it is in all partitions with all of its rows, which SQL alone writes: use psql".into(),
            );
        }
        let of_sql = |column: &&Column| column.column_type == ColumnType::Text && !column.rules.hidden;
        let shown = |column: &Column| {
            let shown = column.rules.shown.as_ref()?;
            Some(format!("the column `{}` is of type {shown}, which SQL alone writes: use psql", column.name))
        };
        if let Some(why) = self.columns().iter().filter(of_sql).find_map(shown) {
            return Some(why);
        }
        let checks = |one: &&Constraint| matches!(one.demand, Demand::Check(_));
        self.constraints().iter().find(checks).map(|one| {
            let name = &one.name;
            format!(
                "rows must keep the CHECK `{name}`, which SQL alone looks at: use psql, or COPY for many rows"
            )
        })
    }

    /// The parts, for storing.
    pub fn into_parts(self) -> SchemaParts {
        self.parts
    }
}

impl Column {
    /// What keeps `value` out of this column: another type, or null where none may be.
    pub(crate) fn accepts(&self, value: &Value) -> bool {
        value.column_type().map_or(self.nullable, |found| found == self.column_type)
    }
}

impl TryFrom<SchemaParts> for Schema {
    type Error = SchemaError;

    fn try_from(parts: SchemaParts) -> Result<Schema, SchemaError> {
        Schema::from_parts(parts)
    }
}

impl From<Schema> for SchemaParts {
    fn from(schema: Schema) -> SchemaParts {
        schema.parts
    }
}

impl fmt::Display for Schema {
    /// One line per column: name, type, nullability, place in the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.columns().iter().map(|column| column.name.chars().count()).max().unwrap_or(0);
        for (index, column) in self.columns().iter().enumerate() {
            let mut line = format!("{:width$}  {:9}", column.name, column.column_type);
            if !column.nullable {
                line.push_str("  not null");
            }
            if let Some(place) = self.key().iter().position(|key| *key == index) {
                line.push_str(&format!("  key {}", place + 1));
                let chooses = place < self.partition_by() && !self.is_replicated();
                line.push_str(if chooses { ", partition" } else { "" });
            }
            if !column.rules.is_empty() {
                line.push_str(&format!("  {}", column.rules));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        if self.is_open() { writeln!(f, "and other fields, as JSON") } else { Ok(()) }
    }
}

/// Reads `name:type,name:type`. A name may hold colons; the last one counts.
pub fn parse_columns(text: &str) -> Result<Vec<(String, ColumnType)>, SchemaError> {
    let parse = |item: &str| {
        let (name, type_name) =
            item.rsplit_once(':').ok_or_else(|| SchemaError::NotNameAndType(item.to_string()))?;
        let (name, type_name) = (name.trim().to_string(), type_name.trim());
        match type_name.parse() {
            Ok(column_type) => Ok((name, column_type)),
            Err(error) => Err(SchemaError::UnknownType { column: name, error }),
        }
    };
    let columns: Vec<_> = text.split(',').map(parse).collect::<Result<_, _>>()?;
    let mut names = BTreeSet::new();
    for (name, _) in &columns {
        check_name(name)?;
        if !names.insert(name) {
            return Err(SchemaError::DuplicateColumn(name.clone()));
        }
    }
    Ok(columns)
}

fn check_name(name: &str) -> Result<(), SchemaError> {
    let good = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains(char::is_control);
    if good { Ok(()) } else { Err(SchemaError::BadName(name.to_string())) }
}

fn check_columns(columns: &[Column]) -> Result<(), SchemaError> {
    if columns.is_empty() || columns.len() > MAX_COLUMNS {
        return Err(SchemaError::ColumnCount(columns.len()));
    }
    let mut names = BTreeSet::new();
    for column in columns {
        check_name(&column.name)?;
        if !names.insert(&column.name) {
            return Err(SchemaError::DuplicateColumn(column.name.clone()));
        }
        if let Some(why) = column.rules.fault(column.column_type) {
            return Err(SchemaError::BadRule { column: column.name.clone(), why });
        }
    }
    Ok(())
}

fn check_key(parts: &SchemaParts) -> Result<(), SchemaError> {
    if parts.key.is_empty() {
        return Err(SchemaError::NoKey);
    }
    for (place, index) in parts.key.iter().enumerate() {
        let column = parts.columns.get(*index);
        let column = column.ok_or_else(|| SchemaError::UnknownKeyColumn(format!("number {index}")))?;
        if parts.key[..place].contains(index) {
            return Err(SchemaError::DuplicateKeyColumn(column.name.clone()));
        }
        if column.column_type == ColumnType::Interval {
            return Err(SchemaError::IntervalKey(column.name.clone()));
        }
        if !column.column_type.may_be_key() {
            return Err(SchemaError::JsonKey(column.name.clone()));
        }
    }
    if parts.partition_by == 0 || parts.partition_by > parts.key.len() {
        return Err(SchemaError::PartitionBy { key: parts.key.len(), asked: parts.partition_by });
    }
    Ok(())
}

fn check_constraints(parts: &SchemaParts) -> Result<(), SchemaError> {
    let all = &parts.constraints;
    let bad = |one: &Constraint, why: String| Err(SchemaError::BadConstraint { name: one.name.clone(), why });
    for (place, one) in all.iter().enumerate() {
        let may_be_key = |at: usize| parts.columns[at].column_type.may_be_key();
        if let Some(why) = one.fault(parts.columns.len(), may_be_key) {
            return bad(one, why);
        }
        let alike = |other: &&Constraint| {
            let named = other.name == one.name && other.is_enforced() && one.is_enforced();
            other.number == one.number || named
        };
        if all[..place].iter().any(|other| alike(&other)) {
            return bad(one, "there is one of this name, or of its number".into());
        }
    }
    match all.get(MAX_CONSTRAINTS) {
        Some(one) => bad(one, format!("a table has at most {MAX_CONSTRAINTS}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        vec![
            Column::new("note", ColumnType::Json),
            Column::new("day", ColumnType::Date).not_null(),
            Column::new("flight", ColumnType::Int).not_null(),
            Column::new("delay", ColumnType::Int),
        ]
    }

    #[test]
    fn what_is_wrong_is_said_in_a_sentence() {
        let refused =
            |key: &[&str], by| Schema::new(columns(), key, by, false).expect_err("invalid").to_string();
        assert_eq!(refused(&["nope"], 1), "the key column `nope` is not a column of the table");
        assert_eq!(refused(&["day", "day"], 1), "the column `day` is in the key more than once");
        assert_eq!(
            refused(&["note"], 1),
            "the column `note` is of type json and cannot be in the key; every other type can"
        );
        assert_eq!(
            refused(&["day", "flight"], 3),
            "the partition is chosen by 1 to 2 leading columns of the key, not 3"
        );
        assert_eq!(
            refused(&["day"], 0),
            "the partition is chosen by 1 to 1 leading columns of the key, not 0"
        );
        assert_eq!(refused(&[], 0), "the key needs at least one column");
        let twice = vec![Column::new("a", ColumnType::Int), Column::new("a", ColumnType::Int)];
        let error = Schema::new(twice, &["a"], 1, false).expect_err("invalid");
        assert_eq!(error.to_string(), "there is more than one column `a`");
        let unnamed = vec![Column::new("", ColumnType::Int)];
        assert_eq!(Schema::new(unnamed, &[""], 1, false), Err(SchemaError::BadName(String::new())));
        assert_eq!(Schema::new(vec![], &["a"; 0], 1, false), Err(SchemaError::ColumnCount(0)));
    }

    #[test]
    fn a_stored_schema_is_checked_when_it_is_read() {
        let schema = Schema::new(columns(), &["flight", "day"], 1, true).expect("valid");
        let text = serde_json::to_string(&schema).expect("serialises");
        assert_eq!(serde_json::from_str::<Schema>(&text).expect("reads"), schema);
        assert!(text.contains(r#"{"name":"day","type":"date","nullable":false}"#), "{text}");
        assert_eq!(schema.values(), [0, 3]);
        for (from, to) in [("\"version\":1", "\"version\":0"), ("\"key\":[2,1]", "\"key\":[2,9]")] {
            let damaged = text.replace(from, to);
            assert_ne!(damaged, text);
            assert!(serde_json::from_str::<Schema>(&damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn rules_are_kept_and_records_without_them_are_read() {
        let old = r#"{"name":"n","type":"text","nullable":true}"#;
        let column: Column = serde_json::from_str(old).expect("reads");
        assert_eq!(
            (column.rules.is_empty(), serde_json::to_string(&column).expect("serialises").as_str()),
            (true, old)
        );
        let new =
            r#"{"name":"n","type":"text","nullable":true,"max_chars":5,"default":{"value":"x"},"later":[1]}"#;
        let column: Column = serde_json::from_str(new).expect("reads");
        assert_eq!(column.rules.max_chars, Some(5));
        assert_eq!(serde_json::to_string(&column).expect("serialises"), new);
        let wrong = Column::new("n", ColumnType::Int).with(Rules { max_chars: Some(5), ..Rules::default() });
        let error = Schema::new(vec![wrong], &["n"], 1, false).expect_err("invalid");
        assert_eq!(error.to_string(), "the column `n` cannot have this rule: int of at most 5 characters");
    }

    #[test]
    fn versions_grow_by_nullable_columns() {
        let schema = Schema::new(columns(), &["day"], 1, false).expect("valid");
        let next = schema.with_column(Column::new("gate", ColumnType::Text)).expect("valid");
        assert_eq!((next.version(), next.columns().len()), (2, 5));
        let strict = Column::new("gate", ColumnType::Text).not_null();
        assert_eq!(schema.with_column(strict), Err(SchemaError::NotNullable("gate".into())));
        let known = Column::new("delay", ColumnType::Text);
        assert_eq!(schema.with_column(known), Err(SchemaError::DuplicateColumn("delay".into())));
    }

    #[test]
    fn prints_a_line_per_column() {
        let schema = Schema::new(columns(), &["flight", "day"], 1, true).expect("valid");
        let expected = "\
note    json
day     date       not null  key 2
flight  int        not null  key 1, partition
delay   int
and other fields, as JSON
";
        assert_eq!(schema.to_string(), expected);
    }

    #[test]
    fn reads_lists_of_columns() {
        let columns = parse_columns("a:int, b:c:text").expect("valid");
        assert_eq!(columns, [("a".to_string(), ColumnType::Int), ("b:c".to_string(), ColumnType::Text)]);
        assert_eq!(parse_columns("a"), Err(SchemaError::NotNameAndType("a".into())));
        assert_eq!(parse_columns("a:int,a:int"), Err(SchemaError::DuplicateColumn("a".into())));
        assert_eq!(parse_columns(":int"), Err(SchemaError::BadName(String::new())));
        let error = parse_columns("a:money").expect_err("no such type").to_string();
        assert!(error.starts_with("column `a`: `money` is not a type"), "{error}");
    }
}

//! Rows and keys for people and programs to read: JSON objects, and a compact line of text.

use super::json::Json;
use super::row::Row;
use super::schema::{Column, Schema};
use super::value::{ColumnType, Value, ValueError};
use std::fmt::Write;

/// Why a text or a JSON object is not a row or a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TextError {
    /// Not a JSON object.
    #[error("a row is a JSON object")]
    NotAnObject,
    /// A value that does not fit its column.
    #[error("column `{column}`: {error}")]
    Value {
        /// The column.
        column: String,
        /// What is wrong.
        error: ValueError,
    },
    /// A field that is no column, in a table without extra fields.
    #[error("`{0}` is not a column, and the table takes no other fields")]
    UnknownField(String),
    /// An extra field that cannot be kept.
    #[error("field `{field}`: {why}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong.
        why: String,
    },
    /// No value where one must be.
    #[error("the column `{0}` must have a value")]
    Missing(String),
    /// More values than the key has columns.
    #[error("the key has {expected} columns, but {given} values were given")]
    TooManyValues {
        /// How many the key has.
        expected: usize,
        /// How many came.
        given: usize,
    },
    /// A quote that does not end, or text after one.
    #[error("a value in quotes must end with a quote, and a comma must follow")]
    Quotes,
}

/// The row as a JSON object: columns by name, nulls included, then the extra fields.
pub fn row_to_json(schema: &Schema, row: &Row) -> serde_json::Value {
    serde_json::Value::Object(fields(schema, row).collect())
}

/// The row as JSON text on one line, columns in the order of the schema.
pub fn row_to_json_text(schema: &Schema, row: &Row) -> String {
    let mut text = String::from("{");
    for (name, value) in fields(schema, row) {
        let comma = if text.len() > 1 { "," } else { "" };
        write!(text, "{comma}{}:{value}", serde_json::Value::String(name)).expect("writing to a string");
    }
    text.push('}');
    text
}

/// The row of a JSON object. Columns that are not there are null; other fields become extra fields of an open
/// table.
pub fn row_from_json(schema: &Schema, object: serde_json::Value) -> Result<Row, TextError> {
    let serde_json::Value::Object(mut fields) = object else { return Err(TextError::NotAnObject) };
    let mut row = Row::default();
    for column in schema.columns() {
        let value = fields.remove(&column.name).unwrap_or(serde_json::Value::Null);
        let value = Value::from_json(column.column_type, value)
            .map_err(|error| TextError::Value { column: column.name.clone(), error })?;
        row.values.push(present(column, value)?);
    }
    for (field, value) in fields {
        if !schema.is_open() {
            return Err(TextError::UnknownField(field));
        }
        match Json::from_json(value) {
            Ok(tree) => row.open.insert(field, tree),
            Err(error) => return Err(TextError::Field { field, why: error.to_string() }),
        };
    }
    Ok(row)
}

/// The row on one line: `name=value name=value`, texts that need it in JSON quotes, nulls left out.
pub fn row_to_text(schema: &Schema, row: &Row) -> String {
    let columns = schema.columns().iter().zip(&row.values).filter(|(_, value)| !value.is_null());
    let columns = columns.map(|(column, value)| format!("{}={}", quoted(&column.name), value_to_text(value)));
    let open = row.open.iter().map(|(name, tree)| format!("{}={tree}", quoted(name)));
    columns.chain(open).collect::<Vec<_>>().join(" ")
}

/// A key's values on one line: `2013,1,1,UA`, texts that need it in JSON quotes.
pub fn key_to_text(values: &[Value]) -> String {
    values.iter().map(value_to_text).collect::<Vec<_>>().join(",")
}

/// Reads what [`key_to_text`] wrote: as many values as are given, from the first column of the key on.
///
/// `null` without quotes is null where the column may be null.
pub fn key_from_text(schema: &Schema, text: &str) -> Result<Vec<Value>, TextError> {
    let parts = split_values(text)?;
    if parts.len() > schema.key().len() {
        return Err(TextError::TooManyValues { expected: schema.key().len(), given: parts.len() });
    }
    let value = |(column, (part, was_quoted)): (&Column, &(String, bool))| {
        if !was_quoted && part == "null" && column.nullable {
            return Ok(Value::Null);
        }
        let parsed = column.column_type.parse(part);
        parsed.map_err(|error| TextError::Value { column: column.name.clone(), error })
    };
    schema.key_columns().zip(&parts).map(value).collect()
}

/// Names and values as JSON. A field that could not become the column of its name stands in for that column's
/// null.
fn fields(schema: &Schema, row: &Row) -> impl Iterator<Item = (String, serde_json::Value)> {
    let columns = schema.columns().iter().zip(&row.values);
    let columns = columns.filter(|(column, value)| !(value.is_null() && row.open.contains_key(&column.name)));
    let columns = columns.map(|(column, value)| (column.name.clone(), value.to_json()));
    columns.chain(row.open.iter().map(|(name, tree)| (name.clone(), tree.to_json())))
}

fn present(column: &Column, value: Value) -> Result<Value, TextError> {
    if value.is_null() && !column.nullable { Err(TextError::Missing(column.name.clone())) } else { Ok(value) }
}

fn value_to_text(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        other => other.to_string(),
    }
}

/// The text, in JSON quotes if it would otherwise be taken apart or for something else.
fn quoted(text: &str) -> String {
    let special = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '=' | ',' | '\\');
    if text.is_empty() || text == "null" || text.contains(special) {
        serde_json::Value::from(text).to_string()
    } else {
        text.to_string()
    }
}

/// Values between commas, and whether each was in quotes.
pub(crate) fn split_values(text: &str) -> Result<Vec<(String, bool)>, TextError> {
    let mut values = Vec::new();
    let mut rest = text;
    loop {
        let (value, was_quoted, after) = if rest.starts_with('"') {
            let end = closing_quote(rest).ok_or(TextError::Quotes)?;
            let value = serde_json::from_str(&rest[..=end]).map_err(|_| TextError::Quotes)?;
            (value, true, &rest[end + 1..])
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            (rest[..end].to_string(), false, &rest[end..])
        };
        values.push((value, was_quoted));
        if after.is_empty() {
            return Ok(values);
        }
        rest = after.strip_prefix(',').ok_or(TextError::Quotes)?;
    }
}

/// Where the quote at the front ends.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

/// A value given on a command line for one column: `null` is null where the column may be null.
pub fn value_from_text(column: &Column, text: &str) -> Result<Value, TextError> {
    if text == "null" && column.nullable && column.column_type != ColumnType::Text {
        return Ok(Value::Null);
    }
    column.column_type.parse(text).map_err(|error| TextError::Value { column: column.name.clone(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(open: bool) -> Schema {
        let columns = vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("who", ColumnType::Text),
            Column::new("price", ColumnType::Decimal),
            Column::new("tags", ColumnType::Json),
        ];
        Schema::new(columns, &["who", "id"], 1, open).expect("valid")
    }

    fn row(json: &str) -> Row {
        row_from_json(&schema(true), serde_json::from_str(json).expect("JSON")).expect("a row")
    }

    #[test]
    fn rows_are_json_objects_both_ways() {
        let text = r#"{"id":1,"who":"a b","price":"1.5","tags":{"$bag":[1]},"more":[true]}"#;
        let row = row(text);
        assert_eq!(row_to_json_text(&schema(true), &row), text);
        assert_eq!(
            row_to_json(&schema(true), &row),
            serde_json::from_str::<serde_json::Value>(text).expect("JSON")
        );
        assert_eq!(
            row_to_text(&schema(true), &row),
            r#"id=1 who="a b" price=1.5 tags={"$bag":[1]} more=[true]"#
        );
    }

    #[test]
    fn what_is_no_row_is_refused_in_a_sentence() {
        let refused =
            |json: serde_json::Value| row_from_json(&schema(false), json).expect_err("refused").to_string();
        assert_eq!(refused(serde_json::json!([])), "a row is a JSON object");
        assert_eq!(refused(serde_json::json!({"who": "x"})), "the column `id` must have a value");
        assert_eq!(
            refused(serde_json::json!({"id": 1, "x": 2})),
            "`x` is not a column, and the table takes no other fields"
        );
        assert_eq!(
            refused(serde_json::json!({"id": "1"})),
            r#"column `id`: "1" is not an int: it is of another JSON type"#
        );
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let schema = schema(false);
        for who in ["UA", "", "null", "a,b", "say \"hi\"", "\\", "tab\t", "é"] {
            let values = vec![Value::from(who), Value::Int(-1)];
            assert_eq!(key_from_text(&schema, &key_to_text(&values)), Ok(values), "{who}");
        }
        assert_eq!(key_from_text(&schema, "null,1"), Ok(vec![Value::Null, Value::Int(1)]));
        assert_eq!(key_from_text(&schema, "UA"), Ok(vec![Value::from("UA")]));
        let too_many = Err(TextError::TooManyValues { expected: 2, given: 3 });
        assert_eq!(key_from_text(&schema, "a,1,2"), too_many);
        assert_eq!(key_from_text(&schema, "\"a,1"), Err(TextError::Quotes));
        assert_eq!(key_from_text(&schema, "\"a\"b,1"), Err(TextError::Quotes));
        assert!(key_from_text(&schema, "a,null").is_err());
    }

    #[test]
    fn values_from_a_command_line() {
        let column = Column::new("n", ColumnType::Int);
        assert_eq!(value_from_text(&column, "null"), Ok(Value::Null));
        assert_eq!(value_from_text(&column, "5"), Ok(Value::Int(5)));
        assert!(value_from_text(&column.not_null(), "null").is_err());
        assert_eq!(value_from_text(&Column::new("t", ColumnType::Text), "null"), Ok(Value::from("null")));
    }
}

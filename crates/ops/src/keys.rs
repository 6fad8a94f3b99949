//! Keys, ranges and rows as people write them on a command line.

use crate::failure::Failure;
use bytes::Bytes;
use client::table::Table;
use types::PartitionId;
use types::data::text::value_from_text;
use types::data::{
    Json, Row, Value, encode_key_prefix, key_from_text, key_to_text, partition_key, prefix_end, row_from_json,
};

/// The values of a whole key, one text per column.
pub fn whole_key(table: &Table, texts: &[String]) -> Result<Vec<Value>, Failure> {
    let names: Vec<&str> = table.schema().key_columns().map(|column| column.name.as_str()).collect();
    if texts.len() != names.len() {
        return Err(Failure::usage(format!(
            "the key of table `{}` has {} ({}), but {} given",
            table.name(),
            columns(names.len()),
            names.join(", "),
            if texts.len() == 1 { "1 value was".to_string() } else { format!("{} values were", texts.len()) },
        )));
    }
    leading_values(table, texts)
}

/// The values of the first columns of a key, one text per column.
pub fn leading_values(table: &Table, texts: &[String]) -> Result<Vec<Value>, Failure> {
    let count = table.schema().key().len();
    if texts.len() > count {
        return Err(Failure::usage(format!(
            "the key of table `{}` has {}, but {} values were given",
            table.name(),
            columns(count),
            texts.len()
        )));
    }
    let value = |(column, text): (&types::data::Column, &String)| {
        value_from_text(column, text).map_err(|error| data(table, error))
    };
    table.schema().key_columns().zip(texts).map(value).collect()
}

/// A range of keys, and the partitions that have keys in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// First encoded key.
    pub from: Bytes,
    /// End, not included; empty: none.
    pub to: Bytes,
    /// Where its keys lie.
    pub partitions: Vec<PartitionId>,
}

/// The range that a command names: rows whose key begins with these values, or from one key to before
/// another.
///
/// `from` and `to` are values with commas, as many of the key's columns as wanted.
pub fn range(
    table: &Table,
    prefix: &[String],
    from: Option<&str>,
    to: Option<&str>,
) -> Result<Range, Failure> {
    if !prefix.is_empty() && (from.is_some() || to.is_some()) {
        return Err(Failure::usage("give either the first values of the key, or --from and --to"));
    }
    let encode =
        |values: &[Value]| encode_key_prefix(table.schema(), values).map_err(|error| data(table, error));
    let end = |text: Option<&str>| match text {
        Some(text) => encode(&key_from_text(table.schema(), text).map_err(|error| data(table, error))?),
        None => Ok(Vec::new()),
    };
    let (from, to) = if prefix.is_empty() {
        (end(from)?, end(to)?)
    } else {
        let values = encode(&leading_values(table, prefix)?)?;
        let to = prefix_end(&values);
        (values, to)
    };
    // Rows alike in the hashed columns lie in one partition: there is no need to ask the others.
    let alone = !prefix.is_empty() && prefix.len() >= table.schema().partition_by();
    let partitions = match partition_key(table.schema(), &from) {
        Ok(_) if alone => vec![table.partition_of(&from)?],
        _ => table.partitions_between(&from, &to).collect(),
    };
    Ok(Range { from: from.into(), to: to.into(), partitions })
}

/// A row from what a command was given: one JSON object, or `name=value` for each column.
///
/// With `object`, `words` are the values of the key, which the object need not repeat.
pub fn row(table: &Table, words: &[String], object: Option<&str>) -> Result<Row, Failure> {
    match (words, object) {
        ([only], None) if only.trim_start().starts_with('{') => row_of_object(table, &[], only),
        (words, Some(object)) => row_of_object(table, words, object),
        ([], None) => {
            Err(Failure::usage("the row is missing: give a JSON object, or name=value for each column"))
        }
        (words, None) => row_of_fields(table, words),
    }
}

/// `table key`, for sentences.
pub fn named(table: &Table, key: &[Value]) -> String {
    format!("{} {}", table.name(), key_to_text(key))
}

fn row_of_object(table: &Table, key: &[String], text: &str) -> Result<Row, Failure> {
    let parsed = serde_json::from_str(text);
    let mut object: serde_json::Value =
        parsed.map_err(|error| Failure::usage(format!("the row is not a JSON object: {error}")))?;
    if !key.is_empty() {
        let values = whole_key(table, key)?;
        let Some(fields) = object.as_object_mut() else {
            return Err(Failure::usage("the row is not a JSON object"));
        };
        for (column, value) in table.schema().key_columns().zip(values) {
            let value = value.to_json();
            if fields.get(&column.name).is_some_and(|other| *other != value) {
                return Err(Failure::usage(format!(
                    "the key says {}={value}, the row something else",
                    column.name
                )));
            }
            fields.insert(column.name.clone(), value);
        }
    }
    row_from_json(table.schema(), object).map_err(|error| data(table, error))
}

fn row_of_fields(table: &Table, words: &[String]) -> Result<Row, Failure> {
    let schema = table.schema();
    let mut row = Row::new(vec![Value::Null; schema.columns().len()]);
    for word in words {
        let Some((name, text)) = word.split_once('=') else {
            return Err(Failure::usage(format!(
                "`{word}` is neither a JSON object nor of the form name=value"
            )));
        };
        match schema.column_index(name) {
            Some(index) => {
                let column = &schema.columns()[index];
                row.values[index] = value_from_text(column, text).map_err(|error| data(table, error))?;
            }
            None if schema.is_open() => {
                let tree = Json::parse(text).unwrap_or_else(|_| Json::Text(text.to_string()));
                row.open.insert(name.to_string(), tree);
            }
            None => {
                return Err(Failure::usage(format!(
                    "table `{}` has no column `{name}` and takes no other fields",
                    table.name()
                )));
            }
        }
    }
    let missing = schema.columns().iter().zip(&row.values).find(|(c, value)| !c.nullable && value.is_null());
    match missing {
        Some((column, _)) => Err(Failure::usage(format!(
            "table `{}`: the column `{}` must have a value",
            table.name(),
            column.name
        ))),
        None => Ok(row),
    }
}

fn columns(count: usize) -> String {
    if count == 1 { "1 column".into() } else { format!("{count} columns") }
}

/// What was given does not fit the table's columns: the command was called wrongly.
fn data(table: &Table, error: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("table `{}`: {error}", table.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn a_row_is_an_object_or_fields() {
        let table = table(2);
        let expected = Row::new(vec![Value::Int(7), "Ada L".into()]);
        for (given, object) in [
            (words(&[r#"{"id": 7, "name": "Ada L"}"#]), None),
            (words(&["id=7", "name=Ada L"]), None),
            (words(&["7"]), Some(r#"{"name": "Ada L"}"#)),
            (words(&["7"]), Some(r#"{"name": "Ada L", "id": 7}"#)),
        ] {
            assert_eq!(row(&table, &given, object).as_ref(), Ok(&expected), "{given:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said_in_one_line() {
        let table = table(2);
        let said = |given: &[&str], object| row(&table, &words(given), object).expect_err("does not fit");
        assert!(said(&["id=x"], None).sentence.contains("`id`"), "{}", said(&["id=x"], None));
        assert_eq!(said(&["name=x"], None).sentence, "table `t`: the column `id` must have a value");
        assert_eq!(said(&[], None).status, 2);
        assert_eq!(said(&["id"], None).status, 2);
        assert_eq!(said(&["{"], None).status, 2);
        assert_eq!((said(&["nothing=1"], None).status, said(&["id=x"], None).status), (2, 2));
        assert_eq!(said(&["1"], Some(r#"{"id": 2}"#)).status, 2);
        let wrong = whole_key(&table, &words(&["1", "2"])).expect_err("too many");
        assert_eq!(wrong.sentence, "the key of table `t` has 1 column (id), but 2 values were given");
    }

    #[test]
    fn a_whole_hashed_prefix_needs_one_partition() {
        let table = table(4);
        let one = range(&table, &words(&["5"]), None, None).expect("a range");
        assert_eq!(one.partitions.len(), 1);
        assert!(one.from < one.to);
        let some = range(&table, &[], Some("5"), Some("9")).expect("a range");
        assert_eq!(some.partitions.len(), 4);
        assert!(some.from < some.to);
        let all = range(&table, &[], None, None).expect("a range");
        assert_eq!((all.from.len(), all.to.len()), (0, 0));
        assert_eq!(range(&table, &words(&["5"]), Some("1"), None).expect_err("both").status, 2);
    }
}

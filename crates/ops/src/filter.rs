//! Conditions on columns as people write them on a command line, and the index that serves them.

use crate::failure::Failure;
use client::table::Table;
use types::choice::{Choice, Comparison, Condition, choose};
use types::data::text::value_from_text;
use types::data::{Row, Value};
use types::index::entry_prefix;

/// Conditions that a row meets all of.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Filter {
    conditions: Vec<(usize, Comparison, Value)>,
}

impl Filter {
    /// Reads `COLUMN = VALUE`, also with `<`, `<=`, `>`, `>=`, and `COLUMN BETWEEN VALUE AND VALUE`. The
    /// error says what is wrong.
    pub fn read(table: &Table, texts: &[String]) -> Result<Filter, Failure> {
        let mut filter = Filter::default();
        for text in texts {
            filter.add(table, text)?;
        }
        Ok(filter)
    }

    fn add(&mut self, table: &Table, text: &str) -> Result<(), Failure> {
        let wrong = || {
            Failure::usage(format!(
                "`{text}` is no condition: write COLUMN = VALUE, with =, <, <=, > or >=, or COLUMN BETWEEN VALUE AND VALUE"
            ))
        };
        let between = text.split_once(" BETWEEN ").or_else(|| text.split_once(" between "));
        if let Some((name, range)) = between {
            let range = range.split_once(" AND ").or_else(|| range.split_once(" and "));
            let (low, high) = range.ok_or_else(wrong)?;
            self.push(table, name, Comparison::AtLeast, low)?;
            return self.push(table, name, Comparison::AtMost, high);
        }
        let at = text.find(['=', '<', '>']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at(at);
        let signs = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("=", Comparison::Equal),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let found = signs.into_iter().find_map(|(sign, of)| Some((of, rest.strip_prefix(sign)?)));
        let (comparison, value) = found.ok_or_else(wrong)?;
        self.push(table, name, comparison, value)
    }

    fn push(&mut self, table: &Table, name: &str, comparison: Comparison, text: &str) -> Result<(), Failure> {
        let (name, text) = (name.trim(), text.trim());
        let unquoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        let schema = table.schema();
        let at = schema
            .column_index(name)
            .ok_or_else(|| Failure::usage(format!("table `{}` has no column `{name}`", table.name())))?;
        let column = &schema.columns()[at];
        if !column.column_type.may_be_key() {
            return Err(Failure::usage(format!(
                "the column `{name}` is of type {} and has no order",
                column.column_type
            )));
        }
        let value = value_from_text(
            column,
            unquoted.map_or(text.to_string(), |text| text.replace("''", "'")).as_str(),
        )
        .map_err(|error| Failure::usage(format!("table `{}`: {error}", table.name())))?;
        if value.is_null() {
            return Err(Failure::usage(format!("`{name}` has nothing to be compared with")));
        }
        self.conditions.push((at, comparison, value));
        Ok(())
    }

    /// True if there is nothing to meet.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// True if this row meets all of them. Nothing compares with null.
    pub fn meets(&self, row: &Row) -> bool {
        let encoded = |value: &Value| entry_prefix(std::slice::from_ref(value)).unwrap_or_default();
        self.conditions.iter().all(|(column, comparison, value)| {
            let found = &row.values[*column];
            let order = encoded(found).cmp(&encoded(value));
            !found.is_null()
                && match comparison {
                    Comparison::Equal => order.is_eq(),
                    Comparison::Less => order.is_lt(),
                    Comparison::AtMost => order.is_le(),
                    Comparison::Greater => order.is_gt(),
                    Comparison::AtLeast => order.is_ge(),
                }
        })
    }

    /// The part of an index that has all rows that meet them.
    pub fn choose<'a>(&self, table: &'a Table) -> Option<Choice<'a>> {
        let conditions: Vec<Condition<'_>> =
            self.conditions.iter().map(|(column, comparison, value)| (*column, *comparison, value)).collect();
        choose(&table.record().indexes, &conditions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;

    fn filter(texts: &[&str]) -> Result<Filter, Failure> {
        Filter::read(&table(2), &texts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn conditions_are_read_and_met() {
        let row = |id: i64, name: Value| Row::new(vec![Value::Int(id), name]);
        let meets = |texts: &[&str], row: &Row| filter(texts).expect("conditions").meets(row);
        assert!(meets(&["id=7"], &row(7, Value::Null)) && !meets(&["id = 8"], &row(7, Value::Null)));
        assert!(meets(&["id BETWEEN -1 AND 7"], &row(7, Value::Null)));
        assert!(!meets(&["id between 8 and 9"], &row(7, Value::Null)));
        assert!(meets(&["id >= 7", "id <= 7", "id > 6", "id < 8"], &row(7, Value::Null)));
        assert!(!meets(&["id > 7"], &row(7, Value::Null)) && !meets(&["id < 7"], &row(7, Value::Null)));
        assert!(meets(&["name = 'it''s = so'"], &row(7, "it's = so".into())));
        assert!(
            meets(&["name >= Ada"], &row(7, "Ada".into())) && !meets(&["name >= Ada"], &row(7, Value::Null))
        );
        assert!(filter(&[]).expect("none").is_empty());
    }

    #[test]
    fn what_is_no_condition_is_said_in_one_line() {
        for wrong in ["id", "id ! 7", "id BETWEEN 7", "nope = 7", "id = x", "id ="] {
            let failure = filter(&[wrong]).expect_err(wrong);
            assert!(failure.status == 2 && !failure.sentence.contains('\n'), "{wrong}: {failure:?}");
        }
    }
}

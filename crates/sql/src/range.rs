//! Which keys of which partitions conditions leave to be read.

use crate::bind::{Comparison, Source};
use bytes::Bytes;
use client::Table;
use types::PartitionId;
use types::choice::{choose, earlier};
use types::data::{self, Value};

/// A part of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Its partitions.
    pub partitions: Vec<PartitionId>,
    /// First encoded key.
    pub from: Bytes,
    /// End, not included; empty: none.
    pub to: Bytes,
    /// Its rows are exactly those that meet the conditions.
    pub exact: bool,
    /// The part of an index that has all rows that meet the conditions, if that is narrower.
    pub by: Option<Entries>,
}

/// A part of an index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entries {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// First entry.
    pub from: Bytes,
    /// End, not included; empty: none.
    pub to: Bytes,
}

/// The part in which all rows are that meet a source's conditions. `values` are those of their slots, in
/// order. `None`: no row meets them.
pub fn range(table: &Table, source: &Source, values: &[Value]) -> Option<Range> {
    let schema = table.schema();
    let with_values: Vec<_> = source.conditions.iter().zip(values).collect();
    // Nothing compares with null.
    if values.iter().any(Value::is_null) {
        return None;
    }
    let mut used = 0;
    let mut prefix = Vec::new();
    for column in schema.key() {
        let equal = |(condition, _): &&(&crate::bind::Condition, &Value)| {
            condition.column == *column && condition.comparison == Comparison::Equal
        };
        let Some((_, value)) = with_values.iter().find(equal) else { break };
        prefix.push((*value).clone());
        used += 1;
    }
    // A key too long to be stored is in no row.
    let start = data::encode_key_prefix(schema, &prefix).ok()?;
    let mut range = Range {
        partitions: table.partitions().collect(),
        to: data::prefix_end(&start).into(),
        from: start.into(),
        exact: true,
        by: None,
    };
    if prefix.len() >= schema.partition_by() {
        range.partitions = vec![table.partition_of(&range.from).ok()?];
    }
    if let Some(column) = schema.key().get(prefix.len()) {
        let mut below = false;
        for (condition, value) in with_values.iter().filter(|(condition, _)| condition.column == *column) {
            let bound = [&prefix[..], &[(*value).clone()]].concat();
            let Ok(bound) = data::encode_key_prefix(schema, &bound) else { continue };
            let after = || Bytes::from(data::prefix_end(&bound));
            match condition.comparison {
                Comparison::AtLeast => range.from = range.from.max(bound.into()),
                Comparison::Greater => range.from = range.from.max(after()),
                Comparison::Less => range.to = earlier(range.to, bound.into()),
                Comparison::AtMost => range.to = earlier(range.to, after()),
                Comparison::Equal => continue,
            }
            below |= matches!(condition.comparison, Comparison::AtLeast | Comparison::Greater);
            used += 1;
        }
        // Nulls come first, and meet no condition.
        let ends = with_values.iter().any(|(condition, _)| condition.column == *column);
        range.exact = !ends || below || !schema.columns()[*column].nullable;
    }
    range.exact &= used == with_values.len();
    if prefix.len() < schema.partition_by() {
        range.partitions = table.partitions_between(&range.from, &range.to).collect();
    }
    range.by = if prefix.is_empty() { entries(table, &with_values, used > 0) } else { None };
    (range.to.is_empty() || range.from < range.to).then_some(range)
}

/// The part of an index to be read instead of a range of keys. Bounds of the key, if there are some, are
/// better than bounds of another column.
fn entries(
    table: &Table,
    conditions: &[(&crate::bind::Condition, &Value)],
    bounded: bool,
) -> Option<Entries> {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|(condition, value)| (condition.column, condition.comparison, *value))
        .collect();
    let choice = choose(&table.record().indexes, &conditions)?;
    let (index, name) = (choice.index.number, choice.index.name.clone());
    let entries = Entries { index, name, from: choice.from.into(), to: choice.to.into() };
    (choice.equal > 0 || !bounded).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::{Binder, Slot};
    use crate::catalog::Catalog;
    use sqlparser::ast::Statement;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use types::data::{Column, ColumnType, Schema};
    use types::{LogKind, Policy, TableId, TableRecord};

    fn pets() -> Arc<TableRecord> {
        let columns = vec![
            Column::new("owner", ColumnType::Int).not_null(),
            Column::new("name", ColumnType::Text),
            Column::new("weight", ColumnType::Float),
        ];
        Arc::new(TableRecord {
            partitions: 4,
            seed: 7,
            ..TableRecord::new(
                TableId(1),
                "pets",
                Schema::new(columns, &["owner", "name"], 1, false).expect("valid"),
                Policy::preset("durable", 1, LogKind::Disk).expect("valid"),
            )
        })
    }

    /// The range of a condition, and which of some keys are in it.
    fn of(condition: &str) -> Option<(Range, String)> {
        let record = pets();
        let catalog = Catalog::from_map(1, BTreeMap::from([("pets".to_string(), record.clone())]));
        let text = format!("SELECT weight FROM pets WHERE {condition}");
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).expect("good");
        let [Statement::Query(query)] = parsed.as_slice() else { panic!("{text} is no query") };
        let source = &Binder::new(&catalog, &[]).whole(query).expect("good").0.sources[0];
        let value = |slot: &Slot| match slot {
            Slot::Const(value) => value.clone(),
            other => panic!("{other:?}"),
        };
        let values: Vec<Value> = source.conditions.iter().map(|condition| value(&condition.slot)).collect();
        let table = Table::new(record);
        let range = range(&table, source, &values)?;
        let mut inside = String::new();
        for (owner, name) in [(1, ""), (1, "a"), (1, "b"), (2, ""), (2, "a"), (3, "b")] {
            let name = if name.is_empty() { Value::Null } else { name.into() };
            let key = data::encode_key(table.schema(), &[Value::Int(owner), name.clone()]).expect("a key");
            let after = key >= range.from && (range.to.is_empty() || key < range.to);
            if after && range.partitions.contains(&table.partition_of(&key).expect("a partition")) {
                inside.push_str(&format!("{owner}{name} ").replace("null", "-"));
            }
        }
        Some((range, inside.trim_end().to_string()))
    }

    #[test]
    fn ranges_hold_what_meets_the_conditions_and_say_whether_nothing_else() {
        for (condition, inside, exact, partitions) in [
            ("owner = 1", "1- 1a 1b", true, 1),
            ("owner = 1 AND name = 'a'", "1a", true, 1),
            ("owner = 1 AND name > 'a'", "1b", true, 1),
            ("owner = 1 AND name >= 'a' AND name < 'b'", "1a", true, 1),
            // Nulls come first: they are read, and the engine drops them.
            ("owner = 1 AND name < 'b'", "1- 1a", false, 1),
            ("owner > 1", "2- 2a 3b", true, 4),
            ("owner >= 2 AND owner <= 2", "2- 2a", true, 4),
            ("owner BETWEEN 1 AND 2", "1- 1a 1b 2- 2a", true, 4),
            ("owner > 1 AND owner > 2", "3b", true, 4),
            ("name = 'a'", "1- 1a 1b 2- 2a 3b", false, 4),
            ("owner = 1 AND weight > 2", "1- 1a 1b", false, 1),
            ("owner > 1 AND name = 'a'", "2- 2a 3b", false, 4),
            ("owner = 1 AND owner = 2", "1- 1a 1b", false, 1),
        ] {
            let (range, found) = of(condition).unwrap_or_else(|| panic!("{condition} leaves nothing"));
            assert_eq!((found.as_str(), range.exact), (inside, exact), "{condition}");
            assert_eq!(range.partitions.len(), partitions, "{condition}");
        }
        for nothing in ["owner > 5 AND owner < 3", "owner = 1 AND name > 'b' AND name < 'a'", "owner = NULL"]
        {
            assert!(of(nothing).is_none(), "{nothing}");
        }
    }
}

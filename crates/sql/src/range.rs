//! Which keys of which partitions conditions leave to be read.

use crate::bind::{Comparison, Source};
use bytes::Bytes;
use client::Table;
use types::PartitionId;
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
}

/// The part in which all rows are that meet a source's conditions. `values` are those of their slots, in order. `None`: no
/// row meets them.
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
    (range.to.is_empty() || range.from < range.to).then_some(range)
}

/// The earlier of two ends; an empty one is none.
fn earlier(one: Bytes, two: Bytes) -> Bytes {
    match (one.is_empty(), two.is_empty()) {
        (true, _) => two,
        (_, true) => one,
        _ => one.min(two),
    }
}

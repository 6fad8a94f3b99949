//! Which index, and which part of it, has all rows that meet some conditions on columns.

use crate::data::{KeyError, Value, prefix_end};
use crate::index::{IndexRecord, Indexes, after_null, entry_prefix};

/// How a column's value stands to a given one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Less.
    Less,
    /// Less or equal.
    AtMost,
    /// Greater.
    Greater,
    /// Greater or equal.
    AtLeast,
}

impl Comparison {
    /// As people write it.
    pub fn sign(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::Greater => ">",
            Comparison::AtLeast => ">=",
        }
    }
}

/// A condition: the column by its number, and how its value stands to the given one, which is of the column's
/// type.
pub type Condition<'a> = (usize, Comparison, &'a Value);

/// A part of an index. Every row that meets the conditions is in it; rows that do not may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice<'a> {
    /// The index.
    pub index: &'a IndexRecord,
    /// First entry.
    pub from: Vec<u8>,
    /// End, not included; empty: none.
    pub to: Vec<u8>,
    /// Leading columns that the conditions name a value for.
    pub equal: usize,
}

/// The index that conditions narrow most: by leading columns with one value, then by bounds of the next one.
/// None if no index begins with a column that there is a condition on. Nothing compares with null: no
/// condition's value may be null.
pub fn choose<'a>(indexes: &'a Indexes, conditions: &[Condition<'_>]) -> Option<Choice<'a>> {
    let part = |index: &'a IndexRecord| part(index, conditions).ok().flatten();
    // Of equals the one that was there first.
    indexes
        .wanted
        .iter()
        .filter_map(part)
        .rev()
        .max_by_key(|(bounds, choice)| (choice.equal, *bounds))
        .map(|(_, choice)| choice)
}

/// The part of an index, with how many bounds the column has that follows those with one value.
fn part<'a>(
    index: &'a IndexRecord,
    conditions: &[Condition<'_>],
) -> Result<Option<(usize, Choice<'a>)>, KeyError> {
    let mut values = Vec::new();
    for column in &index.columns {
        let equal = |(of, comparison, _): &&Condition<'_>| of == column && *comparison == Comparison::Equal;
        let Some((.., value)) = conditions.iter().find(equal) else { break };
        values.push((*value).clone());
    }
    let prefix = entry_prefix(&values)?;
    let equal = values.len();
    let (mut from, mut to, mut bounds) = (prefix.clone(), prefix_end(&prefix), 0);
    if let Some(column) = index.columns.get(equal) {
        for (_, comparison, value) in conditions.iter().filter(|(of, ..)| of == column) {
            values.push((*value).clone());
            let bound = entry_prefix(&values)?;
            values.pop();
            bounds += 1;
            match comparison {
                Comparison::AtLeast => from = from.max(bound),
                Comparison::Greater => from = from.max(prefix_end(&bound)),
                Comparison::Less => to = earlier(to, bound),
                Comparison::AtMost => to = earlier(to, prefix_end(&bound)),
                Comparison::Equal => unreachable!("it would be one of the values"),
            }
        }
        if bounds > 0 {
            from = from.max(after_null(&prefix));
        }
    }
    Ok((equal + bounds > 0).then_some((bounds, Choice { index, from, to, equal })))
}

/// The earlier of two ends; an empty one is none.
pub fn earlier<K: AsRef<[u8]> + Ord>(one: K, two: K) -> K {
    match (one.as_ref().is_empty(), two.as_ref().is_empty()) {
        (true, _) => two,
        (_, true) => one,
        _ => one.min(two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, ColumnType, Row, Schema, encode_key, encode_row};
    use crate::index::{Definition, entry_of};
    use Comparison::{AtLeast, AtMost, Equal, Greater, Less};

    fn schema() -> Schema {
        let columns = vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("town", ColumnType::Text),
            Column::new("age", ColumnType::Int),
        ];
        Schema::new(columns, &["id"], 1, false).expect("valid")
    }

    fn indexes(all: &[(&str, &[&str])]) -> Indexes {
        let mut indexes = Indexes::default();
        for (name, columns) in all {
            let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
            indexes.add(&schema(), name, &columns).expect("valid");
        }
        indexes
    }

    fn meets(row: &[Value], (column, comparison, value): &Condition<'_>) -> bool {
        let (one, two) = (entry_prefix(&row[*column..=*column]), entry_prefix(std::slice::from_ref(*value)));
        let order = one.expect("encodes").cmp(&two.expect("encodes"));
        !row[*column].is_null()
            && match comparison {
                Equal => order.is_eq(),
                Less => order.is_lt(),
                AtMost => order.is_le(),
                Greater => order.is_gt(),
                AtLeast => order.is_ge(),
            }
    }

    /// Every row with a town and an age of a few.
    fn rows() -> Vec<Vec<Value>> {
        let towns: [Value; 4] = [Value::Null, "".into(), "a".into(), "a\0b".into()];
        let ages = [Value::Null, Value::Int(i64::MIN), Value::Int(0), Value::Int(7), Value::Int(i64::MAX)];
        let pairs = towns.iter().flat_map(|town| ages.iter().map(move |age| (town.clone(), age.clone())));
        pairs.enumerate().map(|(id, (town, age))| vec![Value::Int(id as i64), town, age]).collect()
    }

    /// Checks that the chosen part has just the rows that meet the conditions on its own columns.
    fn check(indexes: &Indexes, conditions: &[Condition<'_>], name: &str) {
        let choice = choose(indexes, conditions).expect("an index fits");
        assert_eq!(choice.index.name, name);
        let definition = Definition::begin(choice.index.clone(), schema());
        let used = &choice.index.columns[..(choice.equal + 1).min(choice.index.columns.len())];
        for row in rows() {
            let key = encode_key(&schema(), &row[..1]).expect("a key");
            let stored = encode_row(&schema(), &Row::new(row.clone())).expect("a row");
            let stored = definition.entry(&key, &stored).expect("indexable");
            let entry = entry_of(&stored);
            let inside = entry >= &choice.from[..] && (choice.to.is_empty() || entry < &choice.to[..]);
            let met =
                conditions.iter().filter(|(column, ..)| used.contains(column)).all(|one| meets(&row, one));
            assert_eq!(inside, met, "{row:?} {conditions:?}");
        }
    }

    #[test]
    fn a_part_has_the_rows_that_meet_the_conditions_and_no_others() {
        let some = indexes(&[("town", &["town"]), ("both", &["town", "age"]), ("age", &["age"])]);
        let (a, seven, zero) = (Value::from("a"), Value::Int(7), Value::Int(0));
        let most = Value::Int(i64::MAX);
        check(&some, &[(1, Equal, &a)], "town");
        check(&some, &[(1, Equal, &a), (2, Equal, &seven)], "both");
        for comparison in [Less, AtMost, Greater, AtLeast] {
            for bound in [&seven, &zero, &most] {
                check(&some, &[(2, comparison, bound)], "age");
                check(&some, &[(1, Equal, &a), (2, comparison, bound)], "both");
            }
            check(&some, &[(1, comparison, &a)], "town");
        }
        check(&some, &[(2, Greater, &zero), (2, AtMost, &seven)], "age");
        check(&some, &[(2, Greater, &seven), (2, Less, &zero)], "age");
        check(&some, &[(1, Greater, &a), (2, Equal, &seven)], "age");
    }

    #[test]
    fn no_index_fits_other_columns() {
        let some = indexes(&[("both", &["town", "age"])]);
        assert_eq!(choose(&some, &[(2, Equal, &Value::Int(7))]), None);
        assert_eq!(choose(&some, &[]), None);
        let long = Value::Text("x".repeat(40_000));
        assert_eq!(choose(&some, &[(1, Equal, &long)]), None, "no row in it has such a value");
    }
}

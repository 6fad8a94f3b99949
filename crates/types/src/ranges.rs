//! Ranges of values as a way to spread rows, beside hashing: each partition of a database has those from its
//! bound on, up to the next partition's.

use crate::config::TableRecord;
use crate::data::key::{KeyError, encode_key_prefix};
use crate::data::text::split_values;
use crate::data::{Column, Schema, Value, partition_key, route_key};
use serde::{Deserialize, Serialize};

/// The lowest value of a partition behind the first one, in the first column of the partition key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Bound {
    /// For people.
    value: String,
    /// The same as keys begin with it, in hexadecimal digits.
    #[serde(with = "hexadecimal")]
    from: Vec<u8>,
}

/// The bounds of all partitions behind the first one, in ascending order. None: rows are spread by a hash.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ranges(Vec<Bound>);

impl Ranges {
    /// From `g,p` or `100,200`: values of this column between commas, in JSON quotes where they need it. The
    /// error is a sentence.
    pub fn parse(text: &str, column: &Column) -> Result<Ranges, String> {
        let parts = split_values(text).map_err(|error| format!("the bounds `{text}`: {error}"))?;
        let bound = |(part, _): (String, bool)| {
            let parsed = column.column_type.parse(&part);
            let value = parsed.map_err(|error| {
                format!(
                    "`{part}` is no bound of `{}`, which is of type {}: {error}",
                    column.name, column.column_type
                )
            })?;
            let from = encoded(column, value).map_err(|error| format!("`{part}` is no bound: {error}"))?;
            Ok(Bound { value: part, from })
        };
        Ok(Ranges(parts.into_iter().map(bound).collect::<Result<_, String>>()?))
    }

    /// True if rows are spread by a hash.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bounds, for people.
    pub fn values(&self) -> Vec<String> {
        self.0.iter().map(|bound| bound.value.clone()).collect()
    }

    /// Why a database of so many partitions, spread by these columns, cannot have these bounds, as a
    /// sentence, if so.
    pub fn fault(&self, partition_key: &[Column], partitions: u32) -> Option<String> {
        let Some(column) = partition_key.first() else {
            return Some("ranges are of a partition key, and there is none".into());
        };
        let (bounds, wanted) = (self.0.len(), partitions as usize - 1);
        if bounds != wanted {
            return Some(format!("{partitions} partitions have {wanted} bounds between them, not {bounds}"));
        }
        for bound in &self.0 {
            let parsed = column.column_type.parse(&bound.value).ok();
            if parsed.and_then(|value| encoded(column, value).ok()).as_ref() != Some(&bound.from) {
                let (name, of) = (&column.name, column.column_type);
                return Some(format!("`{}` is no bound of `{name}`, which is of type {of}", bound.value));
            }
        }
        let falls = self.0.windows(2).find(|pair| pair[0].from >= pair[1].from)?;
        let (one, next) = (&falls[0].value, &falls[1].value);
        Some(format!("bounds ascend, and `{next}` does not come behind `{one}`"))
    }

    /// The partition, from 0, of a key that begins with a value of the first column.
    fn place(&self, key: &[u8]) -> u32 {
        self.0.partition_point(|bound| bound.from.as_slice() <= key) as u32
    }
}

fn encoded(column: &Column, value: Value) -> Result<Vec<u8>, KeyError> {
    let column = Column::new(column.name.clone(), column.column_type);
    let name = column.name.clone();
    let schema = Schema::new(vec![column], &[&name], 1, false).map_err(|_| KeyError::Damaged("a column"))?;
    encode_key_prefix(&schema, &[value])
}

impl TableRecord {
    /// The number, from 0, of the partition of an encoded key of this record, or of a prefix that has at
    /// least the columns that choose the partition. `schema`: of these columns.
    ///
    /// # Errors
    ///
    /// If the key is shorter than that, or none.
    pub fn place_of(&self, schema: &Schema, key: &[u8]) -> Result<u32, KeyError> {
        match self.ranges.is_empty() {
            true => route_key(schema, key, self.seed, self.partitions),
            false => Ok(self.ranges.place(partition_key(schema, key)?).min(self.partitions - 1)),
        }
    }

    /// The numbers, from 0, of the partitions that can have keys with `from <= key`, and `key < to` where
    /// `to` is not empty: all of them where rows are spread by a hash.
    pub fn places_between(&self, from: &[u8], to: &[u8]) -> std::ops::RangeInclusive<u32> {
        let last = self.partitions - 1;
        if self.ranges.is_empty() {
            return 0..=last;
        }
        // A key below `to` lies in its partition or before it.
        let end = if to.is_empty() { last } else { self.ranges.place(to) };
        self.ranges.place(from).min(last)..=end.min(last)
    }
}

mod hexadecimal {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let byte = |pair: &[u8]| {
            let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2);
            pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        bytes.ok_or_else(|| D::Error::custom("hexadecimal digits, two for each byte"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{ColumnType, encode_key};
    use crate::policy::{LogKind, Policy};
    use crate::{PartitionId, TableId};

    fn spread(of: ColumnType, bounds: &str) -> TableRecord {
        let column = Column::new("k", of);
        let ranges = Ranges::parse(bounds, &column).expect("bounds");
        let columns = vec![column, Column::new("n", ColumnType::Int)];
        let schema = Schema::new(columns, &["k", "n"], 1, false).expect("valid");
        let policy = Policy::preset("durable", 3, LogKind::Disk).expect("a preset");
        let partitions = ranges.0.len() as u32 + 1;
        let record = TableRecord { partitions, ranges, ..TableRecord::new(TableId(1), "t", schema, policy) };
        TableRecord { first_partition: PartitionId(64), ..record }
    }

    fn key(record: &TableRecord, value: Value) -> Vec<u8> {
        encode_key(&record.schema, &[value, Value::Int(-7)]).expect("encodes")
    }

    #[test]
    fn a_row_lies_in_the_last_partition_whose_bound_is_not_above_it() {
        let words = spread(ColumnType::Text, "g,p");
        for (word, place) in
            [("", 0), ("a", 0), ("fzzz", 0), ("g", 1), ("ga", 1), ("ozzz", 1), ("p", 2), ("z", 2)]
        {
            let key = key(&words, word.into());
            assert_eq!(words.place_of(&words.schema, &key), Ok(place), "{word}");
        }
        assert!(words.place_of(&words.schema, &[]).is_err());
        let numbers = spread(ColumnType::Int, "-5,0,100");
        for (number, place) in
            [(i64::MIN, 0), (-6, 0), (-5, 1), (-1, 1), (0, 2), (99, 2), (100, 3), (i64::MAX, 3)]
        {
            assert_eq!(numbers.place_of(&numbers.schema, &key(&numbers, Value::Int(number))), Ok(place));
        }
    }

    #[test]
    fn a_range_of_keys_lies_in_few_partitions() {
        let words = spread(ColumnType::Text, "g,p");
        let at = |word: &str| key(&words, word.into());
        assert_eq!(words.places_between(&at("a"), &at("b")), 0..=0);
        assert_eq!(words.places_between(&at("h"), &[]), 1..=2);
        assert_eq!(words.places_between(&[], &at("h")), 0..=1);
        let hashed = TableRecord { ranges: Ranges::default(), ..words.clone() };
        assert_eq!(hashed.places_between(&at("a"), &at("b")), 0..=2);
    }

    #[test]
    fn bounds_that_do_not_fit_are_refused_with_one_line() {
        let column = Column::new("w", ColumnType::Int);
        let refused = Ranges::parse("1,x", &column).expect_err("no number");
        assert!(refused.starts_with("`x` is no bound of `w`, which is of type int"), "{refused}");
        let fault = |text: &str, partitions| {
            let ranges = Ranges::parse(text, &column).expect("numbers");
            ranges.fault(std::slice::from_ref(&column), partitions).unwrap_or_default()
        };
        assert_eq!(fault("1,2", 3), "");
        assert_eq!(fault("2,1", 3), "bounds ascend, and `1` does not come behind `2`");
        assert_eq!(fault("1,1", 3), "bounds ascend, and `1` does not come behind `1`");
        assert_eq!(fault("1,2", 4), "4 partitions have 3 bounds between them, not 2");
        let words = Ranges::parse("a", &Column::new("k", ColumnType::Text)).expect("a word");
        let other = words.fault(std::slice::from_ref(&column), 2);
        assert_eq!(other.as_deref(), Some("`a` is no bound of `w`, which is of type int"));
        assert!(words.fault(&[], 2).is_some());
    }

    /// Records of before have none, and rows of such tables are hashed.
    #[test]
    fn they_are_kept_in_records_and_old_records_have_none() {
        let words = spread(ColumnType::Text, "g,p");
        let text = serde_json::to_string(&words).expect("a record");
        assert!(text.contains(r#""value":"g""#), "{text}");
        assert_eq!(serde_json::from_str::<TableRecord>(&text).expect("reads"), words);
        let old = TableRecord { ranges: Ranges::default(), ..words };
        let text = serde_json::to_string(&old).expect("a record");
        assert!(!text.contains("ranges"), "{text}");
        assert!(serde_json::from_str::<TableRecord>(&text).expect("reads").ranges.is_empty());
    }
}

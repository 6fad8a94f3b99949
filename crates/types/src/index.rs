//! Secondary indexes: what a table's record wants, what a partition keeps about each, and the stored keys of
//! index rows.
//!
//! An index belongs to its partition's state. Its definition is a row in [`space::PARTITION`], its rows are
//! in [`space::INDEX`]; both are written by entries of the log, so they are at every LSN what the rows of
//! that LSN say. The stored key of an index row is the space, the index's number, the columns' values in the
//! encoding of keys ([`crate::data::key`]) and the row's own key; it has no value.
//!
//! A definition, stored under [`definition_key`]:
//!
//! ```text
//!  0 format u8 (1) | 1 state u8 | 2 number of columns u8 | 3 index rows written while building u64
//! 11 length of the next key u32, the next key: where building or removing goes on
//!    length of the note u32, the note: why it failed
//!    JSON: name, columns by number, and the schema they are numbers of
//! ```

use crate::config::TableRecord;
use crate::data::key::{columns_length, encode_any};
use crate::data::row::{RowError, decode_known};
use crate::data::{KeyError, Schema, Value, prefix_end};
use crate::engine::{MAX_KEY_BYTES, Mutation, PartitionRows, space};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// The most indexes of a table.
pub const MAX_INDEXES: usize = 16;
/// The most columns of an index.
pub const MAX_INDEX_COLUMNS: usize = 8;

const FORMAT: u8 = 1;
/// Begins the keys of definitions within [`space::PARTITION`].
const DEFINITION: u8 = PartitionRows::Indexes as u8;
/// Space and number.
const PREFIX_BYTES: usize = 5;
/// What an entry's stored key has beside the entry's values and the row's key, in bytes.
pub const BESIDE_ENTRY: usize = PREFIX_BYTES;

/// An index as the table's record names it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IndexRecord {
    /// Never used again in its table.
    pub number: u32,
    /// Its name, unique in its table.
    pub name: String,
    /// The columns, as indexes into the schema's columns, most significant first.
    pub columns: Vec<usize>,
}

/// The indexes that a table is to have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Indexes {
    /// The number given out last; 0: none was ever.
    pub last: u32,
    /// Those that are wanted.
    pub wanted: Vec<IndexRecord>,
}

impl Indexes {
    /// True if the table never had an index.
    pub fn is_empty(&self) -> bool {
        self.last == 0
    }

    /// The index with this name.
    pub fn named(&self, name: &str) -> Option<&IndexRecord> {
        self.wanted.iter().find(|index| index.name == name)
    }

    /// Adds an index of these columns. Passed over if there is one of this name and these columns. The error
    /// is a sentence.
    pub fn add(&mut self, schema: &Schema, name: &str, columns: &[String]) -> Result<(), String> {
        let columns = resolve(schema, columns)?;
        match self.named(name) {
            Some(known) if known.columns == columns => return Ok(()),
            Some(_) => return Err(format!("there is an index `{name}` of other columns")),
            None => {}
        }
        check_name(name)?;
        if self.wanted.len() >= MAX_INDEXES {
            return Err(format!("a table has at most {MAX_INDEXES} indexes"));
        }
        self.last += 1;
        self.wanted.push(IndexRecord { number: self.last, name: name.into(), columns });
        Ok(())
    }

    /// Takes an index away. False if there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.wanted.len();
        self.wanted.retain(|index| index.name != name);
        self.wanted.len() < before
    }
}

fn resolve(schema: &Schema, names: &[String]) -> Result<Vec<usize>, String> {
    if names.is_empty() || names.len() > MAX_INDEX_COLUMNS {
        return Err(format!("an index has 1 to {MAX_INDEX_COLUMNS} columns, not {}", names.len()));
    }
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let at = schema.column_index(name).ok_or_else(|| format!("there is no column `{name}`"))?;
        if columns.contains(&at) {
            return Err(format!("the column `{name}` is in the index more than once"));
        }
        if !schema.columns()[at].column_type.may_be_key() {
            let found = schema.columns()[at].column_type;
            return Err(format!("the column `{name}` is of type {found} and cannot be indexed"));
        }
        columns.push(at);
    }
    Ok(columns)
}

fn check_name(name: &str) -> Result<(), String> {
    let good = (1..=63).contains(&name.len()) && !name.contains(char::is_control);
    if good { Ok(()) } else { Err(format!("`{name}` is no name of an index: 1 to 63 bytes, all printable")) }
}

/// What the primaries of a table's partitions bring them to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// As the table's record has them.
    pub indexes: Indexes,
    /// The table's columns.
    pub schema: Schema,
}

impl Wanted {
    /// From the table's record.
    pub fn of(table: &TableRecord) -> Wanted {
        Wanted { indexes: table.indexes.clone(), schema: table.schema.clone() }
    }
}

/// How far an index of a partition has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum IndexState {
    /// Every write maintains it; rows that were there before are being indexed.
    Building = 1,
    /// It has every row.
    Ready = 2,
    /// Nobody maintains it; its rows are being removed.
    Dropping = 3,
    /// A row could not be indexed. Nobody maintains it; its rows go when it is dropped.
    Failed = 4,
}

impl IndexState {
    fn from_number(number: u8) -> Option<IndexState> {
        use IndexState::*;
        [Building, Ready, Dropping, Failed].into_iter().find(|state| *state as u8 == number)
    }

    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            IndexState::Building => "building",
            IndexState::Ready => "ready",
            IndexState::Dropping => "dropping",
            IndexState::Failed => "failed",
        }
    }
}

/// Why a row has no place in an index.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unindexable {
    /// Its values and its key together are too long.
    #[error("its entry would be {bytes} bytes long, but at most {MAX_KEY_BYTES} can be stored")]
    TooLong {
        /// How long, or how long the part that is too long already.
        bytes: usize,
    },
    /// Its bytes are no row of the table.
    #[error(transparent)]
    Row(#[from] RowError),
}

impl From<KeyError> for Unindexable {
    fn from(error: KeyError) -> Unindexable {
        match error {
            KeyError::TooLong { bytes } => Unindexable::TooLong { bytes },
            other => Unindexable::Row(other.into()),
        }
    }
}

/// An index of a partition, as the partition's state has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// As the table's record named it.
    pub index: IndexRecord,
    /// How far it has got.
    pub state: IndexState,
    /// Index rows that building has written so far.
    pub entries: u64,
    /// Where building or removing goes on: a row's key, or the end of an index row's stored key. Empty: at
    /// the beginning.
    pub next: Bytes,
    /// Why it failed, as a sentence; else empty.
    pub note: String,
    schema: Schema,
}

#[derive(Serialize, Deserialize)]
struct Described {
    name: String,
    columns: Vec<usize>,
    schema: Schema,
}

impl Definition {
    /// An index that begins.
    pub fn begin(index: IndexRecord, schema: Schema) -> Definition {
        let (entries, next, note) = (0, Bytes::new(), String::new());
        Definition { index, state: IndexState::Building, entries, next, note, schema }
    }

    /// The same in another state, from the beginning.
    pub fn turned(&self, state: IndexState) -> Definition {
        Definition { state, next: Bytes::new(), ..self.clone() }
    }

    /// True if writes keep it up to date.
    pub fn is_maintained(&self) -> bool {
        matches!(self.state, IndexState::Building | IndexState::Ready)
    }

    /// The stored key of the index row of a row, given by its key (without space) and its stored value.
    pub fn entry(&self, key: &[u8], stored: &[u8]) -> Result<Bytes, Unindexable> {
        let row = decode_known(&self.schema, key, stored)?;
        let mut out = index_prefix(self.index.number);
        for column in &self.index.columns {
            encode_any(&mut out, &row.values[*column])?;
        }
        out.extend_from_slice(key);
        if out.len() > MAX_KEY_BYTES {
            return Err(Unindexable::TooLong { bytes: out.len() });
        }
        Ok(out.into())
    }

    /// The change that stores it.
    pub fn mutation(&self) -> Mutation {
        Mutation { key: definition_key(self.index.number), value: Some(self.encode()) }
    }

    /// The definition row's value.
    pub fn encode(&self) -> Bytes {
        let described = Described {
            name: self.index.name.clone(),
            columns: self.index.columns.clone(),
            schema: self.schema.clone(),
        };
        let json = serde_json::to_vec(&described).expect("names and numbers");
        let mut out = BytesMut::with_capacity(32 + self.next.len() + json.len());
        out.put_u8(FORMAT);
        out.put_u8(self.state as u8);
        out.put_u8(self.index.columns.len() as u8);
        out.put_u64_le(self.entries);
        for part in [&self.next[..], self.note.as_bytes()] {
            out.put_u32_le(part.len() as u32);
            out.put_slice(part);
        }
        out.put_slice(&json);
        out.freeze()
    }

    /// From a definition row. The error is a sentence.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Definition, String> {
        let number = number_of(key).ok_or("the key of an index's definition is damaged")?;
        let (state, _) = state_of(value)?;
        let short = || format!("the definition of index {number} is cut short");
        let mut rest = value.get(3..).ok_or_else(short)?;
        if rest.len() < 8 {
            return Err(short());
        }
        let entries = rest.get_u64_le();
        let mut parts = [Bytes::new(), Bytes::new()];
        for part in &mut parts {
            let length = if rest.len() < 4 { usize::MAX } else { rest.get_u32_le() as usize };
            let (bytes, after) = rest.split_at_checked(length).ok_or_else(short)?;
            (*part, rest) = (Bytes::copy_from_slice(bytes), after);
        }
        let [next, note] = parts;
        let note = String::from_utf8_lossy(&note).into_owned();
        let Described { name, columns, schema } = serde_json::from_slice(rest)
            .map_err(|error| format!("the definition of index {number} cannot be read: {error}"))?;
        if columns.is_empty() || columns.iter().any(|column| *column >= schema.columns().len()) {
            return Err(format!("the definition of index {number} names columns that are not there"));
        }
        let index = IndexRecord { number, name, columns };
        Ok(Definition { index, state, entries, next, note, schema })
    }
}

/// State and number of columns of a definition row, without reading all of it. The error is a sentence.
pub fn state_of(value: &[u8]) -> Result<(IndexState, usize), String> {
    match value {
        [FORMAT, state, columns, ..] => {
            let state = IndexState::from_number(*state)
                .ok_or_else(|| format!("an index is in the unknown state {state}"))?;
            Ok((state, usize::from(*columns)))
        }
        _ => Err("the definition of an index is in a format that this release does not know".into()),
    }
}

/// The stored key of an index's definition.
pub fn definition_key(number: u32) -> Bytes {
    let mut key = BytesMut::with_capacity(6);
    key.put_slice(&[space::PARTITION, DEFINITION]);
    key.put_u32(number);
    key.freeze()
}

/// Every definition's stored key is from the first on and below the second.
pub fn definition_range() -> ([u8; 2], [u8; 2]) {
    ([space::PARTITION, DEFINITION], [space::PARTITION, DEFINITION + 1])
}

fn number_of(key: &[u8]) -> Option<u32> {
    let rest = key.strip_prefix(&[space::PARTITION, DEFINITION])?;
    rest.try_into().ok().map(u32::from_be_bytes)
}

/// What the stored keys of an index's rows begin with.
pub fn index_prefix(number: u32) -> Vec<u8> {
    let mut prefix = Vec::with_capacity(64);
    prefix.push(space::INDEX);
    prefix.extend_from_slice(&number.to_be_bytes());
    prefix
}

/// The end of the range that begins with [`index_prefix`].
pub fn index_end(number: u32) -> Vec<u8> {
    prefix_end(&index_prefix(number))
}

/// An index row's stored key without space and number: what a range of an index is given by, and goes on
/// behind.
pub fn entry_of(stored: &[u8]) -> &[u8] {
    &stored[PREFIX_BYTES.min(stored.len())..]
}

/// The key of the row that an index row of so many columns is of.
pub fn row_of(stored: &[u8], columns: usize) -> Result<&[u8], KeyError> {
    row_behind(entry_of(stored), columns)
}

/// The key of the row that an entry of so many columns is of.
pub fn row_behind(entry: &[u8], columns: usize) -> Result<&[u8], KeyError> {
    Ok(&entry[columns_length(entry, columns)?..])
}

/// The bytes that the entries ([`entry_of`]) of all rows begin with whose first indexed columns have these
/// values.
pub fn entry_prefix(values: &[Value]) -> Result<Vec<u8>, KeyError> {
    let mut out = Vec::new();
    for value in values {
        encode_any(&mut out, value)?;
    }
    Ok(out)
}

/// Where entries begin, behind this prefix, whose next column has a value at all: null comes before all of
/// them.
pub fn after_null(prefix: &[u8]) -> Vec<u8> {
    prefix_end(&[prefix, &[crate::data::key::NULL]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, ColumnType, Row, encode_key, encode_row};

    fn schema() -> Schema {
        let columns = vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("town", ColumnType::Text),
            Column::new("age", ColumnType::Int),
            Column::new("tree", ColumnType::Json),
        ];
        Schema::new(columns, &["id"], 1, true).expect("valid")
    }

    fn index(columns: &[&str]) -> Definition {
        let mut indexes = Indexes::default();
        let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
        indexes.add(&schema(), "one", &columns).expect("valid");
        Definition::begin(indexes.wanted[0].clone(), schema())
    }

    fn entry(definition: &Definition, schema: &Schema, values: Vec<Value>) -> Bytes {
        let key = encode_key(schema, &values[..1]).expect("a key");
        let row = encode_row(schema, &Row::new(values)).expect("a row");
        let entry = definition.entry(&key, &row).expect("indexable");
        assert_eq!(row_of(&entry, definition.index.columns.len()), Ok(&key[..]));
        entry
    }

    #[test]
    fn entries_are_in_the_order_of_the_values_and_then_of_the_keys() {
        let definition = index(&["town", "age"]);
        let row = |id: i64, town: Value, age: Value| {
            entry(&definition, &schema(), vec![Value::Int(id), town, age, Value::Null])
        };
        let ordered = [
            row(9, Value::Null, Value::Int(1)),
            row(1, "a".into(), Value::Null),
            row(2, "a".into(), Value::Int(-5)),
            row(1, "a".into(), Value::Int(5)),
            row(2, "a".into(), Value::Int(5)),
            row(0, "ab".into(), Value::Null),
        ];
        assert!(ordered.is_sorted(), "{ordered:?}");
        let some = [index_prefix(1), after_null(&[])].concat();
        assert!(ordered[0] < some && some < ordered[1]);
        let a = [index_prefix(1), entry_prefix(&["a".into()]).expect("encodes")].concat();
        assert!(ordered[1..5].iter().all(|entry| entry.starts_with(&a)) && !ordered[5].starts_with(&a));
    }

    #[test]
    fn a_row_of_a_later_version_is_indexed_by_the_columns_that_were_there() {
        let definition = index(&["age"]);
        let values = vec![Value::Int(1), "x".into(), Value::Int(7), Value::Null];
        let before = entry(&definition, &schema(), values.clone());
        let later = schema().with_column(Column::new("more", ColumnType::Text)).expect("valid");
        let mut more = values;
        more.push("y".into());
        assert_eq!(entry(&definition, &later, more), before);
    }

    #[test]
    fn a_row_of_an_earlier_version_has_null_or_its_extra_field() {
        let later = schema().with_column(Column::new("rank", ColumnType::Int)).expect("valid");
        let mut indexes = Indexes::default();
        indexes.add(&later, "r", &["rank".into()]).expect("valid");
        let definition = Definition::begin(indexes.wanted[0].clone(), later.clone());
        let mut row = Row::new(vec![Value::Int(1), Value::Null, Value::Null, Value::Null]);
        let key = encode_key(&schema(), &row.values[..1]).expect("a key");
        let of = |row: &Row| definition.entry(&key, &encode_row(&schema(), row).expect("a row"));
        let with = |value: Value| {
            let values = vec![Value::Int(1), Value::Null, Value::Null, Value::Null, value];
            definition.entry(&key, &encode_row(&later, &Row::new(values)).expect("a row"))
        };
        assert_eq!(of(&row), with(Value::Null));
        row.open.insert("rank".into(), crate::data::Json::parse("3").expect("a tree"));
        assert_eq!(of(&row), with(Value::Int(3)));
    }

    #[test]
    fn what_is_too_long_or_no_row_is_refused() {
        let definition = index(&["town"]);
        let key = encode_key(&schema(), &[Value::Int(1)]).expect("a key");
        let row = |town: String| {
            let values = vec![Value::Int(1), Value::Text(town), Value::Null, Value::Null];
            encode_row(&schema(), &Row::new(values)).expect("a row")
        };
        let longest = MAX_KEY_BYTES - PREFIX_BYTES - 3 - key.len();
        assert_eq!(definition.entry(&key, &row("x".repeat(longest))).map(|key| key.len()), Ok(MAX_KEY_BYTES));
        for over in [longest + 1, 2 * MAX_KEY_BYTES] {
            let error = definition.entry(&key, &row("x".repeat(over)));
            assert!(matches!(error, Err(Unindexable::TooLong { .. })), "{error:?}");
        }
        assert!(matches!(definition.entry(&key, b"junk"), Err(Unindexable::Row(_))));
        assert!(matches!(definition.entry(b"junk", &row(String::new())), Err(Unindexable::Row(_))));
    }

    #[test]
    fn a_definition_reads_back_and_cuts_are_noticed() {
        let mut definition = index(&["age", "town"]);
        definition.entries = 5;
        definition.next = Bytes::from_static(b"next");
        definition.note = "why".into();
        for state in [IndexState::Building, IndexState::Ready, IndexState::Dropping, IndexState::Failed] {
            definition.state = state;
            let Mutation { key, value: Some(value) } = definition.mutation() else { panic!("it is stored") };
            assert_eq!(Definition::decode(&key, &value), Ok(definition.clone()));
            assert_eq!(state_of(&value), Ok((state, 2)));
            for length in 0..value.len() {
                assert!(Definition::decode(&key, &value[..length]).is_err(), "cut at {length}");
            }
        }
        assert!(Definition::decode(b"other", &definition.encode()).is_err());
        let (from, to) = definition_range();
        assert!(definition_key(0)[..] > from[..] && definition_key(u32::MAX)[..] < to[..]);
    }

    #[test]
    fn names_and_columns_are_checked_and_numbers_are_not_used_again() {
        let mut indexes = Indexes::default();
        let mut add = |name: &str, columns: &[&str]| {
            let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
            indexes.add(&schema(), name, &columns)
        };
        assert_eq!(add("a", &["town"]), Ok(()));
        assert_eq!(add("a", &["town"]), Ok(()), "the same again");
        assert_eq!(add("a", &["age"]), Err("there is an index `a` of other columns".into()));
        assert_eq!(add("b", &["nope"]), Err("there is no column `nope`".into()));
        assert_eq!(add("b", &["age", "age"]), Err("the column `age` is in the index more than once".into()));
        assert_eq!(
            add("b", &["tree"]),
            Err("the column `tree` is of type json and cannot be indexed".into())
        );
        assert!(add("b", &[]).is_err() && add("", &["age"]).is_err());
        assert!(indexes.remove("a") && !indexes.remove("a"));
        indexes.add(&schema(), "a", &["town".into()]).expect("valid");
        assert_eq!(indexes.wanted[0].number, 2);
        for n in 0..MAX_INDEXES - 1 {
            indexes.add(&schema(), &format!("n{n}"), &["age".into()]).expect("room");
        }
        assert!(indexes.add(&schema(), "more", &["age".into()]).is_err());
    }
}

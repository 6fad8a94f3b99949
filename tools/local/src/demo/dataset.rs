//! The rows of the demo: read from a file or made up, each with two columns more, so that it says who wrote
//! it last.

use super::history::KeyId;
use super::social;
use super::verify::Found;
use crate::error::LocalError;
use bytes::Bytes;
use input::{InferredColumn, Input, Item};
use std::collections::HashMap;
use std::path::PathBuf;
use types::PartitionId;
use types::data::key::encode_row_key;
use types::data::{Column, ColumnType, Row, Schema, Value, decode_row, encode_row};
use types::random::Random;

/// The column with the client that wrote the row.
const CLIENT: &str = "demo_client";
/// The column with that client's number of the write.
const SEQUENCE: &str = "demo_sequence";

/// Where the rows come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file.
    File {
        /// CSV with a header line, or NDJSON; either also gzipped.
        path: PathBuf,
        /// The columns that name a row.
        key: Vec<String>,
        /// The text that stands for no value.
        null: Option<String>,
    },
    /// So many users of a made-up social network.
    Users {
        /// How many.
        count: u64,
        /// What they are made from.
        seed: u64,
    },
}

/// All rows, encoded, with the keys that the prober and the stale client write besides.
#[derive(Debug)]
pub struct Dataset {
    schema: Schema,
    keys: Vec<Bytes>,
    /// The stored row of each key as it is loaded; of a spare key, as it would be.
    rows: Vec<Bytes>,
    numbers: HashMap<Bytes, KeyId>,
    loaded: usize,
    clients: u32,
}

impl Dataset {
    /// Reads or makes all rows, and deals them out to so many clients.
    pub fn new(source: &Source, clients: u32) -> Result<Dataset, LocalError> {
        match source {
            Source::File { path, key, null } => {
                let options = input::Options { null: null.clone(), ..input::Options::default() };
                Dataset::read(Input::open(path, options)?, key, clients)
            }
            Source::Users { count, seed } => {
                let mut columns = social::columns();
                columns.extend([CLIENT, SEQUENCE].map(|name| Column::new(name, ColumnType::Int)));
                let schema = Schema::new(columns, &["id"], 1, false);
                let mut set =
                    Dataset::empty(schema.map_err(|error| LocalError::Data(error.to_string()))?, clients);
                let mut random = Random::new(*seed);
                for id in 0..*count {
                    let mut row = social::user(&mut random, id, *count);
                    row.values.extend([Value::Null, Value::Null]);
                    set.add(row, || format!("user {id}"))?;
                }
                set.complete()
            }
        }
    }

    fn read(mut input: Input, key: &[String], clients: u32) -> Result<Dataset, LocalError> {
        let mut inferred = input.infer()?;
        for name in [CLIENT, SEQUENCE] {
            if inferred.columns.iter().any(|column| column.name == name) {
                return Err(LocalError::Data(format!(
                    "the demo adds a column `{name}`, but the file has one"
                )));
            }
            let (name, column_type) = (name.to_string(), ColumnType::Int);
            inferred.columns.push(InferredColumn { name, column_type, given: true, nulls: 0 });
        }
        let name = input.name().to_string();
        let schema = inferred.schema(key, key.len(), false)?;
        let mut set = Dataset::empty(schema.clone(), clients);
        for item in input.reader(&schema)? {
            match item? {
                Item::Row(record) => {
                    let line = record.line;
                    set.add(record.row, || format!("{name} line {line}"))?;
                }
                Item::Bad(bad) => return Err(LocalError::Data(bad.to_string())),
            }
        }
        set.complete()
    }

    fn empty(schema: Schema, clients: u32) -> Dataset {
        Dataset {
            schema,
            keys: Vec::new(),
            rows: Vec::new(),
            numbers: HashMap::new(),
            loaded: 0,
            clients: clients.max(1),
        }
    }

    fn add(&mut self, mut row: Row, place: impl Fn() -> String) -> Result<(), LocalError> {
        let wrong = |error: String| LocalError::Data(format!("{}: {error}", place()));
        let number = KeyId(self.keys.len() as u32);
        let client = number.0 % self.clients;
        mark(&mut row, client, 0);
        let key: Bytes = encode_row_key(&self.schema, &row).map_err(|error| wrong(error.to_string()))?.into();
        let stored = encode_row(&self.schema, &row).map_err(|error| wrong(error.to_string()))?;
        if let Some(before) = self.numbers.insert(key.clone(), number) {
            let before = before.0 + 1;
            return Err(wrong(format!(
                "it has the key of row {before}; give --key columns that name each row once"
            )));
        }
        self.keys.push(key);
        self.rows.push(stored.into());
        Ok(())
    }

    fn complete(mut self) -> Result<Dataset, LocalError> {
        self.loaded = self.keys.len();
        if self.loaded < self.clients as usize {
            return Err(LocalError::Data(format!(
                "{} rows are too few for {} clients",
                self.loaded, self.clients
            )));
        }
        Ok(self)
    }

    /// The table's columns and key.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// How many rows are loaded; spare keys have the numbers from here on.
    pub fn loaded(&self) -> usize {
        self.loaded
    }

    /// How many clients share the loaded rows.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// All keys, spare ones included.
    pub fn keys(&self) -> &[Bytes] {
        &self.keys
    }

    /// The key with this number.
    pub fn key(&self, id: KeyId) -> &Bytes {
        &self.keys[id.0 as usize]
    }

    /// The stored row of this key as it is loaded.
    pub fn row(&self, id: KeyId) -> &Bytes {
        &self.rows[id.0 as usize]
    }

    /// Bytes of all keys and rows.
    pub fn bytes(&self) -> u64 {
        self.keys.iter().chain(&self.rows).map(|bytes| bytes.len() as u64).sum()
    }

    /// The stored row of this key as this client writes it with this number.
    pub fn written(&self, id: KeyId, client: u32, sequence: u64) -> Bytes {
        let mut row = decode_row(&self.schema, self.key(id), self.row(id)).expect("it was encoded here");
        mark(&mut row, client, sequence);
        encode_row(&self.schema, &row).expect("two numbers more still make a row").into()
    }

    /// What a stored row under this key is.
    pub fn recognise(&self, id: KeyId, stored: &[u8]) -> Found {
        let Ok(mut row) = decode_row(&self.schema, self.key(id), stored) else { return Found::Foreign };
        let at = row.values.len() - 2;
        let (Value::Int(client), Value::Int(sequence)) = (&row.values[at], &row.values[at + 1]) else {
            return Found::Foreign;
        };
        let (client, sequence) = (*client as u32, *sequence as u64);
        mark(&mut row, self.owner(id), 0);
        match encode_row(&self.schema, &row) {
            Ok(base) if self.row(id) == &base => Found::Row { client, sequence },
            _ => Found::Foreign,
        }
    }

    /// The number of a key.
    pub fn number(&self, key: &[u8]) -> Option<KeyId> {
        self.numbers.get(key).copied()
    }

    /// The client that a row is dealt to. Spare keys are marked like the row they are made from.
    fn owner(&self, id: KeyId) -> u32 {
        if (id.0 as usize) < self.loaded { id.0 % self.clients } else { 0 }
    }

    /// Forgets all spare keys: another table spreads keys in another way.
    pub fn forget_spare(&mut self) {
        for key in self.keys.drain(self.loaded..) {
            self.numbers.remove(&key);
        }
        self.rows.truncate(self.loaded);
    }

    /// Makes keys that are in no row, `count` for each partition; `place` says where a key lies.
    pub fn spare(
        &mut self,
        partitions: &[PartitionId],
        count: usize,
        place: impl Fn(&[u8]) -> Option<PartitionId>,
    ) -> Result<Vec<Vec<KeyId>>, LocalError> {
        let template = decode_row(&self.schema, &self.keys[0], &self.rows[0]).expect("it was encoded here");
        let column = self.varying().ok_or_else(|| {
            LocalError::Data(
                "the key has only columns of few values; the prober finds no keys of its own".into(),
            )
        })?;
        let mut found: Vec<Vec<KeyId>> = partitions.iter().map(|_| Vec::new()).collect();
        for number in 0..(count * partitions.len() * 100 + 10_000) as i64 {
            if found.iter().all(|keys| keys.len() >= count) {
                return Ok(found);
            }
            let mut row = template.clone();
            row.values[column] = vary(&row.values[column], number);
            let Ok(key) = encode_row_key(&self.schema, &row) else { continue };
            let at =
                place(&key).and_then(|place| partitions.iter().position(|partition| *partition == place));
            let wanted = at.filter(|at| found[*at].len() < count && !self.numbers.contains_key(&key[..]));
            let Some(at) = wanted else { continue };
            let id = KeyId(self.keys.len() as u32);
            let key = Bytes::from(key);
            self.numbers.insert(key.clone(), id);
            self.keys.push(key);
            self.rows.push(self.rows[0].clone());
            found[at].push(id);
        }
        Err(LocalError::Failed("no keys of the prober's own fall into some partition".into()))
    }

    /// The key column of many values that decides the partition.
    fn varying(&self) -> Option<usize> {
        let deciding = &self.schema.key()[..self.schema.partition_by()];
        let rank = |index: &usize| match self.schema.columns()[*index].column_type {
            ColumnType::Text => 0,
            ColumnType::Int => 1,
            ColumnType::Bytes => 2,
            ColumnType::Timestamp => 3,
            ColumnType::Float => 4,
            ColumnType::Date => 5,
            ColumnType::Uuid => 6,
            ColumnType::Decimal | ColumnType::Bool | ColumnType::Json => 9,
            ColumnType::Time | ColumnType::Interval => 9,
        };
        deciding.iter().copied().filter(|index| rank(index) < 9).min_by_key(rank)
    }
}

/// A value of the same type that data hardly have.
fn vary(value: &Value, number: i64) -> Value {
    match value {
        Value::Text(text) => Value::Text(format!("{text} probe {number}")),
        Value::Bytes(bytes) => Value::Bytes([bytes, &number.to_be_bytes()[..]].concat()),
        Value::Timestamp(_) => Value::Timestamp(-1 - number * 1_000_003),
        Value::Float(_) => Value::Float(-1e15 - number as f64),
        Value::Date(_) => Value::Date(-100_000 - number as i32),
        Value::Uuid(_) => Value::Uuid((u128::MAX - number as u128).to_be_bytes()),
        _ => Value::Int(i64::MIN / 2 + number),
    }
}

/// Says who wrote the row: its last two columns.
fn mark(row: &mut Row, client: u32, sequence: u64) {
    let at = row.values.len() - 2;
    row.values[at] = Value::Int(i64::from(client));
    row.values[at + 1] = Value::Int(sequence as i64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::data::route_key;

    fn csv(text: &'static str, key: &[&str]) -> Result<Dataset, LocalError> {
        let options = input::Options { null: Some("NA".into()), ..input::Options::default() };
        let input = Input::from_reader(text.as_bytes(), "small.csv", options)?;
        Dataset::read(input, &key.iter().map(|name| name.to_string()).collect::<Vec<_>>(), 2)
    }

    const SMALL: &str = "day,flight,delay\n1,UA1,5\n1,UA2,NA\n2,UA1,7\n";

    #[test]
    fn a_row_says_who_wrote_it_and_anything_else_is_foreign() {
        let set = csv(SMALL, &["day", "flight"]).expect("reads");
        let id = KeyId(1);
        assert_eq!(set.recognise(id, set.row(id)), Found::Row { client: 1, sequence: 0 });
        let written = set.written(id, 1, 77);
        assert_eq!(set.recognise(id, &written), Found::Row { client: 1, sequence: 77 });
        assert_eq!(set.recognise(KeyId(2), &written), Found::Foreign);
        assert_eq!(set.recognise(id, &written[1..]), Found::Foreign);
        assert_eq!(set.number(set.key(id)), Some(id));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_in_a_line() {
        let twice = csv("day,flight\n1,UA1\n1,UA1\n", &["day", "flight"]).expect_err("twice").to_string();
        assert_eq!(
            twice,
            "small.csv line 3: it has the key of row 1; give --key columns that name each row once; nothing was loaded"
        );
        let few = csv("day,flight\n1,UA1\n", &["day"]).expect_err("too few").to_string();
        assert_eq!(few, "1 rows are too few for 2 clients; nothing was loaded");
        let taken = csv("day,demo_client\n1,1\n2,2\n", &["day"]).expect_err("taken").to_string();
        assert!(taken.starts_with("the demo adds a column `demo_client`"), "{taken}");
        let ragged = csv("day,flight\n1,UA1\n2\n", &["day"]).expect_err("ragged").to_string();
        assert!(ragged.starts_with("small.csv line 3: it has 1 field,"), "{ragged}");
    }

    #[test]
    fn every_partition_gets_spare_keys() {
        for key in [&["day", "flight"][..], &["day"], &["flight", "day"]] {
            let mut set = csv("day,flight,delay\n1,UA1,5\n2,UA2,NA\n", key).expect("reads");
            let partitions: Vec<PartitionId> = (64..70).map(PartitionId).collect();
            let schema = set.schema().clone();
            let place = |key: &[u8]| route_key(&schema, key, 1, 6).ok().map(|place| PartitionId(64 + place));
            let spare = set.spare(&partitions, 5, place).expect("found");
            for (partition, keys) in partitions.iter().zip(&spare) {
                assert_eq!(keys.len(), 5);
                for id in keys {
                    assert_eq!(place(set.key(*id)), Some(*partition));
                    assert_eq!(
                        set.recognise(*id, &set.written(*id, 9, 4)),
                        Found::Row { client: 9, sequence: 4 }
                    );
                }
            }
            assert_eq!((set.loaded(), set.keys().len()), (2, 32));
            let spare_key = set.key(spare[0][0]).clone();
            set.forget_spare();
            assert_eq!(
                (set.number(&spare_key), set.keys().len(), set.number(set.key(KeyId(1)))),
                (None, 2, Some(KeyId(1)))
            );
        }
    }
}

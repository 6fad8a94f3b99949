//! What a call costs that reads and writes one row, without anything around it.
//!
//! `cargo run --release -p understudy-procedure --example rates`

#![expect(clippy::disallowed_methods, reason = "it measures time")]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Instant;
use types::data::kind::{Language, Procedure};
use types::data::{Column, ColumnType, Row, Schema, Signature, Value, encode_key, encode_row};
use types::{CatalogTable, EngineError, KeySpace, TableId, TableState};
use understudy_procedure::{Given, Limits, Progress, Rows, Runtime, Shape};

const COUNT: &str = r#"(module
    (import "arg" "push id" (func $id))
    (import "arg" "int by" (func $by (result i64)))
    (import "value" "int" (func $int (param i64)))
    (import "table:counters" "get" (func $get (result i32)))
    (import "table:counters" "int n" (func $n (result i64)))
    (import "table:counters" "set n" (func $set_n))
    (import "table:counters" "push n" (func $push_n))
    (import "table:counters" "put" (func $put))
    (import "call" "result" (func $result))
    (func (export "run")
      (call $id) (drop (call $get))
      (call $int (i64.add (call $n) (call $by))) (call $set_n) (call $put)
      (call $push_n) (call $result)))"#;
const ROWS: i64 = 10_000;
const CALLS: u32 = 200_000;

struct Map(BTreeMap<Bytes, Bytes>);

impl Rows for Map {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, _: &[u8], _: &[u8], _: usize, _: usize) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        Ok(Vec::new())
    }
}

fn main() {
    let int = |name: &str| Column::new(name, ColumnType::Int);
    let schema = Schema::new(vec![int("id"), int("n")], &["id"], 1, false).expect("valid");
    let counters = CatalogTable::new(TableId(7), "counters", schema, 0);
    let mut map = Map(BTreeMap::new());
    for id in 0..ROWS {
        let row = vec![Value::Int(id), Value::Int(0)];
        let key = encode_key(&counters.schema, &row[..1]).expect("a key");
        let value = encode_row(&counters.schema, &Row::new(row)).expect("a row");
        map.0.insert(KeySpace::Table(counters.id).row_key(&key), value.into());
    }
    let runtime = Runtime::default();
    for (language, source) in [(Language::Builtin, "count"), (Language::Wasm, COUNT)] {
        let results = vec![int("n")];
        let definition =
            Procedure { language, source: source.into(), results, read_only: false, checked: false };
        let parameters = [int("id"), int("by")];
        let table = CatalogTable::procedure(TableId(8), "count", &parameters, definition, 0).expect("valid");
        let find = |_: &str| Some(Shape::of(TableState::Live, &counters));
        let prepared = runtime.prepare(&table, &find).expect("it can be called");
        let arguments = Signature::new(&parameters).expect("valid");
        for _ in 0..3 {
            let begun = Instant::now();
            for call in 0..CALLS {
                let values = vec![Value::Int(i64::from(call) % ROWS), Value::Int(1)];
                let bytes = arguments.encode(values).expect("fits");
                let mut running =
                    prepared.begin(&bytes, Given::default(), Limits::default()).expect("begins");
                let Progress::Ended(Ok(effects)) = running.go_on(&map, u64::MAX).expect("rows") else {
                    panic!("it ends")
                };
                for mutation in effects.mutations {
                    map.0.insert(mutation.key, mutation.value.expect("a row"));
                }
            }
            println!("{}: {:?} for a call", language.name(), begun.elapsed() / CALLS);
        }
    }
}

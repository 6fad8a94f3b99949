//! The procedures that clients call, and the table that they are about: `counters (id int primary key, n
//! int)` with an index of `n`. Their ids are given to nobody else.

use procedure::{Builtin, Shape, Tables};
use types::data::kind::{Language, Procedure};
use types::data::{Column, ColumnType, Constraint, Demand, Row, Schema, Signature, Value, decode_row};
use types::procedure::{Failure, FailureKind};
use types::{CatalogTable, KeySpace, TableId};

/// Ids from here on are those of procedures and their table.
const FIRST: u32 = 0x7000_0000;
/// The table.
pub const COUNTERS: TableId = TableId(FIRST);
/// Adds to a row, and gives what is there then. Compiled in.
pub const COUNT: TableId = TableId(FIRST + 1);
/// The same in the language for users; before that it counts as far as it is told, and then it notes in a row
/// beside it what it was given.
pub const MIX: TableId = TableId(FIRST + 2);
/// From here on rows are beside others, and no sums.
pub const BESIDE: i64 = 1_000;

const MIX_TEXT: &str = r#"(module
    (import "arg" "int id" (func $id (result i64)))
    (import "arg" "push id" (func $push_id))
    (import "arg" "int by" (func $by (result i64)))
    (import "arg" "int loops" (func $loops (result i64)))
    (import "value" "int" (func $int (param i64)))
    (import "call" "seed" (func $seed (result i64)))
    (import "call" "now" (func $now (result i64)))
    (import "call" "copies" (func $copies (result i32)))
    (import "table:counters" "get" (func $get (result i32)))
    (import "table:counters" "int n" (func $n (result i64)))
    (import "table:counters" "put" (func $put))
    (import "call" "result" (func $result))
    (func (export "run") (local $i i64) (local $sum i64)
      (loop $on
        (local.set $i (i64.add (local.get $i) (i64.const 1)))
        (br_if $on (i64.lt_s (local.get $i) (call $loops))))
      (call $push_id)
      (if (call $get) (then (local.set $sum (call $n))))
      (local.set $sum (i64.add (local.get $sum) (call $by)))
      (call $push_id) (call $int (local.get $sum)) (call $put)
      (call $int (i64.add (call $id) (i64.const 1000)))
      (call $int (i64.xor (i64.xor (call $seed) (call $now)) (i64.extend_i32_u (call $copies))))
      (call $put)
      (call $int (local.get $sum)) (call $result)))"#;

/// True for what is none of the tables that other clients make.
pub fn is_reserved(id: TableId) -> bool {
    id.0 >= FIRST
}

fn int(name: &str) -> Column {
    Column::new(name, ColumnType::Int)
}

fn counters() -> CatalogTable {
    let schema = Schema::new(vec![int("id").not_null(), int("n")], &["id"], 1, false).expect("valid");
    let index = Constraint::new(FIRST + 9, "by_n", Demand::Index(vec![1]));
    CatalogTable::new(COUNTERS, "counters", schema.with_constraints(vec![index]).expect("valid"), 1)
}

fn defined(
    id: TableId,
    name: &str,
    (language, source): (Language, &str),
    parameters: &[&str],
) -> CatalogTable {
    let results = vec![int("n")];
    let procedure = Procedure { language, source: source.into(), results, read_only: false, checked: false };
    let parameters: Vec<Column> = parameters.iter().map(|name| int(name)).collect();
    CatalogTable::procedure(id, name, &parameters, procedure, 1).expect("valid")
}

/// The table and the procedures, as they are made.
pub fn definitions() -> [CatalogTable; 3] {
    [
        counters(),
        defined(COUNT, "count", (Language::Builtin, "count"), &["id", "by"]),
        defined(MIX, "mix", (Language::Wasm, MIX_TEXT), &["id", "by", "loops"]),
    ]
}

/// Numbers as the arguments of a procedure with so many parameters.
pub fn arguments(numbers: &[i64]) -> bytes::Bytes {
    let columns: Vec<Column> = (0..numbers.len()).map(|at| int(&format!("a{at}"))).collect();
    let values = numbers.iter().copied().map(Value::Int).collect();
    Signature::new(&columns).expect("valid").encode(values).expect("fits").into()
}

/// The number that a row of a result has. The error is a sentence.
pub fn given(rows: &[bytes::Bytes]) -> Result<i64, String> {
    let [row] = rows else { return Err(format!("{} rows are given", rows.len())) };
    let results = Signature::new(&[int("n")]).map_err(|error| error.to_string())?;
    match results.decode(row).map_err(|error| error.to_string())?[..] {
        [Value::Int(number)] => Ok(number),
        ref other => Err(format!("{other:?} is given")),
    }
}

/// The id and the number of a stored row of the table, if it is one; none for the number: it is removed.
pub fn counter(stored: &bytes::Bytes, value: Option<&[u8]>) -> Option<(i64, Option<i64>)> {
    if KeySpace::table_of(stored) != Some(COUNTERS) {
        return None;
    }
    let (key, schema) = (KeySpace::Table(COUNTERS).key_of(stored), counters().schema);
    let read = |value: &[u8]| decode_row(&schema, &key, value).ok().map(|row| row.values);
    match types::data::decode_key(&schema, &key).ok()?.first()? {
        Value::Int(id) => Some((
            *id,
            value.and_then(read).and_then(|values| match values[1] {
                Value::Int(number) => Some(number),
                _ => None,
            }),
        )),
        _ => None,
    }
}

/// Adds to a row; with what it adds beside that.
fn add(tables: &mut Tables<'_>, arguments: &[Value], more: i64) -> Result<(), Failure> {
    let [id, Value::Int(by)] = arguments else {
        return Err(Failure::new(FailureKind::Arguments, "two numbers are wanted"));
    };
    let before = match tables.get(0, vec![id.clone()])?.as_ref().map(|row| &row.values[1]) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    };
    let after = before.checked_add(*by).and_then(|after| after.checked_add(more));
    let after = after.ok_or_else(|| Failure::new(FailureKind::Raised, "the number is too large"))?;
    let after = Value::Int(after);
    tables.put(0, Row::new(vec![id.clone(), after.clone()]))?;
    tables.give(vec![after])
}

/// `count` of another build: it notes beside the row what was added last.
pub struct Another;

impl Builtin for Another {
    fn tables(&self) -> Vec<String> {
        vec!["counters".into()]
    }

    fn fault(&self, _: &[Column], _: &[Column], _: &[Shape]) -> Option<String> {
        None
    }

    fn edition(&self) -> u32 {
        2
    }

    fn call(&self, tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        add(tables, arguments, 0)?;
        match arguments {
            [Value::Int(id), by] => tables.put(0, Row::new(vec![Value::Int(id + BESIDE), by.clone()])),
            _ => Ok(()),
        }
    }
}

/// `count` that says that it is what others have, and now and then adds one more.
pub struct Unsteady;

impl Builtin for Unsteady {
    fn tables(&self) -> Vec<String> {
        vec!["counters".into()]
    }

    fn fault(&self, _: &[Column], _: &[Column], _: &[Shape]) -> Option<String> {
        None
    }

    fn call(&self, tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let more = matches!(arguments, [_, Value::Int(by)] if by % 8 == 3);
        add(tables, arguments, i64::from(more))
    }
}

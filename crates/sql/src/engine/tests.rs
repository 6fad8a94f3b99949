//! Statements from PostgreSQL's text to rows, over tables in memory. What is expected is what PostgreSQL 15 gives, but for the
//! trailing zeros of numeric.

use super::encode::encode;
use super::*;
use crate::bind::{Binder, Slot};
use crate::catalog::Catalog;
use rusqlite::types::Value as Kept;
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::data::{Column, ColumnType, Schema};
use types::{EngineKind, LogKind, PartitionId, Policy, TableId, TableRecord};

fn table(id: u32, name: &str, columns: &[(&str, ColumnType)], key: &[&str]) -> Arc<TableRecord> {
    let columns = columns.iter().map(|(name, of)| Column::new(*name, *of)).collect();
    Arc::new(TableRecord {
        format: 1,
        id: TableId(id),
        name: name.into(),
        schema: Schema::new(columns, key, 1, false).expect("valid"),
        engine: EngineKind::Memory,
        log: LogKind::Disk,
        policy: Policy::preset("durable", 1, LogKind::Disk).expect("valid"),
        first_partition: PartitionId(100),
        partitions: 1,
        hash: String::new(),
        seed: 0,
        placement: Vec::new(),
        created_ms: 0,
        unknown: BTreeMap::new(),
    })
}

/// Tables and their rows; a value's text is PostgreSQL's, `-` is null.
struct Memory {
    catalog: Catalog,
    rows: BTreeMap<String, Vec<Vec<Value>>>,
}

fn memory() -> Memory {
    use ColumnType::*;
    let people = table(
        1,
        "people",
        &[("id", Int), ("name", Text), ("boss", Int), ("pay", Decimal), ("born", Date)],
        &["id"],
    );
    let pets = table(
        2,
        "pets",
        &[("owner", Int), ("name", Text), ("weight", Float), ("seen", Timestamp), ("tame", Bool)],
        &["owner", "name"],
    );
    let rows = |table: &TableRecord, lines: &[&str]| {
        let line = |line: &&str| {
            let values = line.split('|').zip(table.schema.columns());
            values
                .map(|(text, column)| match text {
                    "-" => Value::Null,
                    text => pg::text::parse(Ty::of(column.column_type).kind(), text).expect("a value"),
                })
                .collect()
        };
        lines.iter().map(line).collect::<Vec<Vec<Value>>>()
    };
    let all = [
        (
            people.clone(),
            rows(
                &people,
                &[
                    "1|Ada|-|100.50|1815-12-10",
                    "2|Grace|1|99.9|1906-12-09",
                    "3|Joan|1|-|1917-06-24",
                    "4|Edith|2|0.1|-",
                ],
            ),
        ),
        (
            pets.clone(),
            rows(
                &pets,
                &["1|Rex|12.5|2024-01-02 03:04:05+00|t", "1|Tom|NaN|-|f", "3|Rex|-|2024-01-01 00:00:00+00|-"],
            ),
        ),
    ];
    let tables = all.iter().map(|(table, _)| (table.name.clone(), table.clone())).collect();
    let rows = all.into_iter().map(|(table, rows)| (table.name.clone(), rows)).collect();
    Memory { catalog: Catalog::from_map(1, tables), rows }
}

struct Rows(Vec<Vec<Vec<Kept>>>);

impl Reader for Rows {
    fn open(&self, source: usize) -> Result<Box<dyn Pages>, Failure> {
        Ok(Box::new(Once(Some(self.0[source].clone()))))
    }
}

struct Once(Option<Vec<Vec<Kept>>>);

impl Pages for Once {
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        Ok(self.0.take())
    }
}

fn run(memory: &Memory, text: &str, params: &[&str]) -> Result<Vec<String>, Failure> {
    let parsed =
        Parser::parse_sql(&PostgreSqlDialect {}, text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let [Statement::Query(query)] = parsed.as_slice() else { panic!("{text} is no query") };
    let (bound, types) = Binder::new(&memory.catalog, &[]).whole(query)?;
    let params: Vec<Value> = types
        .iter()
        .zip(params)
        .map(|(ty, text)| pg::text::parse(ty.kind(), text).expect("a value"))
        .collect();
    let value = |(slot, _): &(Slot, Ty)| match slot {
        Slot::Const(value) => value.clone(),
        Slot::Param(number) => params[*number].clone(),
        Slot::Now => Value::Timestamp(0),
        Slot::Today => Value::Date(0),
    };
    let values: Vec<Value> = bound.slots.iter().map(value).collect();
    let rows = bound.sources.iter().map(|source| {
        let project = |row: &Vec<Value>| source.columns.iter().map(|at| encode(&row[*at])).collect();
        memory.rows[&source.table.name].iter().map(project).collect()
    });
    let reader = Box::new(Rows(rows.collect()));
    let mut out = Vec::new();
    let shown = |value: &Value| if value.is_null() { "-".to_string() } else { pg::text::to_text(value) };
    let engine = Engine::open()?;
    engine.run(&bound, &values, reader, &mut |rows| {
        for row in rows {
            assert!(row.iter().zip(&bound.columns).all(|(value, (_, ty))| ty.has(value)), "{text}: {row:?}");
            out.push(row.iter().map(shown).collect::<Vec<_>>().join("|"));
        }
        true
    })?;
    Ok(out)
}

/// Runs a script of statements and what comes of them; see `scripts/*.txt`.
fn script(name: &str, script: &str) {
    let memory = memory();
    let mut wrong = Vec::new();
    for case in script.split("\n\n").map(str::trim).filter(|case| !case.is_empty() && !case.starts_with('#'))
    {
        let (question, expected) =
            case.split_once("\n=>").unwrap_or_else(|| panic!("{name}: {case} has no =>"));
        let (text, params) = question.split_once("\nwith ").unwrap_or((question, ""));
        let params: Vec<&str> = params.split('|').filter(|param| !param.is_empty()).collect();
        let found = match run(&memory, text, &params) {
            Ok(rows) => rows.join("\n"),
            Err(failure) => format!("{} {}", failure.code, failure.message),
        };
        if found != expected.trim() {
            wrong.push(format!("{text}\n=>\n{found}\n-- expected\n{}", expected.trim()));
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n\n"));
}

#[test]
fn queries_give_what_postgresql_gives() {
    script("queries", include_str!("../../tests/scripts/queries.txt"));
}

#[test]
fn what_postgresql_refuses_or_this_does_not_know_is_refused() {
    script("refusals", include_str!("../../tests/scripts/refusals.txt"));
}

#[test]
fn conditions_on_a_key_narrow_the_scan_and_a_whole_key_is_a_point() {
    let memory = memory();
    let bound = |text: &str| {
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text).expect("good");
        let [Statement::Query(query)] = parsed.as_slice() else { panic!("{text} is no query") };
        Binder::new(&memory.catalog, &[]).whole(query).expect("good").0
    };
    assert!(bound("SELECT name FROM people WHERE id = $1").point.is_some());
    assert!(bound("SELECT name FROM people WHERE 7 = id").point.is_some());
    assert!(bound("SELECT weight FROM pets WHERE owner = 1 AND name = 'Rex'").point.is_some());
    for text in [
        "SELECT name FROM people WHERE id = 1 OR id = 2",
        "SELECT name || 'x' FROM people WHERE id = 1",
        "SELECT count(*) FROM people WHERE id = 1",
        "SELECT name FROM people WHERE id = 1 AND name = 'x'",
        "SELECT weight FROM pets WHERE owner = 1",
        "SELECT name FROM people WHERE id = 1.5",
        "SELECT name FROM people WHERE id = 1 LIMIT 0",
    ] {
        assert!(bound(text).point.is_none(), "{text}");
    }
    let conditions = |text: &str| bound(text).sources[0].conditions.len();
    assert_eq!(conditions("SELECT name FROM pets WHERE owner = 1 AND weight > 2"), 2);
    assert_eq!(conditions("SELECT name FROM people WHERE id BETWEEN 1 AND 5"), 2);
    assert_eq!(conditions("SELECT name FROM people WHERE NOT id = 1"), 0);
    assert_eq!(conditions("SELECT 1 FROM people p WHERE EXISTS (SELECT 1 FROM pets WHERE p.id = 5)"), 0);
    // Read twice, it is read whole and once.
    assert_eq!(conditions("SELECT 1 FROM people a, people b WHERE a.id = 1 AND b.id = 2"), 0);
}

//! Statements from PostgreSQL's text to rows, over tables in memory. What is expected is what PostgreSQL 15
//! gives, but for the trailing zeros of numeric.

use super::encode::encode;
use super::*;
use crate::bind::{Binder, KEY, Last, STORED, Slot, Writing};
use crate::catalog::Catalog;
use crate::system;
use crate::system::facts::{Asker, Seen};
use rusqlite::types::Value as Kept;
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use types::config::{Addresses, Cause};
use types::data::{Column, ColumnType, Rules, Schema};
use types::{
    Epoch, FailoverRecord, LogKind, Lsn, Member, NodeId, NodeRecord, PartitionId, PartitionRecord, Policy,
    Position, ProposalId, TableId, TableRecord, Term, Watermarks,
};
use wire::RecordText;
use wire::control::{ClusterMap, ClusterStatus, NodeStatus, ReplicaStatus, Role};

fn table(id: u32, name: &str, columns: &[(&str, ColumnType)], key: &[&str]) -> Arc<TableRecord> {
    let columns = columns.iter().map(|(name, of)| Column::new(*name, *of)).collect();
    Arc::new(TableRecord {
        first_partition: PartitionId(100 + id),
        ..TableRecord::new(
            TableId(id),
            name,
            Schema::new(columns, key, 1, false).expect("valid"),
            Policy::preset("durable", 3, LogKind::Disk).expect("valid"),
        )
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

/// A table without rows whose columns have bounds, defaults and numbers.
fn bounded() -> Memory {
    let rules = |json: &str| serde_json::from_str::<Rules>(json).expect("rules");
    let column = |name: &str, of, json: &str| Column::new(name, of).with(rules(json));
    let columns = vec![
        column("id", ColumnType::Int, r#"{"bits":32,"identity":"by_default"}"#),
        column("code", ColumnType::Text, r#"{"max_chars":8,"default":{"value":"it's"}}"#),
        column("small", ColumnType::Int, r#"{"bits":16,"default":{"value":"-1"}}"#),
        column("price", ColumnType::Decimal, r#"{"digits":[10,2],"default":{"value":"0.5"}}"#),
        column("made", ColumnType::Timestamp, r#"{"default":"now"}"#),
        column("day", ColumnType::Date, r#"{"default":"now"}"#),
        column("seq", ColumnType::Int, r#"{"identity":"always"}"#),
        column("note", ColumnType::Text, "{}"),
    ];
    let mut of = TableRecord::clone(&table(3, "priced", &[("id", ColumnType::Int)], &["id"]));
    of.schema = Schema::new(columns, &["id", "code"], 1, false).expect("valid");
    let name = of.name.clone();
    let rows = [(name.clone(), Vec::new())].into();
    Memory { catalog: Catalog::from_map(1, [(name, Arc::new(of))].into()), rows }
}

struct Sources(Vec<Vec<Vec<Kept>>>, Facts);

impl Reader for Sources {
    fn facts(&self) -> Option<&Facts> {
        Some(&self.1)
    }

    fn open(&self, source: usize) -> Result<Box<dyn Pages>, Failure> {
        if let Some(system) = source.checked_sub(system::FIRST) {
            return Ok(Box::new(Once(Some(system::rows(system, &self.1)?))));
        }
        Ok(Box::new(Once(Some(self.0[source].clone()))))
    }
}

fn member(node: u32) -> Member {
    Member { node: NodeId(node), ..Member::default() }
}

fn node(id: u32) -> NodeRecord {
    NodeRecord {
        format: 1,
        id: NodeId(id),
        store: Default::default(),
        incarnation: Default::default(),
        clean_start: false,
        addresses: Addresses {
            client: format!("127.0.0.1:{id}"),
            peer: format!("127.0.0.1:1{id}"),
            ..Addresses::default()
        },
        zone: String::new(),
        damaged: Vec::new(),
        start: 0,
        executors: Default::default(),
        unknown: BTreeMap::new(),
    }
}

fn failover() -> FailoverRecord {
    FailoverRecord {
        format: 1,
        id: 1,
        partition: PartitionId(101),
        cause: Cause::Suspected,
        old_epoch: Epoch(3),
        old_primary: member(3),
        old_term: Term(1),
        new_epoch: Epoch(4),
        new_primary: member(1),
        last_heard_ms: 1_000,
        suspected_ms: 1_120,
        sealed_ms: 1_125,
        reconciled_ms: Some(1_130),
        serving_ms: None,
        loss: Default::default(),
        unknown: Default::default(),
    }
}

/// A cluster of three nodes, of which the third is not heard and catches up.
fn seen(catalog: &Catalog) -> Seen {
    let record = |table: &Arc<TableRecord>| PartitionRecord {
        term: Term(1),
        catching_up: vec![member(3)],
        proposal: ProposalId(1),
        ..PartitionRecord::new(
            table.first_partition,
            table.id,
            Epoch(4),
            vec![member(1), member(2)],
            Policy::preset("durable", 3, LogKind::Disk).expect("valid"),
        )
    };
    let cluster_map = ClusterMap {
        whole: true,
        revision: 1,
        cluster: None,
        nodes: [1, 2, 3].map(|id| RecordText::new(&node(id))).to_vec(),
        tables: catalog.all().map(|table| RecordText::new(table.as_ref())).collect(),
        partitions: catalog.all().map(|table| RecordText::new(&record(table))).collect(),
        dropped: Vec::new(),
    };
    let mut map = client::Map::default();
    map.apply(&cluster_map).expect("records read back");
    let marks = |lsn| Watermarks {
        received: Lsn(lsn),
        durable: Lsn(lsn),
        applied: Lsn(lsn),
        persisted: Lsn(lsn / 2),
    };
    let replica = |table: &Arc<TableRecord>, id: u32| ReplicaStatus {
        partition: table.first_partition,
        role: if id == 1 { Role::Primary } else { Role::Backup },
        end: Position { term: Term(4), lsn: Lsn(300) },
        marks: marks(if id == 1 { 300 } else { 290 }),
        committed: Lsn(290),
        members: vec![(member(2), marks(290), 1_000, 1_500_000)],
        ..ReplicaStatus::default()
    };
    let status = |id: u32| NodeStatus {
        member: member(id),
        replicas: catalog.all().map(|table| replica(table, id)).collect(),
        log_bytes: 4_096,
        cpu_us: 2_500_000,
        ..NodeStatus::default()
    };
    let nodes = vec![(status(1), 10), (status(2), 20), (status(3), 60_000)];
    Seen { map, status: ClusterStatus { nodes, ..ClusterStatus::default() }, failovers: vec![failover()] }
}

struct Once(Option<Vec<Vec<Kept>>>);

impl Pages for Once {
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        Ok(self.0.take())
    }
}

fn run(memory: &Memory, text: &str, params: &[&str]) -> Result<Vec<String>, Failure> {
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text);
    let parsed = parsed.map_err(|error| Failure::new(code::SYNTAX, error.to_string()))?;
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
        Slot::Random => Value::Uuid([0; 16]),
    };
    let values: Vec<Value> = bound.slots.iter().map(value).collect();
    let rows = bound.sources.iter().map(|source| {
        let project = |row: &Vec<Value>| source.columns.iter().map(|at| encode(&row[*at])).collect();
        memory.rows[&source.table.name].iter().map(project).collect()
    });
    let asker = Asker { pid: 7, ..Asker::default() };
    let facts = Facts::fixed(Arc::new(memory.catalog.clone()), asker, seen(&memory.catalog));
    let reader = Box::new(Sources(rows.collect(), facts));
    let mut out = Vec::new();
    let shown = |value: &Value| if value.is_null() { "-".to_string() } else { pg::text::to_text(value) };
    let engine = Engine::open()?;
    engine.run(&bound, &values, reader, &mut |rows| {
        for row in rows {
            assert!(
                row.iter().zip(&bound.columns).all(|(value, (_, ty))| ty.is_reg() || ty.has(value)),
                "{text}: {row:?}"
            );
            out.push(row.iter().map(shown).collect::<Vec<_>>().join("|"));
        }
        true
    })?;
    Ok(out)
}

/// What a MERGE does for its pairs: the key of the table's row, the branch and its values.
fn pairs(memory: &Memory, text: &str) -> Result<Vec<String>, Failure> {
    let said = crate::parse::parse(text)?.pop();
    let Some(crate::parse::Said::Sql(statement)) = said else { panic!("{text}") };
    let Statement::Merge(said) = *statement else { panic!("{text} is no MERGE") };
    let (parts, _) = crate::bind::merge(&memory.catalog, &[], &said)?;
    let Last::Writes(Writing::Merge(merge)) = parts.last else { panic!("{text}") };
    let value = |(slot, _): &(Slot, Ty)| match slot {
        Slot::Const(value) => value.clone(),
        other => panic!("{text} has {other:?}"),
    };
    let values: Vec<Value> = merge.read.slots.iter().map(value).collect();
    let rows = merge.read.sources.iter().map(|source| {
        let one = |row: &Vec<Value>, at: usize| match at {
            KEY => Kept::Blob(pg::text::to_text(&row[0]).into_bytes()),
            STORED => Kept::Blob(Vec::new()),
            at => encode(&row[at]),
        };
        let project = |row: &Vec<Value>| source.columns.iter().map(|at| one(row, *at)).collect();
        memory.rows[&source.table.name].iter().map(project).collect()
    });
    let facts = Facts::fixed(Arc::new(memory.catalog.clone()), Asker::default(), seen(&memory.catalog));
    let reader = Box::new(Sources(rows.collect(), facts));
    let mut found = Vec::new();
    Engine::open()?.run(&merge.read, &values, reader, &mut |rows| {
        found.extend(rows);
        true
    })?;
    let types = |branch: usize| {
        let columns = merge.branches.get(branch)?.columns().iter();
        Some(columns.map(|at| Ty::of_column(&merge.table.schema.columns()[*at])).collect::<Vec<_>>())
    };
    let mut out = Vec::new();
    for row in found {
        let key = match &row[0] {
            Value::Bytes(key) => String::from_utf8_lossy(key).into_owned(),
            _ => "-".into(),
        };
        let Value::Bytes(does) = &row[2] else { continue };
        let (branch, values) = unpack_row(does, types)?;
        let values: Vec<String> = values.iter().map(pg::text::to_text).collect();
        out.push(format!("{key} {branch} {}", values.join("|")));
    }
    out.sort_unstable();
    Ok(out)
}

/// The first clause whose condition holds counts, and nothing is computed for the others.
#[test]
fn pairs_of_merge_say_what_is_done() {
    let source = "(VALUES (1::bigint, 'a'), (3, 'b'), (9, 'c'), (10, NULL)) AS v (id, name)";
    let text = |rest: &str| format!("MERGE INTO people USING {source} ON people.id = v.id {rest}");
    let done = pairs(
        &memory(),
        &text(
            "WHEN MATCHED AND boss IS NULL THEN DELETE \
             WHEN MATCHED THEN UPDATE SET name = v.name, boss = 10 / (v.id - 1) \
             WHEN NOT MATCHED AND v.name IS NULL THEN DO NOTHING \
             WHEN NOT MATCHED THEN INSERT (id, name) VALUES (v.id, v.name || '!')",
        ),
    );
    assert_eq!(done.expect("it is evaluated"), ["- 2 9|c!", "1 0 ", "3 1 b|5"]);
    let fails = pairs(&memory(), &text("WHEN MATCHED THEN UPDATE SET boss = 10 / (v.id - 1)"));
    assert_eq!(fails.expect_err("it is computed").code, "22012");
    let inner = pairs(&memory(), &text("WHEN MATCHED AND v.id = 3 THEN DELETE"));
    assert_eq!(inner.expect("it is evaluated"), ["3 0 "]);
}

/// Runs a script of statements and what comes of them; see `scripts/*.txt`. What is written there must be
/// what PostgreSQL says.
fn script(memory: &Memory, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    testing::expected::check(&folder.join(format!("{name}.txt")), |script| play(memory, name, script));
}

/// The script with what it really gives.
fn play(memory: &Memory, name: &str, script: &str) -> String {
    let mut written = String::new();
    for case in script.split("\n\n").map(str::trim).filter(|case| !case.is_empty()) {
        if case.starts_with('#') {
            written.push_str(&format!("{case}\n\n"));
            continue;
        }
        let (question, _) = case.split_once("\n=>").unwrap_or_else(|| panic!("{name}: {case} has no =>"));
        let (text, params) = question.split_once("\nwith ").unwrap_or((question, ""));
        let params: Vec<&str> = params.split('|').filter(|param| !param.is_empty()).collect();
        let found = match run(memory, text, &params) {
            Ok(rows) => rows.join("\n"),
            Err(failure) => format!("{} {}", failure.code, failure.message),
        };
        written.push_str(format!("{question}\n=>\n{found}").trim_end());
        written.push_str("\n\n");
    }
    format!("{}\n", written.trim_end())
}

#[test]
fn queries_give_what_postgresql_gives() {
    script(&memory(), "queries");
}

#[test]
fn catalogs_give_what_postgresql_gives() {
    script(&memory(), "catalogs");
}

#[test]
fn columns_are_described_with_bounds_and_defaults() {
    script(&bounded(), "columns");
}

#[test]
fn what_drivers_ask_is_answered() {
    script(&memory(), "drivers");
}

#[test]
fn the_clusters_own_views_show_it() {
    script(&memory(), "cluster");
}

#[test]
fn what_postgresql_refuses_or_this_does_not_know_is_refused() {
    script(&memory(), "refusals");
}

/// A source of two hundred rows; a failover loses what comes after them, or nothing does.
struct Losing {
    loses: bool,
}

/// Its pages.
struct Short {
    page: Option<Vec<Vec<Kept>>>,
    loses: bool,
}

impl Reader for Losing {
    fn open(&self, _: usize) -> Result<Box<dyn Pages>, Failure> {
        let page = Some((0..200).map(|number| vec![encode(&Value::Int(number))]).collect());
        Ok(Box::new(Short { page, loses: self.loses }))
    }
}

impl Pages for Short {
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        match self.page.take() {
            None if self.loses => Err(Failure::new(crate::fault::SERIALIZATION, "lost")),
            page => Ok(page),
        }
    }
}

#[test]
fn a_query_whose_state_is_lost_is_begun_again_unless_it_has_given_a_row() {
    let memory = memory();
    let begun = |text: &str, losses: u32| {
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text).expect("good");
        let [Statement::Query(query)] = parsed.as_slice() else { panic!("{text} is no query") };
        let bound = Binder::new(&memory.catalog, &[]).whole(query).expect("good").0;
        let (mut times, mut rows) = (0, 0);
        let mut reader = || -> Result<Box<dyn Reader>, Failure> {
            times += 1;
            Ok(Box::new(Losing { loses: times <= losses }))
        };
        let mut emit = |batch: Vec<pg::Row>| {
            rows += batch.len();
            true
        };
        let engine = Engine::open().expect("opens");
        let ran = crate::evaluate::run(&engine, &bound, &[], 5, &mut reader, &mut emit);
        (times, ran.map(|()| rows).map_err(|failure| failure.code))
    };
    assert_eq!(begun("SELECT sum(id) FROM people", 0), (1, Ok(1)));
    assert_eq!(begun("SELECT sum(id) FROM people", 2), (3, Ok(1)));
    assert_eq!(begun("SELECT sum(id) FROM people", 9), (5, Err("40001")));
    assert_eq!(begun("SELECT id FROM people", 0), (1, Ok(200)));
    assert_eq!(begun("SELECT id FROM people", 1), (1, Err("40001")));
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

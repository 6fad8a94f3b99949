//! What may move and how, without a cluster.

use super::*;
use crate::catalog::{Fill, Following, Moved, UnderWay};
use crate::moved::unneeded;
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::{BTreeMap, BTreeSet};
use types::data::constraint::{Action, Reference};
use types::data::{Column, ColumnType, Fallback, Identity, Rules};
use types::{CatalogTable, Holds, LogKind, TableId};

/// A table `t` that lies together with others.
fn table(constraints: Vec<Constraint>) -> TableRecord {
    let columns = vec![
        Column::new("id", ColumnType::Int).not_null(),
        Column::new("gone", ColumnType::Text).with(Rules { hidden: true, ..Rules::default() }),
        Column::new("v", ColumnType::Int).with(Rules { missing: Some("7".into()), ..Rules::default() }),
    ];
    let bare = crate::catalog::example(columns);
    let schema = bare.schema.clone().with_constraints(constraints).expect("valid");
    let policy = Policy::preset("durable", 3, LogKind::Disk).expect("valid");
    TableRecord { holds: Holds::TableOf(TableId(9)), schema, policy, ..bare }
}

fn catalog(database: &str, tables: Vec<TableRecord>) -> Catalog {
    let tables = tables.into_iter().map(|table| (table.name.clone(), Arc::new(table)));
    Catalog::of_database(database, 1, tables.collect::<BTreeMap<_, _>>())
}

fn asked(catalog: &Catalog, text: &str) -> Result<Option<Move>, Failure> {
    let text = format!("ALTER TABLE {text}");
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).expect("it is read");
    let [Statement::AlterTable(alter)] = parsed.as_slice() else { panic!("{text}") };
    read(catalog, alter)
}

#[test]
fn a_table_is_planned_with_what_is_seen_of_it_and_with_its_indexes() {
    let index = Constraint::new(5, "by_v", Demand::Index(vec![2]));
    let known = table(vec![index]);
    let catalog = catalog(crate::DATABASE, vec![known.clone()]);
    let moved = asked(&catalog, "t SET (partitions = 4)").expect("good").expect("a move");
    let plan = MovePlan::of(&known, &moved.options).expect("good");
    let names: Vec<&str> = plan.request.schema.columns().iter().map(|one| one.name.as_str()).collect();
    assert_eq!((names, plan.columns), (vec!["id", "v"], vec![0, 2]));
    assert_eq!(plan.request.schema.columns()[1].rules.missing, None, "rows have it themselves by then");
    let kept = (plan.request.partitions, plan.request.policy.as_str(), plan.request.factor);
    assert_eq!((kept, plan.request.min_in_sync), ((4, "durable", Some(3)), Some(2)));
    assert_eq!(plan.indexes, [AddIndex { name: "by_v".into(), columns: vec!["v".into()] }]);
    let other = asked(&catalog, "t SET (partitions = 2, policy = sync, factor = 1)").expect("good");
    let plan = MovePlan::of(&known, &other.expect("a move").options).expect("good");
    assert_eq!((plan.request.factor, plan.request.min_in_sync), (Some(1), None));
    for text in ["t SET (policy = sync)", "u SET (partitions = 2)", "t DROP COLUMN v"] {
        assert_eq!(asked(&catalog, text).expect("another one's concern"), None, "{text}");
    }
}

#[test]
fn pr453_numbers_and_checks_come_along() {
    let check = Constraint::new(5, "c", Demand::Check("v > 0".into()));
    let mut parts = table(vec![check.clone()]).schema.into_parts();
    parts.columns[0].rules = Rules { identity: Some(Identity::Always), ..Rules::default() };
    parts.columns[2].rules.default = Some(Fallback::Next(8));
    parts.columns[2].rules.sequence = Some(8);
    let known = TableRecord { schema: Schema::from_parts(parts).expect("valid"), ..table(vec![]) };
    let plan = MovePlan::of(&known, &[]).expect("good");
    let rules = |at: usize| plan.request.schema.columns()[at].rules.clone();
    assert_eq!((rules(0).identity, rules(0).counter), (Some(Identity::Always), Some((1, 0))));
    let serial = rules(1);
    assert_eq!((serial.identity, serial.counter), (Some(Identity::ByDefault), Some((8, 0))));
    assert_eq!((serial.default, serial.sequence), (None, None), "the sequence goes, and its counter stays");
    assert_eq!(plan.request.schema.constraints(), [check]);
}

#[test]
fn a_bare_table_is_spread_again_with_all_that_it_has() {
    let identity = Rules { identity: Some(Identity::Always), ..Rules::default() };
    let mut bare = crate::catalog::example(vec![
        Column::new("id", ColumnType::Int),
        Column::new("v", ColumnType::Int),
        Column::new("n", ColumnType::Int).with(identity),
    ]);
    bare.schema = bare.schema.with_column(Column::new("late", ColumnType::Text)).expect("valid");
    let schema = bare.schema.clone();
    bare.indexes.add(&schema, "by_v", &["v".into()]).expect("valid");
    bare.policy.min_in_sync = 1;
    let known = catalog(crate::DATABASE, vec![bare.clone()]);
    let moved = asked(&known, "t SET (partitions = 8)").expect("good").expect("a move");
    let plan = MovePlan::of(&bare, &moved.options).expect("good");
    assert_eq!((plan.request.partitions, plan.request.factor), (8, Some(1)));
    assert_eq!((plan.request.policy.as_str(), plan.request.min_in_sync), ("durable", Some(1)));
    let (columns, version) = (plan.request.schema.columns(), plan.request.schema.version());
    assert_eq!((columns.len(), version, plan.columns), (4, 1, vec![0, 1, 2, 3]));
    assert_eq!(columns[2].rules.counter, Some((1, 2)), "numbers go on");
    assert_eq!(plan.indexes, [AddIndex { name: "by_v".into(), columns: vec!["v".into()] }]);
    let refused = |table: TableRecord, text: &str| {
        let failure = asked(&catalog(crate::DATABASE, vec![table]), text).expect_err(text);
        (failure.code, failure.message)
    };
    let lazy = Policy::preset("async", 3, LogKind::Disk).expect("valid");
    let (code, message) = refused(TableRecord { policy: lazy, ..bare.clone() }, "t SET (partitions = 8)");
    assert!(code == "0A000" && message.contains("out of partitions whose policy is async"), "{message}");
    let own = TableRecord { name: "sys_sequences".into(), ..bare };
    assert_eq!(refused(own, "sys_sequences SET (partitions = 8)").0, "42501");
}

#[test]
fn a_bare_table_comes_into_a_database() {
    let bare = crate::catalog::example(vec![Column::new("id", ColumnType::Int)]);
    let known = catalog(crate::DATABASE, vec![bare.clone()]);
    let moved = asked(&known, "t SET (database = understudy)").expect("good").expect("a move");
    assert_eq!(destination(&moved.options), Ok(Some(crate::DATABASE.into())));
    let other = asked(&known, "t SET (database = bank)").expect("good").expect("a move");
    assert_eq!(destination(&other.options), Ok(Some("bank".into())));
    let lazy = Policy::preset("async", 3, LogKind::Disk).expect("valid");
    let lazy = catalog(crate::DATABASE, vec![TableRecord { policy: lazy, ..bare }]);
    for (catalog, text, code) in [
        (&known, "t SET (database = understudy, policy = sync)", "22023"),
        (&lazy, "t SET (database = understudy)", "0A000"),
    ] {
        assert_eq!(asked(catalog, text).map_err(|failure| failure.code), Err(code), "{text}");
    }
    // One that lies there already is another one's concern.
    let within = catalog(crate::DATABASE, vec![table(vec![])]);
    assert_eq!(asked(&within, "t SET (database = understudy)").expect("not a move"), None);
    // From one database into another.
    assert!(asked(&within, "t SET (database = bank)").expect("good").is_some());
    let bank = catalog("bank", vec![table(vec![])]);
    for text in ["t SET (database = understudy)", "t SET (partitions = 4)"] {
        assert!(asked(&bank, text).expect("good").is_some(), "{text}");
    }
    assert_eq!(asked(&bank, "t SET (database = bank)").expect("not a move"), None);
}

#[test]
fn pr404_what_takes_the_place_of_a_bare_table_is_not_written_again_by_who_lifts_holds() {
    let columns = table(vec![]).schema;
    let held = CatalogTable { held_ms: Some(5), ..CatalogTable::new(TableId(7), "t", columns, 1) };
    let mut follows = CatalogTable { id: TableId(8), name: "u".into(), ..held.clone() };
    follows.unknown.insert(CatalogTable::FOLLOWS.into(), 3.into());
    let mut under_way = UnderWay::default();
    assert!(!under_way.is_waited_for());
    under_way.note_named(&follows);
    assert!(under_way.is_waited_for() && under_way.held.is_empty());
    under_way.note_named(&held);
    assert_eq!(under_way.held, BTreeMap::from([(TableId(7), 5)]));
    assert_eq!(under_way.following, [Following { id: TableId(8), of: TableId(3), since_ms: 5 }]);
    // One that gets rows, and that somebody has altered by the name under which it is shown, is not decided.
    let altered = CatalogTable { id: TableId(9), name: system::moving(TableId(9)), held_ms: None, ..held };
    under_way.note_named(&altered);
    assert_eq!(under_way.named, BTreeSet::from([TableId(7), TableId(8)]));
}

#[test]
fn what_partitions_of_ones_own_cannot_have_is_refused_by_name() {
    let refused = |catalog: &Catalog, text: &str, says: &str| {
        let failure = asked(catalog, text).expect_err(says);
        assert!(failure.code == "0A000" && failure.message.contains(says), "{says}: {failure:?}");
    };
    let of = |constraint: Constraint| catalog(crate::DATABASE, vec![table(vec![constraint])]);
    let set = "t SET (partitions = 4)";
    refused(&of(Constraint::new(5, "u", Demand::Unique(vec![2]))), set, "UNIQUE");
    let late = Constraint::new(5, "c", Demand::Check("v > 0".into())).turned(Standing::Building);
    refused(&of(late), set, "a CHECK that is not valid");
    let building = Constraint::new(5, "i", Demand::Index(vec![2])).turned(Standing::Building);
    refused(&of(building), set, "an index that is not ready");
    let reference = Reference {
        columns: vec![2],
        parent: TableId(1),
        parent_columns: vec![0],
        on_delete: Action::None,
        on_update: Action::None,
        deferred: None,
    };
    let foreign = Constraint::new(5, "f", Demand::Foreign(reference));
    refused(&of(foreign.clone()), set, "a foreign key");
    let child = TableRecord { id: TableId(2), name: "child".into(), ..table(vec![foreign]) };
    refused(&catalog(crate::DATABASE, vec![table(vec![]), child]), set, "to which others refer");
    let plain = || table(vec![]);
    let named = TableRecord { name: "a-b".into(), ..plain() };
    refused(&catalog(crate::DATABASE, vec![named]), "\"a-b\" SET (partitions = 4)", "whose name");
    let numbered = |rules: Rules| {
        let mut parts = plain().schema.into_parts();
        parts.columns[2].rules = rules;
        TableRecord { schema: Schema::from_parts(parts).expect("valid"), ..plain() }
    };
    let with = |rules: Rules, step: i64| {
        let how = Sequence { bits: 64, start: 1, step, least: 1, most: i64::MAX, cycle: false };
        let made = crate::numbering::defined(TableId(8), "t_v_seq", how);
        let sequence = TableRecord { id: made.id, name: made.name, schema: made.schema, ..plain() };
        catalog(crate::DATABASE, vec![numbered(rules), sequence])
    };
    let (default, own) = (Some(Fallback::Next(8)), Some(8));
    let serial = || Rules { default: default.clone(), sequence: own, ..Rules::default() };
    refused(&with(Rules { default: default.clone(), ..Rules::default() }, 1), set, "does not go with it");
    refused(&with(Rules { sequence: own, ..Rules::default() }, 1), set, "by nothing");
    refused(&with(serial(), 2), set, "otherwise than from 1 on in steps of 1");
    for rules in [serial(), Rules { identity: Some(Identity::Always), ..Rules::default() }] {
        assert!(asked(&with(rules, 1), set).expect("it goes on").is_some());
    }
    let known = catalog(crate::DATABASE, vec![plain()]);
    refused(&known, "t SET (partitions = 4, policy = async)", "whose policy is async");
    for (text, code) in [("t SET (partitions = x)", "22023"), ("t SET (partitions = 2, speed = 1)", "22023")]
    {
        assert_eq!(asked(&known, text).map_err(|failure| failure.code), Err(code), "{text}");
    }
}

#[test]
fn pr379_only_what_no_catalog_speaks_of_is_dropped() {
    let fill = Fill { id: TableId(5), version: 1, of: TableId(1), since_ms: 0 };
    let moved = Moved { id: TableId(6), version: 2, name: "u".into(), since_ms: 0 };
    let under_way = UnderWay { fills: vec![fill], moved: vec![moved], ..UnderWay::default() };
    let catalog = catalog(crate::DATABASE, vec![table(vec![])]).with(under_way);
    let filled = [5, 6, 7].map(|number| (TableId(number), system::moving(TableId(number))));
    let gone: Vec<String> = unneeded(&catalog, filled.to_vec()).collect();
    assert_eq!(gone, ["sys_moving_7"]);
    assert!(catalog.has_relation("u"), "nothing else gets the name meanwhile");
}

//! CREATE DATABASE and DROP DATABASE, and tables of the database that a session is in.

use crate::bind::folded;
use crate::catalog::{Catalog, Fill, UnderWay};
use crate::constraints::define::{self, Declared, Place};
use crate::constraints::{children, lacking, violation};
use crate::ddl::{self, on_a_client};
use crate::driver::Handle;
use crate::fault;
use crate::read::CALL;
use client::{Client, ClientError, Table, created};
use pg::{Failure, code};
use sqlparser::ast::{ObjectName, SqlOption};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::data::Schema;
use types::data::constraint::{Constraint, Demand, Standing};
use types::system::SEQUENCES;
use types::{CatalogTable, TableId, TableRecord};
use wire::control::{AdminCommand, CreateTable as Request};
use wire::{RecordText, TableChange};

/// How often tables are looked at again because somebody else has changed them.
const LOOKS: usize = 8;
/// A table that somebody holds and has not spoken of for so long is written again.
const PATIENCE_MS: u64 = 60_000;
/// A transaction fills a table for at most so long.
const LONGEST_LOAD_MS: u64 = 6 * 3_600_000;

/// CREATE DATABASE or DROP DATABASE as it is written. The parser's own knows no options.
#[derive(Clone, Debug)]
pub enum DatabaseStatement {
    /// Makes one.
    Create {
        /// Its name.
        name: ObjectName,
        /// How it is kept.
        options: Vec<SqlOption>,
    },
    /// Drops one.
    Drop {
        /// Its name.
        name: ObjectName,
        /// One that there is not is skipped.
        if_exists: bool,
        /// Also if it has tables, or somebody is in it.
        force: bool,
    },
}

/// A statement on databases, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<DatabaseStatement>, ParserError> {
    if parser.parse_keywords(&[Keyword::CREATE, Keyword::DATABASE]) {
        let name = parser.parse_object_name(false)?;
        let with = parser.parse_keyword(Keyword::WITH);
        let options = match with && parser.peek_token_ref().token == Token::LParen {
            true => {
                parser.expect_token(&Token::LParen)?;
                let options = parser.parse_comma_separated(Parser::parse_sql_option)?;
                parser.expect_token(&Token::RParen)?;
                options
            }
            false => Vec::new(),
        };
        return Ok(Some(DatabaseStatement::Create { name, options }));
    }
    if parser.parse_keywords(&[Keyword::DROP, Keyword::DATABASE]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        let _ = parser.parse_keyword(Keyword::WITH);
        let force = parser.consume_token(&Token::LParen);
        if force {
            parser.expect_keyword(Keyword::FORCE)?;
            parser.expect_token(&Token::RParen)?;
        }
        return Ok(Some(DatabaseStatement::Drop { name, if_exists, force }));
    }
    Ok(None)
}

/// The name of a database.
pub fn name(name: &ObjectName) -> Result<String, Failure> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(folded),
        _ => None,
    }
    .ok_or_else(|| Failure::new(code::SYNTAX, format!("syntax error at \"{name}\"")))
}

/// The cluster's request for a CREATE DATABASE.
pub fn request(named: &ObjectName, options: &[SqlOption]) -> Result<Request, Failure> {
    let mut request = Request::database(&name(named)?, "durable");
    options.iter().try_for_each(|option| ddl::apply(option, &mut request))?;
    let asked = (request.partitions, request.schema.clone());
    if asked != (1, types::database::catalog_schema()) {
        let hint = "a database has one partition for now: leave partitions and partition_by out";
        return Err(Failure::unsupported("a database of several partitions", hint));
    }
    Ok(request)
}

/// Makes a database, and waits until it serves and this node knows it.
pub async fn create(handle: &Handle, request: Request) -> Result<(), Failure> {
    let name = request.name.clone();
    let exists = || Failure::new("42P04", format!("database \"{name}\" already exists"));
    if name == crate::DATABASE || handle.map().database(&name).is_some() {
        return Err(exists());
    }
    let made = on_a_client(handle, move |client| client.create_database(&request).map(drop)).await;
    made.map_err(|failure| if fault::is_taken(&failure) { exists() } else { failure })?;
    handle.wait_map(|map| map.database(&name).is_some()).await;
    Ok(())
}

fn missing_database(name: &str) -> Failure {
    Failure::new("3D000", format!("database \"{name}\" does not exist"))
}

/// Drops a database. `used`: somebody of this node is in it.
pub async fn drop_one(
    handle: &Handle,
    name: &str,
    (if_exists, force, used): (bool, bool, bool),
) -> Result<(), Failure> {
    let found = handle.map().database(name).cloned();
    let Some(record) = found else {
        return match if_exists {
            true => Ok(()),
            false if name == crate::DATABASE => {
                Err(Failure::new("42501", format!("database \"{name}\" is the cluster's own")))
            }
            false => Err(missing_database(name)),
        };
    };
    if handle.database() == Some(record.id) {
        return Err(Failure::new("55006", "cannot drop the currently open database"));
    }
    let hint = format!("DROP DATABASE {name} WITH (FORCE) drops it with its tables, whoever is in it");
    if used && !force {
        let message = format!("database \"{name}\" is being accessed by other users");
        return Err(Failure::new("55006", message).hint(hint));
    }
    if !force && handle.within(Some(record.id)).look().await?.all().next().is_some() {
        let message = format!("cannot drop database \"{name}\" because it has tables");
        return Err(Failure::new("2BP01", message).hint(hint));
    }
    let asked = name.to_string();
    let dropped =
        on_a_client(handle, move |client| client.admin(AdminCommand::DropDatabase(asked)).map(drop)).await;
    match dropped {
        // Somebody else was faster.
        Err(failure) if failure.code == "42P01" && !if_exists => return Err(missing_database(name)),
        Err(failure) if failure.code != "42P01" => return Err(failure),
        _ => {}
    }
    handle.wait_map(|map| map.owner(record.id).is_none()).await;
    Ok(())
}

/// Changes tables of the session's database, all or none. `make` says what is to change from what there is;
/// it is asked again where somebody else was faster. What others have left half done is cleared away with it.
pub async fn change(
    handle: &Handle,
    make: impl Fn(&Catalog) -> Result<Vec<TableChange>, Failure>,
) -> Result<(), Failure> {
    let mut looks = 0;
    loop {
        let catalog = handle.look().await?;
        let mut changes = make(&catalog)?;
        if changes.is_empty() {
            return Ok(());
        }
        let more: Vec<_> =
            abandoned(&catalog).into_iter().filter(|change| !changes.contains(change)).collect();
        changes.extend(more);
        let call = handle.database_record()?.transact(changes, Vec::new(), None).within(CALL);
        match fault::decided(handle.call(call).await) {
            Err(failure) if fault::is_stale(&failure) && looks < LOOKS => looks += 1,
            Err(failure) => return Err(failure),
            Ok(_) => {
                handle.look_again().await;
                return Ok(());
            }
        }
    }
}

/// What removes tables that nobody fills any more.
fn abandoned(catalog: &Catalog) -> Vec<TableChange> {
    let UnderWay { held, fills } = &catalog.under_way;
    let over = |fill: &&Fill| match fill.of == fill.id {
        true => client::wall_ms().saturating_sub(fill.since_ms) > LONGEST_LOAD_MS,
        false => !held.contains_key(&fill.of),
    };
    let drop = |fill: &Fill| TableChange::Drop { table: fill.id, schema: fill.version };
    fills.iter().filter(over).map(drop).collect()
}

/// Lets tables be written again that somebody has held and not spoken of for long.
pub async fn lift_abandoned(handle: &Handle) -> Result<(), Failure> {
    let catalog = handle.look().await?;
    let over = |since: &u64| client::wall_ms().saturating_sub(*since) > PATIENCE_MS;
    let over: Vec<TableId> =
        catalog.under_way.held.iter().filter(|(_, since)| over(since)).map(|(id, _)| *id).collect();
    for id in over {
        let Some(table) = catalog.all().find(|table| table.id == id) else { continue };
        let version = numbers(handle, 1).await?;
        let to = as_of(table, version);
        let mut changes = vec![TableChange::Alter { from: table.schema.version(), to: RecordText::new(&to) }];
        changes.extend(fills_of(&catalog, id));
        let call = handle.database_record()?.transact(changes, Vec::new(), None).within(CALL);
        match fault::decided(handle.call(call).await) {
            // Somebody was faster.
            Err(failure) if fault::is_stale(&failure) => {}
            done => drop(done?),
        }
    }
    Ok(())
}

/// What removes the tables that are being filled for this one.
fn fills_of(catalog: &Catalog, id: TableId) -> impl Iterator<Item = TableChange> {
    let own = catalog.under_way.fills.iter().filter(move |fill| fill.of == id && fill.id != id);
    own.map(|fill| TableChange::Drop { table: fill.id, schema: fill.version })
}

/// A table's definition under another version.
pub fn as_of(table: &TableRecord, version: u32) -> CatalogTable {
    let mut parts = table.schema.clone().into_parts();
    parts.version = version;
    let schema = Schema::from_parts(parts).expect("a version that was given out");
    CatalogTable::new(table.id, &table.name, schema, table.created_ms)
}

/// Numbers that no table of the cluster had, the first of so many.
pub async fn numbers(handle: &Handle, count: u32) -> Result<u32, Failure> {
    on_a_client(handle, move |client| client.numbers(count)).await
}

/// Makes the table that numbers rows, if these columns need it.
pub async fn counted(handle: &Handle, schema: &Schema) -> Result<(), Failure> {
    if !schema.columns().iter().any(|column| column.rules.identity.is_some()) {
        return Ok(());
    }
    if handle.within(None).catalog().is_some_and(|catalog| catalog.table(SEQUENCES).is_some()) {
        return Ok(());
    }
    on_a_client(handle, ddl::counters).await?;
    handle.within(None).wait_catalog(|catalog| catalog.table(SEQUENCES).is_some()).await;
    Ok(())
}

/// The error of a name that a table has.
pub fn taken(name: &str) -> Failure {
    Failure::new("42P07", format!("relation \"{name}\" already exists"))
}

/// Makes a table in the session's database. False: there is one already, and that is allowed.
pub async fn create_table(
    handle: &Handle,
    (name, schema, declared): (String, Schema, Vec<Declared>),
    if_not_exists: bool,
) -> Result<bool, Failure> {
    let exists = |catalog: &Catalog| catalog.table(&name).is_some();
    if exists(&*handle.look().await?) {
        return if if_not_exists { Ok(false) } else { Err(taken(&name)) };
    }
    counted(handle, &schema).await?;
    let first = numbers(handle, 1 + declared.len() as u32).await?;
    let made = change(handle, |catalog| match exists(catalog) {
        true => Err(taken(&name)),
        false => Ok(vec![created(&constrained(catalog, (&name, &schema, &declared), first)?)]),
    });
    match made.await {
        // The name of a constraint may be taken, too: then the failure says which.
        Err(failure) if failure.message == taken(&name).message && if_not_exists => Ok(false),
        Err(failure) if failure.code == "42P07" && !failure.message.starts_with("relation") => {
            Err(taken(&name))
        }
        done => done.map(|()| true),
    }
}

/// A new table with its constraints. It gets the first of these numbers, and the constraints the others.
pub fn constrained(
    catalog: &Catalog,
    (name, schema, declared): (&str, &Schema, &[Declared]),
    first: u32,
) -> Result<CatalogTable, Failure> {
    let place = Place { catalog, name, id: TableId(first), schema };
    let constraints = place.resolve(declared, first + 1)?;
    let schema = schema.clone().with_constraints(constraints).map_err(define::invalid)?;
    Ok(CatalogTable::new(TableId(first), name, schema, client::wall_ms()))
}

/// The error of a table that there is not.
pub fn missing(name: &str) -> Failure {
    Failure::new("42P01", format!("table \"{name}\" does not exist"))
}

/// Drops tables of the session's database in one entry; with `cascade` also the foreign keys of others that
/// refer to them. What the client may want to know.
pub async fn drop_tables(
    handle: &Handle,
    names: Vec<String>,
    (if_exists, cascade): (bool, bool),
) -> Result<Vec<String>, Failure> {
    let before = handle.look().await?;
    let versions = match cascade {
        true => numbers(handle, before.all().count().max(1) as u32).await?,
        false => 0,
    };
    let make = |catalog: &Catalog| {
        let (found, missed): (Vec<_>, Vec<_>) = names.iter().partition(|name| catalog.table(name).is_some());
        if let Some(name) = missed.first().filter(|_| !if_exists) {
            return Err(missing(name));
        }
        let mut changes = Vec::new();
        let mut ids = BTreeSet::new();
        for table in found.into_iter().filter_map(|name| catalog.table(name)) {
            if ids.insert(table.id) {
                changes.push(TableChange::Drop { table: table.id, schema: table.schema.version() });
                changes.extend(fills_of(catalog, table.id));
            }
        }
        let referring = referring(catalog, &ids);
        if !cascade {
            not_referred(catalog, &referring)?;
        }
        let gone = referring.iter().map(|(_, foreign, _)| foreign.number).collect();
        for ((id, constraints), version) in lacking(catalog, &gone).into_iter().zip(versions..) {
            let kept = catalog.all().find(|table| table.id == id && !ids.contains(&id));
            let Some(table) = kept else { continue };
            let to = as_of(table, version).constrained(constraints);
            let to = to.map_err(|why| Failure::new("42P16", why))?;
            changes.push(TableChange::Alter { from: table.schema.version(), to: RecordText::new(&to) });
        }
        Ok(changes)
    };
    change(handle, make).await?;
    let missed = names.iter().filter(|name| before.table(name).is_none());
    let mut notes: Vec<String> =
        missed.map(|name| format!("table \"{name}\" does not exist, skipping")).collect();
    let ids = names.iter().filter_map(|name| before.table(name)).map(|table| table.id).collect();
    notes.extend(referring(&before, &ids).into_iter().map(|(child, foreign, _)| {
        format!("drop cascades to constraint {} on table {}", foreign.name, child.name)
    }));
    Ok(notes)
}

/// A foreign key of another table, that table, and the id that it refers to.
type Referring = (Arc<TableRecord>, Constraint, TableId);

/// The foreign keys of other tables that refer to one of these.
pub fn referring(catalog: &Catalog, ids: &BTreeSet<TableId>) -> Vec<Referring> {
    let mut found = Vec::new();
    for id in ids {
        let others = children(catalog, *id).into_iter().filter(|(child, ..)| !ids.contains(&child.id));
        found.extend(others.map(|(child, foreign, _)| (child, foreign, *id)));
    }
    found
}

/// The error of a table that is to go, and another one refers to it.
pub fn not_referred(catalog: &Catalog, referring: &[Referring]) -> Result<(), Failure> {
    let Some((child, foreign, id)) = referring.first() else { return Ok(()) };
    let name = catalog.all().find(|table| table.id == *id).map(|table| table.name.clone());
    let name = name.unwrap_or_default();
    let message = format!("cannot drop table {name} because other objects depend on it");
    let detail = format!("constraint {} on table {} depends on table {name}", foreign.name, child.name);
    Err(violation::depended_on(message, detail))
}

/// Tables without a row under the names of these, in one entry.
pub async fn truncate(handle: &Handle, names: &[String], restart: bool) -> Result<(), Failure> {
    let first = numbers(handle, names.len() as u32).await?;
    change(handle, |catalog| {
        let mut changes = Vec::new();
        let mut ids = BTreeSet::new();
        let renamed = renamed(catalog, names, first)?;
        for (name, id) in names.iter().zip(first..) {
            let no = || Failure::new("42P01", format!("relation \"{name}\" does not exist"));
            let table = catalog.table(name).ok_or_else(no)?;
            if ids.insert(table.id) {
                changes.push(TableChange::Drop { table: table.id, schema: table.schema.version() });
                changes.extend(fills_of(catalog, table.id));
                changes.push(created(&emptied(table, (TableId(id), &renamed), restart)));
            }
        }
        Ok(changes)
    })
    .await
}

/// The ids that tables get which are truncated. The error: another table refers to one of them.
pub fn renamed(
    catalog: &Catalog,
    names: &[String],
    first: u32,
) -> Result<BTreeMap<TableId, TableId>, Failure> {
    let mut renamed = BTreeMap::new();
    for (name, id) in names.iter().zip(first..) {
        if let Some(table) = catalog.table(name) {
            renamed.entry(table.id).or_insert(TableId(id));
        }
    }
    let ids = renamed.keys().copied().collect();
    let Some((child, _, id)) = referring(catalog, &ids).into_iter().next() else { return Ok(renamed) };
    let name = catalog.all().find(|table| table.id == id).map(|table| table.name.clone());
    let (name, child) = (name.unwrap_or_default(), &child.name);
    Err(Failure::new("0A000", "cannot truncate a table referenced in a foreign key constraint")
        .detail(format!("Table \"{child}\" references \"{name}\"."))
        .hint(format!("Truncate table \"{child}\" at the same time.")))
}

/// A table's definition for another id, which has none of its rows. Numbers go on, or begin again. Foreign
/// keys refer to the other ids that tables get with it.
pub fn emptied(
    table: &TableRecord,
    (id, renamed): (TableId, &BTreeMap<TableId, TableId>),
    restart: bool,
) -> CatalogTable {
    let mut parts = table.schema.clone().into_parts();
    parts.version = 1;
    parts.constraints.retain(Constraint::is_enforced);
    for constraint in &mut parts.constraints {
        constraint.standing = Standing::Valid;
        if let Demand::Foreign(reference) = &mut constraint.demand {
            reference.parent = renamed.get(&reference.parent).copied().unwrap_or(reference.parent);
        }
    }
    for (at, column) in parts.columns.iter_mut().enumerate() {
        let rules = &mut column.rules;
        rules.counter = match rules.identity.is_some() && !rules.hidden && !restart {
            true => rules.counter.or(Some((table.id.0, at as u32))),
            false => None,
        };
    }
    let schema = Schema::from_parts(parts).expect("columns that a table has");
    CatalogTable::new(id, &table.name, schema, client::wall_ms())
}

/// A database's tables are kept as it is.
pub fn refuse_storage(request: &wire::control::AlterTable) -> Result<(), Failure> {
    let others = wire::control::AlterTable { add_columns: Vec::new(), ..request.clone() };
    if others == (wire::control::AlterTable { name: request.name.clone(), ..Default::default() }) {
        return Ok(());
    }
    let hint = "a database's tables are kept as it is: `understudy database alter` changes that";
    Err(Failure::unsupported("SET of a table in a database", hint))
}

/// ALTER TABLE in the session's database: new columns.
pub async fn alter_table(handle: &Handle, request: wire::control::AlterTable) -> Result<(), Failure> {
    refuse_storage(&request)?;
    let columns = request.add_columns.clone();
    let missing = || Failure::new("42P01", format!("relation \"{}\" does not exist", request.name));
    let table = handle.current().await?.table(&request.name).cloned().ok_or_else(missing)?;
    let name = request.name.clone();
    on_a_client(handle, move |client: &mut Client| {
        let wrong = |error: types::data::SchemaError| ClientError::Data {
            table: name.clone(),
            why: error.to_string(),
        };
        let altered = client.alter_table_in(&Table::new(table), |table| {
            let mut schema = table.schema().clone();
            for column in &columns {
                schema = schema.with_column(column.clone()).map_err(wrong)?;
            }
            Ok((table.name().to_string(), schema))
        });
        altered.map(drop)
    })
    .await?;
    handle.look_again().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;

    fn parsed(text: &str) -> Result<Option<DatabaseStatement>, ParserError> {
        parse(&mut Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?)
    }

    #[test]
    fn statements_on_databases_are_read_with_their_options() {
        let request = |text: &str| match parsed(text) {
            Ok(Some(DatabaseStatement::Create { name, options })) => request(&name, &options),
            other => panic!("{text}: {other:?}"),
        };
        let plain = request("CREATE DATABASE Bank").expect("good");
        assert_eq!((plain.name.as_str(), plain.holds), ("bank", types::Holds::Database));
        let with = request("CREATE DATABASE bank WITH (policy = semi, factor = 2)").expect("good");
        assert_eq!((with.policy.as_str(), with.factor), ("semi", Some(2)));
        assert_eq!(request("CREATE DATABASE bank WITH (partitions = 6)").map_err(|f| f.code), Err("0A000"));
        assert_eq!(request("CREATE DATABASE bank WITH (speed = 6)").map_err(|f| f.code), Err("22023"));
        for (text, skips, forces) in [
            ("DROP DATABASE bank", false, false),
            ("DROP DATABASE IF EXISTS bank", true, false),
            ("DROP DATABASE bank WITH (FORCE)", false, true),
            ("DROP DATABASE bank (FORCE)", false, true),
        ] {
            let Ok(Some(DatabaseStatement::Drop { if_exists, force, .. })) = parsed(text) else {
                panic!("{text}")
            };
            assert_eq!((if_exists, force), (skips, forces), "{text}");
        }
        assert!(matches!(parsed("CREATE TABLE t (id int)"), Ok(None)));
        assert!(parsed("DROP DATABASE bank WITH (SOFT)").is_err());
    }
}

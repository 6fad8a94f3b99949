//! CREATE DATABASE and DROP DATABASE, and tables of the database that a session is in.

mod altered;

pub use altered::Written;

use crate::ahead;
use crate::bind::folded;
use crate::catalog::{Catalog, Fill, UnderWay};
use crate::constraints::define::{self, Declared, Place};
use crate::constraints::{children, violation};
use crate::ddl::{self, on_a_client};
use crate::driver::Handle;
use crate::fault;
use crate::held::STALE_HOLD_MS;
use crate::losses::Losses;
use crate::moved;
use crate::numbering;
use crate::occupied;
use crate::several;
use crate::system::sessions::Sessions;
use crate::views;
use client::created;
use pg::{Failure, Reason, code};
use sqlparser::ast::{ObjectName, SqlOption};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::Schema;
use types::data::constraint::Constraint;
use types::system::SEQUENCES;
use types::{CatalogTable, Ranges, TableId, TableRecord};
use wire::control::{AdminCommand, CreateTable as Request};
use wire::{RecordText, TableChange};

/// How often tables are looked at again because somebody else has changed them.
const MAX_ATTEMPTS: usize = 8;
/// A transaction fills a table for at most so long.
const LONGEST_LOAD_MS: u64 = 6 * 3_600_000;

/// CREATE, ALTER or DROP DATABASE as it is written. The parser's own knows no options.
#[derive(Clone, Debug)]
pub enum DatabaseStatement {
    /// Makes one.
    Create {
        /// Its name.
        name: ObjectName,
        /// How it is kept.
        options: Vec<SqlOption>,
    },
    /// Alters one.
    Alter {
        /// Its name.
        name: ObjectName,
        /// What is written behind that.
        written: Written,
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
    if parser.parse_keywords(&[Keyword::ALTER, Keyword::DATABASE]) {
        return altered::parse(parser).map(Some);
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
    let mut bounds = None;
    for option in options {
        match option {
            SqlOption::KeyValue { key, value } if folded(key) == "ranges" => {
                bounds = Some(ddl::option_text(value)?);
            }
            SqlOption::KeyValue { key, value } if folded(key) == "partition_by" => {
                let by = several::partition_key(&ddl::option_text(value)?)?;
                request.schema = types::database::catalog_schema_by(&by).map_err(define::invalid)?;
            }
            SqlOption::KeyValue { key, value } if folded(key) == "transactions" => {
                request.global = several::are_global(&ddl::option_text(value)?)?;
            }
            option => ddl::apply(option, &mut request)?,
        }
    }
    if let (Some(bounds), Some(column)) = (&bounds, request.schema.columns().get(2)) {
        let invalid =
            |why: String| Failure::new("22023", format!("invalid value for parameter \"ranges\": {why}"));
        request.ranges = Ranges::parse(bounds, column).map_err(invalid)?;
        let fault = request.ranges.fault(&request.schema.columns()[2..], request.partitions.max(1));
        fault.map_or(Ok(()), |why| Err(invalid(why)))?;
    }
    match (request.partitions, request.schema.columns().len() > 2) {
        (_, false) if bounds.is_some() => {
            Err(Failure::new("22023", "ranges are of a partition key, and there is none")
                .hint("say partitions and partition_by, too"))
        }
        (_, false) if request.global => Ok(request),
        (_, true) if request.global => Err(Failure::new("22023", "a database of global transactions has no partition_by")
            .hint("each of its tables is spread by its own primary key")),
        (1, false) | (2.., true) => Ok(request),
        (1, true) => Err(Failure::new("22023", "a database of one partition has no partition_by")
            .hint("say how many partitions it is to have: partitions = 6")),
        _ => Err(Failure::new("22023", "a database of several partitions needs partition_by")
            .hint("name the columns that all primary keys begin with, partition_by = '(w_id)', or let transactions reach over all partitions, transactions = global")),
    }
}

/// Makes a database, and waits until it serves and this node knows it.
pub async fn create(handle: &Handle, request: Request) -> Result<(), Failure> {
    let name = request.name.clone();
    let exists = || Failure::new("42P04", format!("database \"{name}\" already exists"));
    if name == crate::DATABASE || handle.map().database(&name).is_some() {
        return Err(exists());
    }
    let made = on_a_client(handle, move |client| match request.global {
        true => client.create_global_database(&request).map(drop),
        false => client.create_database(&request).map(drop),
    });
    let made = made.await;
    made.map_err(|failure| if fault::is_taken(&failure) { exists() } else { failure })?;
    handle.wait_map(|map| map.database(&name).is_some()).await;
    Ok(())
}

/// The error of a database that there is not.
pub fn missing_database(name: &str) -> Failure {
    Failure::new("3D000", format!("database \"{name}\" does not exist"))
}

/// Drops a database. If that is not forced, nobody is in it, on no node; `sessions` are those of this one.
pub async fn drop_one(
    handle: &Handle,
    name: &str,
    (if_exists, force): (bool, bool),
    sessions: &Arc<Sessions>,
) -> Result<(), Failure> {
    if name == crate::DATABASE {
        let hint = "it is always there: drop tables of it";
        return Err(Failure::new("42501", format!("database \"{name}\" is the cluster's own")).hint(hint));
    }
    let found = handle.map().database(name).cloned();
    let Some(record) = found else {
        return if if_exists { Ok(()) } else { Err(missing_database(name)) };
    };
    if handle.database() == Some(record.id) {
        return Err(Failure::new("55006", "cannot drop the currently open database"));
    }
    let hint = format!("DROP DATABASE {name} WITH (FORCE) drops it with its tables, whoever is in it");
    if !force {
        occupied::unused(handle, sessions, &record).await.map_err(|failure| failure.hint(hint))?;
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

/// Makes the partition in which tables lie together of the database that is always there, unless it is there,
/// or the session is in another database.
pub async fn share(handle: &Handle) -> Result<(), Failure> {
    if handle.database().is_some() {
        return Ok(());
    }
    let request = Request::database(crate::DATABASE, "durable");
    match on_a_client(handle, move |client| client.create_database(&request).map(drop)).await {
        // Somebody else was faster.
        Err(failure) if fault::is_taken(&failure) => {}
        made => made?,
    }
    handle.wait_map(|map| map.database(crate::DATABASE).is_some()).await;
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
        // Not where that was refused: another copy may refer to one of these.
        let more = abandoned(&catalog).into_iter().filter(|_| looks == 0);
        let more: Vec<_> = more.filter(|change| !changes.contains(change)).collect();
        changes.extend(more);
        match several::enter(handle, changes).await {
            Err(failure) if fault::is_stale(&failure) && looks < MAX_ATTEMPTS => looks += 1,
            Err(failure) => return Err(failure),
            Ok(()) => {
                handle.look_again().await;
                return Ok(());
            }
        }
    }
}

/// What removes tables that nobody fills any more.
fn abandoned(catalog: &Catalog) -> Vec<TableChange> {
    let UnderWay { held, fills, .. } = &catalog.under_way;
    let over = |fill: &&Fill| match fill.of == fill.id {
        true => client::wall_ms().saturating_sub(fill.since_ms) > LONGEST_LOAD_MS,
        false => !held.contains_key(&fill.of),
    };
    let drop = |fill: &Fill| TableChange::Drop { table: fill.id, schema: fill.version };
    fills.iter().filter(over).map(drop).collect()
}

/// Lets tables be written again that somebody has held and not spoken of for long.
pub async fn lift_abandoned(handle: &Handle) -> Result<(), Failure> {
    let catalog = moved::settled(handle).await?;
    let over = |since: &u64| client::wall_ms().saturating_sub(*since) > STALE_HOLD_MS;
    let over: Vec<TableId> =
        catalog.under_way.held.iter().filter(|(_, since)| over(since)).map(|(id, _)| *id).collect();
    let lifted = !over.is_empty();
    for id in over {
        let Some(table) = catalog.all().find(|table| table.id == id) else { continue };
        let version = numbers(handle, 1).await?;
        let to = ahead::freed(table, version)?;
        let mut changes = vec![TableChange::Alter { from: table.schema.version(), to: RecordText::new(&to) }];
        changes.extend(fills_of(&catalog, id));
        // Copies of other tables may refer to these.
        let more: Vec<_> =
            abandoned(&catalog).into_iter().filter(|change| !changes.contains(change)).collect();
        changes.extend(more);
        match several::enter(handle, changes).await {
            // Somebody was faster.
            Err(failure) if fault::is_stale(&failure) => {}
            done => done?,
        }
    }
    if lifted {
        moved::settled(handle).await?;
    }
    Ok(())
}

/// Drops what nobody fills any more, and lets tables be written again that nobody speaks of for long, as this
/// catalog shows them, which was read when all partitions had the same tables (PR-503).
pub async fn clear(handle: &Handle, catalog: &Catalog) -> Result<(), Failure> {
    let over = |since: &u64| client::wall_ms().saturating_sub(*since) > STALE_HOLD_MS;
    if catalog.under_way.held.values().any(over) {
        return lift_abandoned(handle).await;
    }
    let changes = abandoned(catalog);
    if changes.is_empty() {
        return Ok(());
    }
    match several::enter(handle, changes).await {
        // Somebody was faster, or fills one of them still.
        Err(failure) if fault::is_stale(&failure) => Ok(()),
        done => done,
    }
}

/// What removes the tables that are being filled for this one.
pub fn fills_of(catalog: &Catalog, id: TableId) -> impl Iterator<Item = TableChange> {
    let own = catalog.under_way.fills.iter().filter(move |fill| fill.of == id && fill.id != id);
    own.map(|fill| TableChange::Drop { table: fill.id, schema: fill.version })
}

/// Numbers that no table of the cluster had, the first of so many.
pub async fn numbers(handle: &Handle, count: u32) -> Result<u32, Failure> {
    on_a_client(handle, move |client| client.numbers(count)).await
}

/// Makes the table that numbers rows, if these columns need it.
pub async fn counted(handle: &Handle, schema: &Schema) -> Result<(), Failure> {
    match schema.columns().iter().any(crate::columns::is_numbered) {
        true => counters(handle).await,
        false => Ok(()),
    }
}

/// Makes the table that numbers rows, if it is not there.
pub async fn counters(handle: &Handle) -> Result<(), Failure> {
    if handle.bare().catalog().is_some_and(|catalog| catalog.table(SEQUENCES).is_some()) {
        return Ok(());
    }
    on_a_client(handle, ddl::counters).await?;
    handle.bare().wait_catalog(|catalog| catalog.table(SEQUENCES).is_some()).await;
    Ok(())
}

/// The error of a name that a table has.
pub fn taken(name: &str) -> Failure {
    Failure::new("42P07", format!("relation \"{name}\" already exists")).because(Reason::TableExists)
}

/// Makes a table in the session's database. False: there is one already, and that is allowed.
pub async fn create_table(
    handle: &Handle,
    (name, schema, declared, numbered): ddl::Asked,
    if_not_exists: bool,
) -> Result<bool, Failure> {
    let exists = |catalog: &Catalog| catalog.has_relation(&name);
    if exists(&*moved::settled(handle).await?) {
        return if if_not_exists { Ok(false) } else { Err(taken(&name)) };
    }
    let schema = several::placed(handle, schema)?;
    counted(handle, &schema).await?;
    let first = numbers(handle, (1 + declared.len() + numbered.len()) as u32).await?;
    let made = change(handle, |catalog| {
        if exists(catalog) {
            return Err(taken(&name));
        }
        let sequences = first + 1 + declared.len() as u32;
        let (schema, sequences) = numbering::columns(catalog, (&name, &schema), &numbered, sequences)?;
        let mut changes = vec![created(&constrained(catalog, (&name, &schema, &declared), first)?)];
        changes.extend(sequences.iter().map(created));
        Ok(changes)
    });
    match made.await {
        // The name of a constraint may be taken, too: then the failure says which.
        Err(failure) if failure.reason == Reason::TableExists && if_not_exists => Ok(false),
        Err(failure) if failure.reason == Reason::NameTaken => Err(taken(&name)),
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
    let before = moved::settled(handle).await?;
    let (names, apart) = names.into_iter().partition::<Vec<_>, _>(|name| before.is_within(name));
    let within = before.all().filter(|table| table.database().is_some()).count();
    let versions = match cascade {
        true => numbers(handle, within.max(1) as u32).await?,
        false => 0,
    };
    for name in &apart {
        views::not_shown(&before, name, "table", &BTreeSet::new())?;
    }
    let make = |catalog: &Catalog| {
        let (found, missed): (Vec<_>, Vec<_>) = names.iter().partition(|name| catalog.table(name).is_some());
        if let Some(name) = missed.iter().find(|name| catalog.other(name).is_some()) {
            return Err(Failure::new("42809", format!("\"{name}\" is not a table")));
        }
        if let Some(name) = missed.first().filter(|_| !if_exists) {
            return Err(missing(name));
        }
        let mut changes = Vec::new();
        let mut ids = BTreeSet::new();
        for table in found.into_iter().filter_map(|name| catalog.table(name)) {
            if ids.insert(table.id) {
                changes.push(TableChange::Drop { table: table.id, schema: table.schema.version() });
                changes.extend(fills_of(catalog, table.id));
                changes.extend(numbering::owned(catalog, table).iter().map(|sequence| dropped(sequence)));
                match cascade {
                    false => views::not_shown(catalog, &table.name, "table", &BTreeSet::new())?,
                    true => {
                        let hint = "drop the view first";
                        let shown = views::not_shown(catalog, &table.name, "table", &BTreeSet::new());
                        shown.map_err(|_| Failure::unsupported("DROP TABLE ... CASCADE of views", hint))?;
                    }
                }
            }
        }
        let referring = referring(catalog, &ids);
        if !cascade {
            not_referred(catalog, &referring)?;
            numbering::number_no_others(catalog, &ids)?;
        }
        let foreign = referring.iter().map(|(_, foreign, _)| foreign.number).collect();
        let losses = Losses::new(catalog, &foreign, numbering::owned_by(catalog, &ids), &ids);
        changes.extend(losses.changes(versions)?);
        Ok(changes)
    };
    change(handle, make).await?;
    ddl::drop_tables(handle, apart, if_exists).await?;
    let missed = names.iter().filter(|name| before.table(name).is_none());
    let mut notes: Vec<String> =
        missed.map(|name| format!("table \"{name}\" does not exist, skipping")).collect();
    let ids = names.iter().filter_map(|name| before.table(name)).map(|table| table.id).collect();
    notes.extend(referring(&before, &ids).into_iter().map(|(child, foreign, _)| {
        format!("drop cascades to constraint {} on table {}", foreign.name, child.name)
    }));
    let numbered = numbering::others_numbered(&before, &ids).into_iter();
    notes.extend(numbered.map(|other| format!("drop cascades to {}", other.what)));
    Ok(notes)
}

/// What drops a table, a sequence or a view.
pub fn dropped(table: &TableRecord) -> TableChange {
    TableChange::Drop { table: table.id, schema: table.schema.version() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use types::data::Column;

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
        let spread =
            request("CREATE DATABASE bank WITH (partitions = 6, partition_by = '(w_id)')").expect("good");
        let by = types::database::catalog_schema_by(&[Column::new("w_id", types::data::ColumnType::Int)]);
        assert_eq!((spread.partitions, spread.schema), (6, by.expect("valid")));
        let two =
            request("CREATE DATABASE bank WITH (partitions = 2, partition_by = '(tenant text, year int)')");
        assert_eq!(two.expect("good").schema.columns()[2].column_type, types::data::ColumnType::Text);
        for wrong in ["partitions = 6", "partition_by = '(w)'", "partitions = 2, partition_by = 'w'"] {
            let text = format!("CREATE DATABASE bank WITH ({wrong})");
            assert_eq!(request(&text).map_err(|f| f.code), Err("22023"), "{wrong}");
        }
        let wrong = "CREATE DATABASE bank WITH (partitions = 2, partition_by = '(w int); DROP TABLE t')";
        assert_eq!(request(wrong).map_err(|f| f.code), Err("22023"));
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

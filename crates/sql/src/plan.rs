//! From a statement's text to what is to be done. Plans are kept by the text, for all sessions of a node.

use crate::alter;
use crate::alter_database;
use crate::altering;
use crate::bind::{self, Binder, Bound, Change, Insertion, Planned, Writing, folded, new_name, table_name};
use crate::catalog::Catalog;
use crate::constraining;
use crate::constraints::define::{self, Declared};
use crate::copy;
use crate::cursors::CursorStatement;
use crate::database::{self, DatabaseStatement};
use crate::ddl;
use crate::explain::{self, Explained};
use crate::indexes;
use crate::moving;
use crate::parse::{Said, parse};
use crate::procedures::{self, ProcedureStatement};
use crate::qualify::qualified;
use crate::schemas;
use crate::search_path::SearchPath;
use crate::settings::{self, variable_name};
use crate::ty::Ty;
pub use crate::work::Work;
use pg::{Column, Failure, Kind, Shape, code};
use sqlparser::ast::{
    CascadeOption, ContextModifier, CreateTable, ObjectType, Reset, Set, Statement, Truncate,
    TruncateIdentityOption,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Texts whose plans are kept.
const KEPT: usize = 2_000;
/// Longer texts are not worth it.
const MAX_CACHED_TEXT_BYTES: usize = 16 * 1024;
/// Plans of one text, for other types of parameters and other search paths.
const MAX_PLANS: usize = 64;

/// A statement that can be executed.
pub struct StatementPlan {
    /// What is to be done.
    pub work: Work,
    /// The types of its parameters.
    pub params: Vec<Ty>,
    /// The catalog that it was made for.
    pub revision: u64,
    /// Where names without a schema were looked for.
    pub path: SearchPath,
    /// What it was made from.
    pub parsed: Parsed,
    /// The types that the client had given.
    pub given: Vec<Option<Kind>>,
    /// What the client was told of it.
    pub shape: Shape,
}

impl StatementPlan {
    /// A plan that rests on no table.
    pub fn apart(work: Work, parsed: &Parsed, shape: Shape) -> StatementPlan {
        let parsed = Parsed { plans: None, ..parsed.clone() };
        let path = SearchPath::default();
        StatementPlan { work, params: Vec::new(), revision: 0, path, parsed, given: Vec::new(), shape }
    }
}

impl Parsed {
    /// A statement that is planned each time.
    pub fn of(statement: Statement) -> Parsed {
        Parsed { statement: Arc::new(Said::Sql(Box::new(statement))), plans: None }
    }

    /// The statement on cursors and prepared statements that it is.
    pub fn cursor(&self) -> Option<&CursorStatement> {
        match self.statement.as_ref() {
            Said::Cursor(statement) => Some(statement),
            _ => None,
        }
    }
}

/// A statement that was read.
#[derive(Clone)]
pub struct Parsed {
    statement: Arc<Said>,
    /// Plans of it, if they are kept, by the types that were given.
    plans: Option<Arc<Mutex<Vec<Arc<StatementPlan>>>>>,
}

/// Statements by their text.
#[derive(Default)]
pub struct Cache {
    texts: Mutex<HashMap<String, Vec<Parsed>>>,
}

impl Cache {
    /// The statements of a text.
    pub fn parse(&self, text: &str) -> Result<Vec<Parsed>, Failure> {
        if let Some(parsed) = self.texts.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(parsed.clone());
        }
        let statements = parse(text)?;
        let keep = text.len() <= MAX_CACHED_TEXT_BYTES;
        let one = |statement| Parsed { statement: Arc::new(statement), plans: keep.then(Arc::default) };
        let parsed: Vec<Parsed> = statements.into_iter().map(one).collect();
        if keep {
            let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
            // Rare texts come and go; those that are used come back at once.
            if texts.len() >= KEPT {
                texts.clear();
            }
            texts.insert(text.to_string(), parsed.clone());
        }
        Ok(parsed)
    }
}

/// Plans a statement, or finds its plan.
pub fn plan(
    catalog: &Catalog,
    path: &SearchPath,
    parsed: &Parsed,
    given: &[Option<Kind>],
) -> Result<Arc<StatementPlan>, Failure> {
    if let Some(plans) = &parsed.plans {
        let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|plan| plan.revision == catalog.revision);
        if let Some(plan) = plans.iter().find(|plan| plan.given == given && plan.path == *path) {
            return Ok(plan.clone());
        }
    }
    let (named, on_path);
    let (catalog, said): (&Catalog, &Said) = match path.is_public() {
        true => (catalog, &parsed.statement),
        false => {
            on_path = catalog.on_path(path);
            named = qualified(&on_path, &parsed.statement)?;
            (&on_path, &named)
        }
    };
    let types = given.iter().map(|kind| kind.map_or(Ok(None), Ty::of_kind)).collect::<Result<Vec<_>, _>>()?;
    let (work, params) = work(catalog, said, &types)?;
    let columns = match &work {
        Work::Query(bound) => {
            let mut columns = told_columns(bound);
            columns.truncate(columns.len() - usize::from(bound.locks.is_some()));
            Some(columns)
        }
        Work::Insert(Insertion { returning, .. }) | Work::Change(Change { returning, .. }) => {
            returning.as_ref().map(|returning| told_columns(&returning.bound))
        }
        Work::Parts(parts) => parts.told().map(told_columns),
        Work::Call(call) => procedures::told_columns(&call.procedure),
        Work::Show(name) => Some(vec![Column::new(name.clone(), Kind::Text)]),
        Work::Explain(_) => Some(vec![Column::new("QUERY PLAN", Kind::Text)]),
        _ => None,
    };
    // A client that has said `smallint` sends it so.
    let told = params
        .iter()
        .enumerate()
        .map(|(at, ty)| given.get(at).copied().flatten().unwrap_or_else(|| ty.kind()));
    let shape = Shape { parameters: told.collect(), columns };
    let plan = Arc::new(StatementPlan {
        work,
        params,
        revision: catalog.revision,
        path: path.clone(),
        parsed: Parsed { plans: None, ..parsed.clone() },
        given: given.to_vec(),
        shape,
    });
    if let Some(plans) = &parsed.plans {
        let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a path for each of many tenants not all are kept.
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.push(plan.clone());
    }
    Ok(plan)
}

/// What clients are told of a query's columns.
pub fn told_columns(bound: &Bound) -> Vec<Column> {
    let widths = bound.widths.iter().copied().chain(std::iter::repeat(None));
    let columns = bound.columns.iter().zip(widths);
    columns.map(|((name, ty), width)| Column { name: name.clone(), kind: ty.kind(), width }).collect()
}

fn work(catalog: &Catalog, said: &Said, given: &[Option<Ty>]) -> Result<(Work, Vec<Ty>), Failure> {
    match said {
        Said::Sql(statement) => work_of_sql(catalog, statement, given),
        other => work_of_own(catalog, other, given),
    }
}

/// Statements that the parser of SQL does not know as they are meant here.
fn work_of_own(catalog: &Catalog, said: &Said, given: &[Option<Ty>]) -> Result<(Work, Vec<Ty>), Failure> {
    let work = match said {
        Said::Sql(_) => return Err(Failure::new(code::INTERNAL, "a statement of SQL is read otherwise")),
        Said::Copy(copy) => match copy::plan(catalog, copy)? {
            copy::Planned::In(copy) => Work::CopyIn(copy),
            copy::Planned::Out(copy) => Work::CopyOut(copy),
        },
        Said::Database(DatabaseStatement::Create { name, options }) => {
            let request = database::request(name, options)?;
            Work::CreateDatabase(Box::new(request))
        }
        Said::Cursor(statement) => return cursor(catalog, statement, given),
        Said::Sequence(_)
        | Said::View(_)
        | Said::Procedure(_)
        | Said::AddIdentity(..)
        | Said::TableAs(_)
        | Said::TableLike(_)
            if !catalog.is_of_database() =>
        {
            let hint = "make it in a database (CREATE DATABASE)";
            return Err(Failure::unsupported("what lies together with others outside of databases", hint));
        }
        Said::TableAs(made) => {
            let (create, params) = made.plan(catalog, given)?;
            return Ok((Work::CreateAs(Box::new(create)), params));
        }
        Said::TableLike(made) => {
            let (create, indexes) = made.expanded(catalog)?;
            created(catalog, create, indexes)?
        }
        Said::Procedure(ProcedureStatement::Call { name, arguments }) => {
            let (call, params) = procedures::call(catalog, (name, arguments), given)?;
            return Ok((Work::Call(call), params));
        }
        Said::Procedure(statement) => Work::Procedure(statement.clone()),
        Said::Sequence(statement) => Work::Sequence(statement.clone()),
        Said::AddIdentity(altering, counting) => Work::AddIdentity((**altering).clone(), counting.clone()),
        Said::View(statement) => {
            statement.check(catalog)?;
            Work::View(statement.clone())
        }
        Said::Upkeep(upkeep) => {
            upkeep.check(catalog)?;
            Work::Upkeep(upkeep.clone())
        }
        Said::Database(DatabaseStatement::Alter { name, written }) => {
            Work::AlterDatabase(alter_database::plan(name, written)?)
        }
        Said::SetConstraints(set) => Work::SetConstraints(set.resolve(catalog)?),
        Said::Database(DatabaseStatement::Drop { name, if_exists, force }) => {
            let (name, if_exists, force) = (database::name(name)?, *if_exists, *force);
            Work::DropDatabase { name, if_exists, force }
        }
    };
    Ok((work, Vec::new()))
}

/// A statement of SQL.
fn work_of_sql(
    catalog: &Catalog,
    statement: &Statement,
    given: &[Option<Ty>],
) -> Result<(Work, Vec<Ty>), Failure> {
    if let Some(work) = altering(catalog, statement)? {
        return Ok((work, Vec::new()));
    }
    let binder = || Binder::new(catalog, given);
    Ok(match statement {
        Statement::Query(query) if bind::writes(query) => {
            let (planned, params) = bind::of_parts(catalog, given, query)?;
            let work = match planned {
                Planned::Parts(parts) => Work::Parts(Box::new(parts)),
                Planned::Alone(Writing::Insert(insertion)) => Work::Insert(insertion),
                Planned::Alone(Writing::Change(change)) => Work::Change(change),
                Planned::Alone(Writing::Merge(merge)) => {
                    Work::Parts(Box::new(bind::merge_alone(merge, params.len())))
                }
            };
            (work, params)
        }
        Statement::Query(query) => {
            let (bound, params) = binder().whole(query)?;
            (Work::Query(Arc::new(bound)), params)
        }
        Statement::Insert(insert) => {
            let (insertion, params) = binder().insert(insert)?;
            (Work::Insert(insertion), params)
        }
        Statement::Delete(delete) => {
            let (change, params) = binder().delete(delete)?;
            (Work::Change(change), params)
        }
        Statement::Update(update) => {
            let (change, params) = binder().update(update)?;
            (Work::Change(change), params)
        }
        Statement::Merge(merge) => {
            let (parts, params) = bind::merge(catalog, given, merge)?;
            (Work::Parts(Box::new(parts)), params)
        }
        other => match explain::asked(other)? {
            None => (utility(catalog, other)?, Vec::new()),
            Some((Statement::Query(query), json)) if !bind::writes(query) => {
                let (bound, params) = binder().whole(query)?;
                (Work::Explain(Explained { bound: Arc::new(bound), json }), params)
            }
            Some(_) => {
                return Err(Failure::unsupported("EXPLAIN of a statement that writes", "explain a SELECT"));
            }
        },
    })
}

/// Cursors and prepared statements. What they name, the session knows.
fn cursor(
    catalog: &Catalog,
    statement: &CursorStatement,
    given: &[Option<Ty>],
) -> Result<(Work, Vec<Ty>), Failure> {
    Ok(match statement.clone() {
        CursorStatement::Declare { name, hold, query } => {
            let (bound, params) = Binder::new(catalog, given).whole(&query)?;
            (Work::Declare { name, hold, bound: Arc::new(bound) }, params)
        }
        CursorStatement::Close(name) => (Work::Close(name), Vec::new()),
        CursorStatement::Prepare { name, types, statement } => {
            (Work::Prepare { name, types, statement }, Vec::new())
        }
        CursorStatement::Fetch { .. } | CursorStatement::Execute { .. } => {
            return Err(Failure::new(code::INTERNAL, "what it names is not known here"));
        }
    })
}

/// Statements that alter tables, or make and drop indexes and schemas.
fn altering(catalog: &Catalog, statement: &Statement) -> Result<Option<Work>, Failure> {
    Ok(Some(match statement {
        Statement::AlterTable(change) => {
            if let Some(change) = moving::read(catalog, change)? {
                return Ok(Some(Work::Move(change)));
            }
            if let Some(key) = alter::rekeyed(catalog, change)? {
                return Ok(Some(Work::Rekey(key)));
            }
            if altering::is_ownership(catalog, change)? {
                return Ok(Some(Work::AlterTable(None)));
            }
            match alter::changed_constraints(catalog, change)? {
                Some(change) => Work::Constrain(Some(change), "ALTER TABLE"),
                None if catalog.is_within(&table_name(&change.name)?) => Work::Alter(altering::read(change)?),
                None => Work::AlterTable(alter::plan(catalog, change)?),
            }
        }
        Statement::AlterSchema(change) if altering::is_schemas_ownership(catalog, change)? => {
            Work::Constrain(None, "ALTER SCHEMA")
        }
        Statement::CreateSchema { .. } | Statement::Drop { object_type: ObjectType::Schema, .. } => {
            match schemas::read(catalog, statement)? {
                Some(statement) => Work::Schema(statement),
                None => return Err(refused(statement)),
            }
        }
        Statement::CreateIndex(index) if catalog.is_within(&table_name(&index.table_name)?) => {
            Work::Constrain(Some(indexes::create_within(catalog, index)?), "CREATE INDEX")
        }
        Statement::CreateIndex(index) => Work::Indexes(indexes::create(catalog, index)?),
        Statement::Drop { object_type: ObjectType::Index, if_exists, names, cascade: false, .. } => {
            match indexes::are_bare(catalog, names)? {
                false => {
                    let change = constraining::drop_indexes(catalog, names, *if_exists)?;
                    Work::Constrain(change, "DROP INDEX")
                }
                true => Work::Indexes(indexes::drop(catalog, names, *if_exists)?),
            }
        }
        _ => return Ok(None),
    }))
}

/// Statements without parameters.
fn utility(catalog: &Catalog, statement: &Statement) -> Result<Work, Failure> {
    let within = catalog.is_of_database();
    Ok(match statement {
        Statement::CreateTable(create) => {
            // What is wrong with it is said when it is planned.
            created(catalog, create.clone(), Vec::new())?
        }
        Statement::Drop {
            object_type: ObjectType::Table,
            if_exists,
            names,
            cascade,
            temporary: false,
            ..
        } if within || !cascade => {
            let names = names.iter().map(table_name).collect::<Result<_, _>>()?;
            Work::DropTables { names, if_exists: *if_exists, cascade: *cascade }
        }
        Statement::Truncate(truncate) if within => truncated(catalog, truncate)?,
        Statement::StartTransaction { modes, statements, exception: None, begin, .. }
            if statements.is_empty() =>
        {
            Work::Begin(settings::modes(modes)?, if *begin { "BEGIN" } else { "START TRANSACTION" })
        }
        Statement::Commit { chain: false, .. } => Work::Commit,
        Statement::Rollback { chain: false, savepoint: None } => Work::Rollback,
        Statement::Rollback { savepoint: Some(name), .. } => Work::BackTo(folded(name)),
        Statement::Savepoint { name } => Work::Savepoint(folded(name)),
        Statement::ReleaseSavepoint { name } => Work::Release(folded(name)),
        Statement::Set(Set::SetTransaction { snapshot: Some(snapshot), session: false, .. }) => {
            Work::SetTransaction(settings::snapshot(snapshot)?)
        }
        Statement::Set(Set::SetTransaction { modes, snapshot: None, session }) => match session {
            true => Work::SetSession(settings::modes(modes)?),
            false => Work::SetTransaction(settings::modes(modes)?),
        },
        Statement::Set(Set::SingleAssignment { variable, values, .. })
            if variable_name(variable).eq_ignore_ascii_case("transaction_isolation")
                || variable_name(variable).eq_ignore_ascii_case("transaction_read_only") =>
        {
            Work::SetTransaction(settings::own_mode(&variable_name(variable), values)?)
        }
        Statement::Set(set @ Set::SingleAssignment { scope: Some(ContextModifier::Local), .. }) => {
            Work::SetLocal(settings::assignments(set)?)
        }
        Statement::Set(set) => Work::Set(settings::assignments(set)?),
        Statement::Reset(reset) => match &reset.reset {
            Reset::ALL => Work::Reset(None, "RESET"),
            Reset::ConfigurationParameter(name) => Work::Reset(Some(variable_name(name)), "RESET"),
        },
        Statement::Discard { object_type: sqlparser::ast::DiscardObject::ALL } => {
            Work::Reset(None, "DISCARD ALL")
        }
        Statement::Deallocate { name, .. } => {
            let all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
            Work::Deallocate((!all).then(|| folded(name)))
        }
        Statement::ShowVariable { variable } => {
            let words: Vec<String> = variable.iter().map(|word| word.value.to_ascii_lowercase()).collect();
            Work::Show(match words.join(" ").as_str() {
                "transaction isolation level" => "transaction_isolation".into(),
                "time zone" => "timezone".into(),
                _ => words.concat(),
            })
        }
        other => return Err(refused(other)),
    })
}

/// A table that is to be made, with indexes that its statement cannot name.
fn created(catalog: &Catalog, create: CreateTable, indexes: Vec<Declared>) -> Result<Work, Failure> {
    may_be_made(catalog, &create)?;
    let apart = catalog.has_both() && ddl::is_apart(&create);
    ddl::check(&create, catalog.is_of_database() && !apart)?;
    if apart {
        define::refuse_bare(&indexes)?;
    }
    Ok(Work::CreateTable(Box::new(create), indexes))
}

/// Refuses a table in a schema that there is not, or in one where it cannot be.
fn may_be_made(catalog: &Catalog, create: &CreateTable) -> Result<(), Failure> {
    let name = new_name(catalog, &create.name)?;
    match catalog.placed(&name).0.is_some() && ddl::is_apart(create) {
        true => {
            let hint = "it lies in the schema public: leave the schema out";
            Err(Failure::unsupported("a table with partitions for itself in a schema", hint))
        }
        false => Ok(()),
    }
}

fn truncated(catalog: &Catalog, truncate: &Truncate) -> Result<Work, Failure> {
    let strange = truncate.partitions.is_some() || truncate.on_cluster.is_some() || truncate.if_exists;
    if strange {
        return Err(Failure::new(code::SYNTAX, format!("syntax error in \"{truncate}\"")));
    }
    let names = truncate.table_names.iter().map(|table| table_name(&table.name));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    if names.iter().any(|name| !catalog.is_within(name)) {
        return Err(refused(&Statement::Truncate(truncate.clone())));
    }
    let restart = matches!(truncate.identity, Some(TruncateIdentityOption::Restart));
    let named = names.len();
    let names = match truncate.cascade {
        Some(CascadeOption::Cascade) => crate::truncate::with_referring(catalog, names),
        _ => names,
    };
    Ok(Work::Truncate { names, named, restart })
}

/// What to do instead of a statement that is not understood.
fn refused(statement: &Statement) -> Failure {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    let (what, hint) = match statement {
        Statement::Truncate(_) => (
            "TRUNCATE of a table with partitions for itself".to_string(),
            "DELETE rows, drop the table and create it again, or make it in a database",
        ),
        Statement::CreateSchema { .. } => (
            "this form of CREATE SCHEMA".to_string(),
            "write CREATE SCHEMA [IF NOT EXISTS] name, and what is to be in it behind that",
        ),
        _ => (words.join(" ").to_uppercase(), "docs/sql.md lists what is understood"),
    };
    Failure::unsupported(what, hint)
}

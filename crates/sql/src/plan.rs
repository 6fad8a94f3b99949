//! From a statement's text to what is to be done. Plans are kept by the text, for all sessions of a node.

use crate::bind::{Binder, Bound, Deletion, Insertion, table_name};
use crate::catalog::Catalog;
use crate::ddl;
use crate::settings::{self, variable_name};
use crate::ty::Ty;
use pg::{Column, Failure, Kind, Shape, code};
use sqlparser::ast::{CreateTable, ObjectType, Reset, Set, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Texts whose plans are kept.
const KEPT: usize = 2_000;
/// Longer texts are not worth it.
const LONGEST: usize = 16 * 1024;
/// How deep expressions may be nested.
const DEPTH: usize = 50;

/// What is to be done.
pub enum Work {
    /// Give rows.
    Query(Arc<Bound>),
    /// Write rows.
    Insert(Insertion),
    /// Remove a row.
    Delete(Deletion),
    /// Make a table.
    CreateTable(Box<CreateTable>),
    /// Drop tables.
    DropTables {
        /// Their names.
        names: Vec<String>,
        /// A table that there is not is passed over.
        if_exists: bool,
    },
    /// Begin a transaction.
    Begin,
    /// End it.
    Commit,
    /// End it.
    Rollback,
    /// Set parameters.
    Set(Vec<(String, Option<String>)>),
    /// Set a parameter, or all, back; with what the client is told.
    Reset(Option<String>, &'static str),
    /// Show a parameter.
    Show(String),
}

impl Work {
    /// True if it changes something in the cluster.
    pub fn writes(&self) -> bool {
        matches!(self, Work::Insert(_) | Work::Delete(_) | Work::CreateTable(_) | Work::DropTables { .. })
    }
}

/// A statement that can be executed.
pub struct Plan {
    /// What is to be done.
    pub work: Work,
    /// The types of its parameters.
    pub params: Vec<Ty>,
    /// The catalog that it was made for.
    pub revision: u64,
    /// What it was made from.
    pub parsed: Parsed,
    /// The types that the client had given.
    pub given: Vec<Option<Kind>>,
    /// What the client was told of it.
    pub shape: Shape,
}

/// A statement that was read.
#[derive(Clone)]
pub struct Parsed {
    statement: Arc<Statement>,
    /// Plans of it, if they are kept, by the types that were given.
    plans: Option<Arc<Mutex<Vec<Arc<Plan>>>>>,
    /// Several stand in one message, which is one transaction: this one is followed by others.
    pub followed: bool,
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
        let keep = text.len() <= LONGEST;
        let last = statements.len().saturating_sub(1);
        let one = |(at, statement)| Parsed {
            statement: Arc::new(statement),
            plans: keep.then(Arc::default),
            followed: at < last,
        };
        let parsed: Vec<Parsed> = statements.into_iter().enumerate().map(one).collect();
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

fn parse(text: &str) -> Result<Vec<Statement>, Failure> {
    let dialect = PostgreSqlDialect {};
    let parser = Parser::new(&dialect).with_recursion_limit(DEPTH).try_with_sql(text);
    parser.and_then(|mut parser| parser.parse_statements()).map_err(|error| match error {
        sqlparser::parser::ParserError::RecursionLimitExceeded => {
            Failure::new("54001", "stack depth limit exceeded")
                .hint(format!("expressions are nested at most {DEPTH} deep"))
        }
        error => {
            let sentence = error.to_string();
            let sentence = sentence.trim_start_matches("sql parser error: ").to_string();
            Failure::new(code::SYNTAX, format!("syntax error: {sentence}"))
        }
    })
}

/// Plans a statement, or finds its plan.
pub fn plan(catalog: &Catalog, parsed: &Parsed, given: &[Option<Kind>]) -> Result<Arc<Plan>, Failure> {
    if let Some(plans) = &parsed.plans {
        let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|plan| plan.revision == catalog.revision);
        if let Some(plan) = plans.iter().find(|plan| plan.given == given) {
            return Ok(plan.clone());
        }
    }
    let types = given.iter().map(|kind| kind.map_or(Ok(None), Ty::of_kind)).collect::<Result<Vec<_>, _>>()?;
    let (work, params) = work(catalog, &parsed.statement, &types)?;
    let columns = match &work {
        Work::Query(bound) => Some(
            bound.columns.iter().map(|(name, ty)| Column { name: name.clone(), kind: ty.kind() }).collect(),
        ),
        Work::Show(name) => Some(vec![Column { name: name.clone(), kind: Kind::Text }]),
        _ => None,
    };
    // A client that has said `smallint` sends it so.
    let told = params
        .iter()
        .enumerate()
        .map(|(at, ty)| given.get(at).copied().flatten().unwrap_or_else(|| ty.kind()));
    let shape = Shape { parameters: told.collect(), columns };
    let plan = Arc::new(Plan {
        work,
        params,
        revision: catalog.revision,
        parsed: Parsed { plans: None, ..parsed.clone() },
        given: given.to_vec(),
        shape,
    });
    if let Some(plans) = &parsed.plans {
        plans.lock().unwrap_or_else(PoisonError::into_inner).push(plan.clone());
    }
    Ok(plan)
}

fn work(catalog: &Catalog, statement: &Statement, given: &[Option<Ty>]) -> Result<(Work, Vec<Ty>), Failure> {
    let binder = || Binder::new(catalog, given);
    Ok(match statement {
        Statement::Query(query) => {
            let (bound, params) = binder().whole(query)?;
            (Work::Query(Arc::new(bound)), params)
        }
        Statement::Insert(insert) => {
            let (insertion, params) = binder().insert(insert)?;
            (Work::Insert(insertion), params)
        }
        Statement::Delete(delete) => {
            let (deletion, params) = binder().delete(delete)?;
            (Work::Delete(deletion), params)
        }
        other => (utility(other)?, Vec::new()),
    })
}

/// Statements without parameters.
fn utility(statement: &Statement) -> Result<Work, Failure> {
    Ok(match statement {
        Statement::CreateTable(create) => {
            // What is wrong with it is said when it is planned.
            ddl::request(create)?;
            Work::CreateTable(Box::new(create.clone()))
        }
        Statement::Drop {
            object_type: ObjectType::Table,
            if_exists,
            names,
            cascade: false,
            temporary: false,
            ..
        } => {
            let names = names.iter().map(table_name).collect::<Result<_, _>>()?;
            Work::DropTables { names, if_exists: *if_exists }
        }
        Statement::StartTransaction { modes, statements, exception: None, .. } if statements.is_empty() => {
            modes.iter().try_for_each(settings::check_mode)?;
            Work::Begin
        }
        Statement::Commit { chain: false, .. } => Work::Commit,
        Statement::Rollback { chain: false, savepoint: None } => Work::Rollback,
        Statement::Set(Set::SingleAssignment { variable, .. })
            if variable_name(variable).eq_ignore_ascii_case("synchronous_commit") =>
        {
            let hint =
                "how far a commit is secured is the table's policy: CREATE TABLE ... WITH (policy = ...)";
            return Err(Failure::unsupported("SET synchronous_commit", hint));
        }
        Statement::Set(set) => Work::Set(settings::assignments(set)?),
        Statement::Reset(reset) => match &reset.reset {
            Reset::ALL => Work::Reset(None, "RESET"),
            Reset::ConfigurationParameter(name) => Work::Reset(Some(variable_name(name)), "RESET"),
        },
        Statement::Discard { object_type: sqlparser::ast::DiscardObject::ALL } => {
            Work::Reset(None, "DISCARD ALL")
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

/// What to do instead of a statement that is not understood.
fn refused(statement: &Statement) -> Failure {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    let (what, hint) = match statement {
        Statement::Update(_) => (
            "UPDATE".to_string(),
            "write the whole row: INSERT ... ON CONFLICT (key) DO UPDATE SET column = EXCLUDED.column, ... for every column",
        ),
        Statement::Copy { .. } => ("COPY".to_string(), "use INSERT, or `understudy load` for files"),
        Statement::Savepoint { .. } | Statement::ReleaseSavepoint { .. } | Statement::Rollback { .. } => {
            ("SAVEPOINT".to_string(), "transactions only read: there is nothing to go back to")
        }
        Statement::Explain { .. } => {
            ("EXPLAIN".to_string(), "conditions on the first columns of the key narrow what is read")
        }
        Statement::CreateIndex(_) => {
            ("CREATE INDEX".to_string(), "rows are found by their key; put what is searched for in it")
        }
        Statement::AlterTable(_) => {
            ("ALTER TABLE".to_string(), "`understudy table alter` changes a table's policy")
        }
        Statement::Truncate(_) => ("TRUNCATE".to_string(), "drop the table and create it again"),
        _ => (words.join(" ").to_uppercase(), "docs/sql.md lists what is understood"),
    };
    Failure::unsupported(what, hint)
}

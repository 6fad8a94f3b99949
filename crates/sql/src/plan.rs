//! From a statement's text to what is to be done. Plans are kept by the text, for all sessions of a node.

use crate::alter::{self, AddKey};
use crate::bind::{Binder, Bound, Change, Insertion, folded, table_name};
use crate::catalog::Catalog;
use crate::constraining::{self, Constraining};
use crate::copy::{self, CopyIn, CopyOut, CopyStatement};
use crate::database::{self, DatabaseStatement};
use crate::ddl;
use crate::explain::{self, Explained};
use crate::indexes;
use crate::settings::{self, variable_name};
use crate::txn::Modes;
use crate::ty::Ty;
use crate::upkeep::{self, Upkeep};
use pg::{Column, Failure, Kind, Shape, code};
use sqlparser::ast::{
    ContextModifier, CreateTable, ObjectType, Reset, Set, Statement, Truncate, TruncateIdentityOption,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use wire::control::AlterTable as Request;

/// Texts whose plans are kept.
const KEPT: usize = 2_000;
/// Longer texts are not worth it.
const LONGEST: usize = 16 * 1024;
/// How deep expressions may be nested.
const DEPTH: usize = 50;
/// Operators and words in a row.
const CHAIN: usize = 600;
/// Set operations in a row.
const UNIONS: usize = 60;
/// The longest text. Values are no part of it, if they are sent as parameters.
const MAX_TEXT: usize = 8 << 20;

/// What is to be done.
pub enum Work {
    /// Give rows.
    Query(Arc<Bound>),
    /// Write rows.
    Insert(Insertion),
    /// Change or remove rows.
    Change(Change),
    /// Take rows from the client.
    CopyIn(CopyIn),
    /// Send the client rows.
    CopyOut(CopyOut),
    /// Change a table, if there is something to change.
    AlterTable(Option<Request>),
    /// Make or drop indexes.
    Indexes(indexes::Change),
    /// Make a table.
    CreateTable(Box<CreateTable>),
    /// Drop tables.
    DropTables {
        /// Their names.
        names: Vec<String>,
        /// A table that there is not is skipped.
        if_exists: bool,
        /// With the foreign keys that refer to them.
        cascade: bool,
    },
    /// Take all rows of tables away.
    Truncate {
        /// The tables' names.
        names: Vec<String>,
        /// Numbers begin again.
        restart: bool,
    },
    /// Give a table a key.
    AddKey(AddKey),
    /// Change constraints of a table, if there is something to change.
    Constrain(Option<Constraining>, &'static str),
    /// Upkeep that PostgreSQL needs, and locks on tables.
    Upkeep(Upkeep),
    /// Make a database.
    CreateDatabase(Box<wire::control::CreateTable>),
    /// Drop a database.
    DropDatabase {
        /// Its name.
        name: String,
        /// One that there is not is skipped.
        if_exists: bool,
        /// Also if it has tables, or somebody is in it.
        force: bool,
    },
    /// Begin a transaction; with what the client is told.
    Begin(Modes, &'static str),
    /// Set the modes of the transaction.
    SetTransaction(Modes),
    /// Set the modes of transactions to come.
    SetSession(Modes),
    /// Mark a place in the transaction.
    Savepoint(String),
    /// Forget it.
    Release(String),
    /// Go back to it.
    BackTo(String),
    /// End it.
    Commit,
    /// End it.
    Rollback,
    /// Set parameters.
    Set(Vec<(String, Option<String>)>),
    /// Set parameters until the end of the transaction.
    SetLocal(Vec<(String, Option<String>)>),
    /// Set a parameter, or all, back; with what the client is told.
    Reset(Option<String>, &'static str),
    /// Forget a prepared statement, or all.
    Deallocate(Option<String>),
    /// Show a parameter.
    Show(String),
    /// Say where each part of a query runs.
    Explain(Explained),
}

impl Work {
    /// True if it changes something in the cluster.
    pub fn writes(&self) -> bool {
        matches!(self, Work::Insert(_) | Work::Change(_) | Work::CopyIn(_)) || self.defines() || self.locks()
    }

    /// True if it is about the session or its transaction alone: the tables need not be known for it.
    pub fn names_no_table(&self) -> bool {
        let transaction = matches!(
            self,
            Work::Begin(..)
                | Work::Commit
                | Work::Rollback
                | Work::Savepoint(_)
                | Work::Release(_)
                | Work::BackTo(_)
        );
        let modes = matches!(self, Work::SetTransaction(_) | Work::SetSession(_));
        let settings = matches!(self, Work::Set(_) | Work::SetLocal(_) | Work::Reset(..) | Work::Show(_));
        transaction || modes || settings || matches!(self, Work::Deallocate(_))
    }

    /// True if it reads rows that must not change until the transaction commits.
    pub fn locks(&self) -> bool {
        matches!(self, Work::Query(bound) if bound.locks.is_some())
    }

    /// True if it makes, alters or drops a table.
    pub fn defines(&self) -> bool {
        let tables = matches!(self, Work::CreateTable(_) | Work::AlterTable(_) | Work::DropTables { .. });
        let tables = tables || matches!(self, Work::Truncate { .. } | Work::AddKey(_) | Work::Constrain(..));
        tables || self.is_about_databases() || matches!(self, Work::Indexes(_))
    }

    /// True if it makes or drops a database.
    pub fn is_about_databases(&self) -> bool {
        matches!(self, Work::CreateDatabase(_) | Work::DropDatabase { .. })
    }

    /// What it is called where it is not allowed.
    pub fn name(&self) -> &'static str {
        match self {
            Work::Query(bound) if bound.locks.is_some() => "SELECT FOR UPDATE",
            Work::Query(_) => "SELECT",
            Work::Insert(_) => "INSERT",
            Work::Change(change) if change.removes => "DELETE",
            Work::Change(_) => "UPDATE",
            Work::CopyIn(_) => "COPY FROM",
            Work::CreateTable(_) => "CREATE TABLE",
            Work::AlterTable(_) | Work::AddKey(_) => "ALTER TABLE",
            Work::Truncate { .. } => "TRUNCATE TABLE",
            Work::Indexes(change) => change.tag,
            Work::Constrain(_, tag) => tag,
            Work::DropTables { .. } => "DROP TABLE",
            Work::CreateDatabase(_) => "CREATE DATABASE",
            Work::DropDatabase { .. } => "DROP DATABASE",
            _ => "this statement",
        }
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

/// A statement, as it was read.
#[derive(Debug)]
enum Said {
    Sql(Box<Statement>),
    Copy(CopyStatement),
    Database(DatabaseStatement),
    Upkeep(Upkeep),
}

/// A statement that was read.
#[derive(Clone)]
pub struct Parsed {
    statement: Arc<Said>,
    /// Plans of it, if they are kept, by the types that were given.
    plans: Option<Arc<Mutex<Vec<Arc<Plan>>>>>,
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

fn parse(text: &str) -> Result<Vec<Said>, Failure> {
    if text.len() > MAX_TEXT {
        let message = format!("a statement has at most {MAX_TEXT} bytes");
        return Err(Failure::new(code::LIMIT, message).hint("send values as parameters"));
    }
    let dialect = PostgreSqlDialect {};
    let syntax = |sentence: String| Failure::new(code::SYNTAX, format!("syntax error: {sentence}"));
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| syntax(error.to_string()))?;
    check_chains(tokens.iter().map(|token| &token.token))?;
    let excludes = tokens.iter().any(|token| is_word(&token.token, Keyword::EXCLUDE));
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH).with_tokens_with_locations(tokens);
    statements(&mut parser).map_err(|error| match error {
        ParserError::RecursionLimitExceeded => too_deep(),
        // The parser knows no such constraint.
        _ if excludes => {
            Failure::unsupported("EXCLUDE", "UNIQUE, CHECK and FOREIGN KEY are kept in a database")
        }
        ParserError::TokenizerError(sentence) | ParserError::ParserError(sentence) => syntax(sentence),
    })
}

fn is_word(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword)
}

/// Statements with semicolons between them.
fn statements(parser: &mut Parser<'_>) -> Result<Vec<Said>, ParserError> {
    let mut found = Vec::new();
    loop {
        let begins = found.is_empty() || parser.consume_token(&Token::SemiColon);
        while parser.consume_token(&Token::SemiColon) {}
        if parser.peek_token_ref().token == Token::EOF {
            return Ok(found);
        }
        if !begins {
            return parser.expected("end of statement", parser.peek_token());
        }
        if let Some(copy) = copy::syntax::parse(parser)? {
            found.push(Said::Copy(copy));
        } else if let Some(statement) = database::parse(parser)? {
            found.push(Said::Database(statement));
        } else if let Some(upkeep) = upkeep::parse(parser)? {
            found.push(Said::Upkeep(upkeep));
        } else {
            found.push(Said::Sql(Box::new(parser.parse_statement()?)));
        }
    }
}

fn too_deep() -> Failure {
    let hint =
        format!("at most {DEPTH} levels, {CHAIN} operators in a row and {UNIONS} UNIONs are understood");
    Failure::new("54001", "stack depth limit exceeded").hint(hint)
}

/// Operators in a row make a tree as deep as they are many, without the parser noticing: who walks it, or
/// only drops it, would run out of stack. Between commas of one level of parentheses they are counted; set
/// operations are, whatever is between.
fn check_chains<'a>(tokens: impl Iterator<Item = &'a Token>) -> Result<(), Failure> {
    let mut levels = vec![(0, 0)];
    for token in tokens {
        let last = levels.len() - 1;
        let (operators, unions) = &mut levels[last];
        match token {
            Token::LParen | Token::LBracket => levels.push((0, 0)),
            Token::RParen | Token::RBracket => levels.truncate(last.max(1)),
            Token::SemiColon => (*operators, *unions) = (0, 0),
            Token::Comma => *operators = 0,
            Token::Word(word) => match word.keyword {
                Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => *unions += 1,
                Keyword::NoKeyword => {}
                _ => *operators += 1,
            },
            Token::Whitespace(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_) => {}
            _ => *operators += 1,
        }
        // What stands in parentheses hangs below what stands before them.
        let (operators, unions) =
            levels.iter().fold((0, 0), |(one, two), (operators, unions)| (one + operators, two + unions));
        if operators > CHAIN || unions > UNIONS || levels.len() > 4 * DEPTH {
            return Err(too_deep());
        }
    }
    Ok(())
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
        Work::Query(bound) => {
            let mut columns = told_columns(bound);
            columns.truncate(columns.len() - usize::from(bound.locks.is_some()));
            Some(columns)
        }
        Work::Insert(Insertion { returning, .. }) | Work::Change(Change { returning, .. }) => {
            returning.as_ref().map(|returning| told_columns(&returning.bound))
        }
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

/// What clients are told of a query's columns.
pub fn told_columns(bound: &Bound) -> Vec<Column> {
    let widths = bound.widths.iter().copied().chain(std::iter::repeat(None));
    let columns = bound.columns.iter().zip(widths);
    columns.map(|((name, ty), width)| Column { name: name.clone(), kind: ty.kind(), width }).collect()
}

fn work(catalog: &Catalog, said: &Said, given: &[Option<Ty>]) -> Result<(Work, Vec<Ty>), Failure> {
    let statement = match said {
        Said::Sql(statement) => statement.as_ref(),
        Said::Copy(copy) => {
            let work = match copy::plan(catalog, copy)? {
                copy::Planned::In(copy) => Work::CopyIn(copy),
                copy::Planned::Out(copy) => Work::CopyOut(copy),
            };
            return Ok((work, Vec::new()));
        }
        Said::Database(DatabaseStatement::Create { name, options }) => {
            let request = database::request(name, options)?;
            return Ok((Work::CreateDatabase(Box::new(request)), Vec::new()));
        }
        Said::Upkeep(upkeep) => {
            upkeep.check(catalog)?;
            return Ok((Work::Upkeep(upkeep.clone()), Vec::new()));
        }
        Said::Database(DatabaseStatement::Drop { name, if_exists, force }) => {
            let (name, if_exists, force) = (database::name(name)?, *if_exists, *force);
            return Ok((Work::DropDatabase { name, if_exists, force }, Vec::new()));
        }
    };
    if let Some(work) = altering(catalog, statement)? {
        return Ok((work, Vec::new()));
    }
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
            let (change, params) = binder().delete(delete)?;
            (Work::Change(change), params)
        }
        Statement::Update(update) => {
            let (change, params) = binder().update(update)?;
            (Work::Change(change), params)
        }
        other => match explain::asked(other)? {
            None => (utility(other, catalog.is_of_database())?, Vec::new()),
            Some((Statement::Query(query), json)) => {
                let (bound, params) = binder().whole(query)?;
                (Work::Explain(Explained { bound: Arc::new(bound), json }), params)
            }
            Some(_) => {
                return Err(Failure::unsupported("EXPLAIN of a statement that writes", "explain a SELECT"));
            }
        },
    })
}

/// Statements that alter tables, or make and drop indexes.
fn altering(catalog: &Catalog, statement: &Statement) -> Result<Option<Work>, Failure> {
    Ok(Some(match statement {
        Statement::AlterTable(change) => {
            if let Some(key) = alter::added_key(change)? {
                return Ok(Some(Work::AddKey(key)));
            }
            match alter::changed_constraints(catalog, change)? {
                Some(change) => Work::Constrain(Some(change), "ALTER TABLE"),
                None => Work::AlterTable(alter::plan(catalog, change)?),
            }
        }
        Statement::CreateIndex(index) if index.unique && catalog.is_of_database() => {
            Work::Constrain(Some(indexes::create_unique(catalog, index)?), "CREATE INDEX")
        }
        Statement::CreateIndex(index) => Work::Indexes(indexes::create(catalog, index)?),
        Statement::Drop { object_type: ObjectType::Index, if_exists, names, cascade: false, .. } => {
            match catalog.is_of_database() {
                true => {
                    let change = constraining::drop_indexes(catalog, names, *if_exists)?;
                    Work::Constrain(change, "DROP INDEX")
                }
                false => Work::Indexes(indexes::drop(catalog, names, *if_exists)?),
            }
        }
        _ => return Ok(None),
    }))
}

/// Statements without parameters; `within` a database, or outside of one.
fn utility(statement: &Statement, within: bool) -> Result<Work, Failure> {
    Ok(match statement {
        Statement::CreateTable(create) => {
            // What is wrong with it is said when it is planned.
            ddl::check(create, within)?;
            Work::CreateTable(Box::new(create.clone()))
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
        Statement::Truncate(truncate) if within => truncated(truncate)?,
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

fn truncated(truncate: &Truncate) -> Result<Work, Failure> {
    let strange = truncate.partitions.is_some() || truncate.on_cluster.is_some() || truncate.if_exists;
    if strange {
        return Err(Failure::new(code::SYNTAX, format!("syntax error in \"{truncate}\"")));
    }
    let names = truncate.table_names.iter().map(|table| table_name(&table.name)).collect::<Result<_, _>>()?;
    let restart = matches!(truncate.identity, Some(TruncateIdentityOption::Restart));
    Ok(Work::Truncate { names, restart })
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
        _ => (words.join(" ").to_uppercase(), "docs/sql.md lists what is understood"),
    };
    Failure::unsupported(what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_too_much_stack_is_refused_before_it_is_built() {
        let refused = |text: &str| parse(text).expect_err("refused").code;
        for deep in [
            format!("SELECT 1{}", "+1".repeat(100_000)),
            format!("SELECT 1{}", " OR f(1, 2)".repeat(100_000)),
            format!("SELECT {}1", "NOT ".repeat(100_000)),
            format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
            format!("SELECT 1, 2{}", " UNION SELECT 1, 2".repeat(100_000)),
            format!("SELECT * FROM (SELECT 1, 2{}) AS x", " UNION ALL SELECT 1, 2".repeat(10_000)),
            format!("SELECT a{}", "::int".repeat(100_000)),
        ] {
            assert_eq!(refused(&deep), "54001", "{}", &deep[..40]);
        }
        assert_eq!(refused(&"x".repeat(MAX_TEXT + 1)), "54000");
        assert_eq!(refused("SELECT 'open"), "42601");
        let many = format!("INSERT INTO t VALUES {}(0, NULL)", "(-1, NULL), ".repeat(20_000));
        assert_eq!(parse(&many).map(|statements| statements.len()), Ok(1));
        let chain = format!("SELECT 1 WHERE true{}", " AND 1 = 1".repeat(250));
        assert_eq!(parse(&chain).map(|statements| statements.len()), Ok(1));
    }
}

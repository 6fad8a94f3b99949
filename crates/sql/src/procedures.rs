//! CREATE PROCEDURE, DROP PROCEDURE and CALL: programs in the catalog of a database, which run where its rows
//! are.

use crate::bind::{Binder, Bound, folded, parts, table_name};
use crate::catalog::Catalog;
use crate::columns;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{ColumnDef, Expr, ObjectName, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::sync::Arc;
use types::data::Column;
use types::data::kind::{Language, Procedure};
use types::{CatalogTable, TableId, TableRecord};

/// A statement on procedures.
#[derive(Clone, PartialEq, Debug)]
pub enum ProcedureStatement {
    /// Makes one.
    Create(Box<Created>),
    /// Drops some.
    Drop {
        /// Their names.
        names: Vec<ObjectName>,
        /// One that there is not is skipped.
        if_exists: bool,
    },
    /// Calls one.
    Call {
        /// Its name.
        name: ObjectName,
        /// Its arguments.
        arguments: Vec<Expr>,
    },
}

/// What CREATE PROCEDURE says.
#[derive(Clone, PartialEq, Debug)]
pub struct Created {
    name: ObjectName,
    or_replace: bool,
    parameters: Vec<ColumnDef>,
    results: Vec<ColumnDef>,
    language: String,
    source: String,
    read_only: bool,
}

/// A call that can be made.
#[derive(Clone)]
pub struct Call {
    /// The procedure.
    pub procedure: Arc<TableRecord>,
    /// A query that gives the arguments in one row; none: there are none.
    pub arguments: Option<Arc<Bound>>,
}

/// A statement on procedures, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<ProcedureStatement>, ParserError> {
    let replace = [Keyword::CREATE, Keyword::OR, Keyword::REPLACE, Keyword::PROCEDURE];
    let or_replace = parser.parse_keywords(&replace);
    if or_replace || parser.parse_keywords(&[Keyword::CREATE, Keyword::PROCEDURE]) {
        return created(parser, or_replace).map(|made| Some(ProcedureStatement::Create(Box::new(made))));
    }
    if parser.parse_keywords(&[Keyword::DROP, Keyword::PROCEDURE]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
        let _ = parser.parse_keyword(Keyword::CASCADE) || parser.parse_keyword(Keyword::RESTRICT);
        return Ok(Some(ProcedureStatement::Drop { names, if_exists }));
    }
    if parser.parse_keyword(Keyword::CALL) {
        let name = parser.parse_object_name(false)?;
        parser.expect_token(&Token::LParen)?;
        if parser.consume_token(&Token::RParen) {
            return Ok(Some(ProcedureStatement::Call { name, arguments: Vec::new() }));
        }
        let arguments = parser.parse_comma_separated(Parser::parse_expr)?;
        parser.expect_token(&Token::RParen)?;
        return Ok(Some(ProcedureStatement::Call { name, arguments }));
    }
    Ok(None)
}

fn created(parser: &mut Parser<'_>, or_replace: bool) -> Result<Created, ParserError> {
    let name = parser.parse_object_name(false)?;
    let (parameters, _) = parser.parse_columns()?;
    let mut made = Created {
        name,
        or_replace,
        parameters,
        results: Vec::new(),
        language: String::new(),
        source: String::new(),
        read_only: false,
    };
    if parser.parse_keyword(Keyword::RETURNS) {
        parser.expect_keyword(Keyword::TABLE)?;
        (made.results, _) = parser.parse_columns()?;
    }
    loop {
        if parser.parse_keyword(Keyword::LANGUAGE) {
            made.language = folded(&parser.parse_identifier()?);
        } else if parser.parse_keyword(Keyword::AS) {
            made.source = text(parser)?;
        } else if parser.parse_keywords(&[Keyword::READ, Keyword::ONLY]) {
            made.read_only = true;
        } else {
            return Ok(made);
        }
    }
}

/// A text between quotes or dollars.
fn text(parser: &mut Parser<'_>) -> Result<String, ParserError> {
    match parser.peek_token_ref().token.clone() {
        Token::DollarQuotedString(quoted) => {
            parser.next_token();
            Ok(quoted.value)
        }
        _ => parser.parse_literal_string(),
    }
}

impl ProcedureStatement {
    /// What the client is told is done.
    pub fn tag(&self) -> &'static str {
        match self {
            ProcedureStatement::Create(_) => "CREATE PROCEDURE",
            ProcedureStatement::Drop { .. } => "DROP PROCEDURE",
            ProcedureStatement::Call { .. } => "CALL",
        }
    }
}

impl Created {
    /// Its name.
    pub fn name(&self) -> Result<String, Failure> {
        match parts(&self.name)?.as_slice() {
            [_] => {}
            [schema, _] if schema == "public" => {}
            _ => return Err(Failure::unsupported("a procedure in a schema", "make it in public")),
        }
        table_name(&self.name)
    }

    /// True if one of its name gives way.
    pub fn replaces(&self) -> bool {
        self.or_replace
    }

    /// The procedure as the catalog has it.
    pub fn defined(&self, id: TableId) -> Result<CatalogTable, Failure> {
        let language = Language::named(&self.language).ok_or_else(|| {
            let message = format!("language \"{}\" does not exist", self.language);
            Failure::new("42704", message).hint("procedures are written in wasm, or are builtin")
        })?;
        let read = |all: &[ColumnDef]| -> Result<Vec<Column>, Failure> {
            all.iter().map(|column| columns::read(column, &mut Vec::new())).collect()
        };
        let (parameters, results) = (read(&self.parameters)?, read(&self.results)?);
        let (source, read_only) = (self.source.clone(), self.read_only);
        let procedure = Procedure { language, source, results, read_only, checked: false };
        CatalogTable::procedure(id, &self.name()?, &parameters, procedure, client::wall_ms())
            .map_err(|why| Failure::new("42P13", why))
    }
}

/// The procedure of this name; none: there is none.
pub fn find(catalog: &Catalog, name: &ObjectName) -> Result<Option<Arc<TableRecord>>, Failure> {
    let found = catalog.other(&table_name(name)?);
    Ok(found.filter(|other| other.schema.procedure().is_some()).cloned())
}

/// The error of a procedure that there is not.
pub fn missing(name: &ObjectName) -> Failure {
    Failure::new("42883", format!("procedure {name} does not exist"))
}

/// Why a partition makes no procedure, with the code of definitions that cannot be.
pub fn refused(failure: Failure) -> Failure {
    match failure.code == code::INTERNAL && failure.message.starts_with("procedure `") {
        true => Failure { code: "42P13", ..failure },
        false => failure,
    }
}

/// A call, and the types of its parameters. What it names is there.
pub fn call(
    catalog: &Catalog,
    (name, arguments): (&ObjectName, &[Expr]),
    given: &[Option<Ty>],
) -> Result<(Call, Vec<Ty>), Failure> {
    let procedure = find(catalog, name)?.ok_or_else(|| missing(name))?;
    let Some((parameters, _)) = procedure.schema.procedure() else { return Err(missing(name)) };
    if parameters.len() != arguments.len() {
        let message =
            format!("procedure {name} takes {} arguments, not {}", parameters.len(), arguments.len());
        return Err(Failure::new("42883", message));
    }
    if arguments.is_empty() {
        return Ok((Call { procedure, arguments: None }, Vec::new()));
    }
    let cast = |(argument, column): (&Expr, &Column)| {
        format!("CAST({argument} AS {})", Ty::of_column(column).name())
    };
    let casts: Vec<String> = arguments.iter().zip(parameters).map(cast).collect();
    let text = format!("SELECT {}", casts.join(", "));
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text);
    let parsed = parsed.map_err(|error| Failure::new(code::SYNTAX, error.to_string()))?;
    let [Statement::Query(query)] = parsed.as_slice() else {
        return Err(Failure::new(code::SYNTAX, "arguments of a call are expressions"));
    };
    let (bound, params) = Binder::new(catalog, given).whole(query)?;
    if !bound.sources.is_empty() || !bound.systems.is_empty() {
        return Err(Failure::unsupported("a query among the arguments of CALL", "give values"));
    }
    Ok((Call { procedure, arguments: Some(Arc::new(bound)) }, params))
}

/// What a client is told of the rows that a procedure gives; none: it gives none.
pub fn told_columns(procedure: &TableRecord) -> Option<Vec<pg::Column>> {
    let (_, definition) = procedure.schema.procedure()?;
    let told = |column: &Column| pg::Column::new(column.name.clone(), Ty::of_column(column).kind());
    (!definition.results.is_empty()).then(|| definition.results.iter().map(told).collect())
}

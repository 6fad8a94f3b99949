//! `CREATE TABLE ... (LIKE other ...)`: columns of another table, and what else of it is asked for. It
//! becomes a CREATE TABLE that says all of it. The parser's own reads no LIKE beside other columns.

use crate::bind::{Slot, folded, no_table, table_name};
use crate::catalog::Catalog;
use crate::columns::default_slot;
use crate::constraints::define::{Declared, What};
use crate::numbering::Counting;
use crate::system::attributes::literal;
use crate::system::constraints;
use crate::system::names::{quoted, written};
use crate::ty::{self, Ty};
use crate::views;
use pg::{Failure, code};
use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{ColumnDef, CreateTable, CreateTableOptions, ObjectName, Statement, TableConstraint};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::collections::BTreeSet;
use types::data::constraint::Demand;
use types::data::{Column, Fallback, Identity, Value};
use types::{TableId, TableRecord};

/// A CREATE TABLE with LIKE among its columns.
#[derive(Clone, PartialEq, Debug)]
pub struct TableLike {
    /// What it says itself.
    pub create: CreateTable,
    /// What others say, in the order in which they are named.
    pub likes: Vec<Like>,
}

/// A table whose columns another one gets.
#[derive(Clone, PartialEq, Debug)]
pub struct Like {
    /// The table.
    pub name: ObjectName,
    /// How many of the statement's own columns come before these.
    pub before: usize,
    /// What is copied with them.
    pub with: BTreeSet<Part>,
}

/// What of a table may be copied beside names, types and NOT NULL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Its checks.
    Constraints,
    /// Defaults. Those that number rows do so by the same sequence.
    Defaults,
    /// Identity columns, each with a sequence of its own.
    Identity,
    /// Its primary key, what is unique, and indexes.
    Indexes,
}

/// A CREATE TABLE with LIKE, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<TableLike>, ParserError> {
    let head = parser.maybe_parse(|parser| {
        parser.expect_keywords(&[Keyword::CREATE, Keyword::TABLE])?;
        let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        parser.expect_token(&Token::LParen)?;
        match lists_like(parser) {
            true => Ok((name, if_not_exists)),
            false => parser.expected("LIKE", parser.peek_token()),
        }
    })?;
    let Some((name, if_not_exists)) = head else { return Ok(None) };
    let (mut columns, mut constraints, mut likes) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        if parser.parse_keyword(Keyword::LIKE) {
            let name = parser.parse_object_name(false)?;
            likes.push(Like { name, before: columns.len(), with: copied(parser)? });
        } else if let Some(constraint) = parser.parse_optional_table_constraint()? {
            constraints.push(constraint);
        } else {
            columns.push(parser.parse_column_def()?);
        }
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    parser.expect_token(&Token::RParen)?;
    let options = match parser.parse_options(Keyword::WITH)? {
        none if none.is_empty() => CreateTableOptions::None,
        options => CreateTableOptions::With(options),
    };
    let create = CreateTableBuilder::new(name).if_not_exists(if_not_exists).table_options(options);
    let create = create.columns(columns).constraints(constraints).build();
    Ok(Some(TableLike { create, likes }))
}

/// True if one of the elements of a list, whose parenthesis was read, begins with LIKE.
fn lists_like(parser: &Parser<'_>) -> bool {
    let (mut depth, mut begins) = (0, true);
    for at in 0.. {
        match parser.peek_nth_token_no_skip(at).token {
            Token::Whitespace(_) => continue,
            Token::Word(word) if begins && word.keyword == Keyword::LIKE => return true,
            Token::EOF => return false,
            Token::RParen if depth == 0 => return false,
            Token::RParen => depth -= 1,
            Token::LParen => depth += 1,
            Token::Comma if depth == 0 => {
                begins = true;
                continue;
            }
            _ => {}
        }
        begins = false;
    }
    false
}

/// What INCLUDING and EXCLUDING come to, one after the other.
fn copied(parser: &mut Parser<'_>) -> Result<BTreeSet<Part>, ParserError> {
    let mut found = BTreeSet::new();
    loop {
        let includes = parser.parse_keyword(Keyword::INCLUDING);
        if !includes && !parser.parse_keyword(Keyword::EXCLUDING) {
            return Ok(found);
        }
        let word = folded(&parser.parse_identifier()?);
        let named = match word.as_str() {
            "all" => &[Part::Constraints, Part::Defaults, Part::Identity, Part::Indexes][..],
            "constraints" => &[Part::Constraints][..],
            "defaults" => &[Part::Defaults][..],
            "identity" => &[Part::Identity][..],
            "indexes" => &[Part::Indexes][..],
            // No table here has anything of the kind.
            "comments" | "compression" | "generated" | "statistics" | "storage" => &[],
            _ => return parser.expected("something that LIKE copies", parser.peek_token()),
        };
        match includes {
            true => found.extend(named),
            false => found.retain(|part| !named.contains(part)),
        }
    }
}

/// What is copied of one table.
#[derive(Default)]
struct Copied {
    columns: Vec<ColumnDef>,
    constraints: Vec<TableConstraint>,
    /// Indexes, which no CREATE TABLE can name.
    indexes: Vec<Declared>,
}

impl TableLike {
    /// A CREATE TABLE that says all of it, and the indexes that are made with it.
    pub fn expanded(&self, catalog: &Catalog) -> Result<(CreateTable, Vec<Declared>), Failure> {
        let (mut create, mut indexes) = (self.create.clone(), Vec::new());
        // From the last one on, so that places of those before it stay.
        for like in self.likes.iter().rev() {
            let Copied { columns, constraints, indexes: more } = like.copied(catalog)?;
            create.columns.splice(like.before..like.before, columns);
            create.constraints.splice(0..0, constraints);
            indexes.splice(0..0, more);
        }
        Ok((create, indexes))
    }
}

impl Like {
    fn copied(&self, catalog: &Catalog) -> Result<Copied, Failure> {
        let name = table_name(&self.name)?;
        let (table, other) = (catalog.table(&name), catalog.other(&name));
        let of = match (table, other) {
            (Some(table), _) => table,
            (None, Some(other)) if views::text(other).is_some() => other,
            (None, Some(other)) if other.schema.procedure().is_none() => {
                let message = format!("relation \"{name}\" is invalid in LIKE clause");
                return Err(Failure::new("42809", message));
            }
            _ => return Err(no_table(&name)),
        };
        let mut said = Vec::new();
        for at in of.schema.visible() {
            said.push(self.column(catalog, of, at)?);
        }
        if self.with.contains(&Part::Constraints) {
            said.extend(constraints::of(of).filter_map(|one| match &one.demand {
                Demand::Check(condition) => {
                    Some(format!("CONSTRAINT {} CHECK ({condition})", quoted(&one.name)))
                }
                _ => None,
            }));
        }
        let mut copied = Copied::default();
        if self.with.contains(&Part::Indexes) {
            said.extend(self::key(of));
            for index in constraints::indexes(of) {
                match constraints::is_unique(of, &index) {
                    true => said.push(format!("UNIQUE ({})", list(of, &index.columns))),
                    false => {
                        let names = index.columns.iter().map(|at| of.schema.columns()[*at].name.clone());
                        copied.indexes.push(Declared { name: None, what: What::Index(names.collect()) });
                    }
                }
            }
        }
        let read = read(&said)?;
        (copied.columns, copied.constraints) = (read.columns, read.constraints);
        Ok(copied)
    }

    /// A column as CREATE TABLE says it.
    fn column(&self, catalog: &Catalog, of: &TableRecord, at: usize) -> Result<String, Failure> {
        let column = &of.schema.columns()[at];
        let mut said = format!("{} {}", quoted(&column.name), ty::written(column));
        if !column.nullable || of.schema.key().contains(&at) {
            said.push_str(" NOT NULL");
        }
        if self.with.contains(&Part::Defaults)
            && let Some(default) = default(catalog, column)?
        {
            said.push_str(&format!(" DEFAULT {default}"));
        }
        if self.with.contains(&Part::Identity)
            && let Some(identity) = column.rules.identity
        {
            let who = if identity == Identity::Always { "ALWAYS" } else { "BY DEFAULT" };
            let sequence = column.rules.sequence.and_then(|id| catalog.sequence_by_id(TableId(id)));
            let how =
                sequence.map_or(String::new(), |(_, sequence)| format!(" ({})", Counting::like(&sequence)));
            said.push_str(&format!(" GENERATED {who} AS IDENTITY{how}"));
        }
        Ok(said)
    }
}

/// A column's default as it could have been written.
fn default(catalog: &Catalog, column: &Column) -> Result<Option<String>, Failure> {
    if let Some(Fallback::Next(sequence)) = &column.rules.default {
        let found = catalog.sequence_by_id(TableId(*sequence));
        return Ok(found.map(|(name, _)| format!("nextval({})", literal(&written(catalog, name)))));
    }
    Ok(match default_slot(column)? {
        None | Some(Slot::Const(Value::Null) | Slot::Param(_)) => None,
        Some(Slot::Now) => Some("now()".into()),
        Some(Slot::Today) => Some("CURRENT_DATE".into()),
        Some(Slot::Random) => Some("gen_random_uuid()".into()),
        Some(Slot::Const(value)) => {
            let mut text = String::new();
            pg::text::write_as(&mut text, Ty::of_column(column).kind(), &value);
            Some(literal(&text))
        }
    })
}

/// A table's primary key, if it has one that is seen.
fn key(of: &TableRecord) -> Option<String> {
    let seen = !of.schema.has_hidden_key();
    seen.then(|| format!("PRIMARY KEY ({})", list(of, of.schema.key())))
}

fn list(of: &TableRecord, columns: &[usize]) -> String {
    let names: Vec<String> = columns.iter().map(|at| quoted(&of.schema.columns()[*at].name)).collect();
    names.join(", ")
}

/// Elements of a CREATE TABLE, read.
fn read(elements: &[String]) -> Result<CreateTable, Failure> {
    let text = format!("CREATE TABLE t ({})", elements.join(", "));
    let wrong = |why: String| Failure::new(code::INTERNAL, format!("a table cannot be read: {why}"));
    let mut parsed =
        Parser::parse_sql(&PostgreSqlDialect {}, &text).map_err(|error| wrong(error.to_string()))?;
    match parsed.pop() {
        Some(Statement::CreateTable(create)) => Ok(create),
        _ => Err(wrong(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use types::data::{ColumnType, Constraint, Rules};

    fn catalog() -> Catalog {
        let rules = |default: &str| Rules {
            default: Some(Fallback::Value(default.into())),
            max_chars: Some(5),
            ..Rules::default()
        };
        let mut table = example(vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("na me", ColumnType::Text).with(rules("it's")),
        ]);
        let check = Constraint::new(7, "short", Demand::Check("length(\"na me\") < 5".into()));
        table.schema = table.schema.with_constraints(vec![check]).expect("valid");
        Catalog::from_map(1, BTreeMap::from([("t".to_string(), Arc::new(table))]))
    }

    fn expanded(text: &str) -> Result<String, String> {
        let dialect = PostgreSqlDialect {};
        let mut parser = Parser::new(&dialect).try_with_sql(text).expect("tokens");
        let like = parse(&mut parser).map_err(|error| error.to_string())?.expect("a LIKE");
        let (create, _) = like.expanded(&catalog()).map_err(|why| format!("{} {why}", why.code))?;
        Ok(create.to_string())
    }

    #[test]
    fn a_table_gets_the_columns_of_another_one_and_what_is_asked_for() {
        for (text, expected) in [
            ("(LIKE t)", r#"id BIGINT NOT NULL, "na me" CHARACTER VARYING(5)"#),
            (
                "(a int, LIKE t INCLUDING DEFAULTS, b int)",
                r#"a INT, id BIGINT NOT NULL, "na me" CHARACTER VARYING(5) DEFAULT 'it''s', b INT"#,
            ),
            (
                "(LIKE t INCLUDING ALL EXCLUDING CONSTRAINTS, UNIQUE (id))",
                r#"id BIGINT NOT NULL, "na me" CHARACTER VARYING(5) DEFAULT 'it''s', PRIMARY KEY (id), UNIQUE (id)"#,
            ),
            (
                "(LIKE t INCLUDING CONSTRAINTS INCLUDING STORAGE)",
                r#"id BIGINT NOT NULL, "na me" CHARACTER VARYING(5), CONSTRAINT short CHECK (length("na me") < 5)"#,
            ),
        ] {
            let text = format!("CREATE TABLE n {text}");
            assert_eq!(expanded(&text), Ok(format!("CREATE TABLE n ({expected})")), "{text}");
        }
        assert_eq!(
            expanded("CREATE TABLE n (LIKE nothing)"),
            Err("42P01 relation \"nothing\" does not exist".into())
        );
        assert!(expanded("CREATE TABLE n (LIKE t INCLUDING NONSENSE)").is_err());
        let dialect = PostgreSqlDialect {};
        for other in ["CREATE TABLE n (a int CHECK (a LIKE 1), b text)", "SELECT 1"] {
            let mut parser = Parser::new(&dialect).try_with_sql(other).expect("tokens");
            assert_eq!(parse(&mut parser), Ok(None), "{other}");
        }
    }
}

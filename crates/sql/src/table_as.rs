//! `CREATE TABLE ... AS` and `SELECT ... INTO`: a table with the rows of a query. The parser's own reads no
//! `WITH NO DATA`.

use crate::bind::{self, Binder, Bound, Last, Parts, Planned, folded, new_name};
use crate::catalog::Catalog;
use crate::columns::HIDDEN;
use crate::constraints::define::invalid;
use crate::ddl;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{ObjectName, Query, Select, SetExpr, SqlOption, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};
use std::collections::BTreeSet;
use std::sync::Arc;
use types::data::{Column, Schema};

/// A table that gets a query's rows, as it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct TableAs {
    /// Its name.
    pub name: ObjectName,
    /// One of this name may be there.
    pub if_not_exists: bool,
    /// Names of its columns; those behind them are the query's own.
    pub columns: Vec<String>,
    /// How it is to be kept.
    pub options: Vec<SqlOption>,
    /// What gives the rows.
    pub query: Box<Query>,
    /// False: it gets the query's columns alone.
    pub with_rows: bool,
}

/// The same, planned.
pub struct CreateAs {
    /// The table's name in the catalog.
    pub name: String,
    /// One of this name may be there.
    pub if_not_exists: bool,
    /// Its columns, and a key that nobody sees.
    pub schema: Schema,
    /// What gives the rows: a value for each column that is seen, in their order.
    pub source: Source,
    /// False: it gets no rows.
    pub with_rows: bool,
    /// It says how full pages are to be.
    pub is_filled: bool,
}

/// What gives the rows of a table that is made with them.
pub enum Source {
    /// A query.
    Query(Arc<Bound>),
    /// A query behind parts of WITH that write.
    Parts(Box<Parts>),
}

/// A CREATE TABLE ... AS, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<TableAs>, ParserError> {
    let head = parser.maybe_parse(|parser| {
        parser.expect_keywords(&[Keyword::CREATE, Keyword::TABLE])?;
        let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
        let options = parser.parse_options(Keyword::WITH)?;
        parser.expect_keywords(&[Keyword::AS])?;
        let columns: Vec<String> = columns.iter().map(folded).collect();
        Ok((name, if_not_exists, columns, options))
    })?;
    let Some((name, if_not_exists, columns, options)) = head else { return Ok(None) };
    let query = parser.parse_query()?;
    let with_rows = match parser.parse_keyword(Keyword::WITH) {
        true => {
            let none = parser.parse_keyword(Keyword::NO);
            parser.expect_keywords(&[Keyword::DATA])?;
            !none
        }
        false => true,
    };
    Ok(Some(TableAs { name, if_not_exists, columns, options, query, with_rows }))
}

/// The table that a SELECT ... INTO makes, whose INTO is removed; `None`: the statement is none, and stays as
/// it is. A temporary table is left to be refused.
pub fn of_into(statement: &mut Statement) -> Option<TableAs> {
    let Statement::Query(query) = statement else { return None };
    let into = first_select(query.body.as_mut())?.into.take_if(|into| !into.temporary)?;
    Some(TableAs {
        name: into.name,
        if_not_exists: false,
        columns: Vec::new(),
        options: Vec::new(),
        query: query.clone(),
        with_rows: true,
    })
}

/// The SELECT that may have an INTO: the first one of a UNION.
fn first_select(body: &mut SetExpr) -> Option<&mut Select> {
    match body {
        SetExpr::Select(select) => Some(select.as_mut()),
        SetExpr::SetOperation { left, .. } => first_select(left.as_mut()),
        _ => None,
    }
}

impl TableAs {
    /// What is to be made, and the types of the query's parameters.
    pub fn plan(&self, catalog: &Catalog, given: &[Option<Ty>]) -> Result<(CreateAs, Vec<Ty>), Failure> {
        let hint = "CREATE TABLE with a primary key, and then INSERT ... SELECT";
        if ddl::say_how(&self.options) {
            return Err(Failure::unsupported("CREATE TABLE AS with storage options", hint));
        }
        if catalog.spread_by > 0 {
            let what = "CREATE TABLE AS in a database whose primary keys begin with a partition key";
            return Err(Failure::unsupported(what, hint));
        }
        let name = new_name(catalog, &self.name)?;
        let (columns, source, params) = match bind::writes(&self.query) {
            true => self.written(catalog, given)?,
            false => self.read(catalog, given)?,
        };
        let schema = self.schema(columns)?;
        let (if_not_exists, with_rows) = (self.if_not_exists, self.with_rows);
        let is_filled = ddl::say_fill(&self.options);
        Ok((CreateAs { name, if_not_exists, schema, source, with_rows, is_filled }, params))
    }

    /// The columns that a query gives, itself, and the types of its parameters.
    fn read(
        &self,
        catalog: &Catalog,
        given: &[Option<Ty>],
    ) -> Result<(Vec<Column>, Source, Vec<Ty>), Failure> {
        let (bound, params) = Binder::new(catalog, given).whole(&self.query)?;
        if bound.locks.is_some() {
            let hint = "lock the rows by a SELECT of its own";
            return Err(Failure::unsupported("FOR UPDATE in CREATE TABLE AS", hint));
        }
        let columns = bind::columns_of(catalog, given, (Some(&self.query), &bound))?;
        Ok((columns, Source::Query(Arc::new(bound)), params))
    }

    /// The same of one behind parts of WITH that write. Nothing but a query may stand there.
    fn written(
        &self,
        catalog: &Catalog,
        given: &[Option<Ty>],
    ) -> Result<(Vec<Column>, Source, Vec<Ty>), Failure> {
        let near = match self.query.body.as_ref() {
            SetExpr::Insert(_) => Some("INSERT"),
            SetExpr::Update(_) => Some("UPDATE"),
            SetExpr::Delete(_) => Some("DELETE"),
            SetExpr::Merge(_) => Some("MERGE"),
            _ => None,
        };
        if let Some(near) = near {
            return Err(Failure::new(code::SYNTAX, format!("syntax error at or near \"{near}\"")));
        }
        let (planned, params) = bind::of_parts(catalog, given, &self.query)?;
        let no_query = || Failure::new(code::INTERNAL, "no query stands behind the parts of WITH");
        let Planned::Parts(parts) = planned else { return Err(no_query()) };
        let Last::Rows(bound) = &parts.last else { return Err(no_query()) };
        let columns = bind::columns_of(catalog, given, (None, bound.as_ref()))?;
        Ok((columns, Source::Parts(Box::new(parts)), params))
    }

    /// The query's columns under the table's own names, and a key that nobody sees.
    fn schema(&self, mut columns: Vec<Column>) -> Result<Schema, Failure> {
        if self.columns.len() > columns.len() {
            return Err(Failure::new(code::SYNTAX, "too many column names were specified"));
        }
        if columns.is_empty() {
            return Err(Failure::unsupported("a table without columns", "name some in the query"));
        }
        for (column, name) in columns.iter_mut().zip(&self.columns) {
            column.name.clone_from(name);
        }
        let mut names = BTreeSet::new();
        for name in columns.iter().map(|column| &column.name) {
            if name == HIDDEN {
                let message = format!("column name \"{name}\" conflicts with a system column name");
                return Err(Failure::new("42701", message));
            }
            if !names.insert(name) {
                return Err(Failure::new("42701", format!("column \"{name}\" specified more than once")));
            }
        }
        columns.push(ddl::hidden_key());
        Schema::new(columns, &[HIDDEN], 1, false).map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use sqlparser::dialect::PostgreSqlDialect;
    use std::collections::BTreeMap;
    use types::data::{ColumnType, Rules};
    use types::{Holds, TableId, TableRecord};

    fn catalog() -> Catalog {
        let short = Rules { max_chars: Some(5), ..Rules::default() };
        let small = Rules { bits: Some(16), ..Rules::default() };
        let columns = vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("name", ColumnType::Text).with(short),
            Column::new("n", ColumnType::Int).with(small),
        ];
        // It lies together with others.
        let table = TableRecord { holds: Holds::TableOf(TableId(9)), ..example(columns) };
        Catalog::from_map(1, BTreeMap::from([("t".to_string(), Arc::new(table))]))
    }

    fn read(text: &str) -> Option<TableAs> {
        let dialect = PostgreSqlDialect {};
        let mut parser = Parser::new(&dialect).try_with_sql(text).expect("tokens");
        match parse(&mut parser).expect(text) {
            Some(made) => Some(made),
            None => of_into(&mut parser.parse_statement().expect(text)),
        }
    }

    fn columns(text: &str) -> Result<Vec<String>, String> {
        let (made, _) =
            read(text).expect(text).plan(&catalog(), &[]).map_err(|why| format!("{} {why}", why.code))?;
        let shown = made.schema.visible().map(|at| {
            let column = &made.schema.columns()[at];
            format!("{} {}", column.name, crate::ty::written(column))
        });
        Ok(shown.collect())
    }

    #[test]
    fn statements_are_read_with_and_without_rows() {
        for (text, with_rows) in [
            ("CREATE TABLE a AS SELECT 1 AS x", true),
            ("CREATE TABLE IF NOT EXISTS a (x) WITH (fillfactor = 70) AS (SELECT 1) WITH DATA", true),
            ("CREATE TABLE a AS SELECT id FROM t GROUP BY id ORDER BY id WITH NO DATA", false),
            ("CREATE TABLE a AS VALUES (1) WITH NO DATA", false),
            ("SELECT 1 AS x INTO a", true),
            ("SELECT id INTO TABLE a FROM t UNION SELECT 2", true),
        ] {
            let made = read(text).expect(text);
            assert_eq!((made.name.to_string().as_str(), made.with_rows), ("a", with_rows), "{text}");
        }
        for text in ["CREATE TABLE a (x int)", "SELECT 1", "SELECT 1 AS x INTO TEMP a", "DELETE FROM t"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn columns_are_those_of_the_query() {
        for (text, expected) in [
            ("CREATE TABLE a AS SELECT * FROM t", "id bigint, name character varying(5), n smallint"),
            ("CREATE TABLE a (x, y) AS SELECT id, name FROM t", "x bigint, y character varying(5)"),
            ("CREATE TABLE a (x) AS SELECT id, name || '!' AS z FROM t", "x bigint, z text"),
            (
                "CREATE TABLE a AS SELECT count(*), 1 AS one, now() FROM t",
                "count bigint, one integer, now timestamp with time zone",
            ),
            ("SELECT 'x' AS a, ARRAY[1] AS b, 1.5 AS c INTO a", "a text, b integer[], c numeric"),
            (
                "CREATE TABLE a (x) AS WITH d AS (DELETE FROM t RETURNING id, n) SELECT id, n, 1 AS one FROM d",
                // What is told by a part that writes has the types, without the bounds of its columns.
                "x bigint, n integer, one integer",
            ),
            ("WITH d AS (DELETE FROM t RETURNING name) SELECT name INTO a FROM d", "name text"),
        ] {
            assert_eq!(columns(text).map(|all| all.join(", ")).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for (text, code) in [
            ("CREATE TABLE a (x, y) AS SELECT 1", "42601"),
            ("CREATE TABLE a AS SELECT 1 AS x, 2 AS x", "42701"),
            ("CREATE TABLE a (ctid) AS SELECT 1", "42701"),
            ("CREATE TABLE a AS SELECT 'pg_class'::regclass AS x", "0A000"),
            ("CREATE TABLE a WITH (partitions = 3) AS SELECT 1 AS x", "0A000"),
            ("CREATE TABLE a AS SELECT id FROM t FOR UPDATE", "0A000"),
            ("CREATE TABLE a AS SELECT * FROM nothing", "42P01"),
            ("CREATE TABLE a AS DELETE FROM t RETURNING id", "42601"),
            ("CREATE TABLE a AS WITH d AS (DELETE FROM t) SELECT id FROM d", "0A000"),
            (
                "CREATE TABLE a AS WITH d AS (DELETE FROM t RETURNING id) INSERT INTO t SELECT id FROM d",
                "42601",
            ),
            ("CREATE TABLE nowhere.a AS SELECT 1 AS x", "3F000"),
        ] {
            assert_eq!(columns(text).expect_err(text).get(..5), Some(code), "{text}");
        }
        let spread = catalog().spread_by(1);
        let made = read("CREATE TABLE a AS SELECT 1 AS x").expect("read");
        assert_eq!(made.plan(&spread, &[]).map(drop).map_err(|why| why.code), Err("0A000"));
    }
}

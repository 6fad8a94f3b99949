//! COPY: its syntax, its options, and the rows that come in.
//!
//! | what | where |
//! | --- | --- |
//! | from tokens to a [`CopyStatement`] | [`syntax`] |
//! | what its options mean | [`options`] |
//! | rows on their way into a table | [`copy_input`] |

pub mod copy_input;
mod global;
pub mod options;
pub mod syntax;

pub use copy_input::CopyInput;
pub use syntax::{CopyStatement, Target, Whose};

use crate::bind::{self, Binder, Bound, folded, table_name, writable};
use crate::catalog::Catalog;
use pg::copy::Format;
use pg::{Failure, code};
use sqlparser::ast::{Ident, ObjectName, Query, SetExpr, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::sync::Arc;
use types::TableRecord;

/// A COPY FROM STDIN, planned.
pub struct CopyIn {
    /// Into this table.
    pub table: Arc<TableRecord>,
    /// The columns that are given.
    pub columns: Vec<usize>,
    /// How rows are written.
    pub format: Format,
    /// It says FREEZE.
    pub freezes: bool,
}

/// A COPY TO STDOUT, planned.
pub struct CopyOut {
    /// What gives the rows.
    pub source: Source,
    /// How they are to be written.
    pub format: Format,
}

/// What gives the rows of a COPY TO.
pub enum Source {
    /// A query.
    Query(Arc<Bound>),
    /// A statement that writes, and tells of its rows.
    Writing(Box<bind::Planned>),
}

impl Source {
    /// The columns that it gives.
    pub fn bound(&self) -> Option<&Bound> {
        match self {
            Source::Query(bound) => Some(bound.as_ref()),
            Source::Writing(planned) => planned.told(),
        }
    }

    /// What PostgreSQL calls the statement if it writes.
    pub fn writing(&self) -> Option<&'static str> {
        match self {
            Source::Query(_) => None,
            Source::Writing(planned) => Some(planned.name()),
        }
    }
}

/// Either.
pub enum Planned {
    /// Rows come in.
    In(CopyIn),
    /// Rows go out.
    Out(CopyOut),
}

/// Plans a COPY.
pub fn plan(catalog: &Catalog, copy: &CopyStatement) -> Result<Planned, Failure> {
    match (&copy.target, copy.to) {
        (Target::Stdin, false) | (Target::Stdout, true) => {}
        (Target::Stdin | Target::Stdout, _) => {
            return Err(Failure::new(code::SYNTAX, "COPY goes FROM STDIN or TO STDOUT"));
        }
        (Target::Elsewhere, _) => {
            let hint = "use COPY ... FROM STDIN or TO STDOUT; psql's \\copy does it with a file of its own";
            return Err(Failure::unsupported("COPY with a file or a program of the server", hint));
        }
    }
    let query = match &copy.whose {
        Whose::Table(name, columns) if !copy.to => {
            return copy_in(catalog, copy, name, columns).map(Planned::In);
        }
        Whose::Table(name, columns) => table_query(catalog, name, columns)?,
        Whose::Query(query) => query.clone(),
    };
    let source = match bind::writes(&query) {
        true => written(catalog, &query)?,
        false => read(catalog, &query)?,
    };
    let columns = source.bound().into_iter().flat_map(|bound| &bound.columns);
    let names: Vec<&str> = columns.map(|(name, _)| name.as_str()).collect();
    let format = options::format(copy, &names)?;
    Ok(Planned::Out(CopyOut { source, format }))
}

/// A query whose rows go out.
fn read(catalog: &Catalog, query: &Query) -> Result<Source, Failure> {
    let (bound, params) = Binder::new(catalog, &[]).whole(query)?;
    if bound.locks.is_some() {
        return Err(Failure::unsupported("FOR UPDATE in COPY", "lock the rows by a SELECT of its own"));
    }
    match params.is_empty() {
        true => Ok(Source::Query(Arc::new(bound))),
        false => Err(no_parameter()),
    }
}

/// A statement that writes, and tells of rows that go out.
fn written(catalog: &Catalog, query: &Query) -> Result<Source, Failure> {
    if matches!(query.body.as_ref(), SetExpr::Merge(_)) {
        return Err(Failure::new(code::UNSUPPORTED, "MERGE not supported in COPY"));
    }
    let (planned, params) = bind::of_parts(catalog, &[], query)?;
    if planned.told().is_none() {
        return Err(Failure::new(code::UNSUPPORTED, "COPY query must have a RETURNING clause"));
    }
    match params.is_empty() {
        true => Ok(Source::Writing(Box::new(planned))),
        false => Err(no_parameter()),
    }
}

fn no_parameter() -> Failure {
    Failure::new("42P02", "there is no parameter $1")
}

fn copy_in(
    catalog: &Catalog,
    copy: &CopyStatement,
    name: &ObjectName,
    columns: &[Ident],
) -> Result<CopyIn, Failure> {
    let table = writable(catalog, &table_name(name)?)?;
    let columns = chosen(&table, columns)?;
    let names: Vec<&str> = columns.iter().map(|at| table.schema.columns()[*at].name.as_str()).collect();
    let format = options::format(copy, &names)?;
    Ok(CopyIn { table, columns, format, freezes: options::freezes(copy) })
}

/// The columns that are named; all if none is.
fn chosen(table: &TableRecord, columns: &[Ident]) -> Result<Vec<usize>, Failure> {
    if columns.is_empty() {
        return Ok(table.schema.visible().collect());
    }
    let mut found = Vec::new();
    for column in columns {
        let name = folded(column);
        let seen = |at: &usize| !table.schema.columns()[*at].rules.hidden;
        let Some(at) = table.schema.column_index(&name).filter(seen) else {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            return Err(Failure::new("42703", message));
        };
        if found.contains(&at) {
            return Err(Failure::new("42701", format!("column \"{name}\" specified more than once")));
        }
        found.push(at);
    }
    Ok(found)
}

/// The query that gives a table's rows.
fn table_query(catalog: &Catalog, name: &ObjectName, columns: &[Ident]) -> Result<Box<Query>, Failure> {
    let columns = match catalog.table(&table_name(name)?) {
        Some(table) => {
            let quoted = |at: usize| format!("\"{}\"", table.schema.columns()[at].name.replace('"', "\"\""));
            chosen(table, columns)?.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
        }
        // Not a table of the cluster's: the binder knows what else there is.
        None if columns.is_empty() => "*".to_string(),
        None => columns.iter().map(Ident::to_string).collect::<Vec<_>>().join(", "),
    };
    let text = format!("SELECT {columns} FROM {name}");
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text);
    match parsed.ok().and_then(|mut statements| statements.pop()) {
        Some(Statement::Query(query)) => Ok(query),
        _ => Err(Failure::new(code::SYNTAX, format!("syntax error at or near \"{name}\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg::copy::{Columns, Header};
    use sqlparser::tokenizer::{Token, Tokenizer};
    use std::collections::BTreeMap;
    use types::data::{Column, ColumnType};

    fn catalog() -> Catalog {
        let columns = vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("Na\"me", ColumnType::Text),
            Column::new("pay", ColumnType::Decimal),
        ];
        let table = crate::catalog::example(columns);
        Catalog::from_map(1, BTreeMap::from([("t".to_string(), Arc::new(table))]))
    }

    fn planned(text: &str) -> Result<Planned, String> {
        let dialect = PostgreSqlDialect {};
        let tokens = Tokenizer::new(&dialect, text).tokenize().expect(text);
        let mut parser = Parser::new(&dialect).with_tokens(tokens);
        let copy = syntax::parse(&mut parser).map_err(|error| error.to_string())?.expect("a COPY");
        assert_eq!(parser.peek_token().token, Token::EOF, "{text}");
        plan(&catalog(), &copy).map_err(|failure| format!("{} {failure}", failure.code))
    }

    fn copied_in(text: &str) -> CopyIn {
        match planned(text) {
            Ok(Planned::In(copy)) => copy,
            Ok(Planned::Out(_)) => panic!("{text} goes out"),
            Err(why) => panic!("{text}: {why}"),
        }
    }

    fn copied_out(text: &str) -> (Vec<String>, Format) {
        match planned(text) {
            Ok(Planned::Out(copy)) => {
                let bound = copy.source.bound().expect("it gives rows");
                (bound.columns.iter().map(|(name, _)| name.clone()).collect(), copy.format)
            }
            Ok(Planned::In(_)) => panic!("{text} comes in"),
            Err(why) => panic!("{text}: {why}"),
        }
    }

    #[test]
    fn both_ways_to_write_options_mean_the_same() {
        let plain = copied_in("COPY t FROM STDIN");
        assert_eq!((plain.columns, plain.format), (vec![0, 1, 2], Format::text()));
        let chosen =
            copied_in("COPY public.t (pay, ID) FROM STDIN WITH (FORMAT TEXT, DELIMITER E'|', NULL '')");
        assert_eq!(chosen.columns, [2, 0]);
        assert_eq!(chosen.format, Format { delimiter: b'|', null: String::new(), ..Format::text() });
        let old = r#"COPY t FROM STDIN DELIMITER AS ';' NULL 'NA' CSV HEADER QUOTE '''' ESCAPE '\'
            FORCE NOT NULL "Na""me", pay"#;
        let new = r#"COPY t FROM STDIN (FORMAT 'csv', DELIMITER ';', NULL 'NA', HEADER, QUOTE '''', ESCAPE '\',
            FORCE_NOT_NULL ("Na""me", pay))"#;
        let (old, new) = (copied_in(old).format, copied_in(new).format);
        assert_eq!(old, new);
        assert_eq!(new.header, Header::Names);
        assert_eq!(new.csv.map(|csv| csv.force_not_null), Some(Columns::These(vec![1, 2])));
        let matched = copied_in("COPY t FROM STDIN (HEADER MATCH, ENCODING 'utf-8', FREEZE off)");
        assert_eq!(matched.format.header, Header::Match);
        assert!(!matched.freezes && copied_in("COPY t FROM STDIN (FREEZE)").freezes);
    }

    #[test]
    fn tables_and_queries_go_out() {
        assert_eq!(copied_out("COPY t TO STDOUT").0, ["id", "Na\"me", "pay"]);
        assert_eq!(copied_out(r#"COPY t ("Na""me") TO STDOUT"#).0, ["Na\"me"]);
        let (names, format) =
            copied_out("COPY (SELECT id + 1 AS n FROM t WHERE pay > 1) TO STDOUT CSV HEADER FORCE QUOTE *");
        assert_eq!(names, ["n"]);
        assert_eq!(format.csv.map(|csv| csv.force_quote), Some(Columns::All));
    }

    #[test]
    fn what_statements_that_write_tell_of_their_rows_goes_out() {
        for (text, names, name) in [
            ("COPY (INSERT INTO t (id) VALUES (1) RETURNING id, pay + 1 AS n) TO STDOUT", "id, n", "INSERT"),
            ("COPY (DELETE FROM t RETURNING id) TO STDOUT", "id", "DELETE"),
            (
                "COPY (WITH n AS (SELECT 1 AS id) UPDATE t SET pay = 0 FROM n WHERE t.id = n.id RETURNING pay) \
                 TO STDOUT",
                "pay",
                "UPDATE",
            ),
        ] {
            let Ok(Planned::Out(copy)) = planned(text) else { panic!("{text}") };
            assert_eq!(copy.source.writing(), Some(name), "{text}");
            assert_eq!(copied_out(text).0.join(", "), names, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_postgresql_does() {
        for (text, why) in [
            ("nothing FROM STDIN", "42P01 relation \"nothing\" does not exist"),
            ("t (x) FROM STDIN", "42703 column \"x\" of relation \"t\" does not exist"),
            ("t (x) TO STDOUT", "42703 column \"x\" of relation \"t\" does not exist"),
            ("t (id, id) FROM STDIN", "42701 column \"id\" specified more than once"),
            ("t FROM '/etc/passwd'", "0A000 COPY with a file or a program of the server is not supported"),
            ("t TO PROGRAM 'rm'", "0A000 COPY with a file or a program of the server is not supported"),
            ("t FROM STDIN BINARY", "0A000 COPY in the format binary is not supported"),
            ("t FROM STDIN (FORMAT x)", "22023 COPY format \"x\" not recognized"),
            ("t FROM STDIN (SPEED 1)", "42601 option \"speed\" not recognized"),
            ("t FROM STDIN (NULL 'a', NULL 'b')", "42601 conflicting or redundant options"),
            ("t FROM STDIN (DELIMITER 'ab')", "0A000 COPY delimiter must be a single one-byte character"),
            ("t FROM STDIN (DELIMITER 'a')", "22023 COPY delimiter cannot be \"a\""),
            ("t FROM STDIN (QUOTE 'a')", "0A000 COPY quote available only in CSV mode"),
            ("t FROM STDIN CSV QUOTE ','", "22023 COPY delimiter and quote must be different"),
            ("t FROM STDIN CSV NULL 'a,b'", "0A000 COPY delimiter must not appear in the NULL specification"),
            ("t FROM STDIN CSV FORCE QUOTE id", "0A000 COPY force quote only available using COPY TO"),
            ("t FROM STDIN CSV FORCE NULL x", "42P10 FORCE_NULL column \"x\" not referenced by COPY"),
            ("t TO STDOUT (HEADER match)", "0A000 cannot use \"match\" with HEADER in COPY TO"),
            ("t FROM STDIN (HEADER 2)", "42601 header requires a Boolean value or \"match\""),
            ("t FROM STDIN (ENCODING 'latin1')", "0A000 the encoding latin1 is not supported"),
            ("(SELECT id FROM t WHERE id = $1) TO STDOUT", "42P02 there is no parameter $1"),
            ("(DELETE FROM t WHERE id = $1 RETURNING id) TO STDOUT", "42P02 there is no parameter $1"),
            ("(DELETE FROM t) TO STDOUT", "0A000 COPY query must have a RETURNING clause"),
            (
                "(MERGE INTO t USING t AS s ON true WHEN MATCHED THEN DELETE) TO STDOUT",
                "0A000 MERGE not supported in COPY",
            ),
            ("t TO STDIN", "42601 COPY goes FROM STDIN or TO STDOUT"),
        ] {
            assert_eq!(planned(&format!("COPY {text}")).map(drop).expect_err(text), why, "{text}");
        }
    }
}

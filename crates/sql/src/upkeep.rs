//! VACUUM, ANALYZE, LOCK TABLE and what is said of roles: what PostgreSQL needs, and what tools send because
//! it does. Nothing is to be done for them here, and the client is told so.

use crate::bind::{no_schema, no_table, parts, table_name};
use crate::catalog::Catalog;
use crate::roles::{self, About, Kind};
use crate::system;
use pg::Failure;
use sqlparser::ast::ObjectName;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// VACUUM.
    Vacuum,
    /// ANALYZE.
    Analyze,
    /// LOCK TABLE.
    Lock,
    /// Roles, owners and privileges.
    Roles(About),
}

/// A statement that does nothing here.
#[derive(Clone, Debug)]
pub struct Upkeep {
    /// Which.
    pub what: What,
    /// The tables that it names.
    tables: Vec<ObjectName>,
}

impl Upkeep {
    /// The tables that it names, to be named otherwise.
    pub fn tables_mut(&mut self) -> impl Iterator<Item = &mut ObjectName> {
        let is_schema = self.what == What::Roles(About::Owner(Kind::Schema));
        self.tables.iter_mut().filter(move |_| !is_schema)
    }

    /// What the client is told is done.
    pub fn tag(&self) -> &'static str {
        match self.what {
            What::Vacuum => "VACUUM",
            What::Analyze => "ANALYZE",
            What::Lock => "LOCK TABLE",
            What::Roles(about) => about.tag(),
        }
    }

    /// What it comes to instead: a notice, or a warning where the client counts on what is not done.
    pub fn note(&self) -> Failure {
        let notice = |message: &str| Failure::new("00000", message);
        match self.what {
            What::Vacuum => notice("VACUUM does nothing here: room is made by merges, beside other work"),
            What::Analyze => notice("ANALYZE does nothing here: no statistics are kept"),
            What::Lock => {
                let message = "LOCK TABLE locks nothing here, and protects nothing: others go on writing";
                Failure::new("01000", message)
                    .hint("COMMIT compares only rows that were written, or locked by SELECT ... FOR UPDATE")
            }
            What::Roles(about) => about.note(),
        }
    }

    /// The tables must be there; whom a schema is given to, the schema.
    pub fn check(&self, catalog: &Catalog) -> Result<(), Failure> {
        for name in &self.tables {
            let of_roles = matches!(self.what, What::Roles(_));
            if self.what == What::Roles(About::Owner(Kind::Schema)) {
                let schema = parts(name)?.concat();
                if !catalog.has_schema(&schema) {
                    return Err(no_schema(&schema));
                }
                continue;
            }
            if of_roles && system::find(&parts(name)?).is_some() {
                continue;
            }
            let name = table_name(name)?;
            let is_other = of_roles && catalog.other(&name).is_some();
            if !is_other && catalog.table(&name).is_none() {
                return Err(no_table(&name));
            }
        }
        Ok(())
    }
}

/// Such a statement, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<Upkeep>, ParserError> {
    if let Some((about, tables)) = roles::parse(parser)? {
        return Ok(Some(Upkeep { what: What::Roles(about), tables }));
    }
    let what = match word(parser).as_deref() {
        Some("VACUUM") => What::Vacuum,
        Some("ANALYZE" | "ANALYSE") => What::Analyze,
        Some("LOCK") => What::Lock,
        _ => return Ok(None),
    };
    parser.advance_token();
    if parser.consume_token(&Token::LParen) {
        until_closed(parser)?;
    }
    let words: &[&str] = match what {
        What::Vacuum => &["FULL", "FREEZE", "VERBOSE", "ANALYZE", "ANALYSE"],
        What::Analyze => &["VERBOSE"],
        What::Lock => &["TABLE", "ONLY"],
        What::Roles(_) => &[],
    };
    while word(parser).is_some_and(|word| words.contains(&word.as_str())) {
        parser.advance_token();
    }
    let mut tables = Vec::new();
    while matches!(parser.peek_token_ref().token, Token::Word(_)) {
        tables.push(parser.parse_object_name(false)?);
        if what != What::Lock && parser.consume_token(&Token::LParen) {
            until_closed(parser)?;
        }
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    if what == What::Lock {
        while matches!(parser.peek_token_ref().token, Token::Word(_)) {
            // IN ... MODE, NOWAIT
            parser.advance_token();
        }
    }
    Ok(Some(Upkeep { what, tables }))
}

/// The word that comes next, in capitals.
fn word(parser: &Parser<'_>) -> Option<String> {
    match &parser.peek_token_ref().token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
        _ => None,
    }
}

/// Passes over a list in parentheses that is open.
fn until_closed(parser: &mut Parser<'_>) -> Result<(), ParserError> {
    loop {
        match parser.next_token().token {
            Token::RParen => return Ok(()),
            Token::EOF | Token::SemiColon => return parser.expected(")", parser.peek_token()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;

    fn parsed(text: &str) -> Option<(&'static str, Vec<String>)> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text).expect(text);
        let upkeep = parse(&mut parser).expect(text)?;
        assert_eq!(parser.peek_token().token, Token::EOF, "{text}");
        Some((upkeep.tag(), upkeep.tables.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn upkeep_is_read_as_tools_write_it() {
        for (text, tag, tables) in [
            ("vacuum analyze pgbench_branches", "VACUUM", &["pgbench_branches"][..]),
            ("VACUUM", "VACUUM", &[]),
            ("VACUUM (FULL, ANALYZE) a, public.b (c, d)", "VACUUM", &["a", "public.b"]),
            ("ANALYZE a", "ANALYZE", &["a"]),
            ("LOCK TABLE a, b IN ACCESS EXCLUSIVE MODE NOWAIT", "LOCK TABLE", &["a", "b"]),
            ("LOCK a", "LOCK TABLE", &["a"]),
        ] {
            let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
            assert_eq!(parsed(text), Some((tag, tables)), "{text}");
        }
        assert_eq!(parsed("SELECT 1"), None);
        // Who locks a table counts on it.
        for (what, code) in [(What::Lock, "01000"), (What::Vacuum, "00000"), (What::Analyze, "00000")] {
            assert_eq!(Upkeep { what, tables: Vec::new() }.note().code, code, "{what:?}");
        }
    }
}

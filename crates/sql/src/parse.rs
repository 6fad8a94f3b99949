//! From a statement's text to what was read.

use crate::altering::{self, Altering};
use crate::bind::{folded, table_name};
use crate::copy::{self, CopyStatement};
use crate::cursors::{self, CursorStatement};
use crate::database::{self, DatabaseStatement};
use crate::deferring::{self, SetConstraints};
use crate::numbering::{self, Counting, SequenceStatement};
use crate::plain;
use crate::procedures::{self, ProcedureStatement};
use crate::table_as::{self, TableAs};
use crate::table_like::{self, TableLike};
use crate::upkeep::{self, Upkeep};
use crate::views::{self, ViewStatement};
use pg::{Failure, code};
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

/// How deep expressions may be nested.
const DEPTH: usize = 50;
/// Operators and words in a row.
const CHAIN: usize = 600;
/// Set operations in a row.
const UNIONS: usize = 60;
/// The longest text. Values are no part of it, if they are sent as parameters.
const MAX_TEXT: usize = 8 << 20;

/// A statement, as it was read.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Sql(Box<Statement>),
    Copy(CopyStatement),
    Database(DatabaseStatement),
    Upkeep(Upkeep),
    SetConstraints(SetConstraints),
    Sequence(SequenceStatement),
    Cursor(CursorStatement),
    View(ViewStatement),
    Procedure(ProcedureStatement),
    AddIdentity(Box<Altering>, Counting),
    TableAs(Box<TableAs>),
    TableLike(Box<TableLike>),
}

/// The statements of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Said>, Failure> {
    if text.len() > MAX_TEXT {
        let message = format!("a statement has at most {MAX_TEXT} bytes");
        return Err(Failure::new(code::LIMIT, message).hint("send values as parameters"));
    }
    let dialect = PostgreSqlDialect {};
    let syntax = |sentence: String| Failure::new(code::SYNTAX, format!("syntax error: {sentence}"));
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| syntax(error.to_string()))?;
    check_chains(tokens.iter().map(|token| &token.token))?;
    if plain::overwrites(&tokens) {
        return Err(syntax("at or near \"OVERWRITE\"".into()));
    }
    let tokens = plain::plain(numbering::in_order(&tokens).unwrap_or(tokens));
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
        } else if let Some(set) = deferring::parse(parser)? {
            found.push(Said::SetConstraints(set));
        } else if let Some(statement) = cursors::parse(parser)? {
            found.push(Said::Cursor(statement));
        } else if let Some(statement) = numbering::parse(parser)? {
            found.push(Said::Sequence(statement));
        } else if let Some(statement) = views::parse(parser)? {
            found.push(Said::View(statement));
        } else if let Some(statement) = procedures::parse(parser)? {
            found.push(Said::Procedure(statement));
        } else if let Some((table, column, identity, counting)) = numbering::parse_added(parser)? {
            let table = table_name(&table).map_err(|failure| ParserError::ParserError(failure.message))?;
            let steps = vec![altering::Step::Number(folded(&column), Some(identity), false)];
            let altering = Altering { table, if_exists: false, steps };
            found.push(Said::AddIdentity(Box::new(altering), counting));
        } else if let Some(made) = table_as::parse(parser)? {
            found.push(Said::TableAs(Box::new(made)));
        } else if let Some(made) = table_like::parse(parser)? {
            found.push(Said::TableLike(Box::new(made)));
        } else {
            let mut statement = parser.parse_statement()?;
            found.push(match table_as::of_into(&mut statement) {
                Some(made) => Said::TableAs(Box::new(made)),
                None => Said::Sql(Box::new(statement)),
            });
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

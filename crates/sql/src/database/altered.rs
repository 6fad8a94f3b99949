//! ALTER DATABASE, as it was read.

use super::DatabaseStatement;
use sqlparser::ast::{ObjectName, Owner, SqlOption, Statement};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// What an ALTER DATABASE says, as it was read.
#[derive(Clone, Debug)]
pub enum Written {
    /// SET (name = value, ...).
    Options(Vec<SqlOption>),
    /// RENAME TO.
    Name(ObjectName),
    /// OWNER TO.
    Owner(Owner),
    /// SET or RESET of a parameter, as that statement by itself.
    Parameter(Box<Statement>),
    /// Anything else: the words.
    Other(String),
}

/// What follows ALTER DATABASE.
pub(super) fn parse(parser: &mut Parser<'_>) -> Result<DatabaseStatement, ParserError> {
    let name = parser.parse_object_name(false)?;
    Ok(DatabaseStatement::Alter { name, written: written(parser)? })
}

fn written(parser: &mut Parser<'_>) -> Result<Written, ParserError> {
    if parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        return Ok(Written::Name(parser.parse_object_name(false)?));
    }
    if parser.parse_keywords(&[Keyword::OWNER, Keyword::TO]) {
        return Ok(Written::Owner(parser.parse_owner()?));
    }
    let sets = parser.peek_keyword(Keyword::SET);
    let second = parser.peek_nth_token_ref(1).token.clone();
    if sets && second == Token::LParen {
        parser.expect_keyword(Keyword::SET)?;
        parser.expect_token(&Token::LParen)?;
        let options = parser.parse_comma_separated(Parser::parse_sql_option)?;
        parser.expect_token(&Token::RParen)?;
        return Ok(Written::Options(options));
    }
    let moves = second.to_string().eq_ignore_ascii_case("TABLESPACE");
    if (sets && !moves) || parser.peek_keyword(Keyword::RESET) {
        return Ok(Written::Parameter(Box::new(parser.parse_statement()?)));
    }
    let mut words = Vec::new();
    while !matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF) {
        words.push(parser.next_token().to_string());
    }
    match words.is_empty() {
        true => parser.expected("SET, RESET, RENAME TO or OWNER TO", parser.peek_token()),
        false => Ok(Written::Other(words.join(" "))),
    }
}

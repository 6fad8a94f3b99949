//! From tokens to a COPY. The parser's own would take what follows in the message for rows, and knows fewer
//! options.

use pg::copy::Columns;
use sqlparser::ast::{Ident, ObjectName, Query};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};
use sqlparser::tokenizer::Token;

/// A COPY as it is written.
#[derive(Clone, Debug)]
pub struct CopyStatement {
    /// Of what.
    pub whose: Whose,
    /// TO; else FROM.
    pub to: bool,
    /// To or from where.
    pub target: Target,
    /// What it is to be like.
    pub options: Vec<CopyOption>,
}

/// What is copied.
#[derive(Clone, Debug)]
pub enum Whose {
    /// A table, and the columns that are named.
    Table(ObjectName, Vec<Ident>),
    /// What a query gives.
    Query(Box<Query>),
}

/// The other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The client sends.
    Stdin,
    /// The client is sent.
    Stdout,
    /// A file or a program of the server.
    Elsewhere,
}

/// An option: its name in lower case, and its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOption {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Argument,
}

/// The value of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Argument {
    /// None is given.
    Nothing,
    /// A word, a number or a text.
    Text(String),
    /// Columns by their names.
    Names(Vec<Ident>),
    /// All columns.
    All,
}

impl Argument {
    /// The columns that are meant, by their place among those that are copied. The error: the name that is
    /// none of them.
    pub fn columns(&self, names: &[&str]) -> Result<Columns, String> {
        match self {
            Argument::All => Ok(Columns::All),
            Argument::Names(wanted) => {
                let place = |ident: &Ident| {
                    let name = crate::bind::folded(ident);
                    names.iter().position(|known| *known == name).ok_or(name)
                };
                wanted.iter().map(place).collect::<Result<_, _>>().map(Columns::These)
            }
            Argument::Nothing | Argument::Text(_) => Ok(Columns::None),
        }
    }
}

/// Reads a COPY, if one begins here.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<CopyStatement>, ParserError> {
    if !parser.parse_keyword(Keyword::COPY) {
        return Ok(None);
    }
    let mut options = Vec::new();
    if parser.parse_keyword(Keyword::BINARY) {
        options.push(named("format", "binary"));
    }
    let whose = if parser.consume_token(&Token::LParen) {
        let query = parser.parse_query()?;
        parser.expect_token(&Token::RParen)?;
        Whose::Query(query)
    } else {
        let name = parser.parse_object_name(false)?;
        Whose::Table(name, parser.parse_parenthesized_column_list(IsOptional::Optional, false)?)
    };
    let to = match parser.parse_one_of_keywords(&[Keyword::FROM, Keyword::TO]) {
        Some(Keyword::TO) => true,
        Some(_) if matches!(whose, Whose::Table(..)) => false,
        _ => return parser.expected("TO or FROM", parser.peek_token()),
    };
    let target = if parser.parse_keyword(Keyword::STDIN) {
        Target::Stdin
    } else if parser.parse_keyword(Keyword::STDOUT) {
        Target::Stdout
    } else {
        let _ = parser.parse_keyword(Keyword::PROGRAM);
        text(parser)?;
        Target::Elsewhere
    };
    // Of PostgreSQL before 7.3.
    let _ = parser.parse_keyword(Keyword::USING);
    let _ = parser.parse_keyword(Keyword::WITH);
    if parser.consume_token(&Token::LParen) {
        options.extend(parser.parse_comma_separated(option)?);
        parser.expect_token(&Token::RParen)?;
    } else {
        while let Some(option) = old_option(parser)? {
            options.push(option);
        }
    }
    Ok(Some(CopyStatement { whose, to, target, options }))
}

fn named(name: &str, value: &str) -> CopyOption {
    CopyOption { name: name.into(), value: Argument::Text(value.into()) }
}

fn text(parser: &mut Parser<'_>) -> Result<String, ParserError> {
    let found = parser.next_token();
    match found.token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
        _ => parser.expected("a text in quotes", found),
    }
}

/// `name value` in parentheses.
fn option(parser: &mut Parser<'_>) -> Result<CopyOption, ParserError> {
    let name = crate::bind::folded(&parser.parse_identifier()?);
    let value = match parser.peek_token().token {
        Token::Comma | Token::RParen => Argument::Nothing,
        Token::LParen => {
            Argument::Names(parser.parse_parenthesized_column_list(IsOptional::Mandatory, false)?)
        }
        _ => match parser.next_token().token {
            Token::Mul => Argument::All,
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Argument::Text(text),
            Token::Number(digits, _) => Argument::Text(digits),
            Token::Word(word) => {
                Argument::Text(crate::bind::folded(&word.into_ident(parser.get_current_token().span)))
            }
            _ => return parser.expected("a value of the option", parser.get_current_token().clone()),
        },
    };
    Ok(CopyOption { name, value })
}

/// An option as PostgreSQL had them before 9.0. `None`: there is none here.
fn old_option(parser: &mut Parser<'_>) -> Result<Option<CopyOption>, ParserError> {
    let Token::Word(word) = parser.peek_token().token else { return Ok(None) };
    let name = word.value.to_ascii_lowercase();
    let valued = |parser: &mut Parser<'_>, name: &str| {
        parser.next_token();
        let _ = parser.parse_keyword(Keyword::AS);
        text(parser).map(|text| named(name, &text))
    };
    Ok(Some(match name.as_str() {
        "binary" | "csv" => {
            parser.next_token();
            named("format", &name)
        }
        "freeze" | "header" => {
            parser.next_token();
            CopyOption { name, value: Argument::Nothing }
        }
        "delimiter" | "delimiters" => valued(parser, "delimiter")?,
        "null" | "quote" | "escape" | "encoding" => valued(parser, &name)?,
        "force" => {
            parser.next_token();
            let name = if parser.parse_keyword(Keyword::NULL) {
                "force_null"
            } else if parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]) {
                "force_not_null"
            } else {
                let quote = parser.parse_identifier()?;
                if !quote.value.eq_ignore_ascii_case("quote") {
                    return parser.expected("QUOTE, NULL or NOT NULL", parser.get_current_token().clone());
                }
                "force_quote"
            };
            let value = match parser.consume_token(&Token::Mul) {
                true => Argument::All,
                false => Argument::Names(parser.parse_comma_separated(Parser::parse_identifier)?),
            };
            CopyOption { name: name.into(), value }
        }
        _ => return Ok(None),
    }))
}

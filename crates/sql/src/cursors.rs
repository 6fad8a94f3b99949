//! PREPARE and EXECUTE, DECLARE, FETCH and CLOSE as statements: how they are written.

use crate::bind::folded;
use pg::{Failure, code};
use sqlparser::ast::{DataType, Expr, Query, Statement, Value, visit_expressions_mut};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::ops::ControlFlow;

/// A statement on cursors and prepared statements.
#[derive(Clone, PartialEq, Debug)]
pub enum CursorStatement {
    /// PREPARE: a statement under a name, with the types of its parameters as far as they are given.
    Prepare {
        /// Its name.
        name: String,
        /// The types of its parameters.
        types: Vec<DataType>,
        /// Itself.
        statement: Box<Statement>,
    },
    /// EXECUTE.
    Execute {
        /// Its name.
        name: String,
        /// The values of its parameters.
        arguments: Vec<Expr>,
    },
    /// DECLARE ... CURSOR FOR.
    Declare {
        /// Its name.
        name: String,
        /// It outlives its transaction.
        hold: bool,
        /// What it reads.
        query: Box<Query>,
    },
    /// FETCH, or MOVE, which gives no rows.
    Fetch {
        /// The cursor.
        name: String,
        /// Where to.
        way: Way,
        /// MOVE.
        moves: bool,
    },
    /// CLOSE; without a name: all.
    Close(Option<String>),
}

/// Which rows FETCH gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// So many from here on; negative: backward; 0: this one again.
    Next(i64),
    /// All that come.
    All,
    /// All before, backward.
    AllBefore,
    /// That one, from 1; negative: from the end.
    At(i64),
}

/// Such a statement, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<CursorStatement>, ParserError> {
    if parser.parse_keyword(Keyword::PREPARE) {
        let name = folded(&parser.parse_identifier()?);
        let mut types = Vec::new();
        if parser.consume_token(&Token::LParen) {
            types = parser.parse_comma_separated(Parser::parse_data_type)?;
            parser.expect_token(&Token::RParen)?;
        }
        parser.expect_keyword(Keyword::AS)?;
        let statement = Box::new(parser.parse_statement()?);
        return Ok(Some(CursorStatement::Prepare { name, types, statement }));
    }
    if parser.parse_keyword(Keyword::EXECUTE) {
        let name = folded(&parser.parse_identifier()?);
        let mut arguments = Vec::new();
        if parser.consume_token(&Token::LParen) && !parser.consume_token(&Token::RParen) {
            arguments = parser.parse_comma_separated(Parser::parse_expr)?;
            parser.expect_token(&Token::RParen)?;
        }
        return Ok(Some(CursorStatement::Execute { name, arguments }));
    }
    if parser.parse_keyword(Keyword::DECLARE) {
        return declared(parser).map(Some);
    }
    if parser.parse_keyword(Keyword::CLOSE) {
        let name = parser.parse_identifier()?;
        let all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
        return Ok(Some(CursorStatement::Close((!all).then(|| folded(&name)))));
    }
    let moves = plain(parser, "MOVE");
    if !moves && !parser.parse_keyword(Keyword::FETCH) {
        return Ok(None);
    }
    if moves {
        parser.advance_token();
    }
    let way = way(parser)?;
    let _ = parser.parse_keyword(Keyword::FROM) || parser.parse_keyword(Keyword::IN);
    let name = folded(&parser.parse_identifier()?);
    Ok(Some(CursorStatement::Fetch { name, way, moves }))
}

fn plain(parser: &Parser<'_>, wanted: &str) -> bool {
    match &parser.peek_token_ref().token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

fn declared(parser: &mut Parser<'_>) -> Result<CursorStatement, ParserError> {
    let name = folded(&parser.parse_identifier()?);
    while ["BINARY", "ASENSITIVE", "INSENSITIVE", "NO", "SCROLL"].iter().any(|word| plain(parser, word)) {
        if plain(parser, "BINARY") {
            return parser.expected("no BINARY", parser.peek_token());
        }
        parser.advance_token();
    }
    parser.expect_keyword(Keyword::CURSOR)?;
    let hold = parser.parse_keywords(&[Keyword::WITH, Keyword::HOLD]);
    let _ = !hold && parser.parse_keywords(&[Keyword::WITHOUT, Keyword::HOLD]);
    parser.expect_keyword(Keyword::FOR)?;
    let query = parser.parse_query()?;
    Ok(CursorStatement::Declare { name, hold, query })
}

fn way(parser: &mut Parser<'_>) -> Result<Way, ParserError> {
    let number = |parser: &mut Parser<'_>| -> Result<Option<i64>, ParserError> {
        let minus = parser.consume_token(&Token::Minus);
        if let Token::Number(text, _) = &parser.peek_token_ref().token {
            let number: Option<i64> = text.parse().ok();
            parser.advance_token();
            return Ok(number.map(|number| if minus { -number } else { number }));
        }
        if minus { parser.expected("a number", parser.peek_token()) } else { Ok(None) }
    };
    if let Some(count) = number(parser)? {
        return Ok(Way::Next(count));
    }
    for (word, back) in [("FORWARD", 1), ("BACKWARD", -1)] {
        if plain(parser, word) {
            parser.advance_token();
            if parser.parse_keyword(Keyword::ALL) {
                return Ok(if back > 0 { Way::All } else { Way::AllBefore });
            }
            return Ok(Way::Next(number(parser)?.unwrap_or(1) * back));
        }
    }
    for (word, way) in [("NEXT", Way::Next(1)), ("PRIOR", Way::Next(-1)), ("ALL", Way::All)] {
        if plain(parser, word) {
            parser.advance_token();
            return Ok(way);
        }
    }
    for (word, way) in [("FIRST", Way::At(1)), ("LAST", Way::At(-1))] {
        if plain(parser, word) {
            parser.advance_token();
            return Ok(way);
        }
    }
    for word in ["ABSOLUTE", "RELATIVE"] {
        if plain(parser, word) {
            parser.advance_token();
            let at = number(parser)?.unwrap_or(1);
            if word == "RELATIVE" && at.abs() != 1 {
                return parser.expected("RELATIVE 1 or -1", parser.peek_token());
            }
            return Ok(if word == "ABSOLUTE" { Way::At(at) } else { Way::Next(at) });
        }
    }
    Ok(Way::Next(1))
}

/// A prepared statement with its arguments in the places of its parameters.
pub fn filled(
    (name, types, statement): (&str, &[DataType], &Statement),
    arguments: &[Expr],
) -> Result<Statement, Failure> {
    let mut statement = statement.clone();
    let mut highest = types.len();
    let _ = visit_expressions_mut(&mut statement, |expr| {
        let Expr::Value(value) = expr else { return ControlFlow::<()>::Continue(()) };
        let Value::Placeholder(text) = &value.value else { return ControlFlow::Continue(()) };
        let Some(number) = text.strip_prefix('$').and_then(|number| number.parse::<usize>().ok()) else {
            return ControlFlow::Continue(());
        };
        highest = highest.max(number);
        if let Some(argument) = number.checked_sub(1).and_then(|at| arguments.get(at)) {
            let inner = Box::new(Expr::Nested(Box::new(argument.clone())));
            *expr = match types.get(number - 1) {
                Some(data_type) => Expr::Cast {
                    kind: sqlparser::ast::CastKind::DoubleColon,
                    expr: inner,
                    data_type: data_type.clone(),
                    array: false,
                    format: None,
                },
                None => argument.clone(),
            };
        }
        ControlFlow::Continue(())
    });
    if highest != arguments.len() {
        let message = format!("wrong number of parameters for prepared statement \"{name}\"");
        let detail = format!("Expected {highest} parameters but got {}.", arguments.len());
        return Err(Failure::new(code::SYNTAX, message).detail(detail));
    }
    Ok(statement)
}

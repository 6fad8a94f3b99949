//! What tools write and the parser does not know, in words that it knows: `FROM ONLY t`, as no table here has
//! heirs, `TABLE t` as a query, `OPERATOR(pg_catalog.=) ANY (...)`, and `INSERT ... OVERRIDING SYSTEM VALUE`,
//! for which the parser has `INSERT OVERWRITE`: what somebody writes so himself is refused ([`overwrites`]).
//! In `MERGE` columns stand for what the parser has no words for ([`NOTHING`], [`OVERRIDING`]). No client can
//! name them: no text of a client has a zero byte.

use sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Stands for a column: `DO NOTHING` in `MERGE`.
pub const NOTHING: &str = "\0nothing";
/// Stands for the first column: `OVERRIDING SYSTEM VALUE` in `MERGE`.
pub const OVERRIDING: &str = "\0overriding";

/// The same statement without them.
pub fn plain(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let words = [Keyword::ONLY, Keyword::OPERATOR, Keyword::TABLE, Keyword::MERGE];
    let says =
        |token: &TokenWithSpan| words.iter().any(|word| is_word(token, *word)) || named(token, "overriding");
    if !tokens.iter().any(says) {
        return tokens;
    }
    let tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let mut found: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // Where the statement begins, and whether it has said WITH: nobody looks back for that at each word.
    let (mut begin, mut says_with) = (0, false);
    // The last WHEN of a MERGE says NOT.
    let mut not_matched = false;
    let mut rest = &tokens[..];
    while let [first, after @ ..] = rest {
        if is_only(found.last(), first, after.first()) {
            rest = after;
        } else if is_query((&found[begin..], says_with), first, after.first()) {
            let words = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
            found.extend(words.map(TokenWithSpan::wrap));
            rest = after;
        } else if let Some((operator, after)) = of_any(rest) {
            found.push(operator.clone());
            rest = after;
        } else if let Some(after) = of_system(rest)
            && let Some(at) = found.iter().rposition(|token| is_word(token, Keyword::INSERT))
        {
            override_numbers(&mut found, at);
            rest = after;
        } else if let Some((words, after)) = of_merge(found.last(), rest, not_matched) {
            found.extend(words.into_iter().map(TokenWithSpan::wrap));
            rest = after;
        } else {
            if is_word(first, Keyword::MATCHED) {
                not_matched = says_not(&found).unwrap_or(not_matched);
            }
            found.push(first.clone());
            says_with |= is_word(first, Keyword::WITH);
            if first.token == Token::SemiColon {
                (begin, says_with) = (found.len(), false);
            }
            rest = after;
        }
    }
    found
}

/// True if a statement says `INSERT OVERWRITE`, which PostgreSQL does not know.
pub fn overwrites(tokens: &[TokenWithSpan]) -> bool {
    let mut words = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).peekable();
    while let Some(token) = words.next() {
        if is_word(token, Keyword::INSERT)
            && words.peek().is_some_and(|next| is_word(next, Keyword::OVERWRITE))
        {
            return true;
        }
    }
    false
}

fn named(token: &TokenWithSpan, name: &str) -> bool {
    matches!(&token.token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name))
}

/// `OVERRIDING SYSTEM VALUE`: what is behind it.
fn of_system(tokens: &[TokenWithSpan]) -> Option<&[TokenWithSpan]> {
    let [first, second, third, rest @ ..] = tokens else { return None };
    (named(first, "overriding") && named(second, "system") && named(third, "value")).then_some(rest)
}

/// Says of the INSERT at this place that it may give numbers that are the cluster's to give.
fn override_numbers(found: &mut Vec<TokenWithSpan>, at: usize) {
    let in_merge = at.checked_sub(1).is_some_and(|before| is_word(&found[before], Keyword::THEN));
    let has_columns = found.get(at + 1).is_some_and(|next| next.token == Token::LParen);
    let column = Token::make_word(OVERRIDING, Some('"'));
    let (place, words) = match (in_merge, has_columns) {
        (false, _) => (at + 1, vec![Token::make_keyword("OVERWRITE")]),
        (true, true) => (at + 2, vec![column, Token::Comma]),
        (true, false) => (at + 1, vec![Token::LParen, column, Token::RParen]),
    };
    drop(found.splice(place..place, words.into_iter().map(TokenWithSpan::wrap)));
}

/// Whether MATCHED behind these is that of `WHEN NOT MATCHED`; `None`: it is a column's name.
fn says_not(before: &[TokenWithSpan]) -> Option<bool> {
    match before {
        [.., when] if is_word(when, Keyword::WHEN) => Some(false),
        [.., when, not] if is_word(when, Keyword::WHEN) && is_word(not, Keyword::NOT) => Some(true),
        _ => None,
    }
}

/// `DO NOTHING` and `INSERT DEFAULT VALUES` behind THEN: what is said instead, and what is behind it.
fn of_merge<'a>(
    before: Option<&TokenWithSpan>,
    tokens: &'a [TokenWithSpan],
    not_matched: bool,
) -> Option<(Vec<Token>, &'a [TokenWithSpan])> {
    let [first, second, rest @ ..] = tokens else { return None };
    if !before.is_some_and(|token| is_word(token, Keyword::THEN)) {
        return None;
    }
    let (open, close, column) = (Token::LParen, Token::RParen, Token::make_word(NOTHING, Some('"')));
    let (null, default) = (Token::make_keyword("NULL"), Token::make_keyword("DEFAULT"));
    let (insert, values) = (Token::make_keyword("INSERT"), Token::make_keyword("VALUES"));
    if is_word(first, Keyword::DO) && is_word(second, Keyword::NOTHING) {
        let (update, set) = (Token::make_keyword("UPDATE"), Token::make_keyword("SET"));
        let words = match not_matched {
            true => vec![insert, open.clone(), column, close.clone(), values, open, null, close],
            false => vec![update, set, column, Token::Eq, null],
        };
        return Some((words, rest));
    }
    let [third, rest @ ..] = rest else { return None };
    let defaults = is_word(first, Keyword::INSERT)
        && is_word(second, Keyword::DEFAULT)
        && is_word(third, Keyword::VALUES);
    // A row that says DEFAULT for its first column says so for all.
    defaults.then(|| (vec![insert, values, open, default, close], rest))
}

fn is_word(token: &TokenWithSpan, keyword: Keyword) -> bool {
    matches!(&token.token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
}

/// `FROM ONLY name` and `JOIN ONLY name`: the middle one. Without a name behind it it is one.
fn is_only(before: Option<&TokenWithSpan>, this: &TokenWithSpan, after: Option<&TokenWithSpan>) -> bool {
    let reads =
        |token: &TokenWithSpan| [Keyword::FROM, Keyword::JOIN].iter().any(|word| is_word(token, *word));
    is_word(this, Keyword::ONLY) && before.is_some_and(reads) && after.is_some_and(names)
}

/// True for what may be a table's name.
fn names(token: &TokenWithSpan) -> bool {
    match &token.token {
        Token::Word(word) if word.quote_style.is_some() => true,
        Token::Word(word) => word.keyword != Keyword::AS && !RESERVED_FOR_TABLE_ALIAS.contains(&word.keyword),
        _ => false,
    }
}

/// `TABLE name` where a query may begin: the first one. `before` is what its statement has said, and whether
/// WITH is part of that.
fn is_query(
    (before, says_with): (&[TokenWithSpan], bool),
    this: &TokenWithSpan,
    after: Option<&TokenWithSpan>,
) -> bool {
    const BEFORE_A_QUERY: [Keyword; 9] = [
        Keyword::AS,
        Keyword::UNION,
        Keyword::ALL,
        Keyword::DISTINCT,
        Keyword::INTERSECT,
        Keyword::EXCEPT,
        Keyword::FOR,
        Keyword::EXPLAIN,
        Keyword::VERBOSE,
    ];
    if !is_word(this, Keyword::TABLE) || !after.is_some_and(names) {
        return false;
    }
    match before.last() {
        None => true,
        Some(last) if last.token == Token::LParen => true,
        // Behind the parts of a WITH.
        Some(last) if last.token == Token::RParen && says_with => true,
        Some(last) if BEFORE_A_QUERY.iter().any(|word| is_word(last, *word)) => true,
        Some(last) => names_a_target(before, last),
    }
}

/// True for `INSERT INTO name`, with columns or without.
fn names_a_target(statement: &[TokenWithSpan], last: &TokenWithSpan) -> bool {
    let of_insert = matches!(statement, [insert, into, _, ..]
        if is_word(insert, Keyword::INSERT) && is_word(into, Keyword::INTO));
    of_insert && (last.token == Token::RParen || names(last))
}

/// `OPERATOR ( pg_catalog . op ) ANY`, or ALL: the operator, and what is behind it.
fn of_any(tokens: &[TokenWithSpan]) -> Option<(&TokenWithSpan, &[TokenWithSpan])> {
    let [word, open, schema, dot, operator, close, rest @ ..] = tokens else { return None };
    let is_catalog =
        matches!(&schema.token, Token::Word(word) if word.value.eq_ignore_ascii_case("pg_catalog"));
    let follows = rest.first().is_some_and(|next| {
        [Keyword::ANY, Keyword::ALL, Keyword::SOME].iter().any(|word| is_word(next, *word))
    });
    let fits = is_word(word, Keyword::OPERATOR)
        && open.token == Token::LParen
        && is_catalog
        && dot.token == Token::Period
        && close.token == Token::RParen;
    (fits && follows).then_some((operator, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    #[test]
    fn what_the_parser_does_not_know_is_said_in_other_words() {
        for (text, expected) in [
            ("SELECT a FROM ONLY public.t", "SELECT a FROM public . t"),
            ("SELECT a FROM ONLY \"T\" JOIN only u ON true", "SELECT a FROM \"T\" JOIN u ON true"),
            ("SELECT only FROM only WHERE true", "SELECT only FROM only WHERE true"),
            ("SELECT a FROM ONLY name", "SELECT a FROM name"),
            ("SELECT o.a FROM only AS o", "SELECT o . a FROM only AS o"),
            ("SELECT 1 OPERATOR(pg_catalog.=) ANY ('{1}')", "SELECT 1 = ANY ( '{1}' )"),
            ("SELECT 1 OPERATOR(pg_catalog.+) 2", "SELECT 1 OPERATOR ( pg_catalog . + ) 2"),
            ("SELECT 'FROM ONLY t'", "SELECT 'FROM ONLY t'"),
            (
                "INSERT INTO t (a) OVERRIDING system VALUE VALUES (1)",
                "INSERT OVERWRITE INTO t ( a ) VALUES ( 1 )",
            ),
            ("SELECT overriding FROM t", "SELECT overriding FROM t"),
            ("TABLE t; TABLE ONLY s.t ORDER BY 1", "SELECT * FROM t ; SELECT * FROM s . t ORDER BY 1"),
            ("CREATE TABLE a AS TABLE b", "CREATE TABLE a AS SELECT * FROM b"),
            ("SELECT 1 UNION ALL (TABLE t)", "SELECT 1 UNION ALL ( SELECT * FROM t )"),
            ("INSERT INTO a (x) TABLE \"B\"", "INSERT INTO a ( x ) SELECT * FROM \"B\""),
            ("WITH a AS (SELECT 1) TABLE a", "WITH a AS ( SELECT 1 ) SELECT * FROM a"),
            (
                "WITH a AS (SELECT 1) SELECT (b) table FROM a",
                "WITH a AS ( SELECT 1 ) SELECT ( b ) table FROM a",
            ),
            ("SELECT 1 AS table FROM t", "SELECT 1 AS table FROM t"),
            ("ALTER TABLE t RENAME TO u", "ALTER TABLE t RENAME TO u"),
            ("DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS t"),
            ("SELECT 1 INTO TABLE t", "SELECT 1 INTO TABLE t"),
            (
                "MERGE INTO t USING u ON true WHEN MATCHED AND NOT a THEN DO NOTHING \
                 WHEN NOT MATCHED THEN do nothing",
                "MERGE INTO t USING u ON true WHEN MATCHED AND NOT a THEN UPDATE SET \"\0nothing\" = NULL \
                 WHEN NOT MATCHED THEN INSERT ( \"\0nothing\" ) VALUES ( NULL )",
            ),
            (
                "MERGE INTO t USING u ON true WHEN MATCHED AND NOT matched THEN DO NOTHING",
                "MERGE INTO t USING u ON true WHEN MATCHED AND NOT matched THEN UPDATE SET \"\0nothing\" = NULL",
            ),
            (
                "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT DEFAULT VALUES",
                "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN INSERT VALUES ( DEFAULT )",
            ),
            (
                "MERGE INTO t USING u ON a WHEN NOT MATCHED AND b THEN INSERT (c) OVERRIDING SYSTEM VALUE \
                 VALUES (1) WHEN NOT MATCHED THEN INSERT OVERRIDING SYSTEM VALUE VALUES (1)",
                "MERGE INTO t USING u ON a WHEN NOT MATCHED AND b THEN INSERT ( \"\0overriding\" , c ) \
                 VALUES ( 1 ) WHEN NOT MATCHED THEN INSERT ( \"\0overriding\" ) VALUES ( 1 )",
            ),
            (
                "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
                "INSERT INTO t VALUES ( 1 ) ON CONFLICT DO NOTHING",
            ),
        ] {
            let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
            let said: Vec<String> = plain(tokens.expect("tokens"))
                .iter()
                .filter(|token| !matches!(token.token, Token::Whitespace(_)))
                .map(|token| token.token.to_string())
                .collect();
            assert_eq!(said.join(" "), expected);
        }
    }

    /// A text may be long: for nothing in it is looked back at all of it.
    #[test]
    fn long_texts_are_read_once() {
        for text in [
            format!("SELECT {}c", "a table b, ".repeat(100_000)),
            format!("CREATE TABLE t (a int); INSERT INTO t VALUES {}(1)", "(0), ".repeat(100_000)),
        ] {
            let tokens = Tokenizer::new(&PostgreSqlDialect {}, &text).tokenize_with_location();
            let tokens = tokens.expect("tokens");
            let said = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).count();
            assert_eq!(plain(tokens).len(), said);
        }
    }
}

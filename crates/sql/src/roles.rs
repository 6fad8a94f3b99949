//! Roles are names here: there is one, which may do everything. What tools and the dumps of other databases
//! say of roles, owners and privileges is read, and changes nothing; the client is told so.

use crate::bind::folded;
use pg::Failure;
use sqlparser::ast::ObjectName;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// What is said of roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// CREATE ROLE, USER or GROUP.
    Create,
    /// ALTER ROLE, USER or GROUP.
    Alter,
    /// DROP ROLE, USER or GROUP.
    Drop,
    /// GRANT of privileges.
    Grant,
    /// GRANT of roles.
    GrantRole,
    /// REVOKE of privileges.
    Revoke,
    /// REVOKE of roles.
    RevokeRole,
    /// REASSIGN OWNED.
    Reassign,
    /// ALTER DEFAULT PRIVILEGES.
    Defaults,
    /// ALTER ... OWNER TO, of something of this kind.
    Owner(Kind),
}

/// What has an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A table, or what PostgreSQL takes for one here.
    Table,
    /// A view.
    View,
    /// A sequence.
    Sequence,
    /// A schema.
    Schema,
    /// A database.
    Database,
}

impl About {
    /// What the client is told is done.
    pub fn tag(self) -> &'static str {
        match self {
            About::Create => "CREATE ROLE",
            About::Alter => "ALTER ROLE",
            About::Drop => "DROP ROLE",
            About::Grant => "GRANT",
            About::GrantRole => "GRANT ROLE",
            About::Revoke => "REVOKE",
            About::RevokeRole => "REVOKE ROLE",
            About::Reassign => "REASSIGN OWNED",
            About::Defaults => "ALTER DEFAULT PRIVILEGES",
            About::Owner(Kind::Table) => "ALTER TABLE",
            About::Owner(Kind::View) => "ALTER VIEW",
            About::Owner(Kind::Sequence) => "ALTER SEQUENCE",
            About::Owner(Kind::Schema) => "ALTER SCHEMA",
            About::Owner(Kind::Database) => "ALTER DATABASE",
        }
    }

    /// What it comes to instead: a notice, or a warning where the client counts on what is not done.
    pub fn note(self) -> Failure {
        let one = format!("there is one role, {}, which may do everything", crate::USER);
        match self {
            About::Revoke | About::RevokeRole => {
                Failure::new("01000", format!("REVOKE withdraws nothing here, and protects nothing: {one}"))
                    .hint("who has the password of the cluster may read and write everything")
            }
            // psql's \password is one.
            About::Alter => {
                Failure::new("01000", format!("ALTER ROLE changes nothing here, and no password: {one}"))
            }
            About::Owner(_) => Failure::new("00000", format!("OWNER TO changes nothing here: {one}")),
            _ => Failure::new("00000", format!("{} changes nothing here: {one}", self.tag())),
        }
    }
}

/// The words that come next, in capitals; none where something else comes, or a name in quotes.
fn words(parser: &Parser<'_>) -> [String; 3] {
    let word = |at: usize| match &parser.peek_nth_token_ref(at).token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
        _ => String::new(),
    };
    [word(0), word(1), word(2)]
}

/// What is said of roles, with the tables that it names, if this is such a statement. Otherwise the parser
/// stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<(About, Vec<ObjectName>)>, ParserError> {
    let [first, second, third] = words(parser);
    let is_role = matches!(second.as_str(), "ROLE" | "USER" | "GROUP") && third != "MAPPING";
    let about = match (first.as_str(), second.as_str()) {
        ("CREATE", _) if is_role => About::Create,
        ("ALTER", _) if is_role => About::Alter,
        ("DROP", _) if is_role => About::Drop,
        ("REASSIGN", "OWNED") => About::Reassign,
        ("ALTER", "DEFAULT") if third == "PRIVILEGES" => About::Defaults,
        ("GRANT", _) => return privileges(parser, Keyword::TO).map(Some),
        ("REVOKE", _) => return privileges(parser, Keyword::FROM).map(Some),
        ("ALTER", _) => return owned(parser),
        _ => return Ok(None),
    };
    parser.advance_token();
    parser.advance_token();
    match about {
        About::Reassign => {
            parser.expect_keyword(Keyword::BY)?;
            parser.parse_comma_separated(Parser::parse_identifier)?;
            parser.expect_keyword(Keyword::TO)?;
            parser.parse_identifier()?;
        }
        About::Defaults => {
            parser.advance_token();
            until(parser, &[Keyword::GRANT, Keyword::REVOKE])?;
        }
        _ => {
            let _ = about == About::Drop && parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
            parser.parse_identifier()?;
        }
    }
    to_its_end(parser);
    Ok(Some((about, Vec::new())))
}

/// GRANT and REVOKE, of privileges or roles, `to` roles.
fn privileges(parser: &mut Parser<'_>, to: Keyword) -> Result<(About, Vec<ObjectName>), ParserError> {
    parser.advance_token();
    let of_privileges = until(parser, &[Keyword::ON, to])? == Keyword::ON;
    let tables = if of_privileges { objects(parser)? } else { Vec::new() };
    if of_privileges {
        until(parser, &[to])?;
    }
    parser.parse_identifier()?;
    to_its_end(parser);
    let about = match (to == Keyword::TO, of_privileges) {
        (true, true) => About::Grant,
        (true, false) => About::GrantRole,
        (false, true) => About::Revoke,
        (false, false) => About::RevokeRole,
    };
    Ok((about, tables))
}

/// The tables and sequences behind ON; none, where something else stands there.
fn objects(parser: &mut Parser<'_>) -> Result<Vec<ObjectName>, ParserError> {
    const OTHERS: [&str; 13] = [
        "ALL",
        "DATABASE",
        "DOMAIN",
        "FOREIGN",
        "FUNCTION",
        "LANGUAGE",
        "LARGE",
        "PARAMETER",
        "PROCEDURE",
        "ROUTINE",
        "SCHEMA",
        "TABLESPACE",
        "TYPE",
    ];
    let [first, ..] = words(parser);
    match first.as_str() {
        first if OTHERS.contains(&first) => return Ok(Vec::new()),
        "TABLE" | "SEQUENCE" => parser.advance_token(),
        _ => {}
    }
    parser.parse_comma_separated(|parser| parser.parse_object_name(false))
}

/// ALTER ... OWNER TO, where nothing else is altered. That the one role owns a table or a schema is said as
/// ever.
fn owned(parser: &mut Parser<'_>) -> Result<Option<(About, Vec<ObjectName>)>, ParserError> {
    let kinds = [Keyword::TABLE, Keyword::VIEW, Keyword::SEQUENCE, Keyword::SCHEMA, Keyword::DATABASE];
    let head = parser.maybe_parse(|parser| {
        parser.expect_keyword(Keyword::ALTER)?;
        let kind = match parser.expect_one_of_keywords(&kinds)? {
            Keyword::TABLE => Kind::Table,
            Keyword::VIEW => Kind::View,
            Keyword::SEQUENCE => Kind::Sequence,
            Keyword::SCHEMA => Kind::Schema,
            _ => Kind::Database,
        };
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let _ = kind == Kind::Table && parser.parse_keyword(Keyword::ONLY);
        let name = parser.parse_object_name(false)?;
        parser.expect_keywords(&[Keyword::OWNER, Keyword::TO])?;
        let role = parser.parse_identifier()?;
        let known = matches!(kind, Kind::Table | Kind::Schema) && folded(&role) == crate::USER;
        match known || !is_over(parser) {
            true => parser.expected("the end of the statement", parser.peek_token()),
            false => Ok((kind, if_exists, name)),
        }
    })?;
    Ok(head.map(|(kind, if_exists, name)| {
        let looked_for = !if_exists && kind != Kind::Database;
        (About::Owner(kind), if looked_for { vec![name] } else { Vec::new() })
    }))
}

/// Passes over what comes before one of these keywords, and over that: which it was.
fn until(parser: &mut Parser<'_>, keywords: &[Keyword]) -> Result<Keyword, ParserError> {
    while !is_over(parser) {
        if let Some(found) = parser.parse_one_of_keywords(keywords) {
            return Ok(found);
        }
        parser.advance_token();
    }
    let wanted: Vec<String> = keywords.iter().map(|keyword| format!("{keyword:?}")).collect();
    parser.expected(&wanted.join(" or "), parser.peek_token())
}

/// Passes over the rest of the statement.
fn to_its_end(parser: &mut Parser<'_>) {
    while !is_over(parser) {
        parser.advance_token();
    }
}

fn is_over(parser: &Parser<'_>) -> bool {
    matches!(parser.peek_token_ref().token, Token::SemiColon | Token::EOF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;

    fn parsed(text: &str) -> Result<Option<(&'static str, Vec<String>)>, ParserError> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text).expect(text);
        let Some((about, tables)) = parse(&mut parser)? else {
            assert!(text.starts_with(&parser.peek_token().to_string()), "{text}");
            return Ok(None);
        };
        assert_eq!(parser.peek_token().token, Token::EOF, "{text}");
        Ok(Some((about.tag(), tables.iter().map(ToString::to_string).collect())))
    }

    #[test]
    fn what_dumps_say_of_roles_is_read() {
        for (text, tag, tables) in [
            ("GRANT ALL PRIVILEGES ON t TO PUBLIC", "GRANT", &["t"][..]),
            ("CREATE ROLE app", "CREATE ROLE", &[]),
            ("CREATE USER app WITH LOGIN PASSWORD 'secret; no end'", "CREATE ROLE", &[]),
            ("ALTER ROLE postgres WITH SUPERUSER INHERIT CONNECTION LIMIT -1", "ALTER ROLE", &[]),
            ("ALTER USER ALL SET search_path TO app, public", "ALTER ROLE", &[]),
            ("DROP ROLE IF EXISTS one, two", "DROP ROLE", &[]),
            (
                "GRANT SELECT (a, b), UPDATE ON TABLE public.t, u TO app WITH GRANT OPTION",
                "GRANT",
                &["public.t", "u"],
            ),
            ("GRANT USAGE ON SEQUENCE s TO \"an app\"", "GRANT", &["s"]),
            ("GRANT SELECT ON ALL TABLES IN SCHEMA public TO app", "GRANT", &[]),
            ("GRANT CREATE ON SCHEMA app TO CURRENT_USER", "GRANT", &[]),
            ("GRANT readers, writers TO app", "GRANT ROLE", &[]),
            ("REVOKE ALL ON FUNCTION f(int, text) FROM PUBLIC CASCADE", "REVOKE", &[]),
            ("REVOKE GRANT OPTION FOR SELECT ON t FROM app", "REVOKE", &["t"]),
            ("REVOKE readers FROM app", "REVOKE ROLE", &[]),
            ("REASSIGN OWNED BY one, two TO three", "REASSIGN OWNED", &[]),
            (
                "ALTER DEFAULT PRIVILEGES FOR ROLE a IN SCHEMA public GRANT SELECT ON TABLES TO app",
                "ALTER DEFAULT PRIVILEGES",
                &[],
            ),
            ("ALTER TABLE ONLY public.t OWNER TO postgres", "ALTER TABLE", &["public.t"]),
            ("ALTER TABLE IF EXISTS t OWNER TO postgres", "ALTER TABLE", &[]),
            ("ALTER VIEW v OWNER TO understudy", "ALTER VIEW", &["v"]),
            ("ALTER SEQUENCE app.s OWNER TO \"Postgres\"", "ALTER SEQUENCE", &["app.s"]),
            ("ALTER SCHEMA app OWNER TO postgres", "ALTER SCHEMA", &["app"]),
            ("ALTER DATABASE bank OWNER TO postgres", "ALTER DATABASE", &[]),
        ] {
            let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
            assert_eq!(parsed(text), Ok(Some((tag, tables))), "{text}");
        }
    }

    #[test]
    fn what_is_something_else_stays_as_it_is() {
        for text in [
            "ALTER TABLE t OWNER TO understudy",
            "ALTER TABLE t ADD COLUMN x int, OWNER TO postgres",
            "ALTER TABLE t OWNER TO postgres, ADD COLUMN x int",
            "CREATE USER MAPPING FOR app SERVER s",
            "ALTER SEQUENCE s RESTART",
            "DROP OWNED BY app",
            "SELECT 1",
        ] {
            assert_eq!(parsed(text), Ok(None), "{text}");
        }
        for text in ["GRANT", "GRANT SELECT ON t", "REVOKE x TO y", "CREATE ROLE", "REASSIGN OWNED TO x"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn who_counts_on_what_is_not_done_is_warned() {
        for (about, code) in [(About::Revoke, "01000"), (About::Alter, "01000"), (About::Grant, "00000")] {
            assert_eq!(about.note().code, code, "{about:?}");
        }
    }
}

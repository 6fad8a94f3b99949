//! CREATE DATABASE and DROP DATABASE, and tables of the database that a session is in.

use crate::bind::folded;
use crate::ddl::{self, on_a_client};
use crate::driver::Handle;
use crate::fault;
use client::{Client, ClientError, Table};
use pg::{Failure, code};
use sqlparser::ast::{ObjectName, SqlOption};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use types::data::Schema;
use wire::control::{AdminCommand, CreateTable as Request};

/// CREATE DATABASE or DROP DATABASE as it is written. The parser's own knows no options.
#[derive(Clone, Debug)]
pub enum DatabaseStatement {
    /// Makes one.
    Create {
        /// Its name.
        name: ObjectName,
        /// How it is kept.
        options: Vec<SqlOption>,
    },
    /// Drops one.
    Drop {
        /// Its name.
        name: ObjectName,
        /// One that there is not is skipped.
        if_exists: bool,
        /// Also if it has tables, or somebody is in it.
        force: bool,
    },
}

/// A statement on databases, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<DatabaseStatement>, ParserError> {
    if parser.parse_keywords(&[Keyword::CREATE, Keyword::DATABASE]) {
        let name = parser.parse_object_name(false)?;
        let with = parser.parse_keyword(Keyword::WITH);
        let options = match with && parser.peek_token_ref().token == Token::LParen {
            true => {
                parser.expect_token(&Token::LParen)?;
                let options = parser.parse_comma_separated(Parser::parse_sql_option)?;
                parser.expect_token(&Token::RParen)?;
                options
            }
            false => Vec::new(),
        };
        return Ok(Some(DatabaseStatement::Create { name, options }));
    }
    if parser.parse_keywords(&[Keyword::DROP, Keyword::DATABASE]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        let _ = parser.parse_keyword(Keyword::WITH);
        let force = parser.consume_token(&Token::LParen);
        if force {
            parser.expect_keyword(Keyword::FORCE)?;
            parser.expect_token(&Token::RParen)?;
        }
        return Ok(Some(DatabaseStatement::Drop { name, if_exists, force }));
    }
    Ok(None)
}

/// The name of a database.
pub fn name(name: &ObjectName) -> Result<String, Failure> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(folded),
        _ => None,
    }
    .ok_or_else(|| Failure::new(code::SYNTAX, format!("syntax error at \"{name}\"")))
}

/// The cluster's request for a CREATE DATABASE.
pub fn request(named: &ObjectName, options: &[SqlOption]) -> Result<Request, Failure> {
    let mut request = Request::database(&name(named)?, "durable");
    options.iter().try_for_each(|option| ddl::apply(option, &mut request))?;
    let asked = (request.partitions, request.schema.clone());
    if asked != (1, types::database::catalog_schema()) {
        let hint = "a database has one partition for now: leave partitions and partition_by out";
        return Err(Failure::unsupported("a database of several partitions", hint));
    }
    Ok(request)
}

/// Makes a database, and waits until it serves and this node knows it.
pub async fn create(handle: &Handle, request: Request) -> Result<(), Failure> {
    let name = request.name.clone();
    let exists = || Failure::new("42P04", format!("database \"{name}\" already exists"));
    if name == crate::DATABASE || handle.map().database(&name).is_some() {
        return Err(exists());
    }
    on_a_client(handle, move |client| client.create_database(&request).map(drop)).await?;
    handle.wait_map(|map| map.database(&name).is_some()).await;
    Ok(())
}

/// Drops a database. `used`: somebody of this node is in it.
pub async fn drop_one(
    handle: &Handle,
    name: &str,
    (if_exists, force, used): (bool, bool, bool),
) -> Result<(), Failure> {
    let found = handle.map().database(name).cloned();
    let Some(record) = found else {
        return match if_exists {
            true => Ok(()),
            false if name == crate::DATABASE => {
                Err(Failure::new("42501", format!("database \"{name}\" is the cluster's own")))
            }
            false => Err(Failure::new("3D000", format!("database \"{name}\" does not exist"))),
        };
    };
    if handle.database() == Some(record.id) {
        return Err(Failure::new("55006", "cannot drop the currently open database"));
    }
    let hint = format!("DROP DATABASE {name} WITH (FORCE) drops it with its tables, whoever is in it");
    if used && !force {
        let message = format!("database \"{name}\" is being accessed by other users");
        return Err(Failure::new("55006", message).hint(hint));
    }
    let tables = handle.within(Some(record.id)).look().await?.all().count();
    if tables > 0 && !force {
        let message = format!("cannot drop database \"{name}\" because it has tables");
        return Err(Failure::new("2BP01", message).hint(hint));
    }
    let asked = name.to_string();
    on_a_client(handle, move |client| client.admin(AdminCommand::DropDatabase(asked)).map(drop)).await?;
    handle.wait_map(|map| map.owner(record.id).is_none()).await;
    Ok(())
}

fn taken(name: &str, error: ClientError) -> Failure {
    match error {
        ClientError::NameTaken => Failure::new("42P07", format!("relation \"{name}\" already exists")),
        other => fault::of_client(other),
    }
}

/// Makes a table in the session's database.
pub async fn create_table(
    handle: &Handle,
    (name, schema): (String, Schema),
    if_not_exists: bool,
) -> Result<(), Failure> {
    let there = handle.look().await?.table(&name).is_some();
    if there && if_not_exists {
        return Ok(());
    }
    if there {
        return Err(taken(&name, ClientError::NameTaken));
    }
    let database = handle.database_record()?;
    let numbered = schema.columns().iter().any(|column| column.rules.identity.is_some());
    let asked = name.clone();
    let made = on_a_client(handle, move |client| {
        if numbered {
            ddl::counters(client)?;
        }
        Ok(client.create_table_in(&database, &asked, schema).map(drop))
    });
    made.await?.map_err(|error| taken(&name, error))?;
    handle.look().await.map(drop)
}

/// Drops tables of the session's database, one after the other.
pub async fn drop_tables(handle: &Handle, names: Vec<String>, if_exists: bool) -> Result<(), Failure> {
    let catalog = handle.look().await?;
    let missing = names.iter().find(|name| catalog.table(name).is_none());
    if let Some(name) = missing.filter(|_| !if_exists) {
        return Err(Failure::new("42P01", format!("table \"{name}\" does not exist")));
    }
    for table in names.iter().filter_map(|name| catalog.table(name)) {
        let table = Table::new(table.clone());
        on_a_client(handle, move |client| client.drop_table_in(&table).map(drop)).await?;
    }
    handle.look().await.map(drop)
}

/// ALTER TABLE in the session's database: new columns.
pub async fn alter_table(handle: &Handle, request: wire::control::AlterTable) -> Result<(), Failure> {
    let columns = request.add_columns.clone();
    let others = wire::control::AlterTable { add_columns: Vec::new(), ..request.clone() };
    let nothing = wire::control::AlterTable { name: request.name.clone(), ..Default::default() };
    if others != nothing {
        let hint = "a database's tables are kept as it is: `understudy database alter` changes that";
        return Err(Failure::unsupported("SET of a table in a database", hint));
    }
    let missing = || Failure::new("42P01", format!("relation \"{}\" does not exist", request.name));
    let table = handle.current().await?.table(&request.name).cloned().ok_or_else(missing)?;
    let name = request.name.clone();
    on_a_client(handle, move |client: &mut Client| {
        let wrong = |error: types::data::SchemaError| ClientError::Data {
            table: name.clone(),
            why: error.to_string(),
        };
        let altered = client.alter_table_in(&Table::new(table), |table| {
            let mut schema = table.schema().clone();
            for column in &columns {
                schema = schema.with_column(column.clone()).map_err(wrong)?;
            }
            Ok((table.name().to_string(), schema))
        });
        altered.map(drop)
    })
    .await?;
    handle.look().await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;

    fn parsed(text: &str) -> Result<Option<DatabaseStatement>, ParserError> {
        parse(&mut Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?)
    }

    #[test]
    fn statements_on_databases_are_read_with_their_options() {
        let request = |text: &str| match parsed(text) {
            Ok(Some(DatabaseStatement::Create { name, options })) => request(&name, &options),
            other => panic!("{text}: {other:?}"),
        };
        let plain = request("CREATE DATABASE Bank").expect("good");
        assert_eq!((plain.name.as_str(), plain.holds), ("bank", types::Holds::Database));
        let with = request("CREATE DATABASE bank WITH (policy = semi, factor = 2)").expect("good");
        assert_eq!((with.policy.as_str(), with.factor), ("semi", Some(2)));
        assert_eq!(request("CREATE DATABASE bank WITH (partitions = 6)").map_err(|f| f.code), Err("0A000"));
        assert_eq!(request("CREATE DATABASE bank WITH (speed = 6)").map_err(|f| f.code), Err("22023"));
        for (text, skips, forces) in [
            ("DROP DATABASE bank", false, false),
            ("DROP DATABASE IF EXISTS bank", true, false),
            ("DROP DATABASE bank WITH (FORCE)", false, true),
            ("DROP DATABASE bank (FORCE)", false, true),
        ] {
            let Ok(Some(DatabaseStatement::Drop { if_exists, force, .. })) = parsed(text) else {
                panic!("{text}")
            };
            assert_eq!((if_exists, force), (skips, forces), "{text}");
        }
        assert!(matches!(parsed("CREATE TABLE t (id int)"), Ok(None)));
        assert!(parsed("DROP DATABASE bank WITH (SOFT)").is_err());
    }
}

//! ALTER DATABASE: how a database is kept, its name, and what PostgreSQL has beside that.
//!
//! | written | done |
//! | --- | --- |
//! | `SET (policy = ..., factor = ...)` | as `understudy database alter` |
//! | `RENAME TO` | another name, while nobody is in it |
//! | `OWNER TO` | nothing: there is one role |
//! | `SET parameter`, `RESET` | nothing, with a notice; refused if sessions would begin with something else |
//! | anything else | refused |

use crate::alter;
use crate::altering;
use crate::bind::folded;
use crate::database::{self, Written};
use crate::ddl::{on_a_client, option_text};
use crate::driver::Handle;
use crate::fault;
use crate::occupied;
use crate::settings::{self, Settings};
use crate::system::sessions::Sessions;
use pg::{Failure, code};
use sqlparser::ast::{ObjectName, Reset, SqlOption, Statement};
use std::sync::Arc;
use types::{Ship, TableRecord};
use wire::RecordText;
use wire::control::{AdminCommand, AlterTable as Request};

/// What is to be done to a database.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterDatabase {
    /// Its name.
    pub name: String,
    /// What.
    pub change: Change,
}

/// A change of a database.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// Of how it is kept.
    Kept(Box<Request>),
    /// Of its name, to this one.
    Name(String),
    /// None; with what the client is told about that.
    Nothing(Option<&'static str>),
}

/// What a client is told that sets a parameter to what it is anyway.
const NOT_KEPT: &str =
    "parameters are not kept with a database: every session begins with this value by itself";

/// What is to be done for it. Whether there is such a database is not looked at here.
pub fn plan(named: &ObjectName, written: &Written) -> Result<AlterDatabase, Failure> {
    let name = database::name(named)?;
    let change = match written {
        Written::Options(options) => {
            let mut request = Request { name: name.clone(), ..Request::default() };
            options.iter().try_for_each(|option| set(option, &mut request))?;
            Change::Kept(Box::new(request))
        }
        Written::Name(to) => Change::Name(database::name(to)?),
        Written::Owner(owner) => {
            altering::owner(owner)?;
            Change::Nothing(None)
        }
        Written::Parameter(statement) => Change::Nothing(parameter(statement)?),
        Written::Other(words) => {
            let what = format!("ALTER DATABASE ... {words}");
            return Err(Failure::unsupported(
                what,
                "what can be changed: SET (policy = ..., factor = ...), RENAME TO",
            ));
        }
    };
    Ok(AlterDatabase { name, change })
}

/// One option of SET.
fn set(option: &SqlOption, request: &mut Request) -> Result<(), Failure> {
    let SqlOption::KeyValue { key, value } = option else { return alter::set(option, request) };
    match folded(key).as_str() {
        "ship" => {
            let text = option_text(value)?;
            request.ship = Some(Ship::by_name(&text).ok_or_else(|| {
                let message = format!("invalid value for parameter \"ship\": \"{text}\"");
                Failure::new("22023", message).hint("it is effects or calls")
            })?);
            Ok(())
        }
        name @ ("partitions" | "partition_by" | "ranges" | "transactions" | "engine" | "log"
        | "placement") => {
            let hint = "it is chosen when the database is created; copies are moved by `understudy node add`, `node \
                        remove` and `partition move`";
            Err(Failure::unsupported(format!("changing {name}"), hint))
        }
        _ => alter::set(option, request),
    }
}

/// What the client is told of SET and RESET. A value with which sessions begin in any case may be set:
/// nothing else would come of it.
fn parameter(statement: &Statement) -> Result<Option<&'static str>, Failure> {
    let beginning = Settings::default();
    match statement {
        Statement::Reset(reset) => {
            if let Reset::ConfigurationParameter(name) = &reset.reset {
                beginning.get(&settings::variable_name(name))?;
            }
            Ok(None)
        }
        Statement::Set(set) => {
            for (name, value) in settings::assignments(set)? {
                let mut changed = Settings::default();
                if let Some(value) = &value {
                    changed.change(&name, value)?;
                }
                if changed.get(&name)? != beginning.get(&name)? {
                    let what = format!("a parameter that is kept with a database ({name})");
                    let hint =
                        "set it in the session, or in what the client connects with (options=-c name=value)";
                    return Err(Failure::unsupported(what, hint));
                }
            }
            Ok(Some(NOT_KEPT))
        }
        other => Err(Failure::new(code::SYNTAX, format!("syntax error at \"{other}\""))),
    }
}

/// Does it, and waits until every partition keeps what is promised now, or until this node knows the name.
pub async fn carry_out(
    handle: &Handle,
    alter: &AlterDatabase,
    sessions: &Arc<Sessions>,
) -> Result<(), Failure> {
    let name = &alter.name;
    let known = handle.map().database(name).cloned();
    if *name == crate::DATABASE {
        return match &alter.change {
            Change::Nothing(_) => Ok(()),
            Change::Kept(request) => {
                if known.is_none() {
                    // It is made with the first table otherwise.
                    database::share(&handle.bare()).await?;
                }
                keep(handle, request).await
            }
            Change::Name(_) => {
                let message = format!("database \"{name}\" is the cluster's own");
                Err(Failure::new("42501", message).hint("it is always there, under this name"))
            }
        };
    }
    let record = known.ok_or_else(|| database::missing_database(name))?;
    match &alter.change {
        Change::Nothing(_) => Ok(()),
        Change::Kept(request) => keep(handle, request).await,
        Change::Name(to) => rename(handle, &record, to, sessions).await,
    }
}

async fn keep(handle: &Handle, request: &Request) -> Result<(), Failure> {
    let (asked, name) = (request.clone(), &request.name);
    let altered = on_a_client(handle, move |client| alter::everywhere(client, &asked, true)).await;
    match altered {
        Ok(true) => Ok(()),
        Ok(false) => {
            let message = format!("database \"{name}\" is changed, but some partitions do not keep it yet");
            Err(Failure::new("57P03", message)
                .hint("`understudy status` shows which; nothing has to be repeated"))
        }
        // Somebody else has dropped it.
        Err(failure) if failure.code == "42P01" => Err(database::missing_database(name)),
        Err(failure) => Err(failure),
    }
}

async fn rename(
    handle: &Handle,
    record: &TableRecord,
    to: &str,
    sessions: &Arc<Sessions>,
) -> Result<(), Failure> {
    let exists = || Failure::new("42P04", format!("database \"{to}\" already exists"));
    if to == crate::DATABASE || handle.map().database(to).is_some() {
        return Err(exists());
    }
    if handle.database() == Some(record.id) {
        return Err(Failure::new("0A000", "current database cannot be renamed"));
    }
    occupied::unused(handle, sessions, record).await?;
    let request = Request { name: record.name.clone(), rename: Some(to.to_string()), ..Request::default() };
    let asked = AdminCommand::AlterDatabase(RecordText::new(&request));
    let renamed = on_a_client(handle, move |client| client.admin(asked)).await;
    let named = match renamed {
        Ok(text) => RecordText(text).read::<TableRecord>(),
        Err(failure) if fault::is_taken(&failure) => return Err(exists()),
        Err(failure) if failure.code == "42P01" => return Err(database::missing_database(&record.name)),
        Err(failure) => return Err(failure),
    };
    let named = named.map_err(|why| Failure::new(code::INTERNAL, format!("the new name: {why}")))?;
    if named.id != record.id {
        // It was dropped meanwhile, and another one has had the name before.
        return Err(database::missing_database(&record.name));
    }
    handle.wait_map(|map| map.owner(named.id).is_none_or(|known| known.name == named.name)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseStatement;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;
    use sqlparser::tokenizer::Token;
    use types::policy::Standby;

    fn planned(text: &str) -> Result<AlterDatabase, &'static str> {
        let mut parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text).expect(text);
        match database::parse(&mut parser) {
            Ok(Some(DatabaseStatement::Alter { name, written })) => {
                assert_eq!(parser.peek_token().token, Token::EOF, "{text}");
                plan(&name, &written).map_err(|failure| failure.code)
            }
            Ok(other) => panic!("{text}: {other:?}"),
            Err(_) => Err(code::SYNTAX),
        }
    }

    #[test]
    fn what_has_a_meaning_is_planned_and_the_rest_refused() {
        let kept = |request: Request| {
            let request = Box::new(Request { name: "bank".into(), ..request });
            Ok(AlterDatabase { name: "bank".into(), change: Change::Kept(request) })
        };
        let policy = Request {
            policy: Some("sync".into()),
            factor: Some(3),
            min_in_sync: Some(2),
            available: Some(true),
            ..Request::default()
        };
        let text = "ALTER DATABASE Bank SET (policy = sync, factor = 3, min_in_sync = 2, available = true)";
        assert_eq!(planned(text), kept(policy));
        let cold = Request {
            standby: Some(Standby::Cold),
            ship: Some(Ship::Effects),
            failover_target_ms: Some(500),
            ..Request::default()
        };
        let text = "ALTER DATABASE bank SET (standby = cold, ship = effects, failover_target = '500ms')";
        assert_eq!(planned(text), kept(cold));
        for (text, change) in [
            ("RENAME TO \"Shop\"", Change::Name("Shop".into())),
            ("OWNER TO understudy", Change::Nothing(None)),
            ("OWNER TO CURRENT_USER", Change::Nothing(None)),
            ("SET timezone TO 'UTC'", Change::Nothing(Some(NOT_KEPT))),
            ("SET client_encoding = 'utf8'", Change::Nothing(Some(NOT_KEPT))),
            ("SET statement_timeout TO DEFAULT", Change::Nothing(Some(NOT_KEPT))),
            ("RESET statement_timeout", Change::Nothing(None)),
            ("RESET ALL", Change::Nothing(None)),
        ] {
            let planned = planned(&format!("ALTER DATABASE bank {text}")).map(|alter| alter.change);
            assert_eq!(planned, Ok(change), "{text}");
        }
        for (text, code) in [
            ("SET (partitions = 2)", "0A000"),
            ("SET (transactions = global)", "0A000"),
            ("SET (engine = memory)", "0A000"),
            ("SET (ship = rows)", "22023"),
            ("SET (factor = many)", "22023"),
            ("SET (speed = 2)", "22023"),
            ("SET default_transaction_read_only TO on", "0A000"),
            ("SET statement_timeout TO '5s'", "0A000"),
            ("SET timezone TO 'Europe/Rome'", "0A000"),
            ("SET nonsense TO 1", "42704"),
            ("RESET nonsense", "42704"),
            ("SET TABLESPACE fast", "0A000"),
            ("CONNECTION LIMIT 5", "0A000"),
            ("REFRESH COLLATION VERSION", "0A000"),
            ("OWNER TO nobody", "42704"),
            ("RENAME TO a.b", "42601"),
            ("", "42601"),
        ] {
            assert_eq!(planned(&format!("ALTER DATABASE bank {text}")), Err(code), "{text}");
        }
    }
}

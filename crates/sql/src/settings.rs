//! SET and SHOW: parameters that clients set at the start. What would change a result, and is not done here,
//! is refused.

use crate::bind::folded;
use crate::search_path::SearchPath;
use crate::system::names::quoted;
use crate::txn::{Isolation, Modes};
use pg::{Failure, code};
use sqlparser::ast::{
    Expr, ObjectName, Set, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
    Value as Literal, ValueWithSpan,
};
use std::collections::BTreeMap;
use std::time::Duration;
use types::TableRecord;
use types::policy::Guarantee;

/// Parameters, their values at the start, and whether clients are told of changes.
const KNOWN: &[(&str, &str, bool)] = &[
    ("application_name", "", true),
    ("bytea_output", "hex", false),
    ("client_encoding", "UTF8", true),
    ("client_min_messages", "notice", false),
    ("datestyle", "ISO, MDY", true),
    ("default_table_access_method", "lsm", false),
    ("check_function_bodies", "on", false),
    ("default_tablespace", "", false),
    ("default_transaction_isolation", "read committed", false),
    ("default_transaction_read_only", "off", true),
    ("extra_float_digits", "1", false),
    ("in_hot_standby", "off", true),
    ("integer_datetimes", "on", true),
    ("intervalstyle", "postgres", true),
    ("is_superuser", "off", true),
    ("lc_collate", "C", false),
    ("lock_timeout", "0", false),
    ("row_security", "on", false),
    ("xmloption", "content", false),
    ("max_identifier_length", "63", false),
    ("max_index_keys", "32", false),
    ("search_path", "\"$user\", public", false),
    ("server_encoding", "UTF8", true),
    ("server_version", SERVER_VERSION, true),
    ("server_version_num", "150000", false),
    ("standard_conforming_strings", "on", true),
    ("statement_timeout", "0", false),
    ("synchronize_seqscans", "on", false),
    ("synchronous_commit", "on", false),
    ("idle_in_transaction_session_timeout", "5min", false),
    ("timezone", "UTC", true),
    ("transaction_isolation", "read committed", false),
    ("transaction_read_only", "off", false),
];

/// What drivers take the version from.
pub const SERVER_VERSION: &str = "15.0";

/// One session's parameters.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    set: BTreeMap<&'static str, String>,
    /// Until the end of the transaction, in front of the others.
    local: BTreeMap<&'static str, String>,
}

/// All parameters, with their values at the start.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    KNOWN.iter().map(|(name, default, _)| (shown(name), *default))
}

/// The name as clients are told it.
fn shown(name: &'static str) -> &'static str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        name => name,
    }
}

fn known(name: &str) -> Result<&'static (&'static str, &'static str, bool), Failure> {
    let lower = name.to_ascii_lowercase();
    KNOWN.iter().find(|(known, ..)| *known == lower).ok_or_else(|| {
        Failure::new("42704", format!("unrecognized configuration parameter \"{name}\""))
            .hint("docs/sql.md lists those that there are")
    })
}

impl Settings {
    /// All parameters that clients are told at their login.
    pub fn told() -> Vec<(&'static str, String)> {
        let told = KNOWN.iter().filter(|(name, _, told)| *told && *name != "application_name");
        told.map(|(name, value, _)| (shown(name), value.to_string())).collect()
    }

    /// A parameter's value.
    pub fn get(&self, name: &str) -> Result<String, Failure> {
        let (name, default, _) = known(name)?;
        Ok(self.chosen(name).map_or_else(|| default.to_string(), str::to_string))
    }

    /// Where names without a schema are looked for.
    pub fn search_path(&self) -> SearchPath {
        self.chosen("search_path").map_or_else(SearchPath::default, SearchPath::of)
    }

    /// A parameter's value, if the client has set it.
    fn chosen(&self, name: &str) -> Option<&str> {
        self.local.get(name).or_else(|| self.set.get(name)).map(String::as_str)
    }

    /// Sets a parameter. What clients are to be told of it.
    pub fn change(&mut self, name: &str, value: &str) -> Result<Vec<(&'static str, String)>, Failure> {
        self.change_for(name, value, false)
    }

    /// Sets a parameter, perhaps only until the end of the transaction.
    pub fn change_for(
        &mut self,
        name: &str,
        value: &str,
        local: bool,
    ) -> Result<Vec<(&'static str, String)>, Failure> {
        let (name, default, told) = known(name)?;
        let kept = match accepted(name, value)? {
            Some(value) => value,
            None => default.to_string(),
        };
        if local {
            self.local.insert(name, kept.clone());
        } else {
            self.local.remove(name);
            self.set.insert(name, kept.clone());
        }
        Ok(told.then(|| (shown(name), kept)).into_iter().collect())
    }

    /// Back to what it was at the start.
    pub fn reset(&mut self, name: &str) -> Result<Vec<(&'static str, String)>, Failure> {
        let (name, default, told) = known(name)?;
        self.local.remove(name);
        self.set.remove(name);
        Ok(told.then(|| (shown(name), default.to_string())).into_iter().collect())
    }

    /// Everything as at the start.
    pub fn reset_all(&mut self) {
        self.set.clear();
        self.local.clear();
    }

    /// A transaction ends, with parameters as they were before it or as they are. What clients are to be
    /// told.
    pub fn end(&mut self, before: Option<Settings>) -> Vec<(&'static str, String)> {
        let mut after = before.unwrap_or_else(|| self.clone());
        after.local.clear();
        let told = KNOWN.iter().filter(|(name, _, told)| *told && self.chosen(name) != after.chosen(name));
        let told =
            told.map(|(name, default, _)| (shown(name), after.chosen(name).unwrap_or(default).to_string()));
        let told = told.collect();
        *self = after;
        told
    }

    /// Whether transactions only read that do not say.
    pub fn read_only(&self) -> bool {
        self.chosen("default_transaction_read_only") == Some("on")
    }

    /// The isolation level of transactions that do not say.
    pub fn isolation(&self) -> Isolation {
        match self.chosen("default_transaction_isolation") {
            Some("repeatable read") => Isolation::Repeatable,
            _ => Isolation::Committed,
        }
    }

    /// How long a client may be silent in a transaction.
    pub fn patience(&self) -> Duration {
        let chosen = self.chosen("idle_in_transaction_session_timeout").and_then(milliseconds);
        match chosen {
            None => IDLE,
            Some(0) => LONGEST_IDLE,
            Some(chosen) => Duration::from_millis(chosen).min(LONGEST_IDLE),
        }
    }

    /// How long a statement may take.
    pub fn statement_limit(&self) -> Option<Duration> {
        let chosen = self.chosen("statement_timeout").and_then(milliseconds).filter(|chosen| *chosen > 0);
        chosen.map(Duration::from_millis)
    }

    /// A parameter that comes with the login. `TimeZone` comes from drivers that were not asked for it: it
    /// stays as it is, which the client is told. The answer is a warning.
    pub fn begin_with(&mut self, name: &str, value: &str) -> Result<Option<Failure>, Failure> {
        match self.change(name, value) {
            Ok(_) => Ok(None),
            Err(refused) if name.eq_ignore_ascii_case("timezone") && refused.code == code::UNSUPPORTED => {
                let message = format!("the time zone is UTC, not \"{value}\"");
                let hint = "times are shown in UTC, and read so where they name no zone";
                Ok(Some(Failure::new("01000", message).hint(hint)))
            }
            Err(refused) => Err(refused),
        }
    }

    /// Whether a global transaction is to be secured in its partitions before its client is told of it.
    pub fn waits_until_secured(&self) -> bool {
        self.chosen("synchronous_commit") == Some("remote_apply")
    }

    /// A write to a table must be secured at least as far as the client has said, if it has. A commit of
    /// global transactions is acknowledged once it is in the log of their `manager`, and partitions are told
    /// of it afterwards: how far it is secured is said by that table's policy (PR-368), and the transaction
    /// waits for its partitions where that is wanted.
    pub fn check_secured(&self, table: &TableRecord, manager: Option<&TableRecord>) -> Result<(), Failure> {
        let Some(wanted) = self.chosen("synchronous_commit") else { return Ok(()) };
        let guarantee = match wanted {
            "off" => return Ok(()),
            "local" => Guarantee::PrimaryDurable,
            "remote_write" => Guarantee::BackupsReceived,
            "remote_apply" if manager.is_none() => Guarantee::AllDurableAndApplied,
            _ => Guarantee::AllDurable,
        };
        let rule = &manager.unwrap_or(table).policy;
        if rule.gives(guarantee) {
            return Ok(());
        }
        let (name, policy) = (&table.name, &rule.name);
        let whose = if manager.is_some() { "whose commits are in sys_commits, where the" } else { "whose" };
        Err(Failure::unsupported(
            format!("synchronous_commit = {wanted} for table \"{name}\", {whose} policy is {policy},"),
            "a table's policy says how far each of its commits is secured: `understudy table alter` changes it; RESET \
             synchronous_commit leaves it to the policy",
        ))
    }
}

/// How long a client may be silent in a transaction, if it has not said.
const IDLE: Duration = Duration::from_secs(300);
/// However long it has said.
const LONGEST_IDLE: Duration = Duration::from_secs(3600);

/// A time as PostgreSQL writes it: a number of milliseconds, or one with a unit.
fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit).filter(|time| *time <= i32::MAX as u64)
}

/// What a client's `options` set, as PostgreSQL's command line takes it: `-c name=value`, `--name=value`.
pub fn options(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut words = words(text).into_iter();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let assignment = match word.strip_prefix("--") {
            Some(rest) => Some(rest.to_string()),
            None => match word.strip_prefix("-c") {
                Some("") => words.next(),
                rest => rest.map(str::to_string),
            },
        };
        let pair = assignment.as_ref().and_then(|assignment| assignment.split_once('='));
        let Some((name, value)) = pair else {
            let message = format!("invalid command-line argument for server process: {word}");
            return Err(Failure::new(code::SYNTAX, message).hint("write -c name=value"));
        };
        found.push((name.replace('-', "_"), value.to_string()));
    }
    Ok(found)
}

/// Words between blanks; a backslash takes what follows it as it is.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            blank if blank.is_ascii_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().extend(letters.next()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// A truth as SET takes it.
fn truth(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// The value of a parameter that can be chosen among several; `None`: it is none of those.
fn choice(name: &str, value: &str) -> Option<Result<String, Failure>> {
    let wrong = || Failure::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
    let on_off = |truth| (if truth { "on" } else { "off" }).to_string();
    Some(match name {
        "synchronous_commit" => match (value, truth(value)) {
            ("local" | "remote_write" | "remote_apply", _) => Ok(value.to_string()),
            (_, Some(truth)) => Ok(on_off(truth)),
            _ => Err(wrong().hint("Available values: local, remote_write, remote_apply, on, off.")),
        },
        "default_transaction_read_only" => truth(value).map(on_off).ok_or_else(wrong),
        "idle_in_transaction_session_timeout" | "statement_timeout" | "lock_timeout" => {
            match milliseconds(value) {
                Some(_) => Ok(value.to_string()),
                None => Err(wrong()
                    .hint("Valid units for this parameter are \"ms\", \"s\", \"min\", \"h\", and \"d\".")),
            }
        }
        "default_transaction_isolation" => isolation(value).map(|level| level.name().to_string()),
        _ => return None,
    })
}

/// An isolation level by its name.
pub fn isolation(name: &str) -> Result<Isolation, Failure> {
    match name {
        "read uncommitted" | "read committed" => Ok(Isolation::Committed),
        "repeatable read" => Ok(Isolation::Repeatable),
        "serializable" => Err(Failure::unsupported(
            "isolation level SERIALIZABLE",
            "REPEATABLE READ sees each partition at one moment; lock what must not change by SELECT ... FOR SHARE",
        )),
        _ => {
            let message = format!("invalid value for parameter \"transaction_isolation\": \"{name}\"");
            Err(Failure::new("22023", message))
        }
    }
}

/// The value to keep; `None`: the default is meant.
fn accepted(name: &str, value: &str) -> Result<Option<String>, Failure> {
    let lower = value.to_ascii_lowercase();
    if let Some(chosen) = choice(name, &lower) {
        return chosen.map(Some);
    }
    let fixed = |hint: &str| Err(Failure::unsupported(format!("setting {name} to \"{value}\""), hint));
    let good = match name {
        "application_name" => return Ok(Some(value.chars().take(63).collect())),
        "client_min_messages" | "extra_float_digits" => return Ok(Some(value.to_string())),
        "client_encoding" => ["utf8", "utf-8", "unicode"].contains(&lower.as_str()),
        "datestyle" => lower.split(',').all(|part| ["iso", "mdy"].contains(&part.trim())),
        "timezone" => crate::eval::is_utc(&lower),
        "intervalstyle" => lower == "postgres",
        "bytea_output" => lower == "hex",
        // What pg_dump sets says nothing here.
        "check_function_bodies" | "row_security" | "synchronize_seqscans" => truth(&lower).is_some(),
        "xmloption" => ["content", "document"].contains(&lower.as_str()),
        "default_tablespace" => ["", "pg_default"].contains(&lower.as_str()),
        "default_table_access_method" => ["heap", "lsm", "memory"].contains(&lower.as_str()),
        "standard_conforming_strings" => ["on", "true"].contains(&lower.as_str()),
        "search_path" => return Ok(Some(value.trim().to_string())),
        _ => {
            return Err(Failure::new("55P02", format!("parameter \"{name}\" cannot be changed")));
        }
    };
    match good {
        true => Ok(None),
        false => match name {
            "timezone" => fixed("times are shown in UTC"),
            "client_encoding" => fixed("text is UTF-8"),
            _ => fixed("it has one value here: see SHOW"),
        },
    }
}

/// What a SET does: names and values; no value: the default.
pub fn assignments(set: &Set) -> Result<Vec<(String, Option<String>)>, Failure> {
    let refuse = || Failure::unsupported(format!("{set}"), "docs/sql.md lists the parameters that there are");
    match set {
        Set::SingleAssignment { scope: _, hivevar: false, variable, values } => {
            let name = variable_name(variable);
            let values = values.iter().map(value).collect::<Result<Vec<_>, _>>()?;
            let joined: Option<Vec<String>> = values.into_iter().collect();
            // Each is the name of a schema, as it is.
            let shown = |value: String| match name.eq_ignore_ascii_case("search_path") {
                true => quoted(&value),
                false => value,
            };
            let joined = joined.map(|values| values.into_iter().map(shown).collect::<Vec<_>>().join(", "));
            Ok(vec![(name, joined)])
        }
        Set::SetTimeZone { value: zone, .. } => Ok(vec![("timezone".into(), value(zone)?)]),
        Set::SetNames { charset_name, collation_name: None } => {
            Ok(vec![("client_encoding".into(), Some(charset_name.value.clone()))])
        }
        _ => Err(refuse()),
    }
}

/// The name of a parameter.
pub fn variable_name(name: &ObjectName) -> String {
    name.to_string().trim_matches('"').to_string()
}

fn value(expr: &Expr) -> Result<Option<String>, Failure> {
    Ok(Some(match expr {
        Expr::Identifier(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default") =>
        {
            return Ok(None);
        }
        Expr::Identifier(word) => folded(word),
        Expr::Value(value) => match &value.value {
            Literal::SingleQuotedString(text) => text.clone(),
            Literal::Number(digits, _) => digits.clone(),
            Literal::Boolean(truth) => (if *truth { "on" } else { "off" }).to_string(),
            other => return Err(Failure::new(code::SYNTAX, format!("syntax error at \"{other}\""))),
        },
        other => other.to_string(),
    }))
}

/// The modes that `SET transaction_isolation` and `SET transaction_read_only` mean.
pub fn own_mode(name: &str, values: &[Expr]) -> Result<Modes, Failure> {
    let mut modes = Modes::default();
    let text = match values {
        [one] => value(one)?,
        _ => None,
    };
    let Some(text) = text.map(|text| text.to_ascii_lowercase()) else {
        return Err(Failure::unsupported(format!("SET {name} to this"), "name one value"));
    };
    if name.eq_ignore_ascii_case("transaction_isolation") {
        modes.isolation = Some(isolation(&text)?);
    } else {
        modes.read_only = Some(truth(&text).ok_or_else(|| {
            Failure::new("22023", format!("parameter \"{name}\" requires a Boolean value"))
        })?);
    }
    Ok(modes)
}

/// The mode of SET TRANSACTION SNAPSHOT. Of other sessions' snapshots nobody keeps any.
pub fn snapshot(of: &ValueWithSpan) -> Result<Modes, Failure> {
    match &of.value {
        Literal::SingleQuotedString(name) if name == "secured" => {
            Ok(Modes { secured: true, ..Modes::default() })
        }
        other => {
            let name = other.to_string();
            let message = format!("invalid snapshot identifier: \"{}\"", name.trim_matches('\''));
            Err(Failure::new("22023", message).hint("'secured' is what all partitions have secured"))
        }
    }
}

/// The modes of BEGIN or SET TRANSACTION.
pub fn modes(written: &[TransactionMode]) -> Result<Modes, Failure> {
    use TransactionIsolationLevel as Level;
    let mut modes = Modes::default();
    for mode in written {
        match mode {
            TransactionMode::AccessMode(mode) => {
                modes.read_only = Some(*mode == TransactionAccessMode::ReadOnly);
            }
            TransactionMode::IsolationLevel(level) => {
                modes.isolation = Some(match level {
                    Level::ReadUncommitted | Level::ReadCommitted => Isolation::Committed,
                    Level::RepeatableRead => Isolation::Repeatable,
                    Level::Serializable | Level::Snapshot => isolation("serializable")?,
                });
            }
        }
    }
    Ok(modes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_from_a_command_line() {
        let pair = |(name, value): (&str, &str)| (name.to_string(), value.to_string());
        let found = options(r"-c statement_timeout=5s  --search-path=public -capplication_name=two\ words");
        let expected =
            [("statement_timeout", "5s"), ("search_path", "public"), ("application_name", "two words")];
        assert_eq!(found, Ok(expected.map(pair).to_vec()));
        assert_eq!(options("  "), Ok(Vec::new()));
        for wrong in ["-c", "-c x", "-d 3", "x=1", "--x"] {
            assert_eq!(options(wrong).expect_err("no option").code, "42601", "{wrong}");
        }
    }

    #[test]
    fn pr368_commits_of_global_transactions_are_secured_as_their_managers_are() {
        let record = |name: &str, policy: &str| {
            let schema = types::system::schema(types::system::COMMITS).expect("a system table");
            let policy = types::Policy::preset(policy, 3, types::LogKind::Disk).expect("a preset");
            TableRecord::new(types::TableId(1), name, schema, policy)
        };
        let (table, manager) = (record("t", "async"), record("sys_commits", "durable"));
        let mut settings = Settings::default();
        settings.change("synchronous_commit", "on").expect("it can be set");
        assert_eq!(settings.check_secured(&table, Some(&manager)), Ok(()));
        assert!(settings.check_secured(&table, None).is_err(), "its own policy is what counts");
        let weak = settings.check_secured(&table, Some(&record("sys_commits", "local"))).expect_err("fewer");
        assert!(weak.message.contains("sys_commits, where the policy is local"), "{}", weak.message);
        settings.change("synchronous_commit", "remote_apply").expect("it can be set");
        assert_eq!(settings.check_secured(&table, Some(&manager)), Ok(()), "the transaction waits");
        assert!(settings.waits_until_secured());
    }

    #[test]
    fn what_cannot_be_set_is_refused_and_the_rest_kept() {
        let mut settings = Settings::default();
        assert_eq!(settings.change("Application_Name", "x"), Ok(vec![("application_name", "x".into())]));
        assert_eq!(settings.get("APPLICATION_NAME").as_deref(), Ok("x"));
        assert_eq!(settings.change("TimeZone", "utc"), Ok(vec![("TimeZone", "UTC".into())]));
        assert_eq!(settings.change("timezone", "Europe/Rome").expect_err("not UTC").code, "0A000");
        assert_eq!(settings.change("client_encoding", "LATIN1").expect_err("not UTF-8").code, "0A000");
        assert_eq!(settings.change("server_version", "16").expect_err("fixed").code, "55P02");
        assert_eq!(settings.change("nonsense", "1").expect_err("unknown").code, "42704");
        assert_eq!(settings.change("statement_timeout", "2s"), Ok(Vec::new()));
        assert_eq!(settings.statement_limit(), Some(Duration::from_secs(2)));
        assert_eq!(settings.change("statement_timeout", "soon").expect_err("no time").code, "22023");
        let warned = settings.begin_with("TimeZone", "Europe/Rome").expect("told, not refused");
        assert!(warned.is_some_and(|warned| warned.code == "01000"));
        assert_eq!(settings.get("timezone").as_deref(), Ok("UTC"));
        assert_eq!(settings.begin_with("timezone", "UTC"), Ok(None));
        assert_eq!(settings.begin_with("nonsense", "1").expect_err("unknown").code, "42704");
        settings.reset_all();
        assert_eq!(
            (settings.statement_limit(), settings.get("statement_timeout").as_deref()),
            (None, Ok("0"))
        );
        assert_eq!(settings.get("application_name").as_deref(), Ok(""));
        assert!(Settings::told().iter().any(|(name, value)| *name == "server_version" && value == "15.0"));
    }
}

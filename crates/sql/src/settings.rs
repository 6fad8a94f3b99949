//! SET and SHOW: parameters that clients set at the start. What would change a result, and is not done here, is refused.

use crate::bind::folded;
use pg::{Failure, code};
use sqlparser::ast::{Expr, ObjectName, Set, TransactionIsolationLevel, TransactionMode, Value as Literal};
use std::collections::BTreeMap;

/// Parameters, their values at the start, and whether clients are told of changes.
const KNOWN: &[(&str, &str, bool)] = &[
    ("application_name", "", true),
    ("bytea_output", "hex", false),
    ("client_encoding", "UTF8", true),
    ("client_min_messages", "notice", false),
    ("datestyle", "ISO, MDY", true),
    ("default_transaction_isolation", "read committed", false),
    ("default_transaction_read_only", "off", true),
    ("extra_float_digits", "1", false),
    ("in_hot_standby", "off", true),
    ("integer_datetimes", "on", true),
    ("intervalstyle", "postgres", true),
    ("is_superuser", "off", true),
    ("lc_collate", "C", false),
    ("lock_timeout", "0", false),
    ("max_identifier_length", "63", false),
    ("search_path", "public", false),
    ("server_encoding", "UTF8", true),
    ("server_version", SERVER_VERSION, true),
    ("server_version_num", "150000", false),
    ("standard_conforming_strings", "on", true),
    ("statement_timeout", "0", false),
    ("idle_in_transaction_session_timeout", "0", false),
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
        Ok(self.set.get(name).cloned().unwrap_or_else(|| default.to_string()))
    }

    /// Sets a parameter. What clients are to be told of it.
    pub fn change(&mut self, name: &str, value: &str) -> Result<Vec<(&'static str, String)>, Failure> {
        let (name, default, told) = known(name)?;
        let kept = match accepted(name, value)? {
            Some(value) => value,
            None => default.to_string(),
        };
        self.set.insert(name, kept.clone());
        Ok(told.then(|| (shown(name), kept)).into_iter().collect())
    }

    /// Back to what it was at the start.
    pub fn reset(&mut self, name: &str) -> Result<Vec<(&'static str, String)>, Failure> {
        let (name, default, told) = known(name)?;
        self.set.remove(name);
        Ok(told.then(|| (shown(name), default.to_string())).into_iter().collect())
    }

    /// Everything as at the start.
    pub fn reset_all(&mut self) {
        self.set.clear();
    }
}

/// The value to keep; `None`: the default is meant.
fn accepted(name: &str, value: &str) -> Result<Option<String>, Failure> {
    let lower = value.to_ascii_lowercase();
    let fixed = |hint: &str| Err(Failure::unsupported(format!("setting {name} to \"{value}\""), hint));
    let good = match name {
        "application_name" => return Ok(Some(value.chars().take(63).collect())),
        "client_min_messages" | "extra_float_digits" => return Ok(Some(value.to_string())),
        "client_encoding" => ["utf8", "utf-8", "unicode"].contains(&lower.as_str()),
        "datestyle" => lower.split(',').all(|part| ["iso", "mdy"].contains(&part.trim())),
        "timezone" => ["utc", "etc/utc", "gmt", "0", "+00:00"].contains(&lower.as_str()),
        "intervalstyle" => lower == "postgres",
        "bytea_output" => lower == "hex",
        "standard_conforming_strings" => ["on", "true"].contains(&lower.as_str()),
        "search_path" => lower
            .split(',')
            .all(|part| ["public", "pg_catalog", "\"$user\"", "$user", ""].contains(&part.trim())),
        "statement_timeout" | "lock_timeout" | "idle_in_transaction_session_timeout" => lower == "0",
        "default_transaction_isolation" | "transaction_isolation" => lower == "read committed",
        "default_transaction_read_only" | "transaction_read_only" => {
            ["off", "false"].contains(&lower.as_str())
        }
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
            let values = values.iter().map(value).collect::<Result<Vec<_>, _>>()?;
            let joined: Option<Vec<String>> = values.into_iter().collect();
            Ok(vec![(variable_name(variable), joined.map(|values| values.join(", ")))])
        }
        Set::SetTimeZone { value: zone, .. } => Ok(vec![("timezone".into(), value(zone)?)]),
        Set::SetNames { charset_name, collation_name: None } => {
            Ok(vec![("client_encoding".into(), Some(charset_name.value.clone()))])
        }
        Set::SetTransaction { modes, snapshot: None, .. } => {
            modes.iter().try_for_each(check_mode)?;
            Ok(Vec::new())
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

/// A mode of BEGIN or SET TRANSACTION.
pub fn check_mode(mode: &TransactionMode) -> Result<(), Failure> {
    match mode {
        TransactionMode::AccessMode(_) => Ok(()),
        TransactionMode::IsolationLevel(
            TransactionIsolationLevel::ReadCommitted | TransactionIsolationLevel::ReadUncommitted,
        ) => Ok(()),
        TransactionMode::IsolationLevel(level) => Err(Failure::unsupported(
            format!("isolation level {level}"),
            "each statement sees what was committed before it: READ COMMITTED",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        settings.reset_all();
        assert_eq!(settings.get("application_name").as_deref(), Ok(""));
        assert!(Settings::told().iter().any(|(name, value)| *name == "server_version" && value == "15.0"));
    }
}

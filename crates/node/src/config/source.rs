//! Where values come from, and which one counts.

use super::keys::{self, Kind, SETTINGS, Setting};
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// What a configuration is read from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if one was named.
    pub file: Option<PathBuf>,
    /// The environment: `std::env::vars()`. Names that are not `UNDERSTUDY_SECTION_KEY` are left alone.
    pub env: Vec<(String, String)>,
    /// Flags, as `section.key` and value.
    pub flags: Vec<(String, String)>,
}

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// This file.
    File(PathBuf),
    /// This variable.
    Environment(String),
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag => f.write_str("flag"),
        }
    }
}

/// One setting as it is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// `section.key`.
    pub name: &'static str,
    /// Its value, written as in the environment.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
    /// What it is for.
    pub about: &'static str,
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Number(number) => number.fmt(f),
            Value::Flag(flag) => flag.fmt(f),
            Value::List(list) => f.write_str(&list.join(",")),
        }
    }
}

/// All settings with their values.
pub(super) struct Values(BTreeMap<&'static str, (Value, Origin)>);

impl Values {
    fn defaults() -> Values {
        let value = |setting: &'static Setting| {
            let value = parse(setting, setting.default).expect("defaults are good");
            (setting.name, (value, Origin::Default))
        };
        Values(SETTINGS.iter().map(value).collect())
    }

    /// The defaults with what a file says.
    pub fn of_text(text: &str) -> Result<Values, String> {
        let mut values = Values::defaults();
        values.take_text(text, &Origin::File(PathBuf::from("the file")))?;
        Ok(values)
    }

    /// All sources, the stronger over the weaker.
    pub fn collect_reports(sources: &Sources) -> Result<Values, Failure> {
        let mut values = Values::defaults();
        if let Some(path) = &sources.file {
            let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    Failure::new(3, format!("there is no file {}", path.display()))
                }
                _ => Failure::usage(format!("{}: {error}", path.display())),
            })?;
            let named = |error| Failure::usage(format!("{}: {error}", path.display()));
            values.take_text(&text, &Origin::File(path.clone())).map_err(named)?;
        }
        for (variable, text) in &sources.env {
            values.take_variable(variable, text).map_err(Failure::usage)?;
        }
        for (name, text) in &sources.flags {
            let setting = keys::find(name).ok_or_else(|| Failure::usage(unknown(name)))?;
            let value = parse(setting, text).map_err(Failure::usage)?;
            values.0.insert(setting.name, (value, Origin::Flag));
        }
        Ok(values)
    }

    fn take_text(&mut self, text: &str, origin: &Origin) -> Result<(), String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
            format!("line {line}: {}", error.message())
        })?;
        for (section, content) in table {
            let toml::Value::Table(keys) = content else {
                return Err(format!("the key '{section}' stands outside of every section"));
            };
            for (key, value) in keys {
                let name = format!("{section}.{key}");
                let setting = keys::find(&name).ok_or_else(|| unknown(&name))?;
                self.0.insert(setting.name, (convert(setting, value)?, origin.clone()));
            }
        }
        Ok(())
    }

    fn take_variable(&mut self, variable: &str, text: &str) -> Result<(), String> {
        let Some(rest) = variable.strip_prefix("UNDERSTUDY_") else { return Ok(()) };
        // Nodes, controllers and every other command know it by one name.
        let rest = if rest == "SECRET" { "CLUSTER_SECRET" } else { rest };
        let Some((section, key)) = rest.split_once('_') else { return Ok(()) };
        let name = format!("{}.{}", section.to_ascii_lowercase(), key.to_ascii_lowercase());
        let sections = SETTINGS.iter().any(|setting| setting.name.starts_with(&name[..section.len() + 1]));
        match keys::find(&name) {
            Some(setting) => {
                let value = parse(setting, text).map_err(|error| format!("{variable}: {error}"))?;
                self.0.insert(setting.name, (value, Origin::Environment(variable.into())));
                Ok(())
            }
            None if sections => Err(format!("{variable}: {}", unknown(&name))),
            // Other commands have variables of their own.
            None => Ok(()),
        }
    }

    pub fn text(&self, name: &str) -> &str {
        match &self.0[name].0 {
            Value::Text(text) => text,
            other => unreachable!("{name} is {other}"),
        }
    }

    pub fn number(&self, name: &str) -> Result<u64, String> {
        match &self.0[name].0 {
            Value::Number(number) if *number > 1 << 50 => Err(format!("{name} {number} is too large")),
            Value::Number(number) => Ok(*number),
            other => unreachable!("{name} is {other}"),
        }
    }

    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0[name].0, Value::Flag(true))
    }

    pub fn list(&self, name: &str) -> Vec<String> {
        match &self.0[name].0 {
            Value::List(list) => list.clone(),
            other => unreachable!("{name} is {other}"),
        }
    }

    pub fn shown(&self) -> Vec<Shown> {
        let show = |setting: &'static Setting| {
            let (value, origin) = &self.0[setting.name];
            Shown {
                name: setting.name,
                value: match value.to_string() {
                    text if setting.name == "cluster.secret" && !text.is_empty() => "(set)".into(),
                    text => text,
                },
                origin: origin.clone(),
                about: setting.about,
            }
        };
        SETTINGS.iter().map(show).collect()
    }
}

fn unknown(name: &str) -> String {
    match keys::nearest(name) {
        Some(nearest) => format!("there is no setting '{name}'; did you mean '{nearest}'?"),
        None => format!("there is no setting '{name}'"),
    }
}

fn parse(setting: &Setting, text: &str) -> Result<Value, String> {
    Ok(match setting.kind {
        Kind::Text => Value::Text(text.into()),
        Kind::Number => Value::Number(
            text.trim().parse().map_err(|_| format!("{} '{text}' is not a whole number", setting.name))?,
        ),
        Kind::Flag => match text.trim() {
            "true" | "1" | "yes" => Value::Flag(true),
            "false" | "0" | "no" | "" => Value::Flag(false),
            _ => return Err(format!("{} '{text}' is neither true nor false", setting.name)),
        },
        Kind::List => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Value::List(items.map(str::to_owned).collect())
        }
    })
}

fn convert(setting: &Setting, value: toml::Value) -> Result<Value, String> {
    let name = setting.name;
    Ok(match (setting.kind, value) {
        (Kind::Text, toml::Value::String(text)) => Value::Text(text),
        (Kind::Number, toml::Value::Integer(number)) => {
            Value::Number(u64::try_from(number).map_err(|_| format!("{name} {number} is negative"))?)
        }
        (Kind::Flag, toml::Value::Boolean(flag)) => Value::Flag(flag),
        (Kind::List, toml::Value::Array(items)) => {
            let text = |item: toml::Value| match item {
                toml::Value::String(text) => Ok(text),
                other => Err(format!("{name} holds {other}, which is not a text")),
            };
            Value::List(items.into_iter().map(text).collect::<Result<_, String>>()?)
        }
        (kind, other) => {
            let wanted = match kind {
                Kind::Text => "a text in quotes",
                Kind::Number => "a whole number",
                Kind::Flag => "true or false",
                Kind::List => "a list of texts",
            };
            return Err(format!("{name} is {other}, but must be {wanted}"));
        }
    })
}

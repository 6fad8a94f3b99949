//! What the options of COPY mean, with PostgreSQL's sentences for those that make no sense.

use super::syntax::{Argument, CopyStatement};
use pg::copy::{Columns, Csv, Format, Header};
use pg::{Failure, code};

/// The options as they were given.
#[derive(Default)]
struct Given<'a> {
    format: Option<String>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<Header>,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Option<&'a Argument>,
    force_not_null: Option<&'a Argument>,
    force_null: Option<&'a Argument>,
    encoding: Option<String>,
    freeze: Option<bool>,
}

/// The format of a COPY of columns with these names.
pub fn format(copy: &CopyStatement, names: &[&str]) -> Result<Format, Failure> {
    let given = given(copy)?;
    let is_csv = match given.format.as_deref() {
        None | Some("text") => false,
        Some("csv") => true,
        Some("binary") => {
            return Err(Failure::unsupported("COPY in the format binary", "use the formats text and csv"));
        }
        Some(other) => return Err(Failure::new("22023", format!("COPY format \"{other}\" not recognized"))),
    };
    let utf8 =
        |encoding: &String| ["utf8", "utf-8", "unicode"].contains(&encoding.to_ascii_lowercase().as_str());
    if let Some(encoding) = given.encoding.as_ref().filter(|encoding| !utf8(encoding)) {
        return Err(Failure::unsupported(format!("the encoding {encoding}"), "text is UTF-8"));
    }
    let mut format = if is_csv { Format::csv() } else { Format::text() };
    format.header = given.header.unwrap_or_default();
    if copy.to && format.header == Header::Match {
        return Err(Failure::new(code::UNSUPPORTED, "cannot use \"match\" with HEADER in COPY TO"));
    }
    if let Some(delimiter) = &given.delimiter {
        format.delimiter = one_byte(delimiter, "delimiter")?;
    }
    if let Some(null) = given.null.clone() {
        format.null = null;
    }
    csv_options(copy, &given, names, &mut format)?;
    format.check()?;
    Ok(format)
}

/// True if it says FREEZE, which has rows written in no other way.
pub fn freezes(copy: &CopyStatement) -> bool {
    let says = |value: &Argument| matches!(truth("freeze", value), Ok(true));
    copy.options.iter().any(|option| option.name == "freeze" && says(&option.value))
}

fn csv_options(
    copy: &CopyStatement,
    given: &Given<'_>,
    names: &[&str],
    format: &mut Format,
) -> Result<(), Failure> {
    let only = |there: bool, what: &str, when: bool, mode: &str| match there && !when {
        true => Err(Failure::new(code::UNSUPPORTED, format!("COPY {what} {mode}"))),
        false => Ok(()),
    };
    let is_csv = format.csv.is_some();
    for (there, what) in [
        (given.quote.is_some(), "quote"),
        (given.escape.is_some(), "escape"),
        (given.force_quote.is_some(), "force quote"),
        (given.force_not_null.is_some(), "force not null"),
        (given.force_null.is_some(), "force null"),
    ] {
        only(there, what, is_csv, "available only in CSV mode")?;
    }
    only(given.force_quote.is_some(), "force quote", copy.to, "only available using COPY TO")?;
    only(given.force_not_null.is_some(), "force not null", !copy.to, "only available using COPY FROM")?;
    only(given.force_null.is_some(), "force null", !copy.to, "only available using COPY FROM")?;
    if let Some(csv) = &mut format.csv {
        if let Some(quote) = &given.quote {
            csv.quote = one_byte(quote, "quote")?;
        }
        csv.escape = match &given.escape {
            Some(escape) => one_byte(escape, "escape")?,
            None => csv.quote,
        };
        forced(csv, given, names)?;
    }
    Ok(())
}

fn forced(csv: &mut Csv, given: &Given<'_>, names: &[&str]) -> Result<(), Failure> {
    let columns = |option: &str, argument: Option<&Argument>| match argument.map(|value| value.columns(names))
    {
        None => Ok(Columns::None),
        Some(Ok(Columns::All)) if option != "FORCE_QUOTE" => {
            let message =
                format!("argument to option \"{}\" must be a list of column names", option.to_lowercase());
            Err(Failure::new("22023", message))
        }
        Some(Ok(columns)) => Ok(columns),
        Some(Err(name)) => {
            let message = format!("{option} column \"{name}\" not referenced by COPY");
            Err(Failure::new("42P10", message))
        }
    };
    csv.force_quote = columns("FORCE_QUOTE", given.force_quote)?;
    csv.force_not_null = columns("FORCE_NOT_NULL", given.force_not_null)?;
    csv.force_null = columns("FORCE_NULL", given.force_null)?;
    Ok(())
}

fn one_byte(text: &str, what: &str) -> Result<u8, Failure> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        _ => Err(Failure::new(code::UNSUPPORTED, format!("COPY {what} must be a single one-byte character"))),
    }
}

fn given(copy: &CopyStatement) -> Result<Given<'_>, Failure> {
    let mut given = Given::default();
    for option in &copy.options {
        let (name, value) = (option.name.as_str(), &option.value);
        match name {
            "format" => once(&mut given.format, text(name, value)?.to_ascii_lowercase())?,
            "delimiter" => once(&mut given.delimiter, text(name, value)?)?,
            "null" => once(&mut given.null, text(name, value)?)?,
            "header" => once(&mut given.header, header(value)?)?,
            "quote" => once(&mut given.quote, text(name, value)?)?,
            "escape" => once(&mut given.escape, text(name, value)?)?,
            "force_quote" => once(&mut given.force_quote, columns(name, value)?)?,
            "force_not_null" => once(&mut given.force_not_null, columns(name, value)?)?,
            "force_null" => once(&mut given.force_null, columns(name, value)?)?,
            "encoding" => once(&mut given.encoding, text(name, value)?)?,
            // It is a promise that nobody else sees the table: rows are written in the same way without it.
            "freeze" => once(&mut given.freeze, truth(name, value)?)?,
            _ => return Err(Failure::new(code::SYNTAX, format!("option \"{name}\" not recognized"))),
        }
    }
    Ok(given)
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Failure> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Failure::new(code::SYNTAX, "conflicting or redundant options")),
    }
}

fn text(name: &str, value: &Argument) -> Result<String, Failure> {
    match value {
        Argument::Text(text) => Ok(text.clone()),
        _ => Err(Failure::new(code::SYNTAX, format!("{name} requires a parameter"))),
    }
}

fn columns<'a>(name: &str, value: &'a Argument) -> Result<&'a Argument, Failure> {
    match value {
        Argument::Names(_) | Argument::All => Ok(value),
        _ => {
            let message = format!("argument to option \"{name}\" must be a list of column names");
            Err(Failure::new("22023", message))
        }
    }
}

fn truth(name: &str, value: &Argument) -> Result<bool, Failure> {
    let text = match value {
        Argument::Nothing => return Ok(true),
        Argument::Text(text) => text.to_ascii_lowercase(),
        _ => String::new(),
    };
    match text.as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(Failure::new(code::SYNTAX, format!("{name} requires a Boolean value"))),
    }
}

fn header(value: &Argument) -> Result<Header, Failure> {
    match value {
        Argument::Text(text) if text.eq_ignore_ascii_case("match") => Ok(Header::Match),
        value => match truth("header", value) {
            Ok(true) => Ok(Header::Names),
            Ok(false) => Ok(Header::None),
            Err(_) => Err(Failure::new(code::SYNTAX, "header requires a Boolean value or \"match\"")),
        },
    }
}

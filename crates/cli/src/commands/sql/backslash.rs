//! Commands that begin with a backslash, as in psql; the few that make sense here.

/// What `\?` shows.
pub const HELP: &str = "\
\\dt          the tables
\\d TABLE     the columns of a table
\\timing      how long each statement takes, or not any more
\\x           each row as a block of lines, or not any more
\\conninfo    which node this is, and whether the connection is encrypted
\\q           ends (as Ctrl-D does)
A statement ends with a semicolon, on this line or a later one. Ctrl-C cancels the one that runs.";

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meta {
    /// `\q`
    Quit,
    /// `\?`
    Help,
    /// `\timing`
    Timing,
    /// `\x`
    Expanded,
    /// `\conninfo`
    Connection,
    /// `\dt`
    Tables,
    /// `\d TABLE`
    Describe(String),
}

impl Meta {
    /// Reads a line. The error is a sentence.
    pub fn parse(line: &str) -> Result<Meta, String> {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim().trim_end_matches(';').trim();
        let alone = |meta: Meta| match rest {
            "" => Ok(meta),
            _ => Err(format!("{command} takes nothing more, not `{rest}`")),
        };
        match command.trim_end_matches(';') {
            "\\q" | "\\quit" => alone(Meta::Quit),
            "\\?" | "\\h" | "\\help" => Ok(Meta::Help),
            "\\timing" => alone(Meta::Timing),
            "\\x" => alone(Meta::Expanded),
            "\\conninfo" => alone(Meta::Connection),
            "\\dt" => alone(Meta::Tables),
            "\\d" if rest.is_empty() => Ok(Meta::Tables),
            "\\d" => Ok(Meta::Describe(name(rest))),
            other => Err(format!("{other} is not known here; \\? lists what is")),
        }
    }
}

/// A name as SQL reads it: in small letters, unless it is quoted.
fn name(text: &str) -> String {
    let text = text.strip_prefix("public.").unwrap_or(text);
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => text.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_or_named() {
        assert_eq!(Meta::parse("\\q"), Ok(Meta::Quit));
        assert_eq!(Meta::parse("\\d Flights;"), Ok(Meta::Describe("flights".into())));
        assert_eq!(Meta::parse("\\d public.\"Fl\"\"ights\""), Ok(Meta::Describe("Fl\"ights".into())));
        assert_eq!(Meta::parse("\\d"), Ok(Meta::Tables));
        assert_eq!(Meta::parse("\\x on").map_err(|why| why.contains("`on`")), Err(true));
        assert_eq!(Meta::parse("\\copy t from x").map_err(|why| why.contains("\\copy")), Err(true));
        for line in HELP.lines().filter(|line| line.starts_with('\\')) {
            let command = line.split_whitespace().next().unwrap_or_default();
            assert!(Meta::parse(command).is_ok(), "{command}");
        }
    }
}

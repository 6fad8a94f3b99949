//! The shell: the same verbs, with history and completion of commands and table names.

use crate::args::{Cli, Line, LineVerb, ShellArgs, sentence};
use crate::connect::Context;
use crate::out::note;
use crate::terminal::{Terminal, Typed, in_home};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use ops::Failure;
use rustyline::completion::Completer;
use rustyline::{Helper, Highlighter, Hinter, Validator};
use std::io::{IsTerminal, stdin};

/// What is completed.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Words {
    /// Verbs, each with its own subcommands.
    verbs: Vec<(String, Vec<String>)>,
    tables: Vec<String>,
}

/// Words that only the shell knows.
const OWN: [&str; 3] = ["help", "exit", "quit"];

impl Words {
    fn new() -> Words {
        let command = Line::command();
        let verbs = command.get_subcommands().map(|verb| {
            let below = verb.get_subcommands().map(|below| below.get_name().to_string()).collect();
            (verb.get_name().to_string(), below)
        });
        let own = OWN.iter().map(|word| (word.to_string(), Vec::new()));
        Words { verbs: verbs.chain(own).collect(), tables: Vec::new() }
    }

    /// What the word that ends at `at` can become, and where it begins.
    fn matching(&self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = &line[..at];
        let start = before.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let earlier: Vec<&str> = before[..start].split_whitespace().collect();
        let candidates: Vec<&String> = match earlier[..] {
            [] => self.verbs.iter().map(|(verb, _)| verb).collect(),
            [verb] => {
                let below = self.verbs.iter().find(|(name, _)| name == verb).map(|(_, below)| below);
                match below {
                    Some(below) if !below.is_empty() => below.iter().collect(),
                    _ => self.tables.iter().collect(),
                }
            }
            _ => self.tables.iter().collect(),
        };
        let word = &before[start..];
        (start, candidates.into_iter().filter(|name| name.starts_with(word)).cloned().collect())
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.matching(line, at))
    }
}

/// Reads lines until the end. A line that fails says so, and the next one is read; from a script the first
/// failure ends it.
pub fn run(args: &ShellArgs, context: &mut Context) -> Result<(), Failure> {
    let person = stdin().is_terminal();
    let history = args.history.clone().or_else(|| in_home(".understudy_history")).filter(|_| person);
    let mut terminal = Terminal::open(Words::new(), history)?;
    learn_tables(&mut terminal, context)?;
    if person {
        note("`help` lists the commands, `exit` or Ctrl-D ends");
    }
    let ended = read(&mut terminal, person, context);
    terminal.close();
    ended
}

fn read(terminal: &mut Terminal<Words>, person: bool, context: &mut Context) -> Result<(), Failure> {
    let prompt = if person { "understudy> " } else { "" };
    loop {
        let line = match terminal.read(prompt)? {
            Typed::Line(line) => line,
            Typed::Interrupted if person => continue,
            Typed::Interrupted | Typed::End => return Ok(()),
        };
        let line = line.trim();
        if matches!(line, "exit" | "quit") {
            return Ok(());
        }
        let done = run_line(line, context);
        context.out.flush();
        match done {
            Ok(()) => {}
            Err(failure) if person => note(format!("understudy: {failure}")),
            Err(failure) => return Err(failure),
        }
        learn_tables(terminal, context)?;
    }
}

fn run_line(line: &str, context: &mut Context) -> Result<(), Failure> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    if line == "help" {
        let help = Line::command().render_help().to_string();
        // The head speaks of a program; here there is none to start.
        let verbs = help.split_once("Commands:").map_or(&help[..], |(_, verbs)| verbs);
        verbs.trim_end().lines().for_each(|line| context.out.line(line));
        return Ok(());
    }
    let words = shlex::split(line).ok_or_else(|| Failure::usage("a quote is not closed"))?;
    // A habit from the command line does no harm.
    let words =
        words.into_iter().enumerate().filter(|(at, word)| *at > 0 || word != Cli::command().get_name());
    let parsed = match Line::try_parse_from(words.map(|(_, word)| word)) {
        Ok(parsed) => parsed,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            ) =>
        {
            error.render().to_string().lines().for_each(|line| context.out.line(line));
            return Ok(());
        }
        Err(error) => return Err(Failure::usage(sentence(&error))),
    };
    let json = context.out.json;
    context.out.json |= parsed.json;
    let done = match parsed.verb {
        LineVerb::Verb(verb) => super::run_verb(verb, context),
        LineVerb::Node(command) => super::nodes::run(command, context),
    };
    context.out.json = json;
    done
}

/// Tables may have come or gone.
fn learn_tables(terminal: &mut Terminal<Words>, context: &mut Context) -> Result<(), Failure> {
    terminal.words().tables = context.cluster_map()?.tables().map(|table| table.name.clone()).collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_their_subcommands_and_tables_are_completed() {
        let mut words = Words::new();
        words.tables = vec!["users".into(), "flights".into()];
        assert_eq!(words.matching("tab", 3), (0, vec!["table".to_string()]));
        assert_eq!(words.matching("table cr", 8), (6, vec!["create".to_string()]));
        assert_eq!(words.matching("get us", 6), (4, vec!["users".to_string()]));
        assert_eq!(words.matching("count fl", 8), (6, vec!["flights".to_string()]));
        assert_eq!(words.matching("ex", 2), (0, vec!["exit".to_string()]));
        assert!(words.matching("partition ", 10).1.contains(&"tails".to_string()));
    }
}

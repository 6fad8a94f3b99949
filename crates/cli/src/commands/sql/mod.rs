//! `understudy sql`: a shell over the SQL gateway. A person gets prompts, history and completion; a file, a
//! command or a pipe gets results and nothing else.

mod backslash;
mod print;
mod words;

use crate::args::sql::SqlArgs;
use crate::connect::{Context, failure};
use crate::interrupt;
use crate::out::note;
use crate::terminal::{Terminal, Typed, in_home};
use backslash::Meta;
use local::Running;
use ops::gateway::{Column, Complaint, End, Event, Fault, Gateway, Place, Transaction, end};
use ops::{Failure, Status};
use print::Printer;
use std::io::{IsTerminal, Read, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use words::Words;

/// The longest text that is read from a file or a pipe, bytes: one statement is at most as long as a message.
const TEXT_BYTES: u64 = 1 << 30;

/// PostgreSQL's numbers of the types text and bigint.
const TEXT: u32 = 25;
const INT: u32 = 20;

/// The shell's state.
struct Shell<'a> {
    context: &'a mut Context,
    place: Place,
    /// Somebody named it: the cluster's controllers are not known.
    by_url: bool,
    gateway: Option<Gateway>,
    within: Duration,
    stop: Arc<AtomicBool>,
    timing: bool,
    expanded: bool,
    /// A person types, and reads what is wrong.
    person: bool,
}

/// Runs it.
pub fn run(args: &SqlArgs, context: &mut Context) -> Result<(), Failure> {
    let place = place(args, context)?;
    let within = context.global.timeout;
    let person = args.command.is_empty() && args.file.is_none() && stdin().is_terminal();
    let stop = interrupt::stop_flag();
    let mut shell = Shell {
        context,
        place,
        by_url: args.url.is_some(),
        gateway: None,
        within,
        stop,
        timing: false,
        expanded: false,
        person,
    };
    let _ = shell.gateway()?;
    if person {
        return shell.talk(args);
    }
    match &args.file {
        _ if !args.command.is_empty() => args.command.iter().try_for_each(|text| shell.run_text(text)),
        Some(file) if file.as_os_str() != "-" => {
            let said = |error: std::io::Error| Failure::failed(format!("{}: {error}", file.display()));
            let text = read_text(std::fs::File::open(file).map_err(said)?).map_err(said)?;
            shell.run_text(&text)
        }
        _ => {
            let text =
                read_text(stdin()).map_err(|error| Failure::failed(format!("standard input: {error}")))?;
            shell.run_text(&text)
        }
    }
}

fn read_text(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(TEXT_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The door: as given, else that of the local cluster.
fn place(args: &SqlArgs, context: &Context) -> Result<Place, Failure> {
    let (url, password) = match &args.url {
        Some(url) => (url.clone(), local::secret()),
        None => {
            let no_cluster = || {
                Failure::new(
                    Status::Unreachable,
                    format!(
                        "no cluster runs in {}; start one with `understudy dev`, or name a node's SQL gateway with --url \
                         postgres://HOST:PORT",
                        context.global.dir.display()
                    ),
                )
            };
            let running = match Running::find(&context.global.dir) {
                Ok(running) => running,
                Err(local::LocalError::NoCluster(_)) => return Err(no_cluster()),
                Err(error) => return Err(failure(error)),
            };
            let (url, password) = running.sql().map_err(failure)?;
            (url.ok_or_else(no_cluster)?, password)
        }
    };
    let mut place = Place::parse(&url).map_err(Failure::usage)?;
    if let Some(database) = &args.database {
        place.database.clone_from(database);
    }
    let from_environment = || std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty());
    place.password =
        place.password.or(password.filter(|password| !password.is_empty())).or_else(from_environment);
    Ok(place)
}

impl Shell<'_> {
    /// The session; a new one if the last one broke.
    fn gateway(&mut self) -> Result<&mut Gateway, Failure> {
        if self.gateway.is_none() {
            self.gateway = Some(Gateway::open(&self.place, self.within)?);
        }
        Ok(self.gateway.as_mut().expect("opened above"))
    }

    /// Statement after statement, until the first that fails.
    fn run_text(&mut self, text: &str) -> Result<(), Failure> {
        let mut rest = text;
        loop {
            rest = rest.trim_start();
            if rest.starts_with('\\') {
                let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
                if !self.backslash(line.trim())? {
                    return Ok(());
                }
                rest = after;
                continue;
            }
            let (statement, after) = match end(rest) {
                End::Nothing => return Ok(()),
                End::At(at) => rest.split_at(at),
                // The last one needs no semicolon.
                End::Open => (rest, ""),
            };
            self.statement(statement)?;
            rest = after;
        }
    }

    /// Runs one statement and prints what comes.
    fn statement(&mut self, statement: &str) -> Result<(), Failure> {
        let began = Instant::now();
        self.stop.store(false, Ordering::Relaxed);
        let (json, expanded, person) = (self.context.out.json, self.expanded, self.person);
        let stop = self.stop.clone();
        let _ = self.gateway()?;
        let (Some(gateway), out) = (self.gateway.as_mut(), &mut self.context.out) else { return Ok(()) };
        let mut printer = Printer::new(json, expanded);
        let ended = gateway.run(statement, &stop, &mut |event| match event {
            Event::Notice(notice) => note(format!("{}: {}", notice.severity, notice.sentence())),
            event => printer.take(event, out),
        });
        printer.end(out);
        if self.timing && !json {
            out.line(format!("Time: {:.3} ms", began.elapsed().as_secs_f64() * 1e3));
        }
        out.flush();
        // What was interrupted was the statement, not the shell.
        let interrupted = stop.swap(false, Ordering::Relaxed);
        match ended {
            Ok(()) if interrupted && !person => Err(Failure::failed("interrupted")),
            Ok(()) => Ok(()),
            Err(Fault::Refused(complaint)) => Err(Failure::failed(self.refused(statement, &complaint))),
            Err(Fault::Broken(why)) => {
                self.gateway = None;
                Err(Failure::new(
                    Status::Unreachable,
                    format!("the connection broke ({why}); what became of the statement is not known"),
                ))
            }
        }
    }

    /// What a person reads of a refusal: where it is, too.
    fn refused(&self, statement: &str, complaint: &Complaint) -> String {
        let sentence = format!("{}: {}", complaint.severity, complaint.sentence());
        let Some(position) = complaint.position.filter(|_| self.person) else { return sentence };
        let before: String = statement.chars().take(position.saturating_sub(1)).collect();
        let line = before.lines().count().max(1);
        format!("{sentence} (line {line})")
    }

    /// A line that begins with a backslash. False: the end.
    fn backslash(&mut self, line: &str) -> Result<bool, Failure> {
        match Meta::parse(line).map_err(Failure::failed)? {
            Meta::Quit => return Ok(false),
            Meta::Help => backslash::HELP.lines().for_each(|line| self.context.out.line(line)),
            Meta::Timing => {
                self.timing = !self.timing;
                note(format!("Timing is {}.", if self.timing { "on" } else { "off" }));
            }
            Meta::Expanded => {
                self.expanded = !self.expanded;
                note(format!("Expanded display is {}.", if self.expanded { "on" } else { "off" }));
            }
            Meta::Connection => {
                let (user, database) = (self.place.user.clone(), self.place.database.clone());
                let gateway = self.gateway()?;
                let how = if gateway.is_encrypted() { "encrypted" } else { "not encrypted" };
                let line = format!("user {user}, database {database}, node {}, {how}", gateway.host());
                self.context.out.line(line);
            }
            Meta::Tables => self.describe(None)?,
            Meta::Describe(name) => self.describe(Some(&name))?,
        }
        self.context.out.flush();
        Ok(true)
    }

    /// The tables, or the columns of one.
    fn describe(&mut self, name: Option<&str>) -> Result<(), Failure> {
        let (known, json) = (self.known()?, self.context.out.json);
        let rows: Vec<Vec<Option<String>>> = match name {
            None => known
                .iter()
                .map(|table| vec![Some(table.name.clone()), Some(table.key().join(", "))])
                .collect(),
            Some(name) => {
                let table = known.iter().find(|table| table.name == name);
                let none = || Failure::not_found(format!("there is no table `{name}`; \\dt lists them"));
                let row = |field: &words::Field| {
                    let nullable = if field.nullable { "" } else { "not null" };
                    let key = field.key.map(|place| place.to_string()).or_else(|| (!json).then(String::new));
                    vec![Some(field.name.clone()), Some(field.kind.clone()), Some(nullable.into()), key]
                };
                table.ok_or_else(none)?.columns.iter().map(row).collect()
            }
        };
        let head: &[(&str, u32)] = match name {
            None => &[("table", TEXT), ("key", TEXT)],
            Some(_) => &[("column", TEXT), ("type", TEXT), ("nullable", TEXT), ("key", INT)],
        };
        let columns = head.iter().map(|(name, oid)| Column { name: name.to_string(), oid: *oid }).collect();
        let mut printer = Printer::new(self.context.out.json, self.expanded);
        let done = Event::Done(format!("SELECT {}", rows.len()));
        let events =
            [Event::Columns(columns)].into_iter().chain(rows.into_iter().map(Event::Row)).chain([done]);
        events.for_each(|event| printer.take(event, &mut self.context.out));
        Ok(())
    }

    /// The tables there are, as the door tells them, or else as the cluster's records have them.
    fn known(&mut self) -> Result<Vec<words::Table>, Failure> {
        let (columns, keys) = (self.ask(words::COLUMNS), self.ask(words::KEYS));
        match (columns, keys) {
            (Ok(columns), Ok(keys)) => Ok(words::tables(&columns, &keys)),
            (Err(failure), _) | (_, Err(failure)) if self.by_url => Err(failure),
            _ => Ok(words::of_cluster_map(self.context.cluster_map()?)),
        }
    }

    /// The rows of a statement that nobody typed.
    fn ask(&mut self, statement: &str) -> Result<words::Rows, Failure> {
        let mut rows = Vec::new();
        let asked = self.gateway()?.run(statement, &AtomicBool::new(false), &mut |event| {
            if let Event::Row(row) = event {
                rows.push(row);
            }
        });
        match asked {
            Ok(()) => Ok(rows),
            Err(Fault::Refused(complaint)) => Err(Failure::failed(complaint.sentence())),
            Err(Fault::Broken(why)) => {
                self.gateway = None;
                Err(Failure::new(Status::Unreachable, format!("the connection broke ({why})")))
            }
        }
    }

    /// What can be completed now. Inside of a transaction a question would be part of it.
    fn learn(&mut self, terminal: &mut Terminal<Words>) {
        let transaction = self.gateway.as_ref().map_or(Transaction::None, Gateway::transaction);
        if transaction != Transaction::None {
            return;
        }
        if let Ok(known) = self.known() {
            terminal.words().tables = known;
        }
    }

    /// Prompts until the end.
    fn talk(&mut self, args: &SqlArgs) -> Result<(), Failure> {
        let history = args.history.clone().or_else(|| in_home(".understudy_sql_history"));
        let mut terminal = Terminal::open(Words::default(), history)?;
        let host = self.gateway()?.host().to_string();
        note(format!("connected to {host}; \\? lists commands, \\q or Ctrl-D ends"));
        let ended = self.prompts(&mut terminal);
        terminal.close();
        ended
    }

    fn prompts(&mut self, terminal: &mut Terminal<Words>) -> Result<(), Failure> {
        loop {
            self.learn(terminal);
            let mark = match self.gateway.as_ref().map(Gateway::transaction) {
                Some(Transaction::Open) => "*",
                Some(Transaction::Failed) => "!",
                _ => "",
            };
            let text = match terminal.read(&format!("understudy={mark}> "))? {
                Typed::Line(text) => text,
                Typed::Interrupted => continue,
                Typed::End => return Ok(()),
            };
            let line = text.trim();
            if matches!(line.trim_end_matches(';'), "exit" | "quit" | "\\q") {
                return Ok(());
            }
            if let Err(failure) = self.run_text(&text) {
                note(&failure.sentence);
            }
        }
    }
}

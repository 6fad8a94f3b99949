//! The connection to a controller: the cluster map and its changes, and operators' commands.
//!
//! Any of the given controllers will do. When one is lost or does not lead, the next is tried.

use crate::backoff::Backoff;
use crate::conn::{Broken, Conn};
use types::Micros;
use types::random::Random;
use wire::control::{Admin, AdminCommand};

/// The id of the request for cluster maps; operators' commands have higher ones.
const WATCH: u64 = 1;

/// An operator's command that is not answered yet.
#[derive(Debug)]
pub(crate) struct Command {
    pub id: u64,
    pub command: AdminCommand,
    pub sent: bool,
    /// Why it was not done where it was asked, if it was.
    pub last_word: String,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Done(String),
    /// With the exit status that the controller gave.
    Refused(u8, String),
    /// The connection broke, and it must not be asked twice.
    Unheard(String),
}

pub(crate) struct Control {
    pub addresses: Vec<String>,
    /// The one in use, or tried next.
    at: usize,
    pub conn: Option<Conn>,
    pub retry_at: Micros,
    backoff: Backoff,
    next_id: u64,
    pub command: Option<Command>,
    /// What became of [`Control::command`].
    pub answer: Option<Ended>,
    /// Why there is no connection.
    pub why: String,
    /// Addresses that refused outright, one after the other, since the last success.
    pub refused_in_a_row: usize,
}

/// The exit status by which a controller says "not here, or not now": another may do it.
const ELSEWHERE: u8 = 4;

impl Control {
    pub fn new(addresses: Vec<String>) -> Control {
        Control {
            addresses,
            at: 0,
            conn: None,
            retry_at: Micros::ZERO,
            backoff: Backoff::default(),
            next_id: WATCH + 1,
            command: None,
            answer: None,
            why: "no address was given".into(),
            refused_in_a_row: 0,
        }
    }

    /// The address in use, or tried next.
    pub fn address(&self) -> &str {
        &self.addresses[self.at]
    }

    /// The connection is gone, or could not be made.
    pub fn lost(&mut self, now: Micros, jitter: &mut Random, broken: &Broken) {
        let refused = matches!(broken, Broken::Refused { .. });
        self.refused_in_a_row = if refused { self.refused_in_a_row + 1 } else { 0 };
        let why = broken.to_string();
        self.at = (self.at + 1) % self.addresses.len().max(1);
        self.retry_at = now + self.backoff.wait(jitter);
        if let Some(command) = self.command.take_if(|command| command.sent) {
            if repeatable(&command.command) {
                self.command = Some(Command { sent: false, last_word: why.clone(), ..command });
            } else {
                self.answer = Some(Ended::Unheard(why.clone()));
            }
        }
        self.why = why;
    }

    /// Takes a command to be sent at the next occasion.
    pub fn ask(&mut self, command: AdminCommand) {
        let id = self.next_id;
        self.next_id += 1;
        self.answer = None;
        self.command = Some(Command { id, command, sent: false, last_word: String::new() });
    }

    /// The connection is welcomed: asks for the cluster map. The error closes the connection.
    pub fn welcomed(&mut self) -> Result<(), Broken> {
        self.backoff.reset();
        self.refused_in_a_row = 0;
        let watch = Admin { id: WATCH, command: AdminCommand::Watch };
        self.conn.as_mut().map_or(Ok(()), |conn| conn.push(&watch.into()))
    }

    /// Queues a waiting command, if there is one and it can be.
    pub fn push_command(&mut self) -> Result<(), Broken> {
        let (Some(conn), Some(command)) = (&mut self.conn, &mut self.command) else { return Ok(()) };
        if command.sent || !conn.is_ready() {
            return Ok(());
        }
        command.sent = true;
        conn.push(&Admin { id: command.id, command: command.command.clone() }.into())
    }

    /// An answer. The error is a reason to go to another controller.
    pub fn answered(&mut self, id: u64, result: Result<String, (u8, String)>) -> Result<(), Broken> {
        if id == WATCH {
            return result.map(|_| ()).map_err(|(_, why)| why.into());
        }
        if self.command.as_ref().is_none_or(|command| command.id != id) {
            return Ok(());
        }
        if let Err((ELSEWHERE, why)) = &result {
            if let Some(command) = &mut self.command {
                (command.sent, command.last_word) = (false, why.clone());
            }
            self.toward(why);
            return Err(why.clone().into());
        }
        self.command = None;
        self.answer = Some(match result {
            Ok(text) => Ended::Done(text),
            Err((status, sentence)) => Ended::Refused(status, sentence),
        });
        Ok(())
    }

    /// If the sentence names one of our addresses, that one is next: `lost` goes one further from here.
    fn toward(&mut self, sentence: &str) {
        let count = self.addresses.len();
        if let Some(leader) = self.addresses.iter().position(|address| sentence.contains(address.as_str())) {
            self.at = (leader + count - 1) % count;
        }
    }
}

/// What may be asked twice because the second time changes nothing.
fn repeatable(command: &AdminCommand) -> bool {
    match command {
        AdminCommand::Watch | AdminCommand::Status | AdminCommand::Failovers => true,
        AdminCommand::AlterTable(_) | AdminCommand::Switchover { .. } | AdminCommand::Drain(_) => true,
        AdminCommand::Add(_) | AdminCommand::Remove { .. } | AdminCommand::Records(_) => true,
        // Numbers that nobody takes are not missed.
        AdminCommand::AlterDatabase(_) | AdminCommand::Numbers(_) => true,
        // It names the version of what it changes.
        AdminCommand::MoveTable(_) => true,
        AdminCommand::CreateTable(_) | AdminCommand::DropTable(_) => false,
        AdminCommand::CreateDatabase(_) | AdminCommand::DropDatabase(_) => false,
        AdminCommand::Move { .. } | AdminCommand::Force { .. } => false,
    }
}

/// A command's name, for sentences.
pub(crate) fn name(command: &AdminCommand) -> &'static str {
    match command {
        AdminCommand::Watch => "watch",
        AdminCommand::Status => "status",
        AdminCommand::CreateTable(_) => "table create",
        AdminCommand::DropTable(_) => "table drop",
        AdminCommand::AlterTable(_) => "table alter",
        AdminCommand::CreateDatabase(_) => "database create",
        AdminCommand::DropDatabase(_) => "database drop",
        AdminCommand::AlterDatabase(_) => "database alter",
        AdminCommand::Numbers(_) => "numbers of tables",
        AdminCommand::MoveTable(_) => "table move",
        AdminCommand::Switchover { .. } => "switchover",
        AdminCommand::Drain(_) => "node drain",
        AdminCommand::Add(_) => "node add",
        AdminCommand::Remove { .. } => "node remove",
        AdminCommand::Move { .. } => "partition move",
        AdminCommand::Force { .. } => "partition recover",
        AdminCommand::Failovers => "failover list",
        AdminCommand::Records(_) => "controller rebuild",
    }
}

//! One question to one process, asked and answered on a connection of its own. For operators' commands that
//! are about a single node, and need no cluster around it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use wire::control::{Admin, AdminCommand};
use wire::hello::{Hello, HelloRole, PROTOCOL, Welcome};
use wire::{Inbox, Message, frame};

/// Why there is no answer. Each is a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskError {
    /// Nobody answered in time, or the connection broke. What was asked for may have been done.
    Unreachable(String),
    /// It was not done, with the exit status that fits.
    Refused(u8, String),
}

/// Asks the node whose clients are served at `address`; the JSON of its answer. Blocks for at most `within`.
pub fn ask_node(
    address: &str,
    command: AdminCommand,
    secret: Option<String>,
    within: Duration,
) -> Result<String, AskError> {
    let mut line = Line::open(address, within)?;
    let hello = Hello {
        role: HelloRole::Operator,
        protocol: PROTOCOL,
        cluster: None,
        member: None,
        secret,
        agent: concat!("understudy ", env!("CARGO_PKG_VERSION")).into(),
    };
    line.send(&hello.into())?;
    loop {
        match line.next()? {
            Message::Welcome(Welcome::Refused(why)) => {
                return Err(AskError::Refused(5, format!("{address}: {why}")));
            }
            Message::Welcome(_) => {
                line.send(&Admin { id: 1, command: command.clone() }.into())?;
            }
            Message::AdminAnswer(answer) if answer.id == 1 => {
                let refused = |(status, why)| AskError::Refused(status, format!("{address}: {why}"));
                return answer.result.map_err(refused);
            }
            other => return Err(line.broken(format!("a {} was not asked for", other.name()))),
        }
    }
}

/// A connection that is waited for.
struct Line {
    address: String,
    stream: TcpStream,
    inbox: Inbox,
    deadline: Instant,
}

impl Line {
    fn open(address: &str, within: Duration) -> Result<Line, AskError> {
        let deadline = Instant::now() + within;
        let unreachable = |why: String| AskError::Unreachable(format!("{address}: {why}"));
        let mut found = address.to_socket_addrs().map_err(|error| unreachable(error.to_string()))?;
        let resolved = found.next().ok_or_else(|| unreachable("no such address".into()))?;
        let stream = TcpStream::connect_timeout(&resolved, within);
        let stream = stream.map_err(|error| unreachable(error.to_string()))?;
        Ok(Line { address: address.into(), stream, inbox: Inbox::default(), deadline })
    }

    fn broken(&self, why: impl std::fmt::Display) -> AskError {
        AskError::Unreachable(format!("{}: {why}", self.address))
    }

    /// What is left of the time; an error, if it is over.
    fn left(&self) -> Result<Duration, AskError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.broken("no answer in time")) } else { Ok(left) }
    }

    fn send(&mut self, message: &Message) -> Result<(), AskError> {
        let mut bytes = Vec::new();
        frame::encode(message, &mut bytes).map_err(|why| self.broken(why))?;
        let left = self.left()?;
        let sent = self.stream.set_write_timeout(Some(left)).and_then(|()| self.stream.write_all(&bytes));
        sent.map_err(|error| self.broken(error))
    }

    fn next(&mut self) -> Result<Message, AskError> {
        loop {
            match self.inbox.next_message() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) => return Err(self.broken(error)),
            }
            let left = self.left()?;
            self.stream.set_read_timeout(Some(left)).map_err(|error| self.broken(error))?;
            match self.stream.read(self.inbox.room()) {
                Ok(0) => return Err(self.broken("the connection was closed")),
                Ok(read) => drop(self.inbox.took(read)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(self.broken("no answer in time"));
                }
                Err(error) => return Err(self.broken(error)),
            }
        }
    }
}

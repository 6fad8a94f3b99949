//! A session: logged in, statement after statement, each of which can be cancelled.

use super::place::Place;
use super::stream::Stream;
use crate::failure::{Failure, Status};
use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Message};
use postgres_protocol::message::frontend;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest message that is taken from a node, bytes.
const MESSAGE: i32 = 1 << 30;
/// How long a request to cancel may take to connect.
const CANCEL: Duration = Duration::from_secs(2);

/// A column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as PostgreSQL numbers them.
    pub oid: u32,
}

/// An error or a notice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Complaint {
    /// `ERROR`, `FATAL`, `WARNING`, ...
    pub severity: String,
    /// The SQLSTATE.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Where in the statement, in letters from 1.
    pub position: Option<usize>,
}

/// What comes while a statement runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A result begins.
    Columns(Vec<Column>),
    /// A row of it; `None` is NULL.
    Row(Vec<Option<String>>),
    /// A command is done: `INSERT 0 1`.
    Done(String),
    /// Lines of a COPY, as they are.
    Raw(Vec<u8>),
    /// Something worth knowing.
    Notice(Complaint),
}

/// Why a statement did not succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The node refused it. The session goes on.
    Refused(Box<Complaint>),
    /// The connection is gone; what became of the statement is not known.
    Broken(String),
}

/// Where the session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transaction {
    /// Outside.
    None,
    /// Inside.
    Open,
    /// Inside one that failed.
    Failed,
}

/// A session.
pub struct Gateway {
    stream: Stream,
    input: BytesMut,
    place: Place,
    host: String,
    key: (i32, i32),
    transaction: Transaction,
}

/// Why there is no session with a host.
enum NoLogin {
    /// Another host may do.
    Elsewhere(String),
    /// None will.
    Nowhere(String),
}

impl Gateway {
    /// Logs in to the first host that lets us in.
    pub fn open(place: &Place, within: Duration) -> Result<Gateway, Failure> {
        let mut reasons = Vec::new();
        for host in &place.hosts {
            match Gateway::open_at(place, host, within) {
                Ok(gateway) => return Ok(gateway),
                Err(NoLogin::Elsewhere(why)) => reasons.push(why),
                Err(NoLogin::Nowhere(why)) => return Err(Failure::failed(why)),
            }
        }
        Err(Failure::new(Status::Unreachable, reasons.join("; ")))
    }

    /// The host of this session.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// True if nobody can read along.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, Stream::Encrypted(_))
    }

    /// Where the session stands.
    pub fn transaction(&self) -> Transaction {
        self.transaction
    }

    fn open_at(place: &Place, host: &str, within: Duration) -> Result<Gateway, NoLogin> {
        let stream = Stream::open(host, &place.encryption, within).map_err(NoLogin::Elsewhere)?;
        let mut gateway = Gateway {
            stream,
            input: BytesMut::new(),
            place: place.clone(),
            host: host.to_string(),
            key: (0, 0),
            transaction: Transaction::None,
        };
        let broken = |error: io::Error| NoLogin::Elsewhere(format!("{host}: {error}"));
        let parameters = [
            ("user", place.user.as_str()),
            ("database", &place.database),
            ("application_name", "understudy sql"),
            ("client_encoding", "UTF8"),
        ];
        let mut out = BytesMut::new();
        frontend::startup_message(parameters, &mut out).map_err(broken)?;
        gateway.write(&out).map_err(broken)?;
        gateway.log_in(Instant::now() + within)?;
        Ok(gateway)
    }

    fn log_in(&mut self, deadline: Instant) -> Result<(), NoLogin> {
        let host = self.host.clone();
        let broken = |error: io::Error| NoLogin::Elsewhere(format!("{host}: {error}"));
        let never = AtomicBool::new(false);
        let mut scram: Option<ScramSha256> = None;
        let mut out = BytesMut::new();
        loop {
            out.clear();
            let message = self.next(&never, Some(deadline)).map_err(broken)?;
            match message {
                Message::AuthenticationSasl(body) => {
                    let offered = body.mechanisms().any(|name| Ok(name == SCRAM_SHA_256)).map_err(broken)?;
                    let Some(password) = self.place.password.as_ref().filter(|_| offered) else {
                        return Err(NoLogin::Nowhere(no_password(offered)));
                    };
                    let begun = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
                    frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut out)
                        .map_err(broken)?;
                    scram = Some(begun);
                }
                Message::AuthenticationSaslContinue(body) => {
                    let scram = scram.as_mut().ok_or_else(|| unasked(&host))?;
                    scram.update(body.data()).map_err(broken)?;
                    frontend::sasl_response(scram.message(), &mut out).map_err(broken)?;
                }
                Message::AuthenticationSaslFinal(body) => {
                    let scram = scram.as_mut().ok_or_else(|| unasked(&host))?;
                    scram.finish(body.data()).map_err(broken)?;
                }
                Message::BackendKeyData(body) => self.key = (body.process_id(), body.secret_key()),
                Message::ErrorResponse(body) => {
                    let complaint = complaint(body.fields()).map_err(broken)?;
                    let said = format!("{host}: {}", complaint.sentence());
                    // A wrong password, user or database is wrong everywhere.
                    let wrong = complaint.code.starts_with("28") || complaint.code == "3D000";
                    return Err(if wrong { NoLogin::Nowhere(said) } else { NoLogin::Elsewhere(said) });
                }
                Message::ReadyForQuery(_) => return Ok(()),
                Message::AuthenticationOk | Message::ParameterStatus(_) | Message::NoticeResponse(_) => {}
                _ => {
                    return Err(NoLogin::Nowhere(format!(
                        "{host} wants a way to log in that is not known here"
                    )));
                }
            }
            self.write(&out).map_err(broken)?;
        }
    }

    /// Runs a statement to its end. What comes is handed to `sink`; `stop` cancels it.
    pub fn run(
        &mut self,
        statement: &str,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(Event),
    ) -> Result<(), Fault> {
        self.run_until(statement, stop, None, sink)
    }

    /// As [`Gateway::run`], for at most so long: then the session is of no more use, and what became of the
    /// statement is not known.
    pub fn run_within(
        &mut self,
        statement: &str,
        within: Duration,
        sink: &mut dyn FnMut(Event),
    ) -> Result<(), Fault> {
        self.run_until(statement, &AtomicBool::new(false), Some(Instant::now() + within), sink)
    }

    fn run_until(
        &mut self,
        statement: &str,
        stop: &AtomicBool,
        deadline: Option<Instant>,
        sink: &mut dyn FnMut(Event),
    ) -> Result<(), Fault> {
        let broken = |error: io::Error| Fault::Broken(error.to_string());
        let mut out = BytesMut::new();
        let refused = |error: io::Error| {
            Fault::Refused(Box::new(Complaint {
                severity: "ERROR".into(),
                message: error.to_string(),
                ..Complaint::default()
            }))
        };
        frontend::query(statement, &mut out).map_err(refused)?;
        self.write(&out).map_err(broken)?;
        let mut refusal = None;
        loop {
            match self.next(stop, deadline).map_err(broken)? {
                Message::RowDescription(body) => {
                    let column = |field: postgres_protocol::message::backend::Field<'_>| {
                        Ok(Column { name: field.name().to_string(), oid: field.type_oid() })
                    };
                    sink(Event::Columns(body.fields().map(column).collect().map_err(broken)?));
                }
                Message::DataRow(body) => sink(Event::Row(row(&body).map_err(broken)?)),
                Message::CommandComplete(body) => sink(Event::Done(body.tag().map_err(broken)?.to_string())),
                Message::NoticeResponse(body) => {
                    sink(Event::Notice(complaint(body.fields()).map_err(broken)?));
                }
                Message::ErrorResponse(body) => {
                    let complaint = complaint(body.fields()).map_err(broken)?;
                    if complaint.severity == "FATAL" {
                        return Err(Fault::Broken(complaint.sentence()));
                    }
                    refusal = Some(complaint);
                }
                Message::CopyData(body) => sink(Event::Raw(body.data().to_vec())),
                Message::CopyInResponse(_) => {
                    out.clear();
                    let why = "this shell does not send files: `understudy load` or psql's \\copy does";
                    frontend::copy_fail(why, &mut out).map_err(broken)?;
                    self.write(&out).map_err(broken)?;
                }
                Message::ReadyForQuery(body) => {
                    self.transaction = match body.status() {
                        b'T' => Transaction::Open,
                        b'E' => Transaction::Failed,
                        _ => Transaction::None,
                    };
                    return refusal.map_or(Ok(()), |complaint| Err(Fault::Refused(Box::new(complaint))));
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// The next message. When `stop` is set, the node is asked once to cancel what runs.
    fn next(&mut self, stop: &AtomicBool, deadline: Option<Instant>) -> io::Result<Message> {
        let mut cancelled = false;
        loop {
            let length =
                self.input.get(1..5).map(|bytes| i32::from_be_bytes(bytes.try_into().expect("four")));
            if length.is_some_and(|length| !(4..=MESSAGE).contains(&length)) {
                return Err(io::Error::other("the node sent a message that is none"));
            }
            if let Some(message) = Message::parse(&mut self.input)? {
                return Ok(message);
            }
            let mut piece = [0; 16 * 1024];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::Error::other("the node hung up")),
                Ok(count) => self.input.extend_from_slice(&piece[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(io::Error::other("no answer in time"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut cancelled, true) {
                // If the node cannot be reached, the statement goes on, and its end is told as it comes.
                let _ = self.cancel();
            }
        }
    }

    /// On a connection of its own, protected as this one is.
    fn cancel(&self) -> Result<(), String> {
        let mut stream = Stream::open(&self.host, &self.place.encryption, CANCEL)?;
        let mut out = BytesMut::new();
        frontend::cancel_request(self.key.0, self.key.1, &mut out);
        stream.write_all(&out).and_then(|()| stream.flush()).map_err(|error| error.to_string())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let mut out = BytesMut::new();
        frontend::terminate(&mut out);
        // A node that is gone is not told.
        let _ = self.write(&out);
    }
}

impl Complaint {
    /// All of it in one line.
    pub fn sentence(&self) -> String {
        let mut text = self.message.clone();
        for (name, more) in [("detail", &self.detail), ("hint", &self.hint)] {
            if let Some(more) = more {
                text.push_str(&format!(" ({name}: {more})"));
            }
        }
        if self.code.is_empty() { text } else { format!("{text} [{}]", self.code) }
    }
}

fn no_password(offered: bool) -> String {
    match offered {
        true => {
            "the node asks for a password: it is in the URL, in UNDERSTUDY_SECRET or in PGPASSWORD".into()
        }
        false => "the node offers no way to log in that is known here".into(),
    }
}

fn unasked(host: &str) -> NoLogin {
    NoLogin::Nowhere(format!("{host} does not keep to the protocol"))
}

fn complaint(mut fields: ErrorFields<'_>) -> io::Result<Complaint> {
    let mut complaint = Complaint::default();
    while let Some(field) = fields.next()? {
        let text = String::from_utf8_lossy(field.value_bytes()).to_string();
        match field.type_() {
            b'S' if complaint.severity.is_empty() => complaint.severity = text,
            // Never translated.
            b'V' => complaint.severity = text,
            b'C' => complaint.code = text,
            b'M' => complaint.message = text,
            b'D' => complaint.detail = Some(text),
            b'H' => complaint.hint = Some(text),
            b'P' => complaint.position = text.parse().ok(),
            _ => {}
        }
    }
    Ok(complaint)
}

fn row(body: &DataRowBody) -> io::Result<Vec<Option<String>>> {
    let text = |range: Option<std::ops::Range<usize>>| {
        Ok(range.map(|range| String::from_utf8_lossy(&body.buffer()[range]).to_string()))
    };
    body.ranges().map(text).collect()
}

//! One connection of PostgreSQL's protocol that waits for each answer: prepared statements with values as
//! text, and COPY.

use super::pg;
use crate::error::BenchError;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Bytes that are read at a time, and that a message of COPY has at most.
const CHUNK_BYTES: usize = 64 << 10;

/// A statement that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// SQLSTATE.
    pub code: String,
    /// What the server says.
    pub message: String,
}

impl Refused {
    /// True if the same transaction may succeed when it is tried again.
    pub fn is_passing(&self) -> bool {
        matches!(self.code.as_str(), "40001" | "40P01")
    }

    fn broken(message: impl Into<String>) -> Refused {
        Refused { code: "08006".into(), message: message.into() }
    }
}

impl From<Refused> for BenchError {
    fn from(refused: Refused) -> BenchError {
        BenchError::Wrong(format!("{}: {}", refused.code, refused.message))
    }
}

/// Rows of an answer, as text. None: NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// A connection.
pub struct Session {
    stream: TcpStream,
    prepared: HashMap<&'static str, String>,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl Session {
    /// Says hello on a fresh connection to a server that trusts its own machine.
    pub fn start(mut stream: TcpStream, user: &str, database: &str) -> Result<Session, BenchError> {
        pg::start(&mut stream, user, database).map_err(BenchError::Wrong)?;
        let nodelay = stream.set_nodelay(true);
        nodelay.map_err(|error| BenchError::io("a connection cannot be set up", error))?;
        Ok(Session { stream, prepared: HashMap::new(), out: Vec::new(), input: Vec::new() })
    }

    /// Runs statements without values.
    pub fn simple(&mut self, sql: &str) -> Result<Rows, Refused> {
        self.out.clear();
        pg::message(b'Q', &mut self.out, |out| pg::text(out, sql));
        self.ask()
    }

    /// Runs a statement with these values, which is prepared when it comes for the first time.
    pub fn run(&mut self, sql: &'static str, values: &[&dyn Display]) -> Result<Rows, Refused> {
        self.prepare(sql)?;
        let name = &self.prepared[sql];
        pg::message(b'B', &mut self.out, |out| {
            pg::text(out, "");
            pg::text(out, name);
            // All values and results are text.
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(&(values.len() as u16).to_be_bytes());
            for value in values {
                let value = value.to_string();
                out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                out.extend_from_slice(value.as_bytes());
            }
            out.extend_from_slice(&[0; 2]);
        });
        pg::message(b'E', &mut self.out, |out| {
            pg::text(out, "");
            out.extend_from_slice(&[0; 4]);
        });
        pg::message(b'S', &mut self.out, |_| {});
        self.ask()
    }

    /// Prepares a statement that is not prepared yet.
    fn prepare(&mut self, sql: &'static str) -> Result<(), Refused> {
        self.out.clear();
        if self.prepared.contains_key(sql) {
            return Ok(());
        }
        let name = format!("s{}", self.prepared.len());
        pg::message(b'P', &mut self.out, |out| {
            pg::text(out, &name);
            pg::text(out, sql);
            out.extend_from_slice(&[0; 2]);
        });
        pg::message(b'S', &mut self.out, |_| {});
        self.ask()?;
        self.prepared.insert(sql, name);
        Ok(())
    }

    /// Sends lines to `COPY table FROM STDIN`.
    pub fn copy(&mut self, table: &str, lines: &mut dyn Iterator<Item = String>) -> Result<(), Refused> {
        self.out.clear();
        pg::message(b'Q', &mut self.out, |out| pg::text(out, &format!("COPY {table} FROM STDIN")));
        let mut block = String::with_capacity(2 * CHUNK_BYTES);
        for line in lines {
            block.push_str(&line);
            if block.len() >= CHUNK_BYTES {
                self.copied(&mut block);
                self.send()?;
            }
        }
        self.copied(&mut block);
        pg::message(b'c', &mut self.out, |_| {});
        self.ask().map(drop)
    }

    fn copied(&mut self, block: &mut String) {
        pg::message(b'd', &mut self.out, |out| out.extend_from_slice(block.as_bytes()));
        block.clear();
    }

    fn send(&mut self) -> Result<(), Refused> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(|error| Refused::broken(format!("the connection broke: {error}")))
    }

    /// Sends what is there, and reads up to "ready".
    fn ask(&mut self) -> Result<Rows, Refused> {
        self.send()?;
        let (mut rows, mut refused) = (Rows::new(), None);
        loop {
            let mut at = 0;
            while let Some((kind, body, length)) = pg::next(&self.input[at..]) {
                match kind {
                    b'D' => rows.push(row(body).ok_or_else(|| Refused::broken("a row cannot be read"))?),
                    b'E' => refused = Some(read_error(body)),
                    b'Z' => {
                        self.input.drain(..at + length);
                        return refused.map_or(Ok(rows), Err);
                    }
                    _ => {}
                }
                at += length;
            }
            self.input.drain(..at);
            let filled = self.input.len();
            self.input.resize(filled + CHUNK_BYTES, 0);
            let read = self.stream.read(&mut self.input[filled..]);
            let count = read.map_err(|error| Refused::broken(format!("the connection broke: {error}")))?;
            self.input.truncate(filled + count);
            if count == 0 {
                return Err(refused.unwrap_or_else(|| Refused::broken("the connection was closed")));
            }
        }
    }
}

/// The fields of an error: each has a letter and ends with a zero.
fn read_error(body: &[u8]) -> Refused {
    let field = |letter: u8| {
        let mut fields = body.split(|byte| *byte == 0);
        let found = fields.find(|field| field.first() == Some(&letter)).unwrap_or_default();
        String::from_utf8_lossy(found.get(1..).unwrap_or_default()).into_owned()
    };
    Refused { code: field(b'C'), message: field(b'M') }
}

fn row(body: &[u8]) -> Option<Vec<Option<String>>> {
    let count = u16::from_be_bytes(body.get(..2)?.try_into().ok()?);
    let mut at = 2;
    let mut values = Vec::with_capacity(count.into());
    for _ in 0..count {
        let length = i32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?);
        at += 4;
        values.push(match usize::try_from(length) {
            Err(_) => None,
            Ok(length) => {
                let value = body.get(at..at + length)?;
                at += length;
                Some(String::from_utf8_lossy(value).into_owned())
            }
        });
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_errors_are_read_and_cut_ones_are_not() {
        let mut body = vec![0, 2];
        body.extend_from_slice(&[0, 0, 0, 2]);
        body.extend_from_slice(b"ab");
        body.extend_from_slice(&[0xff; 4]);
        assert_eq!(row(&body), Some(vec![Some("ab".into()), None]));
        for cut in 0..body.len() {
            assert_eq!(row(&body[..cut]), None, "cut at {cut}");
        }
        let refused = read_error(b"SERROR\0C40001\0Mtry again\0\0");
        assert!(refused.is_passing());
        assert_eq!(refused.message, "try again");
        assert!(!read_error(b"").is_passing());
    }
}

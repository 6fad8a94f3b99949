//! PostgreSQL's protocol, as far as a load needs it: start, simple queries, and prepared statements with
//! binary values.

use crate::generate::{Step, key};
use crate::load::{Speak, blocking};
use std::net::TcpStream;

/// Appends a message: type, length, body.
pub(super) fn message(kind: u8, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// The message at the start of `input`: its type, its body, its whole length. `None` if it is not complete.
pub(super) fn next(input: &[u8]) -> Option<(u8, &[u8], usize)> {
    let head: [u8; 4] = input.get(1..5)?.try_into().ok()?;
    let length = u32::from_be_bytes(head) as usize + 1;
    Some((input[0], input.get(5..length)?, length))
}

/// The readable part of an error: its fields have a letter each and end with a zero.
fn sentence(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0).filter(|field| matches!(field.first(), Some(b'C' | b'M')));
    let fields: Vec<_> = fields.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).collect();
    format!("postgres: {}", fields.join(": "))
}

/// How long the messages up to and including "ready" are, each shown to `see`; `None` if that has not come.
fn until_ready(
    input: &[u8],
    mut see: impl FnMut(u8, &[u8]) -> Result<(), String>,
) -> Result<Option<usize>, String> {
    let mut at = 0;
    while let Some((kind, body, length)) = next(&input[at..]) {
        at += length;
        match kind {
            b'E' => return Err(sentence(body)),
            b'Z' => return Ok(Some(at)),
            _ => see(kind, body)?,
        }
    }
    Ok(None)
}

/// Says hello on a fresh connection. The server must trust its own machine, as ours are told to.
pub fn start(stream: &mut TcpStream, user: &str, database: &str) -> Result<(), String> {
    let mut body = Vec::new();
    body.extend_from_slice(&196_608u32.to_be_bytes());
    for part in ["user", user, "database", database, "application_name", "understudy bench"] {
        text(&mut body, part);
    }
    body.push(0);
    let mut out = ((body.len() + 4) as u32).to_be_bytes().to_vec();
    out.extend_from_slice(&body);
    let trusted = |kind: u8, body: &[u8]| match kind {
        b'R' if body != [0; 4] => Err("postgres: it wants a password".to_string()),
        _ => Ok(()),
    };
    blocking(stream, &out, |input| until_ready(input, trusted)).map(|_| ())
}

/// Runs statements without parameters; gives the first column of every row, as text.
pub fn query(stream: &mut TcpStream, sql: &str) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    message(b'Q', &mut out, |out| text(out, sql));
    let answer = blocking(stream, &out, |input| until_ready(input, |_, _| Ok(())))?;
    let mut rows = Vec::new();
    until_ready(&answer, |kind, body| {
        if kind == b'D' {
            rows.push(first_column(body).ok_or("postgres: a row cannot be read")?);
        }
        Ok(())
    })?;
    Ok(rows)
}

fn first_column(body: &[u8]) -> Option<String> {
    let length = i32::from_be_bytes(body.get(2..6)?.try_into().ok()?);
    let value = body.get(6..6 + usize::try_from(length).ok()?)?;
    Some(String::from_utf8_lossy(value).into_owned())
}

const UPDATE: &str = "update";
const READ: &str = "read";

/// Prepares both statements of a load on this table.
pub fn prepare(stream: &mut TcpStream, table: &str) -> Result<(), String> {
    let mut out = Vec::new();
    let update = format!("UPDATE {table} SET v = $2 WHERE k = $1");
    let read = format!("SELECT v FROM {table} WHERE k = $1");
    for (name, sql) in [(UPDATE, update), (READ, read)] {
        message(b'P', &mut out, |out| {
            text(out, name);
            text(out, &sql);
            out.extend_from_slice(&[0; 2]);
        });
    }
    message(b'S', &mut out, |_| {});
    blocking(stream, &out, |input| until_ready(input, |_, _| Ok(()))).map(|_| ())
}

/// Appends the execution of a prepared statement: key as text, value and result as bytes.
fn execute(name: &str, parameters: &[&[u8]], out: &mut Vec<u8>) {
    message(b'B', out, |out| {
        text(out, "");
        text(out, name);
        // One format for all parameters, binary: that of a text is its bytes.
        out.extend_from_slice(&[0, 1, 0, 1]);
        out.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            out.extend_from_slice(&(parameter.len() as u32).to_be_bytes());
            out.extend_from_slice(parameter);
        }
        out.extend_from_slice(&[0, 1, 0, 1]);
    });
    message(b'E', out, |out| {
        text(out, "");
        out.extend_from_slice(&[0; 4]);
    });
    message(b'S', out, |_| {});
}

/// One client: bind, execute and sync in one write, each a transaction of its own.
pub struct PgClient {
    value_bytes: usize,
    updates: bool,
}

impl PgClient {
    /// Values have this length.
    pub fn new(value_bytes: usize) -> PgClient {
        PgClient { value_bytes, updates: false }
    }
}

impl Speak for PgClient {
    fn ask(&mut self, step: &Step, out: &mut Vec<u8>) {
        match step {
            Step::Read { record } => {
                self.updates = false;
                execute(READ, &[key(*record).as_bytes()], out);
            }
            Step::Update { record, value } => {
                self.updates = true;
                execute(UPDATE, &[key(*record).as_bytes(), value], out);
            }
        }
    }

    fn answer(&mut self, input: &[u8]) -> Result<Option<usize>, String> {
        let (mut done, mut value) = (false, 0);
        let wanted: &[u8] = if self.updates { b"UPDATE 1\0" } else { b"SELECT 1\0" };
        let end = until_ready(input, |kind, body| {
            match kind {
                b'C' => done = body == wanted,
                b'D' => value = body.len().saturating_sub(6),
                _ => {}
            }
            Ok(())
        })?;
        let whole = self.updates || value == self.value_bytes;
        match end {
            Some(_) if !done => Err("postgres: a statement did not touch exactly one row".into()),
            Some(_) if !whole => Err(format!("postgres: a value of {value} bytes came back")),
            end => Ok(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn an_update_is_bind_execute_sync() {
        let mut client = PgClient::new(3);
        let mut out = Vec::new();
        client.ask(&Step::Update { record: 1, value: Bytes::from_static(b"abc") }, &mut out);
        let mut kinds = Vec::new();
        let mut rest = &out[..];
        while let Some((kind, _, length)) = next(rest) {
            kinds.push(kind);
            rest = &rest[length..];
        }
        assert_eq!((kinds.as_slice(), rest.len()), (&b"BES"[..], 0));
        let (_, bind, _) = next(&out).expect("whole");
        let mut expected = b"\0update\0".to_vec();
        expected.extend_from_slice(&[0, 1, 0, 1, 0, 2, 0, 0, 0, 14]);
        expected.extend_from_slice(b"user0000000001");
        expected.extend_from_slice(&[0, 0, 0, 3]);
        expected.extend_from_slice(b"abc");
        expected.extend_from_slice(&[0, 1, 0, 1]);
        assert_eq!(bind, expected);
    }

    fn answer(tag: &str, value: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        message(b'2', &mut out, |_| {});
        if let Some(value) = value {
            message(b'D', &mut out, |out| {
                out.extend_from_slice(&[0, 1]);
                out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                out.extend_from_slice(value);
            });
        }
        message(b'C', &mut out, |out| text(out, tag));
        message(b'Z', &mut out, |out| out.push(b'I'));
        out
    }

    #[test]
    fn an_answer_ends_with_ready_and_must_have_touched_one_row() {
        let mut client = PgClient::new(3);
        client.ask(&Step::Update { record: 1, value: Bytes::from_static(b"abc") }, &mut Vec::new());
        let good = answer("UPDATE 1", None);
        for cut in 0..good.len() {
            assert_eq!(client.answer(&good[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(client.answer(&good), Ok(Some(good.len())));
        assert!(client.answer(&answer("UPDATE 0", None)).is_err());
        client.ask(&Step::Read { record: 1 }, &mut Vec::new());
        assert!(client.answer(&answer("SELECT 1", Some(b"abc"))).is_ok());
        assert!(client.answer(&answer("SELECT 1", Some(b"ab"))).is_err());
        assert!(client.answer(&answer("SELECT 0", None)).is_err());
    }

    #[test]
    fn errors_are_read() {
        let mut out = Vec::new();
        message(b'E', &mut out, |out| {
            for field in ["SERROR", "C42P01", "Mno such table"] {
                text(out, field);
            }
            out.push(0);
        });
        assert_eq!(until_ready(&out, |_, _| Ok(())), Err("postgres: 42P01: no such table".into()));
    }
}

//! What clients send. Every length and count is checked against what is there, and text must be UTF-8.

use super::Opening;
use crate::binary::utf8;
use crate::failure::Failure;
use bytes::{Buf, Bytes, BytesMut};

/// A message of a client that has logged in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Front {
    Query(String),
    Parse(Parse),
    Bind(Bind),
    Describe(Target),
    /// `limit` 0: all rows.
    Execute {
        portal: String,
        limit: usize,
    },
    Close(Target),
    Sync,
    Flush,
    Terminate,
    CopyData(Bytes),
    CopyDone,
    /// The client gives a COPY up, for this reason.
    CopyFail(String),
    Password,
    Function,
}

/// A statement to be prepared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parse {
    pub name: String,
    pub text: String,
    pub oids: Vec<u32>,
}

/// Values for a statement's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bind {
    pub portal: String,
    pub statement: String,
    pub formats: Vec<i16>,
    pub values: Vec<Option<Bytes>>,
    pub results: Vec<i16>,
}

/// What a message is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Statement(String),
    Portal(String),
}

/// A message at the front of a buffer.
pub(crate) enum Cut<T> {
    Whole(T),
    /// Not all of it has come.
    Part,
}

const ENCRYPT_TLS: u32 = 80_877_103;
const ENCRYPT_GSS: u32 = 80_877_104;
const CANCEL: u32 = 80_877_102;

/// The length that a message says it has, its own four bytes included.
fn said(buffer: &[u8], at: usize) -> Option<u32> {
    buffer.get(at..at + 4).map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

/// Takes a message without a tag, as connections begin with.
pub(crate) fn cut_opening(buffer: &mut BytesMut, limit: usize) -> Result<Cut<Bytes>, Failure> {
    let Some(length) = said(buffer, 0) else { return Ok(Cut::Part) };
    if !(8..=limit).contains(&(length as usize)) {
        return Err(Failure::protocol("invalid length of startup packet"));
    }
    if buffer.len() < length as usize {
        return Ok(Cut::Part);
    }
    let mut body = buffer.split_to(length as usize).freeze();
    body.advance(4);
    Ok(Cut::Whole(body))
}

/// Takes a message with its tag.
pub(crate) fn cut(buffer: &mut BytesMut, limit: usize) -> Result<Cut<(u8, Bytes)>, Failure> {
    let Some(length) = said(buffer, 1) else { return Ok(Cut::Part) };
    if !(4..=limit).contains(&(length as usize)) {
        return Err(Failure::protocol("invalid message length"));
    }
    if buffer.len() < length as usize + 1 {
        return Ok(Cut::Part);
    }
    let mut body = buffer.split_to(length as usize + 1).freeze();
    let tag = body.get_u8();
    body.advance(4);
    Ok(Cut::Whole((tag, body)))
}

/// True if [`cut`] would not wait.
pub(crate) fn is_whole(buffer: &[u8]) -> bool {
    said(buffer, 1).is_some_and(|length| {
        buffer.len() > length as usize || !(4..=super::MAX_MESSAGE).contains(&(length as usize))
    })
}

/// Reads the body of a message without a tag.
pub(crate) fn opening(body: Bytes) -> Result<Opening, Failure> {
    let mut input = Input(body);
    match input.u32()? {
        ENCRYPT_TLS => Ok(Opening::Encrypt),
        ENCRYPT_GSS => Ok(Opening::EncryptGss),
        CANCEL => Ok(Opening::Cancel { pid: input.u32()? as i32, key: input.u32()? as i32 }),
        version => {
            let mut parameters = Vec::new();
            let (major, minor) = ((version >> 16) as u16, version as u16);
            if major == 3 {
                loop {
                    let name = input.text()?;
                    if name.is_empty() {
                        break;
                    }
                    parameters.push((name, input.text()?));
                }
                input.end()?;
            }
            Ok(Opening::Startup { major, minor, parameters })
        }
    }
}

/// Reads a message.
pub(crate) fn read(tag: u8, body: Bytes) -> Result<Front, Failure> {
    let mut input = Input(body);
    let message = match tag {
        b'Q' => Front::Query(input.text()?),
        b'P' => {
            let (name, text) = (input.text()?, input.text()?);
            Front::Parse(Parse { name, text, oids: input.list(4, Input::u32)? })
        }
        b'B' => Front::Bind(input.bind()?),
        b'D' => Front::Describe(input.target()?),
        b'C' => Front::Close(input.target()?),
        b'E' => {
            let portal = input.text()?;
            // PostgreSQL takes every number below 1 for "all".
            let limit = (input.u32()? as i32).max(0) as usize;
            Front::Execute { portal, limit }
        }
        b'S' => Front::Sync,
        b'H' => Front::Flush,
        b'X' => Front::Terminate,
        b'd' => return Ok(Front::CopyData(input.0)),
        b'c' => Front::CopyDone,
        b'f' => {
            // It is only shown.
            let reason = String::from_utf8_lossy(&input.0);
            return Ok(Front::CopyFail(reason.trim_end_matches('\0').to_string()));
        }
        b'p' => return Ok(Front::Password),
        b'F' => return Ok(Front::Function),
        other => return Err(Failure::protocol(format!("invalid frontend message type {other}"))),
    };
    input.end()?;
    Ok(message)
}

/// What is left of a message.
struct Input(Bytes);

impl Input {
    fn short() -> Failure {
        Failure::protocol("insufficient data left in message")
    }

    fn take(&mut self, count: usize) -> Result<Bytes, Failure> {
        if self.0.len() < count { Err(Input::short()) } else { Ok(self.0.split_to(count)) }
    }

    fn u16(&mut self) -> Result<u16, Failure> {
        Ok(self.take(2)?.get_u16())
    }

    fn i16(&mut self) -> Result<i16, Failure> {
        Ok(self.take(2)?.get_i16())
    }

    fn u32(&mut self) -> Result<u32, Failure> {
        Ok(self.take(4)?.get_u32())
    }

    /// Text up to a zero byte.
    fn text(&mut self) -> Result<String, Failure> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| Failure::protocol("invalid string in message"))?;
        let mut bytes = self.take(end + 1)?;
        bytes.truncate(end);
        utf8(&bytes).map(str::to_string)
    }

    /// A count, and as many items of at least `size` bytes.
    fn list<T>(
        &mut self,
        size: usize,
        item: impl Fn(&mut Input) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let count = usize::from(self.u16()?);
        if count * size > self.0.len() {
            return Err(Input::short());
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn value(&mut self) -> Result<Option<Bytes>, Failure> {
        match self.u32()? as i32 {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Input::short())?;
                self.take(length).map(Some)
            }
        }
    }

    fn bind(&mut self) -> Result<Bind, Failure> {
        Ok(Bind {
            portal: self.text()?,
            statement: self.text()?,
            formats: self.list(2, Input::i16)?,
            values: self.list(4, Input::value)?,
            results: self.list(2, Input::i16)?,
        })
    }

    fn target(&mut self) -> Result<Target, Failure> {
        match self.take(1)?[0] {
            b'S' => Ok(Target::Statement(self.text()?)),
            b'P' => Ok(Target::Portal(self.text()?)),
            other => Err(Failure::protocol(format!("invalid message subtype {other}"))),
        }
    }

    fn end(&self) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(Failure::protocol("invalid message format")) }
    }
}

/// The mechanism and the first message of a login by SASL.
pub(crate) fn sasl_initial(body: Bytes) -> Result<(String, Bytes), Failure> {
    let mut input = Input(body);
    let mechanism = input.text()?;
    let first = input.value()?.unwrap_or_default();
    input.end()?;
    Ok((mechanism, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        out.extend((body.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    #[test]
    fn messages_are_taken_whole_and_one_by_one() {
        let mut wire = message(b'Q', b"select 1\0");
        wire.extend(message(b'P', b"s\0select $1\0\0\x01\0\0\0\x14"));
        wire.extend(message(b'B', b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x02ab\xff\xff\xff\xff\0\0"));
        wire.extend(message(b'E', b"\0\xff\xff\xff\xff"));
        let mut found = Vec::new();
        let mut buffer = BytesMut::new();
        for byte in wire {
            buffer.extend_from_slice(&[byte]);
            let whole = is_whole(&buffer);
            match cut(&mut buffer, 1000).expect("good") {
                Cut::Whole((tag, body)) => found.push(read(tag, body).expect("good")),
                Cut::Part => assert!(!whole),
            }
        }
        let bind = Bind {
            portal: String::new(),
            statement: "s".into(),
            formats: vec![1],
            values: vec![Some(Bytes::from_static(b"ab")), None],
            results: vec![],
        };
        let expected = [
            Front::Query("select 1".into()),
            Front::Parse(Parse { name: "s".into(), text: "select $1".into(), oids: vec![20] }),
            Front::Bind(bind),
            Front::Execute { portal: String::new(), limit: 0 },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn damaged_messages_are_refused() {
        let cases: &[(u8, &[u8])] = &[
            (b'Q', b"no end"),
            (b'Q', b"a\0b\0"),
            (b'Q', b"\xff\0"),
            (b'P', b"s\0select\0"),
            (b'P', b"s\0select\0\xff\xff"),
            (b'B', b"\0\0\0\0\0\x01\0\0\0\x09ab\0\0"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'B', b"\0\0\xff\xff"),
            (b'D', b"X\0"),
            (b'D', b""),
            (b'E', b"\0\0"),
            (b'S', b"x"),
            (b'z', b""),
        ];
        for (tag, body) in cases {
            assert!(read(*tag, Bytes::from_static(body)).is_err(), "{} {body:?}", *tag as char);
        }
        for length in [0u32, 3, 1001, u32::MAX] {
            let mut buffer = BytesMut::from(&b"Q"[..]);
            buffer.extend_from_slice(&length.to_be_bytes());
            assert!(cut(&mut buffer, 1000).is_err(), "{length}");
        }
        let mut buffer = BytesMut::from(&[0u8, 0, 0, 7, 0][..]);
        assert!(cut_opening(&mut buffer, 1000).is_err());
    }

    #[test]
    fn openings() {
        let opening = |body: &'static [u8]| super::opening(Bytes::from_static(body));
        assert_eq!(opening(b"\x04\xd2\x16\x2f"), Ok(Opening::Encrypt));
        let parameters = vec![("user".to_string(), "ada".to_string())];
        assert_eq!(
            opening(b"\0\x03\0\0user\0ada\0\0"),
            Ok(Opening::Startup { major: 3, minor: 0, parameters })
        );
        assert!(opening(b"\0\x03\0\0user\0ada\0").is_err() && opening(b"\0\x03\0\0user").is_err());
        assert!(opening(b"\x04\xd2\x16\x2e\0\0").is_err());
        assert_eq!(
            opening(b"\0\x02\0\0junk"),
            Ok(Opening::Startup { major: 2, minor: 0, parameters: vec![] })
        );
    }
}

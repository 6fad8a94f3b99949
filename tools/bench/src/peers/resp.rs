//! Redis's protocol, as far as a load needs it.

use crate::generate::{Step, key};
use crate::load::Speak;

/// Appends a command: an array of bulk strings.
pub fn command(parts: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
    for part in parts {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

/// One reply at the start of the input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// `+text`.
    Simple(&'a [u8]),
    /// `:number`.
    Number(i64),
    /// `$length`, bytes; `None`: there is none.
    Bulk(Option<&'a [u8]>),
}

/// The reply at the start of `input` and its length; `None` if it is not complete. An error reply is an
/// error.
pub fn reply(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, after) = (&input[1..end], end + 2);
    let number = || {
        let text = std::str::from_utf8(line).ok();
        text.and_then(|text| text.parse::<i64>().ok()).ok_or("redis: a reply has a number that is none")
    };
    match input[0] {
        b'+' => Ok(Some((Reply::Simple(line), after))),
        b'-' => Err(format!("redis: {}", String::from_utf8_lossy(line))),
        b':' => Ok(Some((Reply::Number(number()?), after))),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Ok(Some((Reply::Bulk(None), after))),
            Ok(length) if input.len() < after + length + 2 => Ok(None),
            Ok(length) => Ok(Some((Reply::Bulk(Some(&input[after..after + length])), after + length + 2))),
        },
        other => Err(format!("redis: a reply begins with {:?}", char::from(other))),
    }
}

/// What the request on its way must be answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Nothing,
    /// `OK`, and if so, how many replicas have it.
    Written,
    /// The value.
    Value,
}

/// One client: `SET` and `WAIT` in one write, or `GET`.
pub struct RedisClient {
    wait: Option<u32>,
    value_bytes: usize,
    expected: Expected,
}

impl RedisClient {
    /// With `wait`, an update is done once so many replicas have acknowledged it.
    pub fn new(wait: Option<u32>, value_bytes: usize) -> RedisClient {
        RedisClient { wait, value_bytes, expected: Expected::Nothing }
    }
}

impl Speak for RedisClient {
    fn ask(&mut self, step: &Step, out: &mut Vec<u8>) {
        match step {
            Step::Read { record } => {
                command(&[b"GET", key(*record).as_bytes()], out);
                self.expected = Expected::Value;
            }
            Step::Update { record, value } => {
                command(&[b"SET", key(*record).as_bytes(), value], out);
                if let Some(replicas) = self.wait {
                    command(&[b"WAIT", replicas.to_string().as_bytes(), b"0"], out);
                }
                self.expected = Expected::Written;
            }
        }
    }

    fn answer(&mut self, input: &[u8]) -> Result<Option<usize>, String> {
        let Some((first, length)) = reply(input)? else { return Ok(None) };
        match (self.expected, first) {
            (Expected::Value, Reply::Bulk(Some(value))) if value.len() == self.value_bytes => {
                Ok(Some(length))
            }
            (Expected::Written, Reply::Simple(b"OK")) => {
                let Some(wanted) = self.wait else { return Ok(Some(length)) };
                match reply(&input[length..]) {
                    Ok(None) => Ok(None),
                    Ok(Some((Reply::Number(have), more))) if have >= i64::from(wanted) => {
                        Ok(Some(length + more))
                    }
                    other => Err(format!("redis: WAIT {wanted} was answered with {other:?}")),
                }
            }
            (expected, other) => Err(format!("redis: {expected:?} was expected, {other:?} came")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&[b"SET", b"k", b"a\r\nb"], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn replies_are_read_once_they_are_complete() {
        assert_eq!(reply(b"+OK\r\n:2"), Ok(Some((Reply::Simple(b"OK"), 5))));
        assert_eq!(reply(b":-12\r\n"), Ok(Some((Reply::Number(-12), 6))));
        let bulk = b"$4\r\na\r\nb\r\n";
        assert_eq!(reply(bulk), Ok(Some((Reply::Bulk(Some(b"a\r\nb")), 10))));
        for cut in 0..bulk.len() {
            assert_eq!(reply(&bulk[..cut]), Ok(None), "cut at {cut}");
        }
        assert_eq!(reply(b"$-1\r\n"), Ok(Some((Reply::Bulk(None), 5))));
        assert!(reply(b"-ERR no\r\n").is_err_and(|error| error.contains("ERR no")));
        assert!(reply(b"!\r\n").is_err());
    }

    #[test]
    fn an_update_and_its_wait_are_one_write_with_two_replies() {
        let mut client = RedisClient::new(Some(2), 3);
        let mut out = Vec::new();
        client.ask(&Step::Update { record: 7, value: Bytes::from_static(b"abc") }, &mut out);
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "*3\r\n$3\r\nSET\r\n$14\r\nuser0000000007\r\n$3\r\nabc\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$1\r\n0\r\n"
        );
        assert_eq!(client.answer(b"+OK\r\n"), Ok(None));
        assert_eq!(client.answer(b"+OK\r\n:2\r\n"), Ok(Some(9)));
        assert!(client.answer(b"+OK\r\n:1\r\n").is_err(), "one replica is too few");
    }

    #[test]
    fn a_read_must_bring_the_whole_value() {
        let mut client = RedisClient::new(None, 3);
        client.ask(&Step::Read { record: 7 }, &mut Vec::new());
        assert_eq!(client.answer(b"$3\r\nabc\r\n"), Ok(Some(9)));
        assert!(client.answer(b"$-1\r\n").is_err());
        assert!(client.answer(b"$2\r\nab\r\n").is_err());
    }
}

//! Frames on a connection: `length u32 | number u16 | covered u16 | CRC-32C u32 | body`, little-endian.
//!
//! The checksum covers so many bytes of the body, or all of it if that is 0. Only the entries of an append
//! may lie behind them: each has a checksum of its own, which is looked at when it is decoded
//! ([`crate::Entry::all`]).
//!
//! The length is the body's. It is checked against the message's cap before anything is read, so garbage
//! costs nothing; a frame that is wrong in any way closes its connection and no other.

use crate::message::Message;
use crate::shared;
use bytes::Bytes;

/// Length of a frame's header, in bytes.
pub const FRAME_HEADER_BYTES: usize = 12;

/// Why bytes are not a frame. The connection is closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// No message has this number.
    #[error("a frame has the unknown number {0}: is the other side speaking another protocol?")]
    Number(u16),
    /// Over the cap.
    #[error("a frame of {length} bytes is over the limit of {cap} for message {number}")]
    TooLong {
        /// The message's number.
        number: u16,
        /// The length that was claimed.
        length: usize,
        /// The most.
        cap: usize,
    },
    /// The body was changed.
    #[error("a frame's checksum does not match")]
    Checksum,
    /// The body is not such a message, or not a valid one.
    #[error("a frame does not decode: {0}")]
    Body(String),
}

/// Appends a message as a frame to `out`. The error is a sentence: a message over its cap is our own limit,
/// not the peer's.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), String> {
    let rest = encode_begin(message, out)?;
    out.extend_from_slice(&rest);
    Ok(())
}

/// The same but for the frame's end, which is given, if others have it in memory too. Else that is empty.
pub fn encode_begin(message: &Message, out: &mut Vec<u8>) -> Result<Bytes, String> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    let (begun, rest) = message.encode_begin(std::mem::take(out))?;
    *out = begun;
    let length = out.len() - start - FRAME_HEADER_BYTES + rest.len();
    let cap = Message::cap(message.number()).unwrap_or(0);
    if length > cap {
        out.truncate(start);
        return Err(format!("a {} of {length} bytes is over the limit of {cap}", message.name()));
    }
    let begun = &out[start + FRAME_HEADER_BYTES..];
    let covered = if rest.is_empty() { 0 } else { begun.len() };
    let covered = u16::try_from(covered).expect("what stands before entries is short");
    let crc = crc32c::crc32c(begun);
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 4..start + 6].copy_from_slice(&message.number().to_le_bytes());
    out[start + 6..start + 8].copy_from_slice(&covered.to_le_bytes());
    out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
    Ok(rest)
}

/// Takes one message from the start of `bytes`: the message and how many bytes it took, or `None` if more are
/// needed.
pub fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, FrameError> {
    let Some(whole) = Whole::find(bytes)? else { return Ok(None) };
    Ok(Some((whole.decode(&bytes[FRAME_HEADER_BYTES..whole.end])?, whole.end)))
}

/// A frame that has come whole. What its checksum covers is as it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    /// Its message's number.
    pub number: u16,
    /// Where it ends.
    pub end: usize,
    /// So many bytes at its end have checksums of their own.
    entries: usize,
}

impl Whole {
    /// The frame at the start of `bytes`, or `None` if more are needed.
    pub fn find(bytes: &[u8]) -> Result<Option<Whole>, FrameError> {
        if bytes.len() < FRAME_HEADER_BYTES {
            return Ok(None);
        }
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        let number = u16::from_le_bytes([bytes[4], bytes[5]]);
        let cap = Message::cap(number).ok_or(FrameError::Number(number))?;
        if length > cap {
            return Err(FrameError::TooLong { number, length, cap });
        }
        let end = FRAME_HEADER_BYTES + length;
        if bytes.len() < end {
            return Ok(None);
        }
        let covered = match usize::from(u16::from_le_bytes([bytes[6], bytes[7]])) {
            0 => length,
            covered => covered,
        };
        let crc = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        match bytes[FRAME_HEADER_BYTES..end].get(..covered) {
            Some(begun) if crc32c::crc32c(begun) == crc => {
                Ok(Some(Whole { number, end, entries: length - covered }))
            }
            _ => Err(FrameError::Checksum),
        }
    }

    /// The message in its body.
    pub fn decode(&self, body: &[u8]) -> Result<Message, FrameError> {
        self.valid(Message::decode_body(self.number, body))
    }

    /// The same, of which rows may be parts of `body`.
    pub fn decode_shared(&self, body: &Bytes) -> Result<Message, FrameError> {
        match shared::write_in(body) {
            Some(request) => self.valid(Ok(Message::Request(request))),
            None => self.decode(body),
        }
    }

    fn valid(&self, message: Result<Message, String>) -> Result<Message, FrameError> {
        let message = message.map_err(FrameError::Body)?;
        let entries = if let Message::Append(append) = &message { append.entries.len() } else { 0 };
        if self.entries > entries {
            return Err(FrameError::Checksum);
        }
        message.validate().map_err(FrameError::Body)?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Header, Kind};
    use crate::hello::{Hello, HelloRole, PROTOCOL};
    use crate::peer::Append;
    use types::Executors;
    use types::{Epoch, Incarnation, Lsn, Member, NodeId, PartitionId, Position, StoreId, Term};

    fn sample() -> Message {
        let hello = Hello {
            role: HelloRole::Client,
            protocol: PROTOCOL,
            cluster: None,
            member: None,
            secret: None,
            agent: "test".into(),
        };
        hello.into()
    }

    #[test]
    fn frames_follow_each_other() {
        let mut bytes = Vec::new();
        encode(&sample(), &mut bytes).expect("fits");
        let one = bytes.len();
        encode(&sample(), &mut bytes).expect("fits");
        let (message, taken) = decode(&bytes).expect("good").expect("whole");
        assert_eq!((message, taken), (sample(), one));
        assert_eq!(decode(&bytes[one..bytes.len() - 1]), Ok(None));
    }

    fn append(entries: Bytes) -> Message {
        let from = Member { node: NodeId(1), store: StoreId(7), incarnation: Incarnation(2) };
        Message::Append(Append {
            partition: PartitionId(64),
            epoch: Epoch(300),
            from,
            number: 9,
            prev: Position::new(Term(300), Lsn(70_000)),
            prev_crc: 0xdead_beef,
            committed: Lsn(70_000),
            secured: Lsn(69_000),
            log_floor: Lsn(1),
            sent_us: 1 << 40,
            echo_us: 0,
            entries,
        })
    }

    #[test]
    fn entries_end_the_frame_of_an_append_and_are_not_copied() {
        for length in [0, 1, 127, 128, 20_000] {
            let entries = Bytes::from(vec![7; length]);
            let (message, mut begun) = (append(entries.clone()), Vec::new());
            let rest = encode_begin(&message, &mut begun).expect("fits");
            assert_eq!((rest.as_ptr(), rest.len()), (entries.as_ptr(), length));
            let frame = [&begun[..], &rest[..]].concat();
            assert_eq!(frame[FRAME_HEADER_BYTES..], message.encode_body(Vec::new()).expect("encodes"));
            assert_eq!(decode(&frame), Ok(Some((message, frame.len()))));
        }
    }

    #[test]
    fn garbage_is_an_error_or_incomplete_but_never_a_message() {
        let mut bytes = Vec::new();
        encode(&sample(), &mut bytes).expect("fits");
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(!matches!(decode(&bad), Ok(Some(_))), "byte {at}");
        }
    }

    #[test]
    fn of_an_append_frame_and_entries_notice_all_garbage_together() {
        let at = Position::new(Term(300), Lsn(70_001));
        let entry = Entry::encode(Header::new(Kind::Rows, PartitionId(64), at, 0xdead_beef), b"some rows");
        let mut bytes = Vec::new();
        encode(&append(entry.bytes().clone()), &mut bytes).expect("fits");
        for byte in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[byte] ^= 1 << bit;
                let Ok(Some((Message::Append(append), _))) = decode(&bad) else { continue };
                assert!(Entry::all(append.entries).is_err(), "bit {bit} of byte {byte}");
            }
        }
    }

    #[test]
    fn nothing_but_entries_lies_behind_what_the_checksum_covers() {
        let mut bytes = Vec::new();
        encode(&sample(), &mut bytes).expect("fits");
        let covered = (bytes.len() - FRAME_HEADER_BYTES - 1) as u16;
        let crc = crc32c::crc32c(&bytes[FRAME_HEADER_BYTES..bytes.len() - 1]);
        bytes[6..8].copy_from_slice(&covered.to_le_bytes());
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes), Err(FrameError::Checksum));
    }

    #[test]
    fn pr515_a_greeting_names_an_executor_that_exists() {
        let hello = |executor, executors| {
            let role =
                HelloRole::Pair { executor, executors: Executors::new(executors).expect("so many can be") };
            let (protocol, agent) = (PROTOCOL, String::new());
            Message::Hello(Hello { role, protocol, cluster: None, member: None, secret: None, agent })
        };
        let read = |message: &Message| {
            let mut bytes = Vec::new();
            encode(message, &mut bytes).expect("fits");
            decode(&bytes).map(|whole| whole.expect("a whole frame").0)
        };
        for known in [hello(0, 1), hello(2, 3)] {
            assert_eq!(read(&known).as_ref(), Ok(&known));
        }
        for unknown in [hello(1, 1), hello(3, 3), hello(u8::MAX, 63)] {
            assert!(matches!(read(&unknown), Err(FrameError::Body(why)) if why.contains("executor")));
        }
    }
}

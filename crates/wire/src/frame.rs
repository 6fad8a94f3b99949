//! Frames on a connection: `length u32 | number u16 | zero u16 | CRC-32C of the body u32 | body`,
//! little-endian.
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
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out[start + FRAME_HEADER_BYTES..]), &rest);
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 4..start + 6].copy_from_slice(&message.number().to_le_bytes());
    out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
    Ok(rest)
}

/// Takes one message from the start of `bytes`: the message and how many bytes it took, or `None` if more are
/// needed.
pub fn decode(bytes: &[u8]) -> Result<Option<(Message, usize)>, FrameError> {
    let Some((number, end)) = whole(bytes)? else { return Ok(None) };
    Ok(Some((decode_body(number, &bytes[FRAME_HEADER_BYTES..end])?, end)))
}

/// The message in the body of a whole frame.
pub(crate) fn decode_body(number: u16, body: &[u8]) -> Result<Message, FrameError> {
    valid(Message::decode_body(number, body))
}

/// The same, of which rows may be parts of `body`.
pub(crate) fn decode_shared(number: u16, body: &Bytes) -> Result<Message, FrameError> {
    match shared::write_in(body) {
        Some(request) => valid(Ok(Message::Request(request))),
        None => decode_body(number, body),
    }
}

fn valid(message: Result<Message, String>) -> Result<Message, FrameError> {
    let message = message.map_err(FrameError::Body)?;
    message.validate().map_err(FrameError::Body)?;
    Ok(message)
}

/// Looks for a whole frame at the start of `bytes`: its message's number and where it ends, or `None` if more
/// bytes are needed. Its body is as it was sent.
pub(crate) fn whole(bytes: &[u8]) -> Result<Option<(u16, usize)>, FrameError> {
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
    let body = &bytes[FRAME_HEADER_BYTES..end];
    if crc32c::crc32c(body) != u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) {
        return Err(FrameError::Checksum);
    }
    Ok(Some((number, end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::{Hello, HelloRole, PROTOCOL};
    use crate::peer::Append;
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
            // Bytes 6 and 7 are reserved and not looked at.
            if !(6..8).contains(&at) {
                assert!(!matches!(decode(&bad), Ok(Some(_))), "byte {at}");
            }
        }
    }
}

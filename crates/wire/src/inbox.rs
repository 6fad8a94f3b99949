//! What a connection has received and nobody has taken yet.

use crate::frame::{self, FRAME_HEADER_BYTES, FrameError};
use crate::message::Message;

/// The least room that a read is offered, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// A buffer that grew beyond this for one large frame is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;

/// The received bytes of one connection. It does no IO: its owner reads into [`Inbox::room`] and says with
/// [`Inbox::took`] how much came. It grows only for a frame that has begun and is within its message's cap,
/// so a peer cannot make it larger than that.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
}

impl Inbox {
    /// Where the next read goes: 32 KiB at least.
    pub fn room(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.bytes[self.to..]
    }

    /// So many bytes were read into [`Inbox::room`]. True if that filled it, so that there may be more.
    ///
    /// # Panics
    /// If there was not so much room.
    pub fn took(&mut self, read: usize) -> bool {
        assert!(read <= self.bytes.len() - self.to, "a read of {read} bytes is larger than the room for it");
        self.to += read;
        self.to == self.bytes.len()
    }

    /// The number of the next message, once its header is there.
    pub fn next_number(&self) -> Option<u16> {
        let unread = &self.bytes[self.from..self.to];
        (unread.len() >= FRAME_HEADER_BYTES).then(|| u16::from_le_bytes([unread[4], unread[5]]))
    }

    /// Takes the next message; none if more bytes are needed. After an error the connection is of no use.
    pub fn next_message(&mut self) -> Result<Option<Message>, FrameError> {
        let Some((message, taken)) = frame::decode(&self.bytes[self.from..self.to])? else { return Ok(None) };
        self.from += taken;
        Ok(Some(message))
    }

    /// Moves what is unread to the front if the room behind it is short.
    fn make_room(&mut self) {
        if self.from == self.to {
            self.from = 0;
            self.to = 0;
            if self.bytes.len() > KEEP_BYTES {
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.to >= READ_BYTES / 2 {
            return;
        }
        self.bytes.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        let wanted = (self.to * 2).max(self.to + READ_BYTES);
        self.bytes.resize(wanted, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Fetched;
    use bytes::Bytes;
    use types::{Epoch, Incarnation, Lsn, Member, NodeId, PartitionId, Position, StoreId, Term};

    /// A message of about this many bytes.
    fn message(lsn: u64, bytes: usize) -> Message {
        let from = Member { node: NodeId(1), store: StoreId(7), incarnation: Incarnation(2) };
        let after = Position::new(Term(1), Lsn(lsn));
        let entries = Bytes::from(vec![lsn as u8; bytes]);
        Fetched { partition: PartitionId(64), epoch: Epoch(1), from, after, entries }.into()
    }

    /// Reads `bytes` as from a socket that gives at most `most` of them at once; returns the messages as they
    /// become whole.
    fn receive(inbox: &mut Inbox, mut bytes: &[u8], most: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let room = inbox.room();
            assert!(room.len() >= READ_BYTES / 2, "room for {} bytes", room.len());
            let read = room.len().min(most).min(bytes.len());
            room[..read].copy_from_slice(&bytes[..read]);
            let all = room.len() == read;
            assert_eq!(inbox.took(read), all);
            bytes = &bytes[read..];
            while let Some(message) = inbox.next_message().expect("whole frames") {
                messages.push(message);
            }
        }
        messages
    }

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let sent: Vec<Message> = [0, 10, 70_000, 3, 2_000_000, 1]
            .into_iter()
            .zip(1..)
            .map(|(bytes, lsn)| message(lsn, bytes))
            .collect();
        let mut bytes = Vec::new();
        sent.iter().for_each(|message| frame::encode(message, &mut bytes).expect("fits"));
        for most in [997, 65_536, usize::MAX] {
            let mut inbox = Inbox::default();
            assert_eq!(receive(&mut inbox, &bytes, most), sent, "at most {most} bytes at once");
        }
    }

    #[test]
    fn the_room_of_a_large_frame_is_given_back() {
        let mut inbox = Inbox::default();
        let mut bytes = Vec::new();
        frame::encode(&message(1, 5_000_000), &mut bytes).expect("fits");
        assert_eq!(receive(&mut inbox, &bytes, usize::MAX).len(), 1);
        assert!(inbox.bytes.len() > 5_000_000);
        assert_eq!(inbox.room().len(), READ_BYTES);
    }

    #[test]
    fn the_next_number_is_known_with_the_header_and_no_sooner() {
        let (mut inbox, mut bytes) = (Inbox::default(), Vec::new());
        frame::encode(&message(1, 9), &mut bytes).expect("fits");
        assert_eq!(receive(&mut inbox, &bytes[..FRAME_HEADER_BYTES - 1], 5), []);
        assert_eq!(inbox.next_number(), None);
        assert_eq!(receive(&mut inbox, &bytes[FRAME_HEADER_BYTES - 1..FRAME_HEADER_BYTES], 5), []);
        assert_eq!(inbox.next_number(), Some(26));
    }

    #[test]
    fn a_frame_over_its_cap_is_refused_before_there_is_room_for_it() {
        let mut inbox = Inbox::default();
        let mut header = [0; FRAME_HEADER_BYTES];
        header[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        header[4] = 26;
        inbox.room()[..FRAME_HEADER_BYTES].copy_from_slice(&header);
        inbox.took(FRAME_HEADER_BYTES);
        assert!(matches!(inbox.next_message(), Err(FrameError::TooLong { number: 26, .. })));
        assert_eq!(inbox.bytes.len(), READ_BYTES);
    }
}

//! What a connection has received and nobody has taken yet.

use crate::frame::{FRAME_HEADER_BYTES, FrameError, Whole};
use crate::message::Message;
use crate::shared;
use bytes::{Bytes, BytesMut};

/// The least room that a read is offered, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// A buffer that grew beyond this for one large frame is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;

/// The received bytes of one connection. It does no IO: its owner reads into [`Inbox::room`] and says with
/// [`Inbox::took`] how much came. It grows only for a frame that has begun and is within its message's cap,
/// so a peer cannot make it larger than that.
///
/// Rows of a large write are parts of it until they are in an entry. Whoever keeps them longer keeps all of
/// the buffer in memory, and the next read goes into another one: see [`crate::Request::detached`].
#[derive(Debug, Default)]
pub struct Inbox {
    /// Empty while it is lent.
    bytes: BytesMut,
    /// The same bytes from when a message may have parts of them until the next read; else empty.
    lent: Bytes,
    from: usize,
    to: usize,
}

impl Inbox {
    /// Where the next read goes: 32 KiB at least.
    pub fn room(&mut self) -> &mut [u8] {
        self.take_back();
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
        let unread = self.unread();
        (unread.len() >= FRAME_HEADER_BYTES).then(|| u16::from_le_bytes([unread[4], unread[5]]))
    }

    /// Takes the next message; none if more bytes are needed. After an error the connection is of no use.
    pub fn next_message(&mut self) -> Result<Option<Message>, FrameError> {
        let Some(whole) = Whole::find(self.unread())? else { return Ok(None) };
        let message = if shared::may_share(whole.number, whole.end - FRAME_HEADER_BYTES) {
            let (begins, ends) = (self.from + FRAME_HEADER_BYTES, self.from + whole.end);
            let body = self.lend().slice(begins..ends);
            whole.decode_shared(&body)?
        } else {
            whole.decode(&self.unread()[FRAME_HEADER_BYTES..whole.end])?
        };
        self.from += whole.end;
        Ok(Some(message))
    }

    /// What was received and is in no message yet.
    fn unread(&self) -> &[u8] {
        let received = if self.lent.is_empty() { &self.bytes[..] } else { &self.lent[..] };
        &received[self.from..self.to]
    }

    /// The buffer, for messages to have parts of.
    fn lend(&mut self) -> &Bytes {
        if self.lent.is_empty() {
            self.lent = std::mem::take(&mut self.bytes).freeze();
        }
        &self.lent
    }

    /// Reads go into the buffer again, or into another one if somebody still has a part of it.
    fn take_back(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        match std::mem::take(&mut self.lent).try_into_mut() {
            Ok(bytes) => self.bytes = bytes,
            Err(lent) => {
                let unread = &lent[self.from..self.to];
                self.bytes = BytesMut::zeroed(unread.len() + READ_BYTES);
                self.bytes[..unread.len()].copy_from_slice(unread);
                (self.from, self.to) = (0, unread.len());
            }
        }
    }

    /// Moves what is unread to the front if the room behind it is short.
    fn make_room(&mut self) {
        if self.from == self.to {
            self.from = 0;
            self.to = 0;
            if self.bytes.len() > KEEP_BYTES {
                self.bytes = BytesMut::new();
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
    use crate::frame;
    use crate::peer::Fetched;
    use crate::request::{Op, Request, RowOp};
    use types::{Epoch, Incarnation, Lsn, Member, NodeId, PartitionId, Position, StoreId, Term};

    /// A message of about this many bytes.
    fn message(lsn: u64, bytes: usize) -> Message {
        let from = Member { node: NodeId(1), store: StoreId(7), incarnation: Incarnation(2) };
        let after = Position::new(Term(1), Lsn(lsn));
        let entries = Bytes::from(vec![lsn as u8; bytes]);
        Fetched { partition: PartitionId(64), epoch: Epoch(1), from, after, entries }.into()
    }

    /// A write of a row of so many bytes.
    fn write(id: u64, bytes: usize) -> Message {
        let row = RowOp::Put { key: Bytes::from_static(b"key"), row: Bytes::from(vec![id as u8; bytes]) };
        let request = Request::new(types::TableId(7), 1, PartitionId(64), Op::write(vec![row]));
        Message::Request(Request { id, ..request })
    }

    /// The row that it writes.
    fn row(message: &Message) -> &Bytes {
        match message {
            Message::Request(Request { op: Op::Write { ops, .. }, .. }) => ops[0].row().expect("it is a put"),
            other => panic!("{other:?}"),
        }
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
            .flat_map(|(bytes, lsn)| [message(lsn, bytes), write(lsn, bytes)])
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
    fn a_large_row_is_a_part_of_the_buffer_which_is_used_again_when_the_row_is_gone() {
        let (mut inbox, mut bytes) = (Inbox::default(), Vec::new());
        frame::encode(&write(1, 20_000), &mut bytes).expect("fits");
        let written = receive(&mut inbox, &bytes, usize::MAX);
        let buffer = inbox.lent.as_ptr_range();
        assert!(buffer.contains(&row(&written[0]).as_ptr()));
        drop(written);
        assert_eq!(inbox.room().as_ptr(), buffer.start);
        // Whoever keeps the row keeps the buffer: what was received behind it is in another one.
        let next = bytes.len() / 2;
        let first = receive(&mut inbox, &[&bytes[..], &bytes[..next]].concat(), usize::MAX);
        assert!(buffer.contains(&row(&first[0]).as_ptr()));
        let second = receive(&mut inbox, &bytes[next..], usize::MAX);
        assert!(!buffer.contains(&row(&second[0]).as_ptr()));
        assert_eq!(first, second);
        assert_eq!(first, [write(1, 20_000)]);
    }

    #[test]
    fn a_small_row_is_copied() {
        let (mut inbox, mut bytes) = (Inbox::default(), Vec::new());
        frame::encode(&write(1, 1_000), &mut bytes).expect("fits");
        let written = receive(&mut inbox, &bytes, usize::MAX);
        assert!(inbox.lent.is_empty() && !inbox.bytes.as_ptr_range().contains(&row(&written[0]).as_ptr()));
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

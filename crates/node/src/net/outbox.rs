//! What waits to be written to one connection: frames coalesced into one buffer, some of them with an end to
//! their truth, and large entries between them as they are in memory.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use types::Micros;
use types::engine::LARGE_VALUE_BYTES;
use wire::request::{Body, Reply, Status};
use wire::{Message, frame};

/// A buffer that grew beyond this is given back once it is empty.
const KEEP_BYTES: usize = 1 << 20;
/// More than this unread by the other side, and the connection is dropped: the protocol recovers by sending
/// again.
pub const MAX_BYTES: usize = 64 << 20;
/// So many shared parts are in one write at most, each with what stands before it, and what follows the last.
const PARTS: usize = 8;

/// A reply that rests on a lease.
#[derive(Debug)]
struct Timed {
    start: usize,
    end: usize,
    until: Micros,
    /// What is said instead once the lease is over.
    instead: Reply,
}

/// The end of a frame that others have in memory, too.
#[derive(Debug)]
struct Part {
    /// What stands before it in the buffer ends here.
    behind: usize,
    /// It, but for what was written of it.
    rest: Bytes,
}

/// The buffer.
///
/// Invariant: no part lies behind a reply that rests on a lease, so that none moves when one is replaced.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Bytes that were written, of this buffer.
    from: usize,
    /// What is written between bytes of the buffer, in this order.
    parts: VecDeque<Part>,
    /// Bytes in them.
    shared: usize,
    /// In the order of their frames.
    timed: VecDeque<Timed>,
    /// The socket took no more; it will say when it does.
    blocked: bool,
    /// How often it was written to the socket, since it was last asked.
    writes: u64,
}

impl Outbox {
    /// One that waits for its socket to connect.
    pub fn blocked() -> Outbox {
        Outbox { blocked: true, ..Outbox::default() }
    }

    /// Adds a message. The error is a sentence: the message is over its cap.
    pub fn push(&mut self, message: &Message) -> Result<(), String> {
        let rest = frame::encode_begin(message, &mut self.bytes)?;
        if rest.len() < LARGE_VALUE_BYTES || !self.timed.is_empty() {
            self.bytes.extend_from_slice(&rest);
            return Ok(());
        }
        self.shared += rest.len();
        self.parts.push_back(Part { behind: self.bytes.len(), rest });
        Ok(())
    }

    /// Adds a reply that is given only while the clock has not reached `until` (F01).
    pub fn push_timed(&mut self, reply: Reply, until: Micros) -> Result<(), String> {
        let instead = instead_of(&reply);
        let start = self.bytes.len();
        self.push(&Message::Reply(reply))?;
        self.timed.push_back(Timed { start, end: self.bytes.len(), until, instead });
        Ok(())
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.from + self.shared
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The socket can be written to again.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    /// True if the socket took no more.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Writes as far as the socket takes it; says how many bytes it took. The clock is read right before each
    /// write, if anything rests on it.
    pub fn flush(&mut self, socket: &mut impl Write, clock: impl Fn() -> Micros) -> io::Result<u64> {
        let mut sent = 0;
        while !self.blocked && !self.is_empty() {
            if !self.timed.is_empty() {
                self.expire(clock());
            }
            self.writes += 1;
            match self.write(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.written(written);
                    sent += written as u64;
                    // A frame that was begun was true when it was handed over.
                    while self.timed.front().is_some_and(|timed| timed.start < self.from) {
                        self.timed.pop_front();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.tidy();
        Ok(sent)
    }

    /// How often it was written to the socket since the last call, also where the socket took nothing.
    pub fn take_writes(&mut self) -> u64 {
        std::mem::take(&mut self.writes)
    }

    /// Writes once, as much as goes into one call.
    fn write(&self, socket: &mut impl Write) -> io::Result<usize> {
        if self.parts.is_empty() {
            return socket.write(&self.bytes[self.from..]);
        }
        let mut slices = [IoSlice::new(&[]); 2 * PARTS + 1];
        let (mut from, mut count) = (self.from, 0);
        for part in self.parts.iter().take(PARTS) {
            slices[count] = IoSlice::new(&self.bytes[from..part.behind]);
            slices[count + 1] = IoSlice::new(&part.rest);
            (from, count) = (part.behind, count + 2);
        }
        let until = self.parts.get(PARTS).map_or(self.bytes.len(), |part| part.behind);
        slices[count] = IoSlice::new(&self.bytes[from..until]);
        socket.write_vectored(&slices[..=count])
    }

    /// Notes that so many bytes were written.
    fn written(&mut self, mut bytes: usize) {
        while let Some(part) = self.parts.front_mut() {
            let before = bytes.min(part.behind - self.from);
            self.from += before;
            let of_part = (bytes - before).min(part.rest.len());
            part.rest.advance(of_part);
            self.shared -= of_part;
            bytes -= before + of_part;
            if !part.rest.is_empty() {
                return;
            }
            self.parts.pop_front();
        }
        self.from += bytes;
    }

    /// Replaces the replies whose lease is over.
    fn expire(&mut self, now: Micros) {
        if self.timed.iter().all(|timed| now < timed.until) {
            return;
        }
        let old = std::mem::take(&mut self.bytes);
        let mut kept = 0;
        let mut still = VecDeque::new();
        for mut timed in std::mem::take(&mut self.timed) {
            self.bytes.extend_from_slice(&old[kept..timed.start]);
            kept = timed.end;
            if now < timed.until {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(&old[timed.start..timed.end]);
                (timed.start, timed.end) = (start, self.bytes.len());
                still.push_back(timed);
            } else {
                frame::encode(&Message::Reply(timed.instead), &mut self.bytes)
                    .expect("a short reply is below its cap");
            }
        }
        self.bytes.extend_from_slice(&old[kept..]);
        self.timed = still;
    }

    /// Gives written bytes back.
    fn tidy(&mut self) {
        if self.is_empty() {
            self.from = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEEP_BYTES);
        } else if self.from > KEEP_BYTES && self.from > self.bytes.len() / 2 {
            self.bytes.drain(..self.from);
            for timed in &mut self.timed {
                timed.start -= self.from;
                timed.end -= self.from;
            }
            for part in &mut self.parts {
                part.behind -= self.from;
            }
            self.from = 0;
        }
    }
}

/// "Not yet" for a read and for what was not decided, "unknown" for a write.
fn instead_of(reply: &Reply) -> Reply {
    let why = "this node's lease ended before the answer could leave";
    let decided = matches!(reply.status, Status::Ok | Status::Refused(_));
    let read = !decided || !matches!(reply.body, Body::Affected(_) | Body::None);
    Reply {
        id: reply.id,
        status: if read { Status::NotYet(why.into()) } else { Status::Unknown(why.into()) },
        lsn: reply.lsn,
        epoch: reply.epoch,
        policy: reply.policy,
        copies: 0,
        hint: None,
        body: Body::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Lsn, Member, PartitionId, Position};
    use wire::peer::Append;

    /// Takes so many bytes, then blocks.
    struct Socket {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let step = bytes.len().min(self.room);
            if step == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.room -= step;
            self.taken.extend_from_slice(&bytes[..step]);
            Ok(step)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.write(&bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn append(number: u64, bytes: usize) -> Message {
        Message::Append(Append {
            partition: PartitionId(64),
            epoch: Epoch(1),
            from: Member::default(),
            number,
            prev: Position::ZERO,
            prev_crc: 0,
            committed: Lsn::ZERO,
            secured: Lsn::ZERO,
            log_floor: Lsn::ZERO,
            sent_us: number,
            echo_us: 0,
            entries: Bytes::from(vec![number as u8; bytes]),
        })
    }

    fn reply(id: u64, body: Body) -> Reply {
        Reply { id, status: Status::Ok, lsn: Lsn(5), epoch: Epoch(2), policy: 1, copies: 2, hint: None, body }
    }

    fn messages(mut bytes: &[u8]) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some((Message::Reply(reply), taken)) = frame::decode(bytes).expect("good frames") {
            replies.push(reply);
            bytes = &bytes[taken..];
        }
        replies
    }

    #[test]
    fn f01_what_rests_on_a_lease_is_not_said_after_it() {
        let mut outbox = Outbox::default();
        outbox.push(&Message::Reply(reply(1, Body::Affected(1)))).expect("fits");
        outbox.push_timed(reply(2, Body::Row(None)), Micros(100)).expect("fits");
        outbox.push_timed(reply(3, Body::Row(None)), Micros(200)).expect("fits");
        outbox.push_timed(reply(4, Body::Affected(1)), Micros(100)).expect("fits");
        outbox.push(&Message::Reply(reply(5, Body::Affected(1)))).expect("fits");
        let mut socket = Socket { taken: Vec::new(), room: usize::MAX };
        outbox.flush(&mut socket, || Micros(100)).expect("writes");
        let said = messages(&socket.taken);
        assert_eq!(said.iter().map(|reply| reply.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert!(matches!(said[1].status, Status::NotYet(_)) && said[1].body == Body::None);
        assert_eq!(said[2], reply(3, Body::Row(None)));
        assert!(matches!(said[3].status, Status::Unknown(_)));
        assert_eq!((&said[0].status, &said[4].status), (&Status::Ok, &Status::Ok));
    }

    #[test]
    fn large_entries_go_out_in_their_place_whatever_the_socket_takes() {
        let sizes = [0, 20_000, 16_384, 16_383, 30_000].into_iter().cycle().zip(1..24);
        let messages: Vec<Message> = sizes.map(|(bytes, number)| append(number, bytes)).collect();
        let mut all = Vec::new();
        messages.iter().for_each(|message| frame::encode(message, &mut all).expect("fits"));
        for room in [997, 16_384, 100_000, usize::MAX] {
            let mut outbox = Outbox::default();
            messages.iter().for_each(|message| outbox.push(message).expect("fits"));
            assert!(outbox.parts.len() > PARTS && outbox.bytes.len() < all.len() / 2);
            let mut socket = Socket { taken: Vec::new(), room: 0 };
            while !outbox.is_empty() {
                assert_eq!(outbox.len(), all.len() - socket.taken.len());
                socket.room = room;
                outbox.unblock();
                outbox.flush(&mut socket, || Micros(1)).expect("writes");
            }
            assert!(socket.taken == all, "room for {room} bytes at once");
            assert!(outbox.parts.is_empty() && outbox.shared == 0 && outbox.from == 0);
        }
    }

    #[test]
    fn what_follows_a_reply_with_a_lease_is_copied() {
        let mut outbox = Outbox::default();
        outbox.push(&append(1, 20_000)).expect("fits");
        outbox.push_timed(reply(2, Body::Row(None)), Micros(100)).expect("fits");
        outbox.push(&append(3, 20_000)).expect("fits");
        assert_eq!(outbox.parts.len(), 1);
        let mut socket = Socket { taken: Vec::new(), room: usize::MAX };
        outbox.flush(&mut socket, || Micros(100)).expect("writes");
        let mut at = 0;
        let mut next = || {
            let (message, length) = frame::decode(&socket.taken[at..]).expect("good").expect("whole");
            at += length;
            message
        };
        assert_eq!(next(), append(1, 20_000));
        assert!(matches!(next(), Message::Reply(Reply { status: Status::NotYet(_), .. })));
        assert_eq!(next(), append(3, 20_000));
    }

    #[test]
    fn a_blocked_socket_changes_nothing_in_what_is_said() {
        for room in 0..400 {
            let mut outbox = Outbox::default();
            for id in 0..4 {
                outbox.push_timed(reply(id, Body::Row(None)), Micros(100)).expect("fits");
                outbox.push(&Message::Reply(reply(100 + id, Body::None))).expect("fits");
            }
            let mut socket = Socket { taken: Vec::new(), room };
            outbox.flush(&mut socket, || Micros(99)).expect("writes");
            assert_eq!(outbox.is_blocked(), !outbox.is_empty());
            let expected = if room > 0 && outbox.is_blocked() { 2 } else { 1 };
            assert_eq!((outbox.take_writes(), outbox.take_writes()), (expected, 0));
            socket.room = usize::MAX;
            outbox.unblock();
            outbox.flush(&mut socket, || Micros(101)).expect("writes");
            let said = messages(&socket.taken);
            assert_eq!(said.len(), 8, "room {room}");
            let good = said.iter().filter(|reply| reply.id < 100 && reply.status == Status::Ok).count();
            let begun = [0usize, 1, 2, 3].iter().filter(|n| room > **n * socket.taken.len() / 8 * 2).count();
            assert!(
                good <= 4 && (room == 0) == (good == 0) && good <= begun + 1,
                "room {room}: {good} of {begun}"
            );
        }
    }

    #[test]
    fn a_long_buffer_is_given_back_as_it_is_written() {
        let mut outbox = Outbox::default();
        let row = bytes::Bytes::from(vec![7u8; 1 << 20]);
        for id in 0..6 {
            outbox.push_timed(reply(id, Body::Row(Some((Lsn(1), row.clone())))), Micros(9)).expect("fits");
        }
        let total = outbox.len();
        let mut socket = Socket { taken: Vec::new(), room: 4 << 20 };
        outbox.flush(&mut socket, || Micros(1)).expect("writes");
        assert!(outbox.from == 0 && outbox.len() == total - (4 << 20));
        socket.room = usize::MAX;
        outbox.unblock();
        outbox.flush(&mut socket, || Micros(10)).expect("writes");
        let said = messages(&socket.taken);
        assert_eq!(said.iter().filter(|reply| reply.status == Status::Ok).count(), 4, "the fourth was begun");
        assert_eq!(said.len(), 6);
    }
}

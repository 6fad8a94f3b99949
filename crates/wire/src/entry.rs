//! The entry: one operation in a partition's log, the same bytes on every copy (design section 5, step 4).
//!
//! All integers are little-endian. The header is [`HEADER_BYTES`] long:
//!
//! ```text
//!  0 format u8 | 1 kind u8 | 2 flags u16 | 4 payload length u32 | 8 partition u32 | 12 table u32
//! 16 epoch u64 | 24 LSN u64 | 32 wall clock, ms since 1970, u64
//! 40 session epoch u64 | 48 session LSN u64 | 56 sequence u64
//! 64 schema version u32 | 68 checksum of the partition's previous entry u32
//! 72 unit u64 | 80 commit timestamp u64, or 0 | 88 checksum u32 (CRC-32C of bytes 0..88 and the payload)
//! ```
//!
//! Behind the payload of a `Call` stands what it has come to: `length u32`, 0 if it is not there, then
//! [`crate::effects`]. The checksum does not cover it: whether it travels and lies with the entry differs
//! from copy to copy, and the entry is the same (PR-240). The payload covers it by a digest
//! ([`crate::call_entry`]).
//!
//! The checksum of the previous entry chains a partition's entries: two logs with an equal last entry are
//! equal below it (R3).

use crate::call_entry::{CallMark, digest_fits};
use crate::effects::Effects;
use bytes::{BufMut, Bytes, BytesMut};
use types::commits::newest_flush_key;
use types::{Lsn, PartitionId, Position, SessionId, TableId, Term};

/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 92;
/// The longest payload, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 16 * 1024 * 1024;
/// The format number that this version writes and reads.
pub const FORMAT: u8 = 1;

const CRC_AT: usize = 88;

/// What an entry is. Numbers are never reused; an unknown one stops the replica.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Effects on rows: [`crate::effects`].
    Rows = 1,
    /// A procedure is called: [`crate::call_entry`]. What it comes to stands beside it, or is found out.
    Call = 2,
    /// A SQL statement. Reserved.
    Sql = 3,
    /// The policy changes here (PR-24).
    Policy = 4,
    /// A primary begins its epoch: the marker of R6.
    Configuration = 5,
    /// An index begins, is built, is ready or goes: [`crate::effects`] on definitions and index rows.
    Schema = 6,
    /// A bulk load becomes part of the state here: [`crate::bulk::LoadMark`].
    Bulk = 7,
    /// The primary rotates its memory component here. Reserved.
    Flush = 8,
    /// A version was installed. Reserved.
    Version = 9,
    /// A unit of work begins. Reserved.
    UnitBegin = 10,
    /// A unit of work is decided. Reserved.
    UnitCommit = 11,
    /// A unit of work is taken back. Reserved.
    UnitAbort = 12,
    /// A session opens: its id is this entry's position (N13).
    SessionOpen = 13,
    /// Sessions expire: the payload names the horizon below which they are forgotten.
    SessionExpire = 14,
    /// The state's digest at this position, to be compared. Reserved.
    Digest = 15,
    /// Nothing.
    Noop = 16,
}

impl Kind {
    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Kind> {
        use Kind::*;
        [
            Rows,
            Call,
            Sql,
            Policy,
            Configuration,
            Schema,
            Bulk,
            Flush,
            Version,
            UnitBegin,
            UnitCommit,
            UnitAbort,
            SessionOpen,
            SessionExpire,
            Digest,
            Noop,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }
}

/// Why bytes are not an entry.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EntryError {
    /// Fewer bytes than the header or the length it names.
    #[error("an entry is cut short: {have} bytes of {need}")]
    Short {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Written by a newer version.
    #[error("an entry has format {0}, this version reads {FORMAT}")]
    Format(u8),
    /// Reserved or newer.
    #[error("an entry has the unknown kind {0}")]
    Kind(u8),
    /// A length beyond the cap.
    #[error("an entry of {0} payload bytes is over the limit of {MAX_PAYLOAD_BYTES}")]
    TooLong(usize),
    /// What stands beside a call is not what it came to.
    #[error("what stands beside a call is not what it came to")]
    Beside,
    /// The bytes were changed.
    #[error("an entry's checksum is {found:08x}, its bytes give {computed:08x}")]
    Checksum {
        /// As written.
        found: u32,
        /// As computed.
        computed: u32,
    },
}

/// An entry's header, without its length and checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Reserved; zero.
    pub flags: u16,
    /// Whose log.
    pub partition: PartitionId,
    /// The epoch in which it was made and its LSN.
    pub at: Position,
    /// When the primary made it, milliseconds since 1970; for people and for ages, never for order.
    pub wall_ms: u64,
    /// The session that asked for it, or [`SessionId::NONE`].
    pub session: SessionId,
    /// Its number within that session.
    pub seq: u64,
    /// The table.
    pub table: TableId,
    /// The schema version of the rows in it.
    pub schema: u32,
    /// The unit of work it belongs to, or 0.
    pub unit: u64,
    /// The commit timestamp of a global transaction, or 0.
    pub commit_ts: u64,
    /// The checksum of the partition's previous entry; 0 for the first.
    pub prev_crc: u32,
}

impl Header {
    /// A header of this kind with everything optional left at zero.
    pub fn new(kind: Kind, partition: PartitionId, at: Position, prev_crc: u32) -> Header {
        Header {
            kind,
            flags: 0,
            partition,
            at,
            wall_ms: 0,
            session: SessionId::NONE,
            seq: 0,
            table: TableId(0),
            schema: 0,
            unit: 0,
            commit_ts: 0,
            prev_crc,
        }
    }
}

/// An encoded entry whose checksum has been verified or was computed here. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    header: Header,
    bytes: Bytes,
    /// Where the payload ends.
    end: usize,
    crc: u32,
}

/// What a call came to begins so many bytes behind its payload.
const BESIDE: usize = 4;

impl Entry {
    /// Encodes an entry. Panics if the payload is over [`MAX_PAYLOAD_BYTES`]: callers check requests at the
    /// door.
    pub fn encode(header: Header, payload: &[u8]) -> Entry {
        Entry::encode_beside(header, payload, &[])
    }

    /// A call that came to these effects, as they are encoded. Panics like [`Entry::encode`].
    pub fn encode_call(header: Header, mark: &CallMark, effects: &[u8]) -> Entry {
        assert!(header.kind == Kind::Call, "PR-240: effects stand beside calls alone");
        Entry::encode_beside(header, &mark.encode(effects), effects)
    }

    /// A write's entry, or another one with effects for its payload: they are encoded in their place. Panics
    /// like [`Entry::encode`].
    pub fn encode_effects(header: Header, effects: &Effects) -> Entry {
        let length = Effects::encoded_len(&effects.mutations);
        Entry::encode_with(header, length, &[], |out| effects.put(out))
    }

    /// With effects beside it, or nothing.
    fn encode_beside(header: Header, payload: &[u8], effects: &[u8]) -> Entry {
        Entry::encode_with(header, payload.len(), effects, |out| out.put_slice(payload))
    }

    /// With a payload of this length, in bytes, which `put` appends, and with effects beside it, or nothing.
    fn encode_with(header: Header, length: usize, effects: &[u8], put: impl FnOnce(&mut BytesMut)) -> Entry {
        let longest = length.max(effects.len());
        assert!(longest <= MAX_PAYLOAD_BYTES, "payload of {longest} bytes");
        let end = HEADER_BYTES + length;
        let beside = if header.kind == Kind::Call { BESIDE + effects.len() } else { 0 };
        let mut out = BytesMut::with_capacity(end + beside);
        out.put_u8(FORMAT);
        out.put_u8(header.kind as u8);
        out.put_u16_le(header.flags);
        out.put_u32_le(length as u32);
        out.put_u32_le(header.partition.0);
        out.put_u32_le(header.table.0);
        out.put_u64_le(header.at.term.0);
        out.put_u64_le(header.at.lsn.0);
        out.put_u64_le(header.wall_ms);
        out.put_u64_le(header.session.0.term.0);
        out.put_u64_le(header.session.0.lsn.0);
        out.put_u64_le(header.seq);
        out.put_u32_le(header.schema);
        out.put_u32_le(header.prev_crc);
        out.put_u64_le(header.unit);
        out.put_u64_le(header.commit_ts);
        debug_assert_eq!(out.len(), CRC_AT);
        let before = crc32c::crc32c(&out);
        // The checksum's place.
        out.put_u32_le(0);
        put(&mut out);
        assert_eq!(out.len(), end, "a payload is as long as it was said to be");
        let crc = crc32c::crc32c_append(before, &out[HEADER_BYTES..]);
        out[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        put_beside(&mut out, header.kind, effects);
        Entry { header, bytes: out.freeze(), end, crc }
    }

    /// A call, with these effects beside it, as they are encoded: those that it [came to](Entry::came_to).
    pub fn with_effects(&self, effects: &[u8]) -> Entry {
        assert!(self.header.kind == Kind::Call, "PR-240: effects stand beside calls alone");
        Entry::encode_beside(self.header.clone(), &self.payload(), effects)
    }

    /// True if these are the effects, as they are encoded, that this call came to at its primary (F21).
    pub fn came_to(&self, effects: &[u8]) -> bool {
        digest_fits(&self.payload(), effects)
    }

    /// True for a call without what it came to: who takes it in makes it.
    pub fn is_call_alone(&self) -> bool {
        self.header.kind == Kind::Call && self.bytes.len() == self.end + BESIDE
    }

    /// Appends the entry as it goes to who makes calls itself: without what stands beside it.
    pub fn put_alone(&self, out: &mut BytesMut) {
        out.put_slice(&self.bytes[..self.end]);
        put_beside(out, self.header.kind, &[]);
    }

    /// What a write or a call changes ([`crate::effects`]), if it is here. None for other kinds.
    pub fn effects(&self) -> Option<Bytes> {
        match self.header.kind {
            Kind::Rows => Some(self.payload()),
            Kind::Call => Some(self.bytes.slice(self.end + BESIDE..)).filter(|effects| !effects.is_empty()),
            _ => None,
        }
    }

    /// True if it is a commit's part in a partition ([`crate::Flush`]): nothing else says which one is the
    /// newest.
    pub fn is_flush(&self) -> bool {
        let effects = self.effects().and_then(|effects| Effects::decode(effects).ok());
        effects.is_some_and(|effects| effects.mutations.iter().any(|one| one.key == newest_flush_key()))
    }

    /// Takes the first entry off `bytes`, checked. `bytes` keeps what follows it; on an error it is
    /// unchanged.
    pub fn take(bytes: &mut Bytes) -> Result<Entry, EntryError> {
        let length = Entry::length(bytes)?;
        if bytes.len() < length {
            return Err(EntryError::Short { have: bytes.len(), need: length });
        }
        let entry = Entry::decode(bytes.slice(..length))?;
        let _ = bytes.split_to(length);
        Ok(entry)
    }

    /// Every entry of a run of entries, all checked.
    pub fn all(mut bytes: Bytes) -> Result<Vec<Entry>, EntryError> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            entries.push(Entry::take(&mut bytes)?);
        }
        Ok(entries)
    }

    /// The whole length in bytes that the entry at the start of `bytes` claims. Needs its header only; of a
    /// call also what says how much stands beside it.
    pub fn length(bytes: &[u8]) -> Result<usize, EntryError> {
        if bytes.len() < HEADER_BYTES {
            return Err(EntryError::Short { have: bytes.len(), need: HEADER_BYTES });
        }
        if bytes[0] != FORMAT {
            return Err(EntryError::Format(bytes[0]));
        }
        let payload = read_u32(bytes, 4) as usize;
        if payload > MAX_PAYLOAD_BYTES {
            return Err(EntryError::TooLong(payload));
        }
        let end = HEADER_BYTES + payload;
        if bytes[1] != Kind::Call as u8 {
            return Ok(end);
        }
        if bytes.len() < end + BESIDE {
            return Err(EntryError::Short { have: bytes.len(), need: end + BESIDE });
        }
        let beside = read_u32(bytes, end) as usize;
        match beside > MAX_PAYLOAD_BYTES {
            true => Err(EntryError::TooLong(beside)),
            false => Ok(end + BESIDE + beside),
        }
    }

    /// Decodes exactly one entry and checks its checksum.
    pub fn decode(bytes: Bytes) -> Result<Entry, EntryError> {
        let length = Entry::length(&bytes)?;
        if bytes.len() != length {
            return Err(EntryError::Short { have: bytes.len(), need: length });
        }
        let found = read_u32(&bytes, CRC_AT);
        let end = HEADER_BYTES + read_u32(&bytes, 4) as usize;
        let computed = crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_AT]), &bytes[HEADER_BYTES..end]);
        if found != computed {
            return Err(EntryError::Checksum { found, computed });
        }
        let kind = Kind::from_number(bytes[1]).ok_or(EntryError::Kind(bytes[1]))?;
        let header = Header {
            kind,
            flags: u16::from_le_bytes([bytes[2], bytes[3]]),
            partition: PartitionId(read_u32(&bytes, 8)),
            table: TableId(read_u32(&bytes, 12)),
            at: Position::new(Term(read_u64(&bytes, 16)), Lsn(read_u64(&bytes, 24))),
            wall_ms: read_u64(&bytes, 32),
            session: SessionId(Position::new(Term(read_u64(&bytes, 40)), Lsn(read_u64(&bytes, 48)))),
            seq: read_u64(&bytes, 56),
            schema: read_u32(&bytes, 64),
            prev_crc: read_u32(&bytes, 68),
            unit: read_u64(&bytes, 72),
            commit_ts: read_u64(&bytes, 80),
        };
        let entry = Entry { header, crc: found, end, bytes };
        let beside = entry.effects().filter(|_| kind == Kind::Call);
        match beside.is_some_and(|effects| !entry.came_to(&effects)) {
            true => Err(EntryError::Beside),
            false => Ok(entry),
        }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Term and LSN.
    pub fn at(&self) -> Position {
        self.header.at
    }

    /// The LSN.
    pub fn lsn(&self) -> Lsn {
        self.header.at.lsn
    }

    /// This entry's checksum: the next entry's `prev_crc`.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// What follows the header, without what stands beside it. Shares the entry's memory.
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(HEADER_BYTES..self.end)
    }

    /// The whole entry as it is logged and sent, with what stands beside it.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// Behind a call stands how long its effects are, and they.
fn put_beside(out: &mut BytesMut, kind: Kind, effects: &[u8]) {
    if kind == Kind::Call {
        out.put_u32_le(effects.len() as u32);
        out.put_slice(effects);
    }
}

/// Reads a little-endian `u32` at `at`. Panics if it is not there: callers have checked the length.
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Reads a little-endian `u64` at `at`. Panics if it is not there: callers have checked the length.
fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(payload: &[u8]) -> Entry {
        let at = Position::new(Term(3), Lsn(101));
        let mut header = Header::new(Kind::Rows, PartitionId(64), at, 0xdead_beef);
        header.session = SessionId(Position::new(Term(2), Lsn(9)));
        header.seq = 7;
        header.wall_ms = 1_700_000_000_000;
        Entry::encode(header, payload)
    }

    #[test]
    fn an_entry_reads_back_as_it_was_written() {
        let entry = sample(b"payload");
        let again = Entry::decode(entry.bytes().clone()).expect("decodes");
        assert_eq!(again, entry);
        assert_eq!(&again.payload()[..], b"payload");
    }

    #[test]
    fn effects_in_their_place_are_the_same_entry() {
        let value = Some(Bytes::from_static(b"value"));
        let mutations = vec![types::Mutation { key: Bytes::from_static(b"key"), value }];
        let effects = Effects { request_hash: 1, confirmed: 2, outcome: 3, affected: 4, mutations };
        let header = sample(b"").header().clone();
        let entry = Entry::encode_effects(header.clone(), &effects);
        assert_eq!(entry, Entry::encode(header, &effects.encode()));
        assert_eq!(Entry::decode(entry.bytes().clone()).expect("decodes"), entry);
    }

    #[test]
    fn a_run_of_entries_is_taken_apart() {
        let (a, b) = (sample(b""), sample(b"xyz"));
        let mut run = a.bytes().to_vec();
        run.extend_from_slice(b.bytes());
        assert_eq!(Entry::all(Bytes::from(run)).expect("decodes"), vec![a, b]);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = sample(b"some payload").bytes().to_vec();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Entry::decode(Bytes::from(bad)).is_err(), "bit {bit} of byte {at}");
            }
            assert!(Entry::decode(Bytes::copy_from_slice(&good[..at])).is_err(), "cut at {at}");
        }
    }

    /// A call, and what it came to.
    fn call() -> (Entry, &'static [u8]) {
        let effects = b"what it came to";
        let header = Header { kind: Kind::Call, ..sample(b"").header().clone() };
        let payload = [&crate::call_entry::digest(effects).to_le_bytes()[..], b"the call"].concat();
        (Entry::encode(header, &payload), effects)
    }

    #[test]
    fn pr240_a_call_is_the_same_entry_with_its_effects_and_without() {
        let (alone, effects) = call();
        let whole = alone.with_effects(effects);
        assert!(alone.is_call_alone() && !whole.is_call_alone() && !sample(b"").is_call_alone());
        assert_eq!((alone.effects(), whole.effects()), (None, Some(Bytes::from_static(effects))));
        assert_eq!((whole.crc(), whole.payload(), whole.at()), (alone.crc(), alone.payload(), alone.at()));
        assert!(alone.came_to(effects) && !alone.came_to(b"something else") && !alone.came_to(b""));
        let other = alone.with_effects(b"something else").bytes().clone();
        assert_eq!(Entry::decode(other), Err(EntryError::Beside));
        let mut sent = BytesMut::new();
        whole.put_alone(&mut sent);
        assert_eq!(&sent[..], &alone.bytes()[..]);
        let run = [&sent[..], whole.bytes(), sample(b"rows").bytes()].concat();
        assert_eq!(Entry::all(run.into()).expect("decodes"), vec![alone, whole, sample(b"rows")]);
    }

    #[test]
    fn pr240_what_stands_beside_a_call_is_as_safe_as_the_rest() {
        let (alone, effects) = call();
        let good = alone.with_effects(effects).bytes().to_vec();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Entry::decode(Bytes::from(bad)).is_err(), "byte {at}");
            assert!(Entry::decode(Bytes::copy_from_slice(&good[..at])).is_err(), "cut at {at}");
        }
    }
}

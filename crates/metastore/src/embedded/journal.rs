//! The journal's bytes.
//!
//! A header of eight bytes, then records. Each record: four bytes that mark a beginning, the length of its
//! body (u32), a CRC-32C over length and body, the body (postcard). All integers little-endian. A journal
//! begins with a record of everything, and goes on with one record per transaction. Behind each stands a
//! small record that says "synced up to here".
//!
//! What cannot be read at the end, with nothing readable behind it, was being written when the power failed:
//! nobody was told of it. If something readable follows, it had been synced, and its damage is reported
//! (F10).

use crate::table::Table;
use crate::txn::RecordsSnapshot;
use serde::{Deserialize, Serialize};
use types::txn::Entry;

const HEADER: &[u8; 8] = b"USMETA\x01\n";
const BEGIN: [u8; 4] = *b"\xb5rec";
const FRAME: usize = 12;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// Everything as of a revision.
    Base {
        /// The revision.
        revision: u64,
        /// Key, revision that wrote it, value.
        keys: Vec<(String, u64, Vec<u8>)>,
    },
    /// One transaction that was applied.
    Txn {
        /// Its revision.
        revision: u64,
        /// Keys written.
        puts: Vec<(String, Vec<u8>)>,
        /// Keys removed.
        deletes: Vec<String>,
    },
    /// Every byte before this record was durable when it was written.
    Synced {
        /// The last revision.
        revision: u64,
    },
}

impl Record {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("records have only plain fields");
        let length = (body.len() as u32).to_le_bytes();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&length), &body).to_le_bytes();
        let mut bytes = Vec::with_capacity(FRAME + body.len());
        for part in [&BEGIN[..], &length, &crc, &body] {
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// The record that begins here, with its length; none if no whole and sound record does.
    fn decode(bytes: &[u8]) -> Option<(Record, usize)> {
        let frame = bytes.get(..FRAME)?;
        if frame[..4] != BEGIN {
            return None;
        }
        let length = &frame[4..8];
        let end = FRAME.checked_add(u32::from_le_bytes(length.try_into().ok()?) as usize)?;
        let body = bytes.get(FRAME..end)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c(length), body);
        if crc.to_le_bytes() != frame[8..12] {
            return None;
        }
        postcard::from_bytes(body).ok().map(|record| (record, end))
    }
}

/// What a journal holds.
#[derive(Debug)]
pub struct Replayed {
    /// The keys.
    pub table: Table,
    /// True if its end was torn: the journal must be rewritten before it is used.
    pub torn: bool,
}

/// A journal that holds this table and nothing else.
pub fn fresh(table: &Table) -> Vec<u8> {
    let snapshot = table.snapshot("");
    let keys = snapshot.entries.into_iter().map(|entry| (entry.key, entry.revision, entry.value)).collect();
    let mut bytes = HEADER.to_vec();
    bytes.extend(Record::Base { revision: snapshot.revision, keys }.encode());
    bytes.extend(Record::Synced { revision: snapshot.revision }.encode());
    bytes
}

/// Reads a journal. The error is a sentence about what is damaged.
pub fn replay(bytes: &[u8]) -> Result<Replayed, String> {
    let Some(mut rest) = bytes.strip_prefix(HEADER) else {
        return Err("the journal does not begin with its header".into());
    };
    // A journal comes into being by an atomic replacement, so its first record is never torn.
    let Some((Record::Base { revision, keys }, used)) = Record::decode(rest) else {
        return Err("the journal's first record is damaged".into());
    };
    let entries = keys.into_iter().map(|(key, revision, value)| Entry { key, revision, value }).collect();
    let mut table = Table::restore(RecordsSnapshot { revision, entries });
    rest = &rest[used..];
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let Some((record, used)) = Record::decode(rest) else {
            return match follows(&rest[1..]) {
                true => Err(format!("the record at byte {at} is damaged, and sound ones follow it")),
                false => Ok(Replayed { table, torn: true }),
            };
        };
        apply(&mut table, record).map_err(|why| format!("the record at byte {at} {why}"))?;
        rest = &rest[used..];
    }
    Ok(Replayed { table, torn: false })
}

/// True if a sound record begins anywhere in `bytes`.
fn follows(bytes: &[u8]) -> bool {
    (0..bytes.len().saturating_sub(FRAME - 1))
        .any(|at| bytes[at..].starts_with(&BEGIN) && Record::decode(&bytes[at..]).is_some())
}

fn apply(table: &mut Table, record: Record) -> Result<(), String> {
    match record {
        Record::Txn { revision, puts, deletes } if revision == table.revision() + 1 => {
            table.write(&puts, &deletes);
            Ok(())
        }
        Record::Txn { revision, .. } => Err(format!("has revision {revision} after {}", table.revision())),
        Record::Synced { revision } if revision == table.revision() => Ok(()),
        Record::Synced { revision } => Err(format!("says {revision} is synced after {}", table.revision())),
        Record::Base { .. } => Err("begins another journal".into()),
    }
}

//! Before an append: every record is checked against what the log holds, and the positions it needs are
//! looked up.

use crate::reader::{ReadError, Reader};
use crate::record::{EntryRef, Stored};
use std::collections::BTreeMap;
use types::{Lsn, PartitionId, Position};
use wire::entry::Entry;
use wire::log::Record;

/// Why records cannot be appended.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// They do not continue their partition's log. From our own code that is a bug.
    Misuse(String),
    /// An entry could not be looked up.
    Read(ReadError),
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Refusal {
        Refusal::Read(error)
    }
}

/// A partition as it will be after the records before.
struct Tip {
    base: EntryRef,
    /// Entries up to here are not in the segments, if they are anywhere.
    here: Lsn,
    end: EntryRef,
    /// What these records appended; the rest is in the log up to `logged`.
    fresh: Vec<EntryRef>,
    logged: Lsn,
}

/// Turns records into what is written, or says why not. Changes nothing.
pub(crate) fn resolve(reader: &Reader, records: &[Record]) -> Result<Vec<Stored>, Refusal> {
    let mut tips = BTreeMap::new();
    let mut stored = Vec::with_capacity(records.len());
    for record in records {
        let id = record.partition();
        let tip = tips.entry(id).or_insert_with(|| Tip::of(reader, id));
        stored.push(match record {
            Record::Entry(entry) => {
                tip.append(id, entry)?;
                Stored::Entry(entry.clone())
            }
            Record::Truncate { to, .. } => {
                let point = tip.truncate(reader, id, *to)?;
                // What is left lies in a file of its own, which goes on before that.
                if point.lsn() < tip.here { Stored::Base(id, point) } else { Stored::Truncate(id, point) }
            }
            Record::Base { at, crc, .. } => {
                let point = EntryRef::new(*at, *crc);
                *tip = Tip { base: point, here: at.lsn, end: point, fresh: Vec::new(), logged: at.lsn };
                Stored::Base(id, point)
            }
            Record::Trim { below, .. } => Stored::Trim(id, tip.trim(reader, id, *below)?),
            Record::Promise { epoch, .. } => Stored::Promise(id, *epoch),
            Record::Custom { key, value, .. } => Stored::Custom(id, *key, value.clone()),
            Record::Forget { .. } => {
                *tip = Tip {
                    base: EntryRef::default(),
                    here: Lsn::ZERO,
                    end: EntryRef::default(),
                    fresh: Vec::new(),
                    logged: Lsn::ZERO,
                };
                Stored::Forget(id)
            }
            Record::Repaired { .. } => Stored::Repaired(id),
        });
    }
    Ok(stored)
}

impl Tip {
    fn of(reader: &Reader, id: PartitionId) -> Tip {
        let index = reader.shared.look();
        let known = index.partitions.get(&id);
        let points = known.map(|known| (known.first(), known.base.lsn(), known.end));
        let (base, here, end) = points.unwrap_or_default();
        Tip { base, here, end, fresh: Vec::new(), logged: end.lsn() }
    }

    fn append(&mut self, id: PartitionId, entry: &Entry) -> Result<(), Refusal> {
        let at = entry.at();
        if at.lsn != self.end.lsn().next()
            || entry.header().prev_crc != self.end.crc
            || at.term < self.end.at.term
        {
            let end = self.end.at;
            return Err(Refusal::Misuse(format!(
                "entry {at} does not continue the log of {id}, which ends at {end}"
            )));
        }
        self.end = EntryRef::new(at, entry.crc());
        self.fresh.push(self.end);
        Ok(())
    }

    fn truncate(&mut self, reader: &Reader, id: PartitionId, to: Position) -> Result<EntryRef, Refusal> {
        let point = self.find(reader, id, to.lsn)?;
        if point.at != to {
            return Err(Refusal::Misuse(format!(
                "a cut of {id} to {to}, but the log has {} there",
                point.at
            )));
        }
        self.end = point;
        self.logged = self.logged.min(to.lsn);
        self.fresh.retain(|fresh| fresh.lsn() <= to.lsn);
        Ok(point)
    }

    fn trim(&mut self, reader: &Reader, id: PartitionId, below: Lsn) -> Result<EntryRef, Refusal> {
        if below <= self.base.lsn().next() {
            return Ok(self.base);
        }
        self.base = self.find(reader, id, below.prev())?;
        Ok(self.base)
    }

    /// The point of `lsn`, which must lie between base and end.
    fn find(&self, reader: &Reader, id: PartitionId, lsn: Lsn) -> Result<EntryRef, Refusal> {
        if let Some(point) = [self.end, self.base].into_iter().find(|point| point.lsn() == lsn) {
            return Ok(point);
        }
        if lsn < self.base.lsn() || lsn > self.end.lsn() {
            let (base, end) = (self.base.at, self.end.at);
            return Err(Refusal::Misuse(format!("{id} has LSNs above {base} up to {end}, not {lsn}")));
        }
        if lsn > self.logged {
            let first = self.fresh[0].lsn();
            return Ok(self.fresh[(lsn.0 - first.0) as usize]);
        }
        Ok(reader.point_of(id, lsn)?)
    }
}

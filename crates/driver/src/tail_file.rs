//! The file of a divergent tail that was set aside (R9): its name, its bytes, and whether the very same tail
//! has one already.
//!
//! A file is `UTAIL001 | length u32 | JSON of a TailReport | CRC-32C of the JSON u32 | the entries verbatim`,
//! integers little-endian. Entries carry their own checksums.
//!
//! What the log did not have any more is set aside as rows of the engine: `UTAIL002`, and in place of the
//! entries, in the order of keys, `length of the key u32 | length of the value u32 | LSN u64 | key | value |
//! CRC-32C of all these u32`. The length of a value is 4,294,967,295 where the entry deleted the row. Keys
//! have their space in front, values are as they are stored.

use bytes::{Buf, BufMut, Bytes};
use types::Lsn;
use types::config::TailReport;
use types::engine::Version;
use wire::Entry;

const ENTRIES: &[u8; 8] = b"UTAIL001";
const ROWS: &[u8; 8] = b"UTAIL002";
/// The length of a value that is none.
const DELETED: u32 = u32::MAX;
/// What names of tails' files end with.
pub const SUFFIX: &str = ".tail";

/// What is in a tail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Entries of the log, oldest first.
    Entries(Vec<Entry>),
    /// What the engine had left of entries that the log did not have any more, in the order of keys.
    Rows(Vec<Version>),
}

/// What is in a file whose head is sound; the rest of it is not looked at yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TailFile {
    /// What it says of itself.
    pub report: TailReport,
    content: Bytes,
}

/// What is to become of a tail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// It is in this file already: the same tail comes twice after a crash between its file and the cut.
    Known(TailReport),
    /// These bytes are to be written to the file that the report names.
    New(TailReport, Vec<u8>),
}

/// Finds the place of a tail: a file of its own, by a name that no other tail has. `look` gives the bytes of
/// a file, or as many as can be read, and none if there is no such file. Its error, that this cannot be told,
/// is passed on: every further name would meet with the same.
pub fn place<E>(
    mut report: TailReport,
    entries: &[Entry],
    rows: &[Version],
    mut look: impl FnMut(&str) -> Result<Option<Bytes>, E>,
) -> Result<Place, E> {
    let mut content = Vec::new();
    entries.iter().for_each(|entry| content.extend_from_slice(entry.bytes()));
    rows.iter().for_each(|row| push_row(&mut content, row));
    let stem = format!("{}-{}-{}-{}", report.partition.0, report.term.0, report.from, report.to);
    for n in 0u64.. {
        let name = if n == 0 { format!("{stem}{SUFFIX}") } else { format!("{stem}.{n}{SUFFIX}") };
        match look(&name)?.map(TailFile::decode) {
            Some(Some(known)) if known.content == content => return Ok(Place::Known(known.report)),
            // Another tail, or one that is not whole.
            Some(_) => {}
            None => {
                report.file = name;
                break;
            }
        }
    }
    let bytes = encode(&report, &content);
    Ok(Place::New(report, bytes))
}

fn encode(report: &TailReport, content: &[u8]) -> Vec<u8> {
    let text = serde_json::to_vec(report).expect("a report has only text keys");
    let mut bytes = Vec::with_capacity(16 + text.len() + content.len());
    bytes.extend_from_slice(if report.rows.is_some() { ROWS } else { ENTRIES });
    bytes.put_u32_le(text.len() as u32);
    bytes.extend_from_slice(&text);
    bytes.put_u32_le(crc32c::crc32c(&text));
    bytes.extend_from_slice(content);
    bytes
}

impl TailFile {
    /// Reads the head of a file. None if it is not that of a tail, or not whole.
    pub fn decode(bytes: Bytes) -> Option<TailFile> {
        let rows = match bytes.first_chunk::<8>()? {
            ENTRIES => false,
            ROWS => true,
            _ => return None,
        };
        let length = bytes.get(8..12)?.get_u32_le() as usize;
        let text = bytes.get(12..12 + length)?;
        let crc = bytes.get(12 + length..16 + length)?;
        if crc32c::crc32c(text).to_le_bytes() != *crc {
            return None;
        }
        let report: TailReport = serde_json::from_slice(text).ok()?;
        (report.rows.is_some() == rows).then(|| TailFile { report, content: bytes.slice(16 + length..) })
    }

    /// What is in it, all checked. The error says what is wrong.
    pub fn content(&self) -> Result<Content, String> {
        if let Some(count) = self.report.rows {
            let rows = rows_of(self.content.clone()).filter(|rows| rows.len() as u64 == count);
            return rows.map(Content::Rows).ok_or_else(|| "rows are missing or damaged".into());
        }
        let entries = Entry::all(self.content.clone()).map_err(|error| error.to_string())?;
        let range = (entries.first().map(Entry::lsn), entries.last().map(Entry::lsn));
        match range == (Some(self.report.from), Some(self.report.to)) {
            true => Ok(Content::Entries(entries)),
            false => Err("entries are missing".into()),
        }
    }
}

fn push_row(out: &mut Vec<u8>, row: &Version) {
    let begin = out.len();
    out.put_u32_le(row.key.len() as u32);
    out.put_u32_le(row.value.as_ref().map_or(DELETED, |value| value.len() as u32));
    out.put_u64_le(row.lsn.0);
    out.extend_from_slice(&row.key);
    out.extend_from_slice(row.value.as_deref().unwrap_or_default());
    out.put_u32_le(crc32c::crc32c(&out[begin..]));
}

/// None if they are not whole.
fn rows_of(mut bytes: Bytes) -> Option<Vec<Version>> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let mut head = bytes.get(..16)?;
        let (key, value, lsn) = (head.get_u32_le() as usize, head.get_u32_le(), Lsn(head.get_u64_le()));
        let values = if value == DELETED { 0 } else { value as usize };
        let length = 16usize.checked_add(key)?.checked_add(values)?;
        let crc = bytes.get(length..length.checked_add(4)?)?;
        if crc32c::crc32c(&bytes[..length]).to_le_bytes() != *crc {
            return None;
        }
        let value = (value != DELETED).then(|| bytes.slice(16 + key..length));
        rows.push(Version { key: bytes.slice(16..16 + key), lsn, value });
        bytes.advance(length + 4);
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use types::{NodeId, PartitionId, Position, Term};
    use wire::{Header, Kind};

    fn sample() -> (TailReport, Vec<Entry>) {
        let at = |lsn| Position::new(Term(2), Lsn(lsn));
        let first = Entry::encode(Header::new(Kind::Noop, PartitionId(64), at(11), 9), b"a");
        let second = Entry::encode(Header::new(Kind::Noop, PartitionId(64), at(12), first.crc()), b"bc");
        let report = TailReport {
            partition: PartitionId(64),
            node: NodeId(1),
            file: String::new(),
            term: Term(2),
            from: Lsn(11),
            to: Lsn(12),
            commits: 2,
            surely_acknowledged: 1,
            sessions: 1,
            rows: None,
        };
        (report, vec![first, second])
    }

    fn row(key: &'static str, lsn: u64, value: Option<&'static str>) -> Version {
        Version { key: key.into(), lsn: Lsn(lsn), value: value.map(Bytes::from) }
    }

    /// Files by name.
    type Files = BTreeMap<String, Bytes>;

    fn put(files: &mut Files, report: &TailReport, entries: &[Entry], rows: &[Version]) -> String {
        let look = |name: &str| Ok::<_, ()>(files.get(name).cloned());
        match place(report.clone(), entries, rows, look).expect("every file can be looked at") {
            Place::Known(known) => format!("known as {}", known.file),
            Place::New(report, bytes) => {
                files.insert(report.file.clone(), bytes.into());
                report.file
            }
        }
    }

    #[test]
    fn a_tail_has_one_file_and_no_other_tail_has_it() {
        let (report, entries) = sample();
        let others = [entries[0].clone(), Entry::encode(entries[1].header().clone(), b"bcd")];
        let mut files = Files::new();
        let mut put = |entries: &[Entry]| put(&mut files, &report, entries, &[]);
        assert_eq!(put(&entries), "64-2-11-12.tail");
        assert_eq!(put(&entries), "known as 64-2-11-12.tail");
        assert_eq!(put(&others), "64-2-11-12.1.tail");
        assert_eq!(put(&others), "known as 64-2-11-12.1.tail");
        // One that is not whole is not taken for it.
        files.insert("64-2-11-12.tail".into(), Bytes::from_static(b"UTAIL001"));
        let look = |name: &str| Ok::<_, ()>(files.get(name).cloned());
        let Ok(Place::New(named, _)) = place(report, &entries, &[], look) else { panic!("it is known") };
        assert_eq!(named.file, "64-2-11-12.2.tail");
    }

    #[test]
    fn a_directory_that_cannot_be_looked_at_is_looked_at_once() {
        let (report, entries) = sample();
        let mut looks = 0;
        let mut look = |_: &str| {
            looks += 1;
            Err("too many open files")
        };
        assert_eq!(place(report, &entries, &[], &mut look), Err("too many open files"));
        assert_eq!(looks, 1);
    }

    /// Every cut and every other byte of a file is noticed; whole, it reads as `content`.
    fn reads_back(bytes: &Bytes, content: &Content) {
        let read = |bytes: Bytes| TailFile::decode(bytes).and_then(|file| file.content().ok());
        assert_eq!(read(bytes.clone()).as_ref(), Some(content));
        for at in 0..bytes.len() {
            assert_eq!(read(bytes.slice(..at)), None, "cut at {at}");
            let mut other = bytes.to_vec();
            other[at] ^= 1;
            assert_eq!(read(other.into()), None, "another byte at {at}");
        }
    }

    #[test]
    fn entries_and_rows_read_back_and_every_truncation_is_noticed() {
        let (report, entries) = sample();
        let rows = vec![row("a", 11, Some("one")), row("b", 12, None), row("c", 12, Some(""))];
        let of_rows = TailReport { rows: Some(3), ..report.clone() };
        let mut files = Files::new();
        let name = put(&mut files, &report, &entries, &[]);
        reads_back(&files[&name], &Content::Entries(entries));
        let mut files = Files::new();
        let name = put(&mut files, &of_rows, &[], &rows);
        reads_back(&files[&name], &Content::Rows(rows));
        assert_eq!(TailFile::decode(files[&name].clone()).map(|file| file.report.rows), Some(Some(3)));
    }
}

//! Divergent tails set aside (R9): one file each below `tails/`, never removed but by an operator's word.
//!
//! A file is `UTAIL001 | length u32 | JSON of a TailReport | CRC-32C of the JSON u32 | the entries verbatim`, integers
//! little-endian. Entries carry their own checksums.
//!
//! What the log did not have any more is set aside as rows of the engine: `UTAIL002`, and in place of the entries, in the order of
//! keys, `length of the key u32 | length of the value u32 | LSN u64 | key | value | CRC-32C of all these u32`. The length of a
//! value is 4,294,967,295 where the entry deleted the row. Keys have their space in front, values are as they are stored.

use crate::datadir::files;
use crate::failure::Failure;
use bytes::{Buf, BufMut, Bytes};
use std::path::Path;
use types::Lsn;
use types::config::TailReport;
use types::engine::Version;
use wire::Entry;

const ENTRIES: &[u8; 8] = b"UTAIL001";
const ROWS: &[u8; 8] = b"UTAIL002";
/// The length of a value that is none.
const DELETED: u32 = u32::MAX;

/// What is in a tail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Entries of the log, oldest first.
    Entries(Vec<Entry>),
    /// What the engine had left of entries that the log did not have any more, in the order of keys.
    Rows(Vec<Version>),
}

/// Writes a tail durably and returns the report with the file's name: that of the file that has the very same tail, if there
/// is one. `dir` is the directory `tails`.
pub fn write(
    dir: &Path,
    mut report: TailReport,
    entries: &[Entry],
    rows: &[Version],
) -> std::io::Result<TailReport> {
    let stem = format!("{}-{}-{}-{}", report.partition.0, report.term.0, report.from, report.to);
    let mut content = Vec::new();
    entries.iter().for_each(|entry| content.extend_from_slice(entry.bytes()));
    rows.iter().for_each(|row| push_row(&mut content, row));
    for n in 0.. {
        let name = if n == 0 { format!("{stem}.tail") } else { format!("{stem}.{n}.tail") };
        let path = dir.join(&name);
        if !path.exists() {
            report.file = name;
            break;
        }
        // The same tail comes twice after a crash between this file and the cut.
        if let Ok((known, rest)) = read_report(&path)
            && rest == content
        {
            return Ok(known);
        }
    }
    let text = serde_json::to_vec(&report).expect("a report has only text keys");
    let mut bytes = Vec::with_capacity(16 + text.len() + content.len());
    bytes.extend_from_slice(if report.rows.is_some() { ROWS } else { ENTRIES });
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&text);
    bytes.extend_from_slice(&crc32c::crc32c(&text).to_le_bytes());
    bytes.extend_from_slice(&content);
    files::replace(&dir.join(&report.file), &bytes)?;
    Ok(report)
}

/// The reports of all tails in a node's data directory. A file that cannot be read is an error that names it.
pub fn list(data_dir: &Path) -> Result<Vec<TailReport>, Failure> {
    let dir = data_dir.join("tails");
    let io = |error: std::io::Error| Failure::io(&dir, &error);
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".tail") && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    names.iter().map(|name| read_report(&dir.join(name)).map(|(report, _)| report)).collect()
}

/// A tail's report and content, all checked.
pub fn read(data_dir: &Path, file: &str) -> Result<(TailReport, Content), Failure> {
    let path = named(data_dir, file)?;
    let (report, rest) = read_report(&path)?;
    let damaged = |what: &dyn std::fmt::Display| Failure::corrupt(format!("{}: {what}", path.display()));
    if let Some(count) = report.rows {
        let rows = rows_of(rest).filter(|rows| rows.len() as u64 == count);
        let rows = rows.ok_or_else(|| damaged(&"rows are missing or damaged"))?;
        return Ok((report, Content::Rows(rows)));
    }
    let entries = Entry::all(rest).map_err(|error| damaged(&error))?;
    let range = (entries.first().map(Entry::lsn), entries.last().map(Entry::lsn));
    if range != (Some(report.from), Some(report.to)) {
        return Err(damaged(&"entries are missing"));
    }
    Ok((report, Content::Entries(entries)))
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

/// Removes a tail for good: an operator has said so.
pub fn discard(data_dir: &Path, file: &str) -> Result<(), Failure> {
    let path = named(data_dir, file)?;
    let removed = std::fs::remove_file(&path).and_then(|()| files::sync_dir(&data_dir.join("tails")));
    removed.map_err(|error| Failure::io(&path, &error))
}

fn named(data_dir: &Path, file: &str) -> Result<std::path::PathBuf, Failure> {
    let path = data_dir.join("tails").join(file);
    let plain = !file.contains(['/', '\\']) && file.ends_with(".tail");
    match plain && path.is_file() {
        true => Ok(path),
        false => Err(Failure::new(3, format!("there is no tail '{file}' in {}", data_dir.display()))),
    }
}

fn read_report(path: &Path) -> Result<(TailReport, Bytes), Failure> {
    let bytes = Bytes::from(std::fs::read(path).map_err(|error| Failure::io(path, &error))?);
    let broken = || Failure::corrupt(format!("{} is not a whole tail", path.display()));
    let length = bytes.get(8..12).map(|l| u32::from_le_bytes(l.try_into().expect("four bytes")) as usize);
    let (Some(magic), Some(length)) = (bytes.first_chunk::<8>(), length) else { return Err(broken()) };
    let rows = match magic {
        ENTRIES => false,
        ROWS => true,
        _ => return Err(broken()),
    };
    let text = bytes.get(12..12 + length).ok_or_else(broken)?;
    let crc = bytes.get(12 + length..16 + length).ok_or_else(broken)?;
    if crc32c::crc32c(text).to_le_bytes() != *crc {
        return Err(broken());
    }
    let report: TailReport = serde_json::from_slice(text).map_err(|_| broken())?;
    if report.rows.is_some() != rows {
        return Err(broken());
    }
    Ok((report, bytes.slice(16 + length..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, NodeId, PartitionId, Position, Term};
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

    #[test]
    fn a_tail_reads_back_and_every_cut_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("tails")).expect("makes");
        let (report, entries) = sample();
        let written = write(&dir.path().join("tails"), report.clone(), &entries, &[]).expect("writes");
        assert_eq!(written.file, "64-2-11-12.tail");
        let same = write(&dir.path().join("tails"), report.clone(), &entries, &[]).expect("writes");
        assert_eq!(same, written, "it is there once");
        let longer = Entry::encode(entries[1].header().clone(), b"bcd");
        let others = [entries[0].clone(), longer];
        let again = write(&dir.path().join("tails"), report, &others, &[]).expect("writes");
        assert_eq!(again.file, "64-2-11-12.1.tail");
        assert_eq!(list(dir.path()).expect("lists"), [again.clone(), written.clone()]);
        assert_eq!(
            read(dir.path(), &written.file).expect("reads"),
            (written.clone(), Content::Entries(entries))
        );
        let path = dir.path().join("tails").join(&written.file);
        let whole = std::fs::read(&path).expect("reads");
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("writes");
            assert_eq!(read(dir.path(), &written.file).unwrap_err().status, 6, "cut at {length}");
        }
        discard(dir.path(), &again.file).expect("discards");
        assert_eq!(read(dir.path(), &again.file).unwrap_err().status, 3);
        assert_eq!(read(dir.path(), "../node.id").unwrap_err().status, 3);
    }

    #[test]
    fn rows_read_back_and_every_cut_and_every_other_byte_is_noticed() {
        let dir = tempfile::tempdir().expect("a directory");
        let tails = dir.path().join("tails");
        std::fs::create_dir(&tails).expect("makes");
        let row = |key: &'static str, lsn, value: Option<&'static str>| Version {
            key: key.into(),
            lsn: Lsn(lsn),
            value: value.map(Bytes::from),
        };
        let rows = vec![row("a", 11, Some("one")), row("b", 12, None), row("c", 12, Some(""))];
        let report = TailReport { rows: Some(3), ..sample().0 };
        let written = write(&tails, report.clone(), &[], &rows).expect("writes");
        assert_eq!(write(&tails, report, &[], &rows).expect("writes"), written, "it is there once");
        assert_eq!(list(dir.path()).expect("lists"), std::slice::from_ref(&written));
        assert_eq!(read(dir.path(), &written.file).expect("reads"), (written.clone(), Content::Rows(rows)));
        let path = tails.join(&written.file);
        let whole = std::fs::read(&path).expect("reads");
        for at in 0..whole.len() {
            std::fs::write(&path, &whole[..at]).expect("writes");
            assert_eq!(read(dir.path(), &written.file).unwrap_err().status, 6, "cut at {at}");
            let mut other = whole.clone();
            other[at] ^= 1;
            std::fs::write(&path, &other).expect("writes");
            assert_eq!(read(dir.path(), &written.file).unwrap_err().status, 6, "another byte at {at}");
        }
    }
}

//! Divergent tails set aside (R9): one file each below `tails/`, never removed but by an operator's word.
//! What is in a file: [`driver::tail_file`].

use crate::datadir::files;
use crate::failure::Failure;
use bytes::Bytes;
pub use driver::tail_file::Content;
use driver::tail_file::{Place, SUFFIX, TailFile, place};
use std::path::Path;
use types::config::TailReport;
use types::engine::Version;
use wire::Entry;

/// Writes a tail durably and returns the report with the file's name: that of the file that has the very same
/// tail, if there is one. `dir` is the directory `tails`.
pub fn write(
    dir: &Path,
    report: TailReport,
    entries: &[Entry],
    rows: &[Version],
) -> std::io::Result<TailReport> {
    let look = |name: &str| {
        let path = dir.join(name);
        // What is there and cannot be read is another tail's.
        let read = || files::read(&path).ok().flatten().unwrap_or_default();
        path.try_exists().map(|there| there.then(|| Bytes::from(read())))
    };
    match place(report, entries, rows, look)? {
        Place::Known(known) => Ok(known),
        Place::New(report, bytes) => {
            files::replace(&dir.join(&report.file), &bytes)?;
            Ok(report)
        }
    }
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
        if name.ends_with(SUFFIX) && !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    names.iter().map(|name| open(&dir.join(name)).map(|file| file.report)).collect()
}

/// A tail's report and content, all checked.
pub fn read(data_dir: &Path, file: &str) -> Result<(TailReport, Content), Failure> {
    let path = named(data_dir, file)?;
    let file = open(&path)?;
    let content = file.content();
    let content = content.map_err(|what| Failure::corrupt(format!("{}: {what}", path.display())))?;
    Ok((file.report, content))
}

/// Removes a tail for good: an operator has said so.
pub fn discard(data_dir: &Path, file: &str) -> Result<(), Failure> {
    let path = named(data_dir, file)?;
    let removed = std::fs::remove_file(&path).and_then(|()| files::sync_dir(&data_dir.join("tails")));
    removed.map_err(|error| Failure::io(&path, &error))
}

fn named(data_dir: &Path, file: &str) -> Result<std::path::PathBuf, Failure> {
    let path = data_dir.join("tails").join(file);
    let plain = !file.contains(['/', '\\']) && file.ends_with(SUFFIX);
    match plain && path.is_file() {
        true => Ok(path),
        false => Err(Failure::new(3, format!("there is no tail '{file}' in {}", data_dir.display()))),
    }
}

fn open(path: &Path) -> Result<TailFile, Failure> {
    let bytes = Bytes::from(std::fs::read(path).map_err(|error| Failure::io(path, &error))?);
    TailFile::decode(bytes).ok_or_else(|| Failure::corrupt(format!("{} is not a whole tail", path.display())))
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
    fn a_tail_reads_back_and_a_cut_is_noticed() {
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
        std::fs::write(&path, &whole[..whole.len() - 1]).expect("writes");
        assert_eq!(read(dir.path(), &written.file).unwrap_err().status, 6, "it is cut");
        discard(dir.path(), &again.file).expect("discards");
        assert_eq!(read(dir.path(), &again.file).unwrap_err().status, 3);
        assert_eq!(read(dir.path(), "../node.id").unwrap_err().status, 3);
    }
}

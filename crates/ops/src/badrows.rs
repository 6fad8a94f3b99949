//! Bad rows: the first ones are reported one by one, all are counted, and on request they go into a file.

use crate::failure::Failure;
use input::BadRow;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// How many bad rows are reported one by one.
pub const REPORTED: u64 = 20;

/// Counts bad rows, and writes them to a file that can be corrected and loaded again.
pub struct BadRows {
    count: u64,
    file: Option<(PathBuf, Option<BufWriter<File>>)>,
    header: Option<String>,
}

impl BadRows {
    /// Only counts.
    pub fn counted() -> BadRows {
        BadRows { count: 0, file: None, header: None }
    }

    /// Also writes them to this file, which is made when the first one comes. It must not exist: it may hold
    /// the bad rows of an earlier load. `header` becomes its first line.
    pub fn kept_in(path: &Path, header: Option<String>) -> Result<BadRows, Failure> {
        if path.exists() {
            return Err(Failure::refused(format!(
                "{} exists already; remove it, or name another file with --bad-rows",
                path.display()
            )));
        }
        Ok(BadRows { count: 0, file: Some((path.to_path_buf(), None)), header })
    }

    /// Also writes them behind what this file holds. A feed that starts again may meet some of them again.
    pub fn appended_to(path: &Path) -> BadRows {
        BadRows { count: 0, file: Some((path.to_path_buf(), None)), header: None }
    }

    /// Takes one in. The sentence is given for the first few.
    pub fn take(&mut self, bad: &BadRow) -> Result<Option<String>, Failure> {
        self.count += 1;
        if let Some((path, writer)) = &mut self.file {
            let failed = |error| Failure::io(path.display(), &error);
            if writer.is_none() {
                let file = OpenOptions::new().append(true).create(true).open(&*path).map_err(failed)?;
                let mut made = BufWriter::new(file);
                if let Some(header) = &self.header {
                    writeln!(made, "{header}").map_err(failed)?;
                }
                *writer = Some(made);
            }
            let writer = writer.as_mut().expect("made above");
            writer.write_all(&bad.raw).and_then(|()| writer.write_all(b"\n")).map_err(failed)?;
        }
        Ok((self.count <= REPORTED).then(|| bad.to_string()))
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Hands what was taken in to the system: from then on the end of this process loses none of it.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let Some((path, Some(writer))) = &mut self.file else { return Ok(()) };
        writer.flush().map_err(|error| Failure::io(path.display(), &error))
    }

    /// Where they are, if there were any and they were kept.
    pub fn finish(&mut self) -> Result<Option<PathBuf>, Failure> {
        self.flush()?;
        Ok(self.file.as_ref().filter(|(_, writer)| writer.is_some()).map(|(path, _)| path.clone()))
    }

    /// What is said when more were bad than were reported.
    pub fn rest(&self) -> Option<String> {
        (self.count > REPORTED).then(|| format!("and {} more", self.count - REPORTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use input::Reason;

    fn bad(line: u64) -> BadRow {
        BadRow {
            file: "a.csv".into(),
            index: line - 2,
            line,
            column: Some("n".into()),
            reason: Reason::NotUtf8,
            raw: format!("x{line}").into_bytes(),
        }
    }

    #[test]
    fn they_are_kept_with_the_header_and_an_old_file_is_not_overwritten() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.bad");
        let mut rows = BadRows::kept_in(&path, Some("n,m".into())).expect("new");
        assert!(!path.exists(), "made before there is anything to keep");
        for line in 2..30 {
            let said = rows.take(&bad(line)).expect("writes");
            assert_eq!(said.is_some(), line < 22, "line {line}");
        }
        assert_eq!(rows.finish().expect("writes"), Some(path.clone()));
        assert_eq!((rows.count(), rows.rest().as_deref()), (28, Some("and 8 more")));
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("n,m\nx2\nx3\n") && text.ends_with("x29\n"));
        assert_eq!(BadRows::kept_in(&path, None).err().map(|failure| failure.status), Some(5));
    }
}

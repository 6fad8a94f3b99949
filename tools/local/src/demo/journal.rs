//! Files of writes, one JSON object per line: every acknowledged one (`--journal`), and those that were lost.

use super::dataset::Dataset;
use super::history::{Attempt, End};
use super::verify::Lost;
use crate::error::LocalError;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use types::PartitionId;
use types::data::{decode_key, key_to_text};

/// Makes lines for one data set, whose keys lie in these partitions.
#[derive(Clone, Copy, Debug)]
pub struct Journal<'a> {
    /// The rows.
    pub data: &'a Dataset,
    /// The partition of each key, by its number.
    pub places: &'a [PartitionId],
}

impl Journal<'_> {
    /// Writes every acknowledged write, oldest first, at the end of the file. `act` tells two acts of one
    /// file apart.
    pub fn acknowledged(&self, path: &Path, act: u32, attempts: &[Attempt]) -> Result<(), LocalError> {
        let when = |attempt: &Attempt| match attempt.end {
            End::Acknowledged { ms, .. } => Some(ms),
            End::Unknown | End::NotDone => None,
        };
        let mut acknowledged: Vec<(u64, &Attempt)> =
            attempts.iter().filter_map(|attempt| Some((when(attempt)?, attempt))).collect();
        acknowledged.sort_by_key(|(ms, attempt)| (*ms, attempt.client, attempt.sequence));
        let lines = acknowledged.into_iter().map(|(ms, attempt)| {
            let mut line = self.fields(attempt);
            line["ms"] = json!(ms);
            line["act"] = json!(act);
            line
        });
        write_lines(path, lines)
    }

    /// Writes the lost writes.
    pub fn lost(&self, path: &Path, lost: &[Lost]) -> Result<(), LocalError> {
        let lines = lost.iter().map(|lost| {
            let mut line = self.fields(&lost.attempt);
            line["reported"] = json!(lost.reported);
            line["gone"] = json!(lost.gone);
            line
        });
        write_lines(path, lines)
    }

    fn fields(&self, attempt: &Attempt) -> Value {
        let key = decode_key(self.data.schema(), self.data.key(attempt.key)).expect("it was encoded here");
        let at = attempt.position().unwrap_or_default();
        json!({
            "client": attempt.client,
            "key": key_to_text(&key),
            "sequence": attempt.sequence,
            "partition": self.places[attempt.key.0 as usize].0,
            "epoch": at.term.0,
            "lsn": at.lsn.0,
        })
    }
}

fn write_lines(path: &Path, lines: impl Iterator<Item = Value>) -> Result<(), LocalError> {
    let file = File::options().create(true).append(true).open(path).map_err(LocalError::io(path))?;
    let mut file = BufWriter::new(file);
    for line in lines {
        writeln!(file, "{line}").map_err(LocalError::io(path))?;
    }
    file.flush().map_err(LocalError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::dataset::Source;
    use crate::demo::history::KeyId;
    use types::{Lsn, Position, Term};

    #[test]
    fn lines_name_the_write_and_where_it_stands() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = Dataset::new(&Source::Users { count: 4, seed: 1 }, 2).expect("made");
        let places = vec![PartitionId(64), PartitionId(65), PartitionId(64), PartitionId(65)];
        let journal = Journal { data: &data, places: &places };
        let at = Position::new(Term(3), Lsn(17));
        let end = |ms| End::Acknowledged { at, ms };
        let attempt = |key, sequence, end| Attempt { key: KeyId(key), client: key % 2, sequence, end };
        let attempts = [attempt(1, 5, end(2000)), attempt(2, 4, end(1000)), attempt(3, 6, End::Unknown)];
        let path = dir.path().join("journal.ndjson");
        journal.acknowledged(&path, 1, &attempts).expect("written");
        let text = std::fs::read_to_string(&path).expect("there");
        assert_eq!(
            text,
            "{\"act\":1,\"client\":0,\"epoch\":3,\"key\":\"2\",\"lsn\":17,\"ms\":1000,\"partition\":64,\"sequence\":4}\n\
             {\"act\":1,\"client\":1,\"epoch\":3,\"key\":\"1\",\"lsn\":17,\"ms\":2000,\"partition\":65,\"sequence\":5}\n"
        );
        let path = dir.path().join("lost.ndjson");
        journal.lost(&path, &[Lost { attempt: attempts[0], reported: true, gone: true }]).expect("written");
        let text = std::fs::read_to_string(&path).expect("there");
        assert_eq!(
            text,
            "{\"client\":1,\"epoch\":3,\"gone\":true,\"key\":\"1\",\"lsn\":17,\"partition\":65,\"reported\":true,\
             \"sequence\":5}\n"
        );
    }
}

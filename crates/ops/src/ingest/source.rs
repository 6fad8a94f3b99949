//! Sources: a thread that reads records, so that what is slow to come does not keep what is there from being
//! committed.

use crate::failure::Failure;
use input::{BadRow, Input, Item, Options, Progress};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use types::FeedId;
use types::data::Schema;
use xxhash_rust::xxh3::xxh3_64;

/// What a source gives.
#[derive(Debug)]
pub enum Fed {
    /// A row: its number among the records, its encoded key, the stored row.
    Row {
        /// How many records come before it.
        index: u64,
        /// Its encoded key.
        key: Vec<u8>,
        /// The stored row.
        row: Vec<u8>,
    },
    /// A record that makes no row.
    Bad(BadRow),
    /// There are no more: so many there were.
    End(u64),
    /// It cannot be read further.
    Failed(Failure),
}

/// A source that is being read.
pub struct Opened {
    /// Its records, from the wanted one on.
    pub records: Receiver<Fed>,
    /// How much of it has been read.
    pub progress: Progress,
}

/// Records that are read ahead.
const AHEAD: usize = 4096;
/// How often a file that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The id of the feed with this name.
pub fn feed_id(name: &str) -> FeedId {
    FeedId(xxh3_64(name.as_bytes()))
}

/// Begins to read a file, or standard input, from a record on. With `tail` a file is followed beyond its end
/// until that is set.
pub fn read_records(
    path: Option<&Path>,
    options: Options,
    schema: &Schema,
    from: u64,
    tail: Option<Arc<AtomicBool>>,
) -> Result<Opened, Failure> {
    let (sender, records) = sync_channel(AHEAD);
    let schema = schema.clone();
    let input = match (path, tail) {
        (Some(path), None) => Input::open(path, options)?,
        (Some(path), Some(stop)) => follow(path, options, stop)?,
        (None, _) => return read_stdin(options, schema, from, sender, records),
    };
    let progress = input.progress();
    std::thread::spawn(move || read_all(Ok(input), &schema, from, &sender));
    Ok(Opened { records, progress })
}

/// Standard input is opened by the thread: already the first look at it waits for somebody to write.
fn read_stdin(
    options: Options,
    schema: Schema,
    from: u64,
    sender: SyncSender<Fed>,
    records: Receiver<Fed>,
) -> Result<Opened, Failure> {
    std::thread::spawn(move || {
        let input = Input::from_reader(io::stdin(), "standard input", options);
        read_all(input.map_err(Failure::from), &schema, from, &sender);
    });
    Ok(Opened { records, progress: Progress::default() })
}

fn follow(path: &Path, options: Options, stop: Arc<AtomicBool>) -> Result<Input, Failure> {
    let name = path.display().to_string();
    if name.ends_with(".gz") {
        return Err(Failure::usage(format!("{name}: a gzipped file cannot be followed; leave --follow out")));
    }
    let file = File::open(path).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let said = Failure::io(format!("cannot read {name}"), &error);
        if missing { Failure::not_found(said.sentence) } else { said }
    })?;
    Ok(Input::from_reader(Tail { file, stop }, &name, options)?)
}

/// Reads everything; ends when nobody listens any more.
fn read_all(input: Result<Input, Failure>, schema: &Schema, from: u64, sender: &SyncSender<Fed>) {
    let last = match read_until_end(input, schema, from, sender) {
        Ok(records) => Fed::End(records),
        Err(failure) => Fed::Failed(failure),
    };
    let _ = sender.send(last);
}

fn read_until_end(
    input: Result<Input, Failure>,
    schema: &Schema,
    from: u64,
    sender: &SyncSender<Fed>,
) -> Result<u64, Failure> {
    let mut reader = input?.reader(schema)?;
    reader.skip_records(from)?;
    while let Some(item) = reader.next_item()? {
        let fed = match item {
            Item::Row(record) => Fed::Row { index: record.index, key: record.key, row: record.value },
            Item::Bad(bad) => Fed::Bad(bad),
        };
        if sender.send(fed).is_err() {
            break;
        }
    }
    Ok(reader.records())
}

/// A file that has no end: where it ends, more is waited for. Once told to stop it fails, so that a
/// half-written last record is never taken for a whole one.
struct Tail {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Read for Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.file.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("stopped"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::table;
    use std::io::Write;

    fn next(opened: &Opened) -> Fed {
        opened.records.recv_timeout(Duration::from_secs(10)).expect("something comes")
    }

    #[test]
    fn a_file_is_read_from_a_record_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.csv");
        std::fs::write(&path, "id,name\n1,a\n2,b\nx,c\n").expect("writable");
        let opened =
            read_records(Some(&path), Options::default(), table(1).schema(), 1, None).expect("opens");
        assert!(matches!(next(&opened), Fed::Row { index: 1, .. }));
        assert!(matches!(next(&opened), Fed::Bad(bad) if bad.index == 2));
        assert!(matches!(next(&opened), Fed::End(3)));
    }

    #[test]
    fn a_followed_file_gives_whole_records_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.csv");
        std::fs::write(&path, "id,name\n1,a\n2,").expect("writable");
        let stop = Arc::new(AtomicBool::new(false));
        let opened = read_records(Some(&path), Options::default(), table(1).schema(), 0, Some(stop.clone()));
        let opened = opened.expect("opens");
        assert!(matches!(next(&opened), Fed::Row { index: 0, .. }));
        let mut file = File::options().append(true).open(&path).expect("writable");
        file.write_all(b"b\n3,c").expect("writable");
        assert!(matches!(next(&opened), Fed::Row { index: 1, .. }));
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(next(&opened), Fed::Failed(_)), "the half-written third record is not taken");
    }

    #[test]
    fn feeds_keep_their_ids() {
        assert_eq!(feed_id("orders"), feed_id("orders"));
        assert_ne!(feed_id("orders/a"), feed_id("orders/b"));
        assert_eq!(feed_id(""), FeedId(0x2d06_8005_38d3_94c2));
    }
}

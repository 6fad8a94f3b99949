//! Rows sorted by partition and key in bounded memory: what does not fit is written to disk in sorted runs,
//! which are then merged. Of rows with one key the last one of the input counts.

use crate::failure::Failure;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// So many runs are merged at once; more are merged into one first.
const RUNS: usize = 64;
/// What a row costs in memory beside its bytes.
const OVERHEAD: usize = 96;
/// Buffers of a run that is read or written.
const BUFFER: usize = 64 << 10;

/// A row on its way. The order of the fields is the order of rows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sortable {
    /// Which partition, counted from the table's first one.
    pub partition: u32,
    /// Its encoded key.
    pub key: Vec<u8>,
    /// How many records come before it in its source: the greatest one of a key counts.
    pub index: u64,
    /// The stored row.
    pub row: Vec<u8>,
}

/// Takes rows in any order.
pub struct Sorter {
    dir: PathBuf,
    memory: usize,
    rows: Vec<Sortable>,
    bytes: usize,
    runs: Vec<PathBuf>,
    named: u64,
    /// Rows that merges have left out so far.
    replaced: u64,
    /// Bytes that were written to disk.
    pub spilled: u64,
}

/// Gives them in order, each key once.
pub struct Sorted {
    heap: BinaryHeap<Reverse<(Sortable, usize)>>,
    runs: Vec<Run>,
    /// Rows that were left out, as a later one has their key.
    pub replaced: u64,
}

enum Run {
    Memory(std::vec::IntoIter<Sortable>),
    Disk(BufReader<File>),
}

impl Sorter {
    /// Sorts with about so many bytes of memory, and files in `dir`, which nobody else uses.
    pub fn new(dir: &Path, memory: usize) -> Sorter {
        let dir = dir.to_owned();
        Sorter {
            dir,
            memory,
            rows: Vec::new(),
            bytes: 0,
            runs: Vec::new(),
            named: 0,
            replaced: 0,
            spilled: 0,
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: Sortable) -> Result<(), Failure> {
        self.bytes += row.key.len() + row.row.len() + OVERHEAD;
        self.rows.push(row);
        if self.bytes >= self.memory { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<(), Failure> {
        let mut rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        rows.sort_unstable();
        let path = self.write_run(rows.into_iter().map(Ok))?;
        self.runs.push(path);
        if self.runs.len() == RUNS {
            let mut merged = Sorted::open(std::mem::take(&mut self.runs), Vec::new())?;
            let path = self.write_run(&mut merged)?;
            self.replaced += merged.replaced;
            self.runs.push(path);
        }
        Ok(())
    }

    fn write_run(
        &mut self,
        rows: impl Iterator<Item = Result<Sortable, Failure>>,
    ) -> Result<PathBuf, Failure> {
        self.named += 1;
        let path = self.dir.join(format!("run-{}", self.named));
        let failed = |error: std::io::Error| Failure::io(format!("cannot write {}", path.display()), &error);
        let mut out = BufWriter::with_capacity(BUFFER, File::create(&path).map_err(failed)?);
        for row in rows {
            let row = row?;
            self.spilled += encode(&row, &mut out).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        Ok(path)
    }

    /// All rows, in order.
    pub fn sorted(mut self) -> Result<Sorted, Failure> {
        self.rows.sort_unstable();
        let sorted = Sorted::open(self.runs, self.rows)?;
        Ok(Sorted { replaced: self.replaced, ..sorted })
    }
}

impl Sorted {
    fn open(runs: Vec<PathBuf>, rows: Vec<Sortable>) -> Result<Sorted, Failure> {
        let mut sorted = Sorted { heap: BinaryHeap::new(), runs: Vec::new(), replaced: 0 };
        for path in runs {
            let failed = |error| Failure::io(format!("cannot read {}", path.display()), &error);
            let file = File::open(&path).map_err(failed)?;
            // It is read as long as it is open.
            std::fs::remove_file(&path).map_err(failed)?;
            sorted.runs.push(Run::Disk(BufReader::with_capacity(BUFFER, file)));
        }
        sorted.runs.push(Run::Memory(rows.into_iter()));
        for run in 0..sorted.runs.len() {
            sorted.refill(run)?;
        }
        Ok(sorted)
    }

    fn refill(&mut self, run: usize) -> Result<(), Failure> {
        let next = match &mut self.runs[run] {
            Run::Memory(rows) => rows.next(),
            Run::Disk(file) => {
                decode(file).map_err(|error| Failure::io("cannot read sorted rows back", &error))?
            }
        };
        self.heap.extend(next.map(|row| Reverse((row, run))));
        Ok(())
    }

    fn next_row(&mut self) -> Result<Option<Sortable>, Failure> {
        let Some(Reverse((mut row, run))) = self.heap.pop() else { return Ok(None) };
        self.refill(run)?;
        let same =
            |other: &Sortable, row: &Sortable| other.partition == row.partition && other.key == row.key;
        while let Some(Reverse((next, _))) = self.heap.peek()
            && same(next, &row)
        {
            let Some(Reverse((next, run))) = self.heap.pop() else { break };
            self.refill(run)?;
            (row, self.replaced) = (next, self.replaced + 1);
        }
        Ok(Some(row))
    }
}

impl Iterator for Sorted {
    type Item = Result<Sortable, Failure>;

    fn next(&mut self) -> Option<Result<Sortable, Failure>> {
        self.next_row().transpose()
    }
}

fn encode(row: &Sortable, out: &mut impl Write) -> std::io::Result<u64> {
    out.write_all(&row.partition.to_le_bytes())?;
    out.write_all(&row.index.to_le_bytes())?;
    out.write_all(&(row.key.len() as u32).to_le_bytes())?;
    out.write_all(&(row.row.len() as u32).to_le_bytes())?;
    out.write_all(&row.key)?;
    out.write_all(&row.row)?;
    Ok((20 + row.key.len() + row.row.len()) as u64)
}

fn decode(input: &mut impl Read) -> std::io::Result<Option<Sortable>> {
    let mut head = [0; 20];
    match input.read_exact(&mut head[..1]) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    input.read_exact(&mut head[1..])?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let index = u64::from(word(4)) | u64::from(word(8)) << 32;
    let (mut key, mut row) = (vec![0; word(12) as usize], vec![0; word(16) as usize]);
    input.read_exact(&mut key)?;
    input.read_exact(&mut row)?;
    Ok(Some(Sortable { partition: word(0), key, index, row }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_does_not_fit_is_merged_from_the_disk_and_the_last_row_of_a_key_counts() {
        for memory in [1, 3_000, 1 << 30] {
            let dir = tempfile::tempdir().expect("a directory");
            let mut sorter = Sorter::new(dir.path(), memory);
            let mut expected = BTreeMap::new();
            for index in 0..1_000u64 {
                let (partition, key) = ((index % 3) as u32, (index * 7_919 % 400).to_be_bytes().to_vec());
                let row = format!("row {index}").into_bytes();
                expected.insert((partition, key.clone()), (index, row.clone()));
                sorter.add(Sortable { partition, key, index, row }).expect("there is room");
            }
            assert_eq!(sorter.spilled > 0, memory < 1 << 30);
            let mut sorted = sorter.sorted().expect("it reads back");
            let rows: Vec<_> = sorted.by_ref().map(|row| row.expect("it reads back")).collect();
            let found: Vec<_> =
                rows.into_iter().map(|row| ((row.partition, row.key), (row.index, row.row))).collect();
            assert_eq!(sorted.replaced, 1_000 - expected.len() as u64);
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
        }
    }
}

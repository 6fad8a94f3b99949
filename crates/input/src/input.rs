//! An open file or stream: unpacked if it is gzipped, its format found out.

use crate::error::InputError;
use crate::progress::{Counted, Progress};
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use types::data::ColumnType;

/// How the records of a file are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Fields between delimiters, with a header line.
    Csv,
    /// A JSON object per line.
    Ndjson,
}

/// What a file cannot say of itself.
#[derive(Clone, Debug)]
pub struct Options {
    /// The format; else by the name's ending (`.csv`, `.tsv`, `.ndjson`, `.jsonl`, `.json`, each also with
    /// `.gz`), else by the first character.
    pub format: Option<Format>,
    /// What separates the fields of CSV; else a comma, or a tab if the name ends in `.tsv`.
    pub delimiter: Option<u8>,
    /// The text that stands for no value, as in `NA`. Else an empty field in CSV, and none in NDJSON, which
    /// has null.
    pub null: Option<String>,
    /// The names of the columns of a CSV file without a header line.
    pub columns: Option<Vec<String>>,
    /// How many records are looked at to infer types.
    pub sample: u64,
    /// Types that are not to be inferred.
    pub types: Vec<(String, ColumnType)>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            format: None,
            delimiter: None,
            null: None,
            columns: None,
            sample: 10_000,
            types: Vec::new(),
        }
    }
}

/// An open file or stream of records.
pub struct Input {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
    pub(crate) gzip: bool,
    pub(crate) format: Format,
    pub(crate) delimiter: u8,
    pub(crate) options: Options,
    progress: Progress,
}

/// Unpacked bytes.
pub(crate) type Bytes = Box<dyn Read + Send>;

/// Bytes are read and unpacked in pieces of this size.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;

impl Input {
    /// Opens a file.
    pub fn open(path: &Path, options: Options) -> Result<Input, InputError> {
        let name = path.display().to_string();
        let failed = |error| InputError::Io { file: name.clone(), error };
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        // A pipe or a device has no size to compare with.
        let total = about.is_file().then_some(about.len());
        Input::new(Box::new(file), &name, total, options)
    }

    /// Reads from a stream, standard input for example. `name` is what messages call it.
    pub fn from_reader(
        reader: impl Read + Send + 'static,
        name: &str,
        options: Options,
    ) -> Result<Input, InputError> {
        Input::new(Box::new(reader), name, None, options)
    }

    /// The format it has.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How much of the file has been read, to be asked at any time.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn new(reader: Bytes, name: &str, total: Option<u64>, options: Options) -> Result<Input, InputError> {
        let progress = Progress::new(total);
        let mut counted: Bytes = Box::new(Counted { inner: reader, progress: progress.clone() });
        let failed = |gzip, error| InputError::reading(name, gzip, 0, error);
        let magic = front(&mut counted, 2).map_err(|error| failed(false, error))?;
        let gzip = magic == [0x1f, 0x8b];
        let mut bytes: Bytes = Box::new(Cursor::new(magic).chain(counted));
        if gzip {
            let buffered = BufReader::with_capacity(BUFFER_BYTES, bytes);
            bytes = Box::new(MultiGzDecoder::new(buffered));
        }
        let mut start = front(&mut bytes, 4).map_err(|error| failed(gzip, error))?;
        if start.starts_with(&[0xef, 0xbb, 0xbf]) {
            start.drain(..3);
        }
        let (format, delimiter) = form(name, &start, &options)?;
        check_start(name, format, &start)?;
        let bytes = Box::new(Cursor::new(start).chain(bytes));
        Ok(Input { name: name.to_string(), bytes, gzip, format, delimiter, options, progress })
    }
}

/// The first bytes, as many as asked for unless there are fewer.
fn front(bytes: &mut Bytes, count: u64) -> io::Result<Vec<u8>> {
    let mut front = Vec::new();
    bytes.take(count).read_to_end(&mut front)?;
    Ok(front)
}

/// Format and delimiter: as asked for, else by name, else by the first character.
fn form(name: &str, start: &[u8], options: &Options) -> Result<(Format, u8), InputError> {
    let name = name.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let by_name = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("csv" | "tsv") => Some(Format::Csv),
        Some("ndjson" | "jsonl" | "json") => Some(Format::Ndjson),
        _ => None,
    };
    let by_start = if start.trim_ascii_start().starts_with(b"{") { Format::Ndjson } else { Format::Csv };
    let delimiter = options.delimiter.unwrap_or(if name.ends_with(".tsv") { b'\t' } else { b',' });
    if matches!(delimiter, b'"' | b'\r' | b'\n') || !delimiter.is_ascii() {
        return Err(InputError::BadDelimiter(delimiter.into()));
    }
    Ok((options.format.or(by_name).unwrap_or(by_start), delimiter))
}

/// Says at once what would otherwise make every record a bad one.
fn check_start(name: &str, format: Format, start: &[u8]) -> Result<(), InputError> {
    let expected = match format {
        Format::Csv => "CSV",
        Format::Ndjson => "NDJSON",
    };
    let why = if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        "it is UTF-16 text, but must be UTF-8"
    } else if format == Format::Ndjson && start.trim_ascii_start().starts_with(b"[") {
        "it begins with a list, but must have one JSON object per line"
    } else {
        return Ok(());
    };
    Err(InputError::NotTheFormat { file: name.to_string(), expected, why })
}

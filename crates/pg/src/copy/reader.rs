//! Cuts what a client sends into records: lines, except that a line's end can be escaped or stand in quotes.
//!
//! A file has one kind of line end, which its first line decides, and may end with a line of nothing but
//! `\.`.

use super::fields::{csv_fields, text_fields};
use super::{Format, Header, MAX_RECORD_BYTES, bad_format};
use crate::failure::{Failure, code};
use std::ops::Range;

/// A record: its fields' texts, none for null.
pub type Record = Vec<Option<String>>;

/// What of a broken line is shown.
const SHOWN_BYTES: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineEnd {
    Newline,
    Return,
    Both,
}

/// What the data from the start of a record on are.
enum Found {
    /// A record, and where the next one begins.
    Record { end: usize, next: usize },
    /// The last record; nothing after it counts.
    Last { end: usize },
    /// Not all of it has come.
    Part,
}

/// Data that come in pieces.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    names: Vec<String>,
    buffer: Vec<u8>,
    /// Where the record begins that is being read.
    start: usize,
    /// How far it was looked at.
    scanned: usize,
    in_quotes: bool,
    escaped: bool,
    line_end: Option<LineEnd>,
    /// The line that is being read, from 1.
    line: u64,
    /// Where the record that was given out last begins and ends, and its last line.
    given: (Range<usize>, u64),
    over: bool,
    header: Header,
}

impl Reader {
    /// Reads records of columns with these names.
    pub fn new(format: Format, names: Vec<String>) -> Reader {
        let header = format.header;
        Reader {
            format,
            names,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            in_quotes: false,
            escaped: false,
            line_end: None,
            line: 1,
            given: (0..0, 0),
            over: false,
            header,
        }
    }

    /// Takes a piece in.
    pub fn push(&mut self, piece: &[u8]) {
        if self.over {
            return;
        }
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            (self.start, self.given.0) = (0, 0..0);
        }
        self.buffer.extend_from_slice(piece);
    }

    /// The next record; `None`: there is none until more has come, or none at all if this is `last`.
    pub fn next(&mut self, last: bool) -> Result<Option<Record>, Failure> {
        loop {
            let Some(range) = self.cut(last)? else { return Ok(None) };
            let line = &self.buffer[range];
            let limit = self.names.len();
            let record = match &self.format.csv {
                None => text_fields(&self.format, line, limit),
                Some(csv) => csv_fields(&self.format, csv, line, limit),
            };
            match std::mem::take(&mut self.header) {
                Header::None => {
                    let record = record?;
                    return match self.names.get(record.len()) {
                        None => Ok(Some(record)),
                        Some(name) => Err(bad_format(format!("missing data for column \"{name}\""))),
                    };
                }
                Header::Names => {}
                Header::Match => self.match_header(&record?)?,
            }
        }
    }

    /// The line with which the record ended that was given out last, or refused.
    pub fn line(&self) -> u64 {
        self.given.1
    }

    /// The record that was given out last, or refused, as far as it is to be shown.
    pub fn shown(&self) -> String {
        let record = self.buffer.get(self.given.0.clone()).unwrap_or_default();
        shortened(&String::from_utf8_lossy(record))
    }

    fn match_header(&self, record: &Record) -> Result<(), Failure> {
        if record.len() != self.names.len() {
            return Err(bad_format(format!(
                "wrong number of fields in header line: got {}, expected {}",
                record.len(),
                self.names.len()
            )));
        }
        for (at, (found, name)) in record.iter().zip(&self.names).enumerate() {
            let found = match found {
                None => "null value (\"\")".to_string(),
                Some(found) if found == name => continue,
                Some(found) => format!("\"{found}\""),
            };
            let number = at + 1;
            return Err(bad_format(format!(
                "column name mismatch in header line field {number}: got {found}, expected \"{name}\""
            )));
        }
        Ok(())
    }

    /// Where the next record is.
    fn cut(&mut self, last: bool) -> Result<Option<Range<usize>>, Failure> {
        if self.over {
            return Ok(None);
        }
        let found = self.scan(last);
        self.given = (self.start..self.buffer.len(), self.line);
        let (end, next) = match found? {
            Found::Record { end, next } => (end, next),
            Found::Last { end } => {
                self.over = true;
                if end == self.start {
                    return Ok(None);
                }
                (end, self.buffer.len())
            }
            Found::Part if last && self.start < self.buffer.len() => {
                self.over = true;
                (self.buffer.len(), self.buffer.len())
            }
            Found::Part => {
                self.over |= last;
                self.check_length(self.buffer.len())?;
                return Ok(None);
            }
        };
        self.check_length(end)?;
        let range = self.start..end;
        self.given.0 = range.clone();
        (self.start, self.scanned, self.line) = (next, next, self.line + 1);
        (self.in_quotes, self.escaped) = (false, false);
        Ok(Some(range))
    }

    fn check_length(&self, end: usize) -> Result<(), Failure> {
        if end - self.start <= MAX_RECORD_BYTES {
            return Ok(());
        }
        Err(Failure::new(code::LIMIT, format!("a row of COPY has at most {MAX_RECORD_BYTES} bytes")))
    }

    fn scan(&mut self, last: bool) -> Result<Found, Failure> {
        let is_csv = self.format.csv.is_some();
        while let Some(byte) = self.buffer.get(self.scanned).copied() {
            let at = self.scanned;
            let after = self.buffer.get(at + 1).copied();
            if (byte == b'\\' || byte == b'\r') && after.is_none() && !last {
                return Ok(Found::Part);
            }
            self.quotes(byte);
            let plain = !self.in_quotes;
            match byte {
                b'\r' | b'\n' if plain => {
                    return self.end_of_line(byte, after).map(|next| Found::Record { end: at, next });
                }
                b'\\' if !is_csv || (at == self.start && plain) => match self.marker(after, last)? {
                    Some(found) => return Ok(found),
                    None if !is_csv => self.scanned += 1,
                    None => {}
                },
                _ => {}
            }
            self.scanned += 1;
        }
        // What was escaped may not have come yet.
        self.scanned = self.scanned.min(self.buffer.len());
        Ok(Found::Part)
    }

    /// Notes whether what follows stands in quotes.
    fn quotes(&mut self, byte: u8) {
        let Some(csv) = &self.format.csv else { return };
        // An escape that is the quote itself needs no care: two of them turn twice.
        let escape = (csv.escape != csv.quote).then_some(csv.escape);
        if self.in_quotes && Some(byte) == escape {
            self.escaped = !self.escaped;
        }
        if byte == csv.quote && !self.escaped {
            self.in_quotes = !self.in_quotes;
        }
        if Some(byte) != escape {
            self.escaped = false;
        }
        let counts = if self.line_end == Some(LineEnd::Newline) { b'\n' } else { b'\r' };
        if self.in_quotes && byte == counts {
            self.line += 1;
        }
    }

    /// Where the line after this end begins.
    fn end_of_line(&mut self, byte: u8, after: Option<u8>) -> Result<usize, Failure> {
        let found = match (byte, after) {
            (b'\n', _) => LineEnd::Newline,
            (_, Some(b'\n')) if self.line_end != Some(LineEnd::Return) => LineEnd::Both,
            _ => LineEnd::Return,
        };
        let known = *self.line_end.get_or_insert(found);
        if known == found {
            return Ok(self.scanned + if found == LineEnd::Both { 2 } else { 1 });
        }
        let name = if byte == b'\n' { "newline" } else { "carriage return" };
        let letter = if byte == b'\n' { 'n' } else { 'r' };
        Err(match self.format.csv {
            None => bad_format(format!("literal {name} found in data"))
                .hint(format!("Use \"\\{letter}\" to represent {name}.")),
            Some(_) => bad_format(format!("unquoted {name} found in data"))
                .hint(format!("Use quoted CSV field to represent {name}.")),
        })
    }

    /// Whether the backslash here begins the mark of the end. `None`: it does not.
    fn marker(&mut self, after: Option<u8>, last: bool) -> Result<Option<Found>, Failure> {
        if after != Some(b'.') {
            return Ok(None);
        }
        match self.buffer.get(self.scanned + 2) {
            None if !last => Ok(Some(Found::Part)),
            None | Some(b'\r' | b'\n') => Ok(Some(Found::Last { end: self.scanned })),
            Some(_) if self.format.csv.is_some() => Ok(None),
            Some(_) => Err(bad_format("end-of-copy marker corrupt")),
        }
    }
}

/// A text that a client sent, with at most 100 bytes of it, for an error's context.
pub fn shortened(text: &str) -> String {
    match text
        .char_indices()
        .map(|(at, char)| at + char.len_utf8())
        .take_while(|end| *end <= SHOWN_BYTES)
        .last()
    {
        Some(end) if end < text.len() => format!("{}...", &text[..end]),
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Columns, Csv};
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("c{at}")).collect()
    }

    /// All records, with `-` for null; or the error with its line. The data come whole, and byte by byte.
    fn read(format: &Format, columns: usize, data: &str) -> String {
        let bytes = data.as_bytes();
        let whole = run(format, columns, &[bytes]);
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(run(format, columns, &pieces), whole, "{data:?}");
        whole
    }

    fn run(format: &Format, columns: usize, pieces: &[&[u8]]) -> String {
        let mut reader = Reader::new(format.clone(), names(columns));
        let mut shown = Vec::new();
        let mut take = |reader: &mut Reader, last| loop {
            match reader.next(last) {
                Ok(None) => return true,
                Ok(Some(record)) => {
                    let fields = record.iter().map(|field| field.as_deref().unwrap_or("-"));
                    shown.push(fields.collect::<Vec<_>>().join("|"));
                }
                Err(failure) => {
                    shown.push(format!("{} {}: {failure}", failure.code, reader.line()));
                    return false;
                }
            }
        };
        for piece in pieces {
            reader.push(piece);
            if !take(&mut reader, false) {
                return shown.join("/");
            }
        }
        take(&mut reader, true);
        shown.join("/")
    }

    #[test]
    fn lines_of_text_have_escapes_and_one_kind_of_end() {
        let text = Format::text();
        for (data, expected) in [
            ("", ""),
            ("a\tb\nc\t\\N\n", "a|b/c|-"),
            ("a\tb\nc\td", "a|b/c|d"),
            ("a\tb\r\nc\td\r\n", "a|b/c|d"),
            ("a\tb\rc\td\r", "a|b/c|d"),
            ("\\\\\tx\\ty\\n\\101\\x41\\q\n", "\\|x\ty\nAAq"),
            ("a\\\nb\tc\n", "a\nb|c"),
            ("\\N \tb\n", "N |b"),
            ("\t\n", "|"),
            ("a\tb\n\\.\nrubbish", "a|b"),
            ("a\tb\n\\.", "a|b"),
            ("a\tb\\.\n", "a|b"),
            ("a\t\\\\.\n", "a|\\."),
            ("a\tb\\", "a|b"),
            ("a\tb\nc\n", "a|b/22P04 2: missing data for column \"c1\""),
            ("\n", "22P04 1: missing data for column \"c1\""),
            ("a\tb\tc\n", "22P04 1: extra data after last expected column"),
            ("a\tb\nc\td\r\n", "a|b/22P04 2: literal carriage return found in data"),
            ("a\tb\r\nc\td\n", "a|b/22P04 2: literal newline found in data"),
            ("a\tb\r\nc\rd\r\n", "a|b/22P04 2: literal carriage return found in data"),
            ("a\tb\n\\.x\n", "a|b/22P04 2: end-of-copy marker corrupt"),
            ("a\t\\xff\n", "22021 1: invalid byte sequence for encoding \"UTF8\""),
            ("a\t\\0\n", "22021 1: invalid byte sequence for encoding \"UTF8\""),
        ] {
            assert_eq!(read(&text, 2, data), expected, "{data:?}");
        }
        assert_eq!(read(&text, 1, "\n\n"), "/", "an empty line is an empty text");
        let other = Format { delimiter: b'|', null: "".into(), header: Header::Names, csv: None };
        assert_eq!(read(&other, 2, "x|y|z\n1|\n\\|a|2\n"), "1|-/|a|2");
    }

    #[test]
    fn csv_has_quotes_that_hold_line_ends() {
        let csv = Format::csv();
        for (data, expected) in [
            ("a,b\n", "a|b"),
            ("a,\n\"\",\"b\"\n", "a|-/|b"),
            ("\"x\"\"y\",a\"b\"c\n", "x\"y|abc"),
            ("\"a,\nb\",\"\r\n\"\nc,d\n", "a,\nb|\r\n/c|d"),
            ("a,b\r\n\"c\r\nd\",e\r\nf\r\n", "a|b/c\r\nd|e/22P04 4: missing data for column \"c1\""),
            ("a,\\.\n", "a|\\."),
            ("a,b\n\\.\nc", "a|b"),
            ("\\.x,b\n", "\\.x|b"),
            ("a,\"b\nc,d\n", "22P04 1: unterminated CSV quoted field"),
            ("a,b\nc,d\r\n", "a|b/22P04 2: unquoted carriage return found in data"),
            ("a\n", "22P04 1: missing data for column \"c1\""),
            ("a,b,c\n", "22P04 1: extra data after last expected column"),
        ] {
            assert_eq!(read(&csv, 2, data), expected, "{data:?}");
        }
        let odd = Csv {
            quote: b'\'',
            escape: b'\\',
            force_quote: Columns::None,
            force_not_null: Columns::These(vec![0]),
            force_null: Columns::These(vec![1]),
        };
        let odd = Format { delimiter: b';', null: "NA".into(), header: Header::Match, csv: Some(odd) };
        assert_eq!(read(&odd, 2, "c0;c1\nNA;'NA'\n'\\'\\\\\\a';NA\n"), "NA|-/'\\\\a|-");
        assert_eq!(
            read(&odd, 2, "c0;c2\n"),
            "22P04 1: column name mismatch in header line field 2: got \"c2\", expected \"c1\""
        );
        assert_eq!(
            read(&odd, 2, "c0\n"),
            "22P04 1: wrong number of fields in header line: got 1, expected 2"
        );
    }

    #[test]
    fn a_record_has_an_end_somewhere() {
        let mut reader = Reader::new(Format::csv(), names(1));
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..64).find_map(|_| {
            reader.push(&piece);
            reader.next(false).err()
        });
        assert_eq!(refused.expect("refused").code, "54000");
        assert!(reader.shown().len() < 200);
    }
}

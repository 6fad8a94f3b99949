//! Splits CSV into records, no longer than the limit, and remembers each as it stood in the file.

use crate::{MAX_RECORD_BYTES, SHOWN_BYTES};
use csv_core::ReadRecordResult;
use std::io::{self, BufRead};

/// What a record turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// It can be taken apart.
    Whole,
    /// It is longer than [`MAX_RECORD_BYTES`]; its fields are gone.
    TooLong,
    /// The file ended within quotes.
    OpenQuote,
}

/// The records of a CSV file, one at a time.
pub(crate) struct CsvRecords<R> {
    input: R,
    core: Box<csv_core::Reader>,
    /// The fields of the record, one after the other, unquoted.
    fields: Vec<u8>,
    /// Where each field ends.
    ends: Vec<usize>,
    /// How many fields the record has.
    count: usize,
    /// The record as it stands in the file.
    raw: Vec<u8>,
    line: u64,
    shape: Shape,
}

impl<R: BufRead> CsvRecords<R> {
    pub(crate) fn new(input: R, delimiter: u8) -> CsvRecords<R> {
        let core = Box::new(csv_core::ReaderBuilder::new().delimiter(delimiter).build());
        let (fields, ends) = (vec![0; 4096], vec![0; 64]);
        CsvRecords { input, core, fields, ends, count: 0, raw: Vec::new(), line: 0, shape: Shape::Whole }
    }

    /// Goes to the next record; `None` at the end of the file. Empty lines are no records.
    pub(crate) fn advance(&mut self) -> io::Result<Option<Shape>> {
        self.raw.clear();
        let first_line = self.core.line();
        let (mut written, mut count, mut too_long, mut at_end) = (0, 0, false, false);
        loop {
            let input = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            at_end |= input.is_empty();
            let (result, read, wrote, ended) =
                self.core.read_record(input, &mut self.fields[written..], &mut self.ends[count..]);
            if !too_long {
                self.raw.extend_from_slice(&input[..read]);
            }
            self.input.consume(read);
            (written, count) = (written + wrote, count + ended);
            if self.raw.len() > MAX_RECORD_BYTES {
                too_long = true;
                self.raw.truncate(SHOWN_BYTES);
            }
            if too_long {
                // The rest is only skipped.
                (written, count) = (0, 0);
            }
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if too_long => {}
                ReadRecordResult::OutputEndsFull if too_long => {}
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(None),
            }
        }
        self.count = count;
        self.trim_raw(first_line);
        self.shape = match (too_long, at_end) {
            (true, _) => Shape::TooLong,
            (false, true) if self.quotes_are_open() => Shape::OpenQuote,
            _ => Shape::Whole,
        };
        Ok(Some(self.shape))
    }

    /// Where the bytes come from.
    pub(crate) fn input(&self) -> &R {
        &self.input
    }

    /// What the record turned out to be.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// How many fields the record has.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The fields as text; a field that is not UTF-8 is `None`. All are, or it says so field by field.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Option<&str>> {
        let all = &self.fields[..self.ends[..self.count].last().copied().unwrap_or(0)];
        // One check of all is faster than one of each; only if it fails is each looked at.
        let text = std::str::from_utf8(all).ok();
        let mut start = 0;
        self.ends[..self.count].iter().map(move |end| {
            let range = start..*end;
            start = *end;
            match text {
                // Two halves of a character in neighbouring fields are no character.
                Some(text) => text.get(range),
                None => std::str::from_utf8(&all[range]).ok(),
            }
        })
    }

    /// The record as it stands in the file.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The line the record begins on, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Takes line ends and empty lines off, and counts those in front.
    fn trim_raw(&mut self, first_line: u64) {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let front = self.raw.iter().take_while(|byte| is_end(byte)).count();
        let newlines = self.raw[..front].iter().filter(|byte| **byte == b'\n').count();
        self.line = first_line + newlines as u64;
        let back = self.raw[front..].iter().rev().take_while(|byte| is_end(byte)).count();
        self.raw.truncate(self.raw.len() - back);
        self.raw.drain(..front);
    }

    fn quotes_are_open(&self) -> bool {
        self.raw.iter().filter(|byte| **byte == b'"').count() % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn all(text: &[u8], buffer: usize) -> Vec<(u64, Shape, Vec<Option<String>>, String)> {
        let mut records = CsvRecords::new(BufReader::with_capacity(buffer, Cursor::new(text.to_vec())), b',');
        let mut found = Vec::new();
        while let Some(shape) = records.advance().expect("memory can be read") {
            let fields = records.texts().map(|text| text.map(str::to_string)).collect();
            found.push((records.line(), shape, fields, String::from_utf8_lossy(records.raw()).into_owned()));
        }
        found
    }

    fn fields(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some(text.to_string())).collect()
    }

    #[test]
    fn records_know_their_line_and_text_whatever_the_buffer() {
        let text = b"a,b\r\n\r\n1,\"x\ny\"\r\n\"say \"\"hi\"\"\",\n\n3,4";
        for buffer in [1, 2, 7, 1000] {
            let found = all(text, buffer);
            assert_eq!(
                found,
                [
                    (1, Shape::Whole, fields(&["a", "b"]), "a,b".into()),
                    (3, Shape::Whole, fields(&["1", "x\ny"]), "1,\"x\ny\"".into()),
                    (5, Shape::Whole, fields(&["say \"hi\"", ""]), "\"say \"\"hi\"\"\",".into()),
                    (7, Shape::Whole, fields(&["3", "4"]), "3,4".into()),
                ],
                "buffer of {buffer}"
            );
        }
    }

    #[test]
    fn what_is_not_utf8_is_found_field_by_field() {
        let found = all(b"a,\xff,b\n\xc3,\xa9\n", 100);
        assert_eq!(found[0].2, [Some("a".into()), None, Some("b".into())]);
        assert_eq!(found[1].2, [None, None]);
    }

    #[test]
    fn an_open_quote_and_too_long_a_record_are_said() {
        assert_eq!(all(b"a\n\"b,c\n", 100)[1].1, Shape::OpenQuote);
        let mut text = b"a\n\"".to_vec();
        text.extend(vec![b'x'; MAX_RECORD_BYTES]);
        text.extend(b"\"\nnext\n");
        let found = all(&text, 1 << 16);
        assert_eq!((found[1].1, found[1].3.len()), (Shape::TooLong, SHOWN_BYTES));
        assert_eq!((found[2].0, found[2].1, &found[2].3[..]), (3, Shape::Whole, "next"));
    }
}

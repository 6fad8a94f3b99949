//! Splits NDJSON into lines, no longer than the limit, and lines into fields.

use crate::{MAX_RECORD_BYTES, SHOWN_BYTES};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead};

/// The lines of an NDJSON file, one at a time.
pub(crate) struct JsonRecords<R> {
    input: R,
    raw: Vec<u8>,
    lines: u64,
    too_long: bool,
}

impl<R: BufRead> JsonRecords<R> {
    pub(crate) fn new(input: R) -> JsonRecords<R> {
        JsonRecords { input, raw: Vec::new(), lines: 0, too_long: false }
    }

    /// Goes to the next line that is not blank; `None` at the end of the file, else whether it was too long
    /// to keep.
    pub(crate) fn advance(&mut self) -> io::Result<Option<bool>> {
        loop {
            let Some(too_long) = self.advance_line()? else { return Ok(None) };
            self.lines += 1;
            self.too_long = too_long;
            if too_long || !self.raw.trim_ascii().is_empty() {
                return Ok(Some(too_long));
            }
        }
    }

    /// Where the bytes come from.
    pub(crate) fn input(&self) -> &R {
        &self.input
    }

    /// Whether the line was too long to keep.
    pub(crate) fn too_long(&self) -> bool {
        self.too_long
    }

    /// The line, without its end.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The number of the line, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.lines
    }

    fn advance_line(&mut self) -> io::Result<Option<bool>> {
        self.raw.clear();
        let (mut too_long, mut any) = (false, false);
        loop {
            let input = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if input.is_empty() {
                return Ok(any.then_some(too_long));
            }
            any = true;
            let end = input.iter().position(|byte| *byte == b'\n');
            let part = &input[..end.unwrap_or(input.len())];
            if !too_long {
                self.raw.extend_from_slice(part);
            }
            let read = part.len() + usize::from(end.is_some());
            self.input.consume(read);
            if self.raw.len() > MAX_RECORD_BYTES {
                too_long = true;
                self.raw.truncate(SHOWN_BYTES);
            }
            if end.is_some() {
                if self.raw.last() == Some(&b'\r') {
                    self.raw.pop();
                }
                return Ok(Some(too_long));
            }
        }
    }
}

/// The fields of a JSON object in their order, each value still as text. A name may come twice.
pub(crate) struct Fields<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'de>, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &RawValue>()? {
            fields.push((name, value));
        }
        Ok(Fields(fields))
    }
}

/// A name, borrowed unless it has escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name<'de>, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_string())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    #[test]
    fn lines_without_blank_ones_and_their_numbers() {
        for buffer in [1, 3, 100] {
            let text = Cursor::new(b"{}\r\n\n  \n{\"a\":1}".to_vec());
            let mut records = JsonRecords::new(BufReader::with_capacity(buffer, text));
            let mut found = Vec::new();
            while let Some(too_long) = records.advance().expect("memory can be read") {
                found.push((records.line(), too_long, records.raw().to_vec()));
            }
            assert_eq!(found, [(1, false, b"{}".to_vec()), (4, false, b"{\"a\":1}".to_vec())]);
        }
    }

    #[test]
    fn too_long_a_line_is_skipped() {
        let mut text = vec![b'x'; MAX_RECORD_BYTES + 1];
        text.extend(b"\n{}\n");
        let mut records = JsonRecords::new(Cursor::new(text));
        assert_eq!(records.advance().expect("memory"), Some(true));
        assert_eq!(records.raw().len(), SHOWN_BYTES);
        assert_eq!(records.advance().expect("memory"), Some(false));
        assert_eq!((records.line(), records.raw()), (2, &b"{}"[..]));
    }

    #[test]
    fn fields_keep_their_text_and_repetition() {
        let Fields(fields) =
            serde_json::from_str(r#"{"a": 1.10, "a\u0062": [1, 2], "a": null}"#).expect("object");
        let found: Vec<_> = fields.iter().map(|(name, value)| (&name[..], value.get())).collect();
        assert_eq!(found, [("a", "1.10"), ("ab", "[1, 2]"), ("a", "null")]);
        assert!(serde_json::from_str::<Fields<'_>>("[]").is_err());
    }
}

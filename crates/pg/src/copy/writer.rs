//! Rows as lines.

use super::{Csv, Format, Header};
use crate::service::Column;
use crate::text;
use types::data::Value;

/// Writes rows in a format.
#[derive(Clone, Debug)]
pub struct Writer {
    format: Format,
    scratch: String,
}

impl Writer {
    /// For a format.
    pub fn new(format: Format) -> Writer {
        Writer { format, scratch: String::new() }
    }

    /// Appends the first line. False if there is none.
    pub fn header<'a>(&self, out: &mut Vec<u8>, names: impl ExactSizeIterator<Item = &'a str>) -> bool {
        if self.format.header == Header::None {
            return false;
        }
        let alone = names.len() == 1;
        for (place, name) in names.enumerate() {
            self.separate(out, place);
            match &self.format.csv {
                None => escaped(out, name, self.format.delimiter),
                Some(csv) => self.quoted(out, csv, name, false, alone),
            }
        }
        out.push(b'\n');
        true
    }

    /// Appends a row of these columns.
    pub fn row(&mut self, out: &mut Vec<u8>, columns: &[Column], row: &[Value]) {
        for (place, (value, column)) in row.iter().zip(columns).enumerate() {
            self.separate(out, place);
            if value.is_null() {
                out.extend_from_slice(self.format.null.as_bytes());
                continue;
            }
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            let filled = column.filled(value);
            text::write_as(&mut scratch, column.kind, filled.as_ref().unwrap_or(value));
            match &self.format.csv {
                None => escaped(out, &scratch, self.format.delimiter),
                Some(csv) => self.quoted(out, csv, &scratch, csv.force_quote.has(place), row.len() == 1),
            }
            self.scratch = scratch;
        }
        out.push(b'\n');
    }

    fn separate(&self, out: &mut Vec<u8>, place: usize) {
        if place > 0 {
            out.push(self.format.delimiter);
        }
    }

    fn quoted(&self, out: &mut Vec<u8>, csv: &Csv, text: &str, force: bool, alone: bool) {
        let special =
            |byte: u8| byte == self.format.delimiter || byte == csv.quote || byte == b'\n' || byte == b'\r';
        // A line of nothing but the mark of the end would end it.
        let mistaken = text == self.format.null || (alone && text == r"\.");
        if !force && !mistaken && !text.bytes().any(special) {
            return out.extend_from_slice(text.as_bytes());
        }
        out.push(csv.quote);
        for byte in text.bytes() {
            if byte == csv.quote || byte == csv.escape {
                out.push(csv.escape);
            }
            out.push(byte);
        }
        out.push(csv.quote);
    }
}

fn escaped(out: &mut Vec<u8>, text: &str, delimiter: u8) {
    for byte in text.bytes() {
        let letter = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend([b'\\', letter]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Columns, Reader};
    use super::*;
    use crate::kind::Kind;

    fn written(format: &Format, names: &[&str], rows: &[Vec<Value>]) -> String {
        let mut writer = Writer::new(format.clone());
        let mut out = Vec::new();
        writer.header(&mut out, names.iter().copied());
        let column = |at: usize| Column::new(names.get(at).copied().unwrap_or_default(), Kind::Text);
        let columns: Vec<Column> = (0..rows.first().map_or(0, Vec::len)).map(column).collect();
        rows.iter().for_each(|row| writer.row(&mut out, &columns, row));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn rows_are_written_as_postgresql_writes_them() {
        let rows = [
            vec![Value::Int(-1), Value::Null, Value::Bool(true), "a\tb\\c\nd\u{1}".into()],
            vec![Value::Float(0.5), "".into(), Value::Date(0), "x,\"y".into()],
        ];
        let names = ["a", "b,c", "d", "e"];
        let text = "-1\t\\N\tt\ta\\tb\\\\c\\nd\u{1}\n0.5\t\t1970-01-01\tx,\"y\n";
        assert_eq!(written(&Format::text(), &names, &rows), text);
        let mut csv = Format { header: Header::Names, ..Format::csv() };
        let expected = "a,\"b,c\",d,e\n-1,,t,\"a\tb\\c\nd\u{1}\"\n0.5,\"\",1970-01-01,\"x,\"\"y\"\n";
        assert_eq!(written(&csv, &names, &rows), expected);
        csv.csv = csv.csv.map(|csv| Csv { escape: b'\\', force_quote: Columns::These(vec![0, 1]), ..csv });
        let expected =
            "a,\"b,c\",d,e\n\"-1\",,t,\"a\tb\\\\c\nd\u{1}\"\n\"0.5\",\"\",1970-01-01,\"x,\\\"y\"\n";
        assert_eq!(written(&csv, &names, &rows), expected);
        assert_eq!(written(&Format::csv(), &["a"], &[vec![r"\.".into()]]), "\"\\.\"\n");
    }

    #[test]
    fn what_is_written_is_read_the_same() {
        let texts = [
            "",
            "\\N",
            "NA",
            "\\.",
            "a\\",
            "'",
            "\"",
            "\r\n",
            "\t,;|'\"\\",
            "é\u{7f}\u{8}\u{b}\u{c}",
            "\\x41",
        ];
        let strange = Format {
            delimiter: b';',
            null: "NA".into(),
            header: Header::Match,
            csv: Format::csv().csv.map(|csv| Csv { quote: b'\'', escape: b'\\', ..csv }),
        };
        let barred = Format { delimiter: b'|', null: "".into(), ..Format::text() };
        for format in [Format::text(), Format::csv(), strange, barred] {
            let rows: Vec<Vec<Value>> = texts.iter().map(|text| vec![(*text).into(), Value::Null]).collect();
            let data = written(&format, &["a", "b"], &rows);
            let mut reader = Reader::new(format.clone(), vec!["a".into(), "b".into()]);
            reader.push(data.as_bytes());
            for text in texts {
                // With nothing for null, the format text cannot tell it from an empty text: PostgreSQL's
                // neither.
                let lost = format.csv.is_none() && text.is_empty() && format.null.is_empty();
                let expected = if lost { None } else { Some(text.to_string()) };
                assert_eq!(
                    reader.next(true).expect(&data),
                    Some(vec![expected, None]),
                    "{format:?} {text:?}"
                );
            }
            assert_eq!(reader.next(true), Ok(None));
        }
    }
}

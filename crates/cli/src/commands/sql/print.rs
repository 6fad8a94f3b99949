//! Results as psql prints them, or as JSON: one object per row.

use crate::out::Out;
use ops::gateway::{Column, Event};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr;

/// Rows that are looked at to find how wide the columns are; what comes later is printed as it comes.
const LOOKED_AT: usize = 10_000;
/// What stands for a value that is not there.
const NULL: &str = "NULL";

/// Types whose values stand at the right: int2, int4, int8, oid, float4, float8, numeric.
const NUMBERS: [u32; 7] = [21, 23, 20, 26, 700, 701, 1700];
const BOOL: u32 = 16;
/// json and jsonb.
const JSON: [u32; 2] = [114, 3802];

/// Prints one statement's results.
pub struct Printer {
    json: bool,
    expanded: bool,
    columns: Option<Vec<Column>>,
    /// Rows that wait until the columns' widths are known.
    waiting: Vec<Vec<Option<String>>>,
    widths: Option<Vec<usize>>,
    rows: u64,
}

impl Printer {
    /// For one statement.
    pub fn new(json: bool, expanded: bool) -> Printer {
        Printer { json, expanded, columns: None, waiting: Vec::new(), widths: None, rows: 0 }
    }

    /// Takes what has come.
    pub fn take(&mut self, event: Event, out: &mut Out) {
        match event {
            Event::Columns(columns) => {
                self.end(out);
                self.columns = Some(columns);
            }
            Event::Row(row) => {
                self.rows += 1;
                match (self.json, self.expanded) {
                    (true, _) => out.line(object(self.columns.as_deref().unwrap_or_default(), &row)),
                    (false, true) => self.block(&row, out),
                    (false, false) if self.widths.is_some() => self.line(&row, out),
                    (false, false) => {
                        self.waiting.push(row);
                        if self.waiting.len() >= LOOKED_AT {
                            self.head(out);
                        }
                    }
                }
            }
            Event::Done(tag) => {
                let had_rows = self.columns.is_some();
                self.end(out);
                match self.json {
                    true if had_rows => {}
                    true => out.object(&serde_json::json!({ "command": tag })),
                    false if had_rows && tag.starts_with("SELECT") => {}
                    false => out.line(tag),
                }
            }
            Event::Raw(bytes) => out.line(String::from_utf8_lossy(&bytes).trim_end_matches('\n')),
            Event::Notice(_) => {}
        }
    }

    /// Prints what still waits of a result, and how many rows it had.
    pub fn end(&mut self, out: &mut Out) {
        if self.columns.is_none() {
            return;
        }
        if !self.json {
            if !self.expanded && self.widths.is_none() {
                self.head(out);
            }
            let rows = if self.rows == 1 { "row" } else { "rows" };
            out.line(format!("({} {rows})", self.rows));
        }
        *self = Printer::new(self.json, self.expanded);
    }

    /// The names of the columns, and the rows that waited for them.
    fn head(&mut self, out: &mut Out) {
        let columns = self.columns.as_deref().unwrap_or_default();
        let mut widths: Vec<usize> = columns.iter().map(|column| width(&shown(&column.name))).collect();
        for row in &self.waiting {
            for (widest, cell) in widths.iter_mut().zip(row) {
                let lines = text(cell);
                *widest = lines.split('\n').map(width).max().unwrap_or(0).max(*widest);
            }
        }
        let names = columns.iter().zip(&widths).map(|(column, wide)| {
            let name = shown(&column.name);
            let free = wide.saturating_sub(width(&name));
            format!(" {}{name}{} ", " ".repeat(free / 2), " ".repeat(free - free / 2))
        });
        out.line(names.collect::<Vec<_>>().join("|").trim_end());
        out.line(widths.iter().map(|wide| "-".repeat(wide + 2)).collect::<Vec<_>>().join("+"));
        self.widths = Some(widths);
        for row in std::mem::take(&mut self.waiting) {
            self.line(&row, out);
        }
    }

    /// A row: as many lines as its longest value has.
    fn line(&self, row: &[Option<String>], out: &mut Out) {
        let (columns, widths) =
            (self.columns.as_deref().unwrap_or_default(), self.widths.as_deref().unwrap_or_default());
        let cells: Vec<String> = row.iter().map(text).collect();
        let cells: Vec<Vec<&str>> = cells.iter().map(|cell| cell.split('\n').collect()).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        for at in 0..height {
            let parts = cells.iter().zip(columns).zip(widths).map(|((lines, column), wide)| {
                let line = lines.get(at).copied().unwrap_or("");
                let free = " ".repeat(wide.saturating_sub(width(line)));
                let more = if at + 1 < lines.len() { "+" } else { " " };
                match NUMBERS.contains(&column.oid) {
                    true => format!(" {free}{line}{more}"),
                    false => format!(" {line}{free}{more}"),
                }
            });
            out.line(parts.collect::<Vec<_>>().join("|").trim_end());
        }
    }

    /// A row as a block of lines.
    fn block(&self, row: &[Option<String>], out: &mut Out) {
        let columns = self.columns.as_deref().unwrap_or_default();
        let widest = columns.iter().map(|column| width(&shown(&column.name))).max().unwrap_or(0);
        let head = format!("-[ RECORD {} ]", self.rows);
        out.line(format!("{head}{}", "-".repeat((widest + 2).saturating_sub(width(&head)))));
        for (column, cell) in columns.iter().zip(row) {
            let name = shown(&column.name);
            for (at, line) in text(cell).split('\n').enumerate() {
                let name = if at == 0 { name.as_str() } else { "" };
                let free = " ".repeat(widest - width(name));
                out.line(format!("{name}{free} | {line}").trim_end());
            }
        }
    }
}

fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// A value as it is shown; line ends stay.
fn text(cell: &Option<String>) -> String {
    let Some(cell) = cell else { return NULL.into() };
    cell.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// Text that does nothing to a terminal.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            letter if letter.is_control() => drop(write!(out, "\\x{:02X}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out
}

/// A row as an object. Two columns of one name are told apart by a number.
fn object(columns: &[Column], row: &[Option<String>]) -> String {
    let mut out = String::from("{");
    for (at, (column, cell)) in columns.iter().zip(row).enumerate() {
        let before = columns[..at].iter().filter(|other| other.name == column.name).count();
        let name = if before == 0 { column.name.clone() } else { format!("{}_{}", column.name, before + 1) };
        let separator = if at == 0 { "" } else { "," };
        let _ = write!(out, "{separator}{}:{}", Value::String(name), value(column.oid, cell));
    }
    out.push('}');
    out
}

/// A value: numbers with all their digits, what JSON has no number for as text.
fn value(oid: u32, cell: &Option<String>) -> String {
    let Some(cell) = cell else { return "null".into() };
    let plain = || Value::String(cell.clone()).to_string();
    let whole = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    match oid {
        BOOL if cell == "t" => "true".into(),
        BOOL if cell == "f" => "false".into(),
        oid if NUMBERS.contains(&oid) && whole(cell) => cell.clone(),
        oid if JSON.contains(&oid) && whole(cell) && !cell.contains('\n') => cell.clone(),
        _ => plain(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_exact_in_json() {
        let cell = |text: &str| Some(text.to_string());
        assert_eq!(value(1700, &cell("12345678901234567890.123")), "12345678901234567890.123");
        assert_eq!(value(701, &cell("NaN")), "\"NaN\"");
        assert_eq!(value(16, &cell("t")), "true");
        assert_eq!(value(25, &cell("a\"b\n")), r#""a\"b\n""#);
        assert_eq!(value(114, &cell(r#"{"a": 1}"#)), r#"{"a": 1}"#);
        assert_eq!(value(25, &None), "null");
        let column = |name: &str| Column { name: name.into(), oid: 23 };
        let row = [cell("1"), cell("2"), None];
        assert_eq!(object(&[column("a"), column("a"), column("b")], &row), r#"{"a":1,"a_2":2,"b":null}"#);
    }

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        assert_eq!(shown("a\u{1b}[31m\tb\u{7}"), "a\\x1B[31m\\tb\\x07");
        assert_eq!(width("日本"), 4);
        assert_eq!(text(&Some("a\nb\u{1b}".into())), "a\nb\\x1B");
    }
}

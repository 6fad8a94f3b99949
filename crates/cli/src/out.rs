//! Standard output: text for people, or JSON for machines. A closed pipe ends the process quietly.

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// A number with its noun.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Where results go.
pub struct Out {
    /// JSON instead of text.
    pub json: bool,
    writer: BufWriter<Stdout>,
}

impl Out {
    /// Standard output.
    pub fn new(json: bool) -> Out {
        Out { json, writer: BufWriter::with_capacity(64 * 1024, io::stdout()) }
    }

    /// A line.
    pub fn line(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        let written = self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.write_all(b"\n"));
        check(written);
    }

    /// An object on a line.
    pub fn object(&mut self, object: &impl Serialize) {
        let text = serde_json::to_string(object).expect("what is printed has only text keys");
        self.line(text);
    }

    /// The object where JSON is wanted, else the line.
    pub fn either(&mut self, object: &impl Serialize, line: impl FnOnce() -> String) {
        if self.json { self.object(object) } else { self.line(line()) }
    }

    /// A table: a head and rows.
    pub fn table(&mut self, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(head.iter().copied());
        for row in rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for line in table.to_string().lines() {
            self.line(line.trim_end());
        }
    }

    /// Takes what a terminal shows away, for something that is shown again and again.
    pub fn clear(&mut self) {
        if io::stdout().is_terminal() {
            check(self.writer.write_all(b"\x1b[H\x1b[2J"));
        }
    }

    /// Everything that was printed is out.
    pub fn flush(&mut self) {
        check(self.writer.flush());
    }
}

/// Whoever reads our output may stop: then there is nobody to work for. Other failures are the disk's.
fn check(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            let _ = writeln!(io::stderr(), "understudy: standard output: {error}");
            std::process::exit(ops::Status::Io as i32)
        }
    }
}

/// A line for people beside the results: on standard error.
pub fn note(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "{}", text.as_ref());
}

//! Where progress goes: lines that stay, and one live line that is written over.

use std::io::{self, IsTerminal, Write};

/// Somebody who is told how it goes.
pub trait Progress {
    /// A step begins.
    fn step(&mut self, text: &str);
    /// Something to be kept: a result, a table, a chart.
    fn line(&mut self, text: &str);
    /// How it goes right now. Written over by the next one, where that can be done.
    fn live(&mut self, text: &str);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn step(&mut self, _: &str) {}
    fn line(&mut self, _: &str) {}
    fn live(&mut self, _: &str) {}
}

/// Tells a person: on standard output, or on standard error where standard output is for a machine.
pub struct Terminal {
    out: Box<dyn Write + Send>,
    is_terminal: bool,
    live: bool,
    steps: u32,
}

impl Terminal {
    /// On standard error if `json`, else on standard output.
    pub fn new(json: bool) -> Terminal {
        match json {
            true => Terminal::on(Box::new(io::stderr()), io::stderr().is_terminal()),
            false => Terminal::on(Box::new(io::stdout()), io::stdout().is_terminal()),
        }
    }

    /// On anything. `is_terminal` says whether a line can be written over.
    pub fn on(out: Box<dyn Write + Send>, is_terminal: bool) -> Terminal {
        Terminal { out, is_terminal, live: false, steps: 0 }
    }

    /// Progress must not stop the work: a closed pipe is not told anything more.
    fn put(&mut self, text: &str) {
        let clear = if self.live && self.is_terminal { "\r\x1b[2K" } else { "" };
        self.live = false;
        let _ = self.out.write_all(format!("{clear}{text}").as_bytes());
        let _ = self.out.flush();
    }
}

impl Progress for Terminal {
    fn step(&mut self, text: &str) {
        self.steps += 1;
        self.put(&format!("[{}] {text}\n", self.steps));
    }

    fn line(&mut self, text: &str) {
        self.put(&format!("{text}\n"));
    }

    fn live(&mut self, text: &str) {
        match self.is_terminal {
            true => {
                self.put(&format!("    {text}"));
                self.live = true;
            }
            false => self.put(&format!("    {text}\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(is_terminal: bool) -> String {
        let page = Page::default();
        let mut terminal = Terminal::on(Box::new(page.clone()), is_terminal);
        terminal.step("first");
        terminal.live("1 %");
        terminal.live("2 %");
        terminal.line("done");
        String::from_utf8(page.0.lock().expect("not poisoned").clone()).expect("text")
    }

    #[test]
    fn the_live_line_is_written_over_only_where_it_can_be() {
        assert_eq!(written(false), "[1] first\n    1 %\n    2 %\ndone\n");
        assert_eq!(written(true), "[1] first\n    1 %\r\x1b[2K    2 %\r\x1b[2Kdone\n");
    }
}

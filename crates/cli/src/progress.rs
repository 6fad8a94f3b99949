//! Progress bars of long work, on standard error.

use crate::interrupt;
use crate::out::note;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use input::Progress;
use ops::load::Watcher;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Draws a bar on a terminal; elsewhere it only says what is to be said.
pub struct Bar {
    bar: Option<ProgressBar>,
    read: Option<Progress>,
    begun: Instant,
    drawn: Instant,
    stop: Arc<AtomicBool>,
}

/// Between two drawings.
const DRAW_EVERY: Duration = Duration::from_millis(100);

impl Bar {
    /// Nothing is drawn before a phase begins.
    pub fn new() -> Bar {
        let now = Instant::now();
        Bar { bar: None, read: None, begun: now, drawn: now, stop: interrupt::stop_flag() }
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Watcher for Bar {
    fn say(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note(line)),
            None => note(line),
        }
    }

    fn phase(&mut self, name: &'static str, progress: Option<Progress>) {
        self.clear();
        self.begun = Instant::now();
        if !stderr().is_terminal() {
            return;
        }
        let total = progress.as_ref().and_then(Progress::total);
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        let shape = match total {
            Some(_) => "{prefix:8} [{bar:30}] {bytes}/{total_bytes}  {msg}",
            None => "{prefix:8} {spinner} {bytes}  {msg}",
        };
        bar.set_style(ProgressStyle::with_template(shape).expect("the shape is right").progress_chars("=> "));
        bar.set_prefix(name);
        (self.bar, self.read) = (Some(bar), progress);
    }

    fn rows(&mut self, rows: u64) {
        let Some(bar) = &self.bar else { return };
        if self.drawn.elapsed() < DRAW_EVERY {
            return;
        }
        self.drawn = Instant::now();
        let rate = rows as f64 / self.begun.elapsed().as_secs_f64().max(1e-6);
        bar.set_position(self.read.as_ref().map_or(0, Progress::read));
        bar.set_message(format!("{} rows, {}/s", HumanCount(rows), HumanCount(rate as u64)));
    }

    fn stopped(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

//! What happened, as two hashes and, if wanted, as lines. One hash is of the lines; the other is of numbers alone (times, kinds of
//! events and messages, positions), so it stays the same when words in messages or records change and behaviour does not.

use std::collections::VecDeque;
use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// Lines kept when not all are wanted.
const TAIL: usize = 60;

/// The trace of one run.
pub struct Trace {
    hash: Xxh3,
    structure: Xxh3,
    lines: VecDeque<String>,
    all: bool,
    events: u64,
    text: String,
}

impl Trace {
    /// An empty trace; `all` keeps every line.
    pub fn new(all: bool) -> Trace {
        Trace {
            hash: Xxh3::new(),
            structure: Xxh3::new(),
            lines: VecDeque::new(),
            all,
            events: 0,
            text: String::new(),
        }
    }

    /// Notes something that happened at virtual time `now`.
    pub fn note(&mut self, now: u64, what: fmt::Arguments<'_>) {
        use fmt::Write;
        self.events += 1;
        self.text.clear();
        let _ = write!(self.text, "{:>10.3} {what}", now as f64 / 1000.0);
        self.hash.update(self.text.as_bytes());
        if !self.all && self.lines.len() == TAIL {
            // The oldest line's memory is used again.
            let mut line = self.lines.pop_front().unwrap_or_default();
            line.clear();
            line.push_str(&self.text);
            self.lines.push_back(line);
        } else {
            self.lines.push_back(self.text.clone());
        }
    }

    /// Notes an event by its numbers, at virtual time `now`.
    pub fn event(&mut self, now: u64, numbers: &[u64]) {
        self.structure.update(&now.to_le_bytes());
        numbers.iter().for_each(|number| self.structure.update(&number.to_le_bytes()));
    }

    /// The hash of all events' numbers.
    pub fn structure(&self) -> u64 {
        self.structure.digest()
    }

    /// The hash of everything noted.
    pub fn hash(&self) -> u64 {
        self.hash.digest()
    }

    /// How much was noted.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last lines, or all.
    pub fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    /// The last lines.
    pub fn tail(&self) -> Vec<String> {
        self.lines.iter().skip(self.lines.len().saturating_sub(TAIL)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_does_not_depend_on_what_is_kept() {
        let run = |all| {
            let mut trace = Trace::new(all);
            (0..200).for_each(|n| trace.note(n, format_args!("event {n}")));
            (trace.hash(), trace.lines().len(), trace.tail().len())
        };
        let ((short, few, tail), (long, many, _)) = (run(false), run(true));
        assert_eq!(short, long);
        assert_eq!((few, many, tail), (TAIL, 200, TAIL));
    }

    #[test]
    fn the_structure_is_of_numbers_and_not_of_words() {
        let run = |word: &str, number| {
            let mut trace = Trace::new(false);
            trace.event(1, &[number, 7]);
            trace.note(1, format_args!("{word}"));
            (trace.structure(), trace.hash())
        };
        let ((one, first), (same, second), (other, _)) = (run("one", 3), run("two", 3), run("two", 4));
        assert!(one == same && first != second && one != other);
    }
}

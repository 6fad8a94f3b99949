//! What happened, as two hashes and, if wanted, as lines. One hash is of the lines; the other is of numbers
//! alone (times, kinds of events and messages, positions), so it stays the same when words in messages or
//! records change and behaviour does not.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::Path;
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
    /// What differs from run to run.
    hidden: Option<Hidden>,
}

/// Files of trees have the time of day in them, and their directory the number of a process.
struct Hidden {
    root: String,
    /// Digests that were seen, in the order in which they were.
    digests: BTreeMap<String, usize>,
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
            hidden: None,
        }
    }

    /// Notes something that happened at virtual time `now`.
    pub fn note(&mut self, now: u64, what: fmt::Arguments<'_>) {
        use fmt::Write;
        self.events += 1;
        self.text.clear();
        let _ = write!(self.text, "{:>10.3} {what}", now as f64 / 1000.0);
        if let Some(hidden) = &mut self.hidden {
            self.text = hidden.masked(&self.text);
        }
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

    /// From now on this directory's name is left out, digests are told as ordinals, and of files' contents
    /// nothing is.
    pub fn hide(&mut self, root: Option<&Path>) {
        if let (None, Some(root)) = (&self.hidden, root) {
            let root = root.to_string_lossy().into_owned();
            self.hidden = Some(Hidden { root, digests: BTreeMap::new() });
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

impl Hidden {
    /// The same without what differs: what a message says of files is found as it is printed for a debugger.
    fn masked(&mut self, text: &str) -> String {
        // The checksums of a log are a chain, and the entry of a load has its files' digest.
        const NAMES: [&str; 6] = ["digest: [", "digest: ", "crc: ", "Checksum(", "order: [", "bytes: b\""];
        let mut masked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((at, name)) = NAMES.iter().filter_map(|name| Some((rest.find(name)?, *name))).min() {
            // Where both begin, the longer name counts.
            let name = if rest[at..].starts_with(NAMES[0]) { NAMES[0] } else { name };
            let (before, from) = rest.split_at(at + name.len());
            masked.push_str(before);
            let until = match name {
                "bytes: b\"" => from.find("\" }"),
                "digest: " | "crc: " | "Checksum(" => from.find(|byte: char| !byte.is_ascii_digit()),
                _ => from.find(']'),
            };
            let (value, after) = from.split_at(until.unwrap_or(from.len()));
            if name.starts_with("digest") || ["crc: ", "Checksum("].contains(&name) {
                let next = self.digests.len();
                let ordinal = *self.digests.entry(value.to_string()).or_insert(next);
                masked.push_str(&format!("#{ordinal}"));
            }
            rest = after;
        }
        masked.push_str(rest);
        masked.replace(&self.root, "LSM")
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
    fn digests_are_told_as_ordinals_and_directories_not_at_all() {
        let mut hidden = Hidden { root: "/tmp/world-7".into(), digests: BTreeMap::new() };
        let text = "Offer { digest: 77, order: [1, 2] } digest: [3, 4] Checksum(77), /tmp/world-7/n1 bytes: b\"x\\\"\" }";
        let masked = hidden.masked(text);
        let expected = "Offer { digest: #0, order: [] } digest: [#1] Checksum(#0), LSM/n1 bytes: b\"\" }";
        assert_eq!(masked, expected);
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

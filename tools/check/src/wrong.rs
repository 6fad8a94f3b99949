//! A wrong history, as files that show it: all of it, and for each finding the operations that matter.

use history::{Finding, Operation, Transaction};
use local::LocalError;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Every operation, a line of JSON each.
const HISTORY: &str = "history.ndjson";
/// What is wrong, in words and with its operations.
const WRONG: &str = "wrong.txt";
/// The most operations that are shown around a finding.
const SHOWN: usize = 400;

/// What a history consists of.
pub trait Entry {
    /// Its number in the history.
    fn number(&self) -> u64;
    /// True if a finding is about it.
    fn is_of(&self, finding: &Finding) -> bool;
    /// As a line of a file.
    fn line(&self) -> String;
}

impl Entry for Operation {
    fn number(&self) -> u64 {
        self.number
    }

    fn is_of(&self, finding: &Finding) -> bool {
        finding.concerns(self)
    }

    fn line(&self) -> String {
        self.to_line()
    }
}

impl Entry for Transaction {
    fn number(&self) -> u64 {
        self.number
    }

    fn is_of(&self, finding: &Finding) -> bool {
        finding.operations.contains(&self.number)
    }

    fn line(&self) -> String {
        self.to_line()
    }
}

/// Writes both, if something is wrong. Where the shorter one is.
pub fn write(
    output: &Path,
    findings: &[Finding],
    history: &[impl Entry],
) -> Result<Option<PathBuf>, LocalError> {
    if findings.is_empty() {
        return Ok(None);
    }
    let put = |name: &str, text: String| {
        let path = output.join(name);
        std::fs::write(&path, text).map_err(|error| LocalError::Io { path: path.clone(), error })?;
        Ok::<_, LocalError>(path)
    };
    let mut lines = String::new();
    for operation in history {
        lines.push_str(&operation.line());
        lines.push('\n');
    }
    let all = put(HISTORY, lines)?;
    let mut text = format!("All operations are in {}.\n", all.display());
    for finding in findings {
        text.push_str(&show(finding, history));
    }
    put(WRONG, text).map(Some)
}

/// A finding with what it concerns, in the order in which it was called; what shows it is marked.
fn show<E: Entry>(finding: &Finding, history: &[E]) -> String {
    let mut text = format!("\n{}\n", finding.sentence);
    let concerned: Vec<&E> = history.iter().filter(|operation| operation.is_of(finding)).collect();
    let marked = |operation: &E| finding.operations.contains(&operation.number());
    let first = concerned.iter().position(|operation| marked(operation)).unwrap_or(0);
    let from = first.saturating_sub(SHOWN / 4);
    for operation in concerned.iter().skip(from).take(SHOWN) {
        let mark = if marked(operation) { ">" } else { " " };
        let _ = writeln!(text, "{mark} {}", operation.line());
    }
    if concerned.len() > SHOWN {
        let _ = writeln!(text, "  ({} operations concern it; {SHOWN} are shown)", concerned.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::{End, Key, Over, Protocol, Rule, Write};

    #[test]
    fn a_wrong_history_is_shown_with_what_matters_marked() {
        let dir = tempfile::tempdir().expect("a directory");
        let operation = |number, key| Operation {
            number,
            client: 1,
            protocol: Protocol::Native,
            what: "put".into(),
            place: 64,
            invoked: number,
            completed: Some(number + 1),
            end: End::Done,
            at: None,
            reads: Vec::new(),
            writes: vec![Write { key, tag: Some(number), over: Over::Blind }],
            found: Vec::new(),
        };
        let history = [operation(1, Key(1, 1)), operation(2, Key(1, 2)), operation(3, Key(1, 1))];
        assert_eq!(write(dir.path(), &[], &history).expect("nothing to write"), None);
        let finding = Finding {
            rule: Rule::Linearizable,
            key: Some(Key(1, 1)),
            place: None,
            sentence: "it went back".into(),
            operations: vec![3],
        };
        let path = write(dir.path(), &[finding], &history).expect("written").expect("a file");
        let text = std::fs::read_to_string(path).expect("there");
        let shown = format!("\nit went back\n  {}\n> {}\n", history[0].to_line(), history[2].to_line());
        assert!(text.ends_with(&shown), "{text}");
        let all = std::fs::read_to_string(dir.path().join(HISTORY)).expect("there");
        let read: Result<Vec<Operation>, String> = all.lines().map(Operation::from_line).collect();
        assert_eq!(read.expect("operations"), history);
    }
}

//! Secondary indexes in scripts: rows with columns `k` (the key) and `v`, both text.

use super::{T, World};
use bytes::Bytes;
use std::fmt::Write as _;
use types::data::{Column, ColumnType, Row, Schema, Value, encode_key, encode_row, prefix_end};
use types::engine::space;
use types::index::{Wanted, entry_prefix};
use types::{Lsn, ReadAt};
use wire::{Body, Op, RowOp};

fn schema() -> Schema {
    let columns = vec![Column::new("k", ColumnType::Text).not_null(), Column::new("v", ColumnType::Text)];
    Schema::new(columns, &["k"], 1, false).expect("valid")
}

pub(super) fn key(word: &str) -> Bytes {
    encode_key(&schema(), &[word.into()]).expect("a key").into()
}

/// `null` is null, `xN` N letters.
fn value(word: &str) -> Value {
    match (word, word.strip_prefix('x').and_then(|count| count.parse().ok())) {
        ("null", _) => Value::Null,
        (_, Some(count)) => Value::Text("x".repeat(count)),
        _ => word.into(),
    }
}

pub(super) fn row(key: &str, word: &str) -> Bytes {
    encode_row(&schema(), &Row::new(vec![key.into(), value(word)])).expect("a row").into()
}

/// Bytes that people can read.
fn readable(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().filter(|c| c.is_ascii_graphic()).collect();
    if text.len() > 40 { format!("{} letters", text.len()) } else { text }
}

impl World {
    /// `want NAME..`: nodes are told of a table that wants these indexes of `v`; those that were wanted and
    /// are not named are dropped · `row N KEY VALUE`, `rows N KEY VALUE KEY VALUE..`: in one write · `unrow N
    /// KEY` · `find N NUMBER [VALUE] [limit=COUNT any begin at=..]` · `indexes N` · `entries`: every node's
    /// index rows.
    pub fn run_indexes(&mut self, words: &[&str]) -> bool {
        let node = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let op = match words[0] {
            "want" => {
                self.want(&words[1..]);
                return true;
            }
            "entries" => {
                self.show_entries();
                return true;
            }
            "row" | "rows" => {
                let words = if words[0] == "row" { &words[2..4] } else { &words[2..] };
                let pairs = words.chunks_exact(2);
                Op::write(
                    pairs.map(|pair| RowOp::Put { key: key(pair[0]), row: row(pair[0], pair[1]) }).collect(),
                )
            }
            "unrow" => Op::write(vec![RowOp::Delete { key: key(words[2]) }]),
            "indexes" => Op::Indexes,
            "find" => self.finding(words),
            _ => return false,
        };
        self.ask(node, op, words);
        true
    }

    fn finding(&self, words: &[&str]) -> Op {
        let plain = words.get(3).filter(|word| !word.contains('=') && !["any", "begin"].contains(word));
        let from = plain.map(|word| entry_prefix(&[value(word)]).expect("encodes")).unwrap_or_default();
        let to = if from.is_empty() { Vec::new() } else { prefix_end(&from) };
        let limit = words.iter().find_map(|word| word.strip_prefix("limit=")?.parse().ok()).unwrap_or(100);
        let at = super::snapshot(words);
        Op::Find { index: words[2].parse().expect("a number"), from: from.into(), to: to.into(), limit, at }
    }

    fn want(&mut self, names: &[&str]) {
        let schema = schema();
        let mut indexes = std::mem::take(&mut self.indexes);
        let gone: Vec<String> = indexes.wanted.iter().map(|index| index.name.clone()).collect();
        gone.iter()
            .filter(|name| !names.contains(&name.as_str()))
            .for_each(|name| assert!(indexes.remove(name)));
        names.iter().for_each(|name| indexes.add(&schema, name, &["v".into()]).expect("valid"));
        self.indexes = indexes.clone();
        for node in self.nodes.values_mut() {
            let wanted = Wanted { indexes: indexes.clone(), schema: schema.clone() };
            node.host.want_indexes(T, Some(wanted));
        }
    }

    fn show_entries(&mut self) {
        for (id, node) in &self.nodes {
            let engine = node.host.replica(super::P).expect("a replica").engine();
            let found = engine.scan(&[space::INDEX], &[space::INDEX + 1], ReadAt::Applied, 1000, usize::MAX);
            let entries: Vec<String> = match found {
                Ok(rows) => {
                    rows.iter().map(|row| format!("{}:{}", row.key[4], readable(&row.key[5..]))).collect()
                }
                Err(error) => vec![error.to_string()],
            };
            let _ = writeln!(self.trace, "n{id} has [{}]", entries.join(" "));
        }
    }
}

/// What people see of an answer about indexes.
pub fn show(body: &Body) -> Option<String> {
    let rows = |rows: &[(Bytes, Lsn, Bytes)]| -> String {
        let names: Vec<String> =
            rows.iter().map(|(key, lsn, _)| format!("{} (LSN {lsn})", readable(key))).collect();
        names.join(", ")
    };
    match body {
        Body::Found { rows: found, next } if next.is_empty() => Some(format!("found [{}]", rows(found))),
        Body::Found { rows: found, next } => {
            Some(format!("found [{}], goes on at {}", rows(found), readable(next)))
        }
        Body::Indexes(indexes) => {
            let one = |index: &wire::request::IndexStatus| {
                let note = if index.note.is_empty() { String::new() } else { format!(": {}", index.note) };
                format!("{} {} {} {}{note}", index.number, index.name, index.state.name(), index.entries)
            };
            Some(format!("indexes [{}]", indexes.iter().map(one).collect::<Vec<_>>().join(", ")))
        }
        _ => None,
    }
}

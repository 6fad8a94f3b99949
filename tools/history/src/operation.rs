//! One operation: what was called, when, and what came back. One line of JSON each.
//!
//! An operation is in one partition. It reads rows of one state, or writes rows all at once; a transaction is
//! two operations: what it read, and its commit. Whoever records takes `invoked` before the request leaves
//! and `completed` after the answer came, both from one clock that never goes back.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A row: the shelf that it lies on, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Key(pub u32, pub u32);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

/// How it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The native client: answers have positions.
    Native,
    /// PostgreSQL's protocol.
    Sql,
}

/// How it ended. What was surely not done is no part of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// Answered.
    Done,
    /// A write that may have been done, or may still be done.
    Unknown,
}

/// Where in a partition's log: the term, and the LSN. A read's is the state that it saw.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct At {
    /// The epoch in which its primary began to lead; of a read the configuration's epoch, which is no
    /// smaller.
    pub term: u64,
    /// The LSN.
    pub lsn: u64,
}

/// A row as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// The value, which is written once only.
    pub tag: u64,
    /// The value that it says it has replaced; 0 if its writer did not look.
    pub prev: u64,
    /// Its counter: one more than that of the value that it has replaced.
    pub count: u64,
    /// The LSN of the entry that wrote it, where the answer told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsn: Option<u64>,
}

/// A row, or that there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Read {
    /// Which.
    pub key: Key,
    /// What was there.
    pub seen: Option<Seen>,
}

/// What a write requires of the row that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Nothing.
    Blind,
    /// That there is none.
    Absence,
    /// That it is this value.
    Value(u64),
    /// That there is one: only the row itself says which, to whoever reads it.
    Something,
}

/// A row that is written or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    /// Which.
    pub key: Key,
    /// The new value, never written before; `None` removes the row.
    pub tag: Option<u64>,
    /// On what it rests.
    pub over: Over,
}

/// An operation of a history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Its number in the history.
    pub number: u64,
    /// Who called.
    pub client: u32,
    /// How.
    pub protocol: Protocol,
    /// What, in a word or two.
    pub what: String,
    /// The partition.
    pub place: u32,
    /// Microseconds since the history's beginning, before the request was handed over.
    pub invoked: u64,
    /// When the answer had come; none if none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<u64>,
    /// How it ended.
    pub end: End,
    /// Where, if the answer told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<At>,
    /// Rows read, all at one state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Read>,
    /// Rows written, all at once. With rows read beside them it is a transaction: those were read in one
    /// state before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Write>,
    /// Rows that an insert was refused for, as they were there. Nothing else is known of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<Key>,
}

impl Operation {
    /// When it had surely happened: never, for an outcome that nobody knows.
    pub fn ended(&self) -> Option<u64> {
        match self.end {
            End::Done => self.completed,
            End::Unknown => None,
        }
    }

    /// Every key that it speaks of.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let (reads, writes) = (self.reads.iter(), self.writes.iter());
        reads.map(|read| read.key).chain(writes.map(|write| write.key)).chain(self.found.iter().copied())
    }

    /// As a line of a file.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("an operation has only text keys")
    }

    /// From a line of a file.
    ///
    /// # Errors
    ///
    /// If the line is no operation: a sentence.
    pub fn from_line(line: &str) -> Result<Operation, String> {
        serde_json::from_str(line).map_err(|error| format!("no operation: {error}"))
    }
}

#[cfg(test)]
pub(crate) mod made {
    //! Short words for histories in tests.
    #![expect(missing_docs, reason = "words of tests")]

    use super::*;

    pub const KEY: Key = Key(1, 1);
    pub const OTHER: Key = Key(1, 2);

    fn operation(began: u64, ended: Option<u64>) -> Operation {
        Operation {
            number: 0,
            client: 0,
            protocol: Protocol::Native,
            what: String::new(),
            place: 64,
            invoked: began,
            completed: ended,
            end: if ended.is_some() { End::Done } else { End::Unknown },
            at: None,
            reads: Vec::new(),
            writes: Vec::new(),
            found: Vec::new(),
        }
    }

    /// An insert that is refused, as the row is there.
    pub fn refused(began: u64, ended: u64) -> Operation {
        Operation { found: vec![KEY], ..operation(began, Some(ended)) }
    }

    pub fn seen(tag: u64, prev: u64) -> Option<Seen> {
        Some(Seen { tag, prev, count: 0, lsn: None })
    }

    pub fn read(seen: Option<Seen>, began: u64, ended: u64) -> Operation {
        Operation { reads: vec![Read { key: KEY, seen }], ..operation(began, Some(ended)) }
    }

    pub fn write(tag: u64, over: Over, began: u64, ended: impl Into<Option<u64>>) -> Operation {
        let write = Write { key: KEY, tag: Some(tag), over };
        Operation { writes: vec![write], ..operation(began, ended.into()) }
    }

    pub fn put(tag: u64, began: u64, ended: impl Into<Option<u64>>) -> Operation {
        write(tag, Over::Blind, began, ended)
    }

    pub fn delete(began: u64, ended: impl Into<Option<u64>>) -> Operation {
        let write = Write { key: KEY, tag: None, over: Over::Blind };
        Operation { writes: vec![write], ..operation(began, ended.into()) }
    }

    /// Reads of several rows, each with the LSN that wrote it.
    pub fn scan(rows: &[(Key, u64, u64)], began: u64, ended: u64) -> Operation {
        let row = |(key, tag, lsn): &(Key, u64, u64)| Read {
            key: *key,
            seen: Some(Seen { tag: *tag, prev: 0, count: 0, lsn: Some(*lsn) }),
        };
        Operation { reads: rows.iter().map(row).collect(), ..operation(began, Some(ended)) }
    }

    impl Operation {
        pub fn at(mut self, term: u64, lsn: u64) -> Operation {
            self.at = Some(At { term, lsn });
            self
        }

        pub fn sql(mut self) -> Operation {
            self.protocol = Protocol::Sql;
            self
        }

        /// The same of another row.
        pub fn of(mut self, key: Key) -> Operation {
            self.writes.iter_mut().for_each(|write| write.key = key);
            self
        }

        /// The same with rows that it has read before it wrote.
        pub fn after(mut self, read: &Operation) -> Operation {
            self.reads = read.reads.clone();
            self
        }

        pub fn with(mut self, tag: u64, key: Key) -> Operation {
            self.writes.push(Write { key, tag: Some(tag), over: Over::Blind });
            self
        }
    }

    /// Numbers them.
    pub fn history(operations: impl IntoIterator<Item = Operation>) -> Vec<Operation> {
        (1..).zip(operations).map(|(number, operation)| Operation { number, ..operation }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::made::*;
    use super::*;

    #[test]
    fn lines_read_back() {
        let all = [
            put(7, 1, 2).at(3, 9),
            write(8, Over::Value(7), 3, None).sql(),
            write(8, Over::Absence, 3, 4),
            delete(5, 6),
            read(None, 7, 8),
            scan(&[(KEY, 8, 10)], 9, 12),
            refused(13, 14),
        ];
        for operation in history(all) {
            assert_eq!(Operation::from_line(&operation.to_line()), Ok(operation));
        }
        assert!(Operation::from_line("{}").is_err());
    }
}

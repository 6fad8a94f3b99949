//! What has a name among a database's tables and is none: sequences, views, procedures and schemas. They have
//! a definition in the catalog like tables, and no row.

use super::schema::Column;
use serde::{Deserialize, Serialize};

/// The longest text of a view, in bytes.
pub const MAX_VIEW_BYTES: usize = 64 << 10;

/// What a definition is of, if not of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Numbers, one after the other. How far they are given out is counted elsewhere.
    Sequence(Sequence),
    /// This query, in SQL.
    View(String),
    /// A program that runs where the rows are. Its parameters are the columns that are not hidden.
    Procedure(Procedure),
    /// A schema of SQL. Its name ends with a point, and the names of what is in it begin with that.
    Schema,
}

/// The longest text of a procedure, in bytes.
pub const MAX_PROCEDURE_BYTES: usize = 96 << 10;

/// In which language a procedure is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// WebAssembly: its text format, or the bytes of a module in hexadecimal behind `\x`.
    Wasm,
    /// A program of this release, by its name.
    Builtin,
}

impl Language {
    /// The language with this name, as users write it.
    pub fn named(name: &str) -> Option<Language> {
        [Language::Wasm, Language::Builtin].into_iter().find(|one| one.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Language::Wasm => "wasm",
            Language::Builtin => "builtin",
        }
    }
}

/// What a procedure is, beside its name and parameters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Procedure {
    /// What it is written in.
    pub language: Language,
    /// Its text.
    pub source: String,
    /// The columns of the rows that it gives. None: it gives nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Column>,
    /// It may change nothing.
    #[serde(default)]
    pub read_only: bool,
    /// The partition in which it was made has looked whether it can run there. Others do not look again: what
    /// it names may have changed meanwhile, and then a call says so (PR-191).
    #[serde(default)]
    pub checked: bool,
}

/// Which numbers a sequence gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sequence {
    /// Of how many bits they are: 16, 32 or 64.
    pub bits: u8,
    /// The first one.
    pub start: i64,
    /// From one to the next; not 0.
    pub step: i64,
    /// The least one.
    pub least: i64,
    /// The most.
    pub most: i64,
    /// Behind the last one it begins again at the other end.
    #[serde(default)]
    pub cycle: bool,
}

impl Kind {
    /// What is wrong with it, as a sentence.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Kind::View(text) => {
                let long = text.len() > MAX_VIEW_BYTES;
                long.then(|| format!("a view has at most {MAX_VIEW_BYTES} bytes"))
            }
            Kind::Procedure(procedure) => {
                let long = procedure.source.len() > MAX_PROCEDURE_BYTES;
                long.then(|| format!("the text of a procedure has at most {MAX_PROCEDURE_BYTES} bytes"))
            }
            Kind::Schema => None,
            Kind::Sequence(sequence) => {
                let Sequence { bits, start, step, least, most, .. } = *sequence;
                let known = matches!(bits, 16 | 32 | 64) && step != 0 && least < most;
                let good = known && (least..=most).contains(&start);
                (!good).then(|| format!("{sequence:?} gives no numbers"))
            }
        }
    }

    /// True if both are of one kind.
    pub fn is_like(&self, other: &Kind) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// What such a thing is called.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Sequence(_) => "sequence",
            Kind::View(_) => "view",
            Kind::Procedure(_) => "procedure",
            Kind::Schema => "schema",
        }
    }
}

impl Sequence {
    /// How many numbers there are from this one on, itself among them, before the end.
    pub fn left(&self, from: i64) -> u64 {
        let (from, step) = (i128::from(from), i128::from(self.step));
        // What a counter says is the next number, so the very last of 64 bits is never given.
        let (least, most) = (self.least.max(i64::MIN + 1), self.most.min(i64::MAX - 1));
        let room = if step > 0 { i128::from(most) - from } else { from - i128::from(least) };
        match room < 0 {
            true => 0,
            false => u64::try_from(room / step.abs() + 1).unwrap_or(u64::MAX),
        }
    }

    /// Where it begins again behind its last number.
    pub fn again(&self) -> i64 {
        if self.step > 0 { self.least } else { self.most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_end_at_their_bounds() {
        let up = Sequence { bits: 64, start: 1, step: 2, least: 1, most: 6, cycle: false };
        assert_eq!([1, 3, 5, 6, 7].map(|from| up.left(from)), [3, 2, 1, 1, 0]);
        let down = Sequence { step: -3, ..up };
        assert_eq!([6, 3, 1, 0].map(|from| down.left(from)), [2, 1, 1, 0]);
        let all = Sequence { step: 1, least: i64::MIN, most: i64::MAX, start: 0, ..up };
        assert_eq!(all.left(i64::MIN), u64::MAX);
        assert_eq!((all.left(i64::MAX - 1), all.left(i64::MAX)), (1, 0));
        assert_eq!((up.again(), down.again()), (1, 6));
        for wrong in [Sequence { step: 0, ..up }, Sequence { start: 7, ..up }, Sequence { bits: 8, ..up }] {
            assert!(Kind::Sequence(wrong).fault().is_some());
        }
        assert_eq!(Kind::Sequence(up).fault(), None);
        assert!(Kind::View("x".repeat(MAX_VIEW_BYTES + 1)).fault().is_some());
    }
}

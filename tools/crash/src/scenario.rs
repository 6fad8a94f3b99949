//! What the workers do, and the states that they go through, which follow from a position alone.

use bytes::Bytes;
use std::collections::BTreeMap;
use types::bulk::load_key;
use types::engine::{Row, space};
use types::{LoadId, Lsn, Mutation, Position, Term};

/// The load of [`Scenario::Load`].
pub const LOAD: LoadId = LoadId(LoadId::LEAST + 5);
/// The entry that makes it part of the state.
pub const LOAD_AT: Lsn = Lsn(31);
/// Rows of the load.
const LOADED: u64 = 60;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Flushes, waited for and beside other work, and a restart.
    Flush,
    /// Flushes until files are merged.
    Merge,
    /// Sets of components of another engine are received and installed, one of them given up half-way.
    Install,
    /// The files of a bulk load are staged and become part of the state.
    Load,
    /// The state comes row by row.
    Refill,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 5] =
        [Scenario::Flush, Scenario::Merge, Scenario::Install, Scenario::Load, Scenario::Refill];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Flush => "flush",
            Scenario::Merge => "merge",
            Scenario::Install => "install",
            Scenario::Load => "load",
            Scenario::Refill => "refill",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Scenario> {
        Scenario::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// What the entry at `lsn` changes, the rows of a load excepted: rows of users, one of a session, and
    /// deletions.
    pub fn entry(self, lsn: Lsn) -> Vec<Mutation> {
        if self.loads_at(lsn) {
            return vec![Mutation { key: load_key(LOAD), value: Some(Bytes::from_static(b"done")) }];
        }
        let n = lsn.0;
        let put = |space: u8, name: String, value: Vec<u8>| Mutation {
            key: key(space, &name),
            value: Some(value.into()),
        };
        let mut entry = vec![
            put(space::ROW, format!("row {n:06}"), text(n, 90 + n as usize % 80)),
            put(space::ROW, format!("often {:02}", n % 7), text(n + 1000, 40)),
            put(space::SESSION, format!("session {}", n % 3), n.to_be_bytes().to_vec()),
        ];
        if n.is_multiple_of(9) {
            entry.push(put(space::ROW, format!("wide {n:06}"), text(n + 2000, 9000)));
        }
        if n.is_multiple_of(4) {
            entry.push(Mutation { key: key(space::ROW, &format!("row {:06}", n / 2)), value: None });
        }
        entry
    }

    /// True if the entry makes the load part of the state.
    pub fn loads_at(self, lsn: Lsn) -> bool {
        self == Scenario::Load && lsn == LOAD_AT
    }

    /// Every row at `lsn`, in the order of keys.
    pub fn rows(self, lsn: Lsn) -> Vec<Row> {
        let mut rows = BTreeMap::new();
        for lsn in (1..=lsn.0).map(Lsn) {
            if self.loads_at(lsn) {
                for (key, value) in load_rows() {
                    rows.insert(Bytes::from(key), (lsn, Some(Bytes::from(value))));
                }
            }
            for mutation in self.entry(lsn) {
                rows.insert(mutation.key, (lsn, mutation.value));
            }
        }
        rows.into_iter().filter_map(|(key, (lsn, value))| Some(Row { key, lsn, value: value? })).collect()
    }
}

/// The position of `lsn`.
pub fn at(lsn: Lsn) -> Position {
    Position::new(Term(u64::from(lsn > Lsn::ZERO)), lsn)
}

/// The rows of the load, in the order of their keys: some that are there already, and new ones.
pub fn load_rows() -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    (0..LOADED).map(|n| {
        let value = text(n + 5000, 120);
        (key(space::ROW, &format!("row {:06}", n * 2 + 1)).to_vec(), value)
    })
}

fn key(space: u8, name: &str) -> Bytes {
    [&[space], name.as_bytes()].concat().into()
}

/// Bytes that cannot be compressed, always the same for `n`.
fn text(n: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    let mut word = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while bytes.len() < length {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

//! Where rows come from.

use bytes::Bytes;
use types::EngineError;

/// The stored rows that a call sees, without what it has written itself.
pub trait Rows {
    /// The value with this stored key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Keys and values with `from <= stored key < to`, in the order of the keys: at most so many rows, and no
    /// more behind the one that reaches so many bytes.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        rows: usize,
        bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError>;
}

/// What a call needs to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// The value with this stored key.
    Get(Bytes),
    /// Rows of a range: see [`Rows::scan`].
    Scan {
        /// The first stored key.
        from: Vec<u8>,
        /// The end, not included.
        to: Vec<u8>,
        /// At most so many rows.
        rows: usize,
        /// No more behind so many bytes.
        bytes: usize,
    },
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// For [`Look::Get`].
    Row(Option<Bytes>),
    /// For [`Look::Scan`].
    Rows(Vec<(Bytes, Bytes)>),
}

impl Look {
    /// Looks.
    pub fn find(&self, at: &dyn Rows) -> Result<Found, EngineError> {
        match self {
            Look::Get(key) => at.get(key).map(Found::Row),
            Look::Scan { from, to, rows, bytes } => at.scan(from, to, *rows, *bytes).map(Found::Rows),
        }
    }
}

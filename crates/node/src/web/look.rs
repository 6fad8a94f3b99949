//! What a page shows: the cluster as this node sees it, and its last minutes.

use client::view::failovers::Line;
use client::view::overview::Overview;
use std::collections::BTreeMap;

/// Everything that a cluster map shows.
pub(super) struct Look {
    /// The node whose page it is.
    pub me: u32,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// Tables, nodes and partitions.
    pub overview: Overview,
    /// Where each node's own page is.
    pub http: BTreeMap<u32, String>,
    /// Failovers, newest last.
    pub failovers: Vec<Line>,
    /// Why they are not known, or not known anew.
    pub no_failovers: Option<String>,
    /// The last minutes.
    pub series: Series,
    /// Operators can act here.
    pub operable: bool,
}

/// All nodes together, a value a second; `None`: nobody told it.
#[derive(Default)]
pub(super) struct Series {
    /// The first second, since 1970.
    pub begin: u64,
    /// Commits acknowledged.
    pub commits: Vec<Option<u64>>,
    /// The largest lag of any copy, microseconds.
    pub lag_us: Vec<Option<u64>>,
    /// The same in bytes.
    pub lag_bytes: Vec<Option<u64>>,
}

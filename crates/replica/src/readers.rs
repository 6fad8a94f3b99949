//! Who reads the engine at a position: open scans, and counts and digests under way.

use crate::features::aggregate::AggregateScans;
use std::collections::BTreeMap;
use types::{Lsn, Micros};

/// Scans and snapshots keep old versions for so long after they were last used.
const SCAN_HOLD: Micros = Micros::from_millis(10_000);

/// The positions that are read here, so that the versions of rows are kept for them.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// Open scans, of clients and of copies: the position each reads at, and when it was last used. Backups have them too.
    scans: BTreeMap<Lsn, Micros>,
    /// Counts and digests.
    pub(crate) aggregates: AggregateScans,
}

impl Readers {
    /// Somebody reads at `lsn` and may come again.
    pub fn open(&mut self, lsn: Lsn, now: Micros) {
        self.scans.insert(lsn, now);
    }

    /// Forgets scans that nobody went on with: their versions need not be kept.
    pub fn close_idle(&mut self, now: Micros) {
        self.scans.retain(|_, used| now.since(*used) < SCAN_HOLD);
    }

    /// The engine that they read is gone.
    pub fn close_all(&mut self) {
        self.scans.clear();
    }

    /// The lowest position that is read, if any is.
    pub fn lowest(&self) -> Option<Lsn> {
        self.scans.keys().next().copied().into_iter().chain(self.aggregates.lowest()).min()
    }
}

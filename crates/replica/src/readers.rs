//! Who reads the engine at a position: open scans, and counts and digests under way.

use crate::features::aggregate::AggregateScans;
use std::collections::BTreeMap;
use types::{Lsn, Micros, Position, Rules};

/// Scans and snapshots keep old versions for so long after they were last used.
const SCAN_HOLD: Micros = Micros::from_millis(10_000);
/// What is committed is kept for snapshots that nobody has read here yet, as often as this.
const RECENT: Micros = Micros::from_millis(500);

/// The positions that are read here, so that the versions of rows are kept for them.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// Open scans, of clients and of copies: the position each reads at, and when it was last used. Backups
    /// have them too.
    scans: BTreeMap<Lsn, Micros>,
    /// When what was committed was last kept for everybody.
    recent: Micros,
    /// Snapshots that were read.
    pub(crate) named: NamedSnapshots,
    /// Counts and digests.
    pub(crate) aggregates: AggregateScans,
}

/// Where snapshots over partitions lay in this one. Nothing is kept but in the mutant of PR-364, which reads
/// them there again whatever has become of the log.
#[derive(Debug, Default)]
pub(crate) struct NamedSnapshots(BTreeMap<(Position, Position), Lsn>);

impl NamedSnapshots {
    /// The LSN by which a snapshot is read that lies at `lsn` as the log is now: this one. Its timestamp
    /// names it, and a failover gives its LSN to another state (PR-364).
    pub fn name(&mut self, rules: Rules, snapshot: (Position, Position), lsn: Lsn) -> Lsn {
        match rules.snapshots_are_named_by_commits() {
            true => lsn,
            false => *self.0.entry(snapshot).or_insert(lsn),
        }
    }
}

impl Readers {
    /// Somebody reads at `lsn` and may come again.
    pub fn open(&mut self, lsn: Lsn, now: Micros) {
        self.scans.insert(lsn, now);
    }

    /// Keeps what is committed now for whoever has a snapshot of it and comes in the next ten seconds: of
    /// partitions that global transactions write.
    pub fn keep_recent(&mut self, committed: Lsn, now: Micros) {
        if now.since(self.recent) >= RECENT || self.recent == Micros::ZERO {
            self.recent = now;
            self.open(committed, now);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_keeps_its_position_as_long_as_somebody_goes_on_with_it() {
        let mut readers = Readers::default();
        assert_eq!(readers.lowest(), None);
        readers.open(Lsn(9), Micros(0));
        readers.open(Lsn(4), Micros(1));
        assert_eq!(readers.lowest(), Some(Lsn(4)));
        readers.open(Lsn(9), SCAN_HOLD);
        readers.close_idle(Micros(1) + SCAN_HOLD);
        assert_eq!(readers.lowest(), Some(Lsn(9)), "the other was not used for long");
        readers.close_all();
        assert_eq!(readers.lowest(), None);
    }
}

//! Who reads the engine at a position: open scans, and counts and digests under way; and what is kept for
//! snapshots of transactions over partitions.
//!
//! | file | what |
//! | --- | --- |
//! | `horizon` | what clients hold, and what a primary has its backups keep |

mod horizon;

use crate::features::aggregate::AggregateScans;
use horizon::{Followed, KeptStates};
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
    /// What clients hold for their transactions over partitions.
    held: KeptStates,
    /// What the primary has this replica keep.
    followed: Followed,
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
    /// partitions that global transactions write. True if it does, as it does twice a second.
    pub fn keep_recent(&mut self, committed: Lsn, now: Micros) -> bool {
        let due = now.since(self.recent) >= RECENT || self.recent == Micros::ZERO;
        if due {
            self.recent = now;
            self.open(committed, now);
        }
        due
    }

    /// Somebody holds the state at `lsn` for a transaction over partitions, and will say so again.
    /// `committed`: the newest that can be read; `written`: [`crate::data::Data::written`].
    pub fn hold(&mut self, (lsn, committed): (Lsn, Lsn), (now, written): (Micros, u64)) {
        self.held.hold((lsn, committed), (now, written));
    }

    /// True if a replica that follows another one is to look what that keeps.
    pub fn follow_due(&self, now: Micros) -> bool {
        self.followed.is_due(now)
    }

    /// The primary keeps this, as [`Followed::note`].
    pub fn follow(&mut self, times: (Micros, Micros), told: Option<(Lsn, Lsn)>, newest_flush: Lsn) {
        self.followed.note(times, told, newest_flush);
    }

    /// This replica serves as primary: what the one before it kept stays as long as a scan that was used now.
    pub fn lead(&mut self, now: Micros) {
        if let Some(lowest) = self.followed.end() {
            self.open(lowest, now);
        }
    }

    /// Forgets scans that nobody went on with, and states that are not held any more: their versions need not
    /// be kept. `written` as in [`Readers::hold`].
    pub fn close_idle(&mut self, now: Micros, written: u64) {
        self.scans.retain(|_, used| now.since(*used) < SCAN_HOLD);
        self.held.close_idle(now, written);
    }

    /// The engine that they read is gone.
    pub fn close_all(&mut self) {
        self.scans.clear();
        self.held.close_all();
        self.followed = Followed::default();
    }

    /// The lowest position that is read or kept, if any is.
    pub fn lowest(&self) -> Option<Lsn> {
        let scans = self.scans.keys().next().copied();
        let kept = [scans, self.held.lowest(), self.followed.lowest(), self.aggregates.lowest()];
        kept.into_iter().flatten().min()
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
        readers.close_idle(Micros(1) + SCAN_HOLD, 0);
        assert_eq!(readers.lowest(), Some(Lsn(9)), "the other was not used for long");
        readers.close_all();
        assert_eq!(readers.lowest(), None);
    }
}

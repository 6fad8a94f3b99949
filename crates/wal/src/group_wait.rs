//! How long a batch waits for entries that are about to come.
//!
//! An fsync costs the same for one entry as for ten, and writers who were answered together come back
//! together. So a batch waits a little for as many entries as the last one had and as came while that was
//! written: writers who take turns become one group. Nothing comes while a writer is alone, so nobody is
//! waited for.
//!
//! Whether it pays is seen from what comes while fsyncs run. Where all writers wait for their answers, that
//! is next to nothing, as everybody is in the batch. Where entries keep coming, they would have come anyway,
//! and waiting for them only delays those that are there: then it is given up for a while. So it is where
//! what was expected often does not come, as from one source whose submissions differ in size.

use std::time::Duration;

/// A batch waits for so many fsyncs' time.
const SYNCS: u32 = 3;
/// No batch waits longer.
const MAX_WINDOW: Duration = Duration::from_millis(2);
/// It pays while at most this share of the entries comes during fsyncs.
const LATE: f64 = 0.15;
/// And while at most this share of the batches waits in vain.
const IN_VAIN: f64 = 0.4;
/// It is tried over so many batches before that is looked at.
const TRIAL: u32 = 64;
/// Where it did not pay, it is tried again after so many batches, then after twice as many, and so on.
const SOON: u32 = 512;
const SELDOM: u32 = 16_384;

/// What the log has learnt about when entries come.
#[derive(Debug)]
pub(crate) struct GroupWait {
    /// Entries that the next batch is expected to have.
    target: usize,
    /// Batches wait, or it has been given up.
    waits: bool,
    /// Batches until that is looked at again.
    rest: u32,
    /// For how long it is given up the next time.
    patience: u32,
    /// The mean time that an fsync takes.
    sync: Duration,
    /// The mean number of entries in a batch.
    batch: f64,
    /// The mean number of entries that came during an fsync.
    late: f64,
    /// The mean share of batches that waited, and for which less came than was expected.
    in_vain: f64,
}

impl Default for GroupWait {
    fn default() -> GroupWait {
        let (sync, batch, late, in_vain) = (Duration::ZERO, 0.0, 0.0, 0.0);
        GroupWait { target: 1, waits: true, rest: TRIAL, patience: SOON, sync, batch, late, in_vain }
    }
}

impl GroupWait {
    /// A batch of at least so many entries is written at once.
    pub(crate) fn target(&self) -> usize {
        if self.waits { self.target } else { 1 }
    }

    /// How long a smaller one waits for more.
    pub(crate) fn window(&self) -> Duration {
        (self.sync * SYNCS).min(MAX_WINDOW)
    }

    /// A batch is written: as many entries are there as were expected, or it waited in vain.
    pub(crate) fn begins(&mut self, is_enough: bool) {
        self.in_vain = mean(self.in_vain, usize::from(!is_enough));
    }

    /// The fsync of a batch with so many entries took so long, and `late` ones came meanwhile.
    pub(crate) fn synced(&mut self, entries: usize, took: Duration, late: usize) {
        self.target = entries + late;
        self.sync = (self.sync * 7 + took) / 8;
        (self.batch, self.late) = (mean(self.batch, entries), mean(self.late, late));
        self.rest -= 1;
        if self.rest == 0 {
            self.look();
        }
    }

    fn look(&mut self) {
        if !self.waits {
            (self.waits, self.rest) = (true, TRIAL);
        } else if self.late <= self.batch * LATE && self.in_vain <= IN_VAIN {
            (self.patience, self.rest) = (SOON, TRIAL);
        } else {
            (self.waits, self.rest) = (false, self.patience);
            self.patience = (self.patience * 2).min(SELDOM);
        }
    }
}

/// A mean over about the last sixteen.
fn mean(before: f64, now: usize) -> f64 {
    (before * 15.0 + now as f64) / 16.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_micros(400);

    /// Runs batches of writers who wait for their answers: those who are not in a batch come while it is
    /// written, `in_time` of them before it ends. Gives how many batches waited, and their mean size.
    fn closed(wait: &mut GroupWait, batches: usize, writers: usize, in_time: usize) -> (usize, f64) {
        let (mut waited, mut entries) = (0, 0);
        for _ in 0..batches {
            let waits = in_time < wait.target();
            let batch = if waits { wait.target().min(writers) } else { in_time };
            wait.begins(batch >= wait.target());
            wait.synced(batch, SYNC, (writers - batch).min(in_time));
            waited += usize::from(waits);
            entries += batch;
        }
        (waited, entries as f64 / batches as f64)
    }

    #[test]
    fn a_writer_who_is_alone_never_waits() {
        assert_eq!(closed(&mut GroupWait::default(), 10_000, 1, 1), (0, 1.0));
    }

    #[test]
    fn writers_who_take_turns_become_one_group() {
        let mut wait = GroupWait::default();
        let (_, mean) = closed(&mut wait, 1000, 10, 3);
        assert!(mean > 9.9, "{mean}");
        // They become fewer, and more.
        assert!(closed(&mut wait, 1000, 4, 2).1 > 3.9);
        assert!(closed(&mut wait, 1000, 30, 7).1 > 29.0);
    }

    #[test]
    fn entries_that_come_anyway_are_not_waited_for() {
        let (mut wait, mut waited) = (GroupWait::default(), 0);
        for _ in 0..100_000 {
            // Two come in an fsync's time, whatever is done.
            let waits = 2 < wait.target();
            wait.synced(if waits { wait.target().min(6) } else { 2 }, SYNC, 2);
            waited += usize::from(waits);
        }
        assert!(waited < 1000, "{waited} of 100,000 batches");
    }

    #[test]
    fn one_source_whose_submissions_differ_in_size_is_not_waited_for() {
        let (mut wait, mut waited) = (GroupWait::default(), 0);
        for batch in [10, 1].into_iter().cycle().take(100_000) {
            let is_enough = batch >= wait.target();
            wait.begins(is_enough);
            wait.synced(batch, SYNC, 0);
            waited += usize::from(!is_enough);
        }
        assert!(waited < 1000, "{waited} of 100,000 batches");
    }

    #[test]
    fn no_batch_waits_much_longer_than_an_fsync_takes() {
        let mut wait = GroupWait::default();
        assert_eq!(wait.window(), Duration::ZERO);
        (0..100).for_each(|_| wait.synced(1, Duration::from_micros(100), 0));
        assert!(wait.window() <= Duration::from_micros(300));
        (0..100).for_each(|_| wait.synced(1, Duration::from_secs(1), 0));
        assert_eq!(wait.window(), MAX_WINDOW);
    }
}

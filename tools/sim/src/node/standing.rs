//! Whether a machine goes on, and what waits until it does.

use crate::event::Event;
use driver::progress::makes_progress;
use types::{Micros, PartitionRecord};

/// A machine that stands still takes in nothing; what happens to it happens when it goes on.
#[derive(Debug, Default)]
pub struct Standing {
    /// It stands still, clocks excepted.
    paused: bool,
    /// Its executor stands still, or all of them do if it has several.
    stalled: bool,
    /// The one of several executors that stands still by itself, and since when, microseconds.
    hung: Option<(usize, u64)>,
    deferred: Vec<Event>,
    /// What was told meanwhile of the configurations of that executor's partitions.
    late: Vec<PartitionRecord>,
}

impl Standing {
    /// True if everything stands still.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// True if its executor stands still.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// True if nothing stands still.
    pub fn goes_on(&self) -> bool {
        !self.paused && !self.stalled && self.hung.is_none()
    }

    /// True if the executor with this number stands still by itself.
    pub fn hangs(&self, executor: usize) -> bool {
        self.hung.is_some_and(|(hung, _)| hung == executor)
    }

    /// True if one of several executors stands still by itself.
    pub fn has_hung(&self) -> bool {
        self.hung.is_some()
    }

    /// The executor that stands still by itself, and for how long, once that has been noticed (N18).
    pub fn silent(&self, now: u64) -> Option<(usize, Micros)> {
        let (executor, since) = self.hung?;
        let noticed = !makes_progress(Micros(since), None, Micros(now));
        noticed.then(|| (executor, Micros(now).since(Micros(since))))
    }

    /// Everything stands still from now on.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// The executor stands still from now on.
    pub fn stall(&mut self) {
        self.stalled = true;
    }

    /// One of several executors stands still from now on.
    pub fn hang(&mut self, executor: usize, now: u64) {
        self.hung = Some((executor, now));
    }

    /// What waits for that executor happens now; the configurations that were told meanwhile, first.
    pub fn unhang(&mut self) -> (Vec<PartitionRecord>, Vec<Event>) {
        self.hung = None;
        (std::mem::take(&mut self.late), std::mem::take(&mut self.deferred))
    }

    /// Keeps a configuration for the executor that stands still.
    pub fn adopt_later(&mut self, record: PartitionRecord) {
        self.late.push(record);
    }

    /// What waits happens now, in order; what still stands still has it wait again.
    pub fn resume(&mut self) -> Vec<Event> {
        self.paused = false;
        std::mem::take(&mut self.deferred)
    }

    /// The same for the executor.
    pub fn unstall(&mut self) -> Vec<Event> {
        self.stalled = false;
        std::mem::take(&mut self.deferred)
    }

    /// Keeps the event if whom it concerns stands still, else gives it back. `part`: which of several
    /// executors it concerns, if it concerns one.
    pub fn defer(&mut self, event: Event, executor: bool, part: Option<usize>) -> Option<Event> {
        let hangs = part.is_some_and(|part| self.hangs(part));
        if self.paused || self.stalled && executor || hangs {
            self.deferred.push(event);
            return None;
        }
        Some(event)
    }

    /// Has an event happen again when the executor goes on that stands still by itself, if one does: it
    /// concerns all of them, and the others lose nothing by hearing of it twice.
    pub fn repeat_later(&mut self, event: Event) {
        if self.hung.is_some() {
            self.deferred.push(event);
        }
    }

    /// A process ends: nothing waits for it any more.
    pub fn clear(&mut self) {
        *self = Standing::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_a_stalled_executor_waits_and_the_rest_does_not() {
        let mut standing = Standing::default();
        standing.stall();
        assert!(standing.defer(Event::Start { node: 1 }, true, None).is_none());
        assert!(standing.defer(Event::Start { node: 2 }, false, None).is_some());
        standing.pause();
        assert!(standing.defer(Event::Start { node: 3 }, false, None).is_none());
        let nodes: Vec<u32> = standing
            .unstall()
            .into_iter()
            .map(|event| match event {
                Event::Start { node } => node,
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(nodes, [1, 3]);
        assert!(standing.is_paused() && !standing.goes_on());
    }

    #[test]
    fn what_is_for_one_of_several_executors_waits_for_that_one() {
        let mut standing = Standing::default();
        let gone = || Event::ClientGone { node: 1, incarnation: 1, conn: 5 };
        standing.repeat_later(gone());
        standing.hang(1, 7_000);
        assert!(standing.defer(Event::Start { node: 1 }, true, Some(1)).is_none());
        assert!(standing.defer(Event::Start { node: 2 }, true, Some(0)).is_some());
        assert!(standing.defer(Event::Start { node: 3 }, true, None).is_some());
        assert_eq!((standing.silent(506_999), standing.goes_on()), (None, false));
        assert_eq!(standing.silent(507_000), Some((1, Micros(500_000))));
        standing.repeat_later(gone());
        let (late, deferred) = standing.unhang();
        assert!(late.is_empty() && standing.goes_on());
        assert!(matches!(deferred[..], [Event::Start { node: 1 }, Event::ClientGone { conn: 5, .. }]));
    }
}

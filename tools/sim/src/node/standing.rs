//! Whether a machine goes on, and what waits until it does.

use crate::event::Event;

/// A machine that stands still takes in nothing; what happens to it happens when it goes on.
#[derive(Debug, Default)]
pub struct Standing {
    /// It stands still, clocks excepted.
    paused: bool,
    /// Its executor stands still.
    stalled: bool,
    deferred: Vec<Event>,
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
        !self.paused && !self.stalled
    }

    /// Everything stands still from now on.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// The executor stands still from now on.
    pub fn stall(&mut self) {
        self.stalled = true;
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

    /// Keeps the event if whom it concerns stands still, else gives it back.
    pub fn defer(&mut self, event: Event, executor: bool) -> Option<Event> {
        if self.paused || self.stalled && executor {
            self.deferred.push(event);
            return None;
        }
        Some(event)
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
        assert!(standing.defer(Event::Start { node: 1 }, true).is_none());
        assert!(standing.defer(Event::Start { node: 2 }, false).is_some());
        standing.pause();
        assert!(standing.defer(Event::Start { node: 3 }, false).is_none());
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
}

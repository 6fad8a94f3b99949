//! Virtual time: what happens next, and how long things take.

use crate::event::Event;
use crate::random::Stream;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The clock of the world and the queue of its events, in microseconds since the run began.
pub(super) struct Schedule {
    now: u64,
    queue: BinaryHeap<Scheduled>,
    sequence: u64,
    /// How long work takes inside a node, and other delays.
    timing: Stream,
}

impl Schedule {
    /// At the beginning of a run.
    pub fn new(timing: Stream) -> Schedule {
        Schedule { now: 0, queue: BinaryHeap::new(), sequence: 0, timing }
    }

    /// Virtual time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// How many events were ever put into the queue.
    pub fn entered(&self) -> u64 {
        self.sequence
    }

    /// Where delays are drawn from.
    pub fn timing(&mut self) -> &mut Stream {
        &mut self.timing
    }

    /// Lets something happen at a time, or now if that has passed. Of several at one time the first entered
    /// comes first.
    pub fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        let at = at.max(self.now);
        self.queue.push(Scheduled { at, later: true, sequence: self.sequence, event });
    }

    /// Lets something happen now, before all else that happens now. Of several the first entered comes first.
    pub fn first(&mut self, event: Event) {
        self.sequence += 1;
        self.queue.push(Scheduled { at: self.now, later: false, sequence: self.sequence, event });
    }

    /// The next event: its time has come.
    ///
    /// # Panics
    ///
    /// If time went back.
    pub fn next(&mut self) -> Option<Event> {
        let Scheduled { at, event, .. } = self.queue.pop()?;
        assert!(at >= self.now, "time goes back from {} to {at}", self.now);
        self.now = at;
        Some(event)
    }
}

/// An event in the queue. The earliest is the greatest; of several at one time those that come before all
/// else, and of these the first entered.
struct Scheduled {
    at: u64,
    /// False: it comes before all else of its time.
    later: bool,
    sequence: u64,
    event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (other.at, other.later, other.sequence).cmp(&(self.at, self.later, self.sequence))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Concern;

    #[test]
    fn events_come_by_time_and_of_one_time_as_they_were_entered() {
        let mut schedule = Schedule::new(Stream::new(1, Concern::Timing, 0));
        let start = |node| Event::Start { node };
        schedule.at(20, start(3));
        schedule.at(10, start(1));
        schedule.at(10, start(2));
        let mut nodes = Vec::new();
        while let Some(event) = schedule.next() {
            let Event::Start { node } = event else { unreachable!("only starts were entered") };
            nodes.push((schedule.now(), node));
            // What is late happens now.
            if node == 3 {
                schedule.at(5, start(4));
            }
        }
        assert_eq!(nodes, [(10, 1), (10, 2), (20, 3), (20, 4)]);
        assert_eq!(schedule.entered(), 4);
    }

    #[test]
    fn what_comes_before_all_else_keeps_its_order() {
        let mut schedule = Schedule::new(Stream::new(1, Concern::Timing, 0));
        let start = |node| Event::Start { node };
        schedule.at(0, start(1));
        schedule.first(start(2));
        schedule.first(start(3));
        let order: Vec<u32> = std::iter::from_fn(|| schedule.next())
            .map(|event| match event {
                Event::Start { node } => node,
                other => unreachable!("only starts were entered: {other:?}"),
            })
            .collect();
        assert_eq!(order, [2, 3, 1]);
    }
}

//! Flushes behind a commit, while the caller does something else.

use super::steps::{Doing, KnownCommits, Step};
use crate::call::{Call, Completed, Ticket};
use crate::client::Client;
use crate::error::ClientError;
use crate::table::micros;
use std::collections::BTreeMap;
use std::time::Instant;
use types::Micros;

/// The most flushes on their way: a commit waits until there are fewer.
const MAX_FLUSHES: usize = 256;

/// What a client does beside its calls for global transactions.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub known: KnownCommits,
    /// By the call that is under way.
    doing: BTreeMap<Ticket, Doing>,
    /// Those that pause, until when.
    paused: Vec<(Micros, Doing)>,
    /// What is to be gone on with: a call ended, and how.
    ended: Vec<(Doing, Completed)>,
}

impl Background {
    /// A call that has ended, unless it is one of these.
    pub fn take(&mut self, completed: Completed) -> Option<Completed> {
        match self.doing.remove(&completed.ticket) {
            Some(doing) => {
                self.ended.push((doing, completed));
                None
            }
            None => Some(completed),
        }
    }

    /// When something is to be done next, if that is known.
    pub fn due(&self) -> Option<Micros> {
        let pauses = self.paused.iter().map(|(until, _)| *until);
        pauses.chain((!self.ended.is_empty()).then_some(Micros::ZERO)).min()
    }

    /// How many flushes have not ended.
    pub fn len(&self) -> usize {
        self.doing.len() + self.paused.len() + self.ended.len()
    }

    /// What goes on now.
    fn next_steps(&mut self, now: Micros) -> Vec<(Doing, Step)> {
        let go_on = |(mut doing, outcome): (Doing, Option<_>)| {
            let step = doing.next(outcome);
            (doing, step)
        };
        let ended = std::mem::take(&mut self.ended).into_iter();
        let mut steps: Vec<_> =
            ended.map(|(doing, completed)| go_on((doing, Some(completed.outcome)))).collect();
        let due = self.paused.extract_if(.., |(until, _)| *until <= now);
        steps.extend(due.map(|(_, doing)| go_on((doing, None))));
        steps
    }
}

impl Client {
    /// Goes on with a flush beside other work. If it fails, whoever reads the partition, or the recovery
    /// manager, brings it there.
    pub(super) fn begin_in_background(&mut self, doing: Doing, call: Call) {
        let limit = micros(self.timeout());
        let ticket = self.submit(Client::BLOCKING, call.within(limit));
        self.background.doing.insert(ticket, doing);
    }

    /// Sends what is to be sent, and waits while too much is under way.
    pub(super) fn tend(&mut self) -> Result<(), ClientError> {
        self.send();
        while self.background.len() > MAX_FLUSHES {
            self.turn(Instant::now() + self.timeout())?;
        }
        Ok(())
    }

    /// Waits until the partitions have been told of every commit of this client, or nobody could tell them.
    pub fn flush_commits(&mut self) -> Result<(), ClientError> {
        while self.background.len() > 0 {
            self.turn(Instant::now() + self.timeout())?;
        }
        Ok(())
    }

    /// Goes on with flushes whose calls have ended, or that have paused.
    pub(crate) fn go_on_in_background(&mut self, now: Micros) {
        for (doing, step) in self.background.next_steps(now) {
            match step {
                Step::Call(call) => self.begin_in_background(doing, *call),
                Step::Wait(time) => self.background.paused.push((now + time, doing)),
                Step::Done(_) => {}
            }
        }
    }
}

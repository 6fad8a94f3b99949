//! What the executors of one node hand over to each other. Each has a mailbox, which wakes it; what one hands
//! over to another arrives in that order. Nothing else of an executor's is seen by another one.

use super::links::Guest;
use crate::failure::Failure;
use crate::metrics::Metrics;
use mio::Waker;
use replica::ClientRef;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use types::{Epoch, Executor, Executors, Micros, PartitionId};
use wire::control::{ClusterMap, NodeStatus, Propose};
use wire::{Message, PeerMessage, Reply, Request};

/// What waits for one executor. While there is more, requests are told to come again, and messages that are
/// sent or said again anyhow are lost, as they are where a connection takes no more.
const MAX_WAITING: usize = 4096;

/// Something that is handed over.
pub enum Handed {
    /// A connection that belongs there, with the first message that it has brought for a partition (PR-398),
    /// or with its greeting.
    Connection(Box<Guest>, Box<Message>),
    /// A client's request, from a connection that stays where it is.
    Request {
        /// Whom to answer: the connection says whose it is.
        to: ClientRef,
        /// What is asked.
        request: Box<Request>,
    },
    /// The answer to one.
    Reply {
        /// Whom.
        to: ClientRef,
        /// The answer.
        reply: Box<Reply>,
        /// The end of the lease on which it rests: whoever has the connection looks at it (F01).
        valid_until: Option<Micros>,
    },
    /// A client's connection is gone, by the executor that had it: it comes behind all of its requests.
    ClientGone(u64),
    /// A message of another replica; its sender is who it says. The records in it are kept by the coordinator
    /// before the executor of its partition has it (PR-397).
    Peer(Box<PeerMessage>),
    /// The same, and the records in it are kept.
    Kept(Box<PeerMessage>),
    /// From a controller, by the coordinator. The records in it are kept.
    ClusterMap {
        /// What it says.
        cluster_map: Arc<ClusterMap>,
        /// The records that it is made of were made without asking this node, as that was when it came.
        unasked: bool,
    },
    /// The same: what is for one partition of this executor.
    Controller(Box<Message>),
    /// To one controller, by the coordinator.
    Tell(Box<Message>),
    /// To every controller that is there, by the coordinator.
    TellAll(Box<Message>),
    /// A proposal to a controller, by the coordinator.
    Propose(Box<Propose>),
    /// To the coordinator: what this one has.
    Status {
        /// Whose it is.
        number: usize,
        /// What it has of the node's status.
        status: Box<NodeStatus>,
        /// Controllers should hear it soon.
        news: bool,
    },
    /// A question of an operator goes round, and comes back to the coordinator: which epochs are known.
    Seen {
        /// The operator's connection.
        key: u64,
        /// The question's number on it.
        id: u64,
        /// What those before have added.
        seen: Vec<(PartitionId, Epoch)>,
    },
    /// The node ends: whoever gets this writes what waits, and ends.
    End,
    /// To the coordinator: this one has ended.
    Ended {
        /// Which one.
        number: usize,
        /// Nothing of it is missing in the log.
        whole: bool,
    },
    /// To the coordinator: this one cannot go on, nor can the node.
    Failed(Failure),
}

struct Mailbox {
    handed: Mutex<Vec<Handed>>,
    /// Its executor has been woken and has not looked yet.
    signalled: AtomicBool,
    waker: Arc<Waker>,
    /// Wake-ups are counted here.
    metrics: Arc<Metrics>,
}

impl Mailbox {
    fn handed(&self) -> MutexGuard<'_, Vec<Handed>> {
        self.handed.lock().expect("a thread panicked while it held a mailbox")
    }

    fn wake(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            self.metrics.system_calls.count_wake();
            // Fails only when the executor is gone.
            let _ = self.waker.wake();
        }
    }
}

/// What all of them see.
struct Common {
    mailboxes: Vec<Mailbox>,
    /// Some controller lets this node in.
    has_controller: AtomicBool,
}

/// The executors of a node, as one of them sees the others.
#[derive(Clone)]
pub struct Others {
    me: Executor,
    common: Arc<Common>,
}

impl Others {
    /// For each executor what it sees, in the order of their numbers, as are the wakers. The coordinator of
    /// several is the last one.
    pub fn of_all(executors: Executors, wakers: &[Arc<Waker>], metrics: &Arc<Metrics>) -> Vec<Others> {
        assert_eq!(executors.threads(), wakers.len(), "each executor is woken by itself");
        let mailbox = |waker: &Arc<Waker>| Mailbox {
            handed: Mutex::default(),
            signalled: AtomicBool::new(false),
            waker: waker.clone(),
            metrics: metrics.clone(),
        };
        let mailboxes = wakers.iter().map(mailbox).collect();
        let common = Arc::new(Common { mailboxes, has_controller: AtomicBool::new(false) });
        let one = |number| Others { me: Executor { all: executors, number }, common: common.clone() };
        (0..executors.threads()).map(one).collect()
    }

    /// Which one this is.
    pub fn me(&self) -> Executor {
        self.me
    }

    /// True if the node has no other one.
    pub fn is_alone(&self) -> bool {
        self.me.all == Executors::ONE
    }

    /// The executor that has this partition, if it is another one.
    pub fn elsewhere(&self, partition: PartitionId) -> Option<usize> {
        let number = self.me.all.of(partition);
        (number != self.me.number).then_some(number)
    }

    /// The one behind this one; behind the last one, which is the coordinator, is the first.
    pub fn next(&self) -> usize {
        (self.me.number + 1) % self.me.all.threads()
    }

    /// Hands something over to the executor with this number.
    pub fn give(&self, to: usize, handed: Handed) {
        let mailbox = &self.common.mailboxes[to];
        mailbox.handed().push(handed);
        mailbox.wake();
    }

    /// The same, unless too much waits there: then it comes back.
    pub fn offer(&self, to: usize, handed: Handed) -> Result<(), Handed> {
        let mailbox = &self.common.mailboxes[to];
        let mut waiting = mailbox.handed();
        if waiting.len() >= MAX_WAITING {
            return Err(handed);
        }
        waiting.push(handed);
        drop(waiting);
        mailbox.wake();
        Ok(())
    }

    /// Hands something over to the coordinator.
    pub fn give_coordinator(&self, handed: Handed) {
        self.give(self.me.all.coordinator(), handed);
    }

    /// The same, unless too much waits there: then it comes back.
    pub fn offer_coordinator(&self, handed: Handed) -> Result<(), Handed> {
        self.offer(self.me.all.coordinator(), handed)
    }

    /// Tells the coordinator what this executor has of the node's status. What it has said before and the
    /// coordinator has not looked at yet makes way: nothing piles up for one that hangs.
    pub fn tell_status(&self, own: NodeStatus, is_news: bool) {
        let me = self.me.number;
        let mailbox = &self.common.mailboxes[self.me.all.coordinator()];
        let mut waiting = mailbox.handed();
        let before = waiting.iter_mut().find_map(|handed| match handed {
            Handed::Status { number, status, news } if *number == me => Some((status, news)),
            _ => None,
        });
        match before {
            Some((status, news)) => {
                **status = own;
                *news |= is_news;
            }
            None => waiting.push(Handed::Status { number: me, status: Box::new(own), news: is_news }),
        }
        drop(waiting);
        mailbox.wake();
    }

    /// Hands something over to all others.
    pub fn give_all(&self, handed: impl Fn() -> Handed) {
        let others = (0..self.me.all.threads()).filter(|number| *number != self.me.number);
        others.for_each(|number| self.give(number, handed()));
    }

    /// What was handed over to this one since the last call.
    pub fn take(&self) -> Vec<Handed> {
        if self.is_alone() {
            return Vec::new();
        }
        let mailbox = &self.common.mailboxes[self.me.number];
        // In this order: whoever gives something in between wakes this one once more.
        mailbox.signalled.store(false, Ordering::Release);
        std::mem::take(&mut *mailbox.handed())
    }

    /// The coordinator says whether some controller lets this node in.
    pub fn note_controller(&self, is_there: bool) {
        self.common.has_controller.store(is_there, Ordering::Release);
    }

    /// True if some controller lets this node in.
    pub fn has_controller(&self) -> bool {
        self.common.has_controller.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll, Token};
    use std::time::Duration;

    fn ids(handed: Vec<Handed>) -> Vec<u64> {
        let id = |handed: Handed| match handed {
            Handed::Seen { id, .. } => id,
            _ => u64::MAX,
        };
        handed.into_iter().map(id).collect()
    }

    #[test]
    fn what_is_handed_over_wakes_whom_it_is_for_and_arrives_in_order() {
        let executors = Executors::new(2).expect("so many can be");
        let mut polls = [(); 3].map(|()| Poll::new().expect("a poll"));
        let waker = |poll: &Poll| Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
        let wakers: Vec<Arc<Waker>> = polls.iter().map(waker).collect();
        let metrics = Arc::<Metrics>::default();
        let all = Others::of_all(executors, &wakers, &metrics);
        let (first, second, coordinator) = (&all[0], &all[1], &all[2]);
        let seen = |id| Handed::Seen { key: 0, id, seen: Vec::new() };
        (0..3).for_each(|id| first.give(1, seen(id)));
        let mut events = Events::with_capacity(4);
        polls[1].poll(&mut events, Some(Duration::from_secs(10))).expect("polls");
        assert!(!events.is_empty(), "it is woken");
        assert_eq!((ids(second.take()), ids(second.take())), (vec![0, 1, 2], Vec::new()));
        assert!(metrics.system_calls.each().contains(&("wake", 1)), "once for all that waits");
        polls[0].poll(&mut events, Some(Duration::ZERO)).expect("polls");
        assert!(events.is_empty(), "and the other one is not");
        let refused = (0..=MAX_WAITING as u64).filter(|id| first.offer(1, seen(*id)).is_err()).count();
        assert_eq!(refused, 1, "what waits has a limit");
        first.give(1, seen(7));
        assert_eq!(ids(second.take()).len(), MAX_WAITING + 1, "and what must not be lost has none");
        assert!(
            (64..80)
                .map(PartitionId)
                .all(|id| first.elsewhere(id).is_none() != second.elsewhere(id).is_none())
        );
        assert_eq!((first.next(), second.next(), coordinator.next()), (1, 2, 0));
        first.give_coordinator(seen(8));
        assert_eq!((ids(coordinator.take()), first.is_alone()), (vec![8], false));
        assert!((64..80).map(PartitionId).all(|id| coordinator.elsewhere(id).is_some()));
    }

    #[test]
    fn the_newest_status_of_an_executor_is_all_that_waits_for_a_coordinator_that_hangs() {
        let executors = Executors::new(2).expect("so many can be");
        let poll = Poll::new().expect("a poll");
        let waker = Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
        let all = Others::of_all(executors, &[waker.clone(), waker.clone(), waker], &Arc::default());
        let status = |commits| NodeStatus { commits, ..NodeStatus::default() };
        all[0].tell_status(status(1), true);
        all[1].tell_status(status(7), false);
        all[0].tell_status(status(2), false);
        let told = all[2].take().into_iter().map(|handed| match handed {
            Handed::Status { number, status, news } => (number, status.commits, news),
            _ => panic!("nothing else was told"),
        });
        assert_eq!(told.collect::<Vec<_>>(), [(0, 2, true), (1, 7, false)]);
    }
}

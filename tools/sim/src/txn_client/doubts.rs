//! Commits whose answers nobody has seen (PR-361). In some worlds a client dies while its commit is on its
//! way, or while flushes are, and what it has sent stays on its way; or it stops waiting, and lives on.
//! Whoever comes next asks the session of the commit what became of it, until it is told, and begins no
//! transaction before. Later a copy of the commit's request comes once more: one that was not made is never
//! made.

use super::{CALL_TIMEOUT, Open, Purpose, TxnClient, config};
use crate::check::commits::{TxnEnd, TxnOperation};
use crate::client::shell::Shell;
use crate::random::Stream;
use ::client::{FailKind, Outcome};
use types::Micros;
use wire::{Body, CommitAnswer, CommitRequest, ManagerOp, Request};

/// Requests that come once more have numbers on their connections that no core gives.
const COPIES_FROM: u64 = 1 << 63;

/// Of one client, and of those who take its place.
pub(super) struct Doubts {
    random: Stream,
    /// Controllers that a client may ask for the cluster map.
    controllers: u32,
    /// When it dies, if it is to.
    dies_at: Option<u64>,
    /// The commit that it does not know the end of.
    open: Option<Doubt>,
    /// When the session is asked; none: it is being asked.
    asks_at: Option<u64>,
    /// Requests that come once more, and when.
    copies: Vec<(u64, Request)>,
    copied: u64,
}

/// A commit that was sent, and not answered.
struct Doubt {
    operation: TxnOperation,
    /// As it was sent last.
    request: Request,
    /// What its client flushes if it was made; none: that one is dead.
    asked: Option<CommitRequest>,
}

impl Doubts {
    /// Of a client in a world of so many controllers.
    pub(super) fn new(random: Stream, controllers: u32) -> Doubts {
        let (dies_at, open, asks_at, copies) = (None, None, None, Vec::new());
        Doubts { random, controllers, dies_at, open, asks_at, copies, copied: 0 }
    }

    /// When it has something to do next, if nothing happens before.
    pub(super) fn wakes_at(&self) -> Option<u64> {
        let copies = self.copies.iter().map(|(at, _)| *at);
        copies.chain(self.dies_at).chain(self.asks_at).min()
    }

    /// No transaction begins.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// A commit is asked for now: for how long its answer is waited for. The client may die with it.
    pub(super) fn begins(&mut self, now: u64) -> Micros {
        self.may_die(now, 150);
        match self.random.chance(200) {
            true => Micros::from_millis(self.random.between(1, 6)),
            false => CALL_TIMEOUT,
        }
    }

    /// It may die within the next milliseconds.
    pub(super) fn may_die(&mut self, now: u64, permille: u64) {
        if self.random.chance(permille) {
            self.dies_at = Some(now + self.random.between(0, 6_000));
        }
    }

    fn copy_of(&mut self, now: u64, request: Request) {
        if self.random.chance(600) {
            self.copied += 1;
            let at = now + self.random.between(0, 300_000);
            self.copies.push((at, Request { id: COPIES_FROM + self.copied, ..request }));
        }
    }
}

impl TxnClient {
    /// Does what is due: it dies, asks a session, or what it has sent comes once more.
    pub(super) fn doubts_step(&mut self, now: u64) {
        let Some(doubts) = &mut self.incarnation.doubts else { return };
        let due: Vec<_> = doubts.copies.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, request) in due {
            self.shell.send_copy(request);
        }
        if doubts.dies_at.take_if(|at| *at <= now).is_some() {
            self.die_anywhere(now);
        }
        self.ask_session(now);
    }

    /// It dies, whatever it is doing, and its connections stay what they are. Another one takes its place,
    /// who knows which commit it had sent.
    fn die_anywhere(&mut self, now: u64) {
        if self.open.as_ref().is_some_and(|open| open.asked.is_some()) {
            self.doubt(now, false);
        }
        let Some(doubts) = &mut self.incarnation.doubts else { return };
        let mut shell = Shell::new(self.id, config(&mut doubts.random), doubts.controllers);
        shell.begin_behind(&mut self.shell);
        self.shell = shell;
        if let Some(doubt) = &mut doubts.open {
            doubt.asked = None;
            doubts.asks_at = Some(now + doubts.random.between(0, 50_000));
        }
        self.die(now);
    }

    /// The answer to the commit did not come to its client, which `lives_on` or not. What was never sent is
    /// not made.
    pub(super) fn doubt(&mut self, now: u64, lives_on: bool) {
        let sent = self.shell.take_commit_sent();
        let (Some(doubts), Some(request)) = (&mut self.incarnation.doubts, sent) else {
            return self.end(now, if lives_on { TxnEnd::Unknown } else { TxnEnd::NotDone });
        };
        let Some(Open { operation, asked, .. }) = self.open.take() else { return };
        doubts.open = Some(Doubt { operation, request, asked: asked.filter(|_| lives_on) });
        doubts.asks_at = Some(now + doubts.random.between(0, 20_000));
    }

    fn ask_session(&mut self, now: u64) {
        let manager = self.manager();
        let Some(doubts) = &mut self.incarnation.doubts else { return };
        let Some(Doubt { request, .. }) = &doubts.open else { return };
        if doubts.asks_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        let Some(manager) = manager else {
            doubts.asks_at = Some(now + doubts.random.between(5_000, 50_000));
            return;
        };
        let (session, seq) = (request.session, request.seq);
        self.submit(now, manager.call(ManagerOp::Outcome { session, seq }), Purpose::Resolve);
    }

    /// A session was asked.
    pub(super) fn session_answered(&mut self, now: u64, outcome: Outcome) {
        let Some(doubts) = &mut self.incarnation.doubts else { return };
        let answer = match outcome {
            Outcome::Ok(answer) => answer,
            Outcome::Refused(..) => return self.resolved(now, TxnEnd::Refused),
            // The session is known no more.
            Outcome::Failed(FailKind::TooOld | FailKind::Bad, _) => {
                return self.resolved(now, TxnEnd::Unknown);
            }
            Outcome::Failed(..) | Outcome::Unknown(_) => {
                doubts.asks_at = Some(now + doubts.random.between(5_000, 100_000));
                return;
            }
        };
        let Body::Commit(CommitAnswer::Committed(previous)) = answer.body.clone() else {
            self.reported.fault = Some(format!("a session was asked, and said {:?}", answer.body));
            return self.resolved(now, TxnEnd::Unknown);
        };
        let asked = doubts.open.as_mut().and_then(|doubt| doubt.asked.take());
        self.resolved(now, TxnEnd::Committed(answer.position()));
        if let Some(asked) = asked {
            self.flush_all(now, answer.position(), (previous, asked));
        }
    }

    /// That is how it ended.
    fn resolved(&mut self, now: u64, told: TxnEnd) {
        let Some(doubts) = &mut self.incarnation.doubts else { return };
        let Some(Doubt { operation, request, .. }) = doubts.open.take() else { return };
        doubts.asks_at = None;
        doubts.copy_of(now, request);
        self.incarnation.next_at = now + doubts.random.between(1_000, 60_000);
        self.reported.history.push(TxnOperation { completed: now, told, resolved: true, ..operation });
    }

    /// The run is over: what nobody was told stays unknown.
    pub(super) fn give_doubts_up(&mut self, now: u64) {
        self.resolved(now, TxnEnd::Unknown);
    }
}

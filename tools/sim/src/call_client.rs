//! A client that calls procedures of the database, one call after the other, each again until it is decided.
//! It makes them first, with the table that they are about.

use crate::check::calls::{Asked, CallAnswer};
use crate::client::ClientEffect;
use crate::network::Conn;
use crate::plan::RunPlan;
use crate::programs::{COUNT, MIX, arguments, definitions, given};
use crate::random::Stream;
use std::collections::BTreeMap;
use types::{PartitionId, SessionId, TableId};
use wire::{Body, CallRequest, CallResult, Op, Outcome, RecordText, Reply, Request, Status, TableChange};

/// An attempt without an answer is given up after this.
const ATTEMPT: u64 = 400_000;
/// What is not decided by then is given up.
const WAIT_LIMIT_US: u64 = 4_000_000;
/// Rows that are added to: few, so that calls meet.
const ROWS: u64 = 4;

/// A row to which nothing can be added any more.
const FULL: i64 = 99;

/// What is being asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Table and procedures are to be there.
    Define,
    Count(i64, i64),
    Mix(i64, i64, i64),
}

impl What {
    fn op(self) -> Op {
        let (procedure, numbers) = match self {
            What::Define => {
                let create = |table: &types::CatalogTable| TableChange::Create(RecordText::new(table));
                let changes = definitions().iter().map(create).collect();
                return Op::Transact { changes, parts: Vec::new(), since: None };
            }
            What::Count(id, by) => (COUNT, vec![id, by]),
            What::Mix(id, by, loops) => (MIX, vec![id, by, loops]),
        };
        let route = bytes::Bytes::new();
        Op::Call(CallRequest {
            procedure,
            version: 1,
            arguments: arguments(&numbers),
            route,
            read_only: false,
        })
    }

    fn asked(self) -> Option<Asked> {
        match self {
            What::Define => None,
            What::Count(id, by) | What::Mix(id, by, _) => Some(Asked { id, by }),
        }
    }
}

struct Open {
    what: What,
    deadline: u64,
    /// The attempt on its way: request, since when.
    flight: Option<(u64, u64)>,
    retry_at: u64,
}

/// A client of the plan's procedures. Has one connection per node.
pub struct CallClient {
    id: u32,
    nodes: u32,
    random: Stream,
    place: (PartitionId, TableId),
    links: BTreeMap<u32, Option<Conn>>,
    turn: u32,
    session: Option<SessionId>,
    seq: u64,
    defined: bool,
    next_number: u64,
    next_at: u64,
    open: Option<Open>,
    asked: BTreeMap<(SessionId, u64), Asked>,
    told: Vec<CallAnswer>,
    fault: Option<String>,
}

impl CallClient {
    /// A client of a plan that has a database.
    pub fn new(id: u32, random: Stream, plan: &RunPlan) -> Option<CallClient> {
        Some(CallClient {
            id,
            nodes: plan.nodes,
            random,
            place: plan.database()?,
            links: BTreeMap::new(),
            turn: id,
            session: None,
            seq: 1,
            defined: false,
            next_number: 0,
            next_at: 0,
            open: None,
            asked: BTreeMap::new(),
            told: Vec::new(),
            fault: None,
        })
    }

    /// Everything that may have been done: in which number of which session.
    pub fn asked(&self) -> &BTreeMap<(SessionId, u64), Asked> {
        &self.asked
    }

    /// What it was told.
    pub fn told(&self) -> &[CallAnswer] {
        &self.told
    }

    /// What a reply said that it must never say.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// A connection was made, or not, or broke.
    pub fn linked(&mut self, node: u32, conn: Option<Conn>) {
        if conn.is_some() {
            self.links.insert(node, conn);
            return;
        }
        self.links.remove(&node);
        self.turn += 1;
        if let Some(open) = &mut self.open {
            open.flight = None;
        }
    }

    /// Does what is due. Nothing new is begun unless `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        if self.open.is_none() && goes_on && now >= self.next_at {
            let what = self.next();
            self.next_at = now + self.random.between(5_000, 80_000);
            let deadline = now + WAIT_LIMIT_US;
            self.open = Some(Open { what, deadline, flight: None, retry_at: now });
        }
        if self.open.as_ref().is_some_and(|open| now >= open.deadline) {
            self.forget();
        }
        self.try_send(now).into_iter().collect()
    }

    /// What is not decided stays unknown.
    pub fn forget(&mut self) {
        (self.open, self.session, self.seq) = (None, None, 1);
    }

    fn next(&mut self) -> What {
        if !self.defined {
            return What::Define;
        }
        let (id, by) = (self.random.below(ROWS) as i64, self.random.between(1, 1_000) as i64);
        match self.random.below(10) {
            // Too large a sum, but for the first time: it fails.
            0 => What::Count(FULL, i64::MAX),
            1..6 => What::Count(id, by),
            _ => What::Mix(id, by, *self.random.pick(&[1, 50, 8_000, 200_000]).expect("not empty")),
        }
    }

    fn try_send(&mut self, now: u64) -> Option<ClientEffect> {
        let open = self.open.as_mut()?;
        if open.flight.is_some_and(|(_, since)| now >= since + ATTEMPT) {
            (open.flight, self.turn) = (None, self.turn + 1);
        }
        if open.flight.is_some() || now < open.retry_at {
            return None;
        }
        let node = 1 + self.turn % self.nodes;
        match self.links.get(&node) {
            Some(Some(conn)) => {
                self.next_number += 1;
                let id = u64::from(self.id) << 32 | self.next_number;
                open.flight = Some((id, now));
                let (partition, database) = self.place;
                let of = |op| Request { id, trace: id, ..Request::new(database, 0, partition, op) };
                let request = match self.session {
                    None => of(Op::OpenSession),
                    Some(session) => {
                        let asked = open.what.asked().map(|asked| ((session, self.seq), asked));
                        self.asked.extend(asked);
                        let (seq, confirmed) = (self.seq, self.seq - 1);
                        Request { session, seq, confirmed, ..of(open.what.op()) }
                    }
                };
                Some(ClientEffect::Send(*conn, Box::new(request)))
            }
            Some(None) => None,
            None => {
                self.links.insert(node, None);
                Some(ClientEffect::Dial(node, 0))
            }
        }
    }

    /// A reply came. Gives what is worth being counted.
    pub fn hear(&mut self, now: u64, reply: &Reply) -> Option<&'static str> {
        let wait = self.random.between(5_000, 40_000);
        let ours = |open: &&mut Open| open.flight.is_some_and(|(request, _)| request == reply.id);
        let open = self.open.as_mut().filter(ours)?;
        (open.flight, open.retry_at) = (None, now);
        let what = open.what;
        if self.session.is_none() && reply.status == Status::Ok {
            (self.session, self.seq) = (Some(SessionId(reply.position())), 1);
            return None;
        }
        let seen = match (&reply.status, &reply.body) {
            (Status::Ok | Status::Refused(_), _) if what == What::Define => {
                self.defined = true;
                Some("procedures-made")
            }
            (Status::Ok, Body::Called(CallResult::Rows(rows))) => {
                match given(rows) {
                    Ok(number) => self.told.push(CallAnswer { at: reply.position(), number }),
                    Err(why) => self.fault = Some(why),
                }
                Some("call-done")
            }
            (Status::Refused(Outcome::CallFailed), _) => Some("call-failed"),
            // What was made is lost, or was not there yet.
            (Status::Refused(Outcome::Stale), _) => {
                self.defined = false;
                Some("call-stale")
            }
            (Status::Unknown(_) | Status::Bad(_) | Status::Expected(_), _) => {
                self.forget();
                return None;
            }
            (Status::Ok | Status::Refused(_), _) => {
                self.fault = Some(format!("{what:?} was answered with {reply:?}"));
                None
            }
            (status, _) => {
                self.turn += u32::from(!matches!(status, Status::NotYet(_)));
                open.retry_at = now + wait;
                return None;
            }
        };
        (self.open, self.seq) = (None, self.seq + 1);
        seen
    }
}

//! Numbers for tables and for versions of their columns, which controllers give out (PR-120).

use crate::client::{ClientEffect, LinkNews};
use crate::network::Conn;
use wire::control::{Admin, AdminAnswer, AdminCommand};

/// So many are asked for at once.
const NUMBERS_ASKED: u32 = 9;
/// An answer is waited for so long, virtual microseconds.
const ANSWER_TIMEOUT_US: u64 = 700_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Dialling,
    Up(Conn),
}

/// The numbers that a client has, and how it comes to more. It has one connection to some controller.
#[derive(Debug)]
pub(super) struct Numbers {
    controllers: u32,
    next: u32,
    link: Option<Link>,
    asked: u64,
    waits_since: Option<u64>,
    left: Vec<u32>,
    /// The first of each lot.
    given: Vec<u32>,
}

impl Numbers {
    /// None yet; `next` is the controller that is asked first.
    pub fn new(controllers: u32, next: u32) -> Numbers {
        let (link, left, given) = (None, Vec::new(), Vec::new());
        Numbers { controllers, next, link, asked: 0, waits_since: None, left, given }
    }

    /// These, as if they had been given out.
    #[cfg(test)]
    pub fn of(given: std::ops::Range<u32>) -> Numbers {
        Numbers { left: given.rev().collect(), ..Numbers::new(1, 0) }
    }

    /// One that nobody else has, if there is one left.
    pub fn take(&mut self) -> Option<u32> {
        self.left.pop()
    }

    /// True if there are enough for the longest of what is asked at once.
    pub fn are_enough(&self) -> bool {
        self.left.len() >= 3
    }

    /// All that were given out: the first of each lot, and how many that has.
    pub fn given(&self) -> impl Iterator<Item = (u32, u32)> {
        self.given.iter().map(|first| (*first, NUMBERS_ASKED))
    }

    /// Asks for more if need be.
    pub fn step(&mut self, now: u64) -> Option<ClientEffect> {
        let waits_long = self.waits_since.is_some_and(|since| now >= since + ANSWER_TIMEOUT_US);
        match self.link {
            Some(Link::Up(conn)) if waits_long => {
                self.linked(LinkNews::Broken(conn));
                Some(ClientEffect::Close(conn))
            }
            Some(Link::Up(conn)) if self.waits_since.is_none() && !self.are_enough() => {
                self.asked += 1;
                self.waits_since = Some(now);
                let command = AdminCommand::Numbers(NUMBERS_ASKED);
                Some(ClientEffect::Ask(conn, Box::new(Admin { id: self.asked, command })))
            }
            None if !self.are_enough() => {
                self.link = Some(Link::Dialling);
                Some(ClientEffect::DialController(self.next % self.controllers))
            }
            _ => None,
        }
    }

    /// There is news of the connection.
    pub fn linked(&mut self, news: LinkNews) {
        match news {
            LinkNews::Up(conn) => self.link = Some(Link::Up(conn)),
            LinkNews::Broken(conn) if self.link != Some(Link::Up(conn)) => return,
            LinkNews::Failed | LinkNews::Broken(_) => {
                self.link = None;
                self.next += 1;
            }
        }
        self.waits_since = None;
    }

    /// A controller has answered. One that cannot do it is left, as if it had been silent for long.
    pub fn hear(&mut self, now: u64, conn: Conn, answer: &AdminAnswer) {
        if self.link != Some(Link::Up(conn)) || answer.id != self.asked {
            return;
        }
        let first = answer.result.as_ref().ok().and_then(|text| text.parse::<u32>().ok());
        let Some(first) = first else {
            self.waits_since = Some(now.saturating_sub(ANSWER_TIMEOUT_US));
            return;
        };
        self.waits_since = None;
        self.given.push(first);
        self.left.extend((first..first + NUMBERS_ASKED).rev());
    }
}

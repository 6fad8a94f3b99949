//! The clients' side: their wants are carried out, and what they hear is handed in.

use super::{Event, Phase, World};
use crate::client::{ClientEffect, LinkNews};
use crate::network::{Conn, Endpoint, Lane};
use wire::Message;
use wire::control::{Admin, AdminCommand};

impl World {
    pub(super) fn client_wakes(&mut self, id: u32) {
        if self.stage.phase() == Phase::Done {
            return;
        }
        self.client_steps(id);
        let (now, wait) = (self.now(), 8_000 + self.schedule.timing().below(12_000));
        // Not before the next microsecond: time goes on.
        let due = self.clients.wakes_at(id).map_or(wait, |at| at.saturating_sub(now).max(1));
        self.after(wait.min(due), Event::Client { id });
    }

    fn client_steps(&mut self, id: u32) {
        let goes_on = self.stage.phase() == Phase::Faults;
        let wants = self.clients.step(id, self.schedule.now(), goes_on);
        for (load, changes) in self.clients.take_made() {
            self.checks.lineage.will_load(load, changes);
        }
        for want in wants {
            match want {
                ClientEffect::Send(conn, request) => self.send(conn, true, Message::Request(*request)),
                ClientEffect::Watch(conn) => {
                    let command = AdminCommand::Watch;
                    self.send(conn, true, Message::Admin(Admin { id: 0, command }));
                }
                ClientEffect::Ask(conn, admin) => self.send(conn, true, Message::Admin(*admin)),
                ClientEffect::Close(conn) => self.break_conn(conn, false),
                ClientEffect::DialController(controller) => {
                    let wait = 100 + self.schedule.timing().below(500);
                    let (from, to) = ((Endpoint::Client(id), 0), Endpoint::Controller(controller));
                    self.after(wait, Event::Dial { from, to, lane: Lane::Control });
                }
                ClientEffect::Dial(node, slot) => {
                    let wait = 100 + self.schedule.timing().below(500);
                    let (from, to) = ((Endpoint::Client(id), 0), Endpoint::Node(node));
                    self.after(wait, Event::Dial { from, to, lane: Lane::Client(slot) });
                }
            }
        }
    }

    pub(super) fn client_linked(&mut self, at: Endpoint, to: Endpoint, slot: u16, news: LinkNews) {
        let Endpoint::Client(id) = at else { return };
        self.clients.linked(id, self.schedule.now(), (to, slot), news);
        if news.up().is_some() {
            self.client_steps(id);
        }
    }

    pub(super) fn client_hears(&mut self, id: u32, from: Endpoint, conn: Conn, message: Message) {
        let heard = self.clients.hear(id, self.schedule.now(), (from, conn), message);
        heard.seen.into_iter().for_each(|what| self.injected(what));
        self.counts.add_operations(heard.ended);
        if let Some(fault) = heard.fault {
            self.checks.fault("I9", self.now(), fault);
        }
        let before = self.clients.taken().len();
        self.client_steps(id);
        if self.clients.taken().len() > before {
            self.injected("point-taken");
        }
    }
}

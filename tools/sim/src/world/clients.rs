//! The clients' side: their wants are carried out, and what they hear is handed in.

use super::{Event, Phase, World};
use crate::client::ClientEffect;
use crate::network::{Conn, Endpoint, Lane};
use wire::Message;

impl World {
    pub(super) fn client_wakes(&mut self, id: u32) {
        if self.stage.phase() == Phase::Done {
            return;
        }
        self.client_steps(id);
        let wait = 8_000 + self.schedule.timing().below(12_000);
        self.after(wait, Event::Client { id });
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
                ClientEffect::Dial(node, slot) => {
                    let wait = 100 + self.schedule.timing().below(500);
                    let (from, to) = ((Endpoint::Client(id), 0), Endpoint::Node(node));
                    self.after(wait, Event::Dial { from, to, lane: Lane::Client(slot) });
                }
            }
        }
    }

    pub(super) fn client_linked(&mut self, at: Endpoint, node: Endpoint, slot: u16, conn: Option<Conn>) {
        let (Endpoint::Client(id), Endpoint::Node(node)) = (at, node) else { return };
        self.clients.linked(id, node, slot, conn);
        if conn.is_some() {
            self.client_steps(id);
        }
    }

    pub(super) fn client_hears(&mut self, id: u32, message: Message) {
        let Message::Reply(reply) = message else { return };
        let heard = self.clients.hear(id, self.schedule.now(), reply);
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

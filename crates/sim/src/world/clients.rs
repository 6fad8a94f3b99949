//! The clients' side: their wants are carried out, and what they hear is handed in.

use super::{Event, Phase, World};
use crate::check::history::{Operation, Told};
use crate::client::Want;
use crate::loader::Loader;
use crate::network::{Conn, Endpoint, Lane};
use wire::Message;

impl World {
    pub(super) fn client_wakes(&mut self, id: u32) {
        if self.phase == Phase::Done {
            return;
        }
        self.client_steps(id);
        let wait = 8_000 + self.timing.below(12_000);
        self.after(wait, Event::Client { id });
    }

    fn client_steps(&mut self, id: u32) {
        let goes_on = self.phase == Phase::Faults;
        let wants = match self.clients.get_mut(id as usize) {
            Some(client) => client.step(self.now),
            None if id == self.plan.clients => self.taker.step(self.now, goes_on),
            None if id == self.plan.clients + 2 => self.jobber.step(self.now, goes_on),
            None => {
                let wants = self.loader.step(self.now, goes_on);
                for (load, changes) in self.loader.take_made() {
                    self.checks.lineage.will_load(load, changes);
                }
                wants
            }
        };
        for want in wants {
            match want {
                Want::Send(conn, request) => self.send(conn, true, Message::Request(*request)),
                Want::Dial(node, slot) => {
                    let wait = 100 + self.timing.below(500);
                    let (from, to) = ((Endpoint::Client(id), 0), Endpoint::Node(node));
                    self.after(wait, Event::Dial { from, to, lane: Lane::Client(slot) });
                }
            }
        }
    }

    pub(super) fn client_linked(&mut self, at: Endpoint, node: Endpoint, slot: u16, conn: Option<Conn>) {
        let (Endpoint::Client(id), Endpoint::Node(node)) = (at, node) else { return };
        match self.clients.get_mut(id as usize) {
            Some(client) => client.linked(node, slot, conn),
            None if id == self.plan.clients => self.taker.linked(node, conn),
            None if id == self.plan.clients + 2 => self.jobber.linked(node, conn),
            None => self.loader.linked(node, conn),
        }
        if conn.is_some() {
            self.client_steps(id);
        }
    }

    pub(super) fn client_hears(&mut self, id: u32, _from: Endpoint, message: Message) {
        let Message::Reply(reply) = message else { return };
        if id == self.plan.clients + 2 {
            let before = self.jobber.ended();
            self.jobber.hear(self.now, &reply);
            let (committed, aborted) = self.jobber.ended();
            (before.0..committed).for_each(|_| self.struck("job-committed"));
            (before.1..aborted).for_each(|_| self.struck("job-aborted"));
            return self.client_steps(id);
        }
        if id > self.plan.clients {
            let done = |loader: &Loader| {
                let told = |operation: &&Operation| matches!(operation.told, Told::Done { .. });
                loader.history().iter().filter(told).count()
            };
            let before = done(&self.loader);
            self.loader.hear(self.now, &reply);
            if done(&self.loader) > before {
                self.struck("bulk-loaded");
            }
            return self.client_steps(id);
        }
        if id as usize >= self.clients.len() {
            self.taker.hear(self.now, &reply);
            let before = self.taker.taken().len();
            self.client_steps(id);
            if self.taker.taken().len() > before {
                self.struck("point-taken");
            }
            return;
        }
        let before = self.clients[id as usize].history().len();
        self.clients[id as usize].hear(self.now, reply);
        let client = &self.clients[id as usize];
        self.operations += (client.history().len() - before) as u64;
        if let Some(fault) = client.fault() {
            let text = fault.to_string();
            self.checks.fault("I9", self.now, text);
        }
        self.client_steps(id);
    }
}

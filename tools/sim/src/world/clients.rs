//! The clients' side: their wants are carried out, and what they hear is handed in.

use super::{Event, Phase, World};
use crate::check::history::{Answer, Operation};
use crate::client::ClientEffect;
use crate::load_client::LoadClient;
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
            None if id == self.plan.clients => self.snapshot_client.step(self.now, goes_on),
            None if id == self.plan.clients + 2 => self.job_client.step(self.now, goes_on),
            None => {
                let wants = self.load_client.step(self.now, goes_on);
                for (load, changes) in self.load_client.take_made() {
                    self.checks.lineage.will_load(load, changes);
                }
                wants
            }
        };
        for want in wants {
            match want {
                ClientEffect::Send(conn, request) => self.send(conn, true, Message::Request(*request)),
                ClientEffect::Dial(node, slot) => {
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
            None if id == self.plan.clients => self.snapshot_client.linked(node, conn),
            None if id == self.plan.clients + 2 => self.job_client.linked(node, conn),
            None => self.load_client.linked(node, conn),
        }
        if conn.is_some() {
            self.client_steps(id);
        }
    }

    pub(super) fn client_hears(&mut self, id: u32, _from: Endpoint, message: Message) {
        let Message::Reply(reply) = message else { return };
        if id == self.plan.clients + 2 {
            let before = self.job_client.ended();
            self.job_client.hear(self.now, &reply);
            let (committed, aborted) = self.job_client.ended();
            (before.0..committed).for_each(|_| self.injected("job-committed"));
            (before.1..aborted).for_each(|_| self.injected("job-aborted"));
            return self.client_steps(id);
        }
        if id > self.plan.clients {
            let done = |load_client: &LoadClient| {
                let told = |operation: &&Operation| matches!(operation.told, Answer::Done { .. });
                load_client.history().iter().filter(told).count()
            };
            let before = done(&self.load_client);
            self.load_client.hear(self.now, &reply);
            if done(&self.load_client) > before {
                self.injected("bulk-loaded");
            }
            return self.client_steps(id);
        }
        if id as usize >= self.clients.len() {
            self.snapshot_client.hear(self.now, &reply);
            let before = self.snapshot_client.taken().len();
            self.client_steps(id);
            if self.snapshot_client.taken().len() > before {
                self.injected("point-taken");
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

//! What carries out the effects of the native client's core, as the native client's shell does it, over a
//! simulated network and in virtual time.

use crate::client::{ClientEffect, LinkNews};
use crate::network::{Conn, Endpoint};
use ::client::{Call, Completed, Core, CoreConfig, Effect, LaneId, Ticket};
use std::collections::BTreeMap;
use types::{Micros, NodeId, SessionId};
use wire::control::ClusterMap;
use wire::{Message, Op, Reply, Request};

/// The connections of the core are the first ones to each node.
const SLOT: u16 = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Dialling,
    Up(Conn),
}

/// The connection to some controller, from which the cluster map comes.
#[derive(Debug)]
struct Watch {
    link: Option<Link>,
    controllers: u32,
    next: u32,
    retry_at: u64,
}

/// The core, and its connections.
pub struct Shell {
    core: Core,
    links: BTreeMap<u32, Link>,
    watch: Watch,
    /// What is to be carried out with the next step.
    effects: Vec<ClientEffect>,
    /// Numbered requests that were sent since they were last asked for.
    sent: Vec<(Ticket, SessionId, u64)>,
    /// The commit of a global transaction that was sent last.
    commit_sent: Option<Request>,
    fault: Option<String>,
}

impl Shell {
    /// A shell of the client with this name, in a world of so many controllers.
    pub fn new(id: u32, config: CoreConfig, controllers: u32) -> Shell {
        Shell {
            core: Core::new(config),
            links: BTreeMap::new(),
            watch: Watch { link: None, controllers, next: id, retry_at: 0 },
            effects: Vec::new(),
            sent: Vec::new(),
            commit_sent: None,
            fault: None,
        }
    }

    /// The core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The same, to be asked.
    pub fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    /// Takes a call in.
    pub fn submit(&mut self, now: u64, lane: LaneId, call: Call) -> Ticket {
        self.core.submit(Micros(now), lane, call)
    }

    /// What is due of the core, and a connection to a controller if there is none.
    pub fn tick(&mut self, now: u64) {
        self.core.tick(Micros(now));
        if self.watch.link.is_none() && now >= self.watch.retry_at {
            self.watch.link = Some(Link::Dialling);
            self.effects.push(ClientEffect::DialController(self.watch.next % self.watch.controllers));
        }
    }

    /// Carries out what the core asks for.
    pub fn carry_out(&mut self, now: u64) {
        while let Some(effect) = self.core.next_effect() {
            self.carry_out_one(now, effect);
        }
    }

    /// The next call that has ended.
    pub fn next_completed(&mut self) -> Option<Completed> {
        self.core.next_completed()
    }

    /// Numbered requests that were sent: the ticket, the session, and the number.
    pub fn take_sent(&mut self) -> Vec<(Ticket, SessionId, u64)> {
        std::mem::take(&mut self.sent)
    }

    /// The commit of a global transaction that was sent last, since this was last asked for.
    pub fn take_commit_sent(&mut self) -> Option<Request> {
        self.commit_sent.take()
    }

    /// Sends a request whose answer nobody waits for to whoever leads its partition, if it is connected.
    pub fn send_copy(&mut self, request: Request) {
        let node = self.core.map().primary(request.partition);
        if let Some(Link::Up(conn)) = node.and_then(|node| self.links.get(&node.0)) {
            self.effects.push(ClientEffect::Send(*conn, Box::new(request)));
        }
    }

    /// Begins behind another one that is dead: what that one has sent stays on its way.
    pub fn begin_behind(&mut self, dead: &mut Shell) {
        self.effects.splice(0..0, dead.take_effects());
    }

    /// What the world is to do.
    pub fn take_effects(&mut self) -> Vec<ClientEffect> {
        std::mem::take(&mut self.effects)
    }

    /// What was wrong with what it heard.
    pub fn take_fault(&mut self) -> Option<String> {
        self.fault.take()
    }

    fn carry_out_one(&mut self, now: u64, effect: Effect) {
        match effect {
            Effect::Connect(node) if self.core.map().node(node).is_none() => {
                self.core.disconnected(Micros(now), node, "its address is not known");
            }
            Effect::Connect(node) => {
                self.links.insert(node.0, Link::Dialling);
                self.effects.push(ClientEffect::Dial(node.0, SLOT));
            }
            Effect::Close(node) => {
                if let Some(Link::Up(conn)) = self.links.remove(&node.0) {
                    self.effects.push(ClientEffect::Close(conn));
                }
            }
            Effect::Send(node, id) => {
                let Some(Link::Up(conn)) = self.links.get(&node.0) else { return };
                let Some(Message::Request(request)) = self.core.message(id) else { return };
                if request.session.is_some() {
                    self.sent.push((Ticket(id >> 16), request.session, request.seq));
                    if matches!(request.op, Op::Manager(_)) {
                        self.commit_sent = Some(request.clone());
                    }
                }
                self.effects.push(ClientEffect::Send(*conn, Box::new(request.clone())));
            }
        }
    }

    /// There is news of a connection. `wait` says after how long another controller is tried, microseconds.
    pub fn linked(&mut self, now: u64, to: Endpoint, news: LinkNews, wait: impl FnOnce() -> u64) {
        let Endpoint::Node(id) = to else { return self.control_linked(now, news, wait) };
        let node = NodeId(id);
        match news {
            LinkNews::Up(conn) => {
                self.links.insert(id, Link::Up(conn));
                self.core.connected(Micros(now), node);
            }
            LinkNews::Broken(conn) if self.links.get(&id) != Some(&Link::Up(conn)) => {}
            LinkNews::Failed | LinkNews::Broken(_) => {
                self.links.remove(&id);
                self.core.disconnected(Micros(now), node, "the connection is gone");
            }
        }
    }

    fn control_linked(&mut self, now: u64, news: LinkNews, wait: impl FnOnce() -> u64) {
        match news {
            LinkNews::Up(conn) => {
                self.watch.link = Some(Link::Up(conn));
                self.effects.push(ClientEffect::Watch(conn));
            }
            LinkNews::Broken(conn) if self.watch.link != Some(Link::Up(conn)) => {}
            LinkNews::Failed | LinkNews::Broken(_) => {
                self.watch.link = None;
                self.watch.next += 1;
                self.watch.retry_at = now + wait();
            }
        }
    }

    /// A message came.
    pub fn hear(
        &mut self,
        now: u64,
        (from, conn): (Endpoint, Conn),
        message: Message,
        wait: impl FnOnce() -> u64,
    ) {
        match message {
            Message::Reply(reply) => self.reply_came(now, from, conn, reply),
            Message::ClusterMap(cluster_map) => self.map_came(now, &cluster_map),
            Message::AdminAnswer(answer) => {
                if answer.result.is_err() && self.watch.link == Some(Link::Up(conn)) {
                    self.effects.push(ClientEffect::Close(conn));
                    self.control_linked(now, LinkNews::Broken(conn), wait);
                }
            }
            other => drop(self.fault.get_or_insert(format!("{from} sends a client {}", other.name()))),
        }
    }

    /// A cluster map came: nodes that live elsewhere, or again, are connected to anew.
    fn map_came(&mut self, now: u64, cluster_map: &ClusterMap) {
        match self.core.cluster_map(Micros(now), cluster_map) {
            Ok(moved) => moved.into_iter().for_each(|node| self.node_moved(now, node)),
            Err(why) => drop(self.fault.get_or_insert(why)),
        }
    }

    fn node_moved(&mut self, now: u64, node: NodeId) {
        if let Some(Link::Up(conn)) = self.links.get(&node.0).copied() {
            self.links.remove(&node.0);
            self.effects.push(ClientEffect::Close(conn));
            self.core.disconnected(Micros(now), node, "the node restarted");
        }
    }

    fn reply_came(&mut self, now: u64, from: Endpoint, conn: Conn, reply: Reply) {
        // What a connection still carried that is gone is not read any more.
        if let Endpoint::Node(node) = from
            && self.links.get(&node) == Some(&Link::Up(conn))
        {
            self.core.reply(Micros(now), NodeId(node), reply);
        }
    }
}

//! Connections are made, carry messages, and break.

use super::{Event, World};
use crate::client::LinkNews;
use crate::network::{Conn, Delivery, Endpoint, Lane, Sent};
use wire::Message;
use wire::control::Register;
use wire::hello::PROTOCOL;

/// How long somebody waits before connecting again.
const RECONNECT_DELAY_US: u64 = 50_000;
/// One of so many messages goes through the codec.
const CODEC_EVERY: u64 = 16;

impl World {
    /// The life that runs at an endpoint; none: nobody is there.
    pub(super) fn incarnation_at(&self, endpoint: Endpoint) -> Option<u64> {
        match endpoint {
            Endpoint::Node(node) => self.machine(node).incarnation(),
            Endpoint::Controller(id) => self.control.controllers.incarnation(id),
            Endpoint::Client(_) | Endpoint::Operator => Some(0),
        }
    }

    pub(super) fn dial(&mut self, from: (Endpoint, u64), to: Endpoint, lane: Lane) {
        if self.incarnation_at(from.0) != Some(from.1) {
            return;
        }
        let incarnation = self.incarnation_at(to).filter(|_| self.network.reachable(from.0, to, lane));
        let talk = [from.0, to].into_iter().all(|end| self.talks(end, lane));
        let talk = talk && self.protocol_of(from.0) == self.protocol_of(to);
        let Some(incarnation) = incarnation.filter(|_| talk && !self.is_paused(to)) else {
            return self.dial_failed(from, to, lane);
        };
        if self.is_linked(from.0, to, incarnation, lane) {
            return;
        }
        let conn = self.network.connect(from, (to, incarnation), lane);
        self.trace.note(self.now(), format_args!("{} connects to {to} for {lane:?}: {conn}", from.0));
        match lane {
            Lane::Peer | Lane::Heartbeat => {
                self.node_linked(from.0, to, conn, lane);
                self.node_linked(to, from.0, conn, lane);
            }
            Lane::Control => self.control_linked(from.0, to, conn),
            Lane::Client(slot) => self.client_linked(from.0, to, slot, LinkNews::Up(conn)),
        }
    }

    /// True if there is such a connection to this life already.
    fn is_linked(&self, from: Endpoint, to: Endpoint, incarnation: u64, lane: Lane) -> bool {
        let Endpoint::Node(node) = from else { return false };
        let Some(process) = &self.machine(node).process else { return false };
        let open = process.links.to(to, lane).and_then(|conn| self.network.get(conn));
        open.is_some_and(|open| open.from == (to, incarnation) || open.to == (to, incarnation))
    }

    /// True unless that is a node that no controller has let in yet, and others are to talk to it.
    fn talks(&self, endpoint: Endpoint, lane: Lane) -> bool {
        let Endpoint::Node(node) = endpoint else { return true };
        let process = self.machine(node).process.as_ref();
        !matches!(lane, Lane::Peer | Lane::Heartbeat) || process.is_some_and(|process| process.let_in)
    }

    /// The version of the protocol that an endpoint speaks: who is told another one in the first message
    /// refuses the connection.
    fn protocol_of(&self, endpoint: Endpoint) -> u32 {
        let other = match endpoint {
            Endpoint::Node(node) => self.machine(node).starts.are_of_other_build(),
            _ => false,
        };
        PROTOCOL + u32::from(other)
    }

    fn is_paused(&self, endpoint: Endpoint) -> bool {
        matches!(endpoint, Endpoint::Node(node) if self.machine(node).standing.is_paused())
    }

    fn dial_failed(&mut self, from: (Endpoint, u64), to: Endpoint, lane: Lane) {
        match (from.0, lane) {
            (Endpoint::Node(_), _) => {
                let wait = RECONNECT_DELAY_US + self.schedule.timing().below(RECONNECT_DELAY_US);
                self.after(wait, Event::Dial { from, to, lane });
            }
            (Endpoint::Client(_), _) => self.client_linked(from.0, to, slot_of(lane), LinkNews::Failed),
            _ => self.operator_unlinked(),
        }
    }

    fn node_linked(&mut self, at: Endpoint, other: Endpoint, conn: Conn, lane: Lane) {
        let (Endpoint::Node(node), Endpoint::Node(peer)) = (at, other) else { return };
        let Some(member) = self.machine(peer).member() else { return };
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        process.links.link(member, lane, conn);
        if lane == Lane::Peer {
            self.input(node, |host, now, out| host.connected(now, member, out));
        }
    }

    fn control_linked(&mut self, from: Endpoint, to: Endpoint, conn: Conn) {
        let Endpoint::Controller(controller) = to else { return };
        match from {
            Endpoint::Node(node) => {
                if let Some(process) = self.machine_mut(node).process.as_mut() {
                    process.links.link_controller(controller, conn);
                    self.meets_controller(node, controller, conn);
                }
            }
            Endpoint::Client(_) => self.client_linked(from, to, 0, LinkNews::Up(conn)),
            _ => self.operator_linked(conn),
        }
    }

    /// Says who the node is.
    pub(super) fn register(&mut self, node: u32, conn: Conn) {
        let Some(process) = &self.machine(node).process else { return };
        let addresses = types::config::Addresses { client: format!("n{node}:1"), ..Default::default() };
        let register = Register {
            member: process.member,
            clean_start: process.clean_start,
            addresses,
            zone: String::new(),
            damaged: process.reports.damaged().to_vec(),
            starts: process.starts.clone().into(),
            executors: self.plan.executors,
        };
        let mut tell: Vec<Message> =
            process.reports.tails().iter().cloned().map(Message::TailSetAside).collect();
        tell.extend(process.reports.served().cloned().map(Message::Served));
        self.send(conn, true, Message::Register(register));
        for message in tell {
            self.send(conn, true, message);
        }
    }

    /// Sends a message on a connection, towards whom was dialled if `forth`.
    pub(super) fn send(&mut self, conn: Conn, forth: bool, message: Message) {
        let message = if self.schedule.entered().is_multiple_of(CODEC_EVERY) {
            through_codec(message)
        } else {
            message
        };
        let sent = self.network.send(self.now(), conn, forth, message);
        self.under_way(conn, sent);
    }

    fn under_way(&mut self, conn: Conn, sent: Sent) {
        if let Some(fault) = sent.fault {
            self.injected(fault);
        }
        if let Some(at) = sent.breaks_at {
            let if_cut = sent.fault != Some("break");
            self.at(at, Event::Break { conn, if_cut });
        }
        self.deliver(sent.deliveries);
    }

    pub(super) fn deliver(&mut self, deliveries: Vec<Delivery>) {
        for Delivery { at, conn, forth, message } in deliveries {
            self.at(at, Event::Arrive { conn, forth, message: Box::new(message) });
        }
    }

    /// One end closes a connection: what it has said on it arrives before.
    pub(super) fn close_conn(&mut self, conn: Conn, forth: bool) {
        let arrived = self.network.arrives(conn, forth).max(self.now());
        self.at(arrived + 1, Event::Break { conn, if_cut: false });
    }

    pub(super) fn break_conn(&mut self, conn: Conn, if_cut: bool) {
        let ends = self.network.get(conn).map(|open| [open.from, open.to]);
        let both_live = ends.is_some_and(|ends| {
            ends.into_iter().all(|(at, incarnation)| self.incarnation_at(at) == Some(incarnation))
        });
        if if_cut && both_live && self.network.spare(conn) {
            return;
        }
        let Some(open) = self.network.close(conn) else { return };
        self.trace.note(self.now(), format_args!("{conn} between {} and {} breaks", open.from.0, open.to.0));
        for forth in [true, false] {
            let ((at, incarnation), (other, _)) = open.ends(forth);
            if self.incarnation_at(at) == Some(incarnation) {
                self.unlinked(at, incarnation, other, open.lane, conn, forth);
            }
        }
    }

    fn unlinked(
        &mut self,
        at: Endpoint,
        incarnation: u64,
        other: Endpoint,
        lane: Lane,
        conn: Conn,
        dialler: bool,
    ) {
        match (at, other) {
            (Endpoint::Node(node), Endpoint::Node(peer)) => {
                let Some(process) = self.machine_mut(node).process.as_mut() else { return };
                process.links.unlink(peer, lane, conn);
                if dialler {
                    self.after(RECONNECT_DELAY_US, Event::Dial { from: (at, incarnation), to: other, lane });
                }
            }
            (Endpoint::Node(node), Endpoint::Controller(id)) => {
                let Some(process) = self.machine_mut(node).process.as_mut() else { return };
                process.links.unlink_controller(id);
                self.after(RECONNECT_DELAY_US, Event::Dial { from: (at, incarnation), to: other, lane });
            }
            // Whose turns at rows these were: nothing else waits for a client.
            (Endpoint::Node(node), Endpoint::Client(_)) if self.plan.workload.turns.is_some() => {
                self.after(1, Event::ClientGone { node, incarnation, conn });
            }
            (Endpoint::Controller(id), _) => self.controller_process_disconnected(id, conn),
            (Endpoint::Client(_), _) => {
                self.client_linked(at, other, slot_of(lane), LinkNews::Broken(conn));
            }
            (Endpoint::Operator, _) => self.operator_unlinked(),
            _ => {}
        }
    }

    /// All connections of an endpoint go: at once for a process that dies, unnoticed by the others for a
    /// while if the machine does.
    pub(super) fn drop_links(&mut self, endpoint: Endpoint, noticed: bool) {
        for conn in self.network.of(endpoint) {
            if noticed {
                let wait = 100 + self.schedule.timing().below(900);
                self.after(wait, Event::Break { conn, if_cut: false });
            } else if let Some(at) = self.network.doom(self.now(), conn) {
                self.at(at, Event::Break { conn, if_cut: false });
            }
        }
    }

    pub(super) fn arrive(&mut self, conn: Conn, forth: bool, message: Message) {
        let Some(open) = self.network.carrier(conn) else { return };
        let ((from, _), (to, incarnation)) = open.ends(forth);
        let lane = open.lane;
        if self.incarnation_at(to) != Some(incarnation) {
            return;
        }
        if lane != Lane::Heartbeat {
            self.trace.note(self.now(), format_args!("{from} -> {to} {}", Brief(&message)));
        }
        match to {
            Endpoint::Node(node) => self.node_hears(node, from, conn, message),
            Endpoint::Controller(id) => self.controller_process_hears(id, conn, message),
            Endpoint::Client(id) => self.client_hears(id, from, conn, message),
            Endpoint::Operator => self.operator_hears(message),
        }
    }
}

/// Which of several connections of a client to the same endpoint a lane is.
fn slot_of(lane: Lane) -> u16 {
    if let Lane::Client(slot) = lane { slot } else { 0 }
}

/// Encodes and decodes, as a wire would.
fn through_codec(message: Message) -> Message {
    let number = message.number();
    let bytes = message.encode_body(Vec::new()).expect("every message can be encoded");
    let again = Message::decode_body(number, &bytes).expect("what was encoded can be decoded");
    assert_eq!(again, message, "a message must come out of the codec as it went in");
    again
}

/// A message in few words, for the trace.
struct Brief<'a>(&'a Message);

impl std::fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Message::Append(m) => write!(
                f,
                "Append p{} {} #{} after {} committed {} secured {} kept {} with {} bytes",
                m.partition.0,
                m.epoch,
                m.number,
                m.prev,
                m.committed,
                m.secured,
                m.log_floor,
                m.entries.len()
            ),
            Message::Ack(m) => {
                write!(f, "Ack p{} {} #{} end {} {}", m.partition.0, m.epoch, m.number, m.end, m.marks)
            }
            Message::Reply(m) => {
                write!(f, "Reply {} {:?} lsn {} {} {:?}", m.id, m.status, m.lsn, m.epoch, m.body)
            }
            Message::Request(m) => {
                write!(f, "Request {} p{} {} #{} {:?}", m.id, m.partition.0, m.session, m.seq, m.op)
            }
            Message::Propose(m) => write!(f, "Propose {}", m.record.0),
            Message::Proposed(m) => write!(f, "Proposed {} {}", m.accepted, m.record.0),
            Message::Inform(m) => write!(f, "Inform {}", m.record.0),
            Message::ClusterMap(m) => {
                let texts: Vec<&str> = m.partitions.iter().map(|text| text.0.as_str()).collect();
                write!(f, "ClusterMap {} {texts:?}", m.revision)
            }
            Message::NodeStatus(m) => write!(f, "NodeStatus hears {:?}", m.hears),
            Message::Copy(m) => write!(
                f,
                "Copy {} piece {} at {} rows {} last {}",
                m.number,
                m.piece,
                m.at,
                m.rows.len(),
                m.last
            ),
            Message::Chunk(m) => write!(f, "Chunk {} {:?} with {} bytes", m.number, m.piece, m.bytes.len()),
            other => write!(f, "{other:?}"),
        }
    }
}

//! The network between nodes, controllers and clients: connections that keep order until they break, and what
//! befalls them.
//!
//! Within a connection order is kept. Between two connections it is not: what an old connection still carries
//! may arrive after the news of the next one. Messages between nodes may also be lost or come twice. A cut
//! holds messages back; if it lasts, the connection breaks.

use crate::random::Stream;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::Message;

/// Who can be at an end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Endpoint {
    /// A node.
    Node(u32),
    /// A controller.
    Controller(u32),
    /// A client.
    Client(u32),
    /// The operator.
    Operator,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Node(id) => write!(f, "n{id}"),
            Endpoint::Controller(id) => write!(f, "c{id}"),
            Endpoint::Client(id) => write!(f, "client{id}"),
            Endpoint::Operator => f.write_str("operator"),
        }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Log shipping between nodes.
    Peer,
    /// Heartbeats between nodes.
    Heartbeat,
    /// A node or an operator to a controller.
    Control,
    /// A client to a node; clients may have several.
    Client(u16),
}

/// Names a connection; never used twice.
pub type Conn = u64;

/// An open connection.
#[derive(Clone, Debug)]
pub struct Open {
    /// Who dialled, and in which life.
    pub from: (Endpoint, u64),
    /// Whom, and in which life.
    pub to: (Endpoint, u64),
    /// What for.
    pub lane: Lane,
    /// When the last message in each direction arrives: towards `to`, towards `from`.
    last: [u64; 2],
    /// Messages that a cut holds back, per direction.
    held: [Vec<Message>; 2],
    /// Somebody will notice that it is dead.
    doomed: bool,
}

impl Open {
    /// The two ends, the one that sends towards `to` first if `forth`.
    pub fn ends(&self, forth: bool) -> ((Endpoint, u64), (Endpoint, u64)) {
        if forth { (self.from, self.to) } else { (self.to, self.from) }
    }
}

/// How unreliable the network is; changes while a seed runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weather {
    /// Messages between nodes that are lost, per thousand.
    pub loss: u64,
    /// Messages between nodes that come a second time, per thousand.
    pub duplication: u64,
    /// Messages that are late, per thousand.
    pub delay: u64,
    /// How late at most, microseconds.
    pub late_us: u64,
    /// What a broken connection still carried arrives after all.
    pub reorder: bool,
    /// Messages that break their connection, per thousand.
    pub breaks: u64,
}

/// What becomes of a message.
#[derive(Debug)]
pub struct Delivery {
    /// When it arrives.
    pub at: u64,
    /// On which connection.
    pub conn: Conn,
    /// Towards the one who was dialled.
    pub forth: bool,
    /// What.
    pub message: Message,
}

/// What sending did.
#[derive(Debug, Default)]
pub struct Sent {
    /// Messages on their way.
    pub deliveries: Vec<Delivery>,
    /// The connection is to be broken at this time.
    pub breaks_at: Option<u64>,
    /// A fault of this name struck.
    pub fault: Option<&'static str>,
}

/// All connections.
#[derive(Debug)]
pub struct Network {
    random: Stream,
    next: Conn,
    open: BTreeMap<Conn, Open>,
    /// Broken connections whose messages may still arrive.
    ghosts: BTreeMap<Conn, Open>,
    /// Directions in which nothing passes.
    cut: BTreeSet<(Endpoint, Endpoint)>,
    /// Directions in which one kind of connection carries nothing.
    cut_lanes: BTreeSet<(Endpoint, Endpoint, Lane)>,
    /// Directions that are slow, with the delay.
    clogged: BTreeMap<(Endpoint, Endpoint), u64>,
    weather: Weather,
}

impl Network {
    /// A network without connections.
    pub fn new(random: Stream) -> Network {
        Network {
            random,
            next: 1,
            open: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            cut: BTreeSet::new(),
            cut_lanes: BTreeSet::new(),
            clogged: BTreeMap::new(),
            weather: Weather::default(),
        }
    }

    /// How unreliable it is, to be changed.
    pub fn weather_mut(&mut self) -> &mut Weather {
        &mut self.weather
    }

    /// True if nothing is lost, late, doubled or broken but by cuts.
    pub fn is_fair(&self) -> bool {
        self.weather == Weather::default()
    }

    /// Directions in which messages of this lane do not pass, or are slow.
    pub fn troubled_on(&self, lane: Lane) -> impl Iterator<Item = (Endpoint, Endpoint)> {
        let lanes = self.cut_lanes.iter().filter(move |(.., of)| *of == lane);
        let lanes = lanes.map(|(from, to, _)| (*from, *to));
        self.cut.iter().copied().chain(lanes).chain(self.clogged.keys().copied())
    }

    /// Directions in which something does not pass, or is slow.
    pub fn troubled(&self) -> impl Iterator<Item = (Endpoint, Endpoint)> {
        let lanes = self.cut_lanes.iter().map(|(from, to, _)| (*from, *to));
        self.cut.iter().copied().chain(lanes).chain(self.clogged.keys().copied())
    }

    /// True if messages pass in both directions.
    pub fn reachable(&self, a: Endpoint, b: Endpoint, lane: Lane) -> bool {
        !self.is_cut(a, b, lane) && !self.is_cut(b, a, lane)
    }

    fn is_cut(&self, from: Endpoint, to: Endpoint, lane: Lane) -> bool {
        self.cut.contains(&(from, to)) || self.cut_lanes.contains(&(from, to, lane))
    }

    /// Opens a connection.
    pub fn connect(&mut self, from: (Endpoint, u64), to: (Endpoint, u64), lane: Lane) -> Conn {
        let conn = self.next;
        self.next += 1;
        let open = Open { from, to, lane, last: [0; 2], held: [Vec::new(), Vec::new()], doomed: false };
        self.open.insert(conn, open);
        conn
    }

    /// An open connection.
    pub fn get(&self, conn: Conn) -> Option<&Open> {
        self.open.get(&conn)
    }

    /// An open connection, or a broken one that still delivers.
    pub fn carrier(&self, conn: Conn) -> Option<&Open> {
        self.open.get(&conn).or_else(|| self.ghosts.get(&conn))
    }

    /// When the last of what was sent on a connection, towards whom was dialled if `forth`, arrives.
    pub fn arrives(&self, conn: Conn, forth: bool) -> u64 {
        self.open.get(&conn).map_or(0, |open| open.last[usize::from(!forth)])
    }

    /// Connections of this endpoint.
    pub fn of(&self, endpoint: Endpoint) -> Vec<Conn> {
        let has = |open: &Open| open.from.0 == endpoint || open.to.0 == endpoint;
        self.open.iter().filter(|(_, open)| has(open)).map(|(conn, _)| *conn).collect()
    }

    /// Closes a connection.
    pub fn close(&mut self, conn: Conn) -> Option<Open> {
        let open = self.open.remove(&conn)?;
        if self.weather.reorder {
            self.ghosts.insert(conn, open.clone());
            if self.ghosts.len() > 64 {
                self.ghosts.pop_first();
            }
        }
        Some(open)
    }

    /// Nothing passes from `from` to `to` any more.
    pub fn cut(&mut self, from: Endpoint, to: Endpoint) {
        self.cut.insert((from, to));
    }

    /// Connections of this kind carry nothing from `from` to `to` any more.
    pub fn cut_lane(&mut self, from: Endpoint, to: Endpoint, lane: Lane) {
        self.cut_lanes.insert((from, to, lane));
    }

    /// Connections of this kind carry messages again.
    pub fn heal_lane(&mut self, now: u64, from: Endpoint, to: Endpoint, lane: Lane) -> Vec<Delivery> {
        self.cut_lanes.remove(&(from, to, lane));
        self.release(now, from, to)
    }

    /// From whom to whom heartbeats pass, unless something else is wrong, and something else does not.
    pub fn half_cut(&self) -> impl Iterator<Item = (Endpoint, Endpoint)> {
        let others = self.cut_lanes.iter().filter(|(.., lane)| *lane != Lane::Heartbeat);
        others.map(|(from, to, _)| (*from, *to))
    }

    /// From whom to whom messages take longer.
    pub fn clogged(&self) -> impl Iterator<Item = (Endpoint, Endpoint)> {
        self.clogged.keys().copied()
    }

    /// Messages from `from` to `to` take so much longer.
    pub fn clog(&mut self, from: Endpoint, to: Endpoint, us: u64) {
        self.clogged.insert((from, to), us);
    }

    /// Everything passes again in this direction; what was held back is on its way.
    pub fn heal(&mut self, now: u64, from: Endpoint, to: Endpoint) -> Vec<Delivery> {
        self.clogged.remove(&(from, to));
        if !self.cut.remove(&(from, to)) {
            return Vec::new();
        }
        self.release(now, from, to)
    }

    /// What was held back, and need not be any more, is on its way.
    fn release(&mut self, now: u64, from: Endpoint, to: Endpoint) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let conns: Vec<Conn> = self.open.keys().copied().collect();
        for conn in conns {
            for forth in [true, false] {
                let open = self.open.get_mut(&conn).expect("listed above");
                let (sender, receiver) = open.ends(forth);
                if (sender.0, receiver.0) != (from, to) {
                    continue;
                }
                let held = std::mem::take(&mut open.held[usize::from(!forth)]);
                for message in held {
                    deliveries.extend(self.send(now, conn, forth, message).deliveries);
                }
            }
        }
        deliveries
    }

    /// Every direction passes, nothing is slow, and the weather is fair.
    pub fn heal_all(&mut self, now: u64) -> Vec<Delivery> {
        self.weather = Weather::default();
        self.clogged.clear();
        let lanes = std::mem::take(&mut self.cut_lanes);
        let mut cut = std::mem::take(&mut self.cut);
        cut.extend(lanes.into_iter().map(|(from, to, _)| (from, to)));
        cut.into_iter().flat_map(|(from, to)| self.release(now, from, to)).collect()
    }

    /// True if this end of the connection cannot know yet that it is dead: then it is told at the time given.
    pub fn doom(&mut self, now: u64, conn: Conn) -> Option<u64> {
        let open = self.open.get_mut(&conn)?;
        if open.doomed {
            return None;
        }
        open.doomed = true;
        Some(now + self.random.between(150_000, 1_200_000))
    }

    /// The connection has outlived its cut.
    pub fn spare(&mut self, conn: Conn) -> bool {
        let Some(open) = self.open.get(&conn) else { return false };
        let passes = self.reachable(open.from.0, open.to.0, open.lane);
        if let Some(open) = self.open.get_mut(&conn) {
            open.doomed = !passes;
        }
        passes
    }

    /// Sends a message.
    pub fn send(&mut self, now: u64, conn: Conn, forth: bool, message: Message) -> Sent {
        let mut sent = Sent::default();
        let Some(open) = self.open.get(&conn) else { return sent };
        let (from, to) = open.ends(forth);
        let (between, lane) = ((from.0, to.0), open.lane);
        let direction = usize::from(!forth);
        if self.is_cut(between.0, between.1, lane) {
            self.open.get_mut(&conn).expect("looked up").held[direction].push(message);
            sent.breaks_at = self.doom(now, conn);
            return sent;
        }
        let nodes = matches!(lane, Lane::Peer | Lane::Heartbeat);
        let weather = self.weather;
        if nodes && self.random.chance(weather.loss) {
            sent.fault = Some("loss");
            return sent;
        }
        if self.random.chance(weather.breaks) {
            sent.breaks_at = Some(now + self.random.between(1, 400));
            sent.fault = Some("break");
        }
        let mut at = now + self.random.between(40, 300) + self.clogged.get(&between).copied().unwrap_or(0);
        if self.random.chance(weather.delay) {
            at += self.random.below(weather.late_us.max(1));
            sent.fault = Some("delay");
        }
        if nodes && self.random.chance(weather.duplication) {
            sent.fault = Some("duplication");
            let later = at + self.random.between(1, 200_000);
            sent.deliveries.push(Delivery { at: later, conn, forth, message: message.clone() });
        }
        let open = self.open.get_mut(&conn).expect("looked up");
        at = at.max(open.last[direction] + 1);
        open.last[direction] = at;
        sent.deliveries.push(Delivery { at, conn, forth, message });
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Concern;
    use wire::peer::Copied;

    fn network() -> Network {
        Network::new(Stream::new(3, Concern::Network, 0))
    }

    fn message(number: u64) -> Message {
        let from = types::Member::default();
        let (partition, epoch) = (types::PartitionId(64), types::Epoch(1));
        Message::Copied(Copied { partition, epoch, from, number, piece: 0 })
    }

    const A: (Endpoint, u64) = (Endpoint::Node(1), 1);
    const B: (Endpoint, u64) = (Endpoint::Node(2), 1);

    #[test]
    fn order_is_kept_within_a_connection() {
        let mut network = network();
        network.weather = Weather { delay: 500, late_us: 9_000, ..Weather::default() };
        let conn = network.connect(A, B, Lane::Peer);
        let times: Vec<u64> =
            (0..50).flat_map(|n| network.send(n, conn, true, message(n)).deliveries).map(|d| d.at).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_cut_holds_back_one_direction_and_healing_releases_it() {
        let mut network = network();
        let conn = network.connect(A, B, Lane::Peer);
        network.cut(A.0, B.0);
        let sent = network.send(10, conn, true, message(1));
        assert!(sent.deliveries.is_empty() && sent.breaks_at.is_some());
        assert_eq!(network.send(10, conn, false, message(2)).deliveries.len(), 1);
        assert!(!network.reachable(A.0, B.0, Lane::Peer) && !network.reachable(B.0, A.0, Lane::Peer));
        assert_eq!(network.heal(20, A.0, B.0).len(), 1);
        assert!(network.spare(conn) && network.reachable(A.0, B.0, Lane::Peer));
    }

    #[test]
    fn one_kind_of_connection_can_be_cut_alone() {
        let mut network = network();
        let (peer, heartbeat) = (network.connect(A, B, Lane::Peer), network.connect(A, B, Lane::Heartbeat));
        network.cut_lane(A.0, B.0, Lane::Peer);
        assert!(network.send(1, peer, true, message(1)).deliveries.is_empty());
        assert_eq!(network.send(1, heartbeat, true, message(2)).deliveries.len(), 1);
        assert_eq!(network.heal_lane(2, A.0, B.0, Lane::Peer).len(), 1);
    }

    #[test]
    fn what_a_broken_connection_carries_arrives_only_if_order_may_change() {
        let mut network = network();
        let conn = network.connect(A, B, Lane::Peer);
        network.close(conn);
        assert!(network.carrier(conn).is_none());
        network.weather.reorder = true;
        let conn = network.connect(A, B, Lane::Peer);
        network.close(conn);
        assert!(network.get(conn).is_none() && network.carrier(conn).is_some());
    }
}

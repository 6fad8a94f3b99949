//! A process's connections.

use crate::network::{Conn, Endpoint, Lane};
use std::collections::BTreeMap;
use types::Member;

/// Connections to nodes, of log shipping and of heartbeats, and to controllers.
#[derive(Debug, Default)]
pub struct Links {
    peers: BTreeMap<u32, (Conn, Member)>,
    heartbeats: BTreeMap<u32, (Conn, Member)>,
    controllers: BTreeMap<u32, Conn>,
}

impl Links {
    /// The connection to an endpoint.
    pub fn to(&self, endpoint: Endpoint, lane: Lane) -> Option<Conn> {
        match endpoint {
            Endpoint::Node(peer) => self.nodes(lane).get(&peer).map(|(conn, _)| *conn),
            Endpoint::Controller(id) => self.controllers.get(&id).copied(),
            Endpoint::Client(_) | Endpoint::Operator => None,
        }
    }

    /// The connection on which log is shipped to this very member.
    pub fn to_member(&self, member: &Member) -> Option<Conn> {
        self.peers.get(&member.node.0).filter(|(_, known)| known == member).map(|(conn, _)| *conn)
    }

    /// Connections for heartbeats, and to whom.
    pub fn heartbeats(&self) -> Vec<(Conn, Member)> {
        self.heartbeats.values().copied().collect()
    }

    /// Connections to controllers.
    pub fn controllers(&self) -> Vec<Conn> {
        self.controllers.values().copied().collect()
    }

    /// There is a connection to a member.
    pub fn link(&mut self, member: Member, lane: Lane, conn: Conn) {
        self.nodes_mut(lane).insert(member.node.0, (conn, member));
    }

    /// This connection to a node is broken; if there is another by now, that stays.
    pub fn unlink(&mut self, peer: u32, lane: Lane, conn: Conn) {
        let links = self.nodes_mut(lane);
        if links.get(&peer).is_some_and(|(known, _)| *known == conn) {
            links.remove(&peer);
        }
    }

    /// There is a connection to a controller.
    pub fn link_controller(&mut self, id: u32, conn: Conn) {
        self.controllers.insert(id, conn);
    }

    /// The connection to a controller is broken.
    pub fn unlink_controller(&mut self, id: u32) {
        self.controllers.remove(&id);
    }

    fn nodes(&self, lane: Lane) -> &BTreeMap<u32, (Conn, Member)> {
        if lane == Lane::Peer { &self.peers } else { &self.heartbeats }
    }

    fn nodes_mut(&mut self, lane: Lane) -> &mut BTreeMap<u32, (Conn, Member)> {
        if lane == Lane::Peer { &mut self.peers } else { &mut self.heartbeats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_connection_that_breaks_takes_no_newer_one_along() {
        let member = Member { node: types::NodeId(2), ..Member::default() };
        let mut links = Links::default();
        links.link(member, Lane::Peer, 1);
        links.link(member, Lane::Heartbeat, 2);
        links.link(member, Lane::Peer, 3);
        links.unlink(2, Lane::Peer, 1);
        assert_eq!(links.to(Endpoint::Node(2), Lane::Peer), Some(3));
        links.unlink(2, Lane::Peer, 3);
        assert_eq!(links.to_member(&member), None);
        assert_eq!(links.heartbeats(), [(2, member)]);
    }
}

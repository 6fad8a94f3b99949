//! Where other nodes answer heartbeats, as far as their addresses are found.

use super::resolver::{Lookup, Resolver};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use types::NodeId;

/// The other nodes' doors for heartbeats. What was found of one stays until its address is another one: nodes
/// register numbers, which never come to mean another host.
#[derive(Debug, Default)]
pub struct HeartbeatTargets {
    wanted: BTreeMap<NodeId, String>,
    found: BTreeMap<NodeId, SocketAddr>,
}

impl HeartbeatTargets {
    /// The nodes there are now, with their addresses.
    pub fn set(&mut self, wanted: BTreeMap<NodeId, String>) {
        let before = std::mem::replace(&mut self.wanted, wanted);
        self.found.retain(|node, _| self.wanted.get(node).is_some_and(|now| before.get(node) == Some(now)));
    }

    /// Looks for addresses that are not found yet. True if one was found.
    pub fn resolve(&mut self, resolver: &mut Resolver) -> bool {
        let before = self.found.len();
        for (node, address) in &self.wanted {
            if !self.found.contains_key(node)
                && let Lookup::Found(found) = resolver.look_up(address)
            {
                self.found.insert(*node, found);
            }
        }
        self.found.len() > before
    }

    /// Those that are found.
    pub fn found(&self) -> BTreeMap<NodeId, SocketAddr> {
        self.found.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_looked_for_once_and_stays_until_it_is_another() {
        let (mut targets, mut resolver) = (HeartbeatTargets::default(), Resolver::default());
        let wanted = |port: u16| {
            BTreeMap::from([(NodeId(1), format!("127.0.0.1:{port}")), (NodeId(2), "127.0.0.2:1".into())])
        };
        targets.set(wanted(1));
        assert!(targets.resolve(&mut resolver) && !targets.resolve(&mut resolver));
        assert_eq!(targets.found().len(), 2);
        targets.set(wanted(2));
        assert_eq!(targets.found().keys().collect::<Vec<_>>(), vec![&NodeId(2)]);
        assert!(targets.resolve(&mut resolver));
        assert_eq!(targets.found()[&NodeId(1)], ([127, 0, 0, 1], 2).into());
        targets.set(BTreeMap::new());
        assert!(targets.found().is_empty() && !targets.resolve(&mut resolver));
    }
}

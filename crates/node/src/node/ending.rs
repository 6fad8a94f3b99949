//! How a node ends gently: it hands over what it leads, writes what waits, and marks its log (F06, conventions).

use super::Node;
use crate::failure::Failure;
use crate::stop::Stop;
use types::{Micros, NodeId};
use wire::Message;
use wire::control::{Admin, AdminCommand};

/// The controllers are asked this often.
const ASK: Micros = Micros::from_millis(250);
/// Longer than this it does not wait: kill -9 is safe as well.
const WAIT_LIMIT: Micros = Micros::from_millis(5000);

/// Where the ending stands.
#[derive(Debug, Default)]
pub struct Ending {
    since: Option<Micros>,
    asked_at: Option<Micros>,
    over: bool,
    asked: u64,
}

impl Ending {
    /// True if nothing more is waited for.
    pub fn is_over(&self) -> bool {
        self.over
    }
}

impl Node {
    /// Goes on with the ending, if one was asked for.
    pub(super) fn ending_tick(&mut self) {
        if self.shared_status.stop.asked() != Stop::Gently {
            return;
        }
        let now = self.now.mono;
        let since = *self.ending.since.get_or_insert(now);
        let controllers = self.controllers.all();
        if !self.leads_something_for_others() || controllers.is_empty() || now.since(since) > WAIT_LIMIT {
            self.ending.over = true;
            return;
        }
        if self.ending.asked_at.is_none_or(|at| now.since(at) >= ASK) {
            self.ending.asked_at = Some(now);
            self.ending.asked += 1;
            let node: NodeId = self.host.me().node;
            let drain = Message::Admin(Admin { id: self.ending.asked, command: AdminCommand::Drain(node) });
            if let Some(key) = self.controllers.one() {
                self.links.push(key, &drain);
            }
        }
    }

    /// True if this node leads a partition that another member could lead.
    fn leads_something_for_others(&self) -> bool {
        let me = self.host.me();
        self.host
            .replicas()
            .filter_map(|replica| replica.record())
            .any(|record| record.primary == me && record.in_sync.len() > 1)
    }

    /// The last steps.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        // Nobody is promised anything any more.
        drop(self.lease_manager);
        self.links.flush();
        // What waits for room is not in the log: the next life must not be taken for whole.
        self.journal.shutdown(self.now.mono, self.blocked.is_empty())
    }
}

//! The handshake: the first message in each direction on every connection.

use serde::{Deserialize, Serialize};
use types::{ClusterId, Member};

/// The protocol version that this build speaks.
pub const PROTOCOL: u32 = 1;

/// What the other side wants to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HelloRole {
    /// A native client.
    Client,
    /// Another node, for log shipping.
    Peer,
    /// Another node, for beacons.
    Beacon,
    /// A node to a controller.
    Node,
    /// An operator's command to a controller.
    Operator,
}

/// Who connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// As what.
    pub role: HelloRole,
    /// [`PROTOCOL`] of the sender.
    pub protocol: u32,
    /// The cluster it means; `None`: whichever is there (clients and operators).
    pub cluster: Option<ClusterId>,
    /// For nodes: which, in which life.
    pub member: Option<Member>,
    /// The cluster's shared secret, where one is set.
    pub secret: Option<String>,
    /// What it is, for logs: `understudy 0.1.0 demo`.
    pub agent: String,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Welcome {
    /// Come in.
    Accepted {
        /// The cluster.
        cluster: ClusterId,
        /// The answering node, unless it is a controller.
        member: Option<Member>,
    },
    /// One sentence why not; the connection is closed.
    Refused(String),
}

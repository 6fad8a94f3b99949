//! Where a process listens, for those who did not choose its ports: `ports.json`.

use super::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ports {
    /// `node` or `controller`.
    pub role: String,
    /// The node's number; 0 for a controller.
    pub node: u32,
    /// The process.
    pub pid: u32,
    /// The incarnation that listens there.
    pub incarnation: u64,
    /// By name (`client`, `peer`, `heartbeat`, `http`, `controller`): `host:port`.
    pub listen: BTreeMap<String, String>,
}

impl Ports {
    /// The ports written in this directory; `None` if nobody wrote any, or they cannot be read.
    pub fn read(root: &Path) -> Option<Ports> {
        let bytes = files::read(&root.join("ports.json")).ok()??;
        serde_json::from_slice(&bytes).ok()
    }

    /// Writes them.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).expect("ports have only text keys");
        files::replace(&root.join("ports.json"), &text)
    }

    /// The address under this name.
    pub fn address(&self, name: &str) -> Option<SocketAddr> {
        self.listen.get(name)?.parse().ok()
    }
}

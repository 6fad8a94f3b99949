//! Who a data directory belongs to: `node.id` or `controller.id`.

use super::files;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use types::{ClusterId, Generation, Incarnation, Member, NodeId, StoreId};

/// What kind of process a directory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A node.
    Node,
    /// A controller.
    Controller,
}

impl Kind {
    fn file(self) -> &'static str {
        match self {
            Kind::Node => "node.id",
            Kind::Controller => "controller.id",
        }
    }
}

/// The contents of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The node; 0 for a controller.
    pub node: NodeId,
    /// This directory, drawn when it was initialised.
    pub store: StoreId,
    /// How often a process was started on it (N1).
    pub incarnation: Incarnation,
    /// The cluster, once it is known.
    pub cluster: Option<ClusterId>,
    /// The node was removed from its cluster: nothing here counts any more, and no process is started on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Controllers of a lower one are not listened to (PR-107).
    #[serde(default, skip_serializing_if = "Generation::is_first")]
    pub generation: Generation,
    /// This node was not asked when the records of that generation were made: what it has and they do not
    /// name may be all that is left of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked: bool,
}

impl Identity {
    /// As a member of partitions.
    pub fn member(&self) -> Member {
        Member { node: self.node, store: self.store, incarnation: self.incarnation }
    }

    pub(super) fn read(root: &Path, kind: Kind) -> Result<Identity, Failure> {
        let path = root.join(kind.file());
        let bytes = files::read(&path).map_err(|error| Failure::io(&path, &error))?;
        let bytes = bytes.ok_or_else(|| Failure::corrupt(format!("{} is missing", path.display())))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::corrupt(format!("{} cannot be read: {error}", path.display())))
    }

    pub(super) fn write(&self, root: &Path, kind: Kind) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).expect("an identity has only text keys");
        files::replace(&root.join(kind.file()), &text)
    }
}

//! Who a data directory belongs to: `node.id` or `controller.id`.

use super::files;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use types::{ClusterId, Generation, Incarnation, Member, NodeId, StoreId};
use wire::control::MAX_STARTS;

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
    /// How often it was asked for what it keeps, so that the records could be made anew (PR-160). One that
    /// had nothing when it met records of a new generation counts as asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// For which generations it was asked, the newest ones, oldest first, at most [`MAX_ASKINGS`]: two nodes
    /// may have been asked equally often, and not at the same times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub askings: Vec<Generation>,
    /// This node was not asked when the records of that generation were made: what it has and they do not
    /// name may be all that is left of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unasked: bool,
    /// A number for each of its lives that has registered with controllers, oldest first, at most
    /// [`MAX_STARTS`]: by the last one that they know they see whether this is an older copy (PR-145).
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "starts")]
    pub starts: Vec<u64>,
}

/// So many generations for which a node was asked are kept.
pub const MAX_ASKINGS: usize = 64;

impl Identity {
    /// It is asked for what it keeps, so that the records of this generation can be made.
    pub fn is_asked(&mut self, generation: Generation) {
        self.asked = self.asked.saturating_add(1);
        self.askings.push(generation);
        let over = self.askings.len().saturating_sub(MAX_ASKINGS);
        self.askings.drain(..over);
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// As a text of hexadecimal digits, sixteen for each.
mod starts {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::fmt::Write;

    pub fn serialize<S: Serializer>(starts: &[u64], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(16 * starts.len());
        for start in starts {
            write!(text, "{start:016x}").expect("a text takes anything");
        }
        to.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
        let text = String::deserialize(from)?;
        let number = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 16)?;
            u64::from_str_radix(digits, 16).ok()
        };
        let starts: Option<Vec<u64>> = text.as_bytes().chunks(16).map(number).collect();
        starts
            .ok_or_else(|| D::Error::custom("`starts` is not made of numbers of sixteen hexadecimal digits"))
    }
}

impl Identity {
    /// As a member of partitions.
    pub fn member(&self) -> Member {
        Member { node: self.node, store: self.store, incarnation: self.incarnation }
    }

    /// This life is about to register: it gets a number.
    pub(super) fn starts(&mut self, number: u64) {
        self.starts.push(number);
        let excess = self.starts.len().saturating_sub(MAX_STARTS);
        self.starts.drain(..excess);
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

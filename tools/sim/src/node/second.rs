//! The second directory of a node's replicas.

use crate::node::files::{FIRST, SECOND};
use std::collections::BTreeSet;
use types::PartitionId;

/// What became of the second directory of a node's replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Second {
    /// It can be used.
    There,
    /// It cannot, and may be there again at a later start, as it was.
    Away,
    /// It is lost with all that was in it.
    Gone,
}

/// Which replicas are in the second directory, and what became of that.
#[derive(Debug)]
pub struct SecondDirectory {
    replicas: BTreeSet<PartitionId>,
    is: Second,
}

impl Default for SecondDirectory {
    fn default() -> SecondDirectory {
        SecondDirectory { replicas: BTreeSet::new(), is: Second::There }
    }
}

impl SecondDirectory {
    /// What became of it.
    pub fn is(&self) -> Second {
        self.is
    }

    /// True if it can be used.
    pub fn is_there(&self) -> bool {
        self.is == Second::There
    }

    /// The replicas that are in it, whether it can be used or not.
    pub fn replicas(&self) -> &BTreeSet<PartitionId> {
        &self.replicas
    }

    /// A new replica is made in it, if it can be used.
    pub fn house(&mut self, partition: PartitionId) {
        if self.is_there() {
            self.replicas.insert(partition);
        }
    }

    /// This replica has another place, or none any more.
    pub fn leave(&mut self, partition: PartitionId) {
        self.replicas.remove(&partition);
    }

    /// It cannot be used any more.
    pub fn lose(&mut self, gone: bool) {
        self.is = if gone { Second::Gone } else { Second::Away };
    }

    /// It is as it was.
    pub fn comes_back(&mut self) {
        self.is = Second::There;
    }

    /// What the names of this replica's files begin with; none if its directory cannot be used.
    pub fn directory_of(&self, partition: PartitionId) -> Option<&'static str> {
        match (self.replicas.contains(&partition), self.is) {
            (false, _) => Some(FIRST),
            (true, Second::There) => Some(SECOND),
            (true, Second::Away | Second::Gone) => None,
        }
    }
}

//! The second directory of a node's replicas.

use crate::node::files::{FIRST, SECOND};
use std::collections::BTreeSet;
use types::{Micros, PartitionId};

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
    /// Its disk does nothing: since when, and until when, virtual microseconds.
    hangs: Option<(u64, u64)>,
}

impl Default for SecondDirectory {
    fn default() -> SecondDirectory {
        SecondDirectory { replicas: BTreeSet::new(), is: Second::There, hangs: None }
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
        self.hangs = None;
    }

    /// Its disk does nothing from now on, until then.
    pub fn hang(&mut self, now: u64, until: u64) {
        self.hangs = Some((now, until));
    }

    /// Its disk goes on.
    pub fn answers(&mut self) {
        self.hangs = None;
    }

    /// Until when its disk does nothing, if it does nothing now.
    pub fn hangs_until(&self, now: u64) -> Option<u64> {
        self.hangs.map(|(_, until)| until).filter(|until| *until > now)
    }

    /// For how long its disk has not answered.
    pub fn silent(&self, now: u64) -> Micros {
        let since = self.hangs.filter(|(_, until)| *until > now);
        since.map_or(Micros::ZERO, |(since, _)| Micros(now - since))
    }

    /// True if this replica is in it and its disk does nothing now.
    pub fn holds_up(&self, partition: PartitionId, now: u64) -> bool {
        self.hangs_until(now).is_some() && self.replicas.contains(&partition)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_hangs_for_a_while_and_holds_up_what_is_in_it() {
        let mut second = SecondDirectory::default();
        let (inside, outside) = (PartitionId(64), PartitionId(65));
        second.house(inside);
        assert!(!second.holds_up(inside, 5));
        second.hang(10, 30);
        assert_eq!((second.hangs_until(20), second.silent(20)), (Some(30), Micros(10)));
        assert!(second.holds_up(inside, 20) && !second.holds_up(outside, 20));
        assert_eq!((second.hangs_until(30), second.silent(30)), (None, Micros::ZERO));
        second.hang(40, 90);
        second.lose(false);
        assert_eq!(second.silent(50), Micros::ZERO, "it is lost, and nobody waits for it");
    }
}

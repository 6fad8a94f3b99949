//! The sessions of this node.

use super::relations::id_of;
use ::types::TableId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The number of its connection.
    pub pid: i32,
    /// What it calls itself.
    pub application: String,
    /// The number and the name of the database that it is in.
    pub database: (u32, String),
    /// Where its client is.
    pub address: Option<SocketAddr>,
    /// Since when, in microseconds since 1970.
    pub since: i64,
}

/// All of them, by the numbers of their connections.
#[derive(Debug, Default)]
pub struct Sessions {
    open: Mutex<BTreeMap<i32, Session>>,
}

/// A session that is listed as long as this lives.
#[derive(Debug)]
pub struct Listed {
    pid: i32,
    all: Arc<Sessions>,
}

impl Sessions {
    /// Lists one.
    pub fn list(self: &Arc<Self>, session: Session) -> Listed {
        let pid = session.pid;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, session);
        Listed { pid, all: self.clone() }
    }

    /// True if one of them is in the database with this number.
    pub fn is_in(&self, database: u32) -> bool {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().any(|session| session.database.0 == database)
    }

    /// How many of them are in each database that somebody has made.
    pub fn counts(&self) -> Vec<(TableId, u32)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        for id in open.values().filter_map(|session| id_of(session.database.0)) {
            *counts.entry(id).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    /// Those that there are now.
    pub fn all(&self) -> Vec<Session> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl Listed {
    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// All sessions of the node.
    pub fn all(&self) -> &Arc<Sessions> {
        &self.all
    }

    /// It calls itself otherwise.
    pub fn rename(&self, application: &str) {
        let mut open = self.all.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = open.get_mut(&self.pid) {
            session.application = application.into();
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::super::relations::{DATABASE, oid_of};
    use super::*;

    #[test]
    fn sessions_are_counted_by_the_databases_that_they_are_in() {
        let sessions = Arc::new(Sessions::default());
        let session = |pid: i32, database: u32| {
            let database = (database, String::new());
            sessions.list(Session { pid, application: String::new(), database, address: None, since: 0 })
        };
        let (bank, shop) = (TableId(70), TableId(71));
        let _one = session(1, oid_of(bank));
        let two = session(2, oid_of(bank));
        let _three = session(3, oid_of(shop));
        let _four = session(4, DATABASE);
        assert_eq!(sessions.counts(), [(bank, 2), (shop, 1)]);
        drop(two);
        assert_eq!(sessions.counts(), [(bank, 1), (shop, 1)]);
        assert!(sessions.is_in(oid_of(bank)) && !sessions.is_in(oid_of(TableId(72))));
    }
}

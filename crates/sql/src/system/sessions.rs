//! The sessions of this node.

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

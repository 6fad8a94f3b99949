//! Clients within a node's own process, as its SQL gateway is one: they connect without a socket. All else is
//! as over one: the same frames and their limits, the same greeting, the same ends of connections (PR-430).

use crate::pipe::{PipeEnd, pipe};
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use types::engine::Wake;
use types::{Member, NodeId};

/// So many connections wait to be let in at most.
const MAX_CONNECTING: usize = 128;

/// Connections that wait to be let in; `None` once nobody lets them in any more.
type Waiting = Mutex<Option<Vec<PipeEnd>>>;

/// Where a node lets its process's own clients in. Dropping it turns away who waits, and whoever comes.
#[derive(Debug)]
pub struct LocalListener {
    waiting: Arc<Waiting>,
}

/// The node of this process, for clients to connect to. Cheap to clone.
#[derive(Clone)]
pub struct LocalNode {
    member: Member,
    waiting: Arc<Waiting>,
    /// Wakes who lets clients in.
    wake: Wake,
}

/// Lets clients of this process in to this member. `wake` is called by the thread of whoever comes.
pub fn listen(member: Member, wake: Wake) -> (LocalListener, LocalNode) {
    let waiting = Arc::new(Mutex::new(Some(Vec::new())));
    (LocalListener { waiting: waiting.clone() }, LocalNode { member, waiting, wake })
}

impl LocalListener {
    /// The next connection that waits to be let in.
    pub fn accept(&self) -> Option<PipeEnd> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = waiting.as_mut().filter(|waiting| !waiting.is_empty())?;
        Some(waiting.remove(0))
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Their other ends are woken, and no lock is held then.
        drop(waiting);
    }
}

impl LocalNode {
    /// The node.
    pub fn node(&self) -> NodeId {
        self.member.node
    }

    /// True if this process is that member: this very incarnation of the node, on this store (PR-431).
    pub fn is(&self, member: Member) -> bool {
        self.member == member
    }

    /// Connects. The error is that of a socket to which nobody listens, or to which too many come.
    pub fn connect(&self) -> io::Result<PipeEnd> {
        let (ours, theirs) = pipe();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(waiting) = waiting.as_mut() else { return Err(ErrorKind::ConnectionRefused.into()) };
            if waiting.len() >= MAX_CONNECTING {
                return Err(ErrorKind::WouldBlock.into());
            }
            waiting.push(theirs);
        }
        (self.wake)();
        Ok(ours)
    }
}

impl fmt::Debug for LocalNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalNode").field("member", &self.member).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use types::{Incarnation, StoreId};

    fn member(incarnation: u64) -> Member {
        Member { node: NodeId(1), store: StoreId(7), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn who_comes_is_let_in_in_order_and_turned_away_when_nobody_listens() {
        let woken = Arc::new(AtomicUsize::new(0));
        let counted = woken.clone();
        let wake: Wake = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let (listener, node) = listen(member(3), wake);
        assert!(node.is(member(3)) && !node.is(member(4)) && listener.accept().is_none());
        let mut ours = [node.connect().expect("connects"), node.connect().expect("connects")];
        ours[1].write_all(b"second").expect("fits");
        assert_eq!(woken.load(Ordering::SeqCst), 2);
        let (_first, mut second) = (listener.accept().expect("waits"), listener.accept().expect("waits"));
        let mut room = [0; 8];
        assert_eq!(second.read(&mut room).expect("reads"), 6);
        let mut waits: Vec<PipeEnd> = (0..MAX_CONNECTING).map(|_| node.connect().expect("waits")).collect();
        assert_eq!(node.connect().err().map(|error| error.kind()), Some(ErrorKind::WouldBlock));
        drop(listener);
        assert_eq!(waits[0].read(&mut room).expect("the end"), 0);
        assert_eq!(node.connect().err().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused));
    }
}

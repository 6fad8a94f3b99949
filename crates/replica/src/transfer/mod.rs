//! The state itself on its way to a member, by rows or by files: each a part of its own, held by
//! [`Transfer`], or handlers that are given all the parts they may touch.
//!
//! | file | what |
//! | --- | --- |
//! | `flush` | who writes the engine to disk |
//! | `receive` | the member's side |
//! | `files_in` | the set that comes in there: which pieces are here, which are asked for |
//! | `failback` | how a replica that was away comes back into the set, for people |
//!
//! What a primary knows of the files on their way to one member is with that member's progress. Receiving
//! counts for the failback; beside that, no part here uses another.

pub(crate) mod failback;
pub(crate) mod files_in;
pub(crate) mod flush;
pub(crate) mod receive;

use crate::sender::shipping::FilesOut;
use failback::FailbackState;
use files_in::FilesIn;
use flush::FlushRequests;
use types::{Member, Micros, PartitionRecord, PinId};
use wire::control::Failback;

/// The state on its way from a replica, or to it.
pub(crate) struct Transfer {
    /// Files kept for members.
    pub outgoing: FilesOut,
    /// Files that are being received.
    pub incoming: FilesIn,
    /// The primary is asked for files.
    pub flush: FlushRequests,
    /// How it comes back into the set, or did.
    pub failback: FailbackState,
}

impl Transfer {
    /// Of a replica whose engine may have files of a set that was never installed, or may not.
    pub fn new(leftovers: bool) -> Transfer {
        Transfer {
            outgoing: FilesOut::default(),
            incoming: FilesIn::new(leftovers),
            flush: FlushRequests::default(),
            failback: FailbackState::default(),
        }
    }

    /// In another configuration: files on their way here may be of no use any more; a failback begins, goes
    /// on or ends.
    pub fn reconsider(&mut self, now: Micros, record: &PartitionRecord, me: &Member, same_term: bool) {
        self.incoming.reconsider(same_term, record.holds(me));
        self.failback.reconsider(now, record.catching_up.contains(me), record.in_sync.contains(me));
    }

    /// The engine is gone, and with it all that was kept in it.
    pub fn engine_lost(&mut self) {
        self.outgoing.forget();
        self.incoming.forget();
        self.incoming.clear_leftovers();
        self.flush.forget();
    }

    /// How the failback is told. `rows`: a copy by rows comes in now.
    pub fn failback(&self, now: Micros, rows: bool) -> Failback {
        self.failback.told(now, self.incoming.state_stage(), rows)
    }

    /// What must hold of them, while the files in `sent` are on their way to members.
    pub fn validate(&self, sent: impl Iterator<Item = PinId>) -> Result<(), String> {
        self.outgoing.validate(sent)?;
        self.incoming.validate()
    }
}

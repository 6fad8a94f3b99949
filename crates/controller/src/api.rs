//! What goes into a controller and what comes out: one closed enum each.

use crate::txn::{Change, Entry, Txn, TxnError, TxnOutcome};
use wire::Message;

/// A connection, as the shell numbers it. Never used twice by one controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// Names a transaction of this controller until its outcome is handed in. Never used twice by one controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// What a controller is told.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// Everything in the metastore, as of one revision. The first input of all, and again whenever the
    /// history of changes has a gap. Until the first one, whoever connects is sent away.
    Loaded {
        /// As of this revision.
        revision: u64,
        /// All keys.
        entries: Vec<Entry>,
    },
    /// What others, or this controller, wrote to the metastore. Revisions that are known already may come
    /// again.
    Changed {
        /// Everything up to this revision is known with these changes.
        revision: u64,
        /// The changes, in order.
        changes: Vec<Change>,
    },
    /// A message from a node, an operator or a client.
    Received {
        /// On this connection.
        conn: ConnId,
        /// The message; validated by the codec.
        message: Message,
    },
    /// A connection is gone. Not a proof of anybody's death.
    Disconnected {
        /// The connection.
        conn: ConnId,
    },
    /// The outcome of a transaction. Exactly one for each [`Output::Txn`], in any order.
    TxnDone {
        /// Which.
        tag: Tag,
        /// What became of it.
        outcome: Result<TxnOutcome, TxnError>,
    },
    /// Whether this controller is the one that plans. Never needed for a failover (PR-10).
    Lead(bool),
    /// Time has passed. Wanted at least every [`crate::Settings::tick`].
    Tick,
}

/// What a controller wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Run this transaction and hand its outcome in. Several may run at once.
    Txn {
        /// Names it.
        tag: Tag,
        /// What to run.
        txn: Txn,
    },
    /// Send this, in order with everything else on the connection.
    Send {
        /// To whom.
        conn: ConnId,
        /// What.
        message: Message,
    },
    /// Close this connection, after what was sent on it. No [`Input::Disconnected`] is needed for it.
    Close {
        /// Which.
        conn: ConnId,
    },
}

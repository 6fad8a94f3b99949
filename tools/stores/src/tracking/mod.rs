//! The algorithms 1 to 4 of "Transactional failure recovery for a distributed key-value store": who tracks
//! what clients have flushed and servers have persisted, and what is replayed.
//!
//! | algorithm | where |
//! | --- | --- |
//! | 1, at a client: queues FQ and FQ', T_F(c) | [`client`] |
//! | 2, at the recovery manager: T_F*, clients that fail | [`manager`] |
//! | 3, at a server: queue PQ, T_P(s) | [`server`] |
//! | 4, at the recovery manager: T_P*, servers that fail | [`manager`] |
//!
//! [`Rules::PRINTED`] is what is printed. Each field of [`Rules`] mends one of its holes.

pub mod client;
pub mod manager;
pub mod server;

/// What an idle client does for T_F*.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Idle {
    /// Printed: its T_F(c) stands still.
    Stands,
    /// The obvious cure: with an empty queue it says the newest timestamp that it has heard of.
    Jumps,
    /// The manager has the queue FQ: a commit is in it from the step on that stamps it, and clients say what
    /// they have flushed (PR-50).
    ManagerCounts,
}

/// When a client or server that has failed leaves the minimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// Printed: nobody removes it.
    Stay,
    /// When the failure is noticed.
    GoAtOnce,
    /// Once everything that it had was replayed (PR-49).
    GoOnceReplayed,
}

/// Which holes are mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// What idle clients do.
    pub idle: Idle,
    /// What becomes of who has failed.
    pub failed: Failed,
    /// T_P is a region's, kept beside its rows, and the least of all copies that may be promoted (PR-49);
    /// printed: a server's, of its own disk.
    pub thresholds_of_regions: bool,
    /// A client that was declared dead commits nothing and reports nothing (F24).
    pub dead_clients_are_fenced: bool,
    /// What a client has not flushed when it unregisters is flushed for it.
    pub leavers_are_flushed_for: bool,
    /// A flush counts in the newest tenure of its region alone (PR-53).
    pub flushes_name_tenures: bool,
    /// A new manager takes everything that is kept for unflushed, and its thresholds from the log (PR-52);
    /// printed, where these are not written: it begins with empty tables.
    pub managers_begin_with_the_log: bool,
    /// A snapshot below what is kept commits nothing (PR-52).
    pub old_snapshots_commit_nothing: bool,
    /// A transaction begins once its snapshot shows what its client has committed (PR-51).
    pub begin_waits: bool,
    /// A flush is tried again without limit.
    pub flushes_are_tried_again: bool,
}

impl Rules {
    /// The algorithms as printed. That flushes are tried again without limit is said there.
    pub const PRINTED: Rules = Rules {
        idle: Idle::Stands,
        failed: Failed::Stay,
        thresholds_of_regions: false,
        dead_clients_are_fenced: false,
        leavers_are_flushed_for: false,
        flushes_name_tenures: false,
        managers_begin_with_the_log: false,
        old_snapshots_commit_nothing: false,
        begin_waits: false,
        flushes_are_tried_again: true,
    };

    /// All holes are mended.
    pub const MENDED: Rules = Rules {
        idle: Idle::ManagerCounts,
        failed: Failed::GoOnceReplayed,
        thresholds_of_regions: true,
        dead_clients_are_fenced: true,
        leavers_are_flushed_for: true,
        flushes_name_tenures: true,
        managers_begin_with_the_log: true,
        old_snapshots_commit_nothing: true,
        begin_waits: true,
        flushes_are_tried_again: true,
    };
}

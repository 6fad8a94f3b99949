//! Settings of time and size. Suspicion, lease and grace are three different things (N18, PR-64).

use procedure::{Limits, Runtime};
use types::{Micros, Rules};

/// Times and bounds of one node. The defaults are those of PR-64.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which rules are in force.
    pub rules: Rules,
    /// Between two heartbeats to a node.
    pub heartbeat: Micros,
    /// A backup that has not heard its primary for so long asks for a seal; a primary that has no answer asks
    /// to evict.
    pub suspect: Micros,
    /// The same for policies whose commits rest on the primary alone: a false failover would lose some
    /// (PR-19).
    pub suspect_alone: Micros,
    /// How long the primary may serve reads, counted from sending the heartbeat that was answered.
    pub lease: Micros,
    /// How long an answer to a heartbeat binds, counted from giving it. At least `lease * (1 + r) / (1 - r)`.
    pub grace: Micros,
    /// The clock rate error for which `lease` and `grace` are safe, in thousandths.
    pub drift_permille: u64,
    /// A primary waits so long before it evicts itself into a minority (PR-09).
    pub evict_lone: Micros,
    /// A backup whose oldest unanswered append is older than this leaves the set although it is heard (F19,
    /// PR-67).
    pub evict_slow: Micros,
    /// How long a promoted primary waits for reports that it can do without.
    pub collect_reports: Micros,
    /// How long the old primary is asked for its tail when commits rested on it alone (PR-19).
    pub ask_old: Micros,
    /// How long a replica must have been level before it is taken into the set (PR-67).
    pub level: Micros,
    /// How long a hand-over may take before it is given up.
    pub hand_over: Micros,
    /// A request without an answer is asked again after this.
    pub resend: Micros,
    /// A member that has more than a new primary and cannot give it is asked again after this.
    pub pass_over: Micros,
    /// A session that nobody used for so long expires, by an entry of the log (PR-46).
    pub session_ttl: Micros,
    /// The most bytes of entries on the way to one member.
    pub window_bytes: usize,
    /// The most bytes in one append.
    pub append_bytes: usize,
    /// The most bytes of uncommitted entries in a partition: writes are told "not yet" beyond it.
    pub uncommitted_bytes: usize,
    /// The most replies that wait for entries to commit, in a partition: more are told "not yet".
    pub waiting_replies: usize,
    /// Bytes of entries kept in memory for members that are a little behind.
    pub tail_bytes: usize,
    /// Bytes of rows in one piece of a copy.
    pub copy_bytes: usize,
    /// Bytes of files that a node ships in a second to all members of all partitions together; 0: as many as
    /// it can.
    pub ship_bytes_per_second: u64,
    /// What is said of files is as long whatever their digests are. For simulators: the digests of a tree's
    /// files depend on when they were written.
    pub even_descriptions: bool,
    /// So many bytes of log are sent to a replica that comes back without looking whether it lacks less in
    /// files.
    pub failback_log_bytes: u64,
    /// While copies are missing, the newest log of a partition up to so many bytes is kept for those that
    /// come back; 0: none.
    pub failback_keep_bytes: u64,
    /// A replica that comes back ignores what it has, and is sent everything: to be compared with.
    pub failback_full: bool,
    /// Bytes of files and log that a node reads back in a second when it is scrubbed; 0: as many as it can.
    pub scrub_bytes_per_second: u64,
    /// Files of a bulk load that nobody asked for during this time are removed.
    pub load_unasked: Micros,
    /// The transaction manager keeps the write-set of a commit at least so long, whoever has secured it: a
    /// transaction that is older may not be committed.
    pub commits_kept: Micros,
    /// So many bytes of them, about, even if that is not so long.
    pub commits_kept_bytes: usize,
    /// With so many bytes of commits, about, of which some partition has not secured one, no more are made;
    /// and none in a partition that has not secured a fourth of that.
    pub commits_most_bytes: usize,
    /// So many commits that some partition has not secured are worth a word in the status.
    pub commits_alarm: usize,
    /// Or the oldest of them so old.
    pub commits_alarm_after: Micros,
    /// Rows and bytes that a count or a digest looks at before others have their turn.
    pub slice_rows: usize,
    /// See `slice_rows`.
    pub slice_bytes: usize,
    /// What runs procedures, with the programs that are compiled into this node.
    pub programs: Runtime,
    /// What one call of a procedure may use. The outcome of a call is the primary's to say; backups may have
    /// other limits.
    pub call: Limits,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            rules: Rules::ALL,
            heartbeat: Micros::from_millis(20),
            suspect: Micros::from_millis(120),
            suspect_alone: Micros::from_millis(1000),
            lease: Micros::from_millis(150),
            grace: Micros::from_millis(180),
            drift_permille: 50,
            evict_lone: Micros::from_millis(330),
            evict_slow: Micros::from_millis(1500),
            collect_reports: Micros::from_millis(150),
            ask_old: Micros::from_millis(180),
            level: Micros::from_millis(300),
            hand_over: Micros::from_millis(1000),
            resend: Micros::from_millis(50),
            pass_over: Micros::from_millis(1000),
            session_ttl: Micros::from_millis(3_600_000),
            window_bytes: 8 << 20,
            append_bytes: 1 << 20,
            uncommitted_bytes: 64 << 20,
            waiting_replies: 1 << 16,
            tail_bytes: 4 << 20,
            copy_bytes: 1 << 20,
            ship_bytes_per_second: 64 << 20,
            even_descriptions: false,
            failback_log_bytes: 4 << 20,
            failback_keep_bytes: 0,
            failback_full: false,
            scrub_bytes_per_second: 16 << 20,
            load_unasked: Micros::from_millis(600_000),
            commits_kept: Micros::from_millis(60_000),
            commits_kept_bytes: 256 << 20,
            commits_most_bytes: 2 << 30,
            commits_alarm: 100_000,
            commits_alarm_after: Micros::from_millis(10_000),
            slice_rows: 2048,
            slice_bytes: 512 << 10,
            programs: Runtime::default(),
            call: Limits::default(),
        }
    }
}

impl Settings {
    /// Checks that the times fit together (PR-03, PR-64). The error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let (lease, grace, r) = (self.lease.0, self.grace.0, self.drift_permille);
        if r >= 1000 || grace * (1000 - r) < lease * (1000 + r) {
            let least = lease * (1000 + r) / (1000 - r.min(999));
            return Err(format!(
                "grace {} ms is too short: with lease {} ms and a clock error of {r} in a thousand it must be at least {} ms",
                grace / 1000,
                lease / 1000,
                least.div_ceil(1000)
            ));
        }
        if self.heartbeat.0 * 2 > self.suspect.0 {
            return Err(format!(
                "suspect {} ms is less than two heartbeats of {} ms",
                self.suspect.0 / 1000,
                self.heartbeat.0 / 1000
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n5_the_grace_covers_the_lease_with_clocks_that_differ() {
        assert_eq!(Settings::default().check(), Ok(()));
        let short = Settings { grace: Micros::from_millis(160), ..Settings::default() };
        assert!(short.check().unwrap_err().contains("at least 166 ms"), "{:?}", short.check());
    }
}

//! How a machine's disk is: slow, stuck, or harmed.

/// Microseconds that a sync takes at most, when nothing is wrong.
const SYNC_US: u64 = 400;

/// What is wrong with a disk, and whether it was made good.
#[derive(Debug)]
pub struct Health {
    sync_us: u64,
    stuck_until: u64,
    impaired: bool,
    /// What was lost or changed can look like a torn end.
    tears: bool,
    told_syncs: u64,
    restarted_since_fault: bool,
}

impl Default for Health {
    fn default() -> Health {
        let restarted_since_fault = false;
        Health {
            sync_us: SYNC_US,
            stuck_until: 0,
            impaired: false,
            tears: false,
            told_syncs: 0,
            restarted_since_fault,
        }
    }
}

impl Health {
    /// Microseconds that a sync takes, at most.
    pub fn sync_us(&self) -> u64 {
        self.sync_us
    }

    /// Syncs take this long, at most.
    pub fn slow_down(&mut self, us: u64) {
        self.sync_us = us;
    }

    /// Syncs take as long as they do when nothing is wrong.
    pub fn speed_up(&mut self) {
        self.sync_us = SYNC_US;
    }

    /// True if syncs take no longer than they do when nothing is wrong.
    pub fn is_quick(&self) -> bool {
        self.sync_us == SYNC_US
    }

    /// The disk does nothing until this time.
    pub fn stuck_until(&self) -> u64 {
        self.stuck_until
    }

    /// True if the disk does nothing now.
    pub fn is_stuck(&self, now: u64) -> bool {
        self.stuck_until > now
    }

    /// True if the disk never does anything again.
    pub fn hangs(&self) -> bool {
        self.stuck_until == u64::MAX
    }

    /// The disk does nothing until this time.
    pub fn stick_until(&mut self, at: u64) {
        self.stuck_until = at;
    }

    /// The disk never does anything again.
    pub fn hang(&mut self) {
        self.stuck_until = u64::MAX;
    }

    /// Nothing is slow, or waits any longer.
    pub fn heal(&mut self, now: u64) {
        self.speed_up();
        self.stuck_until = self.stuck_until.min(now);
    }

    /// True if the disk lost or changed something that counted, and has not been made good yet.
    pub fn is_impaired(&self) -> bool {
        self.impaired
    }

    /// The disk lost or changed something that counts.
    pub fn impair(&mut self) {
        (self.impaired, self.tears) = (true, true);
        self.restarted_since_fault = false;
    }

    /// The same, and what is lost is known at once if a process runs.
    pub fn impair_knowingly(&mut self, runs: bool) {
        let before = self.restarted_since_fault;
        self.impair();
        self.restarted_since_fault = before || runs;
    }

    /// The disk lost something in a way that shows. What it lost before may look like a torn end.
    pub fn impair_plainly(&mut self, tears_before: bool) {
        self.impair();
        self.tears = tears_before;
    }

    /// True if what was lost or changed can look like a torn end.
    pub fn tears(&self) -> bool {
        self.tears
    }

    /// A process started: what rots silently was found.
    pub fn restarted(&mut self) {
        self.restarted_since_fault = true;
    }

    /// True if a process has started since the disk was harmed.
    pub fn has_restarted(&self) -> bool {
        self.restarted_since_fault
    }

    /// Whatever was lost is made good.
    pub fn recovers(&mut self) {
        (self.impaired, self.tears) = (false, false);
    }

    /// So many syncs of the disk failed by now. True if there are some that nobody was told of.
    pub fn tell_syncs(&mut self, failed: u64) -> bool {
        std::mem::replace(&mut self.told_syncs, failed) < failed
    }
}

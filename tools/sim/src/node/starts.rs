//! When a machine's processes start, and the members that lived on it.

use types::Member;

/// Failed starts after which nothing is hoped for any more.
const HOPELESS: u32 = 4;

/// The starts of a machine's processes.
#[derive(Debug, Default)]
pub struct Starts {
    /// It will not be started again by itself.
    dead: bool,
    /// It was removed from the cluster.
    removed: bool,
    /// A start is on its way.
    starting: bool,
    /// What is started is of a build that speaks another version of the protocol than all others do.
    other_build: bool,
    /// Starts that failed in a row.
    failed: u32,
    /// Members that lived here, oldest first, with the virtual time at which each ended.
    lives: Vec<(Member, Option<u64>)>,
}

impl Starts {
    /// True if it will not be started again by itself.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// True if it was removed from the cluster.
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// True if its processes are of a build that speaks another version of the protocol.
    pub fn are_of_other_build(&self) -> bool {
        self.other_build
    }

    /// Its next processes are of such a build, or are not.
    pub fn set_other_build(&mut self, other: bool) {
        self.other_build = other;
    }

    /// It will not be started again by itself.
    pub fn dies(&mut self) {
        self.dead = true;
    }

    /// It was removed from the cluster.
    pub fn remove(&mut self) {
        self.removed = true;
    }

    /// A start is wanted. False if one is on its way, or none is to come.
    pub fn plan(&mut self) -> bool {
        let wanted = !self.starting && !self.dead;
        self.starting |= wanted;
        wanted
    }

    /// A start that failed is tried again, even by a machine that was given up meanwhile.
    pub fn plan_again(&mut self) {
        self.starting = true;
    }

    /// The start that was planned is made.
    pub fn begin(&mut self) {
        self.starting = false;
    }

    /// A process of this member runs.
    pub fn succeeded(&mut self, member: Member) {
        self.failed = 0;
        self.lives.push((member, None));
    }

    /// No process could be started. True if none can be on this disk.
    pub fn fail(&mut self) -> bool {
        self.failed += 1;
        self.failed >= HOPELESS
    }

    /// Nothing can be done for now: it is tried once more before it is hopeless again.
    pub fn hope(&mut self) {
        self.failed = HOPELESS - 1;
    }

    /// It has another disk.
    pub fn renew(&mut self) {
        self.failed = 0;
    }

    /// The process that ran last is over.
    pub fn ended(&mut self, now: u64) {
        if let Some(last) = self.lives.last_mut() {
            last.1 = Some(now);
        }
    }

    /// When the process of this member ended, if it has.
    pub fn ended_at(&self, member: &Member) -> Option<u64> {
        self.lives.iter().rev().find(|(lived, _)| lived == member).and_then(|(_, ended)| *ended)
    }

    /// The member that runs here, or ran last.
    pub fn last(&self) -> Option<Member> {
        self.lives.last().map(|(member, _)| *member)
    }

    /// How many processes ran on this machine.
    pub fn lives(&self) -> usize {
        self.lives.len()
    }
}

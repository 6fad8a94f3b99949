//! A system call that fails, or that the process does not live to make.

use crate::follow::Action;
use crate::record::Chance;
use nix::errno::Errno;

/// What happens at a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strike {
    /// It fails with this error.
    Fail(Errno),
    /// The process is killed before it.
    Kill,
}

/// What happens at the first call from a number on to which it can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The number of the first call, of those that concern files below the recorded directory.
    pub from: usize,
    /// What happens.
    pub strike: Strike,
}

impl Fault {
    /// What happens at this call.
    pub(crate) fn at(&self, number: usize, chance: &Chance) -> Action {
        match self.strike {
            _ if number < self.from => Action::Go,
            Strike::Kill => Action::Kill,
            Strike::Fail(errno) if chance.errors.contains(&errno) => Action::Fail(errno),
            Strike::Fail(_) => Action::Go,
        }
    }
}

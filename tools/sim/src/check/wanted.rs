//! What each policy promises, in the checkers' own words: a table that nobody else reads, so that a policy
//! which is wrong about itself does not approve itself. It says the same as `docs/policies.md`.

use types::{LogKind, Policy};

/// What a copy must have of an entry that is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// In its memory.
    pub received: bool,
    /// On its disk.
    pub durable: bool,
    /// Executed by its engine.
    pub applied: bool,
}

const NOTHING: Wanted = Wanted { received: false, durable: false, applied: false };
const RECEIVED: Wanted = Wanted { received: true, ..NOTHING };
const DURABLE: Wanted = Wanted { durable: true, ..RECEIVED };
const APPLIED: Wanted = Wanted { applied: true, ..RECEIVED };
const BOTH: Wanted = Wanted { applied: true, ..DURABLE };

/// What the primary must have, and what every backup.
fn row(policy: &Policy) -> (Wanted, Wanted) {
    match (policy.name.as_str(), policy.log) {
        ("none" | "async", _) => (APPLIED, NOTHING),
        ("semi", _) => (APPLIED, RECEIVED),
        ("sync", LogKind::Memory) => (APPLIED, APPLIED),
        ("local", LogKind::Disk) => (DURABLE, NOTHING),
        ("durable", LogKind::Disk) => (DURABLE, DURABLE),
        ("sync", LogKind::Disk) => (BOTH, BOTH),
        (name, log) => panic!("the checkers' table has no policy '{name}' with log {log:?}"),
    }
}

/// What the copy of this rank must have of an entry that is acknowledged.
pub fn wanted(policy: &Policy, rank: usize) -> Wanted {
    let (primary, backup) = row(policy);
    if rank == 0 { primary } else { backup }
}

/// True if an acknowledged entry may be on the primary alone.
pub fn rests_on_primary(policy: &Policy) -> bool {
    row(policy).1 == NOTHING
}

/// True if whoever must have an entry has it on its disk.
pub fn survives_restart(policy: &Policy) -> bool {
    let (primary, backup) = row(policy);
    primary.durable && (backup == NOTHING || backup.durable)
}

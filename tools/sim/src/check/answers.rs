//! R12, I1, PR-21, I14: what an answer acknowledges is committed, enough members count and have it, and no
//! more copies are named than there are.

use crate::check::wanted::{Wanted, wanted};
use types::policy::Below;
use types::{Lsn, Member, PartitionId, PartitionRecord, Policy, Position};

/// What a member has of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Has {
    /// Its process runs, and it has it in its memory, on its disk, executed.
    Now(Wanted),
    /// Its process has ended, and it lacked that when it did; none: it lacked nothing that was needed, or
    /// nobody can tell.
    Ended(Option<&'static str>),
}

/// R12: an answer leaves when what it speaks of is committed where it is given.
pub fn check_committed(partition: PartitionId, at: Lsn, committed: Lsn) -> Result<(), String> {
    match at <= committed {
        true => Ok(()),
        false => Err(format!("{partition}: an answer for {at} leaves at committed {committed}")),
    }
}

/// True if a configuration has fewer members than its policy must have to acknowledge anything.
pub fn has_too_few(record: &PartitionRecord) -> bool {
    record.policy.below == Below::Strict && record.in_sync.len() < usize::from(record.policy.min_in_sync)
}

/// PR-21: where too few members count nothing is acknowledged. `told_again`: it had been committed before.
pub fn check_members(record: &PartitionRecord, at: Position, told_again: bool) -> Result<(), String> {
    match has_too_few(record) && !told_again {
        true => {
            let members = record.in_sync.len();
            Err(format!("PR-21: {} {at} is acknowledged with {members} members", record.id))
        }
        false => Ok(()),
    }
}

/// I1, F04: every member of a configuration has of an acknowledged entry what the policy wants of it. `has`
/// says what it has, of which so much is needed.
pub fn check_cover(
    (record, policy): (&PartitionRecord, &Policy),
    at: Position,
    has: impl Fn(&Member, Wanted) -> Has,
) -> Result<(), String> {
    for (rank, member) in record.in_sync.iter().enumerate() {
        let need = wanted(policy, rank);
        let what = format!("{} {at} is acknowledged under '{policy}' in {}, and", record.id, record.epoch);
        match has(member, need) {
            Has::Ended(None) => {}
            Has::Ended(Some(lacks)) => return Err(format!("{what} {member}, which has ended, {lacks}")),
            Has::Now(Wanted { received, durable, applied }) => {
                let lacks =
                    need.received && !received || need.durable && !durable || need.applied && !applied;
                if lacks {
                    return Err(format!(
                        "{what} {member} has it received {received}, durable {durable}, applied {applied}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// I14: no more copies are named than there are.
pub fn check_copies((partition, at): (PartitionId, Position), named: u8, there: usize) -> Result<(), String> {
    match usize::from(named) <= there {
        true => Ok(()),
        false => Err(format!("{partition} {at}: {named} copies are named, there are {there}")),
    }
}

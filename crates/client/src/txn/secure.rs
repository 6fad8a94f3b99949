//! Synchronous persistence: a commit that returns once the partitions have secured it, too. It is in the
//! transaction manager's log before that, so this is for those who do not want to rest on the manager alone.

use super::recovery::Owner;
use crate::call::{Call, Outcome};
use crate::client::Client;
use crate::error::ClientError;
use crate::route::Map;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use types::system::COMMITS;
use types::{Micros, PartitionId, Position};
use wire::{Body, CommitAnswer, FlushState, Op};

/// A partition that does not answer is asked again after this.
const ASK_TIMEOUT: Micros = Micros::from_millis(1_000);
/// The pause behind the first round of questions; it doubles, up to the other.
const FIRST_REST: Micros = Micros::from_millis(1);
const LONGEST_REST: Micros = Micros::from_millis(32);

/// Waits until partitions have secured a commit, a round of questions at a time. A machine without IO: who
/// drives it makes the calls of a round, says how each has ended, and rests.
#[derive(Debug)]
pub struct Securing {
    commit: Position,
    left: BTreeSet<PartitionId>,
    rest: Micros,
}

impl Securing {
    /// Of this commit, in these partitions.
    pub fn new(commit: Position, partitions: impl IntoIterator<Item = PartitionId>) -> Securing {
        Securing { commit, left: partitions.into_iter().collect(), rest: FIRST_REST }
    }

    /// How many copies are to have it on disk: as many as the transaction manager's own table demands.
    pub fn copies(map: &Map) -> u8 {
        map.table(COMMITS).map_or(1, |record| record.policy.min_in_sync)
    }

    /// The questions of a round: one for each partition that has not secured it yet. `owner` says whose a
    /// partition is; one that was dropped has nothing to secure.
    pub fn asks(&mut self, copies: u8, owner: impl Fn(PartitionId) -> Owner) -> Vec<(PartitionId, Call)> {
        self.left.retain(|partition| owner(*partition) != Owner::Dropped);
        let asks = |partition: &PartitionId| match owner(*partition) {
            Owner::Database(table) => {
                let call = Call::new(table, 0, *partition, Op::FlushState { copies });
                Some((*partition, call.within(ASK_TIMEOUT)))
            }
            Owner::Dropped | Owner::Unknown => None,
        };
        self.left.iter().filter_map(asks).collect()
    }

    /// A question has ended so.
    pub fn answered(&mut self, partition: PartitionId, outcome: &Outcome) {
        if let Outcome::Ok(answer) = outcome
            && let Body::Commit(CommitAnswer::State(FlushState { secured, .. })) = &answer.body
            && *secured >= self.commit
        {
            self.left.remove(&partition);
        }
    }

    /// A round has ended: how long to rest before the next one; none: all have secured it.
    pub fn rest(&mut self) -> Option<Micros> {
        if self.left.is_empty() {
            return None;
        }
        let rest = self.rest;
        self.rest = Micros(rest.0 * 2).min(LONGEST_REST);
        Some(rest)
    }
}

impl Client {
    /// From now on [`Client::commit`], and whatever commits by itself (`put`, `transact`), returns once every
    /// partition that the transaction has written has secured it as well: every copy that counts has it on
    /// disk, and there are as many as the transaction manager's table demands. Where that takes longer than
    /// the client's timeout the error is [`ClientError::NotSecured`], and the transaction is committed all
    /// the same. At first this is off: a commit returns once it is in the manager's log.
    pub fn set_synchronous(&mut self, synchronous: bool) {
        self.background.synchronous = synchronous;
    }

    /// Waits until each of these partitions has secured a commit.
    pub fn wait_until_secured(
        &mut self,
        commit: Position,
        partitions: impl IntoIterator<Item = PartitionId>,
    ) -> Result<(), ClientError> {
        let deadline = Instant::now() + self.timeout();
        let mut securing = Securing::new(commit, partitions);
        loop {
            let map = self.cluster_map();
            let calls = securing.asks(Securing::copies(map), |partition| Owner::of(map, partition));
            let mut asked = Vec::with_capacity(calls.len());
            for (partition, call) in calls {
                asked.push((partition, self.submit(Client::BLOCKING, call)));
            }
            for (partition, ticket) in asked {
                let ended = self.wait_for(ticket)?;
                securing.answered(partition, &ended.outcome);
            }
            let Some(rest) = securing.rest() else { return Ok(()) };
            if Instant::now() >= deadline {
                return Err(ClientError::NotSecured(commit));
            }
            self.turn(Instant::now() + Duration::from_micros(rest.0))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Answer, FailKind};
    use types::{Epoch, Lsn, TableId, Term};

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    fn secured(lsn: u64) -> Outcome {
        let state = FlushState { newest: at(9), secured: at(lsn) };
        let body = Body::Commit(CommitAnswer::State(state));
        Outcome::Ok(Answer { lsn: Lsn(1), epoch: Epoch(1), policy: 1, copies: 1, body })
    }

    #[test]
    fn every_partition_is_asked_until_it_has_secured_the_commit_or_is_gone() {
        let all = [64, 65, 66].map(PartitionId);
        let mut securing = Securing::new(at(7), all);
        let asked = |securing: &mut Securing, gone: u32| -> Vec<u32> {
            let owner = |partition: PartitionId| match partition.0 == gone {
                true => Owner::Dropped,
                false => Owner::Database(TableId(9)),
            };
            securing.asks(2, owner).iter().map(|(partition, _)| partition.0).collect()
        };
        assert_eq!(asked(&mut securing, 0), [64, 65, 66]);
        securing.answered(all[0], &secured(6));
        securing.answered(all[1], &secured(7));
        securing.answered(all[2], &Outcome::Failed(FailKind::TimedOut, String::new()));
        assert_eq!(securing.rest(), Some(FIRST_REST));
        assert_eq!(asked(&mut securing, 66), [64], "one has secured it, and one is gone");
        assert_eq!(securing.rest(), Some(Micros(FIRST_REST.0 * 2)));
        assert!(securing.asks(2, |_| Owner::Unknown).is_empty(), "the map may be old");
        for _ in 0..9 {
            assert!(securing.rest() <= Some(LONGEST_REST));
        }
        securing.answered(all[0], &secured(8));
        assert_eq!(securing.rest(), None);
    }

    #[test]
    fn pr370_a_commit_that_is_not_secured_in_time_is_not_begun_again() {
        let late = ClientError::NotSecured(at(7));
        assert!(!late.begins_again() && late.exit_status() == 4);
        assert!(late.to_string().contains("is committed"), "{late}");
    }
}

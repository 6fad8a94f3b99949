//! Two sides of a cut ask for opposite things: who is granted, and how long the loser keeps still (PR-09,
//! F18).

use crate::controller::Controller;
use crate::settings::{Settings, doubled};
use std::collections::{BTreeMap, BTreeSet};
use types::{Member, Micros, NodeId, Now, PartitionId, PartitionRecord};

/// A primary that does not serve has the benefit of the doubt for so long at most, however often there was
/// another one lately: as long as it lasts nobody is served (PR-233).
const UNSERVED: Micros = Micros::from_millis(1_000);

/// What is remembered of earlier arbitrations. Lost with the controller: it only damps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arbitration {
    /// Primaries that were refused an eviction.
    losses: BTreeMap<PartitionId, Damped>,
    /// Partitions whose primary changed lately.
    changes: BTreeMap<PartitionId, Damped>,
}

#[derive(Clone, Copy, Debug)]
struct Damped {
    /// How often in a row.
    times: u32,
    /// Since when.
    since: Micros,
    /// Until when.
    until: Micros,
}

impl Damped {
    /// Once more: for twice as long, unless the last time is long past.
    fn again(before: Option<Damped>, now: Micros, base: Micros) -> Damped {
        let recent = before.filter(|before| now.since(before.until) < doubled(base, 6));
        let times = recent.map_or(0, |before| before.times + 1);
        Damped { times, since: now, until: now + doubled(base, times) }
    }
}

impl Arbitration {
    /// The primary of this partition was refused.
    fn lost(&mut self, partition: PartitionId, now: Micros, settings: &Settings) {
        let damped = Damped::again(self.losses.get(&partition).copied(), now, settings.arbitration);
        self.losses.insert(partition, damped);
    }

    /// True while a refused primary need not ask again.
    fn must_wait(&self, partition: PartitionId, now: Micros) -> bool {
        self.losses.get(&partition).is_some_and(|damped| now < damped.until)
    }

    /// Another primary leads.
    pub(crate) fn term_ended(&mut self, record: &PartitionRecord, now: Micros, settings: &Settings) {
        self.losses.remove(&record.id);
        let damped = Damped::again(self.changes.get(&record.id).copied(), now, settings.arbitration);
        self.changes.insert(record.id, damped);
    }

    /// True while a new primary is given the benefit of the doubt: complaints about it count only if this
    /// controller misses it too. `serves`: unless it says itself that it does not serve.
    pub(crate) fn settling(&self, partition: PartitionId, now: Micros, serves: bool) -> bool {
        let lasts = |damped: &Damped| now < damped.until && (serves || now.since(damped.since) < UNSERVED);
        self.changes.get(&partition).is_some_and(lasts)
    }
}

impl Controller {
    /// True if the primary may evict these members. Evicting a minority is granted at once. A primary that
    /// would be left in a minority is granted unless the members that miss it, with those they hear, are at
    /// least as many (PR-09).
    pub(crate) fn grants_eviction(&mut self, now: Now, record: &PartitionRecord, kept: &[Member]) -> bool {
        let stays = record.in_sync.iter().filter(|member| kept.contains(member)).count();
        if 2 * stays > record.in_sync.len() {
            return true;
        }
        if self.settings.rules.losers_back_off() && self.arbitration.must_wait(record.id, now.mono) {
            return false;
        }
        // Where acknowledgements rest on the primary alone it keeps the lead as long as it is heard here
        // (PR-85).
        let claim = if self.requirements(record).rests { 0 } else { self.claim(now, record).len() };
        if claim > 0 && claim >= stays {
            self.arbitration.lost(record.id, now.mono, &self.settings);
            return false;
        }
        true
    }

    /// The in-sync members that miss the primary, with the in-sync members that they hear.
    fn claim(&self, now: Now, record: &PartitionRecord) -> BTreeSet<NodeId> {
        let suspecting = self.suspecting(record);
        let mut side: BTreeSet<NodeId> = suspecting.iter().map(|member| member.node).collect();
        for other in &record.in_sync {
            let heard = |by: &Member| {
                self.failure_detector.said_to_hear(by.node, other.node, now.mono, self.settings.alive)
            };
            if *other != record.primary && suspecting.iter().any(heard) {
                side.insert(other.node);
            }
        }
        side
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Incarnation, LogKind, Policy, StoreId, TableId};

    #[test]
    fn pr233_who_does_not_serve_has_the_benefit_of_the_doubt_for_a_second_at_most() {
        let first = Member { node: NodeId(1), store: StoreId(1), incarnation: Incarnation(1) };
        let policy = Policy::preset("sync", 1, LogKind::Disk).expect("a policy");
        let record = PartitionRecord::new(PartitionId(64), TableId(1), Epoch(1), vec![first], policy);
        let (mut arbitration, settings) = (Arbitration::default(), Settings::default());
        let at = |ms: u64| Micros::from_millis(60_000 + ms);
        arbitration.term_ended(&record, at(0), &settings);
        assert!(
            arbitration.settling(record.id, at(100), false) && arbitration.settling(record.id, at(100), true)
        );
        assert!(!arbitration.settling(record.id, at(120), true), "the first time is short");
        for _ in 0..6 {
            arbitration.term_ended(&record, at(200), &settings);
        }
        assert!(arbitration.settling(record.id, at(1_100), false), "it may yet come to serve");
        assert!(!arbitration.settling(record.id, at(1_200), false), "nobody is served meanwhile");
        assert!(arbitration.settling(record.id, at(5_000), true), "it serves those that hear it");
    }
}

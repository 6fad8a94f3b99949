//! What is written of each partition.

use super::merge::Merged;
use super::{Order, there};
use crate::seal::fencing_term;
use types::config::{Cause, FORMAT, FailoverRecord, LossReport, PartitionRecord, PreviousTerm};
use types::random::mix;
use types::{Epoch, Generation, Member, NodeId, ProposalId, Term};

/// So many epochs are left to the controllers that were replaced, whatever they still give out to nodes that
/// were not asked.
const LEFT: u32 = 32;

/// A partition's new record.
#[derive(Clone, PartialEq, Debug)]
pub struct Sealed {
    /// The name of its table.
    pub table: String,
    /// The epoch of the record that it follows.
    pub from: Epoch,
    /// What is written.
    pub record: PartitionRecord,
    /// Nodes that counted, and are copies at best from now on.
    pub left_out: Vec<NodeId>,
    /// Nobody that counts is there: it is closed until one of them comes back, or another copy is forced.
    pub closed: bool,
    /// The report that goes with it.
    pub failover: FailoverRecord,
}

/// The next term of a partition of which this is the newest record. `highest`: no epoch above it was seen.
pub(super) fn seal(
    old: &PartitionRecord,
    highest: Epoch,
    table: String,
    merged: &Merged,
    order: &Order,
    failover: u64,
) -> Sealed {
    let present: Vec<Member> = there(&old.in_sync, merged).collect();
    let closed = present.is_empty();
    // The record stays as it was where nobody else could lead: no other copy has what was acknowledged.
    let mut in_sync = if closed { old.in_sync.clone() } else { present };
    let counts = |member: &&Member| !in_sync.contains(member);
    let left_out: Vec<NodeId> = old.in_sync.iter().filter(counts).map(|member| member.node).collect();
    if let Some(at) = in_sync.iter().position(|member| *member == old.primary) {
        in_sync[..=at].rotate_right(1);
    }
    let counts = |member: &Member| in_sync.iter().any(|other| other.node == member.node);
    // Its primary may have proposed to count who was catching up, and not have heard that it came to lead.
    let unheard = there(old.members(), merged).count() < old.members().count();
    let ahead = highest > old.epoch;
    let lossy = unheard || ahead || old.lossy && old.before.is_some();
    let epoch = beyond(highest, order.generation);
    let record = PartitionRecord {
        epoch,
        primary: in_sync[0],
        term: Term::of(epoch),
        catching_up: there(&old.catching_up, merged).filter(|member| !counts(member)).collect(),
        in_sync: in_sync.clone(),
        proposal: ProposalId(mix(order.seed.wrapping_add(old.id.0.into()))),
        cause: Cause::Rebuilt,
        before: Some(PreviousTerm {
            epoch: old.epoch,
            term: fencing_term(old, order.rules),
            primary: old.primary,
            handed_over: false,
            in_sync: old.in_sync.clone(),
        }),
        failover: Some(failover),
        lossy,
        ..old.clone()
    };
    let failover = failover_record(old, &record, order, failover);
    Sealed { table, from: old.epoch, record, left_out, closed, failover }
}

/// The first epoch of a generation, or the first one that no controller before can come to.
fn beyond(highest: Epoch, generation: Generation) -> Epoch {
    Epoch(((highest.0 >> LEFT) + 1).max(generation.0) << LEFT)
}

fn failover_record(old: &PartitionRecord, new: &PartitionRecord, order: &Order, id: u64) -> FailoverRecord {
    // Tails of epochs that nobody knows here are counted with it, when they come back.
    let ended = if new.lossy { Epoch(new.epoch.0 - 1) } else { old.epoch };
    FailoverRecord {
        format: FORMAT,
        id,
        partition: new.id,
        cause: Cause::Rebuilt,
        old_epoch: ended,
        old_primary: old.primary,
        old_term: old.term,
        new_epoch: new.epoch,
        new_primary: new.primary,
        last_heard_ms: order.wall_ms,
        suspected_ms: order.wall_ms,
        sealed_ms: order.wall_ms,
        reconciled_ms: None,
        serving_ms: None,
        loss: LossReport { possible: new.lossy, ..LossReport::default() },
        unknown: Default::default(),
    }
}

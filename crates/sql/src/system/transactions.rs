//! `understudy.transactions` and `understudy.transaction_partitions`: global transactions by their states,
//! and how far each partition is. What nobody says in time is null.

use super::facts::Facts;
use super::{Filling, array, int, text, truth};
use crate::ty::Ty;
use ::types::data::Value;
use client::view::transactions::{CommitStage, PartitionCommits, Transactions};

/// The states of a transaction, in their order.
const STATES: [&str; 5] = ["executing", "aborted", "committed", "flushed", "persisted"];

/// A row for each state: how many transactions are in it, how long the oldest of them has been waiting for
/// the next one, up to where all have left it, and which partitions hold that back. Those that execute are
/// counted as their clients and gateways say once a second, with how many of these there are; those that were
/// aborted since the manager leads.
pub fn states(facts: &Facts, filling: &mut Filling) {
    if !facts.is_global() {
        return;
    }
    let found = facts.transactions();
    for state in STATES {
        let (count, oldest) = count(found, state);
        let upto = found.and_then(|found| match state {
            "committed" => Some(&found.stages.flushed_upto),
            "flushed" => Some(&found.stages.secured_upto),
            _ => None,
        });
        let holds = |one: &&PartitionCommits| match state {
            "committed" => one.holds_flushed_back,
            "flushed" => one.holds_secured_back,
            _ => false,
        };
        let senders = found.filter(|_| state == "executing").map(|found| found.stages.executing.senders);
        let back = found.map(|found| found.partitions.iter().filter(holds).map(|one| one.partition));
        filling.row(&[
            ("state", text(state)),
            ("transactions", count.map_or(Value::Null, int)),
            ("oldest_ms", oldest.map_or(Value::Null, int)),
            ("all_upto", upto.map_or(Value::Null, |upto| text(&**upto))),
            ("held_back_by", back.map_or(Value::Null, |back| array(Ty::Int8Array, back))),
            ("senders", senders.map_or(Value::Null, int)),
        ]);
    }
}

fn count(found: Option<&Transactions>, state: &str) -> (Option<u64>, Option<u64>) {
    let Some(stages) = found.map(|found| &found.stages) else { return (None, None) };
    let of = |stage: &CommitStage| (Some(stage.commits), stage.oldest_ms);
    match state {
        "executing" => (Some(stages.executing.transactions), stages.executing.oldest_ms),
        "aborted" => (Some(stages.aborted_in_term), None),
        "committed" => of(&stages.committed),
        "flushed" => of(&stages.flushed),
        "persisted" => of(&stages.persisted),
        _ => (None, None),
    }
}

/// A row for each partition that a transaction has written.
pub fn partitions(facts: &Facts, filling: &mut Filling) {
    let found = facts.transactions().map(|found| &found.partitions);
    for one in found.into_iter().flatten() {
        filling.row(&[
            ("partition", int(one.partition)),
            ("database", text(&*one.database)),
            ("committed", text(&*one.committed)),
            ("flushed", one.flushed.as_ref().map_or(Value::Null, |flushed| text(&**flushed))),
            ("secured", text(&*one.secured)),
            ("state", text(one.state)),
            ("holds_flushed_back", truth(one.holds_flushed_back)),
            ("holds_secured_back", truth(one.holds_secured_back)),
        ]);
    }
}

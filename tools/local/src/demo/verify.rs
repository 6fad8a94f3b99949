//! The verdict: what every replica holds, against what the clients were told. Pure, so that known-bad
//! histories test it.
//!
//! For each key a replica may show the last acknowledged write that is not reported lost, or any later one
//! whose outcome the client does not know. A key whose write ended unknown is not written again, so "later"
//! is never in doubt. What a replica shows also says what is gone: every acknowledged write of the key above
//! it.

use super::history::{Attempt, End, KeyId, Reports};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::{NodeId, PartitionId};

/// What a replica has under a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The row as this client wrote it with this number, every other column as it was loaded.
    Row {
        /// Whose.
        client: u32,
        /// The number it carries.
        sequence: u64,
    },
    /// A row that nobody wrote.
    Foreign,
}

/// Everything that one replica of one partition holds.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The partition.
    pub partition: PartitionId,
    /// Where.
    pub node: NodeId,
    /// Its rows; a key that is not here has none.
    pub rows: HashMap<KeyId, Found>,
    /// Rows under keys that nobody wrote.
    pub strays: u64,
}

/// Everything that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Every write, in any order.
    pub attempts: &'a [Attempt],
    /// The partition of each key, by its number.
    pub places: &'a [PartitionId],
    /// What was read back.
    pub replicas: &'a [Replica],
    /// What the cluster says it lost.
    pub reports: &'a Reports,
    /// True if the policy promised that nothing is lost by what happened, reported or not.
    pub promised: bool,
}

/// An acknowledged write that is reported lost, or gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The write.
    pub attempt: Attempt,
    /// The cluster says that it is lost.
    pub reported: bool,
    /// It is surely gone: a replica shows something older.
    pub gone: bool,
}

/// What was found, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Acknowledged writes that are gone although the policy promised them, or although nobody reported them.
    pub missing: u64,
    /// Keys with something that nobody wrote, or that replicas do not agree on, and rows under unknown keys.
    pub different: u64,
    /// Acknowledged writes that the cluster says are lost.
    pub reported_lost: u64,
    /// Acknowledged writes that are gone and were not reported.
    pub unreported_lost: u64,
    /// Writes that are reported lost and are still there.
    pub wrongly_reported: u64,
    /// Acknowledged writes on which a partition and the record of its failover do not say the same.
    pub reports_differ: u64,
    /// Keys compared, each on every replica.
    pub compared: u64,
}

impl Counts {
    /// True if nothing promised is missing, nothing is wrong and every loss was reported exactly.
    pub fn is_good(&self) -> bool {
        let wrong =
            [self.missing, self.different, self.unreported_lost, self.wrongly_reported, self.reports_differ];
        wrong.iter().all(|count| *count == 0)
    }
}

/// How it stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verification {
    /// In numbers.
    pub counts: Counts,
    /// The writes behind `reported_lost` and `unreported_lost`.
    pub lost: Vec<Lost>,
    /// The first few findings in words.
    pub findings: Vec<String>,
}

impl Verification {
    /// The most findings that are kept in words.
    const FINDINGS: usize = 20;

    fn find(&mut self, text: impl FnOnce() -> String) {
        if self.findings.len() < Verification::FINDINGS {
            self.findings.push(text());
        }
    }
}

/// Compares what is there with what was told.
pub fn verify(evidence: &Evidence<'_>) -> Verification {
    let mut verdict = Verification::default();
    let mut histories: BTreeMap<KeyId, Vec<Attempt>> = BTreeMap::new();
    for attempt in evidence.attempts {
        histories.entry(attempt.key).or_default().push(*attempt);
    }
    let mut copies: HashMap<PartitionId, Vec<&Replica>> = HashMap::new();
    for replica in evidence.replicas {
        copies.entry(replica.partition).or_default().push(replica);
        find_strays(&mut verdict, replica, &histories);
    }
    for (key, history) in &mut histories {
        history.sort_by_key(|attempt| attempt.sequence);
        let partition = evidence.places[key.0 as usize];
        match copies.get(&partition) {
            Some(replicas) => verify_key(&mut verdict, evidence, history, partition, replicas),
            None => verdict.find(|| format!("no replica of partition {partition} was read")),
        }
        if !copies.contains_key(&partition) {
            verdict.counts.different += 1;
        }
    }
    verdict
}

/// Rows where there should be none.
fn find_strays(verdict: &mut Verification, replica: &Replica, histories: &BTreeMap<KeyId, Vec<Attempt>>) {
    let unwritten = replica.rows.keys().filter(|key| !histories.contains_key(key)).count() as u64;
    let strays = replica.strays + unwritten;
    if strays > 0 {
        verdict.counts.different += strays;
        let (node, partition) = (replica.node, replica.partition);
        verdict.find(|| format!("{node} has {strays} rows in partition {partition} that nobody wrote"));
    }
}

fn verify_key(
    verdict: &mut Verification,
    evidence: &Evidence<'_>,
    history: &[Attempt],
    partition: PartitionId,
    replicas: &[&Replica],
) {
    verdict.counts.compared += 1;
    let key = history[0].key;
    let founds: Vec<Option<Found>> = replicas.iter().map(|replica| replica.rows.get(&key).copied()).collect();
    let agreed = founds.iter().all(|found| *found == founds[0]);
    let known = founds.iter().all(|found| was_written(history, *found));
    if !agreed || !known {
        verdict.counts.different += 1;
        verdict.find(|| {
            let shown = replicas.iter().zip(&founds);
            let shown: Vec<String> =
                shown.map(|(replica, found)| format!("{} has {}", replica.node, words(*found))).collect();
            format!("key {} in partition {partition}: {}", key.0, shown.join(", "))
        });
    }
    // The oldest state that any replica shows decides what is gone; something foreign says nothing about
    // that.
    let shown: BTreeSet<Option<u64>> = founds.iter().filter_map(|found| sequence_of(*found)).collect();
    let Some(oldest) = shown.first() else { return };
    for attempt in history {
        verify_attempt(verdict, evidence, attempt, partition, *oldest, &shown);
    }
}

fn verify_attempt(
    verdict: &mut Verification,
    evidence: &Evidence<'_>,
    attempt: &Attempt,
    partition: PartitionId,
    oldest: Option<u64>,
    shown: &BTreeSet<Option<u64>>,
) {
    let Some(at) = attempt.position() else { return };
    let gone = oldest.is_none_or(|oldest| oldest < attempt.sequence);
    let reported = evidence.reports.lost(partition, at);
    if evidence.reports.lost_by_records(partition, at).is_some_and(|lost| lost != reported) {
        verdict.counts.reports_differ += 1;
        verdict.find(|| format!("partition {partition} and its failover's record differ about {at}"));
    }
    let named = |what: &str| {
        let (client, sequence) = (attempt.client, attempt.sequence);
        format!(
            "key {} in partition {partition}: write {sequence} of client {client} at {at} {what}",
            attempt.key.0
        )
    };
    verdict.counts.reported_lost += u64::from(reported);
    if reported && shown.contains(&Some(attempt.sequence)) {
        verdict.counts.wrongly_reported += 1;
        verdict.find(|| named("is reported lost and still there"));
    }
    if gone && !reported {
        verdict.counts.unreported_lost += 1;
        verdict.find(|| named("was acknowledged, is gone and was not reported"));
    }
    if gone && (!reported || evidence.promised) {
        verdict.counts.missing += 1;
        if reported {
            verdict.find(|| named("is lost although the policy promised it"));
        }
    }
    if gone || reported {
        verdict.lost.push(Lost { attempt: *attempt, reported, gone });
    }
}

/// The state that a replica shows: the number of the row, `None` for no row. Nothing if it is not one of
/// ours.
fn sequence_of(found: Option<Found>) -> Option<Option<u64>> {
    match found {
        None => Some(None),
        Some(Found::Row { sequence, .. }) => Some(Some(sequence)),
        Some(Found::Foreign) => None,
    }
}

/// True if the client may really have left the key like this.
fn was_written(history: &[Attempt], found: Option<Found>) -> bool {
    match found {
        None => true,
        Some(Found::Foreign) => false,
        Some(Found::Row { client, sequence }) => history.iter().any(|attempt| {
            attempt.client == client && attempt.sequence == sequence && attempt.end != End::NotDone
        }),
    }
}

fn words(found: Option<Found>) -> String {
    match found {
        None => "no row".into(),
        Some(Found::Foreign) => "a row that nobody wrote".into(),
        Some(Found::Row { client, sequence }) => format!("write {sequence} of client {client}"),
    }
}

#[cfg(test)]
mod tests;

//! The log of a partition that won, what may be missing from it, and the logs that did not win.

use crate::check::history::{Answer, Operation};
use crate::check::lineage::Known;
use crate::check::states::States;
use crate::check::survival::LossyFailover;
use std::collections::BTreeMap;
use types::{Epoch, Lsn, Position, Term};

/// A partition's final log, oldest entry first, and what may be missing from it.
pub struct Final<'a> {
    /// Its entries.
    pub line: Vec<&'a Known>,
    /// Acknowledged commits that are lost, rightly, and since when (virtual microseconds).
    pub lost: BTreeMap<Position, u64>,
    /// The last failover that said that it may have lost something.
    pub lossy: Option<LossyFailover>,
    /// The states along it.
    pub states: States<'a>,
    /// The same along the logs of terms that did not win.
    others: BTreeMap<Term, States<'a>>,
    /// The term of each configuration.
    terms: BTreeMap<Epoch, Term>,
}

impl<'a> Final<'a> {
    /// Of a partition's log, and what is known to be lost of it.
    pub fn new(
        line: Vec<&'a Known>,
        lost: BTreeMap<Position, u64>,
        lossy: Option<LossyFailover>,
    ) -> Final<'a> {
        let states = States::of(line.iter().copied());
        Final { line, lost, lossy, states, others: BTreeMap::new(), terms: BTreeMap::new() }
    }

    /// With what else the partition's terms have had: which of them each configuration is of, and the logs,
    /// oldest entry first, of those whose newest entries are not in the final one.
    pub fn with_terms(
        self,
        terms: BTreeMap<Epoch, Term>,
        lines: impl Iterator<Item = (Term, Vec<&'a Known>)>,
    ) -> Final<'a> {
        let others = lines.map(|(term, line)| (term, States::of(line))).collect();
        Final { others, terms, ..self }
    }

    /// The states of which an answer in this epoch may show one: of the final log, and if something was lost
    /// after it, of that of its primary's term. A replica that is no primary may have that of an earlier one.
    pub fn shown_in(&self, epoch: Epoch, any: bool) -> Vec<&States<'a>> {
        if self.is_of(epoch) && (!any || self.lossy.is_none()) {
            return vec![&self.states];
        }
        let Some(term) = self.terms.get(&epoch) else { return Vec::new() };
        match any {
            true => self.others.range(..=term).map(|(_, states)| states).chain([&self.states]).collect(),
            false => vec![self.others.get(term).unwrap_or(&self.states)],
        }
    }

    /// True if an answer of a primary in this epoch shows this log and no other: what was told before the
    /// last lossy failover may be lost.
    pub fn is_of(&self, epoch: Epoch) -> bool {
        self.lossy.is_none_or(|lossy| lossy.epoch <= epoch)
    }

    /// True if a client began with this, at a time in virtual microseconds, when the primary that came with
    /// the last lossy failover served: what it is told then is of the log that won.
    pub fn is_after(&self, invoked: u64) -> bool {
        self.lossy.is_none_or(|lossy| lossy.served <= invoked)
    }

    /// True if a session was opened in the log that won, so that no number of its own was lost.
    pub fn has_session(&self, operation: &Operation) -> bool {
        let of = operation.session.map(|(session, _)| session.0.term.began());
        self.lossy.is_none_or(|lossy| of.is_some_and(|began| lossy.epoch <= began))
    }

    /// The states of which an answer that names no configuration may show one: of the final log, and of all
    /// others if the operation began, in virtual microseconds, before that won.
    pub fn shown_at(&self, invoked: u64) -> impl Iterator<Item = &States<'a>> {
        let gone = self.others.values().filter(move |_| !self.is_after(invoked));
        std::iter::once(&self.states).chain(gone)
    }

    /// True if an entry that was acknowledged is in the final log, where something was lost: then it is
    /// looked for.
    pub fn has(&self, at: &Position) -> bool {
        let known = |at: &Position| self.line.binary_search_by_key(&at.lsn, |known| known.at.lsn);
        self.lossy.is_none() || known(at).is_ok_and(|place| self.line[place].at == *at)
    }

    /// The term of a configuration, if it is known.
    pub fn term_of(&self, epoch: Epoch) -> Option<Term> {
        self.terms.get(&epoch).copied()
    }

    /// True if a write was acknowledged, and what it did is not lost.
    pub fn is_kept(&self, operation: &Operation) -> bool {
        matches!(&operation.told, Answer::Done { at, .. } if !self.lost.contains_key(at))
    }

    /// True if an answer may be of a log that the last lossy failover gave up, and that an older term had
    /// made this entry in the one that won: the request was on its way to both.
    pub fn is_lost_answer(&self, operation: &Operation, made: &Known) -> bool {
        self.lossy
            .is_some_and(|lossy| operation.completed < lossy.served && made.at.term.began() < lossy.epoch)
    }

    /// True if this was lost before the operation began, so that nobody may have called it kept.
    pub fn was_lost_before(&self, operation: &Operation, at: &Position) -> bool {
        self.lost.get(at).is_some_and(|since| *since < operation.invoked)
    }

    /// The newest change of a key at or below an LSN.
    pub fn newest(&self, key: &str, at: Lsn) -> Option<(Lsn, u64)> {
        self.states.row(key, at)
    }
}

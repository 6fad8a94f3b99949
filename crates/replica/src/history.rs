//! Which terms a log holds and where each begins: enough to find where two logs part (R3, F02).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::{Lsn, Position, Term};
use wire::peer::{LogSummary, MAX_HISTORY};

/// Where each term begins in a log: ascending in both. What lies below the first is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    starts: Vec<(Term, Lsn)>,
}

impl History {
    /// From (term, first LSN) pairs. The error is a sentence; a peer or a disk said this.
    pub fn new(starts: Vec<(Term, Lsn)>) -> Result<History, String> {
        let ascending = |pair: &[(Term, Lsn)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        if starts.len() > MAX_HISTORY || !starts.windows(2).all(ascending) {
            return Err("a term history does not ascend".into());
        }
        Ok(History { starts })
    }

    /// Notes an appended entry.
    pub fn append(&mut self, at: Position) -> bool {
        if self.starts.last().is_some_and(|(term, _)| *term >= at.term) {
            return false;
        }
        self.starts.push((at.term, at.lsn));
        if self.starts.len() > MAX_HISTORY {
            self.starts.remove(0);
        }
        true
    }

    /// Forgets what begins above `to`.
    pub fn truncate(&mut self, to: Lsn) {
        self.starts.retain(|(_, start)| *start <= to);
    }

    /// The term of the entry at `lsn`, if it is known.
    pub fn term_at(&self, lsn: Lsn) -> Option<Term> {
        self.starts.iter().rev().find(|(_, start)| *start <= lsn).map(|(term, _)| *term)
    }

    /// The last LSN of a term in a log that ends at `end`; `None` if the log has nothing of it.
    pub fn end_of(&self, term: Term, end: Lsn) -> Option<Lsn> {
        let at = self.starts.iter().position(|(of, _)| *of == term)?;
        Some(self.starts.get(at + 1).map_or(end, |(_, next)| next.prev()))
    }

    /// Up to which LSN this log has what was made in a term; `None` if the term goes on. Zero if the log has
    /// nothing of it, whatever other terms left at the same LSNs (PR-98). Of a term before all that are
    /// known: the last LSN before those.
    pub fn ended(&self, term: Term) -> Option<Lsn> {
        let next = self.starts.iter().position(|(of, _)| *of > term)?;
        match next.checked_sub(1).map(|before| self.starts[before].0) {
            Some(before) if before != term => Some(Lsn::ZERO),
            _ => Some(self.starts[next].1.prev()),
        }
    }

    /// True if the state at `snapshot.lsn`, as a primary had it when its configuration was of
    /// `snapshot.term`, is a part of this log, which ends at `end`: it has nothing of a later term at or
    /// below it. False also if that is not known any more.
    pub fn holds(&self, snapshot: Position, end: Lsn) -> bool {
        let next = self.starts.iter().position(|(of, _)| *of > snapshot.term);
        snapshot.lsn <= end
            && match next {
                None => true,
                Some(0) => snapshot.lsn == Lsn::ZERO,
                Some(next) => snapshot.lsn < self.starts[next].1,
            }
    }

    /// All pairs.
    pub fn starts(&self) -> &[(Term, Lsn)] {
        &self.starts
    }

    /// The newest position that both logs have (F02: "where did my term end?"), or [`Position::ZERO`].
    pub fn common(&self, end: Lsn, other: &LogSummary) -> Position {
        for (at, (term, _)) in other.history.iter().enumerate().rev() {
            let theirs = other.history.get(at + 1).map_or(other.end.lsn, |(_, next)| next.prev());
            if let Some(mine) = self.end_of(*term, end) {
                return Position::new(*term, mine.min(theirs));
            }
        }
        Position::ZERO
    }

    /// As bytes: term and LSN pairs, little-endian.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.starts.len() * 16);
        for (term, lsn) in &self.starts {
            out.put_u64_le(term.0);
            out.put_u64_le(lsn.0);
        }
        out.freeze()
    }

    /// From [`History::encode`].
    pub fn decode(mut bytes: &[u8]) -> Result<History, String> {
        if !bytes.len().is_multiple_of(16) {
            return Err(format!("a term history of {} bytes", bytes.len()));
        }
        let mut starts = Vec::with_capacity(bytes.len() / 16);
        while !bytes.is_empty() {
            starts.push((Term(bytes.get_u64_le()), Lsn(bytes.get_u64_le())));
        }
        History::new(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(starts: &[(u64, u64)]) -> History {
        History::new(starts.iter().map(|(e, l)| (Term(*e), Lsn(*l))).collect()).expect("ascends")
    }

    fn summary(starts: &[(u64, u64)], end: (u64, u64)) -> LogSummary {
        LogSummary {
            base: Position::ZERO,
            end: Position::new(Term(end.0), Lsn(end.1)),
            history: history(starts).starts().to_vec(),
        }
    }

    #[test]
    fn a_snapshot_is_a_part_of_the_log_only_below_what_came_after_it() {
        let log = history(&[(1, 1), (4, 101), (6, 120)]);
        let holds = |term, lsn| log.holds(Position::new(Term(term), Lsn(lsn)), Lsn(130));
        // Epochs 2 and 3 were configurations of the first term. It may have led up to 105 and acknowledged
        // it, under `async`.
        assert!(holds(1, 100) && holds(2, 100) && holds(3, 100));
        assert!(!holds(1, 101) && !holds(3, 105));
        assert!(holds(4, 119) && holds(5, 119) && !holds(5, 120));
        assert!(holds(6, 130) && !holds(6, 131) && holds(9, 130));
        // What was before the first known term cannot be told.
        let log = history(&[(4, 101)]);
        assert!(!log.holds(Position::new(Term(3), Lsn(50)), Lsn(130)));
        assert!(log.holds(Position::new(Term(4), Lsn(50)), Lsn(130)));
        assert!(history(&[]).holds(Position::ZERO, Lsn::ZERO));
    }

    #[test]
    fn f02_logs_part_where_the_older_term_ended() {
        // This log: term 1 to 100, term 3 from 101. The other: term 1 to 105, never heard of 3.
        let mine = history(&[(1, 1), (3, 101)]);
        assert_eq!(mine.common(Lsn(120), &summary(&[(1, 1)], (1, 105))), Position::new(Term(1), Lsn(100)));
        // The other has only a part of term 3.
        let other = summary(&[(1, 1), (3, 101)], (3, 110));
        assert_eq!(mine.common(Lsn(120), &other), Position::new(Term(3), Lsn(110)));
        // The other led a term 2 that this log never had: back to term 1.
        let other = summary(&[(1, 1), (2, 90)], (2, 95));
        assert_eq!(mine.common(Lsn(120), &other), Position::new(Term(1), Lsn(89)));
        assert_eq!(mine.common(Lsn(120), &summary(&[], (0, 0))), Position::ZERO);
    }

    #[test]
    fn pr98_what_is_left_of_a_term_is_not_what_another_left_at_the_same_lsns() {
        let mine = history(&[(1, 1), (3, 101)]);
        assert_eq!(mine.ended(Term(1)), Some(Lsn(100)));
        // Term 2 may have begun anywhere below 101: this log has nothing of it.
        assert_eq!(mine.ended(Term(2)), Some(Lsn::ZERO));
        assert_eq!(history(&[(3, 101)]).ended(Term(2)), Some(Lsn(100)));
        assert_eq!(mine.ended(Term(3)), None);
    }

    #[test]
    fn a_history_reads_back_and_garbage_is_refused() {
        let mine = history(&[(1, 1), (3, 101)]);
        assert_eq!(History::decode(&mine.encode()), Ok(mine));
        assert!(History::decode(&[0; 15]).is_err());
        assert!(History::decode(&[0; 32]).is_err());
    }
}

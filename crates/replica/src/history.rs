//! Which epochs a log holds and where each begins: enough to find where two logs part (R3, F02).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::{Epoch, Lsn, Position};
use wire::peer::{LogSummary, MAX_HISTORY};

/// Where each epoch begins in a log: ascending in both. What lies below the first is not known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    starts: Vec<(Epoch, Lsn)>,
}

impl History {
    /// From (epoch, first LSN) pairs. The error is a sentence; a peer or a disk said this.
    pub fn new(starts: Vec<(Epoch, Lsn)>) -> Result<History, String> {
        let ascending = |pair: &[(Epoch, Lsn)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        if starts.len() > MAX_HISTORY || !starts.windows(2).all(ascending) {
            return Err("an epoch history does not ascend".into());
        }
        Ok(History { starts })
    }

    /// Notes an appended entry.
    pub fn append(&mut self, at: Position) -> bool {
        if self.starts.last().is_some_and(|(epoch, _)| *epoch >= at.epoch) {
            return false;
        }
        self.starts.push((at.epoch, at.lsn));
        if self.starts.len() > MAX_HISTORY {
            self.starts.remove(0);
        }
        true
    }

    /// Forgets what begins above `to`.
    pub fn cut(&mut self, to: Lsn) {
        self.starts.retain(|(_, start)| *start <= to);
    }

    /// The epoch of the entry at `lsn`, if it is known.
    pub fn epoch_at(&self, lsn: Lsn) -> Option<Epoch> {
        self.starts.iter().rev().find(|(_, start)| *start <= lsn).map(|(epoch, _)| *epoch)
    }

    /// The last LSN of an epoch in a log that ends at `end`; `None` if the log has nothing of it.
    pub fn end_of(&self, epoch: Epoch, end: Lsn) -> Option<Lsn> {
        let at = self.starts.iter().position(|(of, _)| *of == epoch)?;
        Some(self.starts.get(at + 1).map_or(end, |(_, next)| next.prev()))
    }

    /// Where an epoch ended, also one of which this log has nothing: the last LSN made in it or before.
    pub fn ended(&self, epoch: Epoch) -> Option<Lsn> {
        self.starts.iter().find(|(of, _)| *of > epoch).map(|(_, next)| next.prev())
    }

    /// True if the state at `snapshot.lsn`, as a primary had it when its configuration was of `snapshot.epoch`, is a part of this
    /// log, which ends at `end`: it has nothing of a later reign at or below it. False also if that is not known any more.
    pub fn holds(&self, snapshot: Position, end: Lsn) -> bool {
        let next = self.starts.iter().position(|(of, _)| *of > snapshot.epoch);
        snapshot.lsn <= end
            && match next {
                None => true,
                Some(0) => snapshot.lsn == Lsn::ZERO,
                Some(next) => snapshot.lsn < self.starts[next].1,
            }
    }

    /// All pairs.
    pub fn starts(&self) -> &[(Epoch, Lsn)] {
        &self.starts
    }

    /// The newest position that both logs have (F02: "where did my epoch end?"), or [`Position::ZERO`].
    pub fn common(&self, end: Lsn, other: &LogSummary) -> Position {
        for (at, (epoch, _)) in other.history.iter().enumerate().rev() {
            let theirs = other.history.get(at + 1).map_or(other.end.lsn, |(_, next)| next.prev());
            if let Some(mine) = self.end_of(*epoch, end) {
                return Position::new(*epoch, mine.min(theirs));
            }
        }
        Position::ZERO
    }

    /// As bytes: epoch and LSN pairs, little-endian.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.starts.len() * 16);
        for (epoch, lsn) in &self.starts {
            out.put_u64_le(epoch.0);
            out.put_u64_le(lsn.0);
        }
        out.freeze()
    }

    /// From [`History::encode`].
    pub fn decode(mut bytes: &[u8]) -> Result<History, String> {
        if !bytes.len().is_multiple_of(16) {
            return Err(format!("an epoch history of {} bytes", bytes.len()));
        }
        let mut starts = Vec::with_capacity(bytes.len() / 16);
        while !bytes.is_empty() {
            starts.push((Epoch(bytes.get_u64_le()), Lsn(bytes.get_u64_le())));
        }
        History::new(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(starts: &[(u64, u64)]) -> History {
        History::new(starts.iter().map(|(e, l)| (Epoch(*e), Lsn(*l))).collect()).expect("ascends")
    }

    fn summary(starts: &[(u64, u64)], end: (u64, u64)) -> LogSummary {
        LogSummary {
            base: Position::ZERO,
            end: Position::new(Epoch(end.0), Lsn(end.1)),
            history: history(starts).starts().to_vec(),
        }
    }

    #[test]
    fn a_snapshot_is_a_part_of_the_log_only_below_what_came_after_it() {
        let log = history(&[(1, 1), (4, 101), (6, 120)]);
        let holds = |epoch, lsn| log.holds(Position::new(Epoch(epoch), Lsn(lsn)), Lsn(130));
        // Epochs 2 and 3 were configurations of the first reign. It may have led up to 105 and acknowledged it, under `async`.
        assert!(holds(1, 100) && holds(2, 100) && holds(3, 100));
        assert!(!holds(1, 101) && !holds(3, 105));
        assert!(holds(4, 119) && holds(5, 119) && !holds(5, 120));
        assert!(holds(6, 130) && !holds(6, 131) && holds(9, 130));
        // What was before the first known reign cannot be told.
        let log = history(&[(4, 101)]);
        assert!(!log.holds(Position::new(Epoch(3), Lsn(50)), Lsn(130)));
        assert!(log.holds(Position::new(Epoch(4), Lsn(50)), Lsn(130)));
        assert!(history(&[]).holds(Position::ZERO, Lsn::ZERO));
    }

    #[test]
    fn f02_logs_part_where_the_older_epoch_ended() {
        // This log: epoch 1 to 100, epoch 3 from 101. The other: epoch 1 to 105, never heard of 3.
        let mine = history(&[(1, 1), (3, 101)]);
        assert_eq!(mine.common(Lsn(120), &summary(&[(1, 1)], (1, 105))), Position::new(Epoch(1), Lsn(100)));
        // The other has only a part of epoch 3.
        let other = summary(&[(1, 1), (3, 101)], (3, 110));
        assert_eq!(mine.common(Lsn(120), &other), Position::new(Epoch(3), Lsn(110)));
        // The other led an epoch 2 that this log never had: back to epoch 1.
        let other = summary(&[(1, 1), (2, 90)], (2, 95));
        assert_eq!(mine.common(Lsn(120), &other), Position::new(Epoch(1), Lsn(89)));
        assert_eq!(mine.common(Lsn(120), &summary(&[], (0, 0))), Position::ZERO);
    }

    #[test]
    fn an_epochs_end_is_told_also_where_it_left_nothing() {
        let mine = history(&[(1, 1), (3, 101)]);
        assert_eq!(mine.ended(Epoch(1)), Some(Lsn(100)));
        assert_eq!(mine.ended(Epoch(2)), Some(Lsn(100)));
        assert_eq!(mine.ended(Epoch(3)), None);
    }

    #[test]
    fn a_history_reads_back_and_garbage_is_refused() {
        let mine = history(&[(1, 1), (3, 101)]);
        assert_eq!(History::decode(&mine.encode()), Ok(mine));
        assert!(History::decode(&[0; 15]).is_err());
        assert!(History::decode(&[0; 32]).is_err());
    }
}

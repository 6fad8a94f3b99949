//! What clients and gateways have open, as they say it once a second ([`wire::ManagerOp::Executing`]). It is
//! for people alone: nothing of it is logged, and nothing rests on it.

use std::collections::BTreeMap;
use types::Micros;
use wire::commit::ExecutingTransactions;

/// Senders that are kept at most: one more is not counted.
const MAX_SENDERS: usize = 4_096;
/// Who has said nothing for so long is forgotten: it has ended, or is cut off.
const FORGOTTEN: Micros = Micros::from_millis(3_000);
/// Where all places are in use, those to be forgotten are looked for no more often than this.
const SWEEP: Micros = Micros::from_millis(100);

/// What a sender said last, and when, by the monotonic clock here.
#[derive(Clone, Copy, Debug)]
struct OpenReport {
    open: u32,
    oldest_ms: u64,
    at: Micros,
}

/// What every sender said last.
#[derive(Debug, Default)]
pub(super) struct Executing {
    reports: BTreeMap<u64, OpenReport>,
    swept: Micros,
}

impl Executing {
    /// A sender has so many transactions open, the oldest for so many milliseconds.
    pub fn note(&mut self, now: Micros, (who, open, oldest_ms): (u64, u32, u64)) {
        if open == 0 {
            self.reports.remove(&who);
            return;
        }
        if !self.reports.contains_key(&who) && self.reports.len() >= MAX_SENDERS {
            if now.since(self.swept) >= SWEEP {
                self.forget(now);
            }
            if self.reports.len() >= MAX_SENDERS {
                return;
            }
        }
        self.reports.insert(who, OpenReport { open, oldest_ms, at: now });
    }

    /// What all have open that were heard lately.
    pub fn sum(&mut self, now: Micros) -> ExecutingTransactions {
        self.forget(now);
        let reports = self.reports.values();
        let age = |report: &OpenReport| report.oldest_ms.saturating_add(now.since(report.at).as_millis());
        ExecutingTransactions {
            transactions: reports.clone().map(|report| u64::from(report.open)).sum(),
            senders: u32::try_from(self.reports.len()).unwrap_or(u32::MAX),
            oldest_ms: reports.map(age).max(),
        }
    }

    fn forget(&mut self, now: Micros) {
        self.swept = now;
        self.reports.retain(|_, report| now.since(report.at) <= FORGOTTEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    fn executing(transactions: u64, senders: u32, oldest_ms: Option<u64>) -> ExecutingTransactions {
        ExecutingTransactions { transactions, senders, oldest_ms }
    }

    #[test]
    fn what_a_sender_said_last_counts_until_it_has_been_silent_for_a_while() {
        let mut all = Executing::default();
        assert_eq!(all.sum(ms(1)), executing(0, 0, None));
        all.note(ms(1_000), (1, 3, 40));
        all.note(ms(1_000), (2, 5, 900));
        assert_eq!(all.sum(ms(1_000)), executing(8, 2, Some(900)));
        all.note(ms(2_000), (1, 2, 70));
        assert_eq!(all.sum(ms(2_500)), executing(7, 2, Some(2_400)), "they grow older meanwhile");
        assert_eq!(all.sum(ms(4_000)), executing(7, 2, Some(3_900)));
        assert_eq!(all.sum(ms(4_001)), executing(2, 1, Some(2_071)), "the other one was silent for too long");
        all.note(ms(4_100), (1, 0, 0));
        assert_eq!(all.sum(ms(4_100)), executing(0, 0, None), "it has ended the last one");
        all.note(ms(5_000), (3, u32::MAX, u64::MAX));
        assert_eq!(all.sum(ms(6_000)), executing(u64::from(u32::MAX), 1, Some(u64::MAX)));
    }

    /// Who draws another number for each report takes no memory from the manager, and hides others for three
    /// seconds at most.
    #[test]
    fn as_many_senders_are_kept_as_there_is_room_for() {
        let mut all = Executing::default();
        for who in 0..10_000 {
            all.note(ms(1_000), (who, 1, 0));
        }
        assert_eq!(all.sum(ms(1_000)), executing(4_096, 4_096, Some(0)));
        all.note(ms(2_000), (7, 4, 0));
        assert_eq!(all.sum(ms(2_000)).transactions, 4_099, "who is known may go on saying it");
        all.note(ms(2_000), (20_000, 1, 0));
        assert_eq!(all.sum(ms(2_000)).senders, 4_096);
        all.note(ms(4_101), (20_000, 1, 0));
        assert_eq!(all.sum(ms(4_101)), executing(5, 2, Some(2_101)), "the others are forgotten");
    }
}

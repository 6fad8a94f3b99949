//! So many bytes in a second, whoever sends them.
//!
//! The hosts of a node share a budget. What comes in is divided among those that wait for it, evenly, however
//! often and in which order they look: else whoever looks first each time would take everything (PR-472).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::Micros;

/// A tenth of a second's bytes may be sent at once after a time of rest.
const BURST: u64 = 10;
/// While something is urgent, one of so many parts of what comes in is for the rest.
const PARTS: i64 = 8;

/// What a node may send and read back in a second, all its hosts together. A clone is the same budgets.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    ship: Arc<Mutex<Budget>>,
    scrub: Arc<Mutex<Budget>>,
}

/// What one host may spend of the budgets of its node.
#[derive(Debug)]
pub(crate) struct Shares {
    /// For files that are sent to other nodes.
    pub ship: Share,
    /// For files and log that are read back.
    pub scrub: Share,
}

impl Shares {
    /// Those of another host.
    pub fn of(budgets: &Budgets) -> Shares {
        Shares { ship: Share::of(&budgets.ship), scrub: Share::of(&budgets.scrub) }
    }
}

/// How much something is needed that waits to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Nothing is acknowledged before it has come.
    Urgent,
    /// Anything else. While something is urgent it has an eighth of the bytes, so that it gets on also where
    /// what is urgent is never done; once nothing is urgent any more it has all of them.
    Other,
}

impl Need {
    pub const ALL: [Need; 2] = [Need::Urgent, Need::Other];
}

/// What one host may spend of a budget. It has a lock, and none on data: it is held for a sum.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Mutex<Budget>>,
    host: u32,
}

/// A host looks at its budget.
pub(crate) struct Look {
    pub now: Micros,
    /// How many bytes there are in a second; 0: no limit.
    pub per_second: u64,
    /// Who waits and does not look for so long has no part in what comes in: it may stand still.
    pub patience: Micros,
}

impl Share {
    fn of(budget: &Arc<Mutex<Budget>>) -> Share {
        let host = lock(budget).add_host();
        Share { budget: budget.clone(), host }
    }

    /// Time has passed, and this is what waits here. Hosts read the clock one after the other: an earlier
    /// time gives nothing.
    pub fn pass(&self, look: &Look, waits: impl Fn(Need) -> bool) {
        lock(&self.budget).pass(look, self.host, waits);
    }

    /// True if something may be sent.
    pub fn is_left(&self, need: Need) -> bool {
        lock(&self.budget).is_left(need, self.host)
    }

    /// So many bytes were sent.
    pub fn spend(&self, need: Need, bytes: usize) {
        lock(&self.budget).spend(need, self.host, bytes);
    }
}

/// A sum is whole whoever panicked.
fn lock(budget: &Mutex<Budget>) -> MutexGuard<'_, Budget> {
    budget.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What may be sent now.
#[derive(Debug, Default)]
struct Budget {
    /// What nobody has a part in yet.
    rest: i64,
    /// Up to when bytes came in.
    at: Micros,
    limited: bool,
    hosts: u32,
    accounts: BTreeMap<(Need, u32), Account>,
}

/// What a host may send now of what it needs so much.
#[derive(Debug, Default)]
struct Account {
    /// A piece that is sent may be longer: then the next one waits for longer.
    left: i64,
    /// When it was looked at while something waited; none: nothing does.
    waits: Option<Micros>,
}

impl Account {
    /// True if it has a part in what comes in. Whoever has sent more than there was pays for it also while
    /// nothing waits there.
    fn takes_part(&self) -> bool {
        self.waits.is_some() || self.left < 0
    }
}

impl Budget {
    fn add_host(&mut self) -> u32 {
        self.hosts += 1;
        self.hosts
    }

    fn pass(&mut self, look: &Look, host: u32, waits: impl Fn(Need) -> bool) {
        self.limited = look.per_second > 0;
        for need in Need::ALL {
            let account = self.accounts.entry((need, host)).or_default();
            account.waits = waits(need).then_some(look.now.max(account.waits.unwrap_or_default()));
        }
        let most = self.come_in(look);
        self.share_out(most);
    }

    /// Bytes come in, and so does what those have left that do not wait any more, or have more of than is
    /// their part. Gives the most that all of them may have, together with what is not divided yet.
    fn come_in(&mut self, look: &Look) -> i64 {
        for account in self.accounts.values_mut() {
            account.waits = account.waits.filter(|at| look.now.since(*at) <= look.patience);
        }
        let most = ((look.per_second / BURST).min(i64::MAX as u64) as i64).max(self.least());
        let full = Need::ALL.map(|need| self.full(need, most));
        for ((need, _), account) in &mut self.accounts {
            let keeps = if account.waits.is_some() { full[*need as usize] } else { 0 };
            let more = account.left.saturating_sub(keeps).max(0);
            account.left -= more;
            self.rest = self.rest.saturating_add(more);
        }
        let more = u128::from(look.per_second) * u128::from(look.now.since(self.at).0) / 1_000_000;
        // Less than a byte is not lost: the time counts until it makes one.
        if more > 0 || self.at == Micros::ZERO {
            self.rest = self.rest.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
            self.at = self.at.max(look.now);
        }
        let left: i64 = self.accounts.values().map(|account| account.left.max(0)).sum();
        self.rest = self.rest.min(most.saturating_sub(left).max(0));
        most
    }

    /// What one may have left. Who waits and sends nothing, as what it reads back is not there yet, does not
    /// gather what others could send.
    fn full(&self, need: Need, most: i64) -> i64 {
        (most / self.parts(need).max(1)).max(1)
    }

    /// How many have a part in what comes in.
    fn parts(&self, need: Need) -> i64 {
        let takes = self.accounts.iter().filter(|((of, _), account)| *of == need && account.takes_part());
        takes.count() as i64
    }

    /// What is divided at once, at least: less would be nothing for some of them each time.
    fn least(&self) -> i64 {
        match Need::ALL.map(|need| self.parts(need)).iter().sum() {
            0 | 1 => 1,
            several => PARTS * several,
        }
    }

    /// Divides what has come in.
    fn share_out(&mut self, most: i64) {
        if self.rest < self.least() {
            return;
        }
        let (urgent, others) = (self.parts(Need::Urgent), self.parts(Need::Other));
        let for_others = if urgent > 0 { self.rest / PARTS } else { self.rest };
        let for_urgent = if others > 0 { self.rest - for_others } else { self.rest };
        let full = Need::ALL.map(|need| self.full(need, most));
        for ((need, _), account) in &mut self.accounts {
            if account.takes_part() {
                let part = match need {
                    Need::Urgent => for_urgent / urgent,
                    Need::Other => for_others / others,
                };
                let part = part.min(full[*need as usize].saturating_sub(account.left)).max(0);
                account.left += part;
                self.rest -= part;
            }
        }
    }

    fn is_left(&self, need: Need, host: u32) -> bool {
        !self.limited || self.accounts.get(&(need, host)).is_some_and(|account| account.left > 0)
    }

    fn spend(&mut self, need: Need, host: u32, bytes: usize) {
        if self.limited {
            let account = self.accounts.entry((need, host)).or_default();
            account.left = account.left.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(share: &Share, ms: u64, per_second: u64, waiting: &[Need]) {
        let look = Look { now: Micros::from_millis(ms), per_second, patience: Micros::from_millis(100) };
        share.pass(&look, |need| waiting.contains(&need));
    }

    /// What these hosts send in ten seconds in pieces of 700, of what they have waiting from the first tick
    /// of 20 ms on until that of the number; they look one after the other.
    fn sent(per_second: u64, hosts: &[(Need, u64)]) -> Vec<u64> {
        let budgets = Budgets::default();
        let shares: Vec<Share> = hosts.iter().map(|_| Shares::of(&budgets).ship).collect();
        let mut sent = vec![0; hosts.len()];
        for tick in 1..=500 {
            for ((share, sent), (need, until)) in shares.iter().zip(&mut sent).zip(hosts) {
                if tick >= *until {
                    continue;
                }
                look(share, 1_000 + tick * 20, per_second, &[*need]);
                while share.is_left(*need) && *sent < 10_000_000 {
                    share.spend(*need, 700);
                    *sent += 700;
                }
            }
        }
        sent
    }

    #[test]
    fn the_hosts_of_a_node_have_one_limit() {
        let budgets = Budgets::default();
        let (one, other) = (Shares::of(&budgets), Shares::of(&budgets));
        look(&one.ship, 1_000, 10_000, &[Need::Other]);
        assert!(one.ship.is_left(Need::Other));
        one.ship.spend(Need::Other, 1_000);
        look(&other.ship, 1_000, 10_000, &[Need::Other]);
        assert!(!other.ship.is_left(Need::Other), "the other one has sent what there was");
        look(&other.scrub, 1_000, 10_000, &[Need::Other]);
        assert!(other.scrub.is_left(Need::Other), "nobody has read anything");
        // A clock that is read a little earlier gives nothing twice.
        look(&one.ship, 1_020, 10_000, &[Need::Other]);
        look(&other.ship, 1_010, 10_000, &[Need::Other]);
        one.ship.spend(Need::Other, 100);
        other.ship.spend(Need::Other, 100);
        assert!(!one.ship.is_left(Need::Other) && !other.ship.is_left(Need::Other));
    }

    #[test]
    fn the_limit_is_kept_and_used() {
        for rate in [10, 1_000, 50_000, 1_000_000] {
            for hosts in [1, 3] {
                let ten_seconds: u64 = sent(rate, &vec![(Need::Other, u64::MAX); hosts]).iter().sum();
                let expected = rate * 10;
                let most = expected + (rate / BURST).max(30) + 700 * hosts as u64;
                assert!(ten_seconds <= most, "{rate}: {ten_seconds}");
                assert!(ten_seconds >= expected * 95 / 100, "{rate}: {ten_seconds}");
            }
        }
        assert!(sent(0, &[(Need::Other, u64::MAX)])[0] >= 10_000_000, "no limit");
    }

    #[test]
    fn pr472_hosts_that_wait_have_even_parts_whoever_looks_first() {
        for rate in [6_000, 1_000_000] {
            let sent = sent(rate, &[(Need::Other, u64::MAX); 3]);
            let even = rate * 10 / 3;
            assert!(sent.iter().all(|sent| sent.abs_diff(even) <= even / 20 + 700), "{rate}: {sent:?}");
        }
    }

    #[test]
    fn pr472_what_is_urgent_goes_first_and_the_rest_gets_on() {
        let sent = sent(6_000, &[(Need::Other, u64::MAX), (Need::Urgent, u64::MAX)]);
        assert!(sent[1] >= 50_000, "{sent:?}");
        assert!(sent[0] >= 6_000, "{sent:?}");
    }

    #[test]
    fn pr472_who_waits_and_sends_nothing_keeps_nothing_from_others() {
        let budgets = Budgets::default();
        let (one, other) = (Shares::of(&budgets).scrub, Shares::of(&budgets).scrub);
        let mut read = 0;
        for tick in 1..=500 {
            look(&one, 1_000 + tick * 20, 6_000, &[Need::Other]);
            look(&other, 1_000 + tick * 20, 6_000, &[Need::Other]);
            while other.is_left(Need::Other) {
                other.spend(Need::Other, 700);
                read += 700;
            }
        }
        assert!(read >= 55_000, "{read}");
    }

    #[test]
    fn pr472_who_stands_still_keeps_nothing_from_others() {
        // One stops after two seconds, in the middle of what it has to send.
        let sent = sent(6_000, &[(Need::Urgent, 100), (Need::Other, u64::MAX)]);
        assert!(sent[0] <= 12_000 && sent[1] >= 47_000, "{sent:?}");
    }
}

//! The last minutes of this node, a sample a second. Kept always, so that a page that is opened begins with a
//! past.

use super::Web;
use crate::clock;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use wire::control::{NodeStatus, Role};

/// How far back charts go, seconds.
pub(super) const SECONDS: usize = 300;

/// A second of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Seconds since 1970.
    pub at: u64,
    /// Commits acknowledged in it.
    pub commits: u64,
    /// The largest lag of a member behind this node as its primary, microseconds.
    pub lag_us: u64,
    /// The same in bytes.
    pub lag_bytes: u64,
}

/// Samples, the newest last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Takes a sample in if it is newer than what is there, and forgets what is too old.
    pub fn push(&mut self, sample: Sample) {
        if self.samples.back().is_none_or(|newest| newest.at < sample.at) {
            self.samples.push_back(sample);
        }
        while self.samples.len() > SECONDS {
            self.samples.pop_front();
        }
    }

    /// Takes in what another node sent, which may be anything.
    pub fn extend(&mut self, other: History) {
        other.samples.into_iter().for_each(|sample| self.push(sample));
    }

    /// The second of the newest sample; 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.samples.back().map_or(0, |sample| sample.at)
    }

    /// Every sample.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// Samples after this second, as JSON.
    pub fn text(&self, since: u64) -> String {
        let samples = self.samples.iter().filter(|sample| sample.at > since).copied().collect();
        serde_json::to_string(&History { samples }).expect("numbers only")
    }
}

/// Puts down a sample a second for as long as the node lives.
pub(super) async fn record(web: &Web) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut before: Option<(u64, u64)> = None;
    loop {
        seconds.tick().await;
        let status = web.shared_status.status();
        let now = clock::now().wall_ms;
        if let Some((commits, at)) = before {
            // A dropped table takes its commits with it.
            let commits = status.commits.saturating_sub(commits);
            let elapsed = now.saturating_sub(at).max(1);
            let (lag_bytes, lag_us) = lag(&status);
            web.history().push(Sample {
                at: now / 1000,
                commits: commits * 1000 / elapsed,
                lag_us,
                lag_bytes,
            });
        }
        before = Some((status.commits, now));
    }
}

/// The largest lag of any member of any partition that this node leads: bytes and microseconds.
fn lag(status: &NodeStatus) -> (u64, u64) {
    let led = status.replicas.iter().filter(|replica| replica.role == Role::Primary);
    led.flat_map(|replica| &replica.members)
        .fold((0, 0), |(most, longest), (_, _, bytes, us)| (most.max(*bytes), longest.max(*us)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_minutes_are_kept_and_sent_once() {
        let mut history = History::default();
        for at in (1..=400).chain([7, 400]) {
            history.push(Sample { at, commits: at, lag_us: 0, lag_bytes: 0 });
        }
        assert_eq!((history.samples.len(), history.newest()), (SECONDS, 400));
        let mut other = History::default();
        other.extend(serde_json::from_str(&history.text(398)).expect("JSON"));
        assert_eq!(other.samples().map(|sample| sample.at).collect::<Vec<_>>(), [399, 400]);
    }
}

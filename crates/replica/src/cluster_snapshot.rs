//! One point over many partitions: which positions belong together. Pure, like everything here; who looks for
//! a point sends what [`ClusterSnapshot::asks`] says and hands answers in.
//!
//! Every partition's primary is asked to hold `committed` where it is (`Pause`) and names it. Only when all
//! have answered are they let go on (`Resume`), and each says where it stands then. If that is everywhere
//! what it said first, there was a moment at which all of them were held, and the positions are one point:
//!
//! - What was acknowledged before the first was asked is in it.
//! - Nothing is in it without everything that was acknowledged before it was sent. For let x, in one
//!   partition, be acknowledged and not in the point. Then it was acknowledged after its partition went on,
//!   so after all others had answered. What is sent after that gets a later position there than the one that
//!   was named.
//!
//! A pause that ended by itself, a failover and a hand-over show in the second answer: `committed` went on.
//! The point is void then, and can be looked for again.

use std::collections::BTreeMap;
use types::{PartitionId, Position, Rules};

/// What a partition is to be asked now. Each is given out once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// [`wire::Op::Pause`].
    Pause(PartitionId),
    /// [`wire::Op::Resume`] at the position that it named.
    Resume(PartitionId, Position),
}

/// How far the search is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Answers are missing.
    NotYet,
    /// These positions are one point.
    ClusterSnapshot(BTreeMap<PartitionId, Position>),
    /// There is none this time. One sentence why.
    Void(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HoldStage {
    /// Not asked yet.
    New,
    Pausing,
    Paused(Position),
    Resuming(Position),
    /// It stood there still when it was let go on.
    Held(Position),
}

/// A search for one point.
#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    rules: Rules,
    stages: BTreeMap<PartitionId, HoldStage>,
    void: Option<String>,
}

impl ClusterSnapshot {
    /// Over these partitions.
    pub fn new(partitions: impl IntoIterator<Item = PartitionId>, rules: Rules) -> ClusterSnapshot {
        let stages = partitions.into_iter().map(|partition| (partition, HoldStage::New)).collect();
        ClusterSnapshot { rules, stages, void: None }
    }

    /// What is to be sent now. When the search is void: everybody who is held is let go on.
    pub fn asks(&mut self) -> Vec<Ask> {
        let all_held = self.paused().is_some() || self.void.is_some();
        let early = !self.rules.all_are_held_first();
        let mut asks = Vec::new();
        for (partition, stage) in &mut self.stages {
            match *stage {
                HoldStage::New if self.void.is_none() => {
                    *stage = HoldStage::Pausing;
                    asks.push(Ask::Pause(*partition));
                }
                HoldStage::Paused(at) if all_held || early => {
                    *stage = HoldStage::Resuming(at);
                    asks.push(Ask::Resume(*partition, at));
                }
                _ => {}
            }
        }
        asks
    }

    /// Where every partition is held, while all of them are and none was let go on.
    pub fn paused(&self) -> Option<BTreeMap<PartitionId, Position>> {
        let at = |(partition, stage): (&PartitionId, &HoldStage)| match stage {
            HoldStage::Paused(at) => Some((*partition, *at)),
            _ => None,
        };
        self.stages.iter().map(at).collect()
    }

    /// A partition's answer to what it was asked last, or why there is none.
    pub fn heard(&mut self, partition: PartitionId, answer: Result<Position, String>) {
        let Some(stage) = self.stages.get_mut(&partition) else { return };
        let void = match (*stage, answer) {
            (HoldStage::Pausing, Ok(at)) => {
                *stage = HoldStage::Paused(at);
                return;
            }
            (HoldStage::Resuming(at), Ok(now)) if now.lsn == at.lsn => {
                *stage = HoldStage::Held(at);
                return;
            }
            (HoldStage::Resuming(at), Ok(now)) => {
                format!("{partition} was not held long enough: it went on from LSN {} to {}", at.lsn, now.lsn)
            }
            (_, Err(why)) => format!("{partition}: {why}"),
            (_, Ok(_)) => return,
        };
        self.void.get_or_insert(void);
    }

    /// Nobody waits any longer.
    pub fn give_up(&mut self, why: impl Into<String>) {
        self.void.get_or_insert(why.into());
    }

    /// How far the search is.
    pub fn found(&self) -> Found {
        if let Some(why) = &self.void {
            return Found::Void(why.clone());
        }
        let held = |(partition, stage): (&PartitionId, &HoldStage)| match stage {
            HoldStage::Held(at) => Some((*partition, *at)),
            _ => None,
        };
        self.stages.iter().map(held).collect::<Option<_>>().map_or(Found::NotYet, Found::ClusterSnapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Rules, Term};

    const A: PartitionId = PartitionId(64);
    const B: PartitionId = PartitionId(65);

    fn at(lsn: u64) -> Position {
        Position::new(Term(1), Lsn(lsn))
    }

    #[test]
    fn nobody_goes_on_before_all_are_held() {
        let mut cluster_snapshot = ClusterSnapshot::new([A, B], Rules::ALL);
        assert_eq!(cluster_snapshot.asks(), [Ask::Pause(A), Ask::Pause(B)]);
        assert_eq!(cluster_snapshot.asks(), []);
        cluster_snapshot.heard(A, Ok(at(5)));
        assert_eq!((cluster_snapshot.asks(), cluster_snapshot.paused()), (vec![], None));
        cluster_snapshot.heard(B, Ok(at(9)));
        assert_eq!(cluster_snapshot.paused(), Some(BTreeMap::from([(A, at(5)), (B, at(9))])));
        assert_eq!(cluster_snapshot.asks(), [Ask::Resume(A, at(5)), Ask::Resume(B, at(9))]);
        cluster_snapshot.heard(A, Ok(Position::new(Term(2), Lsn(5))));
        assert_eq!(cluster_snapshot.found(), Found::NotYet);
        cluster_snapshot.heard(B, Ok(at(9)));
        assert_eq!(
            cluster_snapshot.found(),
            Found::ClusterSnapshot(BTreeMap::from([(A, at(5)), (B, at(9))]))
        );
    }

    #[test]
    fn who_went_on_makes_it_void() {
        let mut cluster_snapshot = ClusterSnapshot::new([A, B], Rules::ALL);
        cluster_snapshot.asks();
        cluster_snapshot.heard(A, Ok(at(5)));
        cluster_snapshot.heard(B, Ok(at(9)));
        cluster_snapshot.asks();
        cluster_snapshot.heard(A, Ok(at(5)));
        cluster_snapshot.heard(B, Ok(at(10)));
        assert!(matches!(cluster_snapshot.found(), Found::Void(why) if why.contains("from LSN 9 to 10")));
    }

    #[test]
    fn who_is_held_goes_on_when_another_does_not_answer() {
        let mut cluster_snapshot = ClusterSnapshot::new([A, B], Rules::ALL);
        cluster_snapshot.asks();
        cluster_snapshot.heard(A, Ok(at(5)));
        cluster_snapshot.heard(B, Err("the new primary is not ready yet".into()));
        assert_eq!(cluster_snapshot.asks(), [Ask::Resume(A, at(5))]);
        assert!(matches!(cluster_snapshot.found(), Found::Void(why) if why.contains("not ready")));
        cluster_snapshot.heard(A, Ok(at(5)));
        assert!(matches!(cluster_snapshot.found(), Found::Void(_)), "void stays void");
    }
}

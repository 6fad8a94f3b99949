//! How long partitions went without an acknowledged write, for each kind of fault: as the prober was told.

use crate::faults::{Round, Shape};
use crate::native::PROBE;
use history::Operation;
use serde::Serialize;
use std::collections::BTreeMap;

/// The goal for one node that is hit, milliseconds.
const ONE_NODE_MS: f64 = 400.0;
/// The goal for two that are hit, once they are healed, milliseconds.
const TWO_HEALED_MS: f64 = 1000.0;

/// What rounds of one kind have shown.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Gap {
    /// What happened: `kill`, or `kill and stop`.
    pub fault: String,
    /// How nodes were hit.
    pub shape: Shape,
    /// How many rounds.
    pub rounds: u64,
    /// The longest time without an acknowledged write to some partition, milliseconds.
    pub longest_ms: f64,
    /// The longest of that behind the end of the fault: from when the last node was back.
    pub healed_ms: f64,
    /// The goal, and whether it was met; none where there is none.
    pub goal_ms: Option<f64>,
    /// True if there is a goal and it was missed.
    pub missed: bool,
}

impl Gap {
    /// What the goal is of, milliseconds: where two nodes were hit the part behind the end of the fault.
    fn measured(&self) -> f64 {
        if self.shape == Shape::Two { self.healed_ms } else { self.longest_ms }
    }
}

/// One round's figures, milliseconds: all of the longest gap, and the longest part of any behind the end of
/// the fault.
fn of_round(acks: &BTreeMap<u32, Vec<u64>>, round: &Round, until: u64) -> (f64, f64) {
    let (mut longest, mut healed) = (0, 0);
    for times in acks.values() {
        // What ends only after everything was measured up to its end.
        let ends = times.iter().copied().chain([until]);
        let starts = [0].into_iter().chain(times.iter().copied());
        let gaps = starts.zip(ends).filter(|(from, to)| *to > round.injected && *from < until);
        for (from, to) in gaps {
            longest = longest.max(to.min(until).saturating_sub(from));
            if from <= round.healed && to > round.healed {
                healed = healed.max(to.min(until) - round.healed);
            }
        }
    }
    (longest as f64 / 1000.0, healed as f64 / 1000.0)
}

/// For each kind of fault, in the order in which they were played. `end` is when the load ended.
pub fn of(history: &[Operation], rounds: &[Round], end: u64) -> Vec<Gap> {
    let mut acks: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for operation in history.iter().filter(|operation| operation.what == PROBE) {
        acks.entry(operation.place).or_default().extend(operation.ended());
    }
    of_acks(acks, rounds, end)
}

/// The same, from the moments of acknowledgements at each place.
pub fn of_acks(mut acks: BTreeMap<u32, Vec<u64>>, rounds: &[Round], end: u64) -> Vec<Gap> {
    acks.values_mut().for_each(|times| times.sort_unstable());
    let mut gaps: Vec<Gap> = Vec::new();
    for (at, round) in rounds.iter().enumerate() {
        let until = rounds.get(at + 1).map_or(end, |next| next.injected);
        let (longest_ms, healed_ms) = of_round(&acks, round, until);
        let (fault, shape) = (name(round), round.plan.shape);
        let found = gaps.iter().position(|gap| (&gap.fault, gap.shape) == (&fault, shape));
        let at = found.unwrap_or_else(|| {
            let goal_ms = match shape {
                Shape::One => Some(ONE_NODE_MS),
                Shape::Two => Some(TWO_HEALED_MS),
                Shape::Again => None,
            };
            let (rounds, longest_ms, healed_ms, missed) = (0, 0.0, 0.0, false);
            gaps.push(Gap { fault, shape, rounds, longest_ms, healed_ms, goal_ms, missed });
            gaps.len() - 1
        });
        let gap = &mut gaps[at];
        gap.rounds += 1;
        gap.longest_ms = gap.longest_ms.max(longest_ms);
        gap.healed_ms = gap.healed_ms.max(healed_ms);
        gap.missed = gap.goal_ms.is_some_and(|goal| gap.measured() > goal);
    }
    gaps
}

/// The goals that were missed, a sentence each.
pub fn missed(gaps: &[Gap]) -> Vec<String> {
    let missed = gaps.iter().filter(|gap| gap.missed);
    let said = missed.filter_map(|gap| {
        let (measured, goal) = (gap.measured(), gap.goal_ms?);
        Some(format!("{}: {measured:.0} ms without an acknowledged write, goal {goal:.0}", gap.fault))
    });
    said.collect()
}

/// What happened in a round.
pub fn name(round: &Round) -> String {
    let [one, other] = round.plan.faults;
    match round.plan.shape {
        Shape::One => one.to_string(),
        Shape::Two => format!("{one} and {other}"),
        Shape::Again => format!("{one}, then {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::FaultPlan;
    use crate::recorder::{Called, Record, Shared, together};
    use history::{End, Protocol};
    use local::demo::Fault;

    fn history(acks: &[(u32, u64)]) -> Vec<Operation> {
        let (shared, mut record) = (Shared::default(), Record::new(0, Protocol::Native));
        for (place, _) in acks {
            record.done(&shared, Called { what: PROBE, place: *place, invoked: 0 }, None, vec![], vec![]);
        }
        let (mut all, _) = together(vec![record]);
        for (operation, (_, at)) in all.iter_mut().zip(acks) {
            assert_eq!(operation.end, End::Done);
            operation.completed = Some(*at);
        }
        all
    }

    #[test]
    fn the_slowest_partition_of_the_worst_round_counts() {
        let plan = |shape, one, other| FaultPlan { shape, faults: [one, other] };
        let round =
            |plan, injected, healed| Round { plan, nodes: vec![1], controller: false, injected, healed };
        let ms = |ms: u64| ms * 1000;
        let rounds = [
            round(plan(Shape::One, Fault::Kill, Fault::Kill), ms(100), ms(600)),
            round(plan(Shape::Two, Fault::Kill, Fault::Stop), ms(1000), ms(1500)),
            round(plan(Shape::One, Fault::Kill, Fault::Kill), ms(3000), ms(3100)),
        ];
        let acks = [
            (64, ms(90)),
            (64, ms(300)),
            (64, ms(990)),
            (64, ms(2900)),
            (64, ms(3090)),
            (64, ms(3990)),
            (65, ms(95)),
            (65, ms(995)),
            (65, ms(1700)),
            (65, ms(2999)),
            (65, ms(3999)),
        ];
        let gaps = of(&history(&acks), &rounds, ms(4000));
        assert_eq!(gaps.len(), 2);
        assert_eq!((gaps[0].fault.as_str(), gaps[0].rounds, gaps[0].missed), ("kill", 2, true));
        assert_eq!((gaps[0].longest_ms, gaps[0].healed_ms), (1000.0, 899.0));
        assert_eq!(
            (gaps[1].fault.as_str(), gaps[1].longest_ms, gaps[1].healed_ms),
            ("kill and stop", 1910.0, 1400.0)
        );
        assert!(gaps[1].missed);
        let said = missed(&gaps);
        assert_eq!(said[0], "kill: 1000 ms without an acknowledged write, goal 400");
        assert_eq!(said[1], "kill and stop: 1400 ms without an acknowledged write, goal 1000");
        assert_eq!(said.len(), 2);
    }
}

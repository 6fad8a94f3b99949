//! What a table survives now, in words: its policy's promise for the copies that there really are.

use types::policy::{FailureScenario, Promise};
use types::{PartitionRecord, Policy};

/// What a commit that is acknowledged now survives. Of a `global` transaction a partition is told again what
/// it has lost (PR-368).
pub fn survives(policy: &Policy, copies: usize, global: bool) -> String {
    let present = Policy { factor: copies.clamp(1, 7) as u8, ..policy.clone() };
    let promise = |failure_scenario| present.promise(failure_scenario);
    let loses = |promise| matches!(promise, Promise::WhatThePromotedHad | Promise::WhatWasDurable);
    if global && [FailureScenario::OneCrash, FailureScenario::AllPower].map(promise).into_iter().any(loses) {
        return "survives what sys_commits survives: commits that a copy has lost are brought again from there"
            .into();
    }
    let crash = match (promise(FailureScenario::OneCrash), promise(FailureScenario::TwoCrash)) {
        (Promise::Survives, Promise::Survives) => "any two node crashes",
        (Promise::Survives, _) => "any one node crash",
        (Promise::WhatThePromotedHad, _) => {
            "a node crash as far as the promoted copy has got (the rest is reported)"
        }
        (Promise::Stops, _) => "no node crash without a stop (its disk keeps what was acknowledged)",
        (Promise::WhatWasDurable, _) => "a node crash as far as its disk has got",
        (Promise::Gone, _) => "no node crash",
    };
    let power = match promise(FailureScenario::AllPower) {
        Promise::Survives => "a power loss of all nodes",
        Promise::Stops => "a power loss of all nodes (what was acknowledged is on disk)",
        Promise::WhatWasDurable | Promise::WhatThePromotedHad => "of a power loss what was on disk",
        Promise::Gone => "no power loss of all nodes",
    };
    format!("survives {crash}, and {power}")
}

/// The partition of a table whose commits survive least: the one with the fewest copies in sync.
pub fn weakest<'a>(records: impl Iterator<Item = &'a PartitionRecord>) -> Option<&'a PartitionRecord> {
    records.min_by_key(|record| record.in_sync.len())
}

/// True if this partition acknowledges nothing because it has too few copies.
pub fn stopped(record: &PartitionRecord) -> bool {
    !record.policy.allows(record.in_sync.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::LogKind;

    #[test]
    fn pr368_what_a_partition_of_global_transactions_loses_is_brought_again() {
        for (name, copies) in [("async", 3), ("async", 1), ("semi", 3), ("local", 2)] {
            let lazy = Policy::preset(name, 3, LogKind::Disk).expect("a preset");
            let words = survives(&lazy, copies, true);
            assert!(words.contains("brought again") && !words.contains("as far as"), "{name}: {words}");
        }
        let durable = Policy::preset("durable", 3, LogKind::Disk).expect("a preset");
        assert_eq!(survives(&durable, 3, true), survives(&durable, 3, false));
    }

    #[test]
    fn fewer_copies_promise_less() {
        let durable = Policy::preset("durable", 3, LogKind::Disk).expect("a preset");
        assert_eq!(
            survives(&durable, 3, false),
            "survives any two node crashes, and a power loss of all nodes"
        );
        assert_eq!(
            survives(&durable, 2, false),
            "survives any one node crash, and a power loss of all nodes"
        );
        assert!(survives(&durable, 1, false).starts_with("survives no node crash without a stop"));
        let asynchronous = Policy::preset("async", 3, LogKind::Disk).expect("a preset");
        assert!(survives(&asynchronous, 3, false).contains("as far as the promoted copy"));
        let memory = Policy::preset("semi", 3, LogKind::Memory).expect("a preset");
        assert_eq!(
            survives(&memory, 3, false),
            "survives any two node crashes, and no power loss of all nodes"
        );
        assert_eq!(survives(&memory, 1, false), "survives no node crash, and no power loss of all nodes");
    }
}

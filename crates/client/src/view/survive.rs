//! What a table survives now, in words: its policy's promise for the copies that there really are.

use types::policy::{FailureScenario, Promise};
use types::{PartitionRecord, Policy};

/// What a commit that is acknowledged now survives.
pub fn survives(policy: &Policy, copies: usize) -> String {
    let present = Policy { factor: copies.clamp(1, 7) as u8, ..policy.clone() };
    let promise = |failure_scenario| present.promise(failure_scenario);
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
    fn fewer_copies_promise_less() {
        let durable = Policy::preset("durable", 3, LogKind::Disk).expect("a preset");
        assert_eq!(survives(&durable, 3), "survives any two node crashes, and a power loss of all nodes");
        assert_eq!(survives(&durable, 2), "survives any one node crash, and a power loss of all nodes");
        assert!(survives(&durable, 1).starts_with("survives no node crash without a stop"));
        let asynchronous = Policy::preset("async", 3, LogKind::Disk).expect("a preset");
        assert!(survives(&asynchronous, 3).contains("as far as the promoted copy"));
        let memory = Policy::preset("semi", 3, LogKind::Memory).expect("a preset");
        assert_eq!(survives(&memory, 3), "survives any two node crashes, and no power loss of all nodes");
        assert_eq!(survives(&memory, 1), "survives no node crash, and no power loss of all nodes");
    }
}

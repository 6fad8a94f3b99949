//! The meaning of every policy, as tables that people can review. Set `UPDATE=1` to write them anew.

use proptest::prelude::*;
use std::fmt::Write as _;
use types::policy::{FailureScenario, LogKind, MAX_FACTOR, Policy, PolicyError, RestsOn, Standby};
use types::{EngineKind, Lsn, Watermarks};
use understudy_types as types;

/// States of one replica for the entry at LSN 1, with the letters used in the table.
const STATES: [(&str, [u64; 3]); 5] =
    [("-", [0, 0, 0]), ("r", [1, 0, 0]), ("rd", [1, 1, 0]), ("ra", [1, 0, 1]), ("rda", [1, 1, 1])];

fn marks(state: [u64; 3]) -> Watermarks {
    Watermarks {
        received: Lsn(state[0]),
        durable: Lsn(state[1]),
        applied: Lsn(state[2]),
        persisted: Lsn::ZERO,
    }
}

fn compare(path: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    testing::expected::check(&path, |_| text.to_string());
}

fn all_policies() -> Vec<Policy> {
    let mut policies = Vec::new();
    for log in [LogKind::Disk, LogKind::Memory] {
        for name in Policy::PRESETS {
            let factor = if name == "none" { 1 } else { 3 };
            policies.extend(Policy::preset(name, factor, log));
        }
    }
    policies
}

/// What is left of an entry when the primary crashes: the best of the backups in the set decides.
fn after_crash(policy: &Policy, acknowledged: bool, backups: &[[u64; 3]]) -> &'static str {
    let held = backups.iter().any(|state| state[0] == 1);
    match (acknowledged, held) {
        (false, _) => "-",
        (true, true) => "kept",
        (true, false) if policy.rests_on() == RestsOn::Primary => "lost, reported",
        (true, false) => "LOST",
    }
}

#[test]
fn the_truth_table_of_every_policy() {
    let mut text = String::from(
        "# r received, d durable, a applied. Is the entry acknowledged? What is left when the primary crashes then?\n",
    );
    for policy in all_policies() {
        writeln!(text, "\n{} log={:?} factor={}", policy.name, policy.log, policy.factor).expect("text");
        writeln!(text, "{:<8}{:<8}{:<8}{:<14}primary crashes", "primary", "backup", "backup", "acknowledged")
            .expect("text");
        for (primary, p) in &STATES[1..] {
            if policy.factor == 1 {
                let ack = policy.commit([marks(*p)]) >= Lsn(1);
                writeln!(text, "{primary:<8}{:<8}{:<8}{:<14}-", "", "", if ack { "yes" } else { "no" })
                    .expect("text");
                continue;
            }
            for (i, (one, a)) in STATES.iter().enumerate() {
                for (two, b) in &STATES[i..] {
                    let ack = policy.commit([marks(*p), marks(*a), marks(*b)]) >= Lsn(1);
                    let left = after_crash(&policy, ack, &[*a, *b]);
                    let ack = if ack { "yes" } else { "no" };
                    writeln!(text, "{primary:<8}{one:<8}{two:<8}{ack:<14}{left}").expect("text");
                }
            }
        }
    }
    assert!(!text.contains("LOST"), "a policy that counts backups lost an acknowledged entry:\n{text}");
    compare("tests/golden/truth_table.txt", &text);
}

#[test]
fn section_12_the_promises() {
    let mut text = String::from(
        "# Policies and what they promise\n\nGenerated from `Policy::promise` and `Policy::check` by `crates/types/tests/policy.rs`; \
         a test compares this page with them.\n\nWhat an acknowledged commit survives, with every copy in sync:\n\n\
         | policy | log | copies | any one node crashes | any two nodes crash | all nodes lose power | primary cut off |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for policy in all_policies() {
        let says = |failure_scenario| policy.promise(failure_scenario).to_string();
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            policy.name,
            if policy.log == LogKind::Disk { "disk" } else { "memory" },
            policy.factor,
            says(FailureScenario::OneCrash),
            says(FailureScenario::TwoCrash),
            says(FailureScenario::AllPower),
            says(FailureScenario::PrimaryCut),
        )
        .expect("text");
    }
    text.push_str("\nCombinations of engine, log, standby and policy that can be had:\n\n");
    text.push_str("| engine | log | standby | policies |\n| --- | --- | --- | --- |\n");
    for engine in EngineKind::ALL {
        for log in [LogKind::Disk, LogKind::Memory] {
            for standby in [Standby::Hot, Standby::Cold] {
                text.push_str(&combinations(engine, log, standby));
            }
        }
    }
    compare("../../docs/policies.md", &text);
}

/// A row of the table of what can be had.
fn combinations(engine: EngineKind, log: LogKind, standby: Standby) -> String {
    let (mut names, mut why) = (Vec::new(), String::new());
    for name in Policy::PRESETS {
        let factor = if name == "none" { 1 } else { 3 };
        let Ok(policy) = Policy::preset(name, factor, log) else { continue };
        match (Policy { standby, ..policy }).check(engine) {
            Ok(()) => names.push(name),
            Err(error) => why = error.to_string(),
        }
    }
    let names = if names.is_empty() { format!("(refused: {why})") } else { names.join(", ") };
    let log = if log == LogKind::Disk { "disk" } else { "memory" };
    let standby = if standby == Standby::Hot { "hot" } else { "cold" };
    format!("| {} | {log} | {standby} | {names} |\n", engine.name())
}

#[test]
fn what_cannot_be_had_is_refused_by_name() {
    let refused = |name, factor, log| Policy::preset(name, factor, log).unwrap_err();
    assert_eq!(refused("triplet", 3, LogKind::Disk), PolicyError::NotYet("triplet".into()));
    assert_eq!(refused("quorum(2)", 3, LogKind::Disk), PolicyError::NotYet("quorum(2)".into()));
    assert_eq!(refused("paxos", 3, LogKind::Disk), PolicyError::Unknown("paxos".into()));
    assert_eq!(refused("durable", 3, LogKind::Memory), PolicyError::NeedsDisk("durable".into()));
    assert_eq!(refused("none", 3, LogKind::Disk), PolicyError::NoneWithBackups(3));
    assert_eq!(refused("durable", 0, LogKind::Disk), PolicyError::Factor(0));
}

fn any_marks() -> impl Strategy<Value = Watermarks> {
    (0u64..50, 0u64..50, 0u64..50).prop_map(|(received, durable, applied)| Watermarks {
        received: Lsn(received),
        durable: Lsn(durable.min(received)),
        applied: Lsn(applied.min(received)),
        persisted: Lsn::ZERO,
    })
}

proptest! {
    /// R4 and N3: more progress never commits less, and a further counted copy never commits more.
    #[test]
    fn commit_is_monotone(marks in prop::collection::vec(any_marks(), 1..usize::from(MAX_FACTOR)), which in 0usize..7) {
        for policy in all_policies() {
            let before = policy.commit(&marks);
            let mut more = marks.clone();
            let grown = &mut more[which % marks.len()];
            grown.received = grown.received.next();
            grown.durable = grown.received;
            grown.applied = grown.received;
            prop_assert!(policy.commit(&more) >= before);
            prop_assert!(policy.commit(&marks[..marks.len().min(2)]) >= before);
        }
    }

    /// PR-13: where backups count, any one member of the set has everything that was committed.
    #[test]
    fn any_member_fences_a_policy_that_counts_all(marks in prop::collection::vec(any_marks(), 2..5)) {
        for policy in all_policies().into_iter().filter(|policy| policy.rests_on() == RestsOn::All) {
            let committed = policy.commit(&marks);
            prop_assert!(marks.iter().all(|marks| marks.received >= committed));
            prop_assert!(policy.fenced_by(1, false));
        }
    }
}

/// The ladders of section 3: each rung demands all that the one before it does.
#[test]
fn the_ladders_ascend() {
    let ladders: [(&[&str], LogKind); 2] =
        [(&["async", "semi", "sync"], LogKind::Memory), (&["local", "durable", "sync"], LogKind::Disk)];
    for (ladder, log) in ladders {
        for pair in ladder.windows(2) {
            let low = Policy::preset(pair[0], 3, log).expect("a preset");
            let high = Policy::preset(pair[1], 3, log).expect("a preset");
            let every: Vec<Watermarks> = STATES.iter().map(|(_, state)| marks(*state)).collect();
            for (a, b, c) in every.iter().flat_map(|a| every.iter().map(move |b| (a, b, b))) {
                let set = [*a, *b, *c];
                assert!(low.commit(set) >= high.commit(set), "{pair:?} with {set:?}");
            }
        }
    }
}

/// What is asked by name, for every policy at once, so that a person sees it.
#[test]
fn what_a_policy_answers_by_name() {
    use types::policy::Guarantee::{AllDurable, AllDurableAndApplied, BackupsReceived, PrimaryDurable};
    let ahead = marks([1, 0, 0]);
    for policy in all_policies() {
        let (name, disk) = (policy.name.as_str(), policy.log == LogKind::Disk);
        let alone = matches!(name, "none" | "async" | "local");
        assert_eq!(policy.rests_on() == RestsOn::Primary, alone, "{name}");
        assert_eq!(policy.waits_for(1), !alone, "{name}");
        // Who joins holds nothing back where no backup counts, and acknowledges what it received.
        assert_eq!(policy.commit_with(&marks([0, 0, 0])) == Lsn::MAX, alone, "{name}");
        let in_memory = alone || name == "semi";
        assert_eq!(policy.reached(1, &ahead), Lsn(u64::from(in_memory)), "{name}");
        assert_eq!(policy.kept(&ahead), Lsn(u64::from(!disk)), "{name}");
        assert_eq!(policy.synced(&ahead), disk.then_some(Lsn(0)), "{name}");
        let gives =
            [PrimaryDurable, BackupsReceived, AllDurable, AllDurableAndApplied].map(|one| policy.gives(one));
        let expected = match (name, disk) {
            ("local", _) => [true, false, false, false],
            ("semi", _) | ("sync", false) => [false, true, false, false],
            ("durable", _) => [true, true, true, false],
            ("sync", true) => [true, true, true, true],
            _ => [false; 4],
        };
        assert_eq!(gives, expected, "{name}");
        let secured = matches!(name, "durable" | "sync") || !disk && (!alone || policy.factor == 1);
        assert_eq!(policy.acknowledges_secured(), secured, "{name} {disk}");
        assert!(policy.allows(2) && policy.allows(1) == (policy.factor == 1), "{name}");
    }
}

//! A fixed set of seeds keeps every promise, and a seed says everything.

use std::collections::{BTreeMap, BTreeSet};
use understudy_sim::faults::Fault;
use understudy_sim::plan::RunPlan;
use understudy_sim::plan::transactions::{Sequel, has_cold_copies};
use understudy_sim::{Options, run, run_all, run_range};

/// Seeds that are run by every build.
const SEEDS: u64 = 100;

/// Seeds that once found something, and what.
const FOUND: &[(u64, &str)] = &[
    (10, "a checker: operations on a partition without an eligible copy need not end"),
    (251, "F19: a copy whose disk hangs kept its place while a spare was there"),
    (820, "a checker: the queue of the disk is part of the log"),
    (986, "F19: the same, and it joined a set that does not count disks"),
    (1245, "PR-24: a partition with too few copies ignored the newest policy, and was never given more"),
    (1612, "a checker: the last recorded set decides what a lossy term may lose"),
    (1730, "a checker, as 10"),
    (1783, "F19, as 251"),
    (1824, "a checker: what an opened log reports is on the disk"),
    (2035, "PR-24: a new primary under a pending, higher bound was given no copies"),
    (2898, "F19: a member of the set whose disk hangs, with nothing in flight to it"),
    (3419, "a checker: a copy counts for the life in which it was one"),
    (4414, "two changes of one set at a time: a hand-over met an eviction"),
    (5063, "the same"),
    (5485, "PR-31: the lead was handed to a copy whose disk hangs"),
    (
        2399,
        "filling of the log was damaged, the frame behind it was gone, and the cut end was said to hold nobody's entries",
    ),
    (4793, "the first piece of a copy came again after the last one, and undid it"),
    (7062, "as 4414"),
    (
        9517,
        "a checker: an answer rests on the policy of its own term; and, looked at closely, a stale refusal",
    ),
    (1134, "F01: a refusal that is no entry, by a primary without a lease"),
    (2717, "the same"),
    (11439, "PR-19: a seal was repeated for seconds, until the metastore answered"),
    (10601, "a node was heard on the connection registered last, and used another one"),
    (10720, "R6: the old primary died after it had handed over, and its log was waited for"),
    (1557, "PR-98: a loss was denied where another term left the same LSN"),
    (1668, "PR-99: a report of who is not recorded kept a promotion waiting"),
    (1452, "R9: a checker: tails of logs that a node had later say nothing of it"),
    (3945, "I12: a checker: what a fault of the disk has hit"),
    (271, "I12: a checker: a log's begin is proven like an entry"),
    (700, "I13: a checker: members that forgot wait for a disk that is gone"),
    (51397, "I1: a checker: who was left alone acknowledges in vain once an operator forced another to lead"),
    (50931, "PR-102: a promotion whose reports fence nothing waited for a member's earlier incarnation"),
    (
        53417,
        "PR-104: a write went astray over the log's end, and what one copy had acknowledged was lost without a word",
    ),
    (52021, "PR-105: a member that was given rows once was never given files again, and its log grew"),
    (53563, "PR-105"),
    (20515, "PR-105"),
    (60148, "I14: a checker: a position that was lost only later was kept when it was asked for"),
    (60718, "the same"),
    (80266, "I8: a checker: what a directory has that is away nobody can look after"),
    (91077, "I12: a checker: a copy that found no room is shown late, as it waits for a tail"),
    (90427, "I13 (PR-109): a copy that never gets level kept a node from leaving"),
    (90576, "R8 (PR-108): answers of a member that came back were not taken"),
    (200647, "I1: a checker: an abort that is told when it is secured, while a stricter policy comes in"),
    (300161, "I2: a checker: an old primary that is alone answers late, after an operator had another lead"),
    (200308, "I13 (PR-136): a copy that was whole waited for readers, and the partition for the copy"),
    (1174171686847, "I13 (PR-135): a copy that found no room was waited for"),
    (
        66096830390,
        "R9 (PR-137): what only memory and an engine's files had was lost while its tail waited for room",
    ),
    (400336, "I13: a checker: who was paused for a moment goes on, whatever else is wrong with it"),
    (400404, "I13 (PR-138): all backups had been started again, and nobody missed the primary"),
    (400504, "I13: a checker: the same as 400336"),
    (400310, "R9: a checker: of rows that one entry writes twice the first is nowhere"),
    (500488, "I12 (PR-139): a copy by rows was said to be on the disk before its tree was named complete"),
    (101101, "I5 (PR-114): what was before a bulk load was shown as fresh while that was being installed"),
    (600589, "I3 (PR-140): what was forced to lead did not know the checksum of the entry before its first"),
    (601330, "R9: a checker: a session that was opened is in no tail, if nothing was written beside it"),
    (601431, "I13 (PR-141): a torn log on which all rested waited for a member whose disk was gone"),
    (600598, "I13: a checker: what was deleted when the metastore failed is there no more"),
    (600984, "I13: a checker: the same"),
    (708064, "I1: a checker: who lost its directory had executed what it said before"),
    (711534, "I9: a checker: a refusal that a forced promotion gave up, of what the log that won had done"),
    (708988, "I12: a checker: nothing writes to a journal that could not be opened again"),
    (709600, "I13 (PR-142): a damaged primary had the benefit of the doubt"),
    (705061, "I13 (PR-142): a damaged primary was missed by nobody, as its backups had been started again"),
    (706149, "I13 (PR-142): what a damaged primary's node said was outvoted by who could not complain"),
    (711889, "I13: a checker: as 707623, and two jobs may take two seconds"),
    (708551, "I13: a checker: a member that stands still is given up later than a silent one"),
    (712223, "I13 (PR-141): the same, and the member was there with a damaged log"),
    (702001, "I13: a checker: files take as long as their budget makes them take"),
    (712543, "I13: a checker: the same"),
    (722676, "I14: a checker: a recorded life that had an entry need not be the last one"),
    (722325, "I13: a checker: a disk that is lost while all members are compared is waited for"),
    (704655, "I13: a checker: who was paused for a moment goes on, and reaches all that count"),
    (707623, "I13: a checker: a failover in the middle of a bulk load takes two of the engine's jobs"),
    (730354, "I3 (PR-143): who joined lacked on its disk what an older term had acknowledged"),
    (
        730762,
        "I12 (PR-144): the header of a torn write vouched for an entry of before, and the log went back to it",
    ),
    (800131, "PR-125: two controllers gave out the same numbers of tables"),
    (100148, "I13: a checker: nobody may lead where all nodes are drained or leave"),
    (
        900445,
        "I13 (PR-115): a full log did not hear what of it nobody needs, and another partition waited for that",
    ),
    (706201, "I13 (PR-115): the same, and a copy kept a sound one's place"),
    (702793, "I13 (PR-115): the same"),
    (720199, "I13 (PR-117): a copy was damaged in the middle, and its primary waited for it"),
    (723220, "I13 (PR-118): who was forced to lead waited for a log that began above its own"),
    (707407, "I13 (PR-119): files would have made room in a full log, and it was sent the log alone"),
    (706591, "I8: the simulated disk left what it could not write under another name"),
    (714182, "I13: a checker: a member that is heard late is given up later than a silent one"),
    (730076, "I13: a checker: the same"),
    (707479, "I13: a checker: what a dead node has does not move to one that joins"),
    (
        1100193,
        "I13 (PR-126): what a new primary had fetched found no room, and its term's marker waited behind it",
    ),
    (1100234, "R9: a checker: entries of which a tail has the rows are followed by others"),
    (1102433, "I1: a checker: who asks again is told what was committed before another policy was recorded"),
    (1000688, "I1: a checker: who asks again is told what was committed when there were enough"),
    (2001341, "I13 (PR-157): a node on an older copy of its disk was taken for the member of before"),
    (2001399, "I13 (PR-157): the same, and a new primary's marker waited for it"),
    (2001535, "I13 (PR-158): a node's move waited for a copy on another one whose disk hangs"),
    (2010640, "I12: the simulated node forgot which replicas it had where a cut log did not name them"),
    (2010752, "I13: the simulated node made no room in a full log by what held it back"),
    (3102401, "PR-160: records made anew twice gave out the same numbers of tables"),
    (5005239, "PR-160: and so did those made anew several times, each time without another node"),
    (5005356, "checker of copies: counted by a record that the primary did not know yet"),
    (2010154, "I1: a checker: who can be reached for a moment between two cuts is heard by nobody"),
    (
        3101314,
        "I13: a checker: where a disk is lost and every other log is torn an operator has to speak (PR-18)",
    ),
    (
        4000026,
        "I13 (PR-161): a node was never told that another one was removed, and the records not made anew",
    ),
    (4000466, "R8: a checker: who chose the log and then lost its directory is sent the state"),
    (4000601, "I1: a checker: on an older copy of its disk a node has the name of another life of it"),
    (
        4001521,
        "I13: a checker: what no node has heard is not in records that are made anew, a removal neither",
    ),
    (4001760, "I13: a checker: files that rotted on the only copy that counts were found while it ran"),
    (
        4003673,
        "I10: a checker: who was removed is not asked when records are made anew, whatever it was told",
    ),
    (4003850, "I13 (PR-162): an older disk's life was taken for a later one of a copy"),
    (4003988, "I13 (PR-162): the same"),
    (4000317, "I13: what a stuck disk was to sync was synced late in a healed world"),
    (4003957, "I12 (PR-164): damage was taken for a part of a gap of what had been given back"),
    (4004062, "I13 (PR-163): a life that no controller had let in was proposed again and again"),
    (4005118, "I13: a checker: who is heard and can tell no controller that it cannot go on leads on"),
    (
        1050610035899,
        "I13: a checker: a primary that was paused goes on, though a copy that does not count is cut off",
    ),
    (37, "PR-145: a checker: a copy of the disk of a node that was removed is told so"),
    (7455625, "I16 (PR-211): a node that a new generation had not heard of yet was taken for removed"),
    (7453535, "PR-145: a checker: the same, and the node has come back on another disk"),
    (5965474, "PR-145: a checker: a disk that was replaced and has not been used since is no older copy"),
    (340, "R9: the simulated loss of the records took the report of what a forced promotion put aside"),
    (2789, "PR-145 (PR-210): a copy of a disk was let in that had been replaced"),
    (3831, "PR-145: a checker: a copy of which no later life was let in is as good as the node"),
    (7707, "PR-145 (PR-210): the same"),
    (8754, "PR-145 (PR-210): the same"),
    (4007755, "PR-165: a copy that lacks what is committed is taken for fresh"),
    (4008628, "R9 (PR-200): the report that would have named a tail was lost with the controllers' disk"),
    (5001668, "R9 (PR-200): the same"),
    (5006613, "R9 (PR-200): the same"),
    (5011073, "I16 (PR-201): a node was removed by who did not know that it had become a member"),
    (5011083, "I12: a checker: where all was refused there is no frame that vouches for the one before"),
    (5020289, "I13 (PR-230): records made anew again and again asked for terms of which no log has anything"),
    (7001416, "I13 (PR-230): the same"),
    (5017269, "I13 (PR-230): the same"),
    (8002757, "I13 (PR-230): the same"),
    (8003445, "I1 (PR-232): a doubt of long ago let a life lead that had forgotten"),
    (8004974, "R7 (PR-231): half a copy was made to lead"),
    (8001522, "I13: a hand-over to a standby that executes its log waited for files, and others for that"),
    (9010173, "PR-258: two failovers had one number, and the report of one was taken for the other's"),
    (
        9011793,
        "PR-256: what a member had in memory that was not started again was given up after one question",
    ),
    (6215, "PR-47: a checker: a copy that an operator forces to lead may have what was reported as lost"),
    (5019309, "I9: a checker: who is sealed and does not know it acknowledges what nobody leads on with"),
    (5001249, "I13: a checker: a node that leaves leads on where all others are drained"),
    (5000803, "I13: a checker: a sync that failed costs the replica whose files it was for"),
    (5001072, "I13: a checker: a member that heartbeats alone reach is given up later than a silent one"),
    (5010589, "I13: a checker: who takes the place of one that installs a load begins when that has failed"),
    (5012246, "I13: a checker: a life that no controller has let in is heard by nobody"),
    (8000227, "R8: a checker: what was said of an older offer of files came late"),
    (8012100, "I13: the simulated records were lost although nobody knew that a node was removed"),
    (
        8014584,
        "I13: the simulated records were lost where the newest that anybody kept names a disk that is gone",
    ),
    (8024591, "I13 (PR-233): who was handed the lead with a disk that hangs had the benefit of the doubt"),
    (8021005, "I13 (PR-234): a copy whose log is full was sent what was read back, again and again"),
    (8015624, "I2: a checker: a process that leads on answers in order"),
    (8031951, "PR-145 (PR-280): a copy of an earlier directory of a node that was removed was let in"),
    (10364, "I13 (PR-281): a copy's log was full, and kept for who is away by a primary that has room"),
    (9015744, "PR-281: the same, and the transaction manager never committed on the one that was full"),
    (
        17997,
        "I13: a checker: a log that is held back by what an operator has to recover can be given no copy",
    ),
    (9014483, "I13: a checker: the one log that is left is torn, so an operator has to recover it"),
    (
        9920200,
        "I13: a simulator: a disk hung for good where the only other node was drained; on the way PR-284",
    ),
    (9022409, "I13 (PR-282): a copy that hangs was tried again and again, and others waited"),
    (9102750, "I13: a simulator: the records were lost while an old controller alone knew a node's new disk"),
    (9100213, "I1: the checker went by a record made anew of which the primary had not heard"),
    (9104979, "I13 (PR-302): a partition that acknowledged nothing waited for a copy whose log was full"),
    (
        9400205,
        "PR-340: a database had fewer copies than the manager demands, and its commits were kept for ever",
    ),
    (9027459, "I9 (PR-283): a session went on with the numbers of lost writes, and who had these led again"),
    (9143114, "PR-343: who counted only because all were compared led alone before that term had served"),
    (9131808, "PR-342: what replicas keep that are left out held a full log back"),
    (9150527, "PR-290: a checker: an operator's word that gives commits up is awaited"),
    (9150727, "I13: a checker: a log that was torn before a clean stop is not whole"),
    (9142915, "PR-344: a primary beside a disk that hung for good let nobody in who would have led"),
    (1028276340080, "PR-343; PR-345: whose log began above what the primary had did not lead"),
    (
        820012803427,
        "PR-104: a write that went astray over what nobody needs any more was lost without a word",
    ),
    (
        634529798861,
        "I1: a checker: an acknowledgement on its way, of who then came back on an older copy of its disk",
    ),
    (9131276, "PR-341: a primary that was started again, on a disk that hung before it served"),
    (
        9176308,
        "a checker: a node goes on with a log that was begun, and begins no other one over what is left of it",
    ),
    (
        9170370,
        "I1: a checker: what was executed before an engine failed was, though its directory is given up",
    ),
    (20784011460, "a checker: a term that follows another one of the same primary in one input was not seen"),
    (9177498, "I14: a checker: what a term gave up is there again if an operator had its owner lead"),
    (20784005825, "I16: a checker: of whom nobody knows when the records are made anew nobody removed"),
    (9175755, "I13: a checker: what a primary has proposed may be recorded once it is dead"),
    (20784006055, "I13: a checker: files take the time that their limit lets them"),
    (9178357, "PR-348: who was about to join could not take a load, and was never made anew"),
    (20784007453, "PR-349: a transfer was dropped while its last pieces came"),
    (20784007308, "PR-349"),
    (20784001189, "PR-350: an index of which no record tells stayed"),
    (9174251, "PR-350"),
    (20784019700, "PR-351: a full log on a disk that hangs"),
    (9175637, "PR-351"),
    (1217737678285, "I13: a checker: where all sound logs have a torn end the others are waited for"),
    (20785012898, "I13: a checker: a table was to have more copies than nodes were left alive"),
    (20785012114, "I13: a checker: a term that compares waits for each of its members"),
    (20785013469, "I13: a checker: whom a backup misses may be sealed once the backup is dead"),
    (20785008615, "PR-353: who leaves and hangs kept its turn from who has the place now"),
    (20785005786, "PR-352: who did not serve reached no controller, and its backups heard it"),
    (20785014369, "PR-354: what a node had said first was recorded last"),
    (
        20786014718,
        "I13: a simulator: a node stayed dead where the only other one was drained, without a place",
    ),
    (20784033976, "I14: a checker: who came back on an older copy of its disk had said what it has no more"),
    (
        20784003791,
        "I13: the simulator: a disk hung for ever where the only other sound node was being removed",
    ),
    (
        20784015142,
        "I1: a checker: what a term lost of which nobody served was checked by the set that had grown since",
    ),
    (
        20784013360,
        "I13: the simulator: the records were lost while a node was down that could not start on its disk",
    ),
    (20785008231, "PR-440: who waited in a promotion for a lost member kept the node's log full for all"),
    (20785012033, "PR-441: a term of records that were made anew waited for a damaged member"),
    (
        20785200857,
        "PR-470: a member that had chosen the log was sent the state where its next entry lay elsewhere",
    ),
    (20785003159, "PR-473: a start that failed had cleared away what showed that the log was damaged"),
    (20785620266, "PR-474: a file that was cut, and had lost its head, was taken for a torn one"),
    (
        20785005553,
        "I13 (PR-472): one executor's files took the whole limit, and a copy that was needed got none",
    ),
    (
        1223900086462,
        "PR-471: a seal was repeated as it was decided, although the old primary had been heard since",
    ),
    (20785016037, "PR-361: a checker: a refusal that used up a number was an entry, and told late"),
    (20785001842, "PR-47: a checker: who was left had never heard of the term whose loss a client was told"),
    (20785019837, "PR-442: a row about commits that were given up was taken for one about a load"),
    (20784033486, "I14: the same where a backup was restored into another cluster"),
    (20784022902, "I13: the simulator: behind a stall a message of a connection overtook an earlier one"),
    (20786014744, "I12: a checker: a start had said that all of a log was lost, and was not heard"),
    (20786003291, "PR-357: a primary sent a rotted file of its own again and again"),
    (20785034743, "PR-356: a copy had too many loads staged to take those of its primary's log"),
    (20785017289, "I3: a start of the simulator forgot a replica whose directory was lost"),
    (
        20785002748,
        "PR-253: a checker: the manager was closed for good, and a damaged copy of its log was asked",
    ),
];

#[test]
fn a_hundred_seeds_keep_every_promise() {
    let summary = run_range(0..SEEDS, None, |_, _| {}, 2);
    assert_eq!(summary.seeds, SEEDS);
    for violation in &summary.violations {
        println!("seed {} {}: {}", violation.seed, violation.id, violation.sentence);
        violation.trace.iter().for_each(|line| println!("    {line}"));
    }
    assert!(summary.violations.is_empty(), "{} violations", summary.violations.len());
    assert!(summary.times.failovers >= SEEDS / 4, "{} failovers were timed", summary.times.failovers);
    assert!(summary.times.failover_median_ms < 300, "the median is {} ms", summary.times.failover_median_ms);
    assert!(summary.operations > SEEDS * 200, "{} operations", summary.operations);
    assert!(summary.primary_changes * 10 >= SEEDS * 6, "{} seeds change a primary", summary.primary_changes);
    assert!(
        summary.double_failovers * 10 >= SEEDS * 3,
        "{} seeds change one twice",
        summary.double_failovers
    );
    for change in ["factor", "node-comes", "node-removed"] {
        let seeds = summary.faults.get(change).copied().unwrap_or(0);
        assert!(seeds * 10 >= SEEDS, "{change} in {seeds} seeds");
    }
    // Not only was a disk in trouble: calls of an engine met it.
    for failed in [
        "lsm-no-room",
        "lsm-no-open-file",
        "lsm-sync-failed",
        "log-read-failed",
        "log-no-file",
        "log-write-failed",
        "meta-stopped",
        "meta-cut",
    ] {
        let seeds = summary.faults.get(failed).copied().unwrap_or(0);
        assert!(seeds * 50 >= SEEDS, "{failed} in {seeds} seeds");
    }
    let injected: BTreeSet<&str> = summary.faults.keys().map(String::as_str).collect();
    for fault in Fault::ALL {
        assert!(injected.contains(fault.name()), "{fault} never struck");
        assert!(
            summary.faults[fault.name()] * 50 >= SEEDS,
            "{fault} struck in {}",
            summary.faults[fault.name()]
        );
    }
}

#[test]
fn clusters_of_one_to_sixty_four_nodes_keep_every_promise() {
    for (nodes, seeds, operations) in
        [(1, 0..4, 200), (2, 0..4, 200), (9, 0..3, 200), (32, 4..5, 60), (64, 2..3, 20)]
    {
        let options = Options { nodes: Some(nodes), operations, ..Options::default() };
        let summary = run_all(seeds.clone(), options, false, |_, _| {}, 2);
        for violation in &summary.violations {
            println!("{nodes} nodes, seed {} {}: {}", violation.seed, violation.id, violation.sentence);
        }
        assert!(summary.violations.is_empty(), "{nodes} nodes: {} violations", summary.violations.len());
        assert!(summary.operations > 0, "{nodes} nodes");
    }
}

#[test]
fn seeds_that_found_something_find_it_no_more() {
    for &(seed, what) in FOUND {
        let outcome = run(seed, Options::default());
        assert!(outcome.violations.is_empty(), "found again at seed {seed}: {what}\n{outcome}");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 7] {
        let (first, second) = (run(seed, Options::default()), run(seed, Options::default()));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(first.event_hash, second.event_hash, "seed {seed}");
        assert_eq!((first.operations, first.simulated_us), (second.operations, second.simulated_us));
        let told = run(seed, Options { verbose: true, ..Options::default() });
        assert_eq!(told.trace_hash, first.trace_hash, "listening changes nothing");
        assert!(told.trace.len() > first.trace.len());
    }
    assert_ne!(run(3, Options::default()).trace_hash, run(4, Options::default()).trace_hash);
}

#[test]
fn threads_do_not_change_the_summary() {
    let (one, two) = (run_range(0..6, None, |_, _| {}, 1), run_range(0..6, None, |_, _| {}, 2));
    assert_eq!(one, two);
}

#[test]
fn a_fifth_of_the_seeds_have_tables_on_the_lsm_engine_and_they_repeat_themselves() {
    let has_trees = |seed: &u64| RunPlan::new(*seed, 300, None).tables.iter().any(|table| table.lsm);
    let with_trees: Vec<u64> = (0..1000).filter(has_trees).collect();
    assert!(with_trees.len() >= 200, "{}", with_trees.len());
    let mut checkpoints = 0;
    for seed in &with_trees[..6] {
        let (first, second) = (run(*seed, Options::default()), run(*seed, Options::default()));
        assert!(first.violations.is_empty(), "seed {seed}: {:?}", first.violations);
        assert_eq!(
            (first.event_hash, first.trace_hash),
            (second.event_hash, second.trace_hash),
            "seed {seed}"
        );
        checkpoints += u32::from(first.faults.contains_key("lsm-checkpoint"));
    }
    assert!(checkpoints >= 4, "{checkpoints} of six seeds write a tree to disk");
}

#[test]
fn what_clients_ask_beside_single_rows_is_answered() {
    let mut answered: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in (0..200).filter(|seed| RunPlan::new(*seed, 300, None).workload.wide.is_some()) {
        let outcome = run(seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        for what in outcome.faults.into_keys() {
            *answered.entry(what).or_default() += 1;
        }
    }
    for what in ["scan-answered", "count-answered", "find-answered", "feed-answered", "any-tight-answered"] {
        let seeds = answered.get(what).copied().unwrap_or(0);
        assert!(seeds * 50 >= 200, "{what} in {seeds} of 200 seeds");
    }
}

#[test]
fn what_all_copies_have_secured_is_read() {
    let stale = |seed: &u64| RunPlan::new(*seed, 300, None).workload.transactions.stale;
    let with_readers: Vec<u64> = (0..20_000).filter(stale).take(8).collect();
    let mut read = 0;
    for seed in &with_readers {
        let outcome = run(*seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        read += usize::from(outcome.faults.contains_key("secured-read"));
    }
    assert!(read * 2 >= with_readers.len(), "in {read} of {} seeds", with_readers.len());
}

#[test]
fn an_operator_gives_up_what_no_partition_and_no_manager_keeps() {
    let skips = |seed: &u64| RunPlan::new(*seed, 300, None).workload.transactions.skips;
    let mut given_up = 0;
    for seed in (0..20_000).filter(skips).take(20) {
        let outcome = run(seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        given_up += u32::from(outcome.faults.contains_key("commits-given-up"));
    }
    assert!(given_up > 0, "there was nothing to be given up in any seed");
}

#[test]
fn the_manager_of_commits_goes_on_behind_what_partitions_alone_have() {
    let recovers = |seed: &u64| RunPlan::new(*seed, 300, None).workload.transactions.recovers;
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in (0..20_000).filter(recovers).take(20) {
        let outcome = run(seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        for what in outcome.faults.into_keys() {
            *seen.entry(what).or_default() += 1;
        }
    }
    for what in ["manager-forced", "commits-kept-alone"] {
        assert!(seen.get(what).is_some_and(|seeds| *seeds > 0), "{what} in no seed: {seen:?}");
    }
}

#[test]
fn databases_of_global_transactions_are_backed_up_and_restored() {
    let copies = |seed: &u64| RunPlan::new(*seed, 300, None).workload.transactions.copies;
    let (mut made, mut restored) = (0, 0);
    for seed in (0..20_000).filter(copies).take(12) {
        let outcome = run(seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        made += u32::from(outcome.faults.contains_key("transactions-backed-up"));
        restored += u32::from(outcome.faults.contains_key("transactions-restored"));
    }
    assert!(made > 0 && restored > 0, "made in {made} seeds and restored in {restored}");
}

#[test]
fn cold_copies_of_databases_of_global_transactions_come_to_lead() {
    let cold = |seed: &u64| has_cold_copies(*seed);
    let mut led = 0;
    for seed in (0..20_000).filter(cold).take(12) {
        let outcome = run(seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        led += u32::from(outcome.faults.contains_key("cold-copy-of-transactions-leads"));
    }
    assert!(led > 0, "none came to lead in any seed");
}

#[test]
fn copies_that_were_forced_to_lead_are_followed_by_others() {
    for (sequel, what) in [(Sequel::Again, "forced-again"), (Sequel::HandOver, "forced-and-followed")] {
        let has = |seed: &u64| RunPlan::new(*seed, 300, None).workload.transactions.sequel == sequel;
        let mut seen = 0;
        for seed in (0..100_000).filter(has).take(12) {
            let outcome = run(seed, Options::default());
            assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
            seen += u32::from(outcome.faults.contains_key(what));
        }
        assert!(seen > 0, "{what} in no seed");
    }
}

#[test]
fn an_operator_has_files_read_back_and_damaged_replicas_mended() {
    let with_operator: Vec<u64> = (0..500).filter(|seed| RunPlan::new(*seed, 300, None).scrubs).collect();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in &with_operator {
        let outcome = run(*seed, Options::default());
        assert!(outcome.violations.is_empty(), "seed {seed}: {:?}", outcome.violations);
        for what in outcome.faults.into_keys() {
            *seen.entry(what).or_default() += 1;
        }
    }
    let seeds = |what: &str| seen.get(what).copied().unwrap_or(0);
    assert!(seeds("scrubbed") * 10 >= with_operator.len() * 8, "{seen:?}");
    assert!(seeds("scrub-found") * 10 >= with_operator.len(), "{seen:?}");
    assert!(seeds("scrub-repaired") > 0, "{seen:?}");
}

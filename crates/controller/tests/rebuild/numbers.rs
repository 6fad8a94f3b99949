//! No number is given out twice, however often the records are made anew.

use super::*;

/// What a node keeps that was told of records, and was asked so often.
fn keeps_of(of: u32, record: &PartitionRecord, told: &ClusterRecord, asked: u32) -> KeptRecords {
    let mut kept = keeps(of, &[1, 2, 3], record);
    kept.records[0].1 = RecordText::new(told);
    KeptRecords { asked, generation: Generation(9), ..kept }
}

/// What is made anew as `generation` of what three nodes keep, each of them altered.
fn of_generation(
    generation: u64,
    record: &PartitionRecord,
    alter: impl Fn(u32, &mut KeptRecords),
) -> Rebuilt {
    let order = Order { generation: Generation(generation), ..order(false) };
    let reports = [1, 2, 3].map(|node| {
        let mut kept = keeps_of(node, record, &cluster(), 1);
        kept.generation = Generation(generation);
        alter(node, &mut kept);
        kept
    });
    rebuild(&reports, &order).expect("made")
}

#[test]
fn pr350_an_indexs_number_is_given_out_once() {
    let made = |generation, last: [u32; 3]| {
        let rebuilt = of_generation(generation, &record(5, &[1, 2, 3]), |node, kept| {
            let mut told = table(T, "t", P);
            told.indexes.last = last[node as usize - 1];
            (kept.records[1].1, kept.revision) = (RecordText::new(&told), 50 - u64::from(node));
        });
        read::<TableRecord>(&rebuilt, Key::Table(T)).expect("it is written").indexes.last
    };
    assert!(made(1, [2, 70, 3]) > 70, "who knows of the newest one need not have the newest records");
    assert!(made(8, [0, 0, 0]) > made(7, [0, 0, 0]), "nobody here was asked for those of the seventh");
}

#[test]
fn pr401_a_policy_of_which_partitions_alone_have_heard_counts_with_its_hold() {
    let moves = types::Moves { number: TableId(70), into: None, closed: false };
    let later = Policy { version: 2, moves: Some(moves), ..policy() };
    let held = PartitionRecord { next_policy: Some(later.clone()), ..record(5, &[1, 2, 3]) };
    let made = |told: Policy| {
        let rebuilt = of_generation(1, &held, |_, kept| {
            let told = TableRecord { policy: told.clone(), ..table(T, "t", P) };
            kept.records[1].1 = RecordText::new(&told);
        });
        read::<TableRecord>(&rebuilt, Key::Table(T)).expect("it is written").policy
    };
    assert_eq!(made(policy()), later);
    let freed = Policy { version: 3, ..policy() };
    assert_eq!(made(freed.clone()), freed, "what came later counts");
}

fn cluster_of(rebuilt: &Rebuilt) -> ClusterRecord {
    read(rebuilt, Key::Cluster).expect("a cluster")
}

#[test]
fn pr160_numbers_of_records_of_which_no_node_has_heard_are_not_given_out_again() {
    let order = Order { generation: Generation(9), ..order(false) };
    let made = |told: &ClusterRecord, asked: u32| {
        let record = record(5, &[1, 2, 3]);
        // One of them came later, and was asked less often.
        let reports = [(1, asked), (2, asked), (3, asked.min(1))];
        let reports = reports.map(|(node, asked)| keeps_of(node, &record, told, asked));
        cluster_of(&rebuild(&reports, &order).expect("made"))
    };
    let known = ClusterRecord { generation: Generation(8), ..cluster() };
    let first = made(&known, 1);
    assert_eq!((first.next_table, first.asked), (1_000_002, 1));
    // Nobody heard of it: all keep what they kept before.
    let second = made(&known, 2);
    let third = made(&known, 3);
    assert_eq!([second.next_table, third.next_table], [1_100_002, 1_200_002]);
    // Who has heard of the second one counts on from there.
    let told = ClusterRecord { next_table: second.next_table + 7, ..second };
    assert_eq!(made(&told, 3).next_table, told.next_table + 1_000_000);
    assert_eq!(made(&told, 4).next_table, told.next_table + 1_100_000);
    // Asking again and again uses up no more than there is.
    let often = made(&known, u32::MAX);
    assert_eq!(often.next_table, 2 + 1_000_000 + 10_000 * 100_000);
    let full = ClusterRecord { next_table: u32::MAX - 5, ..known };
    assert_eq!(made(&full, 7).next_table, u32::MAX);
}

#[test]
fn pr258_a_failovers_number_is_given_out_once() {
    let made = |generation, record: &PartitionRecord| {
        of_generation(generation, record, |_, _| {}).partitions[0].failover.id
    };
    let told = record(5, &[1, 2, 3]);
    // Nobody heard of the first one, but whoever led by it.
    let (first, second) = (made(7, &told), made(9, &told));
    assert!(first < second, "{first} and {second}");
    let later = PartitionRecord { failover: Some(77_000_000), ..told };
    assert!(made(9, &later) > 77_000_000, "a record names one that is known nowhere else");
}

#[test]
fn pr160_nodes_that_were_asked_equally_often_at_other_times_count_all_askings() {
    let made = |told: &ClusterRecord, now: u64, askings: [&[u64]; 2]| {
        let record = record(5, &[1, 2, 3]);
        let report = |(node, askings): (u32, &[u64])| KeptRecords {
            askings: askings.iter().copied().map(Generation).collect(),
            generation: Generation(now),
            ..keeps_of(node, &record, told, askings.len() as u32)
        };
        let reports = [(1, askings[0]), (2, askings[1])].map(report);
        let order = Order { generation: Generation(now), ..order(true) };
        cluster_of(&rebuild(&reports, &order).expect("made"))
    };
    let known = ClusterRecord { generation: Generation(6), ..cluster() };
    // Each time another one of three was missing, and nobody heard of what was made.
    let [first, second, third] = [
        made(&known, 7, [&[7], &[7]]),
        made(&known, 8, [&[7, 8], &[8]]),
        made(&known, 9, [&[7, 9], &[8, 9]]),
    ];
    assert_eq!([first.next_table, second.next_table, third.next_table], [1_000_002, 1_100_002, 1_200_002]);
    // What they have heard of is counted on from.
    assert_eq!(made(&second, 9, [&[7, 8, 9], &[8, 9]]).next_table, second.next_table + 1_000_000);
    assert_eq!(made(&first, 9, [&[7, 9], &[8, 9]]).next_table, first.next_table + 1_100_000);
    // Records of the seventh generation may have been made without asking any of these.
    assert_eq!(made(&known, 8, [&[8], &[8]]).next_table, 1_100_002);
    // The minutes since then say no more than that it was some time ago.
    assert_eq!(made(&known, 29_000_000, [&[29_000_000], &[29_000_000]]).next_table, 3_000_002);
}

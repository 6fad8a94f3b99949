//! Random histories with power losses, against a simple model.

mod common;
use bytes::Bytes;
use common::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::{Epoch, Lsn, PartitionId, Position};
use understudy_wal::faulty::{Faults, MemFiles};
use understudy_wal::{Log, LogError, Record, Recovered, RecoveredPartition};
use wire::entry::Entry;

/// One partition as it should be.
#[derive(Clone, PartialEq, Debug, Default)]
struct Model {
    base: (Position, u32),
    entries: Vec<Entry>,
    promised: Epoch,
    custom: BTreeMap<u16, Bytes>,
}

impl Model {
    fn end(&self) -> (Position, u32) {
        self.entries.last().map_or(self.base, |entry| (entry.at(), entry.crc()))
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::Entry(entry) => self.entries.push(entry.clone()),
            Record::Truncate { to, .. } => self.entries.retain(|entry| entry.lsn() <= to.lsn),
            Record::Base { at, crc, .. } => {
                self.base = (*at, *crc);
                self.entries.clear();
            }
            Record::Trim { below, .. } => {
                while self.entries.first().is_some_and(|entry| entry.lsn() < *below) {
                    let entry = self.entries.remove(0);
                    self.base = (entry.at(), entry.crc());
                }
            }
            Record::Promise { epoch, .. } => self.promised = self.promised.max(*epoch),
            Record::Custom { key, value, .. } => {
                self.custom.insert(*key, value.clone());
            }
            Record::Forget { .. } => *self = Model::default(),
            Record::Repaired { .. } => {}
        }
    }
}

type World = BTreeMap<PartitionId, Model>;

#[derive(Clone, Debug)]
enum Step {
    /// So many entries of this length, in one batch, for one of three partitions.
    Append(u8, u8, u16),
    Truncate(u8, u8),
    Trim(u8, u8),
    Base(u8, u8),
    Promise(u8, u8),
    Custom(u8, u8),
    Forget(u8),
    Sync,
    Mark,
    Reclaim,
    FailWrite,
    Crash(u64),
    Restart,
    Shutdown,
}

fn step() -> impl Strategy<Value = Step> {
    let p = 0..3u8;
    prop_oneof![
        12 => (p.clone(), 1..6u8, 0..900u16).prop_map(|(p, count, length)| Step::Append(p, count, length)),
        3 => (p.clone(), any::<u8>()).prop_map(|(p, back)| Step::Truncate(p, back)),
        4 => (p.clone(), any::<u8>()).prop_map(|(p, keep)| Step::Trim(p, keep)),
        1 => (p.clone(), any::<u8>()).prop_map(|(p, far)| Step::Base(p, far)),
        1 => (p.clone(), any::<u8>()).prop_map(|(p, epoch)| Step::Promise(p, epoch)),
        1 => (p.clone(), any::<u8>()).prop_map(|(p, value)| Step::Custom(p, value)),
        1 => p.prop_map(Step::Forget),
        6 => Just(Step::Sync),
        2 => Just(Step::Mark),
        2 => Just(Step::Reclaim),
        1 => Just(Step::FailWrite),
        2 => any::<u64>().prop_map(Step::Crash),
        1 => Just(Step::Restart),
        1 => Just(Step::Shutdown),
    ]
}

struct Run {
    files: MemFiles,
    log: Option<Log>,
    now: World,
    /// The world after each batch since the last sync, the synced one first.
    since_sync: Vec<World>,
    epoch: u64,
}

impl Run {
    fn new() -> Run {
        let files = MemFiles::new();
        let (log, _) = open(&files);
        let now = World::new();
        Run { files, log: Some(log), since_sync: vec![now.clone()], now, epoch: 1 }
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("open")
    }

    fn append(&mut self, records: Vec<Record>) {
        match self.log().append(&records) {
            Ok(()) => {
                for record in &records {
                    let id = record.partition();
                    self.now.entry(id).or_default().apply(record);
                    if matches!(record, Record::Forget { .. }) {
                        self.now.remove(&id);
                    }
                }
                self.since_sync.push(self.now.clone());
            }
            Err(LogError::Full { .. } | LogError::Io { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        self.log().validate();
    }

    fn model(&self, p: u8) -> (PartitionId, Model) {
        let id = PartitionId(64 + u32::from(p));
        (id, self.now.get(&id).cloned().unwrap_or_default())
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Append(p, count, length) => {
                let (id, model) = self.model(p);
                let (mut end, mut crc) = model.end();
                let mut records = Vec::new();
                for i in 0..count {
                    let epoch = self.epoch.max(end.term.0);
                    let entry = entry(id, at(epoch, end.lsn.0 + 1), crc, &vec![i; usize::from(length)]);
                    (end, crc) = (entry.at(), entry.crc());
                    records.push(Record::Entry(entry));
                }
                self.append(records);
            }
            Step::Truncate(p, back) => {
                let (id, model) = self.model(p);
                let keep = model.entries.len().saturating_sub(usize::from(back) % 8);
                let to = keep.checked_sub(1).map_or(model.base.0, |last| model.entries[last].at());
                self.epoch += 1;
                self.append(vec![Record::Truncate { partition: id, to }]);
            }
            Step::Trim(p, keep) => {
                let (id, model) = self.model(p);
                let below = model.end().0.lsn.0.saturating_sub(u64::from(keep) % 16) + 1;
                self.append(vec![Record::Trim { partition: id, below: Lsn(below) }]);
            }
            Step::Base(p, far) => {
                self.epoch += 1;
                let partition = PartitionId(64 + u32::from(p));
                let at = at(self.epoch, u64::from(far));
                self.append(vec![Record::Base { partition, at, crc: u32::from(far) }]);
            }
            Step::Promise(p, epoch) => {
                let (partition, _) = self.model(p);
                self.append(vec![Record::Promise { partition, epoch: Epoch(u64::from(epoch)) }]);
            }
            Step::Custom(p, value) => {
                let (partition, _) = self.model(p);
                self.append(vec![Record::Custom { partition, key: 1, value: Bytes::from(vec![value]) }]);
            }
            Step::Forget(p) => {
                let (partition, _) = self.model(p);
                self.append(vec![Record::Forget { partition }]);
            }
            _ => self.rare(step),
        }
    }

    fn rare(&mut self, step: &Step) {
        match *step {
            Step::Sync => {
                self.log().sync().expect("syncs");
                self.since_sync = vec![self.now.clone()];
            }
            // A failed write is no harm; the next frame carries the mark.
            Step::Mark => {
                let marked = self.log().mark();
                assert!(matches!(marked, Ok(()) | Err(LogError::Io { .. })), "{marked:?}");
            }
            Step::Reclaim => {
                self.log().reclaim().expect("reclaims");
            }
            Step::FailWrite => self.files.set_faults(Faults { fail_write: Some(0), ..Faults::default() }),
            Step::Crash(seed) => {
                self.log = None;
                self.files = self.files.crash(Some(seed));
                self.open();
            }
            Step::Restart => {
                self.log = None;
                self.open();
            }
            Step::Shutdown => {
                self.files.set_faults(Faults::default());
                self.log.take().expect("open").shutdown().expect("shuts down");
                self.files = self.files.crash(None);
                self.since_sync = vec![self.now.clone()];
                let (log, recovered) = open(&self.files);
                assert!(recovered.clean_shutdown && recovered.torn_bytes == 0);
                self.log = Some(log);
                self.check(&recovered.damage);
            }
            _ => unreachable!("handled by `step`"),
        }
    }

    fn open(&mut self) {
        self.files.set_faults(Faults::default());
        let (log, recovered) = open(&self.files);
        assert!(!recovered.clean_shutdown);
        self.log = Some(log);
        // What came back is the world after some batch since the last sync.
        let found = self.found(&recovered);
        let matching = self.since_sync.iter().rposition(|world| *world == found);
        let short = |world: &World| -> String {
            let part = |(id, model): (&PartitionId, &Model)| {
                let Model { base, promised, custom, .. } = model;
                format!("{id}: above {} to {} promised {promised} {custom:?}; ", base.0, model.end().0)
            };
            world.iter().map(part).collect()
        };
        let expected: Vec<_> = self.since_sync.iter().map(short).collect();
        assert!(
            matching.is_some(),
            "found {} {:?}\nexpected one of {expected:#?}",
            short(&found),
            recovered.damage
        );
        self.now = found;
        self.since_sync = vec![self.now.clone()];
        self.check(&recovered.damage);
    }

    /// What the log holds.
    fn found(&self, recovered: &Recovered) -> World {
        let log = self.log.as_ref().expect("open");
        let model = |(id, found): (&PartitionId, &RecoveredPartition)| {
            let (promised, custom) = (found.promised, found.custom.clone());
            (*id, Model { base: (found.base, found.base_crc), entries: all(log, *id), promised, custom })
        };
        recovered.partitions.iter().map(model).collect()
    }

    fn check(&mut self, damage: &[understudy_wal::Damage]) {
        assert!(damage.is_empty(), "{damage:?}");
        let log = self.log.as_ref().expect("open");
        for (id, model) in &self.now {
            assert_eq!(log.end(*id), Some(model.end()), "{id}");
            assert_eq!(log.durable(*id).expect("known").get(), model.end().0);
            assert_eq!(&all(log, *id), &model.entries, "{id}");
            for entry in &model.entries {
                assert_eq!(log.position_of(*id, entry.lsn()), Ok((entry.at(), entry.crc())));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_log_is_like_its_model(steps in proptest::collection::vec(step(), 1..90)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
        }
        run.rare(&Step::Sync);
        run.rare(&Step::Crash(1));
    }
}

#[test]
fn a_clean_end_over_what_a_failed_write_left_is_clean() {
    use Step::*;
    let steps = [
        Append(0, 5, 651),
        Restart,
        Mark,
        Append(0, 2, 61),
        Append(0, 4, 169),
        Append(2, 1, 677),
        Append(0, 5, 840),
        Base(1, 0),
        Sync,
        Append(0, 5, 502),
        Sync,
        Mark,
        Append(0, 1, 397),
        Append(0, 2, 629),
        Append(0, 1, 781),
        Append(0, 1, 0),
        Append(0, 4, 615),
        Append(0, 1, 557),
        Append(0, 1, 0),
        Append(0, 1, 0),
        Base(2, 0),
        Forget(0),
        Append(0, 3, 797),
        Append(0, 4, 662),
        Truncate(0, 59),
        FailWrite,
        Append(2, 5, 671),
        Shutdown,
    ];
    let mut run = Run::new();
    for step in &steps {
        run.step(step);
    }
}

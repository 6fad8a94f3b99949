//! One pass over a source: from some position on, until it ends, is stopped, or something goes wrong.

use super::IngestPlan;
use super::source::Fed;
use crate::badrows::BadRows;
use crate::failure::Failure;
use crate::load::{OnBad, Watcher};
use crate::pipeline::{Done, Pipeline, Placed, Trouble};
use crate::port::Port;
use client::table::Table;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;
use types::{FeedId, PartitionId};

/// What a pass feeds, and from where on.
pub struct Feeding<'a> {
    /// The table.
    pub table: &'a Table,
    /// The feed; `None`: no position is kept.
    pub feed: Option<FeedId>,
    /// How far each partition has come.
    pub start: BTreeMap<PartitionId, u64>,
    /// How it is done.
    pub plan: &'a IngestPlan,
    /// Ends the pass before the next record.
    pub stop: &'a AtomicBool,
}

/// How a pass ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The source has no more.
    End,
    /// It was asked to stop.
    Stopped,
    /// The source, or a record of it, cannot be read. What came before is in.
    Failed(Failure),
    /// Batches failed.
    Trouble(Trouble),
}

/// What a pass did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// What was acknowledged.
    pub done: Done,
    /// Rows that were in already.
    pub already_in: u64,
    /// Records of the source that are in, unless there was trouble.
    pub position: u64,
    /// How it ended.
    pub ended: Ended,
}

/// Records between two looks at acknowledgements.
const LOOK_EVERY: u64 = 256;
/// How long the source is waited for before acknowledgements are looked at.
const LINGER: Duration = Duration::from_millis(5);

/// Feeds the records. When it returns, everything that was sent has ended, and unless there was trouble every
/// partition knows how far the feed has come.
pub fn pass<P: Port>(
    port: &mut P,
    feeding: &Feeding<'_>,
    records: &Receiver<Fed>,
    bad_rows: &mut BadRows,
    watcher: &mut dyn Watcher,
) -> Result<Pass, Failure> {
    let limits = feeding.plan.limits.clone();
    let pipeline = Pipeline::new(port, feeding.table.clone(), limits, feeding.feed);
    let position = feeding.start.values().copied().min().unwrap_or(0);
    let mut running = Running { pipeline, feeding, already_in: position, position };
    let ended = running.feed(records, bad_rows, watcher);
    running.pipeline.drain()?;
    // No mark says that the feed is past a bad record that may yet be lost.
    let kept = bad_rows.flush();
    if ended.is_ok() && kept.is_ok() && running.pipeline.trouble().is_none() && feeding.feed.is_some() {
        let behind = feeding.start.iter().filter(|(_, start)| **start < running.position);
        let behind: Vec<PartitionId> = behind.map(|(partition, _)| *partition).collect();
        running.pipeline.mark(&behind, running.position)?;
    }
    let (already_in, position) = (running.already_in, running.position);
    let (done, trouble) = running.pipeline.finish();
    watcher.rows(done.rows);
    kept?;
    let ended = match (ended?, trouble) {
        (_, Some(trouble)) => Ended::Trouble(trouble),
        (ended, None) => ended,
    };
    Ok(Pass { done, already_in, position, ended })
}

struct Running<'a, 'p, P: Port> {
    pipeline: Pipeline<'p, P>,
    feeding: &'a Feeding<'a>,
    already_in: u64,
    position: u64,
}

impl<P: Port> Running<'_, '_, P> {
    fn feed(
        &mut self,
        records: &Receiver<Fed>,
        bad_rows: &mut BadRows,
        watcher: &mut dyn Watcher,
    ) -> Result<Ended, Failure> {
        let mut since_look = 0;
        while self.pipeline.trouble().is_none() {
            if self.feeding.stop.load(Ordering::Relaxed) || watcher.stopped() {
                return Ok(Ended::Stopped);
            }
            let Some(fed) = self.next(records)? else { continue };
            if let Some(ended) = self.take(fed, bad_rows, watcher)? {
                return Ok(ended);
            }
            since_look += 1;
            if since_look >= LOOK_EVERY {
                since_look = 0;
                self.pipeline.pump(Duration::ZERO)?;
                watcher.rows(self.pipeline.done().rows);
            }
        }
        Ok(Ended::Stopped)
    }

    /// The next of the source. Before it is waited for, what is there is sent.
    fn next(&mut self, records: &Receiver<Fed>) -> Result<Option<Fed>, Failure> {
        let gone = || Failure::failed("the source's reader ended without a word");
        match records.try_recv() {
            Ok(fed) => return Ok(Some(fed)),
            Err(TryRecvError::Disconnected) => return Err(gone()),
            Err(TryRecvError::Empty) => self.pipeline.pump(Duration::ZERO)?,
        }
        match records.recv_timeout(LINGER) {
            Ok(fed) => Ok(Some(fed)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    fn take(
        &mut self,
        fed: Fed,
        bad_rows: &mut BadRows,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<Ended>, Failure> {
        match fed {
            Fed::Row { index, key, row } => {
                let partition = self.feeding.table.partition_of(&key)?;
                self.position = index + 1;
                if self.feeding.start.get(&partition).is_some_and(|start| index < *start) {
                    self.already_in += 1;
                    return Ok(None);
                }
                // This row may complete a batch, whose mark is beyond every bad record before it.
                bad_rows.flush()?;
                let placed = Placed { index, partition, key: key.into(), row: row.into() };
                self.pipeline.add(placed)?;
                Ok(None)
            }
            Fed::Bad(bad) if self.feeding.plan.on_bad == OnBad::Abort => {
                let failure = Failure::failed(format!(
                    "{bad}; the feed stopped before this record; correct it and start again, or leave bad records out \
                     with --on-error skip"
                ));
                Ok(Some(Ended::Failed(failure)))
            }
            Fed::Bad(bad) => {
                if let Some(sentence) = bad_rows.take(&bad)? {
                    watcher.say(&sentence);
                }
                self.position = bad.index + 1;
                Ok(None)
            }
            Fed::End(records) => Ok(Some(self.end(records))),
            Fed::Failed(_) if self.feeding.stop.load(Ordering::Relaxed) => Ok(Some(Ended::Stopped)),
            Fed::Failed(failure) => Ok(Some(Ended::Failed(failure))),
        }
    }

    /// The source had so many records. If a partition knows of more, it is not the source it was.
    fn end(&mut self, records: u64) -> Ended {
        let furthest = self.feeding.start.values().copied().max().unwrap_or(0);
        if furthest > records {
            return Ended::Failed(Failure::refused(format!(
                "this feed has come to record {furthest} before, but the source has only {records}: if it is another \
                 source, give it a name of its own with --feed"
            )));
        }
        self.position = records;
        Ended::End
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::{Source, feed_id};
    use crate::pipeline::{Limits, feed_positions};
    use crate::testing::{FakeStore, table};
    use std::sync::mpsc::sync_channel;

    struct Quiet;
    impl Watcher for Quiet {
        fn say(&mut self, _: &str) {}
        fn phase(&mut self, _: &'static str, _: Option<input::Progress>) {}
        fn rows(&mut self, _: u64) {}
    }

    fn plan() -> IngestPlan {
        IngestPlan {
            source: Source::Stdin,
            feed: None,
            options: input::Options::default(),
            on_bad: OnBad::Abort,
            bad_rows: None,
            limits: Limits { rows: 10, ..Limits::default() },
            follow: false,
            secure_within: Duration::from_secs(1),
        }
    }

    fn row(table: &Table, index: u64) -> Fed {
        let row = types::data::Row::new(vec![(index as i64).into(), types::data::Value::Null]);
        let (key, row) = table.encode(&row).expect("fits");
        Fed::Row { index, key: key.into(), row: row.into() }
    }

    fn source(table: &Table, records: std::ops::Range<u64>, ends: bool) -> Receiver<Fed> {
        let (sender, receiver) = sync_channel(10_000);
        let end = records.end;
        for index in records {
            sender.send(row(table, index)).expect("room");
        }
        sender.send(if ends { Fed::End(end) } else { Fed::Failed(Failure::failed("cut")) }).expect("room");
        receiver
    }

    fn bad(index: u64) -> Fed {
        let (file, line, reason) = ("a.csv".into(), index + 2, input::Reason::NotUtf8);
        let raw = format!("bad {index}").into_bytes();
        Fed::Bad(input::BadRow { file, index, line, column: None, reason, raw })
    }

    /// A store that looks, at every mark, whether the bad records below it are in the file.
    struct Looking<'a> {
        store: FakeStore,
        bad: &'a [u64],
        file: &'a std::path::Path,
        marks: u64,
    }

    impl Port for Looking<'_> {
        fn open_lane(&mut self, in_flight: usize) -> client::LaneId {
            self.store.open_lane(in_flight)
        }

        fn submit(&mut self, lane: client::LaneId, call: client::Call) -> client::Ticket {
            if let wire::Op::Write { mark: Some(mark), .. } = &call.op {
                let text = std::fs::read_to_string(self.file).unwrap_or_default();
                for index in self.bad.iter().filter(|index| **index < mark.position) {
                    let kept = text.lines().any(|line| line == format!("bad {index}"));
                    assert!(kept, "the feed is at {} and bad record {index} is not kept", mark.position);
                    self.marks += 1;
                }
            }
            self.store.submit(lane, call)
        }

        fn poll(&mut self, wait: Duration) -> Result<Vec<client::Completed>, client::ClientError> {
            self.store.poll(wait)
        }

        fn take_losses(&mut self) -> Vec<client::Loss> {
            self.store.take_losses()
        }
    }

    #[test]
    fn bad_records_are_in_their_file_before_the_feed_is_past_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, table) = (dir.path().join("a.bad"), table(2));
        let (sender, receiver) = sync_channel(1000);
        let all_bad = [3, 40, 41, 59];
        for index in 0..60 {
            let fed = if all_bad.contains(&index) { bad(index) } else { row(&table, index) };
            sender.send(fed).expect("room");
        }
        sender.send(Fed::End(60)).expect("room");
        let plan = IngestPlan { on_bad: OnBad::Skip, ..plan() };
        let start = table.partitions().map(|partition| (partition, 0)).collect();
        let stop = AtomicBool::new(false);
        let feeding = Feeding { table: &table, feed: Some(feed_id("f")), start, plan: &plan, stop: &stop };
        let mut port = Looking { store: FakeStore::new(&table), bad: &all_bad, file: &file, marks: 0 };
        let mut bad_rows = BadRows::appended_to(&file);
        let passed = pass(&mut port, &feeding, &receiver, &mut bad_rows, &mut Quiet).expect("reachable");
        assert_eq!((passed.ended, passed.position), (Ended::End, 60));
        assert!(port.marks >= 4 && port.store.rows() == 56, "{} marks", port.marks);
    }

    #[test]
    fn the_feed_is_not_past_a_bad_record_that_cannot_be_kept() {
        let (dir, table) = (tempfile::tempdir().expect("a directory"), table(1));
        let (sender, receiver) = sync_channel(10);
        for fed in [row(&table, 0), bad(1), row(&table, 2), Fed::End(3)] {
            sender.send(fed).expect("room");
        }
        let plan = IngestPlan { on_bad: OnBad::Skip, ..plan() };
        let start = table.partitions().map(|partition| (partition, 0)).collect();
        let stop = AtomicBool::new(false);
        let feeding = Feeding { table: &table, feed: Some(feed_id("f")), start, plan: &plan, stop: &stop };
        let mut store = FakeStore::new(&table);
        // A directory takes no rows.
        let mut bad_rows = BadRows::appended_to(dir.path());
        pass(&mut store, &feeding, &receiver, &mut bad_rows, &mut Quiet).expect_err("nowhere to keep it");
        let wait = Duration::from_secs(1);
        let positions = feed_positions(&mut store, &table, feed_id("f"), wait).expect("reachable");
        assert_eq!(positions.into_values().collect::<Vec<_>>(), [1]);
    }

    /// Feeds from where the store says that the feed is.
    fn feed(store: &mut FakeStore, table: &Table, upto: u64, ends: bool) -> Pass {
        let (plan, stop) = (plan(), AtomicBool::new(false));
        let wait = Duration::from_secs(1);
        let start = feed_positions(store, table, feed_id("f"), wait).expect("reachable");
        let from = start.values().copied().min().unwrap_or(0);
        let records = source(table, from.min(upto)..upto, ends);
        let feeding = Feeding { table, feed: Some(feed_id("f")), start, plan: &plan, stop: &stop };
        pass(store, &feeding, &records, &mut BadRows::counted(), &mut Quiet).expect("reachable")
    }

    #[test]
    fn a_feed_that_breaks_anywhere_neither_skips_nor_repeats() {
        for broken in 0..60 {
            let table = table(3);
            let mut store = FakeStore::new(&table);
            let first = feed(&mut store, &table, broken, false);
            assert!(matches!(first.ended, Ended::Failed(_)));
            assert_eq!(first.position, broken);
            let second = feed(&mut store, &table, 60, true);
            assert_eq!((second.ended, second.position), (Ended::End, 60));
            assert_eq!(store.rows(), 60, "broken at {broken}");
            assert!(store.touched.values().all(|times| *times == 1), "broken at {broken}");
            assert_eq!(feed(&mut store, &table, 60, true).done.rows, 0);
        }
    }

    #[test]
    fn after_a_failed_batch_the_next_pass_begins_with_it() {
        let table = table(2);
        let mut store = FakeStore::new(&table);
        store.fail_write(3);
        let first = feed(&mut store, &table, 200, true);
        assert!(matches!(first.ended, Ended::Trouble(_)));
        let second = feed(&mut store, &table, 200, true);
        assert_eq!(second.ended, Ended::End);
        assert_eq!(store.rows(), 200);
        assert!(store.touched.values().all(|times| *times == 1));
    }

    #[test]
    fn a_shorter_source_is_another_source() {
        let table = table(2);
        let mut store = FakeStore::new(&table);
        assert_eq!(feed(&mut store, &table, 50, true).ended, Ended::End);
        let Ended::Failed(failure) = feed(&mut store, &table, 20, true).ended else { panic!("not refused") };
        assert_eq!(failure.status, 5);
        assert!(failure.sentence.contains("record 50"), "{failure}");
    }
}

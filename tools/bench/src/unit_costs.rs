//! What single system calls cost on this machine: measured in the very run whose figures they explain
//! ([`crate::arithmetic`]).
//!
//! Processor time is that of the thread which makes the calls. What the kernel does for them on threads of
//! its own, as for a disk, is not in it.

use crate::error::{BenchError, During};
use crate::options::Common;
use crate::stats::{median, tidy};
use mio::{Events, Poll, Token, Waker};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Polls and wake-ups that are made to measure one.
const CALLS: u32 = 10_000;
/// So many messages are written before they are read: the clock is looked at between.
const BATCH: u32 = 8;
/// Such batches.
const BATCHES: u32 = 500;
/// The longest message: a batch fits in a socket that nobody reads meanwhile.
const MAX_MESSAGE_BYTES: usize = 4 << 10;
/// Times that two threads wake each other up.
const TURNS: u32 = 5_000;
/// A thread that is not woken up for so long is not waited for.
const WAKE_LIMIT: Duration = Duration::from_secs(10);
/// Fsyncs that are made to measure one.
const FSYNCS: u64 = 100;

/// Microseconds of processor time for one call of each kind.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct UnitCosts {
    /// A look at a poll for which nothing has come.
    pub poll_us: f64,
    /// Reading a message from a socket.
    pub read_us: f64,
    /// Writing one to a socket, with what the loopback interface does until it can be read.
    pub write_us: f64,
    /// The call that wakes a thread, which does not sleep here.
    pub wake_us: f64,
    /// What a thread's sleep costs beyond the calls: it gives its processor up, and gets one.
    pub sleep_us: f64,
    /// Writing a message to a file.
    pub file_write_us: f64,
    /// An fsync of that.
    pub fsync_us: f64,
    /// How long such an fsync took, the middle one: no processor time.
    pub fsync_latency_us: f64,
}

impl UnitCosts {
    /// Measures them, with messages of so many bytes, or of fewer where that is much.
    pub fn measure(common: &Common, message_bytes: usize) -> Result<UnitCosts, BenchError> {
        let folder = common.folder("unit-costs")?;
        let bytes = message_bytes.clamp(1, MAX_MESSAGE_BYTES);
        let what = "what system calls cost cannot be measured";
        let (poll_us, wake_us) = calls().during(what)?;
        let (write_us, read_us) = messages(bytes).during(what)?;
        let turn_us = turns().during(what)?;
        let (file_write_us, fsync_us, fsync_latency_us) = fsyncs(folder.path(), bytes).during(what)?;
        Ok(UnitCosts {
            poll_us: tidy(poll_us),
            read_us: tidy(read_us),
            write_us: tidy(write_us),
            wake_us: tidy(wake_us),
            sleep_us: tidy((turn_us - poll_us - wake_us).max(0.0)),
            file_write_us: tidy(file_write_us),
            fsync_us: tidy(fsync_us),
            fsync_latency_us: tidy(fsync_latency_us),
        })
    }

    /// For people.
    pub fn in_words(&self) -> String {
        format!(
            "one poll costs {:.2} us, a read {:.2}, a write {:.2}, a wake {:.2}, a sleep {:.2}, a write of the log {:.2}, an \
             fsync {:.1} and it takes {:.0}",
            self.poll_us,
            self.read_us,
            self.write_us,
            self.wake_us,
            self.sleep_us,
            self.file_write_us,
            self.fsync_us,
            self.fsync_latency_us
        )
    }
}

/// Processor time so far, microseconds.
fn clock_us(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn thread_us() -> f64 {
    clock_us(ClockId::ThreadCPUTime)
}

/// What one of many calls costs.
fn one_of(calls: u32, mut call: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let before = thread_us();
    for _ in 0..calls {
        call()?;
    }
    Ok((thread_us() - before) / f64::from(calls))
}

/// A poll, and a wake-up of a thread that does not sleep.
fn calls() -> io::Result<(f64, f64)> {
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(16);
    let waker = Waker::new(poll.registry(), Token(0))?;
    let poll_us = one_of(CALLS, || poll.poll(&mut events, Some(Duration::ZERO)))?;
    let wake_us = one_of(CALLS, || waker.wake())?;
    Ok((poll_us, wake_us))
}

/// Writing a message, and reading it.
fn messages(bytes: usize) -> io::Result<(f64, f64)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    let (message, mut room) = (vec![7_u8; bytes], vec![0_u8; bytes]);
    let (mut write_us, mut read_us) = (0.0, 0.0);
    for _ in 0..BATCHES {
        let begun = thread_us();
        for _ in 0..BATCH {
            sender.write_all(&message)?;
        }
        let written = thread_us();
        for _ in 0..BATCH {
            receiver.read_exact(&mut room)?;
        }
        write_us += written - begun;
        read_us += thread_us() - written;
    }
    let messages = f64::from(BATCHES * BATCH);
    Ok((write_us / messages, read_us / messages))
}

/// What it costs that one thread wakes another one up: the call, the sleep that it ends, and the poll.
fn turns() -> io::Result<f64> {
    let (mut here, mut there) = (Poll::new()?, Poll::new()?);
    let wakes_here = Waker::new(here.registry(), Token(0))?;
    let wakes_there = Waker::new(there.registry(), Token(0))?;
    let begun = clock_us(ClockId::ProcessCPUTime);
    let other = std::thread::spawn(move || {
        for _ in 0..TURNS {
            wait(&mut there)?;
            wakes_here.wake()?;
        }
        // With it the wake-up would be gone that nobody has heard yet.
        Ok::<Waker, io::Error>(wakes_here)
    });
    for _ in 0..TURNS {
        wakes_there.wake()?;
        wait(&mut here)?;
    }
    let waker = other.join().map_err(|_| io::Error::other("a thread panicked"))?;
    drop(waker?);
    Ok((clock_us(ClockId::ProcessCPUTime) - begun) / f64::from(2 * TURNS))
}

/// Sleeps until it is woken up.
fn wait(poll: &mut Poll) -> io::Result<()> {
    let mut events = Events::with_capacity(1);
    loop {
        match poll.poll(&mut events, Some(WAKE_LIMIT)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) if events.is_empty() => return Err(ErrorKind::TimedOut.into()),
            Ok(()) => return Ok(()),
        }
    }
}

/// Writing to a file whose blocks are there, an fsync of that, and how long the middle one of these took.
fn fsyncs(folder: &Path, bytes: usize) -> io::Result<(f64, f64, f64)> {
    let path = folder.join("record");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    file.write_all_at(&vec![0_u8; bytes * FSYNCS as usize], 0)?;
    file.sync_all()?;
    let record = vec![7_u8; bytes];
    let (mut write_us, mut fsync_us, mut took) = (0.0, 0.0, Vec::new());
    for number in 0..FSYNCS {
        let begun = thread_us();
        file.write_all_at(&record, number * bytes as u64)?;
        let (written, from) = (thread_us(), Instant::now());
        file.sync_data()?;
        took.push(from.elapsed().as_nanos() as f64 / 1e3);
        write_us += written - begun;
        fsync_us += thread_us() - written;
    }
    let fsyncs = FSYNCS as f64;
    Ok((write_us / fsyncs, fsync_us / fsyncs, median(&took).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_costs_something() {
        let units = UnitCosts::measure(&Common::default(), 1_024).expect("measures");
        let calls = [units.poll_us, units.read_us, units.write_us, units.wake_us];
        assert!(calls.iter().all(|us| (0.01..1_000.0).contains(us)), "{units:?}");
        assert!(units.file_write_us > 0.0 && units.fsync_us > 0.0, "{units:?}");
        assert!(units.sleep_us >= 0.0 && units.fsync_latency_us > 0.0, "{units:?}");
        assert!(units.in_words().contains("one poll costs"));
    }
}

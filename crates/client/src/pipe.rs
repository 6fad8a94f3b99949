//! A connection within a process: two ends, bytes in both directions, and a limit on what waits in each. An
//! end is used as a socket that does not block. What a poll tells of a socket, an end's owner is woken for.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::engine::Wake;

/// The most bytes that wait in one direction (PR-433). Whoever writes more is told to come again, as by a
/// socket.
pub const MAX_WAITING_BYTES: usize = 256 * 1024;
/// A buffer that grew beyond this is given back once it is empty.
const KEEP_BYTES: usize = 64 * 1024;

/// What is on its way to one end.
#[derive(Debug, Default)]
struct Way {
    bytes: Vec<u8>,
    /// Bytes that were read.
    from: usize,
    /// The end that writes was told that there is no room, and is woken when there is.
    refused: bool,
}

impl Way {
    fn len(&self) -> usize {
        self.bytes.len() - self.from
    }

    /// Adds as many bytes as there is room for: how many.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let written = bytes.len().min(MAX_WAITING_BYTES - self.len());
        if self.from >= self.len() {
            self.bytes.drain(..self.from);
            self.from = 0;
        }
        self.bytes.extend_from_slice(&bytes[..written]);
        written
    }

    /// Takes as many bytes as are there and fit: how many.
    fn give(&mut self, room: &mut [u8]) -> usize {
        let read = room.len().min(self.len());
        room[..read].copy_from_slice(&self.bytes[self.from..self.from + read]);
        self.from += read;
        if self.len() == 0 {
            self.from = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEEP_BYTES);
        }
        read
    }
}

/// What both ends see. Each list is by the number of the end.
#[derive(Default)]
struct Shared {
    to: [Way; 2],
    /// What wakes the owner of each end, as far as it has said so.
    wakes: [Option<Wake>; 2],
    gone: [bool; 2],
}

/// What a poll would say of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipeEvents {
    /// Something is there to be read.
    pub readable: bool,
    /// There is room for something to be written.
    pub writable: bool,
    /// The other end is gone: what is still there can be read.
    pub ended: bool,
}

/// One end. Dropping it hangs up: the other end reads what is on its way, and then the end.
pub struct PipeEnd {
    shared: Arc<Mutex<Shared>>,
    /// Its number.
    me: usize,
}

/// Two ends that belong together.
pub fn pipe() -> (PipeEnd, PipeEnd) {
    let shared = Arc::new(Mutex::new(Shared::default()));
    (PipeEnd { shared: shared.clone(), me: 0 }, PipeEnd { shared, me: 1 })
}

impl PipeEnd {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn other(&self) -> usize {
        1 - self.me
    }

    /// Who owns this end from now on is woken when there is something to be read where there was nothing,
    /// when there is room again for what was refused, and when the other end is gone (PR-432). What was so
    /// before is not told: look at it ([`PipeEnd::events`]) after this call. `wake` is called by the thread
    /// that has the other end, and must not block.
    pub fn wake_by(&self, wake: Wake) {
        let me = self.me;
        self.shared().wakes[me] = Some(wake);
    }

    /// What a poll would say now.
    pub fn events(&self) -> PipeEvents {
        let shared = self.shared();
        PipeEvents {
            readable: shared.to[self.me].len() > 0,
            writable: shared.to[self.other()].len() < MAX_WAITING_BYTES,
            ended: shared.gone[self.other()],
        }
    }
}

impl Read for PipeEnd {
    /// Reads what is there, as far as it fits. Less than fits is all that was there. Nothing is the end.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let other = self.other();
        let mut shared = self.shared();
        let way = &mut shared.to[self.me];
        let read = way.give(room);
        if read == 0 && !room.is_empty() {
            return if shared.gone[other] { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let waits = std::mem::take(&mut way.refused);
        let wake = if waits { shared.wakes[other].clone() } else { None };
        drop(shared);
        if let Some(wake) = wake {
            wake();
        }
        Ok(read)
    }
}

impl Write for PipeEnd {
    /// Writes as much as there is room for.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let other = self.other();
        let mut shared = self.shared();
        if shared.gone[other] {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let way = &mut shared.to[other];
        let begins = way.len() == 0;
        let written = way.put(bytes);
        if written == 0 && !bytes.is_empty() {
            way.refused = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let wake = if begins { shared.wakes[other].clone() } else { None };
        drop(shared);
        if let Some(wake) = wake {
            wake();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        let (me, other) = (self.me, self.other());
        let mut shared = self.shared();
        shared.gone[me] = true;
        // Nobody is left whom it would wake.
        shared.wakes[me] = None;
        shared.to[me] = Way::default();
        let wake = shared.wakes[other].clone();
        drop(shared);
        if let Some(wake) = wake {
            wake();
        }
    }
}

impl fmt::Debug for PipeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeEnd").field("me", &self.me).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    /// Counts how often an end's owner is woken.
    fn counting(end: &PipeEnd) -> Arc<AtomicUsize> {
        let times = Arc::new(AtomicUsize::new(0));
        let counted = times.clone();
        end.wake_by(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        times
    }

    fn times(counted: &AtomicUsize) -> usize {
        counted.load(Ordering::SeqCst)
    }

    fn blocks(outcome: io::Result<usize>) -> bool {
        outcome.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    #[test]
    fn bytes_come_out_as_they_went_in_however_they_are_cut() {
        let (mut one, mut other) = pipe();
        let sent: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
        let (mut from, mut heard, mut room) = (0, Vec::new(), vec![0; 40_000]);
        for step in (1..).map(|turn: usize| turn * 7_919 % 100_000) {
            if from < sent.len() {
                let to = sent.len().min(from + step);
                from += one.write(&sent[from..to]).unwrap_or(0);
            }
            let fits = step % room.len();
            let read = other.read(&mut room[..fits]).unwrap_or(0);
            heard.extend_from_slice(&room[..read]);
            if heard.len() == sent.len() {
                break;
            }
        }
        assert!(heard == sent, "other bytes");
        assert!(blocks(other.read(&mut room)), "and no more");
    }

    #[test]
    fn pr432_an_owner_is_woken_for_what_it_does_not_know_of() {
        let (mut one, mut other) = pipe();
        let mut room = vec![0; MAX_WAITING_BYTES];
        one.write_all(b"before").expect("fits");
        let (ones, others) = (counting(&one), counting(&other));
        assert!(other.events().readable, "what was there before is looked at");
        assert_eq!(other.read(&mut room).expect("reads"), 6);
        assert_eq!(times(&others), 0);
        one.write_all(b"a").expect("fits");
        one.write_all(b"b").expect("fits");
        assert_eq!(times(&others), 1, "once for all that comes before it has read");
        assert_eq!(other.read(&mut room).expect("reads"), 2);
        one.write_all(b"c").expect("fits");
        assert_eq!(times(&others), 2, "and again for what comes behind that");
        one.write_all(&vec![7; MAX_WAITING_BYTES - 1]).expect("fits");
        assert!(blocks(one.write(b"d")) && !one.events().writable);
        assert_eq!(times(&ones), 0);
        assert_eq!(other.read(&mut room[..10]).expect("reads"), 10);
        assert_eq!(times(&ones), 1, "there is room for what was refused");
        assert!(one.events().writable);
        assert_eq!(other.read(&mut room[..10]).expect("reads"), 10);
        assert_eq!(times(&ones), 1, "which is said once");
        // Another owner, such as another executor, is woken from then on.
        let (next, read) = (counting(&other), other.read(&mut room).expect("reads"));
        assert_eq!(read, MAX_WAITING_BYTES - 20);
        one.write_all(b"e").expect("fits");
        assert_eq!((times(&next), times(&others)), (1, 2));
        drop(one);
        assert_eq!(times(&next), 2, "and for the end");
    }

    /// Sleeps until [`unparking`] wakes this thread.
    fn sleep() {
        let (began, most) = (Instant::now(), Duration::from_secs(20));
        std::thread::park_timeout(most);
        assert!(began.elapsed() < most, "nobody has woken it");
    }

    /// Wakes the thread that calls this.
    fn unparking() -> Wake {
        let thread = std::thread::current();
        Arc::new(move || thread.unpark())
    }

    /// Owns an end for so many bytes.
    fn hear(end: &mut PipeEnd, mut bytes: usize) {
        end.wake_by(unparking());
        let mut room = [0; 3_000];
        while bytes > 0 {
            let most = bytes.min(room.len());
            match end.read(&mut room[..most]) {
                Ok(read) => {
                    assert!(read > 0, "it ends {bytes} bytes early");
                    bytes -= read;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    sleep();
                }
            }
        }
    }

    #[test]
    fn pr432_threads_that_sleep_until_they_are_woken_miss_nothing() {
        const BYTES: usize = 20_000_000;
        let (mut one, mut other) = pipe();
        let writes = std::thread::spawn(move || {
            one.wake_by(unparking());
            let (bytes, mut left) = ([7; 7_000], BYTES);
            while left > 0 {
                match one.write(&bytes[..left.min(bytes.len())]) {
                    Ok(written) => left -= written,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        sleep();
                    }
                }
            }
        });
        // Every fifth of it another thread has the end, while the writer goes on.
        for _ in 0..5 {
            let hears = std::thread::spawn(move || {
                hear(&mut other, BYTES / 5);
                other
            });
            other = hears.join().expect("it hears its part");
        }
        writes.join().expect("it writes all");
        assert_eq!(other.read(&mut [0; 8]).expect("the end"), 0);
    }

    #[test]
    fn pr433_what_waits_has_a_limit() {
        let (mut one, mut other) = pipe();
        let much = vec![1; 2 * MAX_WAITING_BYTES];
        assert_eq!(one.write(&much).expect("writes"), MAX_WAITING_BYTES);
        assert!(blocks(one.write(&much)));
        let mut room = [0; 1_000];
        for _ in 0..2_000 {
            assert_eq!(other.read(&mut room).expect("reads"), 1_000);
            assert_eq!(one.write(&much).expect("writes"), 1_000);
        }
        let shared = one.shared();
        assert!(shared.to[1].bytes.len() <= 2 * MAX_WAITING_BYTES, "what was read is given back");
    }

    #[test]
    fn who_hangs_up_is_read_to_the_end() {
        let (mut one, mut other) = pipe();
        let mut room = [0; 8];
        assert!(blocks(other.read(&mut room)));
        one.write_all(b"last").expect("fits");
        drop(one);
        assert!(other.events().ended && other.events().readable);
        assert_eq!(other.read(&mut room).expect("reads"), 4);
        assert_eq!(&room[..4], b"last");
        assert_eq!(other.read(&mut room).expect("reads"), 0);
        assert_eq!(other.write(b"x").map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
    }
}

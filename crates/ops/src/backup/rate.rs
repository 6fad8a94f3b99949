//! A limit of bytes in a second.

use std::time::{Duration, Instant};

/// Counts bytes, and says how long to wait before the next.
pub struct Rate {
    per_second: u64,
    begun: Instant,
    bytes: u64,
}

impl Rate {
    /// 0: without a limit.
    pub fn new(per_second: u64) -> Rate {
        Rate { per_second, begun: Instant::now(), bytes: 0 }
    }

    /// So many bytes more.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// How long nothing more is to be asked for.
    pub fn wait(&self) -> Duration {
        if self.per_second == 0 {
            return Duration::ZERO;
        }
        let due = Duration::from_secs_f64(self.bytes as f64 / self.per_second as f64);
        due.saturating_sub(self.begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        let mut rate = Rate::new(1_000);
        assert_eq!(rate.wait(), Duration::ZERO);
        rate.add(60_000);
        assert!(rate.wait() > Duration::from_secs(55) && rate.wait() <= Duration::from_secs(60));
        let mut free = Rate::new(0);
        free.add(u64::MAX);
        assert_eq!(free.wait(), Duration::ZERO);
    }
}

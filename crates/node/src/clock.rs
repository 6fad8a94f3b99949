//! This machine's clocks. The monotonic one counts while the machine is suspended, so that a lease runs out
//! during it (PR-03).

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};
use types::{Micros, Now};

/// The monotonic clock, in microseconds.
pub fn mono() -> Micros {
    let time = clock_gettime(ClockId::Boottime);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000)
}

/// Both clocks.
pub fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono: mono(), wall_ms: wall.as_millis() as u64 }
}

/// Processor time of this process so far, in microseconds.
pub fn cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Processor time of this thread so far. What runs beside it on the machine does not count.
pub fn thread_cpu() -> Micros {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Micros(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let first = mono();
        assert!(mono() >= first && first > Micros::ZERO);
        assert!(now().wall_ms > 1_700_000_000_000);
        assert!(cpu_us() > 0);
    }
}

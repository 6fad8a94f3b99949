//! Whether heartbeats may vouch for the partitions that a node leads (PR-65): executor and disk make
//! progress.

use types::Micros;

/// An executor that has not ticked for so long is not vouched for.
pub const EXECUTOR_DEAD: Micros = Micros::from_millis(500);
/// A log with a write pending for so long is not vouched for.
pub const DISK_DEAD: Micros = Micros::from_millis(1000);

/// True if the executor, which ticked last at `ticked`, and the log, whose oldest pending write was submitted
/// at `pending`, make progress. A write that was refused for want of room is not pending: the disk answered.
pub fn makes_progress(ticked: Micros, pending: Option<Micros>, now: Micros) -> bool {
    now.since(ticked) < EXECUTOR_DEAD && pending.is_none_or(|at| now.since(at) < DISK_DEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n18_only_a_dead_executor_or_disk_is_not_vouched_for() {
        let now = 10_000;
        // When the executor ticked, since when a write has been pending, and whether that is progress.
        let cases = [
            (now, None, true),
            (now - 499, None, true),
            (now - 500, None, false),
            (now, Some(now - 999), true),
            (now, Some(now - 1_000), false),
            (now - 500, Some(now), false),
        ];
        for (ticked, pending, progress) in cases {
            let pending = pending.map(Micros::from_millis);
            let found = makes_progress(Micros::from_millis(ticked), pending, Micros::from_millis(now));
            assert_eq!(found, progress, "{ticked} {pending:?}");
        }
    }
}

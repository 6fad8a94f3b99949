//! When engines are written to disk beside what their members ask for.

use crate::random::{Concern, Stream};

/// By the length of their logs, as real nodes do it, or by lot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushPlan {
    /// Bytes of a log above its engine's files that make a checkpoint due; none: the log's length is nobody's
    /// reason.
    pub log_bytes: Option<u64>,
    /// Some are written by lot, however long their logs are.
    pub by_lot: bool,
}

impl FlushPlan {
    /// By lot alone.
    pub const BY_LOT: FlushPlan = FlushPlan { log_bytes: None, by_lot: true };

    /// Of a seed: by its number, so that others stay what they were.
    pub fn new(seed: u64) -> FlushPlan {
        let by_lot = match seed % 7 {
            1 => true,
            4 | 6 => false,
            _ => return FlushPlan::BY_LOT,
        };
        let bytes = Stream::new(seed, Concern::Flushes, 0).between(2 << 10, 40 << 10);
        FlushPlan { log_bytes: Some(bytes), by_lot }
    }
}

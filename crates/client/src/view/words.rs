//! Words for numbers, as people read them.

use types::TableRecord;

/// What a failover would replay, where there is something to say.
pub(super) fn replay_words(table: &TableRecord, replay_ms: Option<u64>) -> String {
    match (replay_ms, table.failover_target_ms) {
        (Some(now), Some(target)) => {
            format!("; recovery would replay {now} ms of log now (target {target} ms)")
        }
        (None, Some(target)) => {
            format!("; what recovery would replay is not measured yet (target {target} ms)")
        }
        (Some(now), None) if now > 0 => format!("; recovery would replay {now} ms of log now"),
        _ => String::new(),
    }
}

/// What a disk does that hangs.
pub(super) fn writes_nothing(ms: u64) -> String {
    format!("has written nothing for {:.1} s", ms as f64 / 1e3)
}

pub(super) fn partitions_text(count: usize) -> String {
    if count == 1 { "1 partition".into() } else { format!("{count} partitions") }
}

pub(super) fn have(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    let units = [(1u64 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

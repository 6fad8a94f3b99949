//! `log dump` and `log verify`.

use super::failover::when;
use crate::args::cluster::{LogCommand, LogPlace};
use crate::connect::{Context, partition_number};
use crate::out::Out;
use ops::logview::{EntryLine, LogView, Verified};
use ops::overview::size;
use ops::{Failure, Status};
use types::Lsn;

/// `log ...`
pub fn run(command: LogCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        LogCommand::Dump { place, partition, from, limit } => {
            let only = match &partition {
                None => None,
                Some(text) => Some(
                    partition_number(text)
                        .ok_or_else(|| Failure::usage(format!("`{text}` is not a partition's number")))?,
                ),
            };
            let mut left = limit.unwrap_or(u64::MAX);
            let out = &mut context.out;
            open(&place)?.dump(only, Lsn(from), |line| {
                if left > 0 {
                    print(&line, out);
                }
                left = left.saturating_sub(1);
                left > 0
            })
        }
        LogCommand::Verify { place } => {
            let verified = open(&place)?.verify();
            show(&verified, &mut context.out);
            match verified.damage.len() {
                0 => Ok(()),
                count => Err(Failure::new(
                    Status::Corrupt,
                    format!(
                        "the log in {} is damaged in {count} places; start the node: it leaves the in-sync set of what \
                         was hit and fetches good data",
                        place.data_dir.display()
                    ),
                )),
            }
        }
    }
}

fn open(place: &LogPlace) -> Result<LogView, Failure> {
    LogView::open(&place.data_dir, place.log_dir.as_deref())
}

fn print(line: &EntryLine, out: &mut Out) {
    out.either(line, || {
        let session = line
            .session
            .map_or_else(String::new, |(term, lsn)| format!("  session ({term},{lsn}) number {}", line.seq));
        let rows = line.rows.map_or_else(String::new, |rows| format!("  {rows} rows"));
        format!(
            "{}  ({},{})  {:13}  {}  {} bytes{rows}{session}",
            line.partition,
            line.term,
            line.lsn,
            line.kind,
            when(line.wall_ms),
            line.bytes
        )
    });
}

fn show(verified: &Verified, out: &mut Out) {
    if out.json {
        return out.object(verified);
    }
    let end = if verified.clean_shutdown { "shut down properly" } else { "not shut down properly" };
    out.line(format!(
        "{} of log, {} entries in {} partitions, opened {} times, {end}",
        size(verified.bytes),
        verified.entries,
        verified.partitions.len(),
        verified.openings
    ));
    if verified.torn_bytes > 0 {
        out.line(format!(
            "a torn end of {} will be cut off; none of it was durable",
            size(verified.torn_bytes)
        ));
    }
    for partition in &verified.partitions {
        let state = partition.damaged.as_deref().unwrap_or("whole");
        out.line(format!(
            "partition {}: LSN {} to {}, term {}, {} entries, {state}",
            partition.partition, partition.from, partition.to, partition.term, partition.entries
        ));
    }
    for damage in &verified.damage {
        out.line(format!("damage: {damage}"));
    }
}

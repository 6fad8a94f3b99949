//! What a new primary lacks of this log is given to it (R6).

use crate::damage::Fault;
use crate::data::Data;
use crate::output::{Origin, Output, ReadFor};
use types::{Epoch, Member};
use wire::peer::{Fetch, Fetched};
use wire::{Entry, PeerMessage};

/// Gives what is in memory, or has it read back. `damaged`: so is the engine, or the log.
pub(crate) fn answer(
    data: &Data,
    origin: Origin,
    damaged: bool,
    fetch: &Fetch,
    most: usize,
    out: &mut Vec<Output>,
) {
    let log = &data.log;
    // Damaged or lost files are no reason to keep to itself what a whole log has.
    let of_no_use = damaged && !log.is_whole();
    if !log.holds(fetch.after) || of_no_use || fetch.after.lsn < log.base().lsn {
        return send(origin, fetch, &[], out);
    }
    let from = fetch.after.lsn.next();
    if fetch.after.lsn >= log.tail().base().lsn {
        let run = log.tail().run(from, most).filter(|entry| entry.lsn() <= fetch.to);
        return send(origin, fetch, &run.cloned().collect::<Vec<Entry>>(), out);
    }
    let (partition, purpose) = (origin.partition, ReadFor::Fetch(*fetch));
    out.push(Output::ReadLog { partition, from, max_bytes: most, purpose });
}

/// What was read back for a new primary. What it cannot be given is answered too, behind whatever that means
/// here: it goes on without (R6).
pub(crate) fn read(
    data: &Data,
    fetch: &Fetch,
    entries: Result<Vec<Entry>, String>,
) -> (Vec<Entry>, Option<Fault>) {
    let (log, after) = (&data.log, fetch.after);
    match entries {
        Ok(entries) => (entries.into_iter().filter(|entry| entry.lsn() <= fetch.to).collect(), None),
        // Below the base it was given up meanwhile, and above `durable` it may not be on the disk yet.
        Err(reason) => {
            let lost = (log.base().lsn..log.durable()).contains(&after.lsn);
            let fault = || Fault::Log(format!("R10: the log cannot be read behind {after}: {reason}"));
            (Vec::new(), lost.then(fault))
        }
    }
}

/// Sends those of the entries asked for that are here.
pub(crate) fn send(origin: Origin, fetch: &Fetch, entries: &[Entry], out: &mut Vec<Output>) {
    let mut bytes = bytes::BytesMut::new();
    for entry in entries {
        bytes.extend_from_slice(entry.bytes());
    }
    let (to, epoch): (Member, Epoch) = (fetch.from, fetch.epoch);
    let (partition, from, after) = (origin.partition, origin.me, fetch.after);
    let fetched = Fetched { partition, epoch, from, after, entries: bytes.freeze() };
    out.push(Output::Send { to, message: PeerMessage::Fetched(fetched) });
}

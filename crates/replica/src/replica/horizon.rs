//! What is kept for snapshots of transactions over partitions, at every copy of a partition that they write.
//!
//! A primary keeps what clients hold, and says twice a second with a flush what the lowest state of it is: a
//! row of the partition. Copies that follow keep that, too. So who is promoted shows the same snapshots, and
//! so does a copy that is asked for what all have secured.

use super::Replica;
use crate::serve::commit::horizon_at;
use types::Micros;

/// Time has passed: what is committed now is kept for a while, and a primary says with its next flush what
/// the lowest state is that it keeps (PR-465). What was kept before may go, also where nothing is published
/// any more.
pub(crate) fn keep(replica: &mut Replica, now: Micros) {
    if !is_global(replica) {
        return;
    }
    let readable = replica.data.readable();
    if !replica.readers.keep_recent(readable, now) {
        return;
    }
    follow(replica, now);
    let reads = replica.readers.lowest();
    if replica.serves() {
        replica.features.commits.tell_horizon(reads.map_or(readable, |lowest| lowest.min(readable)));
    }
    if !replica.role.is_copying() && !replica.is_damaged() {
        replica.data.raise_read_floor(reads);
    }
}

/// Something may be published, and what only reads below it need may be forgotten. Who does not serve as
/// primary keeps what its primary does. Who serves keeps it on for a while: whoever reads there says so again
/// (PR-465).
pub(crate) fn follow(replica: &mut Replica, now: Micros) {
    if !is_global(replica) {
        return;
    }
    if replica.serves() {
        replica.readers.lead(now);
    } else if replica.readers.follow_due(now) {
        // What cannot be read is found damaged by whoever reads rows. What was kept stays meanwhile.
        let found = horizon_at(replica.data.engine.as_ref(), replica.data.readable());
        if let Ok((told, newest_flush)) = found {
            let led_at = replica.role.fresh_at(Micros::ZERO);
            replica.readers.follow((now, led_at), told, newest_flush);
        }
    }
}

fn is_global(replica: &Replica) -> bool {
    replica.config.record().is_some_and(|record| record.is_global())
}

//! What is kept for snapshots of transactions over partitions, at every copy of a partition that they write.
//!
//! A primary keeps what clients hold, and says twice a second with a flush what the lowest state of it is: a
//! row of the partition. Copies that follow keep that, too. So who is promoted shows the same snapshots, and
//! so does a copy that is asked for what all have secured.

use super::Replica;
use crate::serve::commit::horizon_at;
use types::Micros;

/// Time has passed: what is committed now is kept for a while, and a primary says with its next flush what
/// the lowest state is that it keeps (PR-465).
pub(crate) fn keep(replica: &mut Replica, now: Micros) {
    if !is_global(replica) {
        return;
    }
    let readable = replica.data.readable();
    if replica.readers.keep_recent(readable, now) && replica.serves() {
        let lowest = replica.readers.lowest().map_or(readable, |lowest| lowest.min(readable));
        replica.features.commits.tell_horizon(lowest);
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
            replica.readers.follow(now, told, newest_flush);
        }
    }
}

fn is_global(replica: &Replica) -> bool {
    replica.config.record().is_some_and(|record| record.is_global())
}

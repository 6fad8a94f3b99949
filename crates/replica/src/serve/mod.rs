//! Clients' requests: writes with exactly-once sessions (N13), reads at `committed` (R4, R5). Each is done by
//! one of a few types that are lent the parts they need, and comes to an [`Answer`](crate::answer::Answer): a
//! value that knows nothing of the replica.
//!
//! | file | what |
//! | --- | --- |
//! | `write` | requests that make an entry |
//! | `call` | calls of procedures, which make one, too |
//! | `commit` | global transactions: commits, and their parts in partitions |
//! | `large` | writes of so many rows that they are read ahead in slices |
//! | `read` | requests that look at a state |
//! | `stage` | files of bulk loads, before their entry |

pub(crate) mod call;
mod commit;
pub(crate) mod large;
pub(crate) mod read;
pub(crate) mod stage;
pub(crate) mod write;

use types::PartitionRecord;
use wire::Status;

/// The sentence for a partition with fewer copies than its policy allows, if that is so now.
pub(crate) fn too_few(record: &PartitionRecord) -> Option<Status> {
    let (have, min) = (record.in_sync.len(), record.policy.min_in_sync);
    if record.policy.allows(have) {
        return None;
    }
    let left: Vec<String> = record.in_sync.iter().map(|member| member.node.to_string()).collect();
    Some(Status::TooFewCopies(format!(
        "partition {} has {have} of at least {min} copies left (on {}); start the other nodes again, or go on with \
         fewer: `understudy table alter TABLE --min-in-sync {have}`, or `--available`",
        record.id,
        left.join(", ")
    )))
}

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
pub(crate) mod commit;
pub(crate) mod large;
pub(crate) mod read;
pub(crate) mod stage;
pub(crate) mod write;

use types::{Member, PartitionRecord};
use wire::Status;

/// The sentence for a partition with fewer copies than its policy allows, if that is so now. It says who is
/// waited for, as far as the record tells: who catches up was heard when it was let in.
pub(crate) fn too_few(record: &PartitionRecord) -> Option<Status> {
    let (have, min) = (record.in_sync.len(), record.policy.min_in_sync);
    if record.policy.allows(have) {
        return None;
    }
    let todo = match record.catching_up.as_slice() {
        [] => "start the other nodes if they do not run, else wait until they are let in again".to_string(),
        [one] => format!("{} is catching up: wait for it, and start it if it does not run", one.node),
        several => format!("{} are catching up: wait for them, and start who does not run", nodes(several)),
    };
    Some(Status::TooFewCopies(format!(
        "partition {} has {have} of at least {min} copies left (on {}); {todo}; or go on with fewer: \
         `understudy table alter TABLE --min-in-sync {have}`, or `--available`",
        record.id,
        nodes(&record.in_sync)
    )))
}

/// Their nodes, as people read them.
fn nodes(members: &[Member]) -> String {
    let nodes: Vec<String> = members.iter().map(|member| member.node.to_string()).collect();
    nodes.join(", ")
}

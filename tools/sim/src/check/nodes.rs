//! R6, R8, R10, I7, I12, PR-107, PR-145: what a node says of itself, gives, sends and listens to, and what it
//! finds of its disk.

use std::collections::BTreeSet;
use types::{Generation, Lsn, Member, NodeId, PartitionId, Position, StoreId};

/// What a checker says; the error is a sentence.
type NodeVerdict = Result<(), String>;

/// A replica, and the node that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At(pub NodeId, pub PartitionId);

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

/// R10: a replica calls durable what its log has proved to be, from where its log begins on; below that it is
/// in its files.
pub fn check_durable(replica: At, begins: Lsn, said: Lsn, proved: Lsn) -> NodeVerdict {
    match said < begins || said == Lsn::ZERO || said <= proved {
        true => Ok(()),
        false => Err(format!("{replica}: {said} is said to be durable, and its log proved {proved}")),
    }
}

/// R6: whose directory is lost gives what its log has behind an entry to who leads next. `has_more`: it has
/// some, `gives`: it gives some.
pub fn check_gives(
    replica: At,
    end: Position,
    after: Position,
    (has_more, gives): (bool, bool),
) -> NodeVerdict {
    match has_more && !gives {
        true => Err(format!(
            "{replica}: its directory is lost, its log goes to {end}, and it gives nothing behind {after}"
        )),
        false => Ok(()),
    }
}

/// R8: who chose the log is not sent the state.
pub fn check_sends_state(replica: At, to: Member, chose_log: bool) -> NodeVerdict {
    match chose_log {
        true => Err(format!("{replica}: {to} chose the log, and is sent the state after all")),
        false => Ok(()),
    }
}

/// I7: the files of a sound replica that counts reach to where its log begins.
pub fn check_reach(replica: At, log_begins: Position, persisted: Position) -> NodeVerdict {
    match log_begins.lsn <= persisted.lsn {
        true => Ok(()),
        false => {
            Err(format!("{replica}: the log begins behind {log_begins}, the components end at {persisted}"))
        }
    }
}

/// What may be a reason for a replica to call itself damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskFaults {
    /// What its disk has was harmed, or a sync or a call of its engine's failed.
    pub disk: bool,
    /// A call found no room.
    pub no_room: bool,
    /// A procedure of the world does something else at each node.
    pub unsteady: bool,
}

/// I12: nothing is damaged where nothing was harmed. Want of room damages nothing but a copy by rows, and
/// that two replicas came to different states (F21) is found where a procedure is unsteady, and nowhere else.
pub fn check_damage(replica: At, reason: &str, faults: DiskFaults) -> NodeVerdict {
    let wants_room = reason.starts_with("there is no room for the engine's files");
    let expected = match reason.starts_with("F21") {
        true => faults.unsteady,
        false => faults.disk || faults.no_room && wants_room,
    };
    match expected {
        true => Ok(()),
        false => Err(format!("{replica}: nothing was harmed, and yet: {reason}")),
    }
}

/// I12: a scrubbing finds nothing at a node to which nothing happened since it began. `sound_us` says for how
/// long that is so, and `since_us` how long ago it began, microseconds.
pub fn check_scrubbed(replica: At, found: &[String], sound_us: Option<u64>, since_us: u64) -> NodeVerdict {
    match found.is_empty() || sound_us.is_none_or(|sound| sound <= since_us) {
        true => Ok(()),
        false => Err(format!("{replica}: no fault befell it, and a scrubbing finds {found:?}")),
    }
}

/// PR-107: a node that knows controllers of one generation acts on nothing of an older one.
pub fn check_listens(node: NodeId, known: Generation, theirs: Generation) -> NodeVerdict {
    match theirs < known {
        true => Err(format!("{node}, which knows {known}, listens to a controller of {theirs}")),
        false => Ok(()),
    }
}

/// PR-107: nodes that the newest records name which were told are in the records that were made of them.
pub fn check_named(told: &BTreeSet<NodeId>, made: &BTreeSet<NodeId>) -> NodeVerdict {
    match told.difference(made).next() {
        Some(id) => Err(format!("{id} is in the newest records that were told, and not in the new ones")),
        None => Ok(()),
    }
}

/// PR-145: who runs on a copy of a disk is told that it is refused, or that no node has that disk. `told`
/// names the nodes of a cluster map, if it was told one.
pub fn check_clone(
    copied: (NodeId, StoreId),
    told: Option<&[(NodeId, StoreId)]>,
    refused: bool,
) -> NodeVerdict {
    match told {
        Some(nodes) if !nodes.contains(&copied) => Ok(()),
        None if refused => Ok(()),
        _ => Err(format!("a copy of the disk of {}, on which that has run since, is let in", copied.0)),
    }
}

/// PR-145: no copy of a disk is recorded as the node.
pub fn check_recorded(node: NodeId, on_copy: bool) -> NodeVerdict {
    match on_copy {
        true => Err(format!("{node} is recorded on a copy of its disk")),
        false => Ok(()),
    }
}

//! Files of bulk loads come in beside the log, so what is kept free for that and for flushes
//! (`log.reserve_bytes`) is kept from them (F20): a load that does not fit is refused when it begins, here
//! and by every member, and its pieces when there is less left than that. What a catching-up replica is sent
//! is not refused: it is what the node is for.

use super::storage::Storage;
use super::view::View;
use crate::lease_manager::SharedLeases;
use replica::Host;
use types::bulk::load_key;
use types::{Component, LoadId, Member, PartitionId, ReadAt, Staging};
use wire::bulk::StageAnswer;
use wire::{ManagerOp, Op, PeerMessage, Request, Status};

/// What becomes of a message that brings a part of a load for which there is no room.
pub enum Refused {
    /// It is lost. A piece that is lost is asked for again, and then refused.
    Silently,
    /// Its sender is told.
    Answered(Member, StageAnswer),
}

/// The answer to a client whose load has no room here, or whose commit names partitions that are not there,
/// where this node leads.
pub fn refuses_client(
    host: &Host<SharedLeases>,
    storage: &Storage,
    view: &View,
    request: &Request,
) -> Option<Status> {
    let id = request.partition;
    let leads = view.partition(id).is_some_and(|record| record.primary == host.me());
    let commit = if let Op::Manager(asked) = &request.op { asked.commit() } else { None };
    if let (true, Some(asked)) = (leads, commit) {
        return refuses_partitions(view, asked.writes.iter().map(|writes| writes.partition));
    }
    if let (true, Op::Manager(ManagerOp::Define { partitions, .. })) = (leads, &request.op) {
        return refuses_partitions(view, partitions.iter().copied());
    }
    if let (true, Op::Manager(ManagerOp::Mend { partition, .. })) = (leads, &request.op) {
        return refuses_partitions(view, std::iter::once(*partition));
    }
    if let (true, Op::Manager(ManagerOp::Forget { partitions })) = (leads, &request.op) {
        return refuses_to_forget(view, partitions);
    }
    let why = match &request.op {
        _ if !leads => None,
        Op::Stage { load, files } => no_room_for(host, storage, id, *load, files),
        Op::StagePiece { .. } => no_room_left(host, storage, id),
        _ => None,
    };
    why.map(Status::Full)
}

/// The answer to a commit that names a partition which no global transaction writes: nobody could ever tell
/// it, and its manager would keep everything for it (PR-292). One that the controllers have not told of yet
/// is asked for again.
fn refuses_partitions(view: &View, partitions: impl Iterator<Item = PartitionId>) -> Option<Status> {
    let mut database = None;
    for id in partitions {
        match view.partition(id) {
            Some(record) if !record.is_global() => {
                return Some(Status::Bad(format!("partition {id} is none that global transactions write")));
            }
            Some(record) if *database.get_or_insert(record.table) != record.table => {
                return Some(Status::Bad("a transaction writes in one database".into()));
            }
            Some(_) => {}
            None if view.has_given_out(id) => {
                return Some(Status::NotFound(format!("partition {id} is not there any more")));
            }
            None => return Some(Status::NotYet(format!("partition {id} is not known here"))),
        }
    }
    None
}

/// The answer to who says of a partition that it was dropped, which this node has not heard of, so that two
/// must be of that opinion (PR-390).
fn refuses_to_forget(view: &View, partitions: &[PartitionId]) -> Option<Status> {
    let there = |id: &&PartitionId| view.partition(**id).is_some() || !view.has_given_out(**id);
    let id = partitions.iter().find(there)?;
    Some(Status::NotYet(format!("partition {id} was not dropped, as far as is known here")))
}

/// The same for a member; none if its message is to be handled.
pub fn refuses_peer(host: &Host<SharedLeases>, storage: &Storage, message: &PeerMessage) -> Option<Refused> {
    let stage = match message {
        PeerMessage::StagePiece(piece) => {
            return no_room_left(host, storage, piece.partition).map(|_| Refused::Silently);
        }
        PeerMessage::StageLoad(stage) if host.has(stage.partition) => stage,
        _ => return None,
    };
    let why = no_room_for(host, storage, stage.partition, stage.load, &stage.files)?;
    let answer = StageAnswer {
        partition: stage.partition,
        epoch: stage.epoch,
        from: host.me(),
        number: stage.number,
        load: stage.load,
        staging: Staging::Refused(why),
    };
    Some(Refused::Answered(stage.from, answer))
}

fn no_room_left(host: &Host<SharedLeases>, storage: &Storage, id: PartitionId) -> Option<String> {
    let place = storage.without_room(id)?;
    let node = host.me().node.0;
    Some(format!("the disk of node {node} is full: free space in {place} for the load's files"))
}

/// Why a load cannot be staged here: its files and what other loads still bring do not fit, or there is no
/// room for anything.
fn no_room_for(
    host: &Host<SharedLeases>,
    storage: &Storage,
    id: PartitionId,
    load: LoadId,
    files: &[Component],
) -> Option<String> {
    let engine = host.replica(id)?.engine();
    let is_part = || engine.get(&load_key(load), ReadAt::Applied).is_ok_and(|row| row.is_some());
    if engine.staged(load).is_some() || is_part() {
        return None;
    }
    if let Some(why) = no_room_left(host, storage, id) {
        return Some(why);
    }
    if engine.loads().contains(&load) {
        return None;
    }
    let further = storage.further(id);
    let beside = host.replicas().filter(|replica| storage.further(replica.id()) == further);
    let promised = beside
        .map(|replica| replica.engine().staging().map_or(0, |staging| staging.to_stage()))
        .fold(0, u64::saturating_add);
    let bytes = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
    let room = storage.free_for_load(id).saturating_sub(promised);
    (bytes > room).then(|| {
        let node = host.me().node.0;
        format!(
            "node {node} has room for {room} bytes of files of loads in this partition, and these are {bytes}: free space, or \
             load less at a time"
        )
    })
}

//! Files of bulk loads come in beside the log, so what is kept free for that and for flushes (`log.reserve_bytes`) is kept from
//! them (F20): a load that does not fit is refused when it begins, here and by every member, and its pieces when there is less left
//! than that. What a catching-up replica is sent is not refused: it is what the node is for.

use super::Node;
use crate::watch::free_bytes;
use types::bulk::load_key;
use types::{Component, LoadId, PartitionId, ReadAt, Staging};
use wire::bulk::StageAnswer;
use wire::{Op, PeerMessage, Request, Status};

impl Node {
    /// The answer to a client whose load has no room here, where this node leads.
    pub(super) fn refuses_staging(&self, request: &Request) -> Option<Status> {
        let id = request.partition;
        let leads = self.view.partitions.get(&id).is_some_and(|record| record.primary == self.host.me());
        let why = match &request.op {
            _ if !leads => None,
            Op::Stage { load, files } => self.no_room_for(id, *load, files),
            Op::StagePiece { .. } => self.no_room_left(id),
            _ => None,
        };
        why.map(Status::Full)
    }

    /// The same for a member: true if that is the end of the message. A piece that is lost is asked for again, and then refused.
    pub(super) fn refuses_to_stage(&mut self, message: &PeerMessage) -> bool {
        let stage = match message {
            PeerMessage::StagePiece(piece) => return self.no_room_left(piece.partition).is_some(),
            PeerMessage::Stage(stage) if self.host.has(stage.partition) => stage,
            _ => return false,
        };
        let Some(why) = self.no_room_for(stage.partition, stage.load, &stage.files) else { return false };
        let told = StageAnswer {
            partition: stage.partition,
            epoch: stage.epoch,
            from: self.host.me(),
            number: stage.number,
            load: stage.load,
            staging: Staging::Refused(why),
        };
        self.send(stage.from, PeerMessage::StageAnswer(told));
        true
    }

    fn no_room_left(&self, id: PartitionId) -> Option<String> {
        let place = self.without_room(id)?;
        let node = self.host.me().node.0;
        Some(format!("the disk of node {node} is full: free space in {place} for the load's files"))
    }

    /// Why a load cannot be staged here: its files and what other loads still bring do not fit, or there is no room for anything.
    fn no_room_for(&self, id: PartitionId, load: LoadId, files: &[Component]) -> Option<String> {
        let engine = self.host.replica(id)?.engine();
        let is_part = || engine.get(&load_key(load), ReadAt::Applied).is_ok_and(|row| row.is_some());
        if engine.staged(load).is_some() || is_part() {
            return None;
        }
        if let Some(why) = self.no_room_left(id) {
            return Some(why);
        }
        if engine.loads().contains(&load) {
            return None;
        }
        let further = self.further(id);
        let beside = self.host.replicas().filter(|replica| self.further(replica.id()) == further);
        let promised = beside
            .map(|replica| replica.engine().staging().map_or(0, |staging| staging.to_stage()))
            .fold(0, u64::saturating_add);
        let bytes = files.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let free = if further.is_some() { self.free_for(id) } else { free_bytes(self.dir.root()) };
        let room = free.saturating_sub(self.config.log.reserve_bytes).saturating_sub(promised);
        (bytes > room).then(|| {
            let node = self.host.me().node.0;
            format!(
                "node {node} has room for {room} bytes of files of loads in this partition, and these are {bytes}: free space, or \
                 load less at a time"
            )
        })
    }
}

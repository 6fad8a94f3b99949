//! Replicas that have moved away are removed, once it is known that nothing is in them alone (R9).

use super::World;
use crate::node::{PartFiles, SnapshotFile};
use driver::moved::{Leave, next_step};
use test_engines::Parts;
use types::PartitionId;

impl World {
    /// Looks at a node's replicas; one that has had no place for long enough takes its leave, and is removed
    /// the next time.
    pub(super) fn leave_moved(&mut self, node: u32) {
        let now = self.now();
        let Some(process) = self.machine_mut(node).process.as_mut() else { return };
        let moved: Vec<PartitionId> = process
            .host
            .replicas()
            .filter(|replica| {
                let Some(record) = replica.record() else { return false };
                replica::has_moved(record, process.heard.table(record.table), process.member.node)
            })
            .map(|replica| replica.id())
            .collect();
        let told = !process.links.controllers().is_empty();
        for id in process.heard.without_place(if told { &moved } else { &[] }, now) {
            let Some(process) = &self.machine(node).process else { return };
            let writing = process.storage.held.holds(id) || process.logs.is_writing(id);
            match next_step(process.host.replica(id), writing) {
                Leave::Decommission => self.input(node, |host, now, out| host.decommission(now, id, out)),
                Leave::Remove => self.drop_replica(node, id),
                // All that the log has is open here.
                Leave::Make | Leave::Wait => {}
            }
        }
    }

    /// Removes a replica with its files, and has the log forget it. What of it waits for room in the log is
    /// forgotten with it.
    fn drop_replica(&mut self, node: u32, id: PartitionId) {
        let machine = self.machine_mut(node);
        let disk = machine.disk.clone();
        let Some(process) = machine.process.as_mut() else { return };
        drop(process.host.remove(id));
        process.heard.removed(id);
        process.watched.removed(id);
        process.logs.forget(id);
        self.trace.note(self.now(), format_args!("n{node} removes its replica of p{}", id.0));
        self.injected("replica-left");
        self.checks.storage.removed(types::NodeId(node), id);
        self.machine_mut(node).made.remove(&id);
        // What is in a directory that is lost is found when that comes back.
        let directory_of = self.machine(node).second.directory_of(id);
        self.machine_mut(node).second.leave(id);
        if let Some(directory_of) = directory_of {
            self.machines.files_mut().remove(super::lsm::place(node, directory_of, id));
        }
        let removed = directory_of.map_or(Ok(()), |directory_of| {
            let mut files = PartFiles::new(&disk, directory_of, id);
            files.names().iter().try_for_each(|name| files.remove(name))?;
            disk.remove(&SnapshotFile::name(directory_of, id))
        });
        if removed.is_err() {
            return self.end(node, super::machines::End::Crash);
        }
        self.submit_log(node);
        self.look_at(node);
    }
}

//! All machines of a world, and the real files under their engines.

use crate::lsm_files::LsmFiles;
use crate::node::{Machine, Process};

/// The machines, by node.
pub(super) struct Fleet {
    machines: Vec<Machine>,
    /// Dropped after the machines, whose engines use them.
    files: LsmFiles,
}

impl Fleet {
    /// These machines.
    ///
    /// # Panics
    ///
    /// If they are not those of the nodes 1, 2 and so on.
    pub fn new(machines: Vec<Machine>, files: LsmFiles) -> Fleet {
        assert!(machines.iter().zip(1..).all(|(machine, id)| machine.id == id), "machines are in order");
        Fleet { machines, files }
    }

    /// How many there are, those that come later included.
    pub fn len(&self) -> usize {
        self.machines.len()
    }

    /// The machine of a node.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn get(&self, node: u32) -> &Machine {
        &self.machines[node as usize - 1]
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, node: u32) -> &mut Machine {
        &mut self.machines[node as usize - 1]
    }

    /// Every machine, by node.
    pub fn iter(&self) -> impl Iterator<Item = &Machine> {
        self.machines.iter()
    }

    /// Every process that runs, by node.
    pub fn processes_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.machines.iter_mut().filter_map(|machine| machine.process.as_mut())
    }

    /// The files of LSM engines.
    pub fn files(&self) -> &LsmFiles {
        &self.files
    }

    /// The same, to be changed.
    pub fn files_mut(&mut self) -> &mut LsmFiles {
        &mut self.files
    }
}

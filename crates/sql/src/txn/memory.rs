//! Memory for what transactions write, and for rows that their statements collect: the sessions of a node
//! have so much together. Small ones have what they need in any case, so only large ones are refused.

use super::spill::{SpillSettings, Spilling};
use pg::Failure;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What large transactions of a node take together, beside what each has in any case.
pub const NODE_BYTES: usize = 1 << 30;

/// The memory of a node.
#[derive(Debug)]
pub struct NodeMemory {
    left: Mutex<usize>,
    spilling: Arc<Spilling>,
}

impl Default for NodeMemory {
    fn default() -> NodeMemory {
        NodeMemory::of(NODE_BYTES)
    }
}

impl NodeMemory {
    /// So many bytes.
    pub fn of(bytes: usize) -> NodeMemory {
        NodeMemory { left: Mutex::new(bytes), spilling: Arc::default() }
    }

    /// The same, where large transactions spill.
    pub fn spilling_to(self, settings: SpillSettings) -> NodeMemory {
        NodeMemory { spilling: Arc::new(Spilling::new(Some(settings))), ..self }
    }

    /// What large transactions have in files.
    pub fn spilling(&self) -> &Arc<Spilling> {
        &self.spilling
    }
}

/// What one transaction, or one statement of it, has of the memory. Dropped, it gives it back.
#[derive(Debug)]
pub struct Room {
    memory: Arc<NodeMemory>,
    /// So much it has in any case.
    free: usize,
    bytes: Mutex<usize>,
}

impl Room {
    /// Nothing yet, but what it has in any case.
    pub fn new(memory: &Arc<NodeMemory>, free: usize) -> Room {
        Room { memory: memory.clone(), free, bytes: Mutex::new(0) }
    }

    /// The memory of the node.
    pub fn memory(&self) -> &Arc<NodeMemory> {
        &self.memory
    }

    /// One that has as much as this one, beside it.
    pub fn another(&self) -> Result<Room, Failure> {
        let room = Room::new(&self.memory, self.free);
        let own = *locked(&self.bytes);
        room.hold(self.free + own)?;
        Ok(room)
    }

    /// Has this much from now on, more or less than before. The error: there is no more, and it has what it
    /// had.
    pub fn hold(&self, bytes: usize) -> Result<(), Failure> {
        let wanted = bytes.saturating_sub(self.free);
        let mut own = locked(&self.bytes);
        if wanted == *own {
            return Ok(());
        }
        let mut left = locked(&self.memory.left);
        let all = *left + *own;
        *left = all.checked_sub(wanted).ok_or_else(used_up)?;
        *own = wanted;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let own = *locked(&self.bytes);
        *locked(&self.memory.left) += own;
    }
}

fn locked(bytes: &Mutex<usize>) -> MutexGuard<'_, usize> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn used_up() -> Failure {
    let hint = "large transactions of this node have all that is for them: commit more often, or try again when others \
                have ended";
    Failure::new("53200", "out of memory").hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_have_is_bounded_and_given_back() {
        let memory = Arc::new(NodeMemory::of(100));
        let left = || *locked(&memory.left);
        let (one, two) = (Room::new(&memory, 10), Room::new(&memory, 10));
        one.hold(10).expect("free");
        assert_eq!(left(), 100);
        one.hold(90).expect("room");
        two.hold(30).expect("just as much");
        assert_eq!(left(), 0);
        assert_eq!(two.hold(31).map_err(|failure| failure.code), Err("53200"));
        two.hold(10).expect("what it has in any case");
        assert_eq!((two.hold(30), left()), (Ok(()), 0), "a refusal takes nothing away");
        drop(one);
        assert_eq!(left(), 80);
        two.hold(0).expect("less");
        assert_eq!(left(), 100);
    }
}

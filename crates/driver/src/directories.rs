//! Several directories for replicas' files: where a new replica goes, and what a failed write costs.

/// Directories whose files take about as much are told apart by how many replicas they have: in steps of so
/// many bytes.
pub const STEP_BYTES: u64 = 64 << 20;

/// A directory that can be used. `Id` names a further one; the data directory itself has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate<Id> {
    /// Which one it is; none: the data directory, beside the replica's description.
    pub id: Option<Id>,
    /// Bytes of the files in it.
    pub bytes: u64,
    /// Bytes that are free there.
    pub free: u64,
    /// Replicas with their files in it.
    pub replicas: usize,
}

/// Where a new replica goes: to the directory that has the least, of those that have `reserve` bytes of room;
/// the first of those that are alike. None: into the data directory.
pub fn choose<Id: Copy>(candidates: impl IntoIterator<Item = Candidate<Id>>, reserve: u64) -> Option<Id> {
    let order = |one: &Candidate<Id>| (one.free < reserve, one.bytes / STEP_BYTES, one.replicas);
    candidates.into_iter().min_by_key(order)?.id
}

/// What a write of a replica's files costs that has failed. What the disk did with the bytes is unknown, and
/// trying again would not tell (R10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedWrite<Id> {
    /// The directory is lost, with all replicas that have their files in it; the node goes on with the rest.
    LosesDirectory(Id),
    /// The node stops: its log lies there, too.
    StopsNode,
}

impl<Id> FailedWrite<Id> {
    /// Of files in this further directory; none: in the data directory.
    pub fn of(directory: Option<Id>) -> FailedWrite<Id> {
        directory.map_or(FailedWrite::StopsNode, FailedWrite::LosesDirectory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(id: Option<u8>, bytes: u64, free: u64, replicas: usize) -> Candidate<u8> {
        Candidate { id, bytes, free, replicas }
    }

    #[test]
    fn a_new_replica_goes_where_the_least_is_and_room_comes_first() {
        let chosen = |candidates: &[Candidate<u8>]| choose(candidates.iter().copied(), 100);
        assert_eq!(chosen(&[]), None);
        assert_eq!(
            chosen(&[one(None, 0, 900, 0), one(Some(1), 0, 900, 0)]),
            None,
            "the first of those alike"
        );
        assert_eq!(chosen(&[one(None, 0, 900, 2), one(Some(1), 0, 900, 1)]), Some(1));
        assert_eq!(chosen(&[one(None, STEP_BYTES, 900, 0), one(Some(1), 0, 900, 9)]), Some(1));
        assert_eq!(chosen(&[one(None, 5, 900, 0), one(Some(1), 0, 900, 9)]), None, "about as much");
        assert_eq!(chosen(&[one(None, 0, 99, 0), one(Some(1), STEP_BYTES, 100, 9)]), Some(1));
        assert_eq!(chosen(&[one(None, 0, 9, 1), one(Some(1), 0, 8, 0)]), Some(1), "none has room");
    }

    #[test]
    fn r10_a_failed_write_costs_its_directory_or_the_node() {
        assert_eq!(FailedWrite::of(Some(3)), FailedWrite::LosesDirectory(3));
        assert_eq!(FailedWrite::<u8>::of(None), FailedWrite::StopsNode);
    }
}

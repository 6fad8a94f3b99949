//! Layer 3, pure: what lies between the replicas' outputs and a machine, and is the same on every machine. A
//! real node drives it with files and threads, the simulator with a simulated disk.
//!
//! | module | what is decided |
//! | --- | --- |
//! | [`log_queue`] | in which order changes of logs are written, and what is held back while the log has no room (F20) |
//! | [`recovery`] | what a node that starts makes of what its log and its disks have of a replica |
//! | [`tail_file`] | which file a divergent tail is set aside in, and its bytes (R9) |
//! | [`held`] | what a partition asks for while its tail finds no room (F20) |
//! | [`admission`] | what is let in to a replica while there is no room (F20) |
//! | [`waiting`] | replicas that find no room, and when they are tried again (F20) |
//! | [`checkpoints`] | which engines are written to disk, and in which order |
//! | [`directories`] | which directory a new replica goes to, and what a failed write costs (R10) |
//! | [`kept`] | which records of the cluster a node keeps, what it tells of them when they are made anew, and whom it listens to (PR-107) |
//! | [`moved`] | when a replica that has no place any more takes its leave, and when it is removed |
//! | [`progress`] | whether heartbeats may vouch for what a node leads |

pub mod admission;
pub mod checkpoints;
pub mod directories;
pub mod held;
pub mod kept;
pub mod log_queue;
pub mod moved;
pub mod progress;
pub mod recovery;
pub mod tail_file;
pub mod waiting;

pub use checkpoints::CheckpointQueue;
pub use held::BlockedOutputs;
pub use kept::Kept;
pub use log_queue::LogQueue;
pub use moved::Moved;
pub use waiting::WaitingReplicas;

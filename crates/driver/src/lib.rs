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
//! | [`moved`] | when a replica that has no place any more takes its leave, and when it is removed |
//! | [`progress`] | whether heartbeats may vouch for what a node leads |

pub mod admission;
pub mod held;
pub mod log_queue;
pub mod moved;
pub mod progress;
pub mod recovery;
pub mod tail_file;

pub use held::HeldOutputs;
pub use log_queue::LogQueue;
pub use moved::Moved;

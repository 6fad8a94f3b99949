//! Layer 2: the node's write-ahead log.
//!
//! One [`Log`] per node holds the entries of all its partitions, so that one fsync covers them all (design
//! section 5). It is a synchronous struct with a single owner and without threads, over a file layer
//! ([`file::Files`]) that a simulator can replace. [`GroupCommit`] writes to it what waited together, and
//! [`Writer`] is the thread that a node wraps around that; [`Reader`] reads from any other thread.
//! [`MemoryLog`] is the same for tables with `log = memory`.
//!
//! Where to look: the bytes of a frame are in [`frame`], those of its records in `record.rs`; `open.rs` tells
//! a torn end from damage (F10); `replay.rs` says which partitions damage has hit; `segments.rs` recycles
//! files; `apart.rs` gives entries that keep a full log from being given back a file of their own.

mod apart;
pub mod cached;
mod error;
pub mod faulty;
pub mod file;
pub mod frame;
mod group;
mod group_wait;
mod index;
mod log;
mod memory;
mod open;
mod reader;
mod record;
mod recovered;
mod replay;
mod resolve;
mod scan;
mod segments;
mod volatile;
pub mod writer;

pub use apart::{ApartMade, ApartOrder};
pub use error::{LogError, is_full, is_unreadable};
pub use file::{File, Files, RealFiles};
pub use frame::LogOffset;
pub use group::{Appended, GroupCommit, Refused, Submission, Ticket};
pub use log::{Log, Options, Stats};
pub use memory::{MemoryLog, ReadLog};
pub use open::Owner;
pub use reader::{ReadError, Reader};
pub use record::TORN;
pub use recovered::{Damage, DamageKind, Recovered, RecoveredPartition};
pub use segments::{Spare, SpareOrder};
pub use volatile::VolatileFiles;
pub use wire::log::Record;
pub use writer::{SyncedBatch, Writer};

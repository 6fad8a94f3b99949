//! Connections: buffers that coalesce, frames in and out, doors to listen at, and the cuts that tests play.

pub mod conn;
pub mod faults;
pub mod listen;
pub mod outbox;
pub mod slab;

pub use conn::Conn;
pub use faults::{Cut, FaultInjection};
pub use outbox::Outbox;
pub use slab::{Slab, note_dirty, owner_of};

//! What tests of several crates need. No crate uses it but as a dev-dependency.

pub mod expected;
pub mod small_disk;
pub mod tools;

pub use small_disk::SmallDisk;
pub use tools::missing;

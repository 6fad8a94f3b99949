//! What tests of several crates need. No crate uses it but as a dev-dependency.

pub mod expected;
pub mod small_disk;

pub use small_disk::SmallDisk;

use std::fs::File;
use std::io::Write;

/// Names a file to which a line is added for each test that is skipped: what a test prints nobody sees as long
/// as it succeeds. `cargo xtask ci` shows them.
pub const SKIPPED: &str = "UNDERSTUDY_SKIPPED";
/// Set where no test may be skipped: one that would be fails.
pub const SKIP_NOTHING: &str = "UNDERSTUDY_SKIP_NOTHING";

/// A test cannot be run here, for want of something that it needs.
pub fn skipped(what: &str, why: &str) {
    let line = format!("skipped: {what}: {why}");
    assert!(std::env::var_os(SKIP_NOTHING).is_none(), "{line}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os(SKIPPED) {
        let list = File::options().create(true).append(true).open(path);
        list.and_then(|mut list| list.write_all(format!("{line}\n").as_bytes())).expect("notes it");
    }
}

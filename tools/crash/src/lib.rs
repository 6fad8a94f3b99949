//! A test tool: the LSM engine on every state that a power loss can leave of its files, and under system
//! calls that fail.
//!
//! `tests/crash.rs` starts itself again as a worker ([`worker`]), which works with an engine by one of five
//! scenarios ([`scenario`]): flush, merge, installation of received sets, bulk load, and a state that comes
//! row by row. The first process follows the system calls of the second with ptrace ([`follow`], [`calls`])
//! and records what it writes, syncs, renames, links, cuts and removes below one directory, and between these
//! steps what the worker says that it was told ([`record`], [`promise`]): where the engine is about to be,
//! and where it says that it is `persisted`. Then the states are made that a power loss could have left
//! ([`states`], [`image`]), and the engine is opened on each that is not like one before ([`known`],
//! [`check`]).
//!
//! Right is: it opens undamaged, at a position that it was about to have or the last one that it said was
//! persisted and never below that; it has the rows of that position and no others, those of sessions among
//! them, and their digest; every file has its checksum; a load that was staged still is; and it takes a
//! further entry, keeps it, and has it after another start.
//!
//! ```text
//! cargo test -p understudy-crash                      about a minute
//! UNDERSTUDY_CRASH_LONG=1 cargo test -p understudy-crash -- --nocapture
//! cargo xtask long crash                              the same, into docs/evidence.md
//! UNDERSTUDY_CRASH_PRINT=1                            prints every step that is recorded
//! UNDERSTUDY_CRASH_ONLY=EMFILE                        makes calls fail with this error only
//! ```
//!
//! It runs on Linux on x86_64. Where ptrace is not permitted, the tests say that they skip. A call that can
//! change files and that [`calls`] does not know ends the test.
//!
//! # What a power loss can leave
//!
//! Before each sync, rename and word of the worker: all changes that are not durable, none, each alone, all
//! but each, and ten arbitrary choices of them; before every other step the same without the arbitrary ones.
//! The last write is torn at 512 bytes, at 4 KiB, and at its last boundary of each. With
//! `UNDERSTUDY_CRASH_LONG` also each two, all but each two, and a hundred arbitrary choices.
//!
//! What is assumed of file systems, and what is not:
//!
//! - A sync of a file makes its content durable, and not its name. A sync of a directory makes the names in
//!   it durable, and not what the files contain. `fdatasync` is as good as `fsync`.
//! - Unsynced names of one directory may come in any order: this is more than ext4, XFS and Btrfs do, whose
//!   journals keep it.
//! - A rename is one step: nobody finds neither name, or both. It is durable when the directory is that it
//!   leads to.
//! - Unsynced writes to a file may come in any order; what was not written below one that was is zeros. What
//!   a torn write leaves is its beginning.
//! - What was written before a sync that failed is not made durable by a later one (F08).
//! - Nothing that is durable goes bad. Damage of that kind is what the engine's tests of checksums are for.
//! - Modes and times of files are not recorded.
//!
//! # Kills and failing calls
//!
//! A worker is killed before a sync, a rename or a removal, another one opens what it left and goes on, and
//! then the power is lost: what the second one was told must hold, although the first one's syncs are
//! missing.
//!
//! A call below the directory fails with ENOSPC, EIO, EMFILE or ENOMEM instead of being made. The engine may
//! answer with an error, do without (a merge that found no room comes again), or say that it is damaged; a
//! worker tries again what found no room, and opens the engine again after anything else. Its content must be
//! right at once and at the end, and what a power loss leaves soon after the call, too. What could only not
//! be made for now must not take the engine out of service.
//!
//! # What is found
//!
//! Each of these bugs is put into a recording ([`mutants`]) and must be found there:
//!
//! | bug | found as |
//! | --- | --- |
//! | a received file is not synced before it is installed | damage |
//! | the names of received files are not synced | damage |
//! | the order of a received set is not synced | damage |
//! | the directory of a received set is synced neither before it is renamed nor after | damage |
//! | the new content of CURRENT is not synced | damage |
//! | the engine's directory is not synced | damage |
//! | CURRENT is written over instead of replaced | damage |
//! | the old tree goes before CURRENT names the new one | damage |
//! | a flushed file is not synced | damage |
//! | the names of flushed files are not synced | damage |
//! | a tree's version is not synced | damage |
//! | the tree's directory is not synced | damage |
//! | a version goes before `current` names the next one | damage |
//! | `persisted` is told before the sync | a position below it |
//! | a staged file is not synced | a staged file that is cut |
//! | a load is told to be staged before the sync | a load that is gone |
//! | the links of a load's files are not synced before the version that names them | damage |
//!
//! Bugs in the engine's own code are another matter: a worker can be given an engine that lacks a rule. Those
//! that show in the files are found too (`docs/rules.md`, LE-01 to LE-12).
//!
//! In the engine it found PR-90 to PR-97 (`docs/rules.md` has the findings that can be planted; these are
//! held by this crate's tests).

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod calls;
pub mod check;
pub mod fault;
pub mod follow;
pub mod image;
pub mod known;
pub mod mutants;
pub mod promise;
pub mod record;
pub mod run;
pub mod scenario;
pub mod states;
pub mod worker;

pub use nix::errno::Errno;

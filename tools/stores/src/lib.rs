//! The store under a transaction manager, behind a trait ([`Store`]): what it must do, as a suite of cases
//! ([`check`]), and one made for tests that assumes no order of commits ([`Unordered`]), with the algorithms
//! 1 to 4 of the document that global transactions come from ([`tracking`]), as printed and mended.
//!
//! | what | where |
//! | --- | --- |
//! | the trait | [`store`] |
//! | the cases | [`suite`] |
//! | servers with memory and disks, and regions that move between them | [`unordered`] |
//! | the same with a log for each region, which takes commits in order | [`ordered`] |
//! | queues FQ, FQ' and PQ, thresholds, the manager's log | [`tracking`] |
//! | all of it over a store of one's choice, a step at a time | [`world`] |
//!
//! The product's own partitions are a third store: they want commits in order, too, and say so
//! ([`Refused::Behind`]). Only tests depend on this crate.

pub mod ordered;
pub mod store;
pub mod suite;
pub mod tracking;
pub mod unordered;
pub mod world;

pub use ordered::Ordered;
pub use store::{Refused, Reopening, Sender, Servers, Store, Tenure};
pub use suite::{Subject, check};
pub use tracking::{Failed, Idle, Rules};
pub use unordered::Unordered;
pub use world::World;

//! Layer 3, pure: membership, placement, failover, switchover.
//!
//! A [`Controller`] does no IO and knows no clock. It is told what happened ([`Input`]) at a time
//! ([`types::Now`]) and answers with what to do ([`Output`]). It keeps all records with their revisions;
//! everything it decides is written by compare-and-set on those revisions, can be repeated, and is told to
//! the nodes only once the metastore has it (R1, F16).
//!
//! Any number of controllers may run. Each may seal, arbitrate and answer; the compare-and-set decides
//! between them. One of them plans ([`Input::Lead`]): admits missing copies, gives the lead back, tidies up.
//!
//! | what | where |
//! | --- | --- |
//! | what goes in and out | [`api`], [`txn`], [`settings`] |
//! | the cluster map and its keys | `records`, [`keys`] |
//! | who is heard, who misses whom | `failure_detector` |
//! | transactions under way and unknown outcomes | `ledger` |
//! | a node that registers | `register` |
//! | a primary's proposal, and who wins an arbitration | `propose`, `arbitration` |
//! | whether to seal, whom to promote, what to write | `failover_decision`, `candidate`, `seal` |
//! | where copies are wanted | [`placement`] |
//! | which copies move when nodes join and leave | [`moves`] |
//! | what a failure would do, on paper | [`forecast`] |
//! | the planner | `planner` |
//! | operators | `admin` |
//! | the records, made anew from what nodes keep | [`rebuild`] |

mod admin;
pub mod api;
mod arbitration;
mod candidate;
mod controller;
mod failover_decision;
mod failure_detector;
pub mod forecast;
pub mod keys;
mod ledger;
pub mod moves;
pub mod placement;
mod planner;
mod propose;
pub mod rebuild;
mod records;
mod register;
mod report;
pub mod resize;
mod seal;
pub mod settings;
pub mod txn;

pub use api::{ConnId, Input, Output, Tag};
pub use controller::{Controller, Identity};
pub use keys::Key;
pub use settings::Settings;
pub use txn::{Change, Entry, Txn, TxnError, TxnOutcome};

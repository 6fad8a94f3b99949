//! The cluster as people look at it: made from the records and from what nodes report.
//!
//! Commands print it, the nodes' web page shows it, SQL's system views have it as rows. Safety never rests on
//! it.

mod back_offs;
pub mod failovers;
mod lacking;
pub mod overview;
mod remarks;
pub mod replay;
pub mod survive;
pub mod transactions;
mod words;

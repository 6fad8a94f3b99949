//! Peers: their servers, started and stopped by us, and their protocols.

pub mod pg;
pub mod postgres;
pub mod redis;
pub mod resp;
mod server;
pub mod session;

pub use postgres::{Postgres, Servers};
pub use redis::Redis;

//! Peers: their servers, started and stopped by us, and their protocols.

pub mod pg;
pub mod postgres;
pub mod redis;
pub mod resp;
mod server;

pub use postgres::Postgres;
pub use redis::Redis;

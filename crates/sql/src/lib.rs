//! Floor 4: PostgreSQL's dialect over the native client.

pub mod bind;
pub mod catalog;
pub mod engine;
pub mod eval;
pub mod ty;

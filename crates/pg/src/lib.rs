//! Layer 2: PostgreSQL's wire protocol over a [`Service`], without any idea of what statements mean.
//!
//! | what | where |
//! | --- | --- |
//! | connections, logins, cancel requests | [`server`] |
//! | one conversation: simple and extended protocol, portals, error until Sync | `session` |
//! | messages; the only module that knows the crate `pgwire` | `wire` |
//! | the data of COPY | [`copy`] |
//! | values as text and in binary; arrays | [`text`], [`binary`], [`arrays`] |
//! | what stands behind the door | [`service`] |
//! | encryption | [`tls`] |
//!
//! What a client may send is bounded before it is kept: 10,000 bytes before its login, 64 MiB in one message
//! afterwards.

pub mod arrays;
pub mod binary;
pub mod copy;
mod copying;
pub mod failure;
pub mod kind;
pub mod server;
pub mod service;
mod session;
pub mod text;
pub mod tls;
mod values;
mod wire;

pub use failure::{Failure, Object, Reason, code};
pub use kind::Kind;
pub use server::{Rules, serve};
pub use service::{
    Cancel, Column, CopyOut, Login, Outcome, Overdue, Row, Rows, Service, Session, Shape, Transaction,
};
pub use tls::Tls;

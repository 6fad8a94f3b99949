//! A client of the SQL gateway: what `understudy sql` speaks to any node.
//!
//! | file | what |
//! | --- | --- |
//! | `place` | a URL: hosts, user, database, encryption |
//! | `stream` | the connection's bytes, encrypted or not |
//! | `session` | login, statements one after the other, cancelling |
//! | `split` | where a statement ends |

mod place;
mod session;
mod split;
mod stream;

pub use place::{Encryption, Place};
pub use session::{Column, Complaint, Event, Fault, Gateway, Transaction};
pub use split::{End, end};

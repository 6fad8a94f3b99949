//! A client of the SQL door: what `understudy sql` speaks to any node.
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
pub use session::{Column, Complaint, Door, Event, Fault, Transaction};
pub use split::{End, end};

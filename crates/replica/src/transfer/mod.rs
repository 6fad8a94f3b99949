//! The state itself on its way to a member, by rows or by files.
//!
//! | file | what |
//! | --- | --- |
//! | `flush` | who writes the engine to disk |
//! | `copy` | the state itself, for a log that is too old, by rows |
//! | `offer`, `receive` | the same by files: the primary's side, the member's |
//! | `failback` | how a replica that was away comes back into the set |

pub(crate) mod copy;
pub(crate) mod failback;
pub(crate) mod flush;
pub(crate) mod offer;
pub(crate) mod receive;

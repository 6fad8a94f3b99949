//! What a primary does in its term.
//!
//! | file | what |
//! | --- | --- |
//! | `promote` | R6: gather, fetch, mark, wait out, serve |
//! | `serve` | clients' requests, sessions, replies |
//! | `expire` | replies and sessions that nobody waits for or uses |
//! | `lead` | log shipping, progress of members, `committed` |
//! | `progress` | what a primary knows of a member |
//! | `align` | where a member's log agrees |
//! | `change` | proposals: evictions, joins, hand-overs, policies |

pub(crate) mod align;
pub(crate) mod change;
pub(crate) mod expire;
pub(crate) mod lead;
pub(crate) mod progress;
pub(crate) mod promote;
pub(crate) mod serve;

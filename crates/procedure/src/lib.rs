//! Layer 2, pure: procedures of a database. A procedure is a program that runs where the rows are, reads what
//! has been executed and says what is to be written. It has no clock, no randomness, no files and no floats:
//! what it does follows from its arguments, from what it is [`Given`] and from the rows. So the same call
//! gives the same everywhere.
//!
//! | file | what |
//! | --- | --- |
//! | `prepared` | a procedure as its catalog row defines it, checked against the tables: [`Runtime`], [`Prepared`] |
//! | `running` | a call under way, in slices: [`Running`] |
//! | `work` | what a call has written, read and given so far, and the limits of that |
//! | `shape` | tables as a procedure sees them |
//! | `limits` | [`Limits`] |
//! | `rows` | where rows come from: [`Rows`], [`Look`] |
//! | `convert` | values from programs as values of columns |
//! | `wasm` | programs in WebAssembly, and what they may import |
//! | `builtin` | programs that are compiled in: [`Builtin`] |
//!
//! Nothing here writes. A call that ended gives its [`Effects`]; a call that failed gives nothing else than
//! why. Nothing here waits either: a call that needs rows says which ([`Step::Look`]), and goes on when it is
//! given them.

mod builtin;
mod convert;
mod limits;
mod prepared;
mod rows;
mod running;
mod shape;
mod wasm;
mod work;

pub use builtin::{Builtin, Tables};
pub use limits::Limits;
pub use prepared::{Given, Prepared, Runtime};
pub use rows::{Found, Look, Rows};
pub use running::{Progress, Running, Step};
pub use shape::Shape;
pub use work::Effects;

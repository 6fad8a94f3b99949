//! Layer 3: [`PartsEngine`], a small engine that ships files and stages loads, for simulators and tests. No
//! node runs it.

mod parts;

pub use parts::{Parts, PartsEngine, load_files};

//! What tables can do beside keeping rows.
//!
//! | file | what |
//! | --- | --- |
//! | `job` | records of jobs, and what a job has done |
//! | `aggregate` | counts and digests, in slices |
//! | `index` | secondary indexes: maintained, built, read |
//! | `pause` | `committed` held back for a moment |
//! | `scrub` | a replica's own files, read back |
//! | `bulk` | bulk loads: staged, entered, attached |

pub(crate) mod aggregate;
pub(crate) mod bulk;
pub(crate) mod index;
pub(crate) mod job;
pub(crate) mod pause;
pub(crate) mod scrub;

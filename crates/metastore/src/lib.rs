//! Layer 2: the cluster's configuration.
//!
//! Everything that must be agreed on is a small record under a key, and changes only by compare-and-set
//! ([`Metastore`]). There are two implementations. [`Embedded`] keeps the records in one fsynced file, for a
//! cluster with a single controller. [`Etcd`] uses an etcd cluster through its HTTP/JSON gateway, for
//! several. Nothing else differs between them (design section 8).
//!
//! There is no plain read. What is read is read by a transaction, because a read may be stale and safety must
//! not rest on one (F17). A transaction whose answer is missing has an unknown outcome
//! ([`MetaError::Unknown`]); it is learnt by repeating it, which the comparison of revisions makes harmless.

pub mod base64;
pub mod embedded;
pub mod etcd;
pub mod history;
pub mod table;
pub mod txn;

pub use embedded::{Embedded, FileStore, Store};
pub use etcd::{Election, Etcd, EtcdConfig};
pub use txn::{Changes, MetaError, Metastore, RecordsSnapshot};
pub use types::txn::{Change, Compare, Entry, Reading, Txn, TxnOutcome};

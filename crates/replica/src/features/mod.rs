//! What tables can do beside keeping rows: each a part of its own, all of them held by [`Features`].
//!
//! | file | what |
//! | --- | --- |
//! | `catalog` | tables of a database, and writes to several of them |
//! | `constraint` | what a write of a database must keep |
//! | `tend` | what is done for its tables beside requests |
//! | `procedure` | calls of procedures: the one that is under way, and who waits behind it |
//! | `commits` | the transaction manager's books |
//! | `call_maker` | the same at a replica that is sent calls, and not what they came to |
//! | `job` | records of jobs, and what a job has done |
//! | `aggregate` | counts and digests, in slices |
//! | `index` | secondary indexes: maintained, built, read |
//! | `pause` | `committed` held back for a moment |
//! | `scrub` | a replica's own files, read back |
//! | `bulk` | bulk loads: what is staged, what entries name, who waits |
//!
//! Jobs use indexes, the catalog uses constraints, calls use the catalog, what is done beside requests
//! uses both, and nothing else here uses another part. Aggregate scans are held by `Readers`, loads by
//! `Data`. Requests about them are done in `serve`.

pub(crate) mod aggregate;
pub(crate) mod bulk;
pub(crate) mod call_maker;
pub(crate) mod catalog;
pub(crate) mod commits;
pub(crate) mod constraint;
pub(crate) mod index;
pub(crate) mod job;
pub(crate) mod pause;
pub(crate) mod procedure;
pub(crate) mod scrub;
#[cfg(test)]
mod spread_tests;
pub(crate) mod tend;

use types::{Engine, EngineError, Lsn, Mutation, PartitionRecord, Term};

/// The parts of a replica that serve its table's features.
#[derive(Default)]
pub(crate) struct Features {
    /// What is known of the indexes, for a leader.
    pub indexes: index::KnownIndexes,
    /// What is known of a database's tables, for a leader.
    pub catalog: tend::KnownCatalog,
    /// What is known of global transactions, for the leader of the manager's partition.
    pub commits: commits::KnownCommits,
    /// Calls of procedures.
    pub calls: procedure::Calls,
    /// Its own files are read back, or were.
    pub scrub: scrub::Scrubber,
}

impl Features {
    /// True if a leader looks up what rows were before they are written, for indexes or constraints.
    pub fn look_up_what_changes(
        &mut self,
        engine: &dyn Engine,
        (record, leading): (&PartitionRecord, Option<Term>),
    ) -> Result<bool, EngineError> {
        match leading.filter(|_| record.is_of_database()) {
            Some(term) => self.catalog.are_looked_up(engine, term),
            None => self.indexes.are_maintained(engine, leading),
        }
    }

    /// Reads what a leader has to look up for constraints when it writes these rows.
    pub fn look_ahead(
        &mut self,
        engine: &dyn Engine,
        (record, leading): (&PartitionRecord, Option<Term>),
        mutations: &[Mutation],
    ) -> Result<(), EngineError> {
        match leading.filter(|_| record.is_of_database()) {
            Some(term) => self.catalog.look_ahead(engine, term, mutations),
            None => Ok(()),
        }
    }

    /// What must hold of them in a log that ends at `end`. `leading` is the term that the replica leads in.
    pub fn validate(&self, leading: Option<Term>, end: Lsn) -> Result<(), String> {
        self.indexes.validate(leading, end)?;
        self.catalog.validate(leading, end)?;
        self.calls.validate()?;
        self.scrub.validate()
    }
}

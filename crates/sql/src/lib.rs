//! Layer 4: PostgreSQL's dialect over the native client.
//!
//! | what | where |
//! | --- | --- |
//! | a session: transactions, parameters, carrying out plans | [`session`] |
//! | from a text to a plan, and the cache of plans; what a plan is to do | [`plan`], `plain`; [`work`] |
//! | names, types, and the translation into the evaluating engine's language | [`bind`] |
//! | functions and operators on values | [`eval`] |
//! | the evaluating engine: SQLite over the cluster's tables | [`engine`], [`evaluate`] |
//! | COPY | [`copy`] |
//! | PREPARE, EXECUTE and cursors in SQL | [`cursors`] |
//! | procedures: made, called at primaries, and within transactions | [`procedures`], [`calls`] |
//! | sequences, views, schemas | [`numbering`], [`views`], [`schemas`] |
//! | columns with bounds and defaults, rows that fit them, numbers for rows | [`columns`], [`rows`], [`sequences`] |
//! | constraints of a database's tables: changed, kept, what follows from them | [`constraints`], [`constraining`], [`follow`], [`early`] |
//! | ALTER TABLE, outside of databases and in them; a table's rows under another key | [`alter`], [`altering`], [`ahead`], [`refill`] |
//! | ALTER TABLE ... SET (partitions) and SET (database): a table moves | [`moving`], [`moved`], [`held`] |
//! | TRUNCATE; what others lose with what is dropped | [`truncate`], [`losses`] |
//! | VACUUM, ANALYZE, LOCK TABLE | [`upkeep`] |
//! | roles, owners and privileges | [`roles`] |
//! | SET CONSTRAINTS | [`deferring`] |
//! | tables from queries, and like others | [`table_as`], [`table_like`] |
//! | reads of one row, counts, scans; tables; databases, of several partitions, too | [`read`], [`ddl`], [`database`], [`alter_database`], [`occupied`], [`several`], [`resume`] |
//! | transactions | [`txn`] |
//! | statements that write, by several parts too, what they do to rows, and its sending | [`statements`], [`parts`], [`merge`], [`edits`], [`write`] |
//! | statements and transactions of more rows than one write has; writes of replicated tables | [`large`]; [`replicated`], [`refill::whole`] |
//! | where each part of a query runs | [`explain`] |
//! | system tables: the cluster's views and PostgreSQL's catalogs | [`system`] |
//! | the task that drives the native client | [`driver`] |
//!
//! A statement that is not understood is refused with SQLSTATE 0A000 and a hint; none is answered differently
//! from PostgreSQL without `docs/sql.md` saying so.

pub mod ahead;
pub mod alter;
pub mod alter_database;
pub mod altering;
pub mod bind;
pub mod calls;
pub mod catalog;
pub mod columns;
pub mod constraining;
pub mod constraints;
pub mod copy;
pub mod cursors;
pub mod database;
pub mod ddl;
pub mod deferring;
pub mod driver;
pub mod early;
pub mod edits;
pub mod engine;
pub mod eval;
pub mod evaluate;
pub mod explain;
pub mod fault;
pub mod follow;
pub mod held;
pub mod indexes;
pub mod large;
pub mod late;
pub mod losses;
pub mod merge;
pub mod moved;
pub mod moving;
pub mod numbering;
pub mod occupied;
mod parse;
pub mod parts;
mod plain;
pub mod plan;
pub mod procedures;
mod qualify;
pub mod range;
pub mod read;
pub mod refill;
pub mod replicated;
pub mod resume;
pub mod roles;
pub mod rows;
pub mod schemas;
pub mod search_path;
pub mod sequences;
pub mod session;
pub mod settings;
pub mod several;
pub mod statements;
pub mod system;
pub mod table_as;
pub mod table_like;
pub mod there;
pub mod truncate;
pub mod txn;
pub mod ty;
pub mod upkeep;
pub mod views;
pub mod work;
pub mod write;

pub use calls::Programs;
pub use session::{DATABASE, Sql, USER};

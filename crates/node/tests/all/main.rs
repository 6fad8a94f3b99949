//! Tests of nodes on clusters of this process, as one program: there is one to link, and tests of one file
//! run beside those of another.

mod common;

mod altered_tables;
mod altering_databases;
mod backlog;
mod cluster;
mod constraints;
mod database_sql;
mod databases;
mod directories;
mod disks;
mod etcd;
mod executors;
mod global;
mod global_references;
mod global_sql;
mod horizon;
mod large_transactions;
mod late_constraints;
mod listeners;
mod local;
mod moving;
mod moving_along;
mod procedures;
mod replicated;
mod rewriting;
mod room;
mod row_turns;
mod sequences;
mod shared;
mod shared_connections;
mod shipped_calls;
mod shipping;
mod spread;
mod store;
mod tails;
mod transactions;
mod turns;
mod web;

//! Writes records that were made anew where a controller finds them (PR-107): into an empty data
//! directory, or into etcd below an empty prefix.

use crate::config::{Config, MetastoreConfig};
use crate::datadir::{self, files};
use crate::failure::Failure;
use controller::Key;
use controller::rebuild::Rebuilt;
use metastore::embedded::journal;
use metastore::table::Table;
use metastore::{Etcd, EtcdConfig, FileStore, MetaError, Metastore, RecordsSnapshot, Store};
use types::ClusterId;
use types::txn::{Entry, Txn};

/// Checks that records may be written there. Changes nothing.
pub fn check(config: &Config) -> Result<(), Failure> {
    match &config.controller.metastore {
        MetastoreConfig::Embedded => datadir::is_free(&config.controller.data_dir),
        MetastoreConfig::Etcd { endpoints, prefix } => {
            leftovers(&mut etcd(endpoints, prefix)?, prefix).map(drop)
        }
    }
}

/// Writes them. What a controller must not find half of is written last.
pub fn write(config: &Config, cluster: ClusterId, rebuilt: &Rebuilt) -> Result<(), Failure> {
    match &config.controller.metastore {
        MetastoreConfig::Embedded => {
            let root = &config.controller.data_dir;
            datadir::found(root, cluster, |place| embedded(place, rebuilt))
        }
        MetastoreConfig::Etcd { endpoints, prefix } => {
            into_etcd(&mut etcd(endpoints, prefix)?, prefix, rebuilt)
        }
    }
}

/// The journal of the embedded metastore.
fn embedded(root: &std::path::Path, rebuilt: &Rebuilt) -> std::io::Result<()> {
    let place = root.join("metastore");
    files::ensure_dir(&place)?;
    let entry = |(key, value): &(Key, Vec<u8>)| Entry {
        key: key.to_string(),
        revision: rebuilt.revision,
        value: value.clone(),
    };
    let entries = rebuilt.entries.iter().map(entry).collect();
    let table = Table::restore(RecordsSnapshot { revision: rebuilt.revision, entries });
    FileStore::open(place.join("journal"))?.replace(&journal::fresh(&table))
}

fn etcd(endpoints: &[String], prefix: &str) -> Result<Etcd, Failure> {
    let config = EtcdConfig::new(endpoints.to_vec(), prefix.trim_end_matches('/'));
    Etcd::new(config).map_err(|error| failed(&error))
}

fn failed(error: &MetaError) -> Failure {
    Failure::new(crate::failure::status::UNREACHABLE, format!("the metastore: {error}"))
}

/// Keys of an attempt that did not come to its end. Refused, if there is a cluster.
fn leftovers(etcd: &mut Etcd, prefix: &str) -> Result<Vec<String>, Failure> {
    let there = etcd.range("").map_err(|error| failed(&error))?;
    let keys: Vec<String> = there.entries.into_iter().map(|entry| entry.key).collect();
    match keys.iter().any(|key| *key == Key::Cluster.to_string()) {
        true => Err(Failure::refused(format!(
            "etcd has a cluster below {prefix}: choose another controller.prefix"
        ))),
        false => Ok(keys),
    }
}

/// The cluster's record comes last: without it there is no cluster.
fn into_etcd(etcd: &mut Etcd, prefix: &str, rebuilt: &Rebuilt) -> Result<(), Failure> {
    for keys in leftovers(etcd, prefix)?.chunks(Txn::MAX_KEYS) {
        put(etcd, prefix, Txn { deletes: keys.to_vec(), ..Txn::default() })?;
    }
    let (cluster, others): (Vec<_>, Vec<_>) =
        rebuilt.entries.iter().partition(|(key, _)| *key == Key::Cluster);
    let texts = |entries: &[&(Key, Vec<u8>)]| {
        entries.iter().map(|(key, value)| (key.to_string(), value.clone())).collect::<Vec<_>>()
    };
    for entries in others.chunks(Txn::MAX_KEYS) {
        put(etcd, prefix, Txn { puts: texts(entries), ..Txn::default() })?;
    }
    let last = Txn { puts: texts(&cluster), ..Txn::default() };
    put(etcd, prefix, last.compare(Key::Cluster, 0))
}

fn put(etcd: &mut Etcd, prefix: &str, txn: Txn) -> Result<(), Failure> {
    match etcd.txn(txn) {
        Ok(outcome) if outcome.succeeded => Ok(()),
        Ok(_) => Err(Failure::refused(format!("somebody else writes to etcd below {prefix}"))),
        Err(error) => Err(failed(&error)),
    }
}

//! A metastore in an etcd cluster (v3.4 or later), through its HTTP/JSON gateway: no protocol compiler, no
//! async runtime.
//!
//! Every cluster of ours has a prefix of its own. Below it, `k/` holds the records, `leader` says who plans
//! ([`Election`]), and `fence` is written by whatever must not be answered from one member's memory: a
//! transaction of etcd that only reads can be stale, one that may write is ordered with all others.

mod election;
mod gateway;
mod watch;

pub use election::Election;

use crate::base64;
use crate::history::History;
use crate::txn::{Changes, MetaError, Metastore, RecordsSnapshot};
use gateway::{CallError, Gateway};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::txn::{Change, Entry, Reading, Txn, TxnOutcome};
use watch::{News, Watch};

/// Where an etcd cluster is, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// Its members' client addresses: `http://host:port`; [`EtcdConfig::new`] adds the scheme where it is
    /// missing. The next one is tried when one does not answer.
    pub endpoints: Vec<String>,
    /// The prefix of this cluster's keys, without a slash at its end: `/understudy/c17`.
    pub prefix: String,
    /// How long one request may take before its outcome is unknown. 2 s.
    pub request: Duration,
    /// How long connecting to one member may take before the next one is tried. 300 ms.
    pub connect: Duration,
}

impl EtcdConfig {
    /// With the default times.
    pub fn new(endpoints: Vec<String>, prefix: impl Into<String>) -> EtcdConfig {
        let (request, connect) = (Duration::from_millis(2000), Duration::from_millis(300));
        let whole = |endpoint: String| match endpoint.contains("://") {
            true => endpoint,
            false => format!("http://{endpoint}"),
        };
        let endpoints = endpoints.into_iter().map(whole).collect();
        EtcdConfig { endpoints, prefix: prefix.into(), request, connect }
    }

    fn records(&self) -> String {
        format!("{}/k/", self.prefix)
    }
}

/// The metastore of a cluster with several controllers.
#[derive(Debug)]
pub struct Etcd {
    config: EtcdConfig,
    gateway: Gateway,
    /// The changes as they arrive, once somebody asked for them.
    watch: Option<(Watch, History)>,
}

impl Etcd {
    /// Nothing is sent before the first request. The error is a sentence.
    pub fn new(config: EtcdConfig) -> Result<Etcd, MetaError> {
        let gateway = Gateway::new(&config)?;
        Ok(Etcd { config, gateway, watch: None })
    }

    /// Which of the endpoints answered last.
    pub fn endpoint(&self) -> &str {
        self.gateway.endpoint()
    }

    fn key(&self, key: &str) -> String {
        base64::encode(format!("{}{key}", self.config.records()).as_bytes())
    }

    fn plain(&self, text: &Value) -> Result<String, MetaError> {
        let bytes = base64::decode(text.as_str().unwrap_or_default());
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let key = text.as_deref().and_then(|text| text.strip_prefix(&self.config.records()));
        key.map(String::from)
            .ok_or_else(|| MetaError::Damaged("etcd answered with a key that was not asked for".into()))
    }

    fn body(&self, txn: &Txn) -> Value {
        let compare = |compare: &types::txn::Compare| {
            json!({ "key": self.key(&compare.key), "target": "MOD", "result": "EQUAL",
                    "mod_revision": compare.revision.to_string() })
        };
        let put = |(key, value): &(String, Vec<u8>)| json!({ "request_put": { "key": self.key(key), "value": base64::encode(value) } });
        let delete = |key: &String| json!({ "request_delete_range": { "key": self.key(key) } });
        let read = |key: &String| json!({ "request_range": { "key": self.key(key) } });
        let written: BTreeSet<&String> = txn.puts.iter().map(|(key, _)| key).chain(&txn.deletes).collect();
        let keys = txn.keys();
        let mut success: Vec<Value> =
            txn.puts.iter().map(put).chain(txn.deletes.iter().map(delete)).collect();
        if !txn.writes() {
            success.push(self.fence());
        }
        // What is written needs no reading: it is as it was written, at the transaction's revision.
        success.extend(keys.iter().filter(|key| !written.contains(key)).map(read));
        json!({
            "compare": txn.compares.iter().map(compare).collect::<Vec<_>>(),
            "success": success,
            "failure": keys.iter().map(read).collect::<Vec<_>>(),
        })
    }

    fn fence(&self) -> Value {
        let key = base64::encode(format!("{}/fence", self.config.prefix).as_bytes());
        json!({ "request_put": { "key": key, "value": "" } })
    }

    fn outcome(&self, txn: &Txn, answer: &Value) -> Result<TxnOutcome, MetaError> {
        let succeeded = answer["succeeded"].as_bool().unwrap_or(false);
        let revision = number(&answer["header"]["revision"])?;
        let mut found: BTreeMap<String, (u64, Vec<u8>)> = self.pairs(answer)?;
        if succeeded {
            found.extend(txn.puts.iter().map(|(key, value)| (key.clone(), (revision, value.clone()))));
        }
        let current: Vec<Reading> =
            txn.keys().into_iter().map(|key| (key.clone(), found.remove(&key))).collect();
        Ok(TxnOutcome { succeeded, revision, current })
    }

    /// Every key and value in the ranges of an answer.
    fn pairs(&self, answer: &Value) -> Result<BTreeMap<String, (u64, Vec<u8>)>, MetaError> {
        let responses = answer["responses"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ranges = responses.iter().filter_map(|response| response["response_range"]["kvs"].as_array());
        let pair = |kv: &Value| Ok((self.plain(&kv["key"])?, (number(&kv["mod_revision"])?, value_of(kv)?)));
        ranges.flatten().map(pair).collect()
    }

    /// Takes in what the watch has brought. None: its history has a gap.
    fn follow(&mut self) -> Option<()> {
        let records = self.config.records();
        let (watch, history) = self.watch.as_mut()?;
        for news in watch.arrived() {
            let News::Events(events) = news else { return None };
            let change = |event: watch::Event| {
                let key = String::from_utf8(event.key).ok()?;
                let key = key.strip_prefix(&records)?.to_string();
                Some(Change { key, revision: event.revision, value: event.value })
            };
            let changes: Vec<Change> = events.into_iter().filter_map(change).collect();
            // A watch that was opened again may repeat its first events.
            let new: Vec<Change> =
                changes.into_iter().filter(|change| change.revision > history.revision()).collect();
            if let Some(last) = new.last().map(|change| change.revision) {
                history.push(last, new);
            }
        }
        Some(())
    }
}

impl Metastore for Etcd {
    fn txn(&mut self, txn: Txn) -> Result<TxnOutcome, MetaError> {
        txn.validate().map_err(MetaError::Invalid)?;
        let body = self.body(&txn);
        let answer = self.gateway.call("/v3/kv/txn", &body).map_err(|error| match error {
            CallError::Refused(why) => MetaError::Invalid(why),
            CallError::NotSent(why) | CallError::Unknown(why) => MetaError::Unknown(why),
        })?;
        // An answer that makes no sense says nothing about what was done.
        self.outcome(&txn, &answer).map_err(|error| MetaError::Unknown(error.to_string()))
    }

    fn range(&mut self, prefix: &str) -> Result<RecordsSnapshot, MetaError> {
        let from = format!("{}{prefix}", self.config.records());
        let range = json!({ "request_range": {
            "key": base64::encode(from.as_bytes()),
            "range_end": base64::encode(&gateway::prefix_end(from.as_bytes())),
        } });
        let body = json!({ "success": [self.fence(), range] });
        let answer = self.gateway.call("/v3/kv/txn", &body);
        let answer = answer.map_err(|error| MetaError::Unavailable(error.to_string()))?;
        let pairs = self.pairs(&answer)?;
        let entries =
            pairs.into_iter().map(|(key, (revision, value))| Entry { key, revision, value }).collect();
        Ok(RecordsSnapshot { revision: number(&answer["header"]["revision"])?, entries })
    }

    fn changes_since(&mut self, revision: u64) -> Result<Changes, MetaError> {
        if self.watch.is_none() {
            let watch = Watch::start(&self.config, revision + 1)?;
            self.watch = Some((watch, History::starting_at(revision)));
        }
        if self.follow().is_none() {
            self.watch = None;
            return Ok(Changes::Reload);
        }
        match &self.watch {
            // Whoever has read beyond what the watch has brought lacks nothing up to there.
            Some((_, history)) if revision > history.revision() => {
                Ok(Changes::Since { revision, changes: vec![] })
            }
            Some((_, history)) => Ok(history.since(revision)),
            None => Ok(Changes::Reload),
        }
    }
}

/// A 64-bit number, which the gateway writes as text.
fn number(text: &Value) -> Result<u64, MetaError> {
    let number = text.as_str().and_then(|text| text.parse().ok()).or(text.as_u64());
    number.ok_or_else(|| MetaError::Damaged(format!("etcd answered {text} where a number was due")))
}

/// A key's bytes; the gateway leaves out an empty value.
fn value_of(kv: &Value) -> Result<Vec<u8>, MetaError> {
    let value = base64::decode(kv["value"].as_str().unwrap_or_default());
    value.ok_or_else(|| MetaError::Damaged("etcd answered a value that is not base64".into()))
}

//! Who plans: one controller, under a lease of etcd.
//!
//! Only planning rests on it, never safety: a lease may run out unnoticed while its holder sleeps, and frees
//! itself late (PR-10, PR-66). Failovers need no leader.

use super::gateway::{CallError, Gateway};
use super::{EtcdConfig, number};
use crate::base64;
use crate::txn::MetaError;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// One candidate. Give it a thread or a moment of its own: its calls block.
#[derive(Debug)]
pub struct Election {
    gateway: Gateway,
    key: String,
    me: String,
    ttl: Duration,
    lease: Option<Lease>,
    /// True if the key is held under the lease.
    holds: bool,
}

#[derive(Debug)]
struct Lease {
    id: String,
    /// By this machine's clock, counted from when the last renewal was sent.
    until: Instant,
}

impl Election {
    /// A candidate. `me` must differ in every life of every controller. `ttl` is in whole seconds, at least
    /// one.
    pub fn new(config: &EtcdConfig, me: impl Into<String>, ttl: Duration) -> Result<Election, MetaError> {
        let key = base64::encode(format!("{}/leader", config.prefix).as_bytes());
        let ttl = Duration::from_secs(ttl.as_secs().max(1));
        Ok(Election { gateway: Gateway::new(config)?, key, me: me.into(), ttl, lease: None, holds: false })
    }

    /// True if this candidate leads as far as it knows, without asking.
    pub fn leads(&self) -> bool {
        self.holds && self.lease.as_ref().is_some_and(|lease| Instant::now() < lease.until)
    }

    /// Renews the lease and, if nobody leads, stands for election. To be called every third of the lease's
    /// time. Returns whether this candidate leads.
    pub fn step(&mut self) -> Result<bool, MetaError> {
        if self.lease.is_some() {
            self.renew()?;
        }
        if self.lease.is_none() {
            self.grant()?;
        }
        if !self.holds {
            self.campaign()?;
        }
        Ok(self.leads())
    }

    /// Stops leading at once, so that another can.
    pub fn resign(&mut self) -> Result<(), MetaError> {
        self.holds = false;
        let Some(lease) = self.lease.take() else { return Ok(()) };
        match self.gateway.call("/v3/lease/revoke", &json!({ "ID": lease.id })) {
            // It had run out by itself.
            Ok(_) | Err(CallError::Refused(_)) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }

    fn grant(&mut self) -> Result<(), MetaError> {
        let sent = Instant::now();
        let answer = self.gateway.call("/v3/lease/grant", &json!({ "TTL": self.ttl.as_secs().to_string() }));
        let answer = answer.map_err(unavailable)?;
        let id = number(&answer["ID"])?.to_string();
        // etcd may grant another time than the one asked for; the shorter one counts.
        let granted = Duration::from_secs(number(&answer["TTL"])?);
        self.lease = Some(Lease { id, until: sent + granted.min(self.ttl) });
        self.holds = false;
        Ok(())
    }

    fn renew(&mut self) -> Result<(), MetaError> {
        let Some(lease) = &mut self.lease else { return Ok(()) };
        let sent = Instant::now();
        let answer =
            self.gateway.call("/v3/lease/keepalive", &json!({ "ID": lease.id })).map_err(unavailable)?;
        // A lease that is gone has no time left, which the gateway does not write at all.
        match number(&answer["result"]["TTL"]) {
            Ok(seconds) if seconds > 0 => lease.until = sent + self.ttl.min(Duration::from_secs(seconds)),
            _ => {
                self.lease = None;
                self.holds = false;
            }
        }
        Ok(())
    }

    fn campaign(&mut self) -> Result<(), MetaError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        let body = json!({
            "compare": [{ "key": self.key, "target": "MOD", "result": "EQUAL", "mod_revision": "0" }],
            "success": [{ "request_put": {
                "key": self.key, "value": base64::encode(self.me.as_bytes()), "lease": lease.id,
            } }],
            "failure": [{ "request_range": { "key": self.key } }],
        });
        let answer = self.gateway.call("/v3/kv/txn", &body).map_err(unavailable)?;
        // If an earlier attempt's answer was lost, the key is there, and is ours.
        let there = &answer["responses"][0]["response_range"]["kvs"][0];
        let ours = there["lease"] == Value::String(lease.id.clone());
        self.holds = answer["succeeded"].as_bool() == Some(true) || ours;
        Ok(())
    }
}

fn unavailable(error: CallError) -> MetaError {
    MetaError::Unavailable(error.to_string())
}

//! One HTTP request and its JSON answer, from whichever member of the etcd cluster can be reached.

use super::EtcdConfig;
use crate::txn::MetaError;
use serde_json::Value;
use std::io;
use std::time::Duration;
use ureq::{Agent, Timeout};

/// The largest answer that is read.
const MOST_BYTES: u64 = 256 << 20;

/// The codes with which etcd says that a request can never be done: an invalid argument, something that is
/// not there, a revision out of range. With any other one it may have been done, or still be.
const NEVER_DONE: [u64; 3] = [3, 5, 11];

/// A request that brought no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// No member could be connected to: nothing was sent.
    #[error("no member of etcd can be reached: {0}")]
    NotSent(String),
    /// Something was sent: it may have been done.
    #[error("etcd did not answer: {0}")]
    Unknown(String),
    /// etcd refuses such a request. Nothing was done.
    #[error("etcd refuses: {0}")]
    Refused(String),
}

/// The way to an etcd cluster.
#[derive(Debug)]
pub(super) struct Gateway {
    agent: Agent,
    endpoints: Vec<String>,
    /// The endpoint to ask next.
    current: usize,
}

impl Gateway {
    pub(super) fn new(config: &EtcdConfig) -> Result<Gateway, MetaError> {
        if config.endpoints.is_empty() {
            return Err(MetaError::Invalid("no endpoint of etcd is given".into()));
        }
        if let Some(other) = config.endpoints.iter().find(|endpoint| !endpoint.starts_with("http://")) {
            return Err(MetaError::Invalid(format!("'{other}' is not an endpoint: http://host:port")));
        }
        let agent = agent(config, Some(config.request), None);
        let endpoints =
            config.endpoints.iter().map(|endpoint| endpoint.trim_end_matches('/').to_string()).collect();
        Ok(Gateway { agent, endpoints, current: 0 })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoints[self.current]
    }

    /// Sends a request. Another member is tried only if nothing was sent to the one before: an unknown
    /// outcome is the caller's to resolve. Who did not answer is asked last from then on.
    pub(super) fn call(&mut self, path: &str, body: &Value) -> Result<Value, CallError> {
        let mut why = String::new();
        for _ in 0..self.endpoints.len() {
            match self.call_one(path, body) {
                Err(CallError::NotSent(reason)) => why = reason,
                Err(CallError::Unknown(reason)) => {
                    self.next();
                    return Err(CallError::Unknown(reason));
                }
                other => return other,
            }
            self.next();
        }
        Err(CallError::NotSent(why))
    }

    fn next(&mut self) {
        self.current = (self.current + 1) % self.endpoints.len();
    }

    fn call_one(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let url = format!("{}{path}", self.endpoint());
        let mut response = match self.agent.post(&url).send_json(body) {
            Ok(response) => response,
            Err(error) if never_sent(&error) => return Err(CallError::NotSent(format!("{url}: {error}"))),
            Err(error) => return Err(CallError::Unknown(format!("{url}: {error}"))),
        };
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(MOST_BYTES).read_to_string();
        match (status, text) {
            (200, Ok(text)) => {
                serde_json::from_str(&text).map_err(|error| CallError::Unknown(format!("{url}: {error}")))
            }
            (status, text) => {
                let text = text.unwrap_or_default();
                let answer: Value = serde_json::from_str(&text).unwrap_or_default();
                let why = answer["error"].as_str().unwrap_or(&text);
                let why = format!("{url}: status {status}: {why}");
                match answer["code"].as_u64() {
                    Some(code) if NEVER_DONE.contains(&code) => Err(CallError::Refused(why)),
                    _ => Err(CallError::Unknown(why)),
                }
            }
        }
    }
}

/// An agent with these limits. Idle connections are kept, as every request goes to the same few members.
pub(super) fn agent(config: &EtcdConfig, whole: Option<Duration>, per_read: Option<Duration>) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(whole)
        .timeout_per_read(per_read)
        .timeout_connect(Some(config.connect))
        .http_status_as_error(false)
        .no_delay(true)
        .proxy(None)
        .build();
    config.into()
}

/// True if the connection did not come about.
fn never_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => true,
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        _ => false,
    }
}

/// The first key beyond all that begin with `prefix`.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // etcd: everything from the beginning on.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(prefix_end(b"/a/k/"), b"/a/k0");
        assert_eq!(prefix_end(&[1, 255]), [2]);
        assert_eq!(prefix_end(&[255]), [0]);
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for endpoints in
            [vec![], vec!["https://localhost:2379".to_string()], vec!["ftp://localhost".to_string()]]
        {
            assert!(matches!(Gateway::new(&EtcdConfig::new(endpoints, "/x")), Err(MetaError::Invalid(_))));
        }
    }

    #[test]
    fn nobody_there_means_nothing_was_sent() {
        // The port of a listener that is gone again.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let endpoints = vec![format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{port}/")];
        let mut gateway = Gateway::new(&EtcdConfig::new(endpoints, "/x")).unwrap();
        assert!(matches!(gateway.call("/v3/kv/txn", &Value::Null), Err(CallError::NotSent(_))));
    }
}

//! Follows the changes of all records: a thread reads etcd's endless answer and hands over what arrives.
//!
//! A watch that breaks, or that brings nothing for a while, is opened again at another member, after the last
//! event that arrived. So nothing is missed and a member that vanished is noticed.

use super::EtcdConfig;
use super::gateway::{agent, prefix_end};
use crate::base64;
use crate::txn::MetaError;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// A watch without any news for this long is opened again.
const QUIET: Duration = Duration::from_secs(5);

/// The pause before a watch that broke is opened again.
const PAUSE: Duration = Duration::from_millis(50);

/// One key that was written or removed.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) key: Vec<u8>,
    pub(super) revision: u64,
    pub(super) value: Option<Vec<u8>>,
}

/// What a watch brings.
#[derive(Debug)]
pub(super) enum News {
    /// All events of one or several revisions, in order.
    Events(Vec<Event>),
    /// The history was compacted beyond the point that was asked for. Nothing more comes.
    Gap,
}

/// A watch. Its thread ends within [`QUIET`] after it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// Brings everything from revision `from` on.
    pub(super) fn start(config: &EtcdConfig, from: u64) -> Result<Watch, MetaError> {
        let (sender, news) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let reader = Reader { config: config.clone(), from, sender, stop: stop.clone() };
        let thread = thread::Builder::new().name("etcd-watch".into()).spawn(move || reader.run());
        thread.map_err(|error| MetaError::Unavailable(format!("no thread for the watch: {error}")))?;
        Ok(Watch { news, stop })
    }

    /// What has arrived since the last call.
    pub(super) fn arrived(&self) -> impl Iterator<Item = News> + '_ {
        self.news.try_iter()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Reader {
    config: EtcdConfig,
    /// The first revision that has not arrived.
    from: u64,
    sender: Sender<News>,
    stop: Arc<AtomicBool>,
}

/// Why a watch ended.
enum End {
    /// It broke: open it again.
    Broken,
    /// It has served its purpose, or cannot.
    Over,
}

impl Reader {
    fn run(mut self) {
        // No limit on the whole: it is endless. A limit on silence instead.
        let agent = agent(&self.config, None, Some(QUIET));
        for turn in 0.. {
            let endpoint = &self.config.endpoints[turn % self.config.endpoints.len()];
            let url = format!("{}/v3/watch", endpoint.trim_end_matches('/'));
            if self.stop.load(Ordering::Relaxed) || matches!(self.read(&agent, &url), End::Over) {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    fn read(&mut self, agent: &ureq::Agent, url: &str) -> End {
        let prefix = self.config.records().into_bytes();
        let request = json!({ "create_request": {
            "key": base64::encode(&prefix),
            "range_end": base64::encode(&prefix_end(&prefix)),
            "start_revision": self.from.to_string(),
        } });
        let Ok(mut response) = agent.post(url).send_json(&request) else { return End::Broken };
        if response.status().as_u16() != 200 {
            return End::Broken;
        }
        let lines = BufReader::new(response.body_mut().as_reader()).lines();
        for line in lines {
            let Ok(line) = line else { return End::Broken };
            if self.stop.load(Ordering::Relaxed) {
                return End::Over;
            }
            let Ok(message) = serde_json::from_str::<Value>(&line) else { return End::Broken };
            let result = &message["result"];
            if result["compact_revision"].is_string() {
                let _ = self.sender.send(News::Gap);
                return End::Over;
            }
            if result["canceled"].as_bool() == Some(true) || message["error"].is_object() {
                return End::Broken;
            }
            let Some(events) = events(result) else { return End::Broken };
            let Some(last) = events.last().map(|event| event.revision) else { continue };
            if self.sender.send(News::Events(events)).is_err() {
                return End::Over;
            }
            self.from = last + 1;
        }
        End::Broken
    }
}

/// The events of one message; none if it cannot be understood.
fn events(result: &Value) -> Option<Vec<Event>> {
    let Some(events) = result["events"].as_array() else { return Some(Vec::new()) };
    let event = |event: &Value| {
        let kv = &event["kv"];
        let removed = event["type"].as_str() == Some("DELETE");
        let value = base64::decode(kv["value"].as_str().unwrap_or_default())?;
        Some(Event {
            key: base64::decode(kv["key"].as_str()?)?,
            revision: kv["mod_revision"].as_str()?.parse().ok()?,
            value: (!removed).then_some(value),
        })
    };
    events.iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    /// The next who connects; an error after a time in which somebody must.
    fn accepted(listener: &TcpListener) -> Result<TcpStream, String> {
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        let until = Instant::now() + 4 * QUIET;
        while Instant::now() < until {
            if let Ok((stream, _)) = listener.accept() {
                return Ok(stream);
            }
            thread::sleep(PAUSE);
        }
        Err("nobody connects".into())
    }

    #[test]
    fn f17_a_watch_that_brings_nothing_is_opened_again_at_another_member() {
        let members = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("binds"));
        let addresses = members.each_ref().map(|one| one.local_addr().expect("has one").to_string());
        let config = EtcdConfig::new(addresses.to_vec(), "/understudy/test");
        let _watch = Watch::start(&config, 1).expect("starts");
        let mut first = accepted(&members[0]).expect("it is asked first");
        // It says that the watch is open, and then stands still.
        let line = "{\"result\":{\"created\":true}}\n";
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        first.write_all(format!("{head}{:x}\r\n{line}\r\n", line.len()).as_bytes()).expect("writes");
        let begun = Instant::now();
        accepted(&members[1]).expect("it is asked when the first one has been silent");
        assert!(begun.elapsed() >= QUIET - PAUSE, "{:?}", begun.elapsed());
    }
}

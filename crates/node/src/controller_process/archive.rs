//! Writes failovers into the system table that keeps them all: the metastore has only the newest ones.
//!
//! A thread beside the controller that plans. It is an ordinary client of the cluster, asks the controller
//! for the list whenever that has changed, and puts what the table does not have. Putting is repeatable, so
//! that a change of the planning controller, a lost answer or a restart need no care. While the table cannot
//! be created or written, because too few nodes are live, it tries again; nobody waits for it.

use client::table::Table;
use client::{Client, ClientError, Options};
use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::data::Value;
use types::{FailoverRecord, system};
use wire::control::{AdminCommand, CreateTable};

/// A change is written this long after the last one: the reports of one failure come together.
const CALM: Duration = Duration::from_millis(1_000);
/// After something went wrong.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long the cluster may take for one thing.
const WAIT_LIMIT: Duration = Duration::from_secs(2);

/// The thread. Dropping it ends it.
pub struct Archive {
    news: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Archive {
    /// Starts the thread, beside the controller that listens there.
    pub fn start(controller: String, secret: Option<String>) -> std::io::Result<Archive> {
        let (news, changed) = mpsc::channel();
        let work = Work { controller, secret, client: None, known: BTreeMap::new() };
        let thread = std::thread::Builder::new().name("archive".into()).spawn(move || work.run(&changed))?;
        Ok(Archive { news: Some(news), thread: Some(thread) })
    }

    /// The list of failovers has changed.
    pub fn changed(&self) {
        if let Some(news) = &self.news {
            // The thread ends before this does only if it panicked, which was reported then.
            let _ = news.send(());
        }
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        drop(self.news.take());
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

struct Work {
    controller: String,
    secret: Option<String>,
    client: Option<Client>,
    /// What the table surely has.
    known: BTreeMap<u64, FailoverRecord>,
}

impl Work {
    fn run(mut self, changed: &Receiver<()>) {
        loop {
            if changed.recv().is_err() {
                return;
            }
            let mut due = Instant::now() + CALM;
            loop {
                match changed.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(()) => due = due.max(Instant::now() + CALM),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => match self.pass() {
                        Ok(()) => break,
                        Err(_) => {
                            self.client = None;
                            due = Instant::now() + RETRY_DELAY;
                        }
                    },
                }
            }
        }
    }

    /// Brings the table up to date.
    fn pass(&mut self) -> Result<(), ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.connect()?,
        };
        let text = client.admin(AdminCommand::Failovers)?;
        let records: Vec<FailoverRecord> = serde_json::from_str(&text)
            .map_err(|error| ClientError::Protocol(format!("the list of failovers: {error}")))?;
        self.known.retain(|id, _| records.iter().any(|record| record.id == *id));
        let news: Vec<&FailoverRecord> =
            records.iter().filter(|record| self.known.get(&record.id) != Some(record)).collect();
        if !news.is_empty() {
            let table = table(&mut client)?;
            for record in news {
                put(&mut client, &table, record)?;
                self.known.insert(record.id, record.clone());
            }
        }
        self.client = Some(client);
        Ok(())
    }

    fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(Options {
            controllers: vec![self.controller.clone()],
            agent: "archive of failovers".into(),
            secret: self.secret.clone(),
            timeout: WAIT_LIMIT,
            ..Options::default()
        })
    }
}

/// The table; it is created when there is something to keep and as many nodes are live as it is to have
/// copies.
fn table(client: &mut Client) -> Result<Table, ClientError> {
    match client.table(system::FAILOVERS) {
        Err(ClientError::NoTable(_)) => {}
        other => return other,
    }
    let nodes = client.cluster_map().nodes().count();
    client.create_table(&CreateTable::system(system::FAILOVERS, nodes).expect("a table of this version"))
}

/// Writes a row unless it is there: a controller that starts knows nothing.
fn put(client: &mut Client, table: &Table, record: &FailoverRecord) -> Result<(), ClientError> {
    let of = client.cluster_map().partition(record.partition).map(|partition| partition.table);
    let name =
        client.cluster_map().owners().find(|table| Some(table.id) == of).map(|table| table.name.clone());
    let row = system::failover_row(record, &name.unwrap_or_default());
    if client.get(table, &[Value::Int(record.id as i64)])?.as_ref() != Some(&row) {
        client.put(table, &row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_controller_that_stands_still_is_asked_again_and_holds_nobody_up() {
        let stands_still = TcpListener::bind("127.0.0.1:0").expect("binds");
        stands_still.set_nonblocking(true).expect("does not block");
        let address = stands_still.local_addr().expect("has one").to_string();
        let archive = Archive::start(address, None).expect("starts");
        archive.changed();
        // Connections are kept, and nothing is said on them.
        let (begun, mut kept) = (Instant::now(), Vec::new());
        let last = 4 * (WAIT_LIMIT + RETRY_DELAY);
        while begun.elapsed() < last && kept.len() < 2 {
            kept.extend(stands_still.accept().ok());
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(kept.len(), 2, "it is given up and asked again");
        let begun = Instant::now();
        drop(archive);
        assert!(begun.elapsed() < 2 * WAIT_LIMIT, "{:?}", begun.elapsed());
    }
}

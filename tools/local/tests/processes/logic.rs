//! Scripts of sqllogictest against a cluster of three nodes of which one is killed in the middle: the client
//! goes on at another node, every answer is the expected one, and in the end all replicas hold the same.

use super::faults::{alike, connect, in_sync, wait};
use sqllogictest::{DB, DBOutput, DefaultColumnType, Record, Runner, parse_file};
use std::path::{Path, PathBuf};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use types::NodeId;
use understudy_local::{Cluster, ClusterOptions};

/// What went wrong, in full.
#[derive(Debug)]
struct Trouble(tokio_postgres::Error);

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_db_error() {
            Some(error) => write!(f, "{} {}", error.code().code(), error.message()),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::error::Error for Trouble {}

/// A connection to whichever node answers.
struct Anywhere {
    url: String,
    runtime: tokio::runtime::Runtime,
    client: Option<Client>,
}

impl Anywhere {
    fn connect(url: &str) -> Anywhere {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Anywhere { url: url.to_string(), runtime, client: None }
    }

    fn query(&mut self, text: &str) -> Result<Vec<SimpleQueryMessage>, Trouble> {
        let url = &self.url;
        self.runtime.block_on(async {
            if self.client.is_none() {
                let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(Trouble)?;
                tokio::spawn(connection);
                self.client = Some(client);
            }
            let client = self.client.as_ref().expect("connected");
            client.simple_query(text).await.map_err(Trouble)
        })
    }
}

impl DB for Anywhere {
    type Error = Trouble;
    type ColumnType = DefaultColumnType;

    /// The node is killed between two statements, so one that finds the connection closed was not begun: it
    /// is sent again.
    fn run(&mut self, text: &str) -> Result<DBOutput<DefaultColumnType>, Trouble> {
        let answered = match self.query(text) {
            Err(Trouble(error)) if error.is_closed() || error.as_db_error().is_none() => {
                self.client = None;
                self.query(text)?
            }
            answered => answered?,
        };
        let (mut rows, mut columns, mut count) = (Vec::new(), None, 0);
        for message in answered {
            match message {
                SimpleQueryMessage::RowDescription(described) => columns = Some(described.len()),
                SimpleQueryMessage::Row(row) => {
                    let shown = |at| match row.get(at) {
                        None => "NULL".to_string(),
                        Some("") => "(empty)".to_string(),
                        Some(text) => text.to_string(),
                    };
                    rows.push((0..row.len()).map(shown).collect());
                }
                SimpleQueryMessage::CommandComplete(done) => count = done,
                _ => {}
            }
        }
        Ok(match columns {
            Some(columns) => DBOutput::Rows { types: vec![DefaultColumnType::Any; columns], rows },
            None => DBOutput::StatementComplete(count),
        })
    }

    fn engine_name(&self) -> &str {
        "understudy"
    }

    fn error_sql_state(Trouble(error): &Trouble) -> Option<String> {
        error.code().map(|code| code.code().to_string())
    }
}

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("the scripts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

/// The node that the client is connected to is killed in the middle of the first script, and started again in
/// the second.
pub fn scripts_outlive_a_node() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    let url = cluster.sql_url().expect("a password");
    let mut runner = Runner::new(|| async { Ok(Anywhere::connect(&url)) });
    for (number, path) in scripts().iter().enumerate() {
        let records: Vec<Record<DefaultColumnType>> = parse_file(path).expect("a script");
        let middle = records.len() / 2;
        for (at, record) in records.into_iter().enumerate() {
            if at == middle && number == 0 {
                cluster.kill(NodeId(1)).expect("killed");
            } else if at == middle && number == 1 {
                cluster.restart(NodeId(1)).expect("started");
            }
            runner.run(record).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
    runner.shutdown();
    let mut client = connect(cluster.controllers());
    wait("all copies in sync", || in_sync(&mut client));
    let tables: Vec<String> = client.cluster_map().tables().map(|table| table.name.clone()).collect();
    assert!(tables.len() >= 3, "{tables:?}");
    for table in tables {
        let table = client.table(&table).expect("there");
        alike(&mut client, &table);
    }
    cluster.shutdown();
}

//! `bench compare`: the same load against us and against a peer with two replicas, in interleaved rounds.

use crate::client_pool::ClientPool;
use crate::cluster::{Ours, Shared, TableKind, TableUnderLoad, Target};
use crate::error::BenchError;
use crate::generate::Workload;
use crate::options::{Common, LoadSize};
use crate::peers::{Postgres, Redis, postgres, redis};
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::{Subject, interleave};
use serde_json::json;
use std::fmt;
use std::io::Write;
use std::str::FromStr;
use types::EngineKind;

/// With whom we are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Redis 7: a primary and two replicas.
    Redis,
    /// PostgreSQL 15: a primary and two synchronous standbys.
    Postgres,
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Peer, String> {
        match text {
            "redis" => Ok(Peer::Redis),
            "postgres" => Ok(Peer::Postgres),
            other => Err(format!("'{other}' is no peer; choose redis or postgres")),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Peer::Redis => "redis",
            Peer::Postgres => "postgres",
        })
    }
}

/// Which of our tables takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OurTable {
    DurableLsm,
    MainMemorySemi,
}

/// What the peer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Theirs {
    Redis { append_only: bool },
    Postgres { commit: &'static str },
}

/// How our closed-loop clients are connected. A peer's have a connection each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Connections {
    /// Lanes of one client share one connection to each node, as the threads of an application would.
    Shared,
    /// Each has its own to every node, as so many applications would.
    Own,
}

/// One line of the comparison.
struct Duel {
    name: &'static str,
    ours: OurTable,
    connections: Connections,
    theirs: Theirs,
    update_percent: u8,
    goal: Option<f64>,
}

const REDIS_DUELS: [Duel; 5] = [
    Duel {
        name: "durable-vs-redis-always-wait2",
        ours: OurTable::DurableLsm,
        connections: Connections::Shared,
        theirs: Theirs::Redis { append_only: true },
        update_percent: 100,
        goal: Some(1.5),
    },
    Duel {
        name: "durable-vs-redis-always-wait2-own-connections",
        ours: OurTable::DurableLsm,
        connections: Connections::Own,
        theirs: Theirs::Redis { append_only: true },
        update_percent: 100,
        goal: None,
    },
    Duel {
        name: "semi-vs-redis-nofile-wait2",
        ours: OurTable::MainMemorySemi,
        connections: Connections::Shared,
        theirs: Theirs::Redis { append_only: false },
        update_percent: 100,
        goal: Some(1.3),
    },
    Duel {
        name: "get-semi-vs-redis-get",
        ours: OurTable::MainMemorySemi,
        connections: Connections::Shared,
        theirs: Theirs::Redis { append_only: false },
        update_percent: 0,
        goal: Some(0.8),
    },
    Duel {
        name: "get-durable-vs-redis-get",
        ours: OurTable::DurableLsm,
        connections: Connections::Shared,
        theirs: Theirs::Redis { append_only: false },
        update_percent: 0,
        goal: Some(0.8),
    },
];

const POSTGRES_DUELS: [Duel; 3] = [
    Duel {
        name: "durable-vs-postgres-on",
        ours: OurTable::DurableLsm,
        connections: Connections::Shared,
        theirs: Theirs::Postgres { commit: "on" },
        update_percent: 100,
        goal: Some(2.5),
    },
    Duel {
        name: "durable-vs-postgres-on-own-connections",
        ours: OurTable::DurableLsm,
        connections: Connections::Own,
        theirs: Theirs::Postgres { commit: "on" },
        update_percent: 100,
        goal: None,
    },
    Duel {
        name: "durable-vs-postgres-remote_write",
        ours: OurTable::DurableLsm,
        connections: Connections::Shared,
        theirs: Theirs::Postgres { commit: "remote_write" },
        update_percent: 100,
        goal: None,
    },
];

impl Peer {
    fn duels(self) -> &'static [Duel] {
        match self {
            Peer::Redis => &REDIS_DUELS,
            Peer::Postgres => &POSTGRES_DUELS,
        }
    }

    /// Names of its lines.
    pub fn lines(self) -> Vec<&'static str> {
        self.duels().iter().map(|duel| duel.name).collect()
    }

    /// Why it cannot take part here, if it cannot.
    fn missing(self) -> Option<&'static str> {
        match self {
            Peer::Redis => redis::installed().is_none().then_some("redis-server is not installed"),
            Peer::Postgres => postgres::installed()
                .is_none()
                .then_some("PostgreSQL's initdb, postgres and pg_basebackup are not installed"),
        }
    }
}

/// Options of `bench compare`.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Options of every bench.
    pub common: Common,
    /// Which cluster of ours.
    pub target: Target,
    /// `--peer redis|postgres`.
    pub peer: Peer,
    /// How large the load is.
    pub load: LoadSize,
}

impl CompareOptions {
    /// The defaults for this peer.
    pub fn new(peer: Peer) -> CompareOptions {
        CompareOptions {
            common: Common::default(),
            target: Target::default(),
            peer,
            load: LoadSize::default(),
        }
    }

    fn workload(&self, update_percent: u8) -> Workload {
        self.load.workload(update_percent, self.common.seed)
    }

    fn check(&self) -> Result<(), BenchError> {
        self.common.check(&self.peer.lines())?;
        self.load.check()
    }
}

/// Runs `bench compare`. Each line goes to `emit` as soon as it is there. A peer that is not installed gives
/// lines that say so.
pub fn compare(
    options: &CompareOptions,
    progress: &mut dyn Write,
    emit: &mut dyn FnMut(&Line),
) -> Result<Vec<Line>, BenchError> {
    options.check()?;
    let wanted: Vec<&Duel> =
        options.peer.duels().iter().filter(|duel| options.common.wants(duel.name)).collect();
    let mut lines = Vec::new();
    let mut done = |line: Line, progress: &mut dyn Write| {
        let _ = writeln!(progress, "{}", line.in_words());
        emit(&line);
        lines.push(line);
    };
    if let Some(reason) = options.peer.missing() {
        let machine = Machine::here(&options.common.base_dir());
        for duel in wanted {
            done(line(options, duel, &machine).skipped(reason), progress);
        }
        return Ok(lines);
    }
    let _ = writeln!(progress, "compare: starting");
    let shared = Ours::start(&options.common, &options.target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let mut tables = Tables { durable: None, semi: None };
    for duel in wanted {
        let _ = writeln!(progress, "compare {}", duel.name);
        let workload = options.workload(duel.update_percent);
        let ours = tables.get(&shared, options, duel.ours)?;
        ours.set_workload(&workload);
        let mut theirs = start(options, duel, &workload)?;
        let plan = options.common.plan();
        let series = match duel.connections {
            Connections::Shared => interleave(&mut [ours, &mut *theirs], plan, progress)?,
            Connections::Own => {
                interleave(&mut [&mut ClientPool::connect(ours)?, &mut *theirs], plan, progress)?
            }
        };
        done(line(options, duel, &machine).compared(&series[0], &series[1], duel.goal), progress);
    }
    plot::write(&options.common, &format!("compare-{}", options.peer), &lines)?;
    Ok(lines)
}

fn line(options: &CompareOptions, duel: &Duel, machine: &Machine) -> Line {
    let workload = json!({
        "peer": options.peer.to_string(), "records": options.load.records, "value_bytes": options.load.value_bytes,
        "update_percent": duel.update_percent, "distribution": "uniform", "clients": options.load.clients,
        "partitions": options.load.partitions,
    });
    Line::new("compare", duel.name, workload, machine.clone())
}

fn start(options: &CompareOptions, duel: &Duel, workload: &Workload) -> Result<Box<dyn Subject>, BenchError> {
    let (common, clients) = (&options.common, options.load.clients);
    Ok(match duel.theirs {
        Theirs::Redis { append_only } => Box::new(Redis::start(common, workload, clients, append_only)?),
        Theirs::Postgres { commit } => Box::new(Postgres::start(common, workload, clients, commit)?),
    })
}

/// Our tables, made when they are first needed.
struct Tables {
    durable: Option<TableUnderLoad>,
    semi: Option<TableUnderLoad>,
}

impl Tables {
    fn get(
        &mut self,
        shared: &Shared,
        options: &CompareOptions,
        which: OurTable,
    ) -> Result<&mut TableUnderLoad, BenchError> {
        let (slot, kind) = match which {
            OurTable::DurableLsm => {
                (&mut self.durable, TableKind::durable(EngineKind::Lsm, options.load.partitions))
            }
            OurTable::MainMemorySemi => {
                (&mut self.semi, TableKind::main_memory("semi", 3, options.load.partitions))
            }
        };
        if slot.is_none() {
            *slot = Some(TableUnderLoad::new(shared, &kind, &options.workload(100), options.load.clients)?);
        }
        Ok(slot.as_mut().expect("made above"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_from_their_names() {
        for peer in [Peer::Redis, Peer::Postgres] {
            assert_eq!(peer.to_string().parse(), Ok(peer));
        }
        assert!("mysql".parse::<Peer>().is_err());
    }

    #[test]
    fn the_main_comparison_of_each_peer_is_also_made_with_a_connection_per_client() {
        for peer in [Peer::Redis, Peer::Postgres] {
            let [main, own] = [&peer.duels()[0], &peer.duels()[1]];
            assert_eq!(own.name, format!("{}-own-connections", main.name));
            assert_eq!((main.connections, own.connections), (Connections::Shared, Connections::Own));
            assert_eq!((main.ours, main.theirs), (own.ours, own.theirs));
        }
    }

    #[test]
    fn a_line_of_the_other_peer_is_refused() {
        let mut options = CompareOptions::new(Peer::Redis);
        options.common.only = vec!["durable-vs-postgres-on".into()];
        let refused = compare(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
        assert!(refused.to_string().contains("durable-vs-redis-always-wait2"), "{refused}");
    }
}

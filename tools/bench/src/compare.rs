//! `bench compare`: the same load against us and against a peer with two replicas, in interleaved rounds.

use crate::client_pool::ClientPool;
use crate::cluster::{Ours, Shared, TableKind, TableUnderLoad, Target};
use crate::error::BenchError;
use crate::generate::Workload;
use crate::goals::{self, Sides};
use crate::options::{Common, LoadSize};
use crate::peers::{Postgres, Redis, postgres, redis};
use crate::plot;
use crate::report::{Line, Machine};
use crate::subject::{Series, Subject, interleave};
use crate::unit_costs::UnitCosts;
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

/// One line of the comparison, and perhaps another one with a connection for each of our clients, as a peer's
/// have. Lanes of one client share one connection to each node, as the threads of an application would.
struct Duel {
    name: &'static str,
    /// The other line's name.
    own: Option<&'static str>,
    ours: OurTable,
    theirs: Theirs,
    update_percent: u8,
}

impl Duel {
    /// Names of its lines.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.own)
    }
}

const REDIS_DUELS: [Duel; 4] = [
    Duel {
        name: "durable-vs-redis-always-wait2",
        own: Some("durable-vs-redis-always-wait2-own-connections"),
        ours: OurTable::DurableLsm,
        theirs: Theirs::Redis { append_only: true },
        update_percent: 100,
    },
    Duel {
        name: "semi-vs-redis-nofile-wait2",
        own: None,
        ours: OurTable::MainMemorySemi,
        theirs: Theirs::Redis { append_only: false },
        update_percent: 100,
    },
    Duel {
        name: "get-semi-vs-redis-get",
        own: None,
        ours: OurTable::MainMemorySemi,
        theirs: Theirs::Redis { append_only: false },
        update_percent: 0,
    },
    Duel {
        name: "get-durable-vs-redis-get",
        own: None,
        ours: OurTable::DurableLsm,
        theirs: Theirs::Redis { append_only: false },
        update_percent: 0,
    },
];

const POSTGRES_DUELS: [Duel; 2] = [
    Duel {
        name: "durable-vs-postgres-on",
        own: Some("durable-vs-postgres-on-own-connections"),
        ours: OurTable::DurableLsm,
        theirs: Theirs::Postgres { commit: "on" },
        update_percent: 100,
    },
    Duel {
        name: "durable-vs-postgres-remote_write",
        own: None,
        ours: OurTable::DurableLsm,
        theirs: Theirs::Postgres { commit: "remote_write" },
        update_percent: 100,
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
        self.duels().iter().flat_map(Duel::names).collect()
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
    let is_wanted = |duel: &&Duel| duel.names().any(|name| options.common.wants(name));
    let wanted: Vec<&Duel> = options.peer.duels().iter().filter(is_wanted).collect();
    let mut lines = Vec::new();
    let mut done = |line: Line, progress: &mut dyn Write| {
        let _ = writeln!(progress, "{}", line.in_words());
        emit(&line);
        lines.push(line);
    };
    if let Some(reason) = options.peer.missing() {
        let machine = Machine::here(&options.common.base_dir());
        for (duel, name) in wanted.iter().flat_map(|duel| duel.names().map(move |name| (duel, name))) {
            if options.common.wants(name) {
                done(line(options, name, duel, &machine).skipped(reason), progress);
            }
        }
        return Ok(lines);
    }
    let units = UnitCosts::measure(&options.common, options.load.value_bytes)?;
    let _ = writeln!(progress, "compare: {}; starting", units.in_words());
    let shared = Ours::start(&options.common, &options.target)?;
    let machine = Machine::here(shared.borrow().folder().unwrap_or(&options.common.base_dir()));
    let mut tables = Tables { durable: None, semi: None };
    for duel in wanted {
        let _ = writeln!(progress, "compare {}", duel.name);
        let series = rounds(options, duel, tables.get(&shared, options, duel.ours)?, progress)?;
        let [shared_ones, theirs] = [&series[0], &series[1]];
        let own = series.get(2).map(|own| Sides { ours: own, base: theirs, shared: Some(shared_ones) });
        let main = Sides { ours: shared_ones, base: theirs, shared: None };
        for (name, sides) in duel.names().zip([Some(main), own].into_iter().flatten()) {
            if options.common.wants(name) {
                let clients = options.load.clients;
                let line = line(options, name, duel, &machine);
                let line = line.compared(sides.ours, sides.base, goals::ratio(name, clients));
                done(line.with_goals(clients, &sides).with_unit_costs(&units), progress);
            }
        }
    }
    plot::write(&options.common, &format!("compare-{}", options.peer), &lines)?;
    Ok(lines)
}

/// Ours, the peer's, and ours with connections of their own where that is a line, too: all in the same
/// rounds.
fn rounds(
    options: &CompareOptions,
    duel: &Duel,
    ours: &mut TableUnderLoad,
    progress: &mut dyn Write,
) -> Result<Vec<Series>, BenchError> {
    let workload = options.workload(duel.update_percent);
    ours.set_workload(&workload);
    let mut theirs = start(options, duel, &workload)?;
    let mut again = ours.again(&workload);
    let mut own = match duel.own {
        Some(_) => Some(ClientPool::connect(&mut again)?),
        None => None,
    };
    let mut subjects: Vec<&mut dyn Subject> = vec![ours, &mut *theirs];
    if let Some(own) = &mut own {
        subjects.push(own);
    }
    interleave(&mut subjects, options.common.plan(), progress)
}

fn line(options: &CompareOptions, name: &str, duel: &Duel, machine: &Machine) -> Line {
    let workload = json!({
        "peer": options.peer.to_string(), "records": options.load.records, "value_bytes": options.load.value_bytes,
        "update_percent": duel.update_percent, "distribution": "uniform", "clients": options.load.clients,
        "partitions": options.load.partitions,
    });
    Line::new("compare", name, workload, machine.clone())
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
            let main = &peer.duels()[0];
            assert_eq!(main.own, Some(format!("{}-own-connections", main.name)).as_deref());
            assert_eq!(peer.lines()[..2], [Some(main.name), main.own].map(Option::unwrap_or_default));
        }
    }

    #[test]
    fn every_goal_of_a_comparison_is_for_a_line_that_there_is() {
        let all = [Peer::Redis, Peer::Postgres].map(Peer::lines).concat();
        let is_there = |goal: &goals::Goal| all.contains(&goal.line);
        assert_eq!(goals::ALL.iter().filter(|goal| is_there(goal)).count(), 15);
    }

    #[test]
    fn a_line_of_the_other_peer_is_refused() {
        let mut options = CompareOptions::new(Peer::Redis);
        options.common.only = vec!["durable-vs-postgres-on".into()];
        let refused = compare(&options, &mut std::io::sink(), &mut |_| ()).expect_err("refused");
        assert!(refused.to_string().contains("durable-vs-redis-always-wait2"), "{refused}");
    }
}

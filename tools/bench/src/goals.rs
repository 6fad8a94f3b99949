//! Goals of speed, one constant each: the line that it is for, how many clients that has, what is compared,
//! and the limit. None is a gate: figures are printed whether they reach it or not.

use crate::report::Line;
use crate::stats::{Spread, tidy};
use crate::subject::{Round, Series};
use serde::Serialize;

/// What is compared with a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Operations a second over those of the other side: at least.
    Ratio,
    /// Processor time per operation of all our processes: at most.
    CpuUs,
    /// The same of the other side.
    BaseCpuUs,
    /// Operations that one fsync of one node takes to disk: at least.
    CommitsPerFsync,
    /// The 99th percentile over that of the other side: at most.
    P99Ratio,
    /// User time of the load generator per operation: at most.
    GeneratorUserUs,
    /// Processor time per operation beyond that with shared connections: at most.
    OverSharedUs,
    /// How much longer an operation takes than on the other side, where one follows the other: at most.
    LongerMs,
}

impl Figure {
    /// What is compared, in words.
    pub fn what(self) -> &'static str {
        match self {
            Figure::Ratio => "ratio",
            Figure::CpuUs => "processor time per operation, us",
            Figure::BaseCpuUs => "processor time per operation of the other side, us",
            Figure::CommitsPerFsync => "commits per fsync of a node",
            Figure::P99Ratio => "p99 over the other side's",
            Figure::GeneratorUserUs => "user time of the load generator per operation, us",
            Figure::OverSharedUs => "processor time per operation beyond shared connections, us",
            Figure::LongerMs => "longer than the other side, ms",
        }
    }

    /// True if more is better.
    pub fn is_at_least(self) -> bool {
        matches!(self, Figure::Ratio | Figure::CommitsPerFsync)
    }
}

/// One goal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// The line's name.
    pub line: &'static str,
    /// Only with so many clients; `None`: with any number.
    pub clients: Option<u32>,
    /// What is compared.
    pub figure: Figure,
    /// With what.
    pub limit: f64,
}

const fn with(clients: u32, line: &'static str, figure: Figure, limit: f64) -> Goal {
    Goal { line, clients: Some(clients), figure, limit }
}

const fn always(line: &'static str, figure: Figure, limit: f64) -> Goal {
    Goal { line, clients: None, figure, limit }
}

const POSTGRES: &str = "durable-vs-postgres-on";
const POSTGRES_OWN: &str = "durable-vs-postgres-on-own-connections";
const REDIS: &str = "durable-vs-redis-always-wait2";
const REDIS_OWN: &str = "durable-vs-redis-always-wait2-own-connections";

/// `durable` on `lsm`, ten clients: processor time of a put.
pub const DURABLE_CPU: Goal = with(10, POSTGRES, Figure::CpuUs, 75.0);
/// Ten clients: commits that share an fsync.
pub const COMMITS_PER_FSYNC: Goal = with(10, POSTGRES, Figure::CommitsPerFsync, 5.0);
/// Over PostgreSQL, ten clients.
pub const OVER_POSTGRES: Goal = with(10, POSTGRES, Figure::Ratio, 2.2);
/// The same with a connection for each client.
pub const OVER_POSTGRES_OWN: Goal = with(10, POSTGRES_OWN, Figure::Ratio, 1.7);
/// Over PostgreSQL, 64 clients.
pub const OVER_POSTGRES_64: Goal = with(64, POSTGRES, Figure::Ratio, 3.0);
/// The same with a connection for each client.
pub const OVER_POSTGRES_64_OWN: Goal = with(64, POSTGRES_OWN, Figure::Ratio, 2.5);
/// Over PostgreSQL, one client alone.
pub const OVER_POSTGRES_ALONE: Goal = with(1, POSTGRES, Figure::Ratio, 1.6);
/// The slowest of a hundred over PostgreSQL's, ten clients.
pub const P99_OVER_POSTGRES: Goal = with(10, POSTGRES, Figure::P99Ratio, 1.0);
/// Over Redis with a synced append-only file, ten clients.
pub const OVER_REDIS: Goal = with(10, REDIS, Figure::Ratio, 2.2);
/// `semi` in memory over Redis without a file, ten clients.
pub const SEMI_OVER_REDIS: Goal = with(10, "semi-vs-redis-nofile-wait2", Figure::Ratio, 1.35);
/// Processor time of a put under `semi`, ten clients.
pub const SEMI_CPU: Goal = with(10, "semi-vs-none-u100", Figure::CpuUs, 30.0);
/// The same under `async`.
pub const ASYNC_CPU: Goal = with(10, "async-vs-none-u100", Figure::CpuUs, 18.0);
/// The same with one copy, which both are compared with.
pub const NONE_CPU: Goal = with(10, "async-vs-none-u100", Figure::BaseCpuUs, 12.6);
/// SQL: UPDATE by key over PostgreSQL, ten clients.
pub const SQL_UPDATE: Goal = with(10, "update-durable-vs-postgres-on", Figure::Ratio, 1.8);
/// SQL: SELECT by key over PostgreSQL, ten clients.
pub const SQL_SELECT: Goal = with(10, "select-vs-postgres", Figure::Ratio, 1.0);
/// One node: two executors on two cores over one on one core.
pub const EXECUTORS: Goal = always("executors-put", Figure::Ratio, 1.7);
/// psql from its start to its end, beside the same with PostgreSQL.
pub const PSQL: Goal = always("psql-first-result", Figure::LongerMs, 5.0);

/// A put costs its client so much of its own time.
pub const CLIENT_USER: Goal = always(POSTGRES, Figure::GeneratorUserUs, 4.0);
/// A connection for each client costs so much more than shared ones.
pub const OWN_CONNECTIONS: Goal = always(POSTGRES_OWN, Figure::OverSharedUs, 10.0);
/// The same beside Redis.
pub const OWN_CONNECTIONS_REDIS: Goal = always(REDIS_OWN, Figure::OverSharedUs, 10.0);
/// Reading a row over reading one from Redis, in memory and on disk.
pub const GETS_OVER_REDIS: [Goal; 2] = [
    always("get-semi-vs-redis-get", Figure::Ratio, 0.8),
    always("get-durable-vs-redis-get", Figure::Ratio, 0.8),
];
/// SQL: UPDATE by key under `semi` over PostgreSQL that does not wait for its standbys' disks.
pub const SQL_UPDATE_SEMI: Goal = always("update-semi-vs-postgres-remote_write", Figure::Ratio, 1.5);

/// All of them.
pub const ALL: [Goal; 23] = [
    DURABLE_CPU,
    COMMITS_PER_FSYNC,
    OVER_POSTGRES,
    OVER_POSTGRES_OWN,
    OVER_POSTGRES_64,
    OVER_POSTGRES_64_OWN,
    OVER_POSTGRES_ALONE,
    P99_OVER_POSTGRES,
    OVER_REDIS,
    SEMI_OVER_REDIS,
    SEMI_CPU,
    ASYNC_CPU,
    NONE_CPU,
    SQL_UPDATE,
    SQL_SELECT,
    EXECUTORS,
    PSQL,
    CLIENT_USER,
    OWN_CONNECTIONS,
    OWN_CONNECTIONS_REDIS,
    GETS_OVER_REDIS[0],
    GETS_OVER_REDIS[1],
    SQL_UPDATE_SEMI,
];

/// The goals of a line with so many clients.
fn of(line: &str, clients: u32) -> impl Iterator<Item = Goal> {
    ALL.into_iter()
        .filter(move |goal| goal.line == line && goal.clients.is_none_or(|wanted| wanted == clients))
}

/// The least ratio that is good enough for a line with so many clients, if there is such a goal.
pub fn ratio(line: &str, clients: u32) -> Option<f64> {
    of(line, clients).find(|goal| goal.figure == Figure::Ratio).map(|goal| goal.limit)
}

/// What was measured for a line.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// Our side.
    pub ours: &'a Series,
    /// What it is compared with.
    pub base: &'a Series,
    /// Our side with shared connections, where `ours` has others.
    pub shared: Option<&'a Series>,
}

impl Sides<'_> {
    /// A figure by rounds. `None` if it is not known of one. The ratio is the line's.
    fn figure(&self, figure: Figure) -> Option<Spread> {
        match figure {
            Figure::Ratio => None,
            Figure::CpuUs => alone(self.ours, |round| Some(round.cpu_us_per_op)),
            Figure::BaseCpuUs => alone(self.base, |round| Some(round.cpu_us_per_op)),
            Figure::CommitsPerFsync => {
                let way = self.ours.way;
                alone(self.ours, |round| round.ops_per_fsync.map(|ops| way.commits_per_fsync(ops)))
            }
            Figure::P99Ratio => both(self.ours, self.base, |ours, base| ours.p99_us / base.p99_us),
            Figure::GeneratorUserUs => {
                alone(self.ours, |round| round.cost.as_ref().map(|cost| cost.generator_user_us))
            }
            Figure::OverSharedUs => {
                both(self.ours, self.shared?, |ours, shared| ours.cpu_us_per_op - shared.cpu_us_per_op)
            }
            Figure::LongerMs => both(self.ours, self.base, |ours, base| 1e3 / ours.ops_s - 1e3 / base.ops_s),
        }
    }
}

fn alone(series: &Series, figure: impl Fn(&Round) -> Option<f64>) -> Option<Spread> {
    Spread::of(series.rounds.iter().map(figure).collect::<Option<Vec<f64>>>()?)
}

/// Of neighbouring rounds.
fn both(one: &Series, other: &Series, figure: fn(&Round, &Round) -> f64) -> Option<Spread> {
    Spread::of(one.rounds.iter().zip(&other.rounds).map(|(one, other)| figure(one, other)))
}

/// A goal, and what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckedGoal {
    /// What is compared.
    pub what: &'static str,
    /// The middle one of the rounds' figures.
    pub value: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// What the middle one should be at most, or at least.
    pub limit: f64,
    /// True if it should be at least the limit.
    pub at_least: bool,
    /// Whether it is.
    pub met: bool,
}

impl CheckedGoal {
    fn new(goal: &Goal, spread: &Spread) -> CheckedGoal {
        let (at_least, limit) = (goal.figure.is_at_least(), goal.limit);
        let met = if at_least { spread.median >= limit } else { spread.median <= limit };
        let [value, min, max] = [spread.median, spread.min, spread.max].map(tidy);
        CheckedGoal { what: goal.figure.what(), value, min, max, limit, at_least, met }
    }

    /// In a few words.
    pub fn in_words(&self) -> String {
        let CheckedGoal { what, value, min, max, limit, .. } = self;
        let bound = if self.at_least { "at least" } else { "at most" };
        let word = if self.met { "met" } else { "missed" };
        format!("{what} {value} ({min} to {max}), goal {bound} {limit}: {word}")
    }
}

/// What became of the goals of a line with so many clients. One whose figure is not known is left out.
pub fn check(line: &Line, clients: u32, sides: &Sides<'_>) -> Vec<CheckedGoal> {
    let checked = |goal: Goal| {
        let spread = match goal.figure {
            Figure::Ratio => line.ratio.clone(),
            figure => sides.figure(figure),
        };
        spread.map(|spread| CheckedGoal::new(&goal, &spread))
    };
    of(&line.name, clients).filter_map(checked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Cost;
    use crate::report::Machine;
    use crate::subject::{Sources, Way, latencies};
    use serde_json::json;

    fn series(figures: &[(f64, f64)]) -> Series {
        let round = |(ops_s, cpu_us): &(f64, f64)| Round {
            ops_s: *ops_s,
            ops: 100,
            cpu_us_per_op: *cpu_us,
            kernel_cpu_us_per_op: None,
            cost: Some(Cost { generator_user_us: 3.0, ..Cost::default() }),
            wire_bytes_per_op: None,
            ops_per_fsync: Some(2.0),
            fsyncs_s: None,
            cpu_share: 0.5,
            other_cpu_share: 0.1,
            fsync_us: None,
            p99_us: 1e6 / *ops_s,
        };
        Series {
            label: String::new(),
            settings: String::new(),
            sources: Sources { wire: "", fsyncs: "" },
            way: Way::of_copies(3, 3, true, 100),
            rounds: figures.iter().map(round).collect(),
            latencies: latencies(),
            service: None,
        }
    }

    fn checked(name: &str, clients: u32, sides: &Sides<'_>) -> Vec<CheckedGoal> {
        let machine = Machine { cores: 2, filesystem: "ext4".into() };
        let line = Line::new("compare", name, json!({}), machine);
        check(&line.compared(sides.ours, sides.base, None), clients, sides)
    }

    #[test]
    fn a_line_has_the_goals_for_its_clients() {
        let limits = [1, 10, 64, 7].map(|clients| ratio(POSTGRES, clients));
        assert_eq!(limits, [Some(1.6), Some(2.2), Some(3.0), None]);
        assert_eq!([1, 10, 64].map(|clients| ratio(POSTGRES_OWN, clients)), [None, Some(1.7), Some(2.5)]);
        assert_eq!(ratio("executors-put", 5), Some(1.7));
        assert_eq!(ratio("durable-vs-postgres-remote_write", 10), None);
    }

    #[test]
    fn figures_are_compared_with_the_limits_of_a_line() {
        let (ours, base) =
            (series(&[(200.0, 80.0), (220.0, 70.0), (300.0, 72.0)]), series(&[(100.0, 90.0); 3]));
        let goals = checked(POSTGRES, 10, &Sides { ours: &ours, base: &base, shared: None });
        let told: Vec<(&str, f64, bool)> =
            goals.iter().map(|goal| (goal.what, goal.value, goal.met)).collect();
        let expected = [
            (Figure::CpuUs.what(), 72.0, true),
            (Figure::CommitsPerFsync.what(), 6.0, true),
            (Figure::Ratio.what(), 2.2, true),
            (Figure::P99Ratio.what(), 0.454_5, true),
            (Figure::GeneratorUserUs.what(), 3.0, true),
        ];
        assert_eq!(told, expected);
        assert_eq!(
            goals[0].in_words(),
            "processor time per operation, us 72 (70 to 80), goal at most 75: met"
        );
    }

    #[test]
    fn own_connections_are_compared_with_shared_ones_of_the_same_rounds() {
        let (own, shared) = (series(&[(150.0, 95.0); 3]), series(&[(200.0, 80.0); 3]));
        let base = series(&[(100.0, 90.0); 3]);
        let goals = checked(POSTGRES_OWN, 10, &Sides { ours: &own, base: &base, shared: Some(&shared) });
        let told: Vec<(f64, bool)> = goals.iter().map(|goal| (goal.value, goal.met)).collect();
        assert_eq!(told, [(1.5, false), (15.0, false)]);
        let without = checked(POSTGRES_OWN, 10, &Sides { ours: &own, base: &base, shared: None });
        assert_eq!(without.len(), 1, "what is not known is not compared");
    }

    #[test]
    fn how_much_longer_it_takes_is_in_milliseconds() {
        let (ours, base) = (series(&[(25.0, 1.0); 3]), series(&[(40.0, 1.0); 3]));
        let goals = checked("psql-first-result", 1, &Sides { ours: &ours, base: &base, shared: None });
        let told: Vec<(f64, bool)> = goals.iter().map(|goal| (goal.value, goal.met)).collect();
        assert_eq!(told, [(15.0, false)]);
    }
}

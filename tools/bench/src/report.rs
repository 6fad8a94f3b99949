//! Lines: one comparison each, as one JSON object.

use crate::arithmetic::CostSum;
use crate::costs::{self, Cost, Spreads};
use crate::explain::explain;
use crate::goals::{self, CheckedGoal, Figure, Sides};
use crate::procfs;
use crate::stats::{Spread, tidy};
use crate::subject::{Latencies, Round, Series};
use crate::unit_costs::UnitCosts;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::Path;

/// One side of a comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    /// What it is.
    pub label: String,
    /// False if the figure was not taken in this run but stands in a document.
    pub measured: bool,
    /// Operations a second, by round.
    pub ops_s: Spread,
    /// Processor microseconds per operation of all processes involved, the load generator included; median of
    /// the rounds.
    pub cpu_us_per_op: Option<f64>,
    /// What the kernel used of it; `None` if it cannot be told.
    pub kernel_cpu_us_per_op: Option<f64>,
    /// Who used what, and how often the kernel was asked; medians of the rounds. `None` if it cannot be told.
    pub cost_per_op: Option<Cost>,
    /// What the rounds had at least and at most. `None` where nothing was measured.
    pub spread: Option<Spreads>,
    /// What it should cost by counted calls. `None` where nobody counts them.
    pub arithmetic: Option<CostSum>,
    /// Messages that follow one another between an operation's question and its answer: from what it does,
    /// not measured.
    pub messages_in_a_row: Option<f64>,
    /// Bytes on the wire per operation; median of the rounds.
    pub wire_bytes_per_op: Option<f64>,
    /// Who counted the bytes.
    pub wire_source: String,
    /// Operations per fsync; median of the rounds.
    pub commits_per_fsync: Option<f64>,
    /// Commits per fsync of one node: where several nodes sync, [`Side::commits_per_fsync`] divides by the
    /// fsyncs of all.
    pub commits_per_fsync_of_one_node: Option<f64>,
    /// Fsyncs a second of one node; median of the rounds.
    pub fsyncs_s_of_one_node: Option<f64>,
    /// Who counted the fsyncs.
    pub fsync_source: String,
    /// Half of all operations were at least so fast, microseconds.
    pub p50_us: Option<f64>,
    /// 99 of 100 operations were at least so fast, microseconds.
    pub p99_us: Option<f64>,
    /// The mean of all operations, microseconds.
    pub mean_us: Option<f64>,
    /// The same three from when operations did begin, where they may have to wait for that. The others count
    /// from when they were to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Times>,
    /// Share of all processors that the processes involved used; median.
    pub cpu_share: Option<f64>,
    /// Share of all processors that everything else on the machine and its host used meanwhile; median.
    pub other_cpu_share: Option<f64>,
    /// Share of all processors that nobody used; median.
    pub idle_share: Option<f64>,
    /// Settings by which to judge it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub settings: String,
}

/// How long operations took, microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Times {
    /// Half of them at most so long.
    pub p50_us: f64,
    /// 99 of 100 at most so long.
    pub p99_us: f64,
    /// On the average so long.
    pub mean_us: f64,
}

impl Times {
    /// What a histogram says.
    pub fn of(latencies: &Latencies) -> Times {
        let quantile = |quantile| tidy(latencies.value_at_quantile(quantile) as f64 / 1_000.0);
        Times { p50_us: quantile(0.50), p99_us: quantile(0.99), mean_us: tidy(latencies.mean() / 1_000.0) }
    }
}

impl Side {
    /// What a series says. `None` if it has no rounds.
    pub fn of(series: &Series) -> Option<Side> {
        let all = |figure: fn(&Round) -> Option<f64>| {
            let figures: Option<Vec<f64>> = series.rounds.iter().map(figure).collect();
            figures.and_then(Spread::of).map(|spread| spread.median)
        };
        let times = Times::of(&series.latencies);
        let (wire, way) = (series.sources.wire, series.way);
        Some(Side {
            label: series.label.clone(),
            measured: true,
            ops_s: Spread::of(series.rounds.iter().map(|round| round.ops_s))?,
            cpu_us_per_op: all(|round| Some(round.cpu_us_per_op)),
            kernel_cpu_us_per_op: all(|round| round.kernel_cpu_us_per_op),
            cost_per_op: Cost::median_of(&series.rounds.iter().map(|round| round.cost).collect::<Vec<_>>()),
            spread: Spreads::of(series),
            arithmetic: None,
            messages_in_a_row: Some(way.messages),
            wire_bytes_per_op: all(|round| round.wire_bytes_per_op),
            wire_source: if wire.is_empty() {
                "the loopback interface: packet headers and other programs included".into()
            } else {
                wire.into()
            },
            commits_per_fsync: all(|round| round.ops_per_fsync),
            commits_per_fsync_of_one_node: all(|round| round.ops_per_fsync)
                .map(|ops| tidy(way.commits_per_fsync(ops))),
            fsyncs_s_of_one_node: all(|round| round.fsyncs_s).map(|sum| tidy(way.fsyncs_of_one_node(sum))),
            fsync_source: series.sources.fsyncs.into(),
            p50_us: Some(times.p50_us),
            p99_us: Some(times.p99_us),
            mean_us: Some(times.mean_us),
            service: series.service.as_ref().map(Times::of),
            cpu_share: all(|round| Some(round.cpu_share)),
            other_cpu_share: all(|round| Some(round.other_cpu_share)),
            idle_share: all(|round| Some((1.0 - round.cpu_share - round.other_cpu_share).max(0.0))),
            settings: series.settings.clone(),
        })
    }

    /// A figure from a document, to stand beside a measured one.
    pub fn documented(label: &str, ops_s: f64) -> Side {
        Side {
            label: label.into(),
            measured: false,
            ops_s: Spread { median: ops_s, min: ops_s, max: ops_s, rounds: Vec::new() },
            cpu_us_per_op: None,
            kernel_cpu_us_per_op: None,
            cost_per_op: None,
            spread: None,
            arithmetic: None,
            messages_in_a_row: None,
            wire_bytes_per_op: None,
            wire_source: "not measured".into(),
            commits_per_fsync: None,
            commits_per_fsync_of_one_node: None,
            fsyncs_s_of_one_node: None,
            fsync_source: "not measured".into(),
            p50_us: None,
            p99_us: None,
            mean_us: None,
            service: None,
            cpu_share: None,
            other_cpu_share: None,
            idle_share: None,
            settings: String::new(),
        }
    }
}

/// Where it was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// The file system under the files that were synced.
    pub filesystem: String,
}

impl Machine {
    /// This machine, with files below `folder`.
    pub fn here(folder: &Path) -> Machine {
        Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            filesystem: procfs::filesystem(folder).unwrap_or_else(|| "unknown".into()),
        }
    }
}

/// One line of a bench's output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// `log`, `ycsb` or `compare`.
    pub bench: &'static str,
    /// Which comparison; what `only` selects.
    pub name: String,
    /// What was done: record size, clients, update share and so on.
    pub workload: Map<String, Value>,
    /// Rounds of each side.
    pub rounds: usize,
    /// Where.
    pub machine: Machine,
    /// What is compared. `None` if the line was skipped.
    pub ours: Option<Side>,
    /// What it is compared with. `None` if it stands alone.
    pub base: Option<Side>,
    /// The least ratio that is good enough.
    pub goal: Option<f64>,
    /// `ours` over `base`: of neighbouring rounds, and the median, least and greatest of these.
    pub ratio: Option<Spread>,
    /// Mean latency of `ours` over that of `base`, from when operations did begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ratio: Option<f64>,
    /// Whether the median ratio reaches the goal.
    pub met: Option<bool>,
    /// If it does not: why, as far as the measurement says.
    pub reason: Option<String>,
    /// All goals of the line with what was measured, that of the ratio among them.
    pub goals: Vec<CheckedGoal>,
    /// What single system calls cost here, in this run. `None` where they were not measured.
    pub unit_costs: Option<UnitCosts>,
    /// Why nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Line {
    /// An empty line.
    pub fn new(bench: &'static str, name: &str, workload: Value, machine: Machine) -> Line {
        let Value::Object(workload) = workload else { panic!("a workload is an object: {workload}") };
        Line {
            bench,
            name: name.into(),
            workload,
            rounds: 0,
            machine,
            ours: None,
            base: None,
            goal: None,
            ratio: None,
            latency_ratio: None,
            met: None,
            reason: None,
            goals: Vec::new(),
            unit_costs: None,
            skipped: None,
        }
    }

    /// With figures that stand alone.
    pub fn alone(mut self, ours: &Series) -> Line {
        self.rounds = ours.rounds.len();
        self.ours = Side::of(ours);
        self
    }

    /// With the comparison of two measured series.
    pub fn compared(self, ours: &Series, base: &Series, goal: Option<f64>) -> Line {
        let figures = |series: &Series| series.rounds.iter().map(|round| round.ops_s).collect::<Vec<f64>>();
        self.compared_by((ours, &figures(ours)[..]), (base, &figures(base)[..]), goal)
    }

    /// The same by a figure of each round, which stands beside its series.
    pub fn compared_by(
        mut self,
        (ours, ours_by): (&Series, &[f64]),
        (base, base_by): (&Series, &[f64]),
        goal: Option<f64>,
    ) -> Line {
        self.rounds = ours.rounds.len();
        self.ours = Side::of(ours);
        self.base = Side::of(base);
        self.ratio = Spread::of_ratios(ours_by, base_by);
        self.compare(goal);
        self.reason = goal.filter(|_| self.met == Some(false)).map(|goal| explain(ours, base, goal));
        self
    }

    /// With what latencies are to each other, too.
    pub fn with_latency_ratio(mut self) -> Line {
        let mean = |side: &Side| side.service.map(|service| service.mean_us).or(side.mean_us);
        let both = self.ours.as_ref().and_then(mean).zip(self.base.as_ref().and_then(mean));
        self.latency_ratio = both.filter(|(_, base)| *base > 0.0).map(|(ours, base)| tidy(ours / base));
        self
    }

    /// With all its goals, of which the ratio's is known already.
    pub fn with_goals(mut self, clients: u32, sides: &Sides<'_>) -> Line {
        self.goals = goals::check(&self, clients, sides);
        let missed = self.other_goals().filter(|goal| !goal.met).map(CheckedGoal::in_words);
        let reasons: Vec<String> = self.reason.iter().cloned().chain(missed).collect();
        self.reason = (!reasons.is_empty()).then(|| reasons.join("; "));
        self
    }

    /// Those that are about something else than the ratio.
    fn other_goals(&self) -> impl Iterator<Item = &CheckedGoal> {
        self.goals.iter().filter(|goal| goal.what != Figure::Ratio.what())
    }

    /// With what system calls cost here, and what an operation should cost by that. Where a goal was missed
    /// it is part of the reason.
    pub fn with_unit_costs(mut self, units: &UnitCosts) -> Line {
        self.unit_costs = Some(*units);
        for side in [&mut self.ours, &mut self.base].into_iter().flatten() {
            side.arithmetic = side.cost_per_op.as_ref().and_then(|cost| CostSum::of(cost, units));
        }
        let sum = self.ours.as_ref().and_then(|ours| ours.arithmetic.as_ref()).map(CostSum::in_words);
        if let (Some(reason), Some(sum)) = (&mut self.reason, sum) {
            *reason = format!("{reason}; {sum}");
        }
        self
    }

    /// With a comparison with a figure from a document.
    pub fn against_document(mut self, ours: &Series, label: &str, ops_s: f64) -> Line {
        self = self.alone(ours);
        self.base = Some(Side::documented(label, ops_s));
        self.ratio = Spread::of(ours.rounds.iter().map(|round| round.ops_s / ops_s));
        self
    }

    /// With a figure that is to be reached.
    pub fn at_least(self, ours: &Series, label: &str, ops_s: f64) -> Line {
        let mut line = self.against_document(ours, label, ops_s);
        line.compare(Some(1.0));
        if line.met == Some(false) {
            let (half, share) = (
                ours.latencies.value_at_quantile(0.5) as f64 / 1e6,
                line.ours.as_ref().and_then(|side| side.cpu_share),
            );
            let share = share.map_or(String::new(), |share| {
                format!(", {:.0} % of all processors were in use by it", share * 100.0)
            });
            line.reason = Some(format!("half of the statements took {half:.1} ms or more{share}"));
        }
        line
    }

    /// Skipped, with the reason.
    pub fn skipped(mut self, reason: impl Into<String>) -> Line {
        self.skipped = Some(reason.into());
        self
    }

    fn compare(&mut self, goal: Option<f64>) {
        self.goal = goal;
        let ratio = self.ratio.as_ref().map(|ratio| ratio.median);
        self.met = goal.zip(ratio).map(|(goal, ratio)| ratio >= goal);
    }

    /// The same with what an operation costs on either side.
    pub fn in_full(&self) -> String {
        let mut lines = vec![self.in_words()];
        for (name, side) in [("ours", &self.ours), ("base", &self.base)] {
            let words = side.as_ref().map(|side| costs::in_words(name, side)).unwrap_or_default();
            lines.extend(words.into_iter().map(|words| format!("  {words}")));
        }
        if let Some(sum) = self.ours.as_ref().and_then(|ours| ours.arithmetic.as_ref()) {
            lines.extend(sum.table().into_iter().map(|line| format!("  {line}")));
        }
        lines.join("\n")
    }

    /// The line in words, for people who watch.
    pub fn in_words(&self) -> String {
        let name = format!("{} {}", self.bench, self.name);
        if let Some(reason) = &self.skipped {
            return format!("{name}: skipped: {reason}");
        }
        let Some(ours) = &self.ours else { return name };
        let mut words = format!("{name}: {:.0}/s", ours.ops_s.median);
        if let Some(cpu) = ours.cpu_us_per_op {
            words += &format!(", {cpu:.1} us cpu");
        }
        if let (Some(base), Some(ratio)) = (&self.base, &self.ratio) {
            words += &format!(
                ", {:.2} ({:.2} to {:.2}) of {} ({:.0}/s)",
                ratio.median, ratio.min, ratio.max, base.label, base.ops_s.median
            );
        }
        match (self.goal, self.met, &self.reason) {
            (Some(goal), Some(true), _) => words += &format!("; goal {goal}: met"),
            (Some(goal), _, Some(reason)) => words += &format!("; goal {goal}: missed: {reason}"),
            _ => {}
        }
        self.other_goals().for_each(|goal| words += &format!("; {}", goal.in_words()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Calls;
    use crate::subject::{Sources, Way, latencies, note};
    use serde_json::json;
    use std::time::Duration;

    fn series(label: &str, figures: &[f64]) -> Series {
        let round = |ops_s: &f64| Round {
            ops_s: *ops_s,
            ops: *ops_s as u64,
            cpu_us_per_op: 20.0,
            kernel_cpu_us_per_op: None,
            cost: None,
            wire_bytes_per_op: Some(2_000.0),
            ops_per_fsync: None,
            fsyncs_s: None,
            cpu_share: 0.5,
            other_cpu_share: 0.1,
            fsync_us: None,
            p99_us: 250.0,
        };
        let mut latencies = latencies();
        note(&mut latencies, Duration::from_micros(100));
        Series {
            label: label.into(),
            settings: String::new(),
            sources: Sources { wire: "sockets", fsyncs: "nobody" },
            way: Way::ONE_LOG,
            rounds: figures.iter().map(round).collect(),
            latencies,
            service: None,
        }
    }

    fn line() -> Line {
        let machine = Machine { cores: 2, filesystem: "ext4".into() };
        Line::new("log", "test", json!({"bytes": 1024}), machine)
    }

    #[test]
    fn a_goal_that_is_met_needs_no_reason() {
        let line =
            line().compared(&series("ours", &[90.0, 80.0, 85.0]), &series("base", &[100.0; 3]), Some(0.8));
        assert_eq!((line.met, line.rounds, &line.reason), (Some(true), 3, &None));
        let ratio = line.ratio.expect("measured");
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.85, 0.8, 0.9));
    }

    #[test]
    fn a_goal_that_is_missed_has_one() {
        let line = line().compared(&series("ours", &[50.0; 3]), &series("base", &[100.0; 3]), Some(0.8));
        assert_eq!(line.met, Some(false));
        assert!(line.reason.as_deref().is_some_and(|reason| !reason.is_empty()));
        assert!(line.in_words().contains("goal 0.8: missed"), "{}", line.in_words());
    }

    #[test]
    fn a_line_is_one_json_object_with_the_agreed_names() {
        let line = line().compared(&series("ours", &[90.0]), &series("base", &[100.0]), Some(0.8));
        let text = serde_json::to_string(&line).expect("serialises");
        assert!(!text.contains('\n'));
        let value: Value = serde_json::from_str(&text).expect("reads");
        for name in [
            "bench", "name", "workload", "rounds", "machine", "ours", "base", "goal", "ratio", "met",
            "reason",
        ] {
            assert!(value.get(name).is_some(), "{name} in {text}");
        }
        assert_eq!(value["ours"]["ops_s"]["median"], json!(90.0));
        assert_eq!(value["ours"]["p50_us"], json!(100.0));
        assert_eq!(value["ours"]["spread"]["p99_us"]["max"], json!(250.0));
    }

    #[test]
    fn what_calls_cost_is_in_the_reason_of_a_goal_that_is_missed() {
        let mut ours = series("ours", &[50.0; 3]);
        let calls = Calls { writes: 2.0, ..Calls::default() };
        let cost = Cost { servers_user_us: 7.0, server_calls: Some(calls), ..Cost::default() };
        ours.rounds.iter_mut().for_each(|round| round.cost = Some(cost));
        let units = UnitCosts { write_us: 5.0, ..UnitCosts::default() };
        let line = line().compared(&ours, &series("base", &[100.0; 3]), Some(0.8)).with_unit_costs(&units);
        let sum = line.ours.as_ref().and_then(|ours| ours.arithmetic.as_ref()).expect("counted");
        assert_eq!((sum.sum_us, sum.measured_us), (17.0, 7.0));
        assert!(line.base.as_ref().is_some_and(|base| base.arithmetic.is_none()), "it counts nothing");
        let reason = line.reason.as_deref().expect("missed");
        assert!(reason.contains("; by counts an operation costs 10.0 us writes to sockets"), "{reason}");
        let full = line.in_full();
        assert!(full.contains("\n  ours: counted by the servers: 2.00 writes\n"), "{full}");
        assert!(full.contains("\n  measured  "), "{full}");
    }

    #[test]
    fn a_documented_bar_is_labelled_as_such() {
        let line = line().against_document(&series("ours", &[29_800.0]), "documented", 29_800.0);
        let base = line.base.expect("there");
        assert!(!base.measured);
        assert_eq!(line.ratio.map(|ratio| ratio.median), Some(1.0));
        assert_eq!(line.met, None);
    }
}

//! Why a goal was missed, as far as the measurement says. Nothing here is a guess: each sentence quotes the
//! figures that it rests on.

use crate::stats::median;
use crate::subject::{Round, Series};

/// From this share on, all processors count as busy: the rest is lost to switching and to the ends of rounds.
const BUSY: f64 = 0.85;
/// From this share on, others count as having disturbed.
const DISTURBED: f64 = 0.25;

/// A few sentences about a missed goal: first what bounds our side, then what an operation is made of on
/// either side.
pub fn explain(ours: &Series, base: &Series, goal: f64) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    reason(&Figures::of(ours), &Figures::of(base), goal, cores)
}

fn reason(a: &Figures, b: &Figures, goal: f64, cores: usize) -> String {
    // What the processors could do if they did nothing else, at the price that was measured.
    let most = cores as f64 * 1e6 / a.cpu_us;
    let reach = most / b.ops_s;
    let price = format!(
        "{cores} processors can do at most {most:.0}/s at that, {reach:.2} of the other side's {:.0}/s",
        b.ops_s
    );
    let cost = format!("{} of processor time per operation against {}", a.cost(), b.cost());
    let busy = format!(
        "processors were {} ours, {} other work, {} idle",
        percent(a.share),
        percent(a.other_share),
        percent(a.idle())
    );
    let mut facts = match () {
        () if reach < goal => {
            vec![format!("beyond what the processors can do: {cost}: {price}, and the goal is {goal}"), busy]
        }
        () if a.share >= BUSY => {
            vec![format!("bound by processors: our processes used {} of them, {cost}", percent(a.share))]
        }
        () if a.share + a.other_share >= BUSY => vec![format!(
            "all processors were busy ({} ours, {} other work): {cost}",
            percent(a.share),
            percent(a.other_share)
        )],
        () => vec![format!("bound by waiting, not by processors: {busy}"), format!("{cost}: {price}")],
    };
    facts.extend(a.messages_against(b));
    facts.extend(a.fsyncs_against(b));
    facts.extend(a.wire_against(b));
    facts.push(format!("median latency {:.0} us against {:.0}", a.p50_us, b.p50_us));
    if b.other_share >= DISTURBED {
        facts.push(format!(
            "other work used {} of all processors during the other side's rounds",
            percent(b.other_share)
        ));
    }
    facts.join("; ")
}

/// Medians of a side's rounds.
struct Figures {
    ops_s: f64,
    cpu_us: f64,
    kernel_us: Option<f64>,
    share: f64,
    other_share: f64,
    /// Of one node; the sum over nodes is not comparable with a single log's.
    fsyncs_s: Option<f64>,
    /// Commits per fsync of one node.
    per_fsync: Option<f64>,
    wire_bytes: Option<f64>,
    messages: f64,
    p50_us: f64,
}

impl Figures {
    fn of(series: &Series) -> Figures {
        let middle = |figure: fn(&Round) -> f64| {
            median(&series.rounds.iter().map(figure).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
        };
        let known = |figure: fn(&Round) -> Option<f64>| {
            median(&series.rounds.iter().map(figure).collect::<Option<Vec<f64>>>()?)
        };
        let way = series.way;
        Figures {
            ops_s: middle(|round| round.ops_s),
            cpu_us: middle(|round| round.cpu_us_per_op),
            kernel_us: known(|round| round.kernel_cpu_us_per_op),
            share: middle(|round| round.cpu_share),
            other_share: middle(|round| round.other_cpu_share),
            fsyncs_s: known(|round| round.fsyncs_s).map(|sum| way.fsyncs_of_one_node(sum)),
            per_fsync: known(|round| round.ops_per_fsync).map(|ops| way.commits_per_fsync(ops)),
            wire_bytes: known(|round| round.wire_bytes_per_op),
            messages: way.messages,
            p50_us: series.latencies.value_at_quantile(0.5) as f64 / 1_000.0,
        }
    }

    fn idle(&self) -> f64 {
        (1.0 - self.share - self.other_share).max(0.0)
    }

    /// `40.2 us (61 % of it in the kernel)`.
    fn cost(&self) -> String {
        match self.kernel_us {
            Some(kernel) if self.cpu_us > 0.0 => {
                format!("{:.1} us ({} of it in the kernel)", self.cpu_us, percent(kernel / self.cpu_us))
            }
            _ => format!("{:.1} us", self.cpu_us),
        }
    }

    fn messages_against(&self, base: &Figures) -> Option<String> {
        let differ = self.messages != base.messages;
        differ.then(|| {
            format!("{} messages one after another per operation against {}", self.messages, base.messages)
        })
    }

    fn fsyncs_against(&self, base: &Figures) -> Option<String> {
        let of = |figures: &Figures| {
            let (rate, per) = (figures.fsyncs_s?, figures.per_fsync?);
            // Where nothing is synced for an operation, there is nothing to compare.
            (per.is_finite() && rate >= 1.0).then(|| format!("{rate:.0} fsyncs/s of {per:.1} commits each"))
        };
        let ours = of(self)?;
        Some(match of(base) {
            Some(theirs) => format!("one node does {ours} against {theirs}"),
            None => format!("one node does {ours}"),
        })
    }

    fn wire_against(&self, base: &Figures) -> Option<String> {
        let (ours, theirs) = (self.wire_bytes?, base.wire_bytes?);
        (ours > 0.0).then(|| format!("{ours:.0} bytes on the wire per operation against {theirs:.0}"))
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Sources, Way, latencies};

    fn series(ops_s: f64, cpu_us: f64, cpu_share: f64, other: f64) -> Series {
        let round = Round {
            ops_s,
            ops: 1_000,
            cpu_us_per_op: cpu_us,
            kernel_cpu_us_per_op: Some(cpu_us * 0.6),
            cost: None,
            wire_bytes_per_op: None,
            ops_per_fsync: Some(2.0),
            fsyncs_s: Some(ops_s / 2.0),
            cpu_share,
            other_cpu_share: other,
            fsync_us: None,
            p99_us: 70.0,
        };
        let sources = Sources { wire: "", fsyncs: "" };
        let (label, settings) = (String::new(), String::new());
        let way = Way::of_copies(3, 3, true, 100);
        Series {
            label,
            settings,
            sources,
            way,
            rounds: vec![round; 3],
            latencies: latencies(),
            service: None,
        }
    }

    fn because(ours: &Series, base: &Series, goal: f64) -> String {
        reason(&Figures::of(ours), &Figures::of(base), goal, 2)
    }

    #[test]
    fn what_processors_cannot_do_is_out_of_reach_whoever_uses_them() {
        let mut none = series(150_000.0, 13.0, 0.95, 0.0);
        none.way = Way::of_copies(1, 3, false, 100);
        let said = because(&series(40_000.0, 40.0, 0.75, 0.01), &none, 0.8);
        let lead = "beyond what the processors can do: 40.0 us (60 % of it in the kernel) of processor time per operation against \
                    13.0 us (60 % of it in the kernel): 2 processors can do at most 50000/s at that, 0.33 of the other \
                    side's 150000/s, and the goal is 0.8; processors were 75 % ours, 1 % other work, 24 % idle; ";
        assert!(said.starts_with(lead), "{said}");
        assert!(said.contains("4 messages one after another per operation against 2"), "{said}");
    }

    #[test]
    fn the_reason_follows_the_figures() {
        let base = series(10_000.0, 40.0, 0.5, 0.3);
        let bound = because(&series(9_000.0, 40.0, 0.97, 0.0), &base, 1.5);
        assert!(bound.starts_with("bound by processors: our processes used 97 %"), "{bound}");
        assert!(bound.contains("other work used 30 % of all processors during the other side's"), "{bound}");
        let shared = because(&series(9_000.0, 40.0, 0.5, 0.45), &base, 1.5);
        assert!(shared.starts_with("all processors were busy (50 % ours, 45 % other work)"), "{shared}");
        let waits = because(&series(9_000.0, 40.0, 0.3, 0.1), &base, 1.5);
        assert!(
            waits.starts_with("bound by waiting, not by processors: processors were 30 % ours"),
            "{waits}"
        );
        assert!(!waits.contains("messages one after another"), "{waits}");
    }

    #[test]
    fn fsyncs_are_those_of_one_node() {
        let mut log = series(48_000.0, 14.5, 0.6, 0.0);
        log.way = Way::ONE_LOG;
        let said = because(&series(12_000.0, 20.0, 0.6, 0.0), &log, 0.5);
        let fsyncs =
            "one node does 2000 fsyncs/s of 6.0 commits each against 24000 fsyncs/s of 2.0 commits each";
        assert!(said.contains(fsyncs), "{said}");
        log.rounds.iter_mut().for_each(|round| round.fsyncs_s = None);
        let said = because(&series(12_000.0, 20.0, 0.6, 0.0), &log, 0.5);
        assert!(said.contains("one node does 2000 fsyncs/s of 6.0 commits each; "), "{said}");
    }
}

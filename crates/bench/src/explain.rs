//! Why a goal was missed, as far as the measurement says. Nothing here is a guess: each sentence quotes the figures that it
//! rests on, and where they do not point anywhere it says so.

use crate::stats::median;
use crate::subject::{Round, Series};

/// From this share on, all processors count as busy: the rest is lost to switching and to the ends of rounds.
const BUSY: f64 = 0.85;
/// From this share on, others count as having disturbed.
const DISTURBED: f64 = 0.25;

/// One sentence or two about a missed goal.
pub fn explain(ours: &Series, base: &Series) -> String {
    let (a, b) = (Figures::of(ours), Figures::of(base));
    let cost = format!("{:.1} us of processor time per operation against {:.1}", a.cpu_us, b.cpu_us);
    let disturbed = a.other_share >= DISTURBED || b.other_share >= DISTURBED;
    let noise = if disturbed {
        format!(
            "; other work used {} of all processors meanwhile ({} during the other side's rounds)",
            percent(a.other_share),
            percent(b.other_share)
        )
    } else {
        String::new()
    };
    if a.share >= BUSY {
        return format!(
            "bound by processors: our processes used {} of them, {cost}{noise}",
            percent(a.share)
        );
    }
    if a.share + a.other_share >= BUSY {
        return format!(
            "all processors were busy ({} ours, {} other work): {cost}",
            percent(a.share),
            percent(a.other_share)
        );
    }
    let mut facts = vec![format!(
        "processors were not all busy ({} ours, {} other work)",
        percent(a.share),
        percent(a.other_share)
    )];
    if let (Some(rate), Some(per)) = (a.fsyncs_s, a.per_fsync) {
        facts.push(match (b.fsyncs_s, b.per_fsync) {
            (Some(rate_b), Some(per_b)) => {
                format!("{rate:.0} fsyncs/s for {per:.1} operations each against {rate_b:.0} for {per_b:.1}")
            }
            _ => format!("{rate:.0} fsyncs/s for {per:.1} operations each"),
        });
    }
    facts.push(format!("median latency {:.0} us against {:.0}", a.p50_us, b.p50_us));
    facts.push(cost);
    format!("not analysed further: {}", facts.join("; "))
}

struct Figures {
    cpu_us: f64,
    share: f64,
    other_share: f64,
    fsyncs_s: Option<f64>,
    per_fsync: Option<f64>,
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
        Figures {
            cpu_us: middle(|round| round.cpu_us_per_op),
            share: middle(|round| round.cpu_share),
            other_share: middle(|round| round.other_cpu_share),
            fsyncs_s: known(|round| round.fsyncs_s),
            per_fsync: known(|round| round.ops_per_fsync),
            p50_us: series.latencies.value_at_quantile(0.5) as f64 / 1_000.0,
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::{Sources, latencies};

    fn series(cpu_share: f64, other: f64) -> Series {
        let round = Round {
            ops_s: 1_000.0,
            ops: 1_000,
            cpu_us_per_op: 40.0,
            wire_bytes_per_op: None,
            ops_per_fsync: Some(5.0),
            fsyncs_s: Some(200.0),
            cpu_share,
            other_cpu_share: other,
        };
        let sources = Sources { wire: "", fsyncs: "" };
        let (label, settings) = (String::new(), String::new());
        Series { label, settings, sources, rounds: vec![round; 3], latencies: latencies() }
    }

    #[test]
    fn the_reason_follows_the_figures() {
        let base = series(0.5, 0.0);
        let bound = explain(&series(0.97, 0.0), &base);
        assert!(bound.starts_with("bound by processors: our processes used 97 %"), "{bound}");
        let shared = explain(&series(0.5, 0.45), &base);
        assert!(shared.starts_with("all processors were busy (50 % ours, 45 % other work)"), "{shared}");
        let unknown = explain(&series(0.3, 0.1), &base);
        assert!(unknown.starts_with("not analysed further: processors were not all busy"), "{unknown}");
        assert!(unknown.contains("200 fsyncs/s for 5.0 operations each"), "{unknown}");
    }
}

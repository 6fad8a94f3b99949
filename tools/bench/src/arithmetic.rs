//! The sum by arithmetic: what an operation should cost by counted calls and by what each of them costs on
//! this machine, beside what was measured. What it lacks is the part that nobody has counted.

use crate::costs::{Calls, Cost};
use crate::stats::tidy;
use crate::unit_costs::UnitCosts;
use serde::Serialize;

/// What terms are called that were measured by themselves.
const NODES: &str = "user time of the nodes, measured";
const GENERATOR: &str = "user time of the generator, measured";

/// One kind of call, or what was measured by itself.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Term {
    /// What is counted.
    pub what: &'static str,
    /// How often for each operation; 1 for what was measured by itself.
    pub count: f64,
    /// Microseconds of processor time for each.
    pub unit_us: f64,
    /// Both multiplied.
    pub us: f64,
}

/// A sum of such terms, microseconds of processor time for one operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CostSum {
    /// The terms.
    pub terms: Vec<Term>,
    /// All of them.
    pub sum_us: f64,
    /// What was measured of all processes.
    pub measured_us: f64,
    /// What is measured beyond the sum: interrupts, calls that are not counted, and what calls cost more
    /// under load.
    pub rest_us: f64,
}

impl CostSum {
    /// Of what an operation cost on a side whose servers count their calls. `None` if they do not.
    pub fn of(cost: &Cost, units: &UnitCosts) -> Option<CostSum> {
        let (servers, generator) = (cost.server_calls?, cost.generator_calls.unwrap_or_default());
        let both = |figure: fn(&Calls) -> f64| figure(&servers) + figure(&generator);
        let counted = [
            ("polls", both(|calls| calls.polls), units.poll_us),
            ("reads of sockets", both(|calls| calls.reads), units.read_us),
            ("writes to sockets", both(|calls| calls.writes), units.write_us),
            ("wakes of threads", both(|calls| calls.wakes), units.wake_us),
            ("sleeps of threads", cost.wakeups + cost.generator_wakeups, units.sleep_us),
            ("writes of the log", servers.file_writes, units.file_write_us),
            ("fsyncs", servers.fsyncs, units.fsync_us),
            (NODES, 1.0, cost.servers_user_us),
            (GENERATOR, 1.0, cost.generator_user_us),
        ];
        let term = |(what, count, unit_us): (&'static str, f64, f64)| Term {
            what,
            count: tidy(count),
            unit_us: tidy(unit_us),
            us: tidy(count * unit_us),
        };
        let sum_us: f64 = counted.iter().map(|(_, count, unit_us)| count * unit_us).sum();
        let measured_us = cost.servers_us() + cost.generator_us();
        Some(CostSum {
            terms: counted.into_iter().map(term).collect(),
            sum_us: tidy(sum_us),
            measured_us: tidy(measured_us),
            rest_us: tidy(measured_us - sum_us),
        })
    }

    /// In one sentence, for the reason of a goal that was missed.
    pub fn in_words(&self) -> String {
        let term = |term: &Term| match [NODES, GENERATOR].contains(&term.what) {
            true => format!("{:.1} us {}", term.us, term.what),
            false => format!("{:.1} us {} ({} x {} us)", term.us, term.what, term.count, term.unit_us),
        };
        let terms: Vec<String> = self.terms.iter().filter(|term| term.us >= 0.05).map(term).collect();
        format!(
            "by counts an operation costs {}: together {:.1} us of {:.1} measured",
            terms.join(", "),
            self.sum_us,
            self.measured_us
        )
    }

    /// As a table, for people: a line each.
    pub fn table(&self) -> Vec<String> {
        let mut lines = vec![format!("{:<40}{:>9}{:>10}{:>10}", "by counts", "count", "us each", "us")];
        for Term { what, count, unit_us, us } in &self.terms {
            lines.push(format!("{what:<40}{count:>9.2}{unit_us:>10.2}{us:>10.1}"));
        }
        for (what, us) in [("sum", self.sum_us), ("measured", self.measured_us), ("rest", self.rest_us)] {
            lines.push(format!("{what:<40}{:>19}{us:>10.1}", ""));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units() -> UnitCosts {
        UnitCosts { poll_us: 0.5, read_us: 1.0, write_us: 4.0, wake_us: 0.5, sleep_us: 3.0, ..more() }
    }

    fn more() -> UnitCosts {
        UnitCosts { file_write_us: 2.0, fsync_us: 20.0, fsync_latency_us: 300.0, ..UnitCosts::default() }
    }

    fn cost() -> Cost {
        let server_calls =
            Calls { polls: 4.0, reads: 3.0, writes: 3.0, wakes: 2.0, file_writes: 0.5, fsyncs: 0.25 };
        Cost {
            servers_user_us: 20.0,
            servers_kernel_us: 30.0,
            generator_user_us: 4.0,
            generator_kernel_us: 6.0,
            wakeups: 2.5,
            generator_wakeups: 0.5,
            server_calls: Some(server_calls),
            generator_calls: Some(Calls { polls: 2.0, reads: 1.0, writes: 1.0, ..Calls::default() }),
            ..Cost::default()
        }
    }

    #[test]
    fn counts_times_costs_are_a_sum_beside_what_was_measured() {
        let sum = CostSum::of(&cost(), &units()).expect("counted");
        let us: Vec<f64> = sum.terms.iter().map(|term| term.us).collect();
        assert_eq!(us, [3.0, 4.0, 16.0, 1.0, 9.0, 1.0, 5.0, 20.0, 4.0]);
        assert_eq!((sum.sum_us, sum.measured_us, sum.rest_us), (63.0, 60.0, -3.0));
    }

    #[test]
    fn a_side_that_counts_no_calls_has_no_sum() {
        assert_eq!(CostSum::of(&Cost { server_calls: None, ..cost() }, &units()), None);
        let alone = Cost { generator_calls: None, ..cost() };
        let sum = CostSum::of(&alone, &units()).expect("the servers count");
        assert_eq!(sum.terms[0].count, 4.0, "what the generator does not count is not in it");
    }

    #[test]
    fn a_sum_is_told_with_its_terms() {
        let sum = CostSum::of(&cost(), &units()).expect("counted");
        let words = sum.in_words();
        assert!(words.contains("16.0 us writes to sockets (4 x 4 us)"), "{words}");
        assert!(words.contains("20.0 us user time of the nodes, measured, "), "{words}");
        assert!(words.ends_with("together 63.0 us of 60.0 measured"), "{words}");
        let table = sum.table();
        assert_eq!(table.len(), 1 + 9 + 3);
        assert!(table.iter().all(|line| line.len() == table[0].len()), "{table:?}");
    }
}

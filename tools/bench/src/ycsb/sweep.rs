//! Figures 1 to 4 of the document on replication in H-Store: throughput and latency over the share of
//! updates, for each way to replicate, with one backup and with two. (The document: ten client threads,
//! 10,000 records, 30 seconds of warm-up and 120 seconds, 300,000 transactions offered per second.)

use super::Run;
use super::arrivals::Arrivals;
use super::letters::Mix;
use super::load::OperationsUnderLoad;
use crate::cluster::TableKind;
use crate::error::{BenchError, During};
use crate::report::{Line, Side};
use crate::subject::{RoundPlan, Subject, interleave};
use plotters::prelude::*;
use std::path::Path;
use std::time::Duration;
use types::Ship;

/// Shares of updates where nothing else is asked for.
pub const SHARES: [u8; 6] = [0, 20, 40, 60, 80, 100];
/// What is offered per second with the document's times.
const PAPER_RATE: f64 = 300_000.0;
/// What `none` is compared with, and the least share of its throughput that updates alone should have with
/// two backups where each node has a share of a processor.
const POLICIES: [(&str, f64); 3] = [("async", 0.75), ("semi", 0.6), ("sync", 0.5)];
const COLOURS: [RGBColor; 4] =
    [RGBColor(120, 130, 145), RGBColor(60, 150, 90), RGBColor(31, 111, 235), RGBColor(200, 60, 60)];
const SIZE: (u32, u32) = (720, 420);

/// How long everything takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sweep {
    /// As the options say.
    Short,
    /// As in the document: hours.
    Paper,
}

/// A way to replicate.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Way {
    policy: &'static str,
    backups: u8,
    goal: f64,
}

impl Way {
    /// What the others are compared with, then the others.
    fn all() -> Vec<Way> {
        let none = Way { policy: "none", backups: 0, goal: 1.0 };
        let of = |backups| POLICIES.map(|(policy, goal)| Way { policy, backups, goal });
        [none].into_iter().chain(of(1)).chain(of(2)).collect()
    }

    fn name(self, percent: u8) -> String {
        match self.backups {
            0 => format!("sweep-none-u{percent}"),
            backups => format!("sweep-{}-b{backups}-u{percent}", self.policy),
        }
    }
}

/// What was measured of a way at a share of updates.
struct Measured {
    way: Way,
    percent: u8,
    side: Side,
}

impl Run<'_> {
    fn sweep_plan(&self) -> RoundPlan {
        let plan = self.options.common.plan();
        match self.options.sweep {
            Some(Sweep::Paper) => RoundPlan {
                rounds: 1,
                time: Duration::from_secs(120),
                warm_up: Duration::from_secs(30),
                ..plan
            },
            _ => plan,
        }
    }

    /// All four figures. `limited`: each node has a share of a processor, so ratios have goals.
    pub(super) fn sweep(&mut self, limited: bool) -> Result<(), BenchError> {
        let options = self.options;
        let shares = options.updates_or(&SHARES);
        let ways = Way::all();
        let arrivals = match options.sweep {
            Some(Sweep::Paper) if options.offer.rate.is_none() => Arrivals::Open(PAPER_RATE),
            _ => options.arrivals(),
        };
        let _ = writeln!(self.progress, "ycsb: loading {} main-memory tables", ways.len());
        let workload = options.workload(100);
        let mut tables = Vec::new();
        for way in &ways {
            let ship = if way.backups == 0 { Ship::Effects } else { options.offer.ship };
            let kind = TableKind::main_memory(way.policy, way.backups + 1, options.load.partitions);
            let kind = TableKind { ship, ..kind };
            let asked = (&workload, options.offer.asking);
            let clients = (options.load.clients, arrivals);
            tables.push(OperationsUnderLoad::new(&self.shared, &kind, asked, clients)?);
        }
        let mut measured = Vec::new();
        for percent in shares {
            let _ = writeln!(self.progress, "ycsb: {percent} % updates");
            let mut subjects: Vec<&mut dyn Subject> = Vec::new();
            for table in &mut tables {
                table.change(Mix::updates(percent), options.distribution.unwrap_or_default());
                subjects.push(table);
            }
            let series = interleave(&mut subjects, self.sweep_plan(), self.progress)?;
            for (way, ours) in ways.iter().zip(&series) {
                let mut workload = options.in_json(percent);
                workload["backups"] = way.backups.into();
                let line = Line::new("ycsb", &way.name(percent), workload, self.machine.clone());
                let goal = (limited && percent == 100 && way.backups == 2).then_some(way.goal);
                let line = match way.backups {
                    0 => line.alone(ours),
                    _ => line.compared(ours, &series[0], goal).with_latency_ratio(),
                };
                let side =
                    line.ours.clone().ok_or_else(|| BenchError::Wrong("nothing was measured".into()))?;
                measured.push(Measured { way: *way, percent, side });
                if options.common.wants(&line.name) {
                    self.done(line);
                }
            }
        }
        match &options.common.plot {
            Some(folder) => figures(folder, &measured),
            None => Ok(()),
        }
    }
}

/// Draws all four.
fn figures(folder: &Path, measured: &[Measured]) -> Result<(), BenchError> {
    std::fs::create_dir_all(folder).during(&format!("{} cannot be made", folder.display()))?;
    for (number, backups, latency) in [(1, 1, false), (2, 1, true), (3, 2, false), (4, 2, true)] {
        let path = folder.join(format!("ycsb-figure-{number}.svg"));
        let written = figure(number, backups, latency, measured).map_err(std::io::Error::other);
        let written = written.and_then(|svg| std::fs::write(&path, svg));
        written.during(&format!("{} cannot be written", path.display()))?;
    }
    Ok(())
}

/// Microseconds that an operation took on the average, from when a client was free for it.
fn latency_of(side: &Side) -> f64 {
    side.service.map_or(side.mean_us.unwrap_or(0.0), |service| service.mean_us)
}

fn figure(number: u32, backups: u8, latency: bool, measured: &[Measured]) -> Result<String, String> {
    let unit = if latency { "microseconds" } else { "operations a second" };
    let title = format!("Figure {number}: {unit}, {backups} backup{}", if backups == 1 { "" } else { "s" });
    let value = |side: &Side| if latency { latency_of(side) } else { side.ops_s.median };
    let shown = measured.iter().filter(|one| one.way.backups == backups || one.way.backups == 0);
    let shown: Vec<&Measured> = shown.collect();
    let most = shown.iter().map(|one| value(&one.side)).fold(1.0, f64::max) * 1.1;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&root, (&title, unit), most, &shown, &value).map_err(|error| error.to_string())?;
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(
    root: &Area<'_>,
    (title, unit): (&str, &str),
    most: f64,
    shown: &[&Measured],
    value: &dyn Fn(&Side) -> f64,
) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 15))
        .margin(12)
        .set_label_area_size(LabelAreaPosition::Left, 72)
        .set_label_area_size(LabelAreaPosition::Bottom, 40)
        .build_cartesian_2d(0.0..100.0, 0.0..most)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("share of updates, percent").y_desc(unit).light_line_style(WHITE).draw()?;
    let policies = ["none", "async", "semi", "sync"];
    for (policy, colour) in policies.into_iter().zip(COLOURS) {
        let of = shown.iter().filter(|one| one.way.policy == policy);
        let points: Vec<(f64, f64)> = of.map(|one| (f64::from(one.percent), value(&one.side))).collect();
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(line)?;
        drawn.label(policy).legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour));
    }
    let mut labels = chart.configure_series_labels();
    labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_a_line_in_each_of_its_figures() {
        let side = |ops| Side { mean_us: Some(1e6 / ops), ..Side::documented("", ops) };
        let measured: Vec<Measured> = Way::all()
            .into_iter()
            .flat_map(|way| {
                [0, 100].map(|percent| Measured { way, percent, side: side(100.0 + f64::from(percent)) })
            })
            .collect();
        for backups in [1, 2] {
            for latency in [false, true] {
                let svg = figure(3, backups, latency, &measured).expect("draws");
                for policy in ["none", "async", "semi", "sync"] {
                    assert!(svg.contains(policy), "{policy} in {svg}");
                }
                assert!(svg.contains("share of updates"));
                assert_eq!(svg.contains("microseconds"), latency);
                for colour in ["#788291", "#3C965A", "#1F6FEB", "#C83C3C"] {
                    // A dot for each share, and the line between them.
                    assert!(svg.matches(colour).count() >= 3, "{colour} in {svg}");
                }
            }
        }
    }

    #[test]
    fn names_say_policy_backups_and_share() {
        let names: Vec<String> = Way::all().into_iter().map(|way| way.name(20)).collect();
        assert_eq!(names[0], "sweep-none-u20");
        assert_eq!(names[6], "sweep-sync-b2-u20");
        assert_eq!(names.len(), 7);
    }
}

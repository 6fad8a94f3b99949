//! Figures in the shape of the document's: groups of bars, times above and increases in percent below.

use super::point::{Point, Shape};
use crate::error::BenchError;
use crate::options::Common;
use crate::plot::{COLOURS, PANEL, put};
use crate::stats::Spread;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What of a group's width its bars take together.
const FILLED: f64 = 0.8;

/// Writes an experiment's figure into the folder that the options name, if they name one.
pub(super) fn write(common: &Common, shape: &Shape, points: &[Point]) -> Result<(), BenchError> {
    put(common, &format!("gleambook-{}.svg", shape.name), || draw(shape, points))
}

/// One panel's bars.
struct Panel<'a> {
    title: String,
    unit: &'a str,
    places: Vec<&'a str>,
    series: Vec<&'a str>,
    bars: Vec<(usize, usize, &'a Spread)>,
}

impl<'a> Panel<'a> {
    fn of(
        title: String,
        unit: &'a str,
        points: &'a [Point],
        value: impl Fn(&'a Point) -> Option<&'a Spread>,
    ) -> Panel<'a> {
        let shown: Vec<(&Point, &Spread)> =
            points.iter().filter_map(|point| Some((point, value(point)?))).collect();
        let places = distinct(shown.iter().map(|(point, _)| point.at.as_str()));
        let series = distinct(points.iter().map(|point| point.series.as_str()));
        let at = |list: &[&str], name: &str| list.iter().position(|other| *other == name).unwrap_or(0);
        let bars = shown
            .iter()
            .map(|(point, spread)| (at(&places, &point.at), at(&series, &point.series), *spread))
            .collect();
        Panel { title, unit, places, series, bars }
    }

    /// The lowest and the highest value on the axis: zero is always there.
    fn range(&self) -> (f64, f64) {
        let low = self.bars.iter().map(|(.., spread)| spread.min).fold(0.0, f64::min);
        let high = self.bars.iter().map(|(.., spread)| spread.max).fold(0.0, f64::max);
        let room = ((high - low) * 0.08).max(f64::MIN_POSITIVE);
        if high == low { (0.0, 1.0) } else { (if low < 0.0 { low - room } else { 0.0 }, high + room) }
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The figure as SVG.
fn draw(shape: &Shape, points: &[Point]) -> Result<String, String> {
    let title = |what: &str| format!("{}: {what}", shape.title);
    let mut panels = vec![Panel::of(title(shape.unit), shape.unit, points, |point| point.value.as_ref())];
    if points.iter().any(|point| point.increase_percent.is_some()) {
        panels.push(Panel::of(title("increase"), "percent", points, |point| point.increase_percent.as_ref()));
    }
    let mut svg = String::new();
    {
        let size = (PANEL.0, PANEL.1 * panels.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(|error| error.to_string())?;
        for (area, panel) in root.split_evenly((panels.len(), 1)).iter().zip(&panels) {
            draw_panel(area, panel, shape.across).map_err(|error| error.to_string())?;
        }
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(area: &Area<'_>, panel: &Panel<'_>, across: &str) -> Result<(), Box<dyn std::error::Error>> {
    let (low, high) = panel.range();
    let groups = panel.places.len().max(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 15))
        .margin(12)
        .margin_bottom(36)
        .set_label_area_size(LabelAreaPosition::Left, 64)
        .build_cartesian_2d(0.0..groups, low..high)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc(panel.unit)
        .light_line_style(WHITE)
        .draw()?;
    let names = TextStyle::from(("sans-serif", 12)).pos(Pos::new(HPos::Center, VPos::Top));
    for (place, name) in panel.places.iter().enumerate() {
        let below = EmptyElement::at((place as f64 + 0.5, low)) + Text::new(name.to_string(), (0, 6), &names);
        chart.plotting_area().draw(&below)?;
    }
    let below = EmptyElement::at((groups / 2.0, low)) + Text::new(across.to_string(), (0, 22), &names);
    chart.plotting_area().draw(&below)?;
    let width = FILLED / panel.series.len().max(1) as f64;
    for (at, name) in panel.series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let left = |place: usize| place as f64 + (1.0 - FILLED) / 2.0 + width * at as f64;
        let bars = panel.bars.iter().filter(|(_, series, _)| *series == at);
        let rectangles = bars.clone().map(|(place, _, spread)| {
            let (from, to) = (left(*place), left(*place) + width * 0.94);
            Rectangle::new([(from, 0.0), (to, spread.median)], colour.filled())
        });
        let drawn = chart.draw_series(rectangles)?;
        drawn
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()));
        // The slowest and the fastest round.
        chart.draw_series(bars.filter(|(.., spread)| spread.rounds.len() > 1).map(
            |(place, _, spread)| {
                let middle = left(*place) + width * 0.47;
                PathElement::new([(middle, spread.min), (middle, spread.max)], BLACK)
            },
        ))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::point::tests::{SHAPE, point};
    use super::*;

    #[test]
    fn every_point_has_a_bar_and_increases_have_a_panel() {
        let points = [
            point("10k", "factor 1", 2.0, None),
            point("10k", "factor 3", 2.5, Some(25.0)),
            point("20k", "factor 1", 4.0, None),
            point("20k", "factor 3 & more", 4.8, Some(-3.0)),
        ];
        let svg = draw(&SHAPE, &points).expect("draws");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for colour in ["#1F6FEB", "#EB8C1F", "#3C965A"] {
            assert!(svg.contains(colour), "{colour} in {svg}");
        }
        assert!(svg.contains("factor 3 &amp; more") && svg.contains("10k") && svg.contains("20k"));
        assert!(svg.contains("ingestion: seconds") && svg.contains("ingestion: increase"));
        let alone = draw(&SHAPE, &points[..1]).expect("draws");
        assert!(!alone.contains("ingestion: increase"));
    }

    #[test]
    fn the_axis_holds_zero_and_every_round() {
        let points = [point("a", "s", 5.0, Some(-2.0))];
        let value = Panel::of("t".into(), "u", &points, |point| point.value.as_ref());
        let (low, high) = value.range();
        assert!(low == 0.0 && high > 5.0);
        let increase = Panel::of("t".into(), "u", &points, |point| point.increase_percent.as_ref());
        let (low, high) = increase.range();
        assert!(low < -2.0 && high > 0.0);
        let none = Panel::of("t".into(), "u", &[], |point| point.value.as_ref());
        assert_eq!(none.range(), (0.0, 1.0));
    }
}

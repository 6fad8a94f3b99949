//! Figures with lines: one quantity over another, or over time.

use crate::error::BenchError;
use crate::options::Common;
use crate::plot::{COLOURS, PANEL, put};
use plotters::prelude::*;

/// One panel of a figure.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub title: String,
    pub across: &'static str,
    pub unit: &'static str,
    /// Each with its name.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Where something happened.
    pub mark: Option<f64>,
}

/// Writes a figure into the folder that the options name, if they name one.
pub(super) fn write(common: &Common, name: &str, panels: &[Panel]) -> Result<(), BenchError> {
    put(common, &format!("txn-{name}.svg"), || draw(panels))
}

fn draw(panels: &[Panel]) -> Result<String, String> {
    let mut svg = String::new();
    {
        let size = (PANEL.0, PANEL.1 * panels.len().max(1) as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(|error| error.to_string())?;
        for (area, panel) in root.split_evenly((panels.len().max(1), 1)).iter().zip(panels) {
            draw_panel(area, panel).map_err(|error| error.to_string())?;
        }
        root.present().map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Result<(), Box<dyn std::error::Error>> {
    let points = || panel.lines.iter().flat_map(|(_, points)| points);
    let right = points().map(|(x, _)| *x).fold(1e-9, f64::max) * 1.05;
    let top = points().map(|(_, y)| *y).fold(1e-9, f64::max) * 1.15;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 15))
        .margin(12)
        .set_label_area_size(LabelAreaPosition::Left, 64)
        .set_label_area_size(LabelAreaPosition::Bottom, 40)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(panel.across).y_desc(panel.unit).light_line_style(WHITE).draw()?;
    for ((name, points), colour) in panel.lines.iter().zip(COLOURS.iter().cycle().copied()) {
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(2);
        let drawn = chart.draw_series(line)?;
        drawn.label(name.as_str()).legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour));
    }
    if let Some(mark) = panel.mark {
        chart.draw_series([PathElement::new([(mark, 0.0), (mark, top)], BLACK.mix(0.6))])?;
    }
    let mut labels = chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_name_and_its_points() {
        let panel = |title: &str, mark| Panel {
            title: title.into(),
            across: "transactions a second",
            unit: "ms",
            lines: vec![
                ("lazy & quick".into(), vec![(1.0, 2.0), (3.0, 4.0)]),
                ("synchronous".into(), vec![(1.0, 3.0)]),
            ],
            mark,
        };
        let svg = draw(&[panel("one", None), panel("other", Some(2.0))]).expect("draws");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["one", "other", "lazy &amp; quick", "synchronous", "transactions a second", "#EB8C1F"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(draw(&[]).is_ok());
    }
}

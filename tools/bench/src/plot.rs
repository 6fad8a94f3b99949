//! Lines drawn as bars: one SVG file for a bench, plain text without a library. And what other figures share,
//! which a library draws.

use crate::error::{BenchError, During};
use crate::options::Common;
use crate::report::{Line, Side};
use plotters::prelude::RGBColor;
use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 20.0;
const BAR: f64 = 16.0;
const GROUP: f64 = 78.0;
const TOP: f64 = 44.0;
/// The longest bar; the rest is for its figure.
const SPAN: f64 = WIDTH - 2.0 * LEFT - 190.0;

/// Width and height of a panel of a figure, in points.
pub(crate) const PANEL: (u32, u32) = (820, 380);
/// What series are drawn in, one after the other.
pub(crate) const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 111, 235),
    RGBColor(235, 140, 31),
    RGBColor(60, 150, 90),
    RGBColor(160, 80, 180),
    RGBColor(120, 130, 145),
    RGBColor(200, 60, 60),
];

/// Puts a figure into the folder that the options name, if they name one. It is drawn only then.
pub(crate) fn put(
    common: &Common,
    file: &str,
    draw: impl FnOnce() -> Result<String, String>,
) -> Result<(), BenchError> {
    let Some(folder) = &common.plot else { return Ok(()) };
    let path = folder.join(file);
    let written = draw().map_err(std::io::Error::other).and_then(|svg| {
        std::fs::create_dir_all(folder)?;
        std::fs::write(&path, svg)
    });
    written.during(&format!("{} cannot be written", path.display()))
}

/// Draws the lines into the folder that the options name, if they name one.
pub(crate) fn write(common: &Common, bench: &str, lines: &[Line]) -> Result<(), BenchError> {
    put(common, &format!("bench-{bench}.svg"), || Ok(draw(bench, lines)))
}

/// Two bars for each line: ours and what it is compared with. A thin mark spans the slowest and the fastest
/// round.
pub fn draw(bench: &str, lines: &[Line]) -> String {
    let shown: Vec<&Line> = lines.iter().filter(|line| line.ours.is_some()).collect();
    let height = TOP + GROUP * shown.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">understudy bench {}: operations a second</text>\n",
        escape(bench)
    );
    for (at, line) in shown.iter().enumerate() {
        let y = TOP + GROUP * at as f64;
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\">{}</text>", y + 12.0, escape(&title(line)));
        let sides = [(line.ours.as_ref(), "#1f6feb"), (line.base.as_ref(), "#9aa4b2")];
        let most = sides.iter().filter_map(|(side, _)| Some((*side)?.ops_s.max)).fold(1.0, f64::max);
        for (row, (side, colour)) in sides.into_iter().enumerate() {
            if let Some(side) = side {
                bar(&mut svg, y + 20.0 + (BAR + 4.0) * row as f64, side, colour, SPAN / most);
            }
        }
    }
    svg + "</svg>\n"
}

fn bar(svg: &mut String, y: f64, side: &Side, colour: &str, scale: f64) {
    let length = side.ops_s.median * scale;
    let (low, high) = (LEFT + side.ops_s.min * scale, LEFT + side.ops_s.max * scale);
    let middle = y + BAR / 2.0;
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\"><title>{}</title></rect>\n\
         <line x1=\"{low:.1}\" y1=\"{middle}\" x2=\"{high:.1}\" y2=\"{middle}\" stroke=\"black\"/>\n\
         <text x=\"{:.1}\" y=\"{}\">{:.0}/s  {}</text>",
        escape(&side.label),
        high.max(LEFT + length) + 6.0,
        y + BAR - 4.0,
        side.ops_s.median,
        escape(&shortened(&side.label)),
    );
}

fn title(line: &Line) -> String {
    let mut title = line.name.clone();
    if let Some(ratio) = &line.ratio {
        let _ = write!(title, ": ratio {:.2} ({:.2} to {:.2})", ratio.median, ratio.min, ratio.max);
    }
    if let Some(goal) = line.goal {
        let word = if line.met == Some(true) { "met" } else { "missed" };
        let _ = write!(title, ", goal {goal}: {word}");
    }
    title
}

fn shortened(label: &str) -> String {
    if label.chars().count() <= 18 { label.into() } else { label.chars().take(17).chain(['…']).collect() }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Machine;
    use serde_json::json;

    #[test]
    fn every_measured_line_has_its_bars() {
        let machine = Machine { cores: 2, filesystem: "ext4".into() };
        let mut line = Line::new("log", "a<b", json!({}), machine.clone());
        line.ours = Some(Side::documented("ours & theirs", 100.0));
        line.base = Some(Side::documented("base", 200.0));
        let skipped = Line::new("log", "left out", json!({}), machine).skipped("not installed");
        let svg = draw("log", &[line, skipped]);
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.matches("<rect x=").count(), 2);
        assert!(svg.contains("a&lt;b") && svg.contains("ours &amp; theirs"));
        assert!(!svg.contains("left out"));
    }
}

//! Throughput over time: as bars for a terminal, and as an SVG file. Both from the same numbers, neither
//! needs a library.

use std::fmt::Write;

/// A moment to be marked.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// Seconds since the start.
    pub at: f64,
    /// One or two words.
    pub text: String,
}

/// What is drawn.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    /// What it is about.
    pub title: String,
    /// Operations in each slice of time.
    pub counts: Vec<u32>,
    /// The length of a slice, in seconds.
    pub slice: f64,
    /// What happened when.
    pub marks: Vec<Mark>,
}

/// Rows of bars in the terminal.
const ROWS: usize = 8;
/// The most columns of bars in the terminal.
const COLUMNS: usize = 72;

impl Series {
    /// Operations per second in each of at most `columns` columns of equal time.
    fn rates(&self, columns: usize) -> Vec<f64> {
        let per_column = self.counts.len().div_ceil(columns.max(1)).max(1);
        let rate = |slices: &[u32]| {
            let sum: u64 = slices.iter().map(|count| u64::from(*count)).sum();
            sum as f64 / (slices.len() as f64 * self.slice)
        };
        self.counts.chunks(per_column).map(rate).collect()
    }

    /// How long a column of [`Series::rates`] is, in seconds.
    fn column_seconds(&self, columns: usize) -> f64 {
        self.counts.len().div_ceil(columns.max(1)).max(1) as f64 * self.slice
    }

    /// As text: bars, a line of time, and the marks below.
    pub fn to_text(&self) -> String {
        let rates = self.rates(COLUMNS);
        let top = nice_top(rates.iter().copied().fold(0.0, f64::max));
        let mut text = format!("{} (operations per second)\n", self.title);
        for row in (0..ROWS).rev() {
            let label = if row == ROWS - 1 { short(top) } else { String::new() };
            let bar = |rate: &f64| {
                let eighths = (rate / top * (ROWS * 8) as f64).round() as usize;
                [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][eighths.saturating_sub(row * 8).min(8)]
            };
            let bars: String = rates.iter().map(bar).collect();
            let _ = writeln!(text, "{}", format!("{label:>7} │{bars}").trim_end());
        }
        let _ = writeln!(text, "{:>7} └{}", 0, "─".repeat(rates.len()));
        let seconds = self.column_seconds(COLUMNS);
        let mut line: Vec<char> = vec![' '; rates.len() + 1];
        for (number, mark) in self.marks.iter().enumerate() {
            let column = ((mark.at / seconds) as usize).min(rates.len());
            line[column] = letter(number);
        }
        let line: String = line.into_iter().collect();
        let _ = writeln!(text, "{}", format!("{:>7}  {line}", "").trim_end());
        for (number, mark) in self.marks.iter().enumerate() {
            let _ = writeln!(text, "{:>7}  {} {:.1} s: {}", "", letter(number), mark.at, mark.text);
        }
        text
    }

    /// As an SVG document.
    pub fn to_svg(&self) -> String {
        let (width, height, left, top_edge, bottom) = (960.0, 360.0, 70.0, 40.0, 50.0);
        let plot = (width - left - 20.0, height - top_edge - bottom);
        let columns = 200;
        let rates = self.rates(columns);
        let total = (self.counts.len() as f64 * self.slice).max(self.slice);
        let top = nice_top(rates.iter().copied().fold(0.0, f64::max));
        let x = |seconds: f64| left + seconds / total * plot.0;
        let y = |rate: f64| top_edge + plot.1 - rate / top * plot.1;
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"{left}\" y=\"22\" font-size=\"15\">{}</text>",
            escape(&self.title)
        );
        for quarter in 0..=4 {
            let rate = top * f64::from(quarter) / 4.0;
            let at = y(rate);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#dddddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left + plot.0,
                left - 8.0,
                at + 4.0,
                short(rate)
            );
        }
        let seconds = self.column_seconds(columns);
        let mut path = format!("M{left:.1},{:.1}", y(0.0));
        for (column, rate) in rates.iter().enumerate() {
            let (from, to) = (x(column as f64 * seconds), x(((column + 1) as f64 * seconds).min(total)));
            let _ = write!(path, " L{from:.1},{0:.1} L{to:.1},{0:.1}", y(*rate));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path} L{:.1},{:.1} Z\" fill=\"#7aa6d8\" stroke=\"#2c5f9e\" stroke-width=\"1\"/>",
            x(total),
            y(0.0)
        );
        self.svg_marks(&mut svg, &x, top_edge, y(0.0));
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{total:.0} s</text>\n</svg>",
            left + plot.0,
            y(0.0) + 18.0
        );
        svg
    }

    fn svg_marks(&self, svg: &mut String, x: &dyn Fn(f64) -> f64, top: f64, bottom: f64) {
        for (number, mark) in self.marks.iter().enumerate() {
            let (at, text) = (x(mark.at), escape(&mark.text));
            // Neighbours are written at different heights, so that they can be read.
            let height = bottom + 18.0 + f64::from(number as u32 % 2) * 15.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{top:.1}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" stroke=\"#c0392b\" \
                 stroke-dasharray=\"4 3\"/><text x=\"{at:.1}\" y=\"{height:.1}\" text-anchor=\"middle\" \
                 fill=\"#c0392b\">{text} {:.1} s</text>",
                mark.at
            );
        }
    }
}

fn letter(number: usize) -> char {
    char::from(b'A' + (number % 26) as u8)
}

/// The next round number at or above `most`.
fn nice_top(most: f64) -> f64 {
    let most = most.max(1.0);
    let power = 10f64.powf(most.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * power).find(|top| *top >= most).unwrap_or(most)
}

/// A number in at most five characters.
fn short(number: f64) -> String {
    match number {
        n if n >= 10_000.0 => format!("{:.0}k", n / 1000.0),
        n if n >= 1000.0 => format!("{:.1}k", n / 1000.0),
        n => format!("{n:.0}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;

//! Lines over time, drawn as SVG: the last minutes from left to right, gaps where nobody told anything.

use super::history::SECONDS;
use super::parts::esc;
use std::fmt::Write as _;

/// The height of a drawing, in its own units. Its width is a unit a second.
const HEIGHT: f64 = 100.0;

/// What is drawn.
pub(super) struct Chart<'a> {
    /// Names it on the page.
    pub id: &'a str,
    /// What it shows.
    pub title: &'a str,
    /// A value a second; `None`: not known.
    pub values: &'a [Option<u64>],
    /// How a value is written.
    pub text: fn(u64) -> String,
    /// Where the scale of a line that reaches so far ends. Never 0, so that a quiet line does not look wild.
    pub top: fn(u64) -> u64,
    /// Moments to be marked: the place of the second, and what happened.
    pub marks: &'a [(usize, String)],
}

impl Chart<'_> {
    /// The drawing with its title and scale. What it says at each second is beside it for the script that
    /// shows them one by one.
    pub fn draw(&self, out: &mut String) {
        let top = (self.top)(self.values.iter().flatten().copied().max().unwrap_or(0));
        let now = self.values.iter().rev().flatten().next();
        let _ = write!(
            out,
            "<figure class=\"chart\" id=\"chart-{id}\" data-texts=\"{texts}\">\
             <figcaption><span>{title}</span><b>{now}</b></figcaption>\
             <div class=\"plot\"><svg viewBox=\"0 0 {width} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{title} over the last {minutes} minutes\">",
            id = esc(self.id),
            title = esc(self.title),
            texts = join(self.values, |value| (self.text)(value)),
            now = now.map_or_else(|| "-".into(), |value| esc(&(self.text)(*value))),
            width = SECONDS - 1,
            minutes = SECONDS / 60,
        );
        let _ = write!(out, "<path class=\"grid\" d=\"M0 1H{0}M0 50H{0}M0 99H{0}\"/>", SECONDS - 1);
        for (place, what) in self.marks {
            let _ = write!(
                out,
                "<path class=\"mark\" d=\"M{place} 0V{HEIGHT}\"><title>{}</title></path>",
                esc(what)
            );
        }
        let (line, area) = paths(self.values, top);
        let _ = write!(out, "<path class=\"area\" d=\"{area}\"/><path class=\"line\" d=\"{line}\"/></svg>");
        let _ = write!(
            out,
            "<span class=\"top\">{}</span><span class=\"from\">{} min ago</span><span class=\"to\">now</span></div></figure>",
            esc(&(self.text)(top)),
            SECONDS / 60
        );
    }
}

/// Equal neighbours are written once: a quiet line is short.
fn join(values: &[Option<u64>], text: impl Fn(u64) -> String) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < values.len() {
        let same = values[at..].iter().take_while(|value| **value == values[at]).count();
        let text = values[at].map_or_else(String::new, &text);
        let times = if same > 1 { format!("*{same}") } else { String::new() };
        let _ = write!(out, "{}{}{times}", if at == 0 { "" } else { "|" }, esc(&text));
        at += same;
    }
    out
}

/// The line, and the same closed down to the ground.
fn paths(values: &[Option<u64>], top: u64) -> (String, String) {
    let (mut line, mut area) = (String::new(), String::new());
    let mut begun: Option<usize> = None;
    for (place, value) in values.iter().enumerate() {
        match (value, begun) {
            (Some(value), _) => {
                let height = HEIGHT - 1.0 - *value as f64 / top as f64 * (HEIGHT - 2.0);
                let _ = write!(line, "{}{place} {height:.1}", if begun.is_some() { "L" } else { "M" });
                let _ = match begun {
                    Some(_) => write!(area, "L{place} {height:.1}"),
                    None => write!(area, "M{place} {HEIGHT}L{place} {height:.1}"),
                };
                begun = Some(place);
            }
            (None, Some(last)) => {
                let _ = write!(area, "L{last} {HEIGHT}Z");
                begun = None;
            }
            (None, None) => {}
        }
    }
    if let Some(last) = begun {
        let _ = write!(area, "L{last} {HEIGHT}Z");
    }
    (line, area)
}

/// The next number that is good at the end of a scale: 1, 2 or 5 with zeros.
pub(super) fn nice(value: u64) -> u64 {
    let mut step = 1u64;
    loop {
        for factor in [1, 2, 5] {
            if let Some(end) = step.checked_mul(factor).filter(|end| *end >= value.max(1)) {
                return end;
            }
        }
        match step.checked_mul(10) {
            Some(next) => step = next,
            None => return u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_good_numbers() {
        assert_eq!([0, 1, 3, 9, 11, 4_999, 5_001].map(nice), [1, 1, 5, 10, 20, 5_000, 10_000]);
        assert_eq!(nice(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_gap_parts_the_line() {
        let (line, area) = paths(&[Some(0), Some(10), None, Some(5)], 10);
        assert_eq!(line, "M0 99.0L1 1.0M3 50.0");
        assert_eq!(area, "M0 100L0 99.0L1 1.0L1 100ZM3 100L3 50.0L3 100Z");
        assert_eq!(join(&[None, None, Some(7), Some(7), Some(8)], |value| value.to_string()), "*2|7*2|8");
    }
}

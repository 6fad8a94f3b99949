//! What is drawn, character by character.

use super::*;

fn series() -> Series {
    let counts = [8, 8, 8, 8, 0, 0, 4, 8, 8, 8].map(|count| count * 100).to_vec();
    let mark = |at, text: &str| Mark { at, text: text.into() };
    Series {
        title: "durable & <kill>".into(),
        counts,
        slice: 1.0,
        marks: vec![mark(4.0, "node 1 killed"), mark(7.5, "back")],
    }
}

#[test]
fn bars_for_a_terminal() {
    let expected = "\
durable & <kill> (operations per second)
    800 │████   ███
        │████   ███
        │████   ███
        │████   ███
        │████  ████
        │████  ████
        │████  ████
        │████  ████
      0 └──────────
             A  B
         A 4.0 s: node 1 killed
         B 7.5 s: back
";
    assert_eq!(series().to_text(), expected);
}

#[test]
fn long_runs_are_drawn_in_as_many_columns_as_fit() {
    let long = Series { counts: vec![100; 200], slice: 0.1, title: "x".into(), marks: Vec::new() };
    let text = long.to_text();
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!((60..=82).contains(&longest), "{text}");
    assert!(text.contains("   1.0k │█"), "{text}");
    assert_eq!(Series::default().to_text().lines().count(), ROWS + 3);
}

#[test]
fn the_svg_has_the_area_the_marks_and_nothing_unescaped() {
    let svg = series().to_svg();
    let expected = "\
<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 360\" font-family=\"sans-serif\" font-size=\"12\">
<rect width=\"960\" height=\"360\" fill=\"#ffffff\"/>
<text x=\"70\" y=\"22\" font-size=\"15\">durable &amp; &lt;kill&gt;</text>
<line x1=\"70\" y1=\"310.0\" x2=\"940.0\" y2=\"310.0\" stroke=\"#dddddd\"/><text x=\"62.0\" y=\"314.0\" text-anchor=\"end\">0</text>
<line x1=\"70\" y1=\"242.5\" x2=\"940.0\" y2=\"242.5\" stroke=\"#dddddd\"/><text x=\"62.0\" y=\"246.5\" text-anchor=\"end\">200</text>
<line x1=\"70\" y1=\"175.0\" x2=\"940.0\" y2=\"175.0\" stroke=\"#dddddd\"/><text x=\"62.0\" y=\"179.0\" text-anchor=\"end\">400</text>
<line x1=\"70\" y1=\"107.5\" x2=\"940.0\" y2=\"107.5\" stroke=\"#dddddd\"/><text x=\"62.0\" y=\"111.5\" text-anchor=\"end\">600</text>
<line x1=\"70\" y1=\"40.0\" x2=\"940.0\" y2=\"40.0\" stroke=\"#dddddd\"/><text x=\"62.0\" y=\"44.0\" text-anchor=\"end\">800</text>
<path d=\"M70.0,310.0 L70.0,40.0 L157.0,40.0 L157.0,40.0 L244.0,40.0 L244.0,40.0 L331.0,40.0 L331.0,40.0 L418.0,40.0 L418.0,310.0 L505.0,310.0 L505.0,310.0 L592.0,310.0 L592.0,175.0 L679.0,175.0 L679.0,40.0 L766.0,40.0 L766.0,40.0 L853.0,40.0 L853.0,40.0 L940.0,40.0 L940.0,310.0 Z\" fill=\"#7aa6d8\" stroke=\"#2c5f9e\" stroke-width=\"1\"/>
<line x1=\"418.0\" y1=\"40.0\" x2=\"418.0\" y2=\"310.0\" stroke=\"#c0392b\" stroke-dasharray=\"4 3\"/><text x=\"418.0\" y=\"328.0\" text-anchor=\"middle\" fill=\"#c0392b\">node 1 killed 4.0 s</text>
<line x1=\"722.5\" y1=\"40.0\" x2=\"722.5\" y2=\"310.0\" stroke=\"#c0392b\" stroke-dasharray=\"4 3\"/><text x=\"722.5\" y=\"343.0\" text-anchor=\"middle\" fill=\"#c0392b\">back 7.5 s</text>
<text x=\"940.0\" y=\"328.0\" text-anchor=\"end\">10 s</text>
</svg>
";
    assert_eq!(svg, expected);
}

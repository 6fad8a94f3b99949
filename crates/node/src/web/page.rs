//! The page as a whole: sections that are drawn once for everybody who looks, and sent anew where they
//! changed.

use super::chart::{Chart, nice};
use super::history::SECONDS;
use super::look::Look;
use super::parts;
use client::view::overview::size;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A drawn cluster map.
pub(super) struct Page {
    me: u32,
    sections: [(&'static str, String); 6],
}

impl Page {
    /// Draws it.
    pub fn draw(look: &Look) -> Page {
        let sections = [
            ("summary", parts::summary(look)),
            ("charts", charts(look)),
            ("tables", parts::tables(look)),
            ("nodes", parts::nodes(look)),
            ("partitions", parts::partitions(look)),
            ("failovers", parts::failovers(look)),
        ];
        Page { me: look.me, sections }
    }

    /// The sections that are not as in the cluster map before, as a JSON object of HTML by name. `None`: all
    /// are.
    pub fn changed_since(&self, before: Option<&Page>) -> Option<String> {
        let same = |at: usize| before.is_some_and(|before| before.sections[at].1 == self.sections[at].1);
        let changed: BTreeMap<&str, &str> = (0..self.sections.len())
            .filter(|at| !same(*at))
            .map(|at| (self.sections[at].0, self.sections[at].1.as_str()))
            .collect();
        let text = || serde_json::to_string(&changed).expect("text only");
        (!changed.is_empty()).then(text)
    }

    /// The document.
    pub fn document(&self, operable: bool) -> String {
        let mut out = String::with_capacity(64 * 1024);
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>Understudy</title>\n\
             <link rel=\"icon\" href=\"{ICON}\">\n<link rel=\"stylesheet\" href=\"/page.css\">\n\
             <script src=\"/live.js\" defer></script>\n\
             <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n</head>\n<body>\n\
             <header><h1>Understudy</h1><p>as node {} sees it</p>\
             <p id=\"live\" role=\"status\">read when the page was loaded</p>{}</header>\n<main>\n",
            self.me,
            if operable { OPERATOR } else { "" },
        );
        for (name, html) in &self.sections {
            let _ = writeln!(out, "<section id=\"{name}\">{html}</section>");
        }
        out.push_str("</main>\n<div id=\"tip\" hidden></div>\n</body>\n</html>\n");
        out
    }
}

/// A little stage: two in the wings.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                    %3Ccircle cx='8' cy='5' r='3.5' fill='%233b6fd4'/%3E%3Ccircle cx='3.5' cy='12' r='2.5' fill='%2390a8d8'/%3E\
                    %3Ccircle cx='12.5' cy='12' r='2.5' fill='%2390a8d8'/%3E%3C/svg%3E";

/// Where an operator gives the token; a script sends it with each command, and nothing else does.
const OPERATOR: &str = "<form id=\"operator\" autocomplete=\"off\" hidden><label>operator's token \
                        <input type=\"password\" name=\"token\" size=\"12\"></label> <button>operate</button> \
                        <output id=\"said\"></output></form>";

fn charts(look: &Look) -> String {
    let marks: Vec<(usize, String)> = look
        .failovers
        .iter()
        .filter_map(|line| {
            let place = (line.at_ms / 1000).checked_sub(look.series.begin)?;
            let what = format!("failover of {}, node {} to node {}", line.table, line.from, line.to);
            (place < SECONDS as u64).then_some((place as usize, what))
        })
        .collect();
    let mut out = String::from("<h2>The last minutes</h2><div class=\"charts\">");
    let series = &look.series;
    let chart = |id, title, values, text, top| Chart { id, title, values, text, top, marks: &marks };
    let commits: fn(u64) -> u64 = |most| nice(most.max(10));
    chart("commits", "Commits a second", &series.commits, parts::number, commits).draw(&mut out);
    chart("lag", "Largest lag of a copy", &series.lag_us, parts::micros, |most| nice(most.max(10_000)))
        .draw(&mut out);
    chart("behind", "Most bytes a copy is behind", &series.lag_bytes, size, |most| {
        most.max(10 << 10).checked_next_power_of_two().unwrap_or(u64::MAX)
    })
    .draw(&mut out);
    out.push_str("</div>");
    out
}

#[cfg(test)]
mod tests {
    use super::super::look::Series;
    use super::*;
    use client::view::failovers::Line;
    use client::view::overview::{NodeLine, Overview, PartitionLine, ReplicaLine, TableLine};

    /// A name that would be a script if it were not escaped.
    const EVIL: &str = "<script>alert('\"&')</script>";

    fn replica(node: u32, role: &str) -> ReplicaLine {
        ReplicaLine {
            node,
            role: role.into(),
            heard: true,
            received: 12_345,
            durable: 12_000,
            applied: 12_345,
            committed: 12_300,
            persisted: 0,
            lag_bytes: 3 << 20,
            lag_seconds: 0.25,
            failback: Default::default(),
        }
    }

    fn failover() -> Line {
        Line {
            id: 7,
            partition: 64,
            table: EVIL.into(),
            cause: "suspected".into(),
            from: 2,
            to: 1,
            at_ms: 1_000_000,
            detect_ms: 120,
            seal_ms: 4,
            reconcile_ms: Some(6),
            serve_ms: None,
            total_ms: None,
            loss: EVIL.into(),
            loss_possible: true,
            tails: vec![],
        }
    }

    fn look() -> Look {
        let table = TableLine {
            table: EVIL.into(),
            policy: "durable".into(),
            copies: 2,
            factor: 3,
            survives: "survives any one node crash".into(),
            behind: vec![EVIL.into()],
            stopped: false,
            replay_ms: None,
            failover_target_ms: None,
            ship: types::Ship::Effects,
            words: EVIL.into(),
        };
        let node = NodeLine {
            node: 1,
            address: EVIL.into(),
            live: true,
            heard_ms_ago: Some(3),
            leads: 1,
            holds: 1,
            log_bytes: 1,
            commits: 1,
            fsyncs: 1,
            full: true,
            tails: 1,
            directories: vec![wire::control::DirectoryStatus {
                path: EVIL.into(),
                lost: EVIL.into(),
                ..Default::default()
            }],
            executors: Vec::new(),
            damaged: vec![64],
            marks: vec!["draining"],
            drained: false,
        };
        let partition = PartitionLine {
            partition: 64,
            table: EVIL.into(),
            epoch: 4,
            primary: 1,
            state: "serving".into(),
            in_sync: vec![1, 2],
            catching_up: vec![3],
            committed: 12_300,
            replicas: vec![replica(1, "primary"), replica(2, "in sync"), replica(3, "catching up")],
            disk_hangs_ms: 0,
            replay_ms: None,
            waits: EVIL.into(),
        };
        Look {
            me: 1,
            at_ms: 1_000_500,
            overview: Overview { tables: vec![table], nodes: vec![node], partitions: vec![partition] },
            http: BTreeMap::from([(1, EVIL.into())]),
            failovers: vec![failover()],
            no_failovers: Some(EVIL.into()),
            series: Series {
                begin: 990,
                commits: vec![Some(5); SECONDS],
                lag_us: vec![None; SECONDS],
                lag_bytes: vec![Some(1)],
            },
            operable: true,
        }
    }

    #[test]
    fn nothing_from_outside_becomes_markup() {
        let text = Page::draw(&look()).document(true);
        assert!(!text.contains("<script>alert"), "a name is in the page as it is");
        assert!(text.contains("&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;"), "{text}");
        // Every quote of an attribute is one of ours: with the escaped text gone, tags are well-formed.
        for tag in text.split('<').skip(1).filter_map(|rest| rest.split_once('>')).map(|(tag, _)| tag) {
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        }
    }

    #[test]
    fn it_is_complete_without_a_script() {
        let text = Page::draw(&look()).document(false);
        for part in [
            "12,345",
            "12,000",
            "catching up",
            "3.0 MB",
            "survives any one node crash",
            "detect 120 ms",
            "seal 4 ms",
            "draining",
            "disk full",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("id=\"operator\""));
    }

    #[test]
    fn only_what_changed_is_sent() {
        let (one, mut other) = (Page::draw(&look()), look());
        assert_eq!(one.changed_since(Some(&Page::draw(&look()))), None);
        other.overview.partitions[0].replicas[0].received += 1;
        let text = Page::draw(&other).changed_since(Some(&one)).expect("something changed");
        let sections: BTreeMap<String, String> = serde_json::from_str(&text).expect("JSON");
        assert_eq!(sections.keys().collect::<Vec<_>>(), ["partitions"]);
        assert_eq!(one.changed_since(None).map(|text| text.matches("<h2>").count()), Some(5));
    }
}

//! `docs/evidence.md`: one section for each part, which a later run of that part alone replaces.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The document, by headings.
pub struct Document {
    order: Vec<String>,
    sections: BTreeMap<String, String>,
}

impl Document {
    /// What is there already, of the sections that there can be.
    pub fn read(path: &Path, order: &[&str]) -> Document {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let mut sections = BTreeMap::new();
        for section in text.split("\n## ").skip(1) {
            let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
            if order.contains(&heading) {
                sections.insert(heading.to_string(), body.trim().to_string());
            }
        }
        Document { order: order.iter().map(ToString::to_string).collect(), sections }
    }

    /// Replaces a section.
    pub fn set(&mut self, heading: &str, body: &str) {
        self.sections.insert(heading.to_string(), body.trim().to_string());
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = String::from(HEAD);
        for heading in &self.order {
            if let Some(body) = self.sections.get(heading) {
                text.push_str(&format!("\n## {heading}\n\n{body}\n"));
            }
        }
        std::fs::write(path, text)
    }
}

const HEAD: &str = "# Evidence

Written by `cargo xtask long`; `cargo xtask long PART` measures one part anew (`sim`, `plants`, `crash`, `check`, `demo`, `steady`, `log`,
`ycsb`, `redis`, `postgres`, `clients`, `sql`, `executors`, `processors`, `gleambook` and others). All processes of a test share one machine with two cores, and others share its disk: read ratios, which are
taken between neighbouring rounds of one run, rather than absolute figures.
";

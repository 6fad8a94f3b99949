//! Documents: paths that they name exist, and the map stays one that is read in one go.

use std::collections::BTreeSet;

/// The most words of ARCHITECTURE.md.
pub const MAX_WORDS: usize = 2_500;

/// What names in backticks begin with if they are paths from the root.
const ROOTS: [&str; 5] = ["crates/", "tools/", "docs/", "xtask/", ".ci/"];

/// What is wrong with a document. `paths` are those of all files, from the root; `exists` looks at the disk,
/// for folders.
pub fn faults(
    document: &str,
    text: &str,
    paths: &BTreeSet<String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    let words = text.split_whitespace().count();
    if document == "ARCHITECTURE.md" && words > MAX_WORDS {
        found.push(format!("{document}: {words} words, more than {MAX_WORDS}"));
    }
    // Of a crate's own document: its files are named from within it.
    let home = document.strip_suffix("DESIGN.md").unwrap_or("");
    for line in text.lines() {
        for name in line.split('`').skip(1).step_by(2) {
            let path = name.split(':').next().unwrap_or("");
            if path.contains(['*', '{', '<', ' ']) {
                continue;
            }
            let from_root = ROOTS.iter().any(|start| path.starts_with(start));
            let within = !home.is_empty() && path.ends_with(".rs");
            let there = exists(path)
                || within && paths.iter().any(|file| file.starts_with(home) && is_end_of(file, path));
            if (from_root || within) && !there {
                found.push(format!("{document}: names {path}, which does not exist"));
            }
        }
    }
    found
}

fn is_end_of(file: &str, path: &str) -> bool {
    file.strip_suffix(path).is_some_and(|before| before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_backticks_must_exist() {
        let paths: BTreeSet<String> =
            ["crates/log/src/open.rs", "crates/node/src/net/outbox.rs"].map(String::from).into();
        let look = |document: &str, text: &str| faults(document, text, &paths, |path| paths.contains(path));
        assert!(
            look("docs/a.md", "`crates/log/src/open.rs:12`, `open.rs`, `gone.rs`, `docs/*.md`").is_empty()
        );
        assert_eq!(look("docs/a.md", "see `crates/log/src/gone.rs`").len(), 1);
        assert!(look("crates/node/DESIGN.md", "`net/outbox.rs`, `outbox.rs`, `x/y.json`").is_empty());
        assert_eq!(look("crates/node/DESIGN.md", "`net/inbox.rs`, `box.rs` and `open.rs`").len(), 3);
    }

    #[test]
    fn the_map_is_short() {
        let text = "word ".repeat(MAX_WORDS + 1);
        let look = |document: &str| faults(document, &text, &BTreeSet::new(), |_| false).len();
        assert_eq!((look("ARCHITECTURE.md"), look("docs/sql.md")), (1, 0));
    }
}

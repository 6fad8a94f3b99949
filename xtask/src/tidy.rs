//! The project's own rules, checked by the build (habits 5, 10): floors, sizes, module documents, ids, names in documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates by floor; a crate uses only crates on lower floors (ARCHITECTURE.md, "The house").
const FLOORS: [(&str, u8); 17] = [
    ("types", 1),
    ("wire", 2),
    ("log", 2),
    ("engine", 2),
    ("metastore", 2),
    ("intake", 2),
    ("pg", 2),
    ("replica", 3),
    ("controller", 3),
    ("client", 4),
    ("sql", 4),
    ("sim", 4),
    ("node", 5),
    ("local", 6),
    ("bench", 6),
    ("ops", 6),
    ("cli", 7),
];

/// Crates that others of their own floor may use: the log keeps entries of `wire`, `sql` asks by `client`, `bench` starts
/// clusters of `local`.
const BELOW: [&str; 3] = ["wire", "client", "local"];

/// Crates whose code takes the time and randomness it needs as arguments.
const PURE: [&str; 4] = ["types", "wire", "replica", "controller"];

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;

/// Checks every rule; the error lists all that is broken.
pub fn check(root: &Path) -> Result<(), String> {
    let mut faults = Vec::new();
    check_floors(root, &mut faults);
    let exceptions = exceptions(root);
    let mut used = BTreeSet::new();
    for file in sources(root) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        check_file(&name, &text, &exceptions, &mut used, &mut faults);
    }
    for unused in exceptions.difference(&used) {
        faults.push(format!("xtask/exceptions.txt: {unused} is no exception any more: remove the line"));
    }
    check_documents(root, &mut faults);
    check_ids(root, &mut faults);
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("{} rules are broken:\n  {}", faults.len(), faults.join("\n  ")))
}

/// Every Rust file of the project.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Exceptions: one file or `file::function` a line, with a reason behind `#`. The list may only shrink.
fn exceptions(root: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(root.join("xtask/exceptions.txt")).unwrap_or_default();
    let entry = |line: &str| line.split('#').next().unwrap_or("").trim().to_string();
    text.lines().map(entry).filter(|line| !line.is_empty()).collect()
}

fn check_floors(root: &Path, faults: &mut Vec<String>) {
    let floors: BTreeMap<&str, u8> = FLOORS.into_iter().collect();
    let Ok(entries) = fs::read_dir(root.join("crates")) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().to_string();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        let Some(floor) = floors.get(name.as_str()) else {
            faults.push(format!("crates/{name}: has no floor in xtask/src/tidy.rs"));
            continue;
        };
        let normal = manifest.split("[dependencies]").nth(1).unwrap_or("");
        let normal = normal.split("\n[").next().unwrap_or("");
        for line in normal.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or("").trim();
            let dependency = if dependency == "wal" { "log" } else { dependency };
            let Some(below) = floors.get(dependency) else { continue };
            let sideways = below == floor && BELOW.contains(&dependency) && !BELOW.contains(&name.as_str());
            if below >= floor && !sideways {
                faults.push(format!("crates/{name} (floor {floor}) uses {dependency} (floor {below})"));
            }
        }
    }
}

fn check_file(
    name: &str,
    text: &str,
    allowed: &BTreeSet<String>,
    used: &mut BTreeSet<String>,
    faults: &mut Vec<String>,
) {
    if !text.trim_start().starts_with("//!") && !text.contains("#![doc") {
        faults.push(format!("{name}: does not begin with a `//!` that says what it is"));
    }
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES && !excused(name, allowed, used) {
        faults.push(format!("{name}: {lines} lines, more than {MAX_FILE_LINES}"));
    }
    for (function, length) in functions(text) {
        let id = format!("{name}::{function}");
        if length > MAX_FUNCTION_LINES && !excused(&id, allowed, used) {
            faults.push(format!("{id}: {length} lines, more than {MAX_FUNCTION_LINES}"));
        }
    }
    let of_crate = name.split('/').nth(1).unwrap_or("");
    let tests = name.contains("/tests/") || name.contains("/examples/") || name.starts_with("xtask");
    if PURE.contains(&of_crate) && !tests {
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        for word in ["Instant::now", "SystemTime", "std::thread", "HashMap", "HashSet", "std::net", "std::fs"]
        {
            if code.contains(word) {
                faults.push(format!("{name}: {word} in a pure crate: take what you need as an argument"));
            }
        }
    }
    let storage = ["log", "sim"].contains(&of_crate) || tests || name.ends_with("types/src/position.rs");
    let code = text.split("#[cfg(test)]").next().unwrap_or("");
    if !storage && code.contains("Durable::by_storage") {
        faults.push(format!("{name}: only storage may make a durable token (habits 3)"));
    }
}

fn excused(id: &str, allowed: &BTreeSet<String>, used: &mut BTreeSet<String>) -> bool {
    let found = allowed.contains(id);
    if found {
        used.insert(id.to_string());
    }
    found
}

/// Each function with its length in lines, by its indentation: the formatter has put the closing brace there.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let Some(rest) = after_fn(trimmed) else { continue };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let closing = format!("{}}}", " ".repeat(indent));
        let Some(opens) = lines[at..].iter().position(|line| line.ends_with('{') || line.ends_with(';'))
        else {
            continue;
        };
        if lines[at + opens].ends_with(';') {
            continue;
        }
        if let Some(end) = lines[at..].iter().position(|line| *line == closing) {
            found.push((name, end + 1));
        }
    }
    found
}

fn after_fn(line: &str) -> Option<&str> {
    let mut rest = line;
    for word in ["pub(crate) ", "pub(super) ", "pub(in crate) ", "pub ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.strip_prefix("fn ")
}

/// Every path in backticks in the documents must exist.
fn check_documents(root: &Path, faults: &mut Vec<String>) {
    for document in ["README.md", "ARCHITECTURE.md"] {
        let Ok(text) = fs::read_to_string(root.join(document)) else {
            faults.push(format!("{document} is missing"));
            continue;
        };
        for name in text.split('`').skip(1).step_by(2) {
            let path = name.split(':').next().unwrap_or("");
            let is_path = ["crates/", "docs/", "xtask/", ".ci/"].iter().any(|start| path.starts_with(start));
            let plain = !path.contains(['*', '{', '<', ' ']);
            if is_path && plain && !root.join(path).exists() {
                faults.push(format!("{document}: names {path}, which does not exist"));
            }
        }
    }
}

/// Every safety rule of ARCHITECTURE.md's table has the assertion, checker or plant that the table names.
fn check_ids(root: &Path, faults: &mut Vec<String>) {
    let Ok(text) = fs::read_to_string(root.join("ARCHITECTURE.md")) else { return };
    let mut code = String::new();
    for file in sources(root) {
        code.push_str(&fs::read_to_string(file).unwrap_or_default());
    }
    let mut rows = 0;
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(id) = cells.get(1).filter(|id| is_rule(id)) else { continue };
        if cells.len() < 6 {
            continue;
        }
        rows += 1;
        for cell in &cells[3..cells.len() - 1] {
            for name in cell.split('`').skip(1).step_by(2) {
                if !code.contains(name) && !root.join(name).exists() {
                    faults
                        .push(format!("ARCHITECTURE.md: rule {id} names `{name}`, which is not in the code"));
                }
            }
        }
    }
    if rows < 12 {
        faults.push(format!("ARCHITECTURE.md: the table of rules has {rows} rows, it needs R1 to R12"));
    }
}

fn is_rule(id: &str) -> bool {
    id.strip_prefix('R').is_some_and(|number| number.parse::<u8>().is_ok())
}

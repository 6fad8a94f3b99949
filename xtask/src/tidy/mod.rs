//! The project's own rules, checked by the build (habits 5, 10): floors, arrows within crates, sizes, module
//! documents, ids, names in documents, words.

mod arrows;
mod bare;
mod documents;
mod ids;
mod lexer;
mod owners;
mod released;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where crates are: the product's, and tools that test it and that no crate of the product may use.
const FOLDERS: [&str; 2] = ["crates", "tools"];

/// Crates by floor; a crate uses only crates on lower floors (ARCHITECTURE.md, "The house"). Tools: above
/// all.
const LAYERS: [(&str, u8); 26] = [
    ("types", 1),
    ("testing", 1),
    ("history", 1),
    ("wire", 2),
    ("wal", 2),
    ("engine", 2),
    ("procedure", 2),
    ("metastore", 2),
    ("input", 2),
    ("pg", 2),
    ("replica", 3),
    ("driver", 3),
    ("test-engines", 3),
    ("stores", 3),
    ("conformance", 2),
    ("controller", 3),
    ("client", 4),
    ("sql", 4),
    ("sim", 4),
    ("node", 5),
    ("local", 6),
    ("bench", 6),
    ("ops", 6),
    ("check", 6),
    ("cli", 7),
    ("crash", 8),
];

/// Crates that others of their own floor may use: the log keeps entries of `wire`, `driver` carries out what
/// `replica` asks for, `sql` asks by `client` and `sim` simulates its core, `bench` and `check` start
/// clusters of `local`, `check` speaks SQL by `ops`.
const BELOW: [&str; 5] = ["wire", "replica", "client", "local", "ops"];

/// Crates whose code takes the time and randomness it needs as arguments.
const PURE: [&str; 6] = ["types", "history", "wire", "replica", "driver", "controller"];

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;
/// Columns of a comment; the formatter sees to the code. Rows of tables may be longer.
const MAX_COLUMNS: usize = 110;

/// Checks every rule; the error lists all that is broken.
pub fn check(root: &Path) -> Result<(), String> {
    let mut faults = Vec::new();
    check_layers(root, &mut faults);
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
    let files = texts(root);
    check_documents(root, &files, &mut faults);
    check_ids(&files, &mut faults);
    faults.extend(arrows::faults(&files));
    faults.extend(owners::faults(files.iter().map(|(name, text)| (name.as_str(), text.as_str()))));
    check_words(&files, &mut faults);
    faults.extend(released::fault(root));
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("{} rules are broken:\n  {}", faults.len(), faults.join("\n  ")))
}

/// Every Rust file of the project.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.join("crates"), root.join("tools"), root.join("xtask")];
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

fn check_layers(root: &Path, faults: &mut Vec<String>) {
    let layers: BTreeMap<&str, u8> = LAYERS.into_iter().collect();
    let entries = FOLDERS.iter().filter_map(|folder| Some((folder, fs::read_dir(root.join(folder)).ok()?)));
    for (folder, entry) in
        entries.flat_map(|(folder, entries)| entries.flatten().map(move |entry| (folder, entry)))
    {
        let name = entry.file_name().to_string_lossy().to_string();
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        let Some(layer) = layers.get(name.as_str()) else {
            faults.push(format!("{folder}/{name}: has no floor in xtask/src/tidy/mod.rs"));
            continue;
        };
        let normal = manifest.split("[dependencies]").nth(1).unwrap_or("");
        let normal = normal.split("\n[").next().unwrap_or("");
        for line in normal.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or("").trim();

            let Some(below) = layers.get(dependency) else { continue };
            let sideways = below == layer && BELOW.contains(&dependency) && !BELOW.contains(&name.as_str());
            if below >= layer && !sideways {
                faults.push(format!("{folder}/{name} (floor {layer}) uses {dependency} (floor {below})"));
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
    if let Some(line) = wide_comment(text) {
        faults.push(format!("{name}:{line}: a comment of more than {MAX_COLUMNS} columns"));
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
    let storage = ["wal", "sim"].contains(&of_crate) || tests || name.ends_with("types/src/position.rs");
    let code = text.split("#[cfg(test)]").next().unwrap_or("");
    if !storage && code.contains("Durable::by_storage") {
        faults.push(format!("{name}: only storage may make a durable token (habits 3)"));
    }
}

/// The first line, counted from 1, whose comment is too wide. Drawings, between marks of code, may be as wide
/// as they are.
fn wide_comment(text: &str) -> Option<usize> {
    let mut drawn = false;
    let wide = |line: &str| {
        let comment = line.trim_start();
        let said = comment.trim_start_matches(['/', '!']).trim_start();
        drawn ^= comment.starts_with("//") && said.starts_with("```");
        let row = drawn || said.starts_with('|');
        comment.starts_with("//") && !row && line.chars().count() > MAX_COLUMNS
    };
    text.lines().position(wide).map(|at| at + 1)
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

/// Every file of the project that people read, by its path from the root: code, documents, scripts, settings.
/// Files of other kinds are there without their text.
fn texts(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open: Vec<PathBuf> =
        ["crates", "tools", "docs", "xtask", ".ci"].iter().map(|top| root.join(top)).collect();
    open.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].iter().map(|name| root.join(name)));
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let skipped = ["target", "node_modules"].iter().any(|name| path.ends_with(name));
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| entry.path()).filter(|_| !skipped));
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let read =
            ["rs", "md", "txt", "toml"].iter().any(|end| path.extension().is_some_and(|is| is == *end));
        let text = if read { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        found.insert(name, text);
    }
    found
}

/// True if this is the code of these checks, whose tests name what does not exist.
fn is_own(name: &str) -> bool {
    name.starts_with("xtask/src/tidy/")
}

/// Every path in backticks in the documents exists, and the map is short.
fn check_documents(root: &Path, files: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    let paths: BTreeSet<String> = files.keys().cloned().collect();
    let checked = |name: &str| {
        ["README.md", "ARCHITECTURE.md"].contains(&name)
            || name.ends_with("/DESIGN.md")
            || name.starts_with("docs/") && name.ends_with(".md")
    };
    for needed in ["README.md", "ARCHITECTURE.md", ids::RULES, "docs/glossary.md", "docs/how-to-change.md"] {
        if files.get(needed).is_none_or(String::is_empty) {
            faults.push(format!("{needed} is missing"));
        }
    }
    for (name, text) in files.iter().filter(|(name, _)| checked(name)) {
        faults.extend(documents::faults(name, text, &paths, |path| root.join(path).exists()));
    }
}

/// Every id that is used is defined in docs/rules.md, and what is named there is in the code.
fn check_ids(files: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    let Some(rules) = files.get(ids::RULES) else { return };
    let (mut code, mut uses) = (String::new(), Vec::new());
    for (name, text) in files.iter().filter(|(name, _)| !is_own(name) && *name != ids::RULES) {
        let rust = name.ends_with(".rs");
        let mut used = if rust { ids::used_in_code(text) } else { ids::used(text) };
        if name.contains("/tests/scripts/") {
            used.extend(name.rsplit('/').next().and_then(ids::named_after));
        }
        uses.push((name.clone(), used));
        let kept = lexer::pieces(text).into_iter().filter(|piece| rust && piece.kind != lexer::Kind::Comment);
        kept.for_each(|piece| code.extend([piece.text, "\""]));
        code.push('\n');
    }
    let paths = files.keys().cloned().collect();
    faults.extend(ids::faults(rules, &uses, &code, &paths));
}

/// No identifier, JSON name or flag has a word that the project gave up, and no type or constant a name that
/// says nothing.
fn check_words(files: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    for (name, text) in files.iter().filter(|(name, _)| !is_own(name)) {
        faults.extend(match name.ends_with(".rs") {
            true => [words::faults(name, text, words::WORDS), bare::faults(name, text)].concat(),
            // What was renamed is told in the changelog.
            false if name == "CHANGELOG.md" => Vec::new(),
            false => words::faults_in_document(name, text, words::WORDS),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found_and_tables_drawings_and_code_are_not() {
        let wide = "x".repeat(MAX_COLUMNS);
        assert_eq!(wide_comment(&format!("//! a\n    /// {wide}\n")), Some(2));
        assert_eq!(wide_comment(&format!("let a = \"{wide}\";\n//! | {wide} |\n")), None);
        assert_eq!(wide_comment(&format!("//! ```text\n//! {wide}\n//! ```\n// {wide}")), Some(4));
    }
}

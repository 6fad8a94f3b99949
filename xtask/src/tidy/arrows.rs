//! Arrows between the modules of a folder: a part uses no sibling from which the way leads back to it, so
//! that each can be read, and tested, without the other. Coordinators, which use the parts that know them,
//! are named here.

use std::collections::{BTreeMap, BTreeSet};

/// Sources that are looked at.
const SOURCES: [&str; 6] = [
    "crates/replica/src",
    "crates/driver/src",
    "crates/controller/src",
    "crates/node/src",
    "crates/sql/src",
    "tools/sim/src",
];

/// A module that coordinates others of its folder, and why it may: the list may only shrink.
type Coordinator = (&'static str, &'static str, &'static str);

const COORDINATORS: [Coordinator; 11] = [
    (
        "crates/controller/src",
        "controller",
        "what it does is methods of it, each in the file of what it is about",
    ),
    (
        "crates/controller/src",
        "ledger",
        "one record of what is under way, which those who write in it are given",
    ),
    ("crates/controller/src", "failover_decision", "it seals, and a seal asks it whom to name"),
    ("crates/node/src", "datadir", "it hands out identity and stores, which read and fail by it"),
    ("crates/sql/src", "engine", "what is bound is evaluated by it, and it looks up system tables and rows"),
    ("crates/sql/src", "system", "system tables are rows like any other: read by what they describe"),
    ("crates/sql/src", "txn", "a transaction owns what it reads and writes with, and lends itself to it"),
    ("crates/sql/src", "columns", "defaults are expressions, which are bound beside the columns they are of"),
    (
        "crates/sql/src/system",
        "relations",
        "the list of all relations, of which tables of constraints are some, and all of these files read it",
    ),
    ("crates/sql/src/system", "facts", "what one statement sees; it makes the list of relations when asked"),
    ("crates/sql/src/system", "functions", "the table of functions, into which others put their own"),
];

/// Which siblings each module of one folder uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// What is wrong with the arrows. `files`: every file by its path from the root.
pub fn faults(files: &BTreeMap<String, String>) -> Vec<String> {
    faults_beside(files, &COORDINATORS)
}

fn faults_beside(files: &BTreeMap<String, String>, coordinators: &[Coordinator]) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, arrows) in SOURCES.iter().flat_map(|src| folders(files, src)) {
        let named = coordinators.iter().filter(|(of, ..)| *of == folder).map(|(_, module, _)| *module);
        let named: BTreeSet<&str> = named.collect();
        let circles = circles(&arrows, &BTreeSet::new());
        for module in named.iter().filter(|module| !circles.contains(**module)) {
            found.push(format!("{folder}: {module} is no coordinator any more: remove it from the list"));
        }
        let left: Vec<String> = self::circles(&arrows, &named).into_iter().collect();
        if !left.is_empty() {
            let left = left.join(", ");
            found.push(format!(
                "{folder}: these use each other in a circle, and none is a coordinator: {left}"
            ));
        }
    }
    found
}

/// Every folder of a crate with its modules' arrows.
fn folders(files: &BTreeMap<String, String>, src: &str) -> Vec<(String, Arrows)> {
    let within = files.keys().filter(|name| name.starts_with(&format!("{src}/")) && name.ends_with(".rs"));
    let names: Vec<&String> = within.collect();
    let folder_of = |name: &str| name.rsplit_once('/').map(|(folder, _)| folder.to_string());
    let all: BTreeSet<String> = names.iter().filter_map(|name| folder_of(name)).collect();
    let mut found = Vec::new();
    for folder in all {
        let path = folder.strip_prefix(src).unwrap_or("").trim_start_matches('/');
        let prefix = path.split('/').filter(|part| !part.is_empty());
        let prefix: String = ["crate"].into_iter().chain(prefix).map(|part| format!("{part}::")).collect();
        let mut arrows = Arrows::new();
        for (name, module) in names.iter().filter_map(|name| Some((name, module_of(&folder, name)?))) {
            let text = files.get(*name).map(String::as_str).unwrap_or_default();
            let text = from_the_root(text, &path_of(src, name));
            arrows.entry(module).or_default().extend(used(&text, &prefix));
        }
        let modules: BTreeSet<String> = arrows.keys().cloned().collect();
        for (module, uses) in &mut arrows {
            uses.retain(|other| other != module && modules.contains(other));
        }
        found.push((folder, arrows));
    }
    found
}

/// The module directly in `folder` that a file belongs to.
fn module_of(folder: &str, name: &str) -> Option<String> {
    let rest = name.strip_prefix(folder)?.strip_prefix('/')?;
    let first = rest.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (!["mod", "lib", "main"].contains(&module)).then(|| module.to_string())
}

/// The path of the module that a file is, from the crate's root.
fn path_of<'a>(src: &str, name: &'a str) -> Vec<&'a str> {
    let rest = name.strip_prefix(src).and_then(|rest| rest.strip_suffix(".rs")).unwrap_or(name);
    rest.split('/').filter(|part| !["", "mod", "lib", "main"].contains(part)).collect()
}

/// The same code with every path that begins with `super` written from the crate's root. `module`: the path
/// of its own module.
fn from_the_root(text: &str, module: &[&str]) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("super::") {
        let (before, mut path) = rest.split_at(at);
        done.push_str(before);
        let mut ups = 0;
        while let Some(behind) = path.strip_prefix("super::") {
            (ups, path) = (ups + 1, behind);
        }
        let begins = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        match module.len().checked_sub(ups).filter(|_| begins) {
            Some(kept) => {
                done.push_str("crate::");
                module[..kept].iter().for_each(|part| done.extend([part, "::"]));
            }
            // A module within a file.
            None => done.push_str(&"super::".repeat(ups)),
        }
        rest = path;
    }
    done + rest
}

/// What code names right behind `prefix`, outside of tests and comments.
fn used(text: &str, prefix: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or("");
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        found.extend(first_names(&code[at + prefix.len()..]));
    }
    found
}

/// The name that a path begins with, or those of all paths in a group.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut found, mut depth, mut begins) = (Vec::new(), 1, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => begins = true,
            _ if begins && !c.is_whitespace() => {
                found.push(name(&group[at..]));
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// The modules that reach themselves, if those that are `named` are left out.
fn circles(arrows: &Arrows, named: &BTreeSet<&str>) -> BTreeSet<String> {
    let mut left: Arrows = arrows.clone();
    left.retain(|module, _| !named.contains(module.as_str()));
    loop {
        let before = left.len();
        let modules: BTreeSet<String> = left.keys().cloned().collect();
        // Who uses nobody that is left, or is used by nobody that is left, is in no circle.
        let used: BTreeSet<String> = left.values().flatten().cloned().collect();
        left.retain(|module, uses| used.contains(module) && uses.iter().any(|other| modules.contains(other)));
        if left.len() == before {
            return modules;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(name, text)| (format!("crates/replica/src/{name}"), text.to_string())).collect()
    }

    #[test]
    fn two_parts_that_use_each_other_are_found() {
        let files = crate_of(&[
            ("log.rs", "use crate::tail::Tail;"),
            ("tail.rs", "use crate::{log::{marks, Log}, other};"),
            ("marks.rs", "/// crate::log knows of it\nuse types::Lsn;\n#[cfg(test)]\nuse crate::log;"),
        ]);
        let found = faults_beside(&files, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with("none is a coordinator: log, tail"), "{found:?}");
    }

    #[test]
    fn a_longer_way_back_and_one_within_a_folder_are_found_too() {
        let ring = [("a.rs", "crate::b::f()"), ("b.rs", "crate::c::f()"), ("c.rs", "crate::a::f()")];
        assert_eq!(faults_beside(&crate_of(&ring), &[]).len(), 1);
        let inner = [("p/x.rs", "use crate::p::y::Y;"), ("p/y/mod.rs", "use crate::p::x::X;"), ("q.rs", "")];
        let found = faults_beside(&crate_of(&inner), &[]);
        assert!(found.len() == 1 && found[0].starts_with("crates/replica/src/p: "), "{found:?}");
    }

    #[test]
    fn paths_that_go_up_count_too() {
        let up = [("p/x.rs", "use super::y::Y;"), ("p/y/mod.rs", "fn f() { super::x::g() }"), ("q.rs", "")];
        let found = faults_beside(&crate_of(&up), &[]);
        assert!(found.len() == 1 && found[0].ends_with("none is a coordinator: x, y"), "{found:?}");
        let far = [("p/x/z.rs", "use super::super::{super_y, y};"), ("p/y.rs", "use super::x::X;")];
        assert_eq!(faults_beside(&crate_of(&far), &[]).len(), 1);
        let sound =
            [("p/mod.rs", "use super::q;"), ("q.rs", ""), ("p/x.rs", "pub(super) fn f() { super::f() }")];
        assert_eq!(faults_beside(&crate_of(&sound), &[]), Vec::<String>::new());
    }

    #[test]
    fn a_coordinator_is_named_as_long_as_it_is_one() {
        let files = crate_of(&[("whole.rs", "use crate::part::P;"), ("part.rs", "use crate::whole::W;")]);
        let named = [("crates/replica/src", "whole", "it is the whole")];
        assert_eq!(faults_beside(&files, &named), Vec::<String>::new());
        let sound = crate_of(&[("whole.rs", "use crate::part::P;"), ("part.rs", "")]);
        let found = faults_beside(&sound, &named);
        assert!(found.len() == 1 && found[0].contains("no coordinator any more"), "{found:?}");
    }
}

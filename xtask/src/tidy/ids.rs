//! Ids of rules, findings and invariants: each that is used is defined in docs/rules.md, and what is named
//! there exists.

use super::lexer::{Kind, pieces};
use std::collections::{BTreeMap, BTreeSet};

/// Where ids are defined.
pub const RULES: &str = "docs/rules.md";

/// Stands for an id that does not exist, where a test needs one.
const NEVER: [&str; 1] = ["F99"];

/// Ids that are written with a hyphen begin with one of these.
const FAMILIES: [&str; 2] = ["PR", "LE"];

/// Types whose names look like the beginning of a test that is named after an id.
const TYPES: [&str; 7] = ["i8", "i16", "i32", "i64", "i128", "f32", "f64"];

/// What a row of a table of docs/rules.md says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The number of the line, from 1.
    pub line: usize,
    /// The id, in a table of definitions.
    pub id: Option<String>,
    /// Every name in backticks.
    pub names: Vec<String>,
}

/// The rows of all tables, without their heads.
pub fn rows(rules: &str) -> Vec<Row> {
    let mut found = Vec::new();
    for (line, text) in rules.lines().enumerate() {
        let Some(first) = text.strip_prefix('|').and_then(|rest| rest.split('|').next()) else { continue };
        let id = used(first).into_iter().next().filter(|id| id == first.trim());
        let names = text.split('`').skip(1).step_by(2).map(str::to_string).collect();
        found.push(Row { line: line + 1, id, names });
    }
    found
}

/// The ids in a text: `R4`, `N13`, `I9`, `F05`, `PR-40`, `LE-03`.
pub fn used(text: &str) -> BTreeSet<String> {
    let bytes = text.as_bytes();
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|byte| is_name(**byte)).count();
        if end == at {
            at += 1;
            continue;
        }
        let word = &text[at..end];
        let digits = text[end..]
            .strip_prefix('-')
            .map(|rest| rest.bytes().take_while(|byte| is_name(*byte)).map(char::from).collect::<String>());
        match digits {
            Some(digits) if FAMILIES.contains(&word) && is_number(&digits) => {
                found.insert(format!("{word}-{digits}"));
                at = end + 1 + digits.len();
            }
            _ => {
                found.extend(is_id(word).then(|| word.to_string()));
                at = end;
            }
        }
    }
    found
}

/// The ids that a file of Rust uses: in comments and strings as documents write them, in code as names of
/// findings (`F05`, `Pr16`), and in names of functions (`fn pr16_...`).
pub fn used_in_code(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for piece in pieces(source) {
        if piece.kind != Kind::Code {
            found.extend(used(piece.text));
            continue;
        }
        let mut before = "";
        for word in piece.text.split(|c: char| !(c.is_alphanumeric() || c == '_')) {
            if before == "fn" {
                found.extend(named_after(word));
            }
            for family in FAMILIES {
                let number = word.strip_prefix(&named(family)).filter(|number| is_number(number));
                found.extend(number.map(|number| format!("{family}-{number}")));
            }
            found.extend((word.starts_with('F') && is_id(word)).then(|| word.to_string()));
            before = word;
        }
    }
    found
}

/// The id after which a test or a script is named: `pr16_change_in_flight`, `f02_divergent_tail`.
pub fn named_after(name: &str) -> Option<String> {
    let (head, _) = name.split_once('_')?;
    if TYPES.contains(&head) {
        return None;
    }
    let letters = head.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &head[letters.len()..];
    let id = match letters {
        "pr" | "le" if is_number(number) => format!("{}-{number}", letters.to_uppercase()),
        "r" | "n" | "i" | "f" => format!("{}{number}", letters.to_uppercase()),
        _ => return None,
    };
    (id.contains('-') || is_id(&id)).then_some(id)
}

/// What is wrong with the ids of a project: `rules` is the text of docs/rules.md, `uses` every other file's
/// name with the ids in it, `code` all code without its comments, `paths` the paths of all files.
pub fn faults(
    rules: &str,
    uses: &[(String, BTreeSet<String>)],
    code: &str,
    paths: &BTreeSet<String>,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut defined: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows(rules) {
        let line = row.line;
        if let Some(id) = row.id
            && let Some(first) = defined.insert(id.clone(), line)
        {
            found.push(format!("{RULES}:{line}: {id} is defined in line {first} already"));
        }
        for name in row.names.iter().filter(|name| !contains(code, name) && !is_path(paths, name)) {
            found.push(format!("{RULES}:{line}: names `{name}`, which is not in the code"));
        }
    }
    let missing = |number: &u8| !defined.contains_key(&format!("R{number}"));
    found.extend((1..=12).filter(missing).map(|number| format!("{RULES}: R{number} is not defined")));
    for (file, ids) in uses.iter().chain([&(RULES.to_string(), used(rules))]) {
        let unknown = ids.iter().filter(|id| !defined.contains_key(*id) && !NEVER.contains(&id.as_str()));
        found.extend(unknown.map(|id| format!("{file}: uses {id}, which {RULES} does not define")));
    }
    found
}

/// How the code writes a family of ids: `Pr`.
fn named(family: &str) -> String {
    family[..1].to_string() + &family[1..].to_lowercase()
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_number(text: &str) -> bool {
    text.len() >= 2 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_id(word: &str) -> bool {
    let (Some(letter), Some(number)) = (word.get(..1), word.get(1..)) else { return false };
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    match letter {
        "R" | "N" | "I" => digits && (1..=2).contains(&number.len()) && !number.starts_with('0'),
        "F" => digits && number.len() == 2,
        _ => false,
    }
}

/// True if the code has this name, and not only as a part of a longer one.
fn contains(code: &str, name: &str) -> bool {
    let inner = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (begins, ends) = (inner(name.chars().next()), inner(name.chars().next_back()));
    code.match_indices(name).any(|(at, _)| {
        let before = begins && inner(code[..at].chars().next_back());
        let after = ends && inner(code[at + name.len()..].chars().next());
        !before && !after
    })
}

/// True if this is a file's path, or the end of one.
fn is_path(paths: &BTreeSet<String>, name: &str) -> bool {
    paths.contains(name) || paths.iter().any(|path| path.ends_with(&format!("/{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| id.to_string()).collect()
    }

    #[test]
    fn ids_are_told_from_other_words() {
        let text = "R4 and (N13), I9: F05; PR-40. `PR-7`, PR-412x, i8, F5, F123, R123, xF05, R0, a_F05, f3F20ab, PR-";
        assert_eq!(used(text), set(&["R4", "N13", "I9", "F05", "PR-40"]));
        assert_eq!(used("R1 to R12, PR-68 to LE-02"), set(&["R1", "R12", "PR-68", "LE-02"]));
    }

    #[test]
    fn code_uses_findings_by_their_names_and_comments_as_documents_do() {
        let source =
            "const N1: I32 = 1; // N2, PR-16\nfn pr22_waits() { has(Finding::Pr23, Le04, F05, \"I4: x\") }";
        assert_eq!(used_in_code(source), set(&["N2", "PR-16", "PR-22", "PR-23", "LE-04", "F05", "I4"]));
        assert_eq!(
            used_in_code("fn i64_of() {} fn f02_tail() {} fn r9_x() {} fn print_x() {} fn f() {}"),
            set(&["F02", "R9"])
        );
    }

    #[test]
    fn scripts_are_named_after_ids() {
        assert_eq!(named_after("pr16_change_in_flight"), Some("PR-16".into()));
        assert_eq!(named_after("r10_a_disk"), Some("R10".into()));
        assert_eq!(named_after("le12_a_sync"), Some("LE-12".into()));
        assert_eq!(named_after("restart_semi"), None);
        assert_eq!(named_after("pr_16"), None);
        assert_eq!(named_after("f2_x"), None);
    }

    /// Definitions of R1 to R12 without places.
    fn twelve() -> String {
        (1..=12).map(|number| format!("| R{number} | what |\n")).collect()
    }

    #[test]
    fn what_is_used_is_defined_once_and_what_is_named_exists() {
        let rules = twelve() + "| PR-40 | the position is a row | `fn row`, `src/lsm.rs`, `R3: {at}` | - |\n";
        let uses = [("a.rs".to_string(), set(&["R4", "PR-40", "F99"]))];
        let paths = set(&["crates/engine/src/lsm.rs"]);
        let code = "pub fn row() { fail(R3: {at}) }";
        assert_eq!(faults(&rules, &uses, code, &paths), Vec::<String>::new());
        let uses = [("a.rs".to_string(), set(&["I9"]))];
        assert_eq!(
            faults(&rules, &uses, code, &paths),
            ["a.rs: uses I9, which docs/rules.md does not define"]
        );
        let twice = rules.clone() + "| R4 | again |\n";
        assert_eq!(faults(&twice, &[], code, &paths), ["docs/rules.md:14: R4 is defined in line 4 already"]);
        let gone =
            faults(&rules, &[], "pub fn rows() { fail(R3: {at}) }", &set(&["crates/engine/src/xlsm.rs"]));
        assert_eq!(
            gone,
            [
                "docs/rules.md:13: names `fn row`, which is not in the code",
                "docs/rules.md:13: names `src/lsm.rs`, which is not in the code"
            ]
        );
        assert_eq!(
            faults(&rules.replace("| R7 |", "| R8x |"), &[], code, &paths),
            ["docs/rules.md: R7 is not defined"]
        );
    }

    #[test]
    fn tables_of_other_things_are_looked_at_too() {
        let rules = twelve() + "| Gathering | Marking | `fn mark` | none yet |\n";
        let gone = faults(&rules, &[], "fn other() {}", &BTreeSet::new());
        assert_eq!(gone, ["docs/rules.md:13: names `fn mark`, which is not in the code"]);
    }
}

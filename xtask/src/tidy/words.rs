//! Words that the project gave up for standard ones: refused in identifiers, JSON names and flags, left alone
//! in prose.

use super::lexer::{Kind, Piece, pieces};

/// A word that is not used any more.
pub struct Word {
    /// As identifiers have it, in snake case: `reign`, `way_back`.
    old: &'static str,
    /// What to say instead.
    say: &'static str,
    /// Where it is right all the same, and why: beginnings of paths, or whole identifiers.
    except: &'static [(&'static str, &'static str)],
    /// Beginnings of the paths where it is refused; empty: everywhere.
    only: &'static [&'static str],
    /// Refused in names of types and variants, JSON names and flags. As a verb it stays in names of
    /// variables and functions.
    of_things: bool,
}

/// A word that is refused everywhere.
const fn word(old: &'static str, say: &'static str) -> Word {
    Word { old, say, except: &[], only: &[], of_things: false }
}

impl Word {
    const fn except(self, except: &'static [(&'static str, &'static str)]) -> Word {
        Word { except, ..self }
    }

    const fn only(self, only: &'static [&'static str]) -> Word {
        Word { only, ..self }
    }

    const fn of_things(self) -> Word {
        Word { of_things: true, ..self }
    }

    /// True if this name may not be in this file. `parts` are its words.
    fn refuses(&self, file: &str, name: &str, parts: &[String]) -> bool {
        let excepted = |(except, _): &(&str, &str)| file.starts_with(except) || *except == name;
        let refused = self.only.is_empty() || self.only.iter().any(|path| file.starts_with(path));
        refused
            && (!self.of_things || is_thing(name))
            && has(parts, &self::parts(self.old))
            && !self.except.iter().any(excepted)
    }
}

/// True if this is the name of a type, a variant or a flag, or a JSON name, which is marked as one.
fn is_thing(name: &str) -> bool {
    let type_like = name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase);
    type_like || name.starts_with("--") || name.starts_with(JSON)
}

/// Stands before a JSON name.
const JSON: char = '"';

/// Where checkers of histories are: what they say of one is a verdict.
const CHECKERS: &[(&str, &str)] = &[
    ("tools/history/", "what a checker says of a history"),
    ("tools/check/", "what a checker says of a history"),
    ("tools/local/", "what the demo says of what it read back"),
    ("tools/sim/", "what a checker says of a world"),
];

/// A user's home folder.
const HOME: &[(&str, &str)] =
    &[("crates/cli/", "the user's home folder"), ("tools/local/", "the user's home folder")];

const HELD: &[(&str, &str)] = &[
    ("Held", "a variant: a table that is held (glossary), a position that is held for a cluster snapshot"),
    ("\"held_ms", "in records and in JSON: names are added, never renamed"),
];

const TAKEN: &[(&str, &str)] = &[
    ("NameTaken", "somebody else has it: said so to users of PostgreSQL"),
    ("PortTaken", "somebody else has it"),
    ("\"taken_ms", "in manifests of backups: names are added, never renamed"),
];

const PLANT: &[(&str, &str)] = &[
    ("crates/cli/src/args/process.rs", "the alias of `--mutant`"),
    ("crates/cli/src/commands/simulate.rs", "in JSON beside `mutant`: names are added, never renamed"),
    ("--plant", "the alias of `--mutant`"),
];

const PLANTS: &[(&str, &str)] = &[
    ("tools/sim/", "the file with the seed that finds each mutant"),
    ("xtask/src/long/", "the part of `cargo xtask long`"),
];

/// All of them. A word comes here in the change that takes it out of the code.
pub const WORDS: &[Word] = &[
    word("reign", "term"),
    word("reigns", "terms"),
    word("led_since", "term"),
    word("life", "incarnation"),
    word("beacon", "heartbeat"),
    word("beacons", "heartbeats"),
    word("beat", "heartbeat, or lease_manager"),
    word("picture", "cluster_map"),
    word("pictures", "cluster_maps"),
    word("board", "shared_status"),
    word("homeless", "storage_lost"),
    word("rehouse", "relocate"),
    word("heir", "successor"),
    word("heirs", "successors"),
    word("tally", "aggregate (scan)"),
    word("tallies", "aggregates"),
    word("tallying", "aggregating"),
    word("hearing", "failure_detector"),
    word("calamity", "failure_scenario"),
    word("harm", "faults"),
    word("harmed", "faulted"),
    word("spoilt", "tainted"),
    word("anew", "from_scratch"),
    word("brain", "controller_process"),
    word("way_back", "failback"),
    word("kept_from", "log_floor"),
    word("passed_over", "skipped"),
    word("gathering", "reconciling"),
    word("wish", "pending_flush, or what is waited for"),
    word("wishes", "what is waited for"),
    word("jobber", "job_client"),
    word("taker", "snapshot_client").except(&[("crates/ops/", "who takes a backup")]),
    word("crowd", "client_pool"),
    word("intake", "input"),
    word("door", "listener, or gateway (SQL)"),
    word("doors", "listeners"),
    word("strikes", "fault_injector"),
    word("struck", "injected"),
    word("depart", "decommission"),
    word("departed", "decommissioned")
        .except(&[("crates/input/", "a column of the flights that are read there")]),
    word("leaving", "decommissioning"),
    word("told", "answer, or what it is that was told").of_things(),
    word("held", "blocked_outputs, or what it is that is held").except(HELD).of_things(),
    word("taken", "installed, or what became of it").except(TAKEN).of_things(),
    word("places", "data_directories").of_things(),
    word("home", "data_directory").except(HOME),
    word("verdict", "failover_decision").except(CHECKERS),
    word("judge", "decide, check or compare"),
    word("judged", "decided, checked or compared"),
    // Of a network it stays, and of bytes in tests and parsers.
    word("cut", "truncate (a log's end)").except(CUT).only(&[
        "crates/replica/src/",
        "crates/driver/src/",
        "crates/wal/src/",
        "crates/controller/src/",
        "crates/types/src/",
    ]),
    // Of a table, a drawing or a search it stays.
    word("point", "cluster_snapshot").except(POINT).only(&[
        "crates/controller/",
        "crates/client/",
        "crates/wire/",
        "crates/ops/",
        "tools/sim/",
    ]),
    word("pace", "replay_rate, merge_pacing, or the interval that is meant"),
    word("plant", "mutant").except(PLANT),
    word("planted", "of_mutant"),
    word("plants", "mutants").except(PLANTS),
];

const CUT: &[(&str, &str)] = &[("PrimaryCut", "the network's, around a primary")];

const POINT: &[(&str, &str)] = &[("partition_point", "of the standard library")];

/// What is wrong with a file of Rust.
pub fn faults(file: &str, source: &str, words: &[Word]) -> Vec<String> {
    let pieces = pieces(source);
    let mut found = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| pieces.get(before));
        let around = (code_of(before), code_of(pieces.get(index + 1)));
        match piece.kind {
            Kind::Code => found.extend(identifiers(piece.text)),
            Kind::Text => found.extend(names_in_text(piece.text, around)),
            Kind::Comment => {}
        }
    }
    told(file, found, words)
}

/// What is wrong with a document or a script: its JSON names and flags.
pub fn faults_in_document(file: &str, text: &str, words: &[Word]) -> Vec<String> {
    told(file, names_in_text(text, ("", "")), words)
}

fn told(file: &str, mut names: Vec<String>, words: &[Word]) -> Vec<String> {
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let parts = parts(&name);
        if let Some(word) = words.iter().find(|word| word.refuses(file, &name, &parts)) {
            let name = name.trim_start_matches(JSON);
            found.push(format!("{file}: `{name}` has the word '{}': say {}", word.old, word.say));
        }
    }
    found
}

fn code_of<'a>(piece: Option<&Piece<'a>>) -> &'a str {
    piece.filter(|piece| piece.kind == Kind::Code).map_or("", |piece| piece.text)
}

/// Identifiers of a piece of code; lifetimes and numbers are none.
fn identifiers(code: &str) -> Vec<String> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        .map(str::to_string)
        .collect()
}

/// Flags and JSON names in a string or a document. `around` is the code before and behind a string: it says
/// whether the whole string is a name, as in `json!({"name": 1})`, `value["name"]`, `value.get("name")` and
/// `rename = "name"`.
fn names_in_text(text: &str, around: (&str, &str)) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("--") {
        let name: String =
            text[at + 2..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let alone = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
        if alone && name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.push(format!("--{}", name.trim_end_matches('-')));
        }
    }
    let unescaped = text.replace("\\\"", "\"");
    let mut quoted = unescaped.split('"').skip(1).peekable();
    while let Some(name) = quoted.next() {
        let names = quoted.peek().is_some_and(|rest| rest.trim_start().starts_with(':'));
        if names && is_name(name) {
            found.push(format!("{JSON}{name}"));
        }
    }
    let (before, after) = (around.0.trim_end(), around.1.trim_start());
    let key = after.starts_with(':') && !after.starts_with("::");
    let index = before.ends_with('[') && after.starts_with(']');
    let looked_up = before.ends_with(".get(") || before.ends_with(".get_mut(");
    let renamed = ["rename =", "alias =", "long ="].iter().any(|attribute| before.ends_with(attribute));
    if (key || index || looked_up || renamed) && is_name(text) {
        found.push(format!("{JSON}{text}"));
    }
    found
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The words of an identifier, a JSON name or a flag, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut before = '_';
    let mut characters = name.chars().peekable();
    while let Some(c) = characters.next() {
        if c == '_' || c == '-' || c == JSON {
            before = '_';
            continue;
        }
        // A capital begins a word, unless it goes on with an abbreviation: `HTTPServer` is `http`, `server`.
        let next_is_small = characters.peek().is_some_and(|next| next.is_lowercase());
        let begins = before == '_'
            || c.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit() || next_is_small);
        match found.last_mut() {
            Some(word) if !begins => word.extend(c.to_lowercase()),
            _ => found.push(c.to_lowercase().collect()),
        }
        before = c;
    }
    found
}

fn has(parts: &[String], old: &[String]) -> bool {
    !old.is_empty() && parts.windows(old.len()).any(|window| window == old)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[Word] = &[
        word("reign", "term").except(&[("crates/demo/", "a play"), ("ReignOfTheKing", "a play")]),
        word("way_back", "failback"),
        word("told", "answer").of_things().except(&[("\"told_ms", "it is in records")]),
        word("cut", "truncate").only(&["crates/replica/"]),
    ];

    #[test]
    fn names_are_cut_into_words() {
        let cut = |name: &str| parts(name).join(" ");
        assert_eq!(cut("led_since"), "led since");
        assert_eq!(cut("ReignEnded"), "reign ended");
        assert_eq!(cut("MAX_REIGN2"), "max reign2");
        assert_eq!(cut("HTTPServer"), "http server");
        assert_eq!(cut("--way-back"), "way back");
        assert_eq!(cut("Pr05Seal"), "pr05 seal");
    }

    #[test]
    fn identifiers_are_refused_by_their_words() {
        let faults = |source: &str| faults("crates/replica/src/a.rs", source, LIST);
        let said = |name: &str| format!("crates/replica/src/a.rs: `{name}` has the word 'reign': say term");
        assert_eq!(faults("struct ReignEnd { old_reign: u8 }"), [said("ReignEnd"), said("old_reign")]);
        assert_eq!(faults("let myWayBack = 1;").len(), 1);
        assert!(
            faults("let sovereign = back_way; ReignOfTheKing;").is_empty(),
            "parts of words, and an exception"
        );
    }

    #[test]
    fn prose_is_left_alone() {
        let source = "//! A reign begins.\nfn f() { say(\"the reign of the old primary\"); /* reign */ }";
        assert!(faults("crates/replica/src/a.rs", source, LIST).is_empty());
        assert!(
            faults_in_document("docs/a.md", "The reign, a \"reign\", `reign` - and a way back.", LIST)
                .is_empty()
        );
    }

    #[test]
    fn json_names_and_flags_are_refused() {
        let refused = |source: &str| faults("a.rs", source, LIST).len();
        assert_eq!(refused("json!({\"reign\": 1})"), 1);
        assert_eq!(refused("value[\"old_reign\"]"), 1);
        assert_eq!(refused("value.get(\"reign\")"), 1);
        assert_eq!(refused("#[serde(rename = \"reign\")]"), 1);
        assert_eq!(refused("say(\"{\\\"reign\\\": 1}\")"), 1);
        assert_eq!(refused("help(\"use --reign-end N\")"), 1);
        assert_eq!(refused("say(\"reign\")"), 0);
        assert_eq!(faults_in_document("docs/a.md", "`{\"reign\": 5}` with --way-back", LIST).len(), 2);
        assert!(faults_in_document("docs/a.md", "--- reign --- x--reign", LIST).is_empty());
    }

    #[test]
    fn where_a_word_is_right_it_stays() {
        assert!(faults("crates/demo/src/a.rs", "let reign = 1;", LIST).is_empty());
    }

    #[test]
    fn a_word_may_be_refused_for_things_or_in_some_places_only() {
        let refused = |file: &str, source: &str| faults(file, source, LIST).len();
        assert_eq!(refused("a.rs", "struct Told; enum E { WhatWasTold }"), 2);
        assert_eq!(refused("a.rs", "let told = was_told(); const TOLD: u8 = 1;"), 0);
        assert_eq!(refused("a.rs", "json!({\"told\": 1, \"told_ms\": 2})"), 1);
        assert_eq!(faults_in_document("docs/a.md", "--told and `told`", LIST).len(), 1);
        assert_eq!((refused("crates/replica/a.rs", "let cut = 1;"), refused("a.rs", "let cut = 1;")), (1, 0));
    }

    #[test]
    fn the_list_is_in_snake_case_and_says_what_to_say() {
        for word in WORDS {
            assert_eq!(word.old, parts(word.old).join("_"));
            assert!(!word.say.is_empty(), "{}", word.old);
            assert!(word.except.iter().all(|(_, why)| !why.is_empty()), "{}", word.old);
        }
    }
}

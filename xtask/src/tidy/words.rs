//! Words that the project gave up for standard ones: refused in identifiers, JSON names and flags, left alone
//! in prose.

use super::lexer::{Kind, Piece, pieces};

/// A word that is not used any more.
pub struct Word {
    /// As identifiers have it, in snake case: `reign`, `way_back`.
    pub old: &'static str,
    /// What to say instead.
    pub say: &'static str,
    /// Where it is right all the same: beginnings of paths, or whole identifiers.
    pub except: &'static [&'static str],
}

/// All of them. A word comes here in the change that takes it out of the code.
pub const WORDS: &[Word] = &[
    Word { old: "reign", say: "term", except: &[] },
    Word { old: "reigns", say: "terms", except: &[] },
    Word { old: "led_since", say: "term", except: &[] },
    Word { old: "life", say: "incarnation", except: &[] },
    Word { old: "beacon", say: "heartbeat", except: &[] },
    Word { old: "beacons", say: "heartbeats", except: &[] },
    Word { old: "beat", say: "heartbeat, or lease_manager", except: &[] },
    Word { old: "picture", say: "cluster_map", except: &[] },
    Word { old: "pictures", say: "cluster_maps", except: &[] },
    Word { old: "board", say: "shared_status", except: &[] },
    Word { old: "homeless", say: "storage_lost", except: &[] },
    Word { old: "rehouse", say: "relocate", except: &[] },
    Word { old: "heir", say: "successor", except: &[] },
    Word { old: "heirs", say: "successors", except: &[] },
    Word { old: "tally", say: "aggregate (scan)", except: &[] },
    Word { old: "tallies", say: "aggregates", except: &[] },
    Word { old: "tallying", say: "aggregating", except: &[] },
    Word { old: "hearing", say: "failure_detector", except: &[] },
    Word { old: "calamity", say: "failure_scenario", except: &[] },
    Word { old: "harm", say: "faults", except: &[] },
    Word { old: "harmed", say: "faulted", except: &[] },
    Word { old: "spoilt", say: "tainted", except: &[] },
    Word { old: "anew", say: "from_scratch", except: &[] },
    Word { old: "brain", say: "controller_process", except: &[] },
    Word { old: "way_back", say: "failback", except: &[] },
    Word { old: "kept_from", say: "log_floor", except: &[] },
    Word { old: "passed_over", say: "skipped", except: &[] },
    Word { old: "gathering", say: "reconciling", except: &[] },
    Word { old: "wish", say: "pending_flush, or what is waited for", except: &[] },
    Word { old: "wishes", say: "what is waited for", except: &[] },
    Word { old: "jobber", say: "job_client", except: &[] },
    Word { old: "taker", say: "snapshot_client", except: &["crates/ops/"] },
    Word { old: "crowd", say: "client_pool", except: &[] },
    Word { old: "intake", say: "input", except: &[] },
    Word { old: "door", say: "listener, or gateway (SQL)", except: &[] },
    Word { old: "doors", say: "listeners", except: &[] },
    Word { old: "strikes", say: "fault_injector", except: &[] },
    Word { old: "struck", say: "injected", except: &[] },
    Word { old: "depart", say: "decommission", except: &[] },
    Word { old: "departed", say: "decommissioned", except: &["crates/input/"] },
    Word { old: "leaving", say: "decommissioning", except: &[] },
];

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
        let meant = words.iter().find(|word| {
            let excepted = |except: &&str| file.starts_with(*except) || *except == name;
            has(&parts, &self::parts(word.old)) && !word.except.iter().any(excepted)
        });
        if let Some(word) = meant {
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
            found.push(name.to_string());
        }
    }
    let (before, after) = (around.0.trim_end(), around.1.trim_start());
    let key = after.starts_with(':') && !after.starts_with("::");
    let index = before.ends_with('[') && after.starts_with(']');
    let looked_up = before.ends_with(".get(") || before.ends_with(".get_mut(");
    let renamed = ["rename =", "alias =", "long ="].iter().any(|attribute| before.ends_with(attribute));
    if (key || index || looked_up || renamed) && is_name(text) {
        found.push(text.to_string());
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
        if c == '_' || c == '-' {
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
        Word { old: "reign", say: "term", except: &["crates/demo/", "ReignOfTheKing"] },
        Word { old: "way_back", say: "failback", except: &[] },
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
    fn the_list_is_in_snake_case_and_says_what_to_say() {
        for word in WORDS {
            assert_eq!(word.old, parts(word.old).join("_"));
            assert!(!word.say.is_empty(), "{}", word.old);
        }
    }
}

//! Names that say nothing by themselves: a type that is called `Plan` or `State` needs a word in front, and a
//! constant says what it bounds.

use super::lexer::{Kind, pieces};

/// Types of which one asks "of what?".
const TYPES: [&str; 8] = ["Plan", "Report", "State", "Stage", "Snapshot", "Told", "Held", "Verdict"];

/// Constants of which one asks "of what, and in which unit?". A unit is in the type (`Duration`, `Micros`) or
/// in the name (`_MS`, `_BYTES`).
const CONSTANTS: [&str; 10] =
    ["MOST", "LOOK", "LOOKS", "PATIENCE", "WITHIN", "AGAIN", "LONGEST", "AT_ONCE", "AT_MOST", "PACE"];

/// What is wrong with a file of Rust.
pub fn faults(file: &str, source: &str) -> Vec<String> {
    let code = pieces(source).into_iter().filter(|piece| piece.kind == Kind::Code);
    let code: String = code.flat_map(|piece| [piece.text, " "]).collect();
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    let mut found = Vec::new();
    let mut before = "";
    for word in words {
        let declares = ["struct", "enum", "union", "type", "trait"].contains(&before);
        if declares && TYPES.contains(&word) {
            found.push(format!(
                "{file}: a type that is called `{word}`: put a word in front that says of what"
            ));
        }
        if ["const", "static"].contains(&before) && CONSTANTS.contains(&word) {
            found.push(format!("{file}: a constant `{word}`: say what it bounds, and in which unit"));
        }
        before = word;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_nothing_are_refused_where_they_are_declared() {
        let count = |source: &str| faults("a.rs", source).len();
        assert_eq!(count("pub struct Plan { x: u8 } enum Stage<T> { A(T) } type Snapshot = u8;"), 3);
        assert_eq!(count("pub(crate) const MOST: usize = 1; static PATIENCE: u8 = 1;"), 2);
        assert_eq!(count("struct RunPlan; enum E { Plan(RunPlan), Stage } use axum::extract::State;"), 0);
        assert_eq!(
            count("// struct Plan;\nlet a = \"const MOST\"; const MOST_ROWS: u8 = 1; f(State::of(Plan))"),
            0
        );
    }
}

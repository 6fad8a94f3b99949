//! LIKE and ILIKE.

use pg::Failure;

/// One piece of a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Char(char),
    One,
    Any,
}

/// True if the text is like the pattern. `escape` makes the character after it stand for itself; `None`:
/// nothing does.
pub fn like(text: &str, pattern: &str, escape: Option<char>, fold: bool) -> Result<bool, Failure> {
    let fold = |c: char| if fold { lower(c) } else { c };
    let mut pieces = Vec::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        pieces.push(match c {
            c if Some(c) == escape => {
                let escaped = chars.next().ok_or_else(|| {
                    Failure::new("22025", "LIKE pattern must not end with escape character")
                })?;
                Piece::Char(fold(escaped))
            }
            '%' => Piece::Any,
            '_' => Piece::One,
            c => Piece::Char(fold(c)),
        });
    }
    let text: Vec<char> = text.chars().map(fold).collect();
    Ok(matches(&text, &pieces))
}

/// The last `%` is enough to come back to, so this takes no more than the product of both lengths.
fn matches(text: &[char], pieces: &[Piece]) -> bool {
    let (mut at, mut piece, mut back) = (0, 0, None);
    while at < text.len() {
        match pieces.get(piece) {
            Some(Piece::Any) => {
                back = Some((piece + 1, at));
                piece += 1;
            }
            Some(Piece::One) => (at, piece) = (at + 1, piece + 1),
            Some(Piece::Char(c)) if *c == text[at] => (at, piece) = (at + 1, piece + 1),
            _ => {
                let Some((after, from)) = back else { return false };
                back = Some((after, from + 1));
                (piece, at) = (after, from + 1);
            }
        }
    }
    pieces[piece..].iter().all(|piece| *piece == Piece::Any)
}

/// One character's lower case, where that is one character.
pub fn lower(c: char) -> char {
    let mut lowered = c.to_lowercase();
    match (lowered.next(), lowered.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// One character's upper case, where that is one character.
pub fn upper(c: char) -> char {
    let mut raised = c.to_uppercase();
    match (raised.next(), raised.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let cases = [
            ("abc", "abc", true),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "_b_", true),
            ("abc", "b", false),
            ("abc", "%b%", true),
            ("", "%", true),
            ("", "_", false),
            ("a%c", r"a\%c", true),
            ("abc", r"a\%c", false),
            ("aXbXc", "a%X%c", true),
            ("mississippi", "m%iss%pi", true),
            ("mississippi", "m%iss%pj", false),
            ("é", "_", true),
            ("ABC", "abc", false),
        ];
        for (text, pattern, expected) in cases {
            assert_eq!(like(text, pattern, Some('\\'), false), Ok(expected), "{text} {pattern}");
        }
        assert_eq!(like("ÉcOLE", "école", Some('\\'), true), Ok(true));
        assert_eq!(like("a_c", "a!_c", Some('!'), false), Ok(true));
        assert_eq!(like(r"a\c", r"a\c", None, false), Ok(true));
        assert_eq!(like("a", r"a\", Some('\\'), false).expect_err("open").code, "22025");
        assert_eq!(like(&"a".repeat(5000), &"%a".repeat(500), Some('\\'), false), Ok(true));
    }
}

//! Rust text cut into code, strings and comments, well enough to look for words in the right one of them.

/// What a piece of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Identifiers, operators, character literals.
    Code,
    /// The inside of a string literal, as it is written.
    Text,
    /// A comment, its slashes included.
    Comment,
}

/// A run of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece<'a> {
    pub kind: Kind,
    pub text: &'a str,
}

/// All of a file, in order; quotation marks of strings are left out.
pub fn pieces(source: &str) -> Vec<Piece<'_>> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        let special = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => Some((Kind::Comment, at, end_of_line(bytes, at), 0)),
            b'/' if bytes.get(at + 1) == Some(&b'*') => Some((Kind::Comment, at, end_of_block(bytes, at), 0)),
            b'"' => Some(plain_string(bytes, at)),
            b'r' if !follows_name(bytes, at) => raw_string(bytes, at),
            b'b' | b'c' if bytes.get(at + 1) == Some(&b'r') && !follows_name(bytes, at) => {
                raw_string(bytes, at + 1)
            }
            b'\'' => {
                at = end_of_quote(bytes, at);
                continue;
            }
            _ => None,
        };
        let Some((kind, from, to, closing)) = special else {
            at += 1;
            continue;
        };
        push(&mut found, Kind::Code, &source[start..at]);
        found.push(Piece { kind, text: &source[from..to] });
        at = (to + closing).min(bytes.len());
        start = at;
    }
    push(&mut found, Kind::Code, &source[start..]);
    found
}

fn push<'a>(found: &mut Vec<Piece<'a>>, kind: Kind, text: &'a str) {
    if !text.is_empty() {
        found.push(Piece { kind, text });
    }
}

fn follows_name(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn end_of_block(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => (depth, at) = (depth + 1, at + 2),
            (b'*', Some(b'/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(bytes.len())
}

/// Kind, beginning and end of the inside, and the length of what closes it.
type Found = (Kind, usize, usize, usize);

fn plain_string(bytes: &[u8], quote: usize) -> Found {
    let mut at = quote + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (Kind::Text, quote + 1, at.min(bytes.len()), 1)
}

/// `at` is that of the `r`. None: it is an ordinary name.
fn raw_string(bytes: &[u8], at: usize) -> Option<Found> {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let quote = at + 1 + hashes;
    if bytes.get(quote) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = bytes[quote + 1..].windows(closing.len()).position(|window| window == closing);
    let end = length.map_or(bytes.len(), |length| quote + 1 + length);
    Some((Kind::Text, quote + 1, end, closing.len()))
}

/// Behind a character literal, or behind the mark of a lifetime.
fn end_of_quote(bytes: &[u8], quote: usize) -> usize {
    match bytes.get(quote + 1) {
        Some(b'\\') => {
            let rest = bytes.get(quote + 3..).unwrap_or(&[]);
            rest.iter().position(|byte| *byte == b'\'').map_or(bytes.len(), |length| quote + 4 + length)
        }
        Some(_) => {
            // A character has up to four bytes.
            let closes = (2..=5).find(|length| bytes.get(quote + length) == Some(&b'\''));
            let lifetime = bytes[quote + 1].is_ascii_alphanumeric() || bytes[quote + 1] == b'_';
            match closes {
                Some(2) => quote + 3,
                Some(length) if !lifetime => quote + length + 1,
                _ => quote + 1,
            }
        }
        None => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, source: &str) -> Vec<&str> {
        pieces(source).into_iter().filter(|piece| piece.kind == kind).map(|piece| piece.text).collect()
    }

    #[test]
    fn strings_and_comments_are_told_from_code() {
        let source =
            "let a = \"one // \\\" two\"; // three \"four\"\nb(/* five /* six */ */ 'x', '\"', '\\'');";
        assert_eq!(of(Kind::Text, source), ["one // \\\" two"]);
        assert_eq!(of(Kind::Comment, source), ["// three \"four\"", "/* five /* six */ */"]);
        assert_eq!(of(Kind::Code, source), ["let a = ", "; ", "\nb(", " 'x', '\"', '\\'');"]);
    }

    #[test]
    fn raw_strings_lifetimes_and_names_that_end_in_r() {
        let source = "fn f<'a>(x: &'a str) { var(r#\"raw \"quoted\" \"#, br\"bytes\", 'é') }";
        assert_eq!(of(Kind::Text, source), ["raw \"quoted\" ", "bytes"]);
        assert_eq!(of(Kind::Code, "for r in bar { 'r' }"), ["for r in bar { 'r' }"]);
        assert_eq!(of(Kind::Text, "open \"end"), ["end"]);
        assert_eq!(of(Kind::Code, "'"), ["'"]);
    }
}

//! Where a statement ends: at a semicolon outside of quotes, comments and parentheses, as psql sees it.

/// What a text that was typed so far is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// A statement ends before this byte; its semicolon is before it, too.
    At(usize),
    /// Nothing but blanks and comments.
    Nothing,
    /// More must come.
    Open,
}

/// Finds the end of the first statement.
pub fn end(text: &str) -> End {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut something) = (0, 0usize, false);
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = match bytes[at] {
            b'-' if rest.starts_with("--") => Some(rest.find('\n').map_or(rest.len(), |end| end + 1)),
            b'/' if rest.starts_with("/*") => match comment(rest) {
                Some(length) => Some(length),
                None => return End::Open,
            },
            _ => None,
        };
        if let Some(length) = skipped {
            at += length;
            continue;
        }
        let length = match bytes[at] {
            b'\'' => quoted(rest, '\'', escapes(&text[..at])),
            b'"' => quoted(rest, '"', false),
            b'$' => dollar(rest, &text[..at]),
            b'(' => {
                depth += 1;
                Some(1)
            }
            b')' => {
                depth = depth.saturating_sub(1);
                Some(1)
            }
            b';' if depth == 0 => return if something { End::At(at + 1) } else { skip(text, at + 1) },
            _ => Some(rest.chars().next().map_or(1, char::len_utf8)),
        };
        something |= !bytes[at].is_ascii_whitespace();
        match length {
            Some(length) => at += length,
            None => return End::Open,
        }
    }
    if something { End::Open } else { End::Nothing }
}

/// A semicolon with nothing before it is no statement.
fn skip(text: &str, from: usize) -> End {
    match end(&text[from..]) {
        End::At(at) => End::At(from + at),
        other => other,
    }
}

/// The length of a comment, which may hold others.
fn comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// True if a quote after this begins a text with backslashes that mean something: `E'...'`.
fn escapes(before: &str) -> bool {
    let mut letters = before.chars().rev();
    let is_e = letters.next().is_some_and(|letter| letter.eq_ignore_ascii_case(&'e'));
    is_e && !letters.next().is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
}

/// The length of what is quoted; a doubled quote is one within.
fn quoted(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && escapes {
            letters.next()?;
        } else if letter == quote {
            match letters.peek() {
                Some((_, next)) if *next == quote => drop(letters.next()),
                _ => return Some(at + 1),
            }
        }
    }
    None
}

/// The length of `$tag$...$tag$`; of anything else that begins with a dollar, one.
fn dollar(text: &str, before: &str) -> Option<usize> {
    let in_name = before.chars().next_back().is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let tag = text[1..].find('$').map(|end| &text[..end + 2]);
    let inner = |tag: &&str| {
        let name = &tag[1..tag.len() - 1];
        !name.starts_with(|letter: char| letter.is_ascii_digit())
            && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    };
    match tag.filter(|_| !in_name).filter(inner) {
        Some(tag) => text[tag.len()..].find(tag).map(|end| end + 2 * tag.len()),
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_their_semicolon() {
        for whole in [
            "select 1;",
            "select ';';",
            "select 'it''s;';",
            r"select E'\';';",
            r"select name'\';",
            "select \"a;\"\"b\";",
            "select 1 -- ; not here\n;",
            "/* ; /* ; */ ; */ select 1;",
            "select $$;$$;",
            "select $a$ $$; $a$;",
            "select $1;",
            "select (1;2);",
            "select 'ü;', 'é';",
            ";; select 1;",
        ] {
            assert_eq!(end(whole), End::At(whole.len()), "{whole}");
            assert_eq!(end(&format!("{whole} select 2;")), End::At(whole.len()), "{whole}");
        }
        for open in [
            "select 1",
            "select ';",
            "select \"a",
            "/* x",
            "select $$;",
            "select (1;",
            "select 1 -- ;",
            r"select E'\';",
        ] {
            assert_eq!(end(open), End::Open, "{open}");
        }
        for nothing in ["", "  \n", "-- x", ";", " ; /* ; */ ;"] {
            assert_eq!(end(nothing), End::Nothing, "{nothing}");
        }
    }
}

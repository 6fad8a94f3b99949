//! Arrays: one dimension, kept as the text that PostgreSQL writes for them.
//!
//! The text is canonical (an element is quoted only where it must be), so equal arrays have equal texts.
//! `int2vector` and `oidvector` have a text of their own, numbers with blanks between, and count from 0.

use crate::binary;
use crate::failure::{Failure, code};
use crate::kind::Kind;
use crate::text;
use types::data::Value;

/// The most elements that an array from a client may have.
pub const MAX_ELEMENTS: usize = 100_000;

/// The texts of an array's elements; `None`: null.
pub type Elements = Vec<Option<String>>;

fn is_vector(kind: Kind) -> bool {
    matches!(kind, Kind::Int2Vector | Kind::OidVector)
}

/// The elements of an array's text. What is no array of one dimension is refused.
pub fn elements(kind: Kind, text: &str) -> Result<Elements, Failure> {
    let elements = match is_vector(kind) {
        true => text.split_ascii_whitespace().map(|number| Some(number.to_string())).collect(),
        false => parse(text)?,
    };
    if elements.len() > MAX_ELEMENTS {
        let message = format!("an array has at most {MAX_ELEMENTS} elements");
        return Err(Failure::new(code::LIMIT, message));
    }
    Ok(elements)
}

/// The text of an array with these elements.
pub fn render(kind: Kind, elements: &[Option<String>]) -> String {
    if is_vector(kind) {
        let numbers: Vec<&str> = elements.iter().flatten().map(String::as_str).collect();
        return numbers.join(" ");
    }
    let mut out = String::from("{");
    for (at, element) in elements.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        match element {
            None => out.push_str("NULL"),
            Some(element) => quote(&mut out, element),
        }
    }
    out.push('}');
    out
}

/// The one text of an array that equals this one: its elements are read as the type that they have.
pub fn canonical(kind: Kind, text: &str) -> Result<String, Failure> {
    let mut elements = elements(kind, text)?;
    let of = kind.element().unwrap_or(Kind::Text);
    for element in elements.iter_mut().flatten() {
        let value = text::parse(of, element)?;
        element.clear();
        text::write_as(element, of, &value);
    }
    Ok(render(kind, &elements))
}

fn quote(out: &mut String, element: &str) {
    let special = |c: char| "{},\"\\".contains(c) || c.is_ascii_whitespace() || c == '\x0b';
    if !element.is_empty() && !element.eq_ignore_ascii_case("null") && !element.contains(special) {
        return out.push_str(element);
    }
    out.push('"');
    for c in element.chars() {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

fn parse(text: &str) -> Result<Elements, Failure> {
    let malformed = || Failure::new(code::BAD_TEXT, format!("malformed array literal: \"{text}\""));
    let mut rest = text.trim();
    if rest.starts_with('[') {
        return Err(Failure::unsupported("an array with bounds", "leave them out: arrays begin at 1"));
    }
    rest = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    let mut found = Vec::new();
    if rest.trim().is_empty() {
        return Ok(found);
    }
    let mut chars = rest.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        let (mut element, mut quoted) = (String::new(), false);
        if chars.next_if_eq(&'"').is_some() {
            quoted = true;
            loop {
                match chars.next().ok_or_else(malformed)? {
                    '"' => break,
                    '\\' => element.push(chars.next().ok_or_else(malformed)?),
                    c => element.push(c),
                }
            }
            while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '{' => return Err(Failure::unsupported("an array of arrays", "use one dimension")),
                    '}' | '"' => return Err(malformed()),
                    '\\' => element.push(chars.next().ok_or_else(malformed)?),
                    c => element.push(c),
                }
            }
            element.truncate(element.trim_end().len());
            if element.is_empty() {
                return Err(malformed());
            }
        }
        let null = !quoted && element.eq_ignore_ascii_case("null");
        found.push((!null).then_some(element));
        match chars.next() {
            None => return Ok(found),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}

/// Appends an array in PostgreSQL's binary format.
pub fn write_binary(out: &mut Vec<u8>, kind: Kind, text: &str) -> Result<(), Failure> {
    let elements = elements(kind, text)?;
    let of = kind.element().unwrap_or(Kind::Text);
    let count = elements.len() as i32;
    out.extend((if count == 0 && !is_vector(kind) { 0i32 } else { 1 }).to_be_bytes());
    out.extend(i32::from(elements.iter().any(Option::is_none)).to_be_bytes());
    out.extend(of.oid().to_be_bytes());
    if count > 0 || is_vector(kind) {
        out.extend(count.to_be_bytes());
        out.extend((if is_vector(kind) { 0i32 } else { 1 }).to_be_bytes());
    }
    for element in elements {
        let Some(element) = element else {
            out.extend((-1i32).to_be_bytes());
            continue;
        };
        let at = out.len();
        out.extend([0; 4]);
        binary::write(out, of, &text::parse(of, &element)?)?;
        let length = (out.len() - at - 4) as i32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// Reads an array in PostgreSQL's binary format: its canonical text.
pub fn read_binary(kind: Kind, bytes: &[u8]) -> Result<String, Failure> {
    let wrong = || {
        let message = format!("incorrect binary data format for type {}", kind.name());
        Failure::new(code::BAD_BINARY, message)
    };
    let of = kind.element().unwrap_or(Kind::Text);
    let mut rest = bytes;
    let mut word = || -> Result<i32, Failure> {
        let (head, tail) = rest.split_at_checked(4).ok_or_else(wrong)?;
        rest = tail;
        Ok(i32::from_be_bytes(head.try_into().map_err(|_| wrong())?))
    };
    let (dimensions, _, element) = (word()?, word()?, word()? as u32);
    if element != of.oid() {
        return Err(wrong());
    }
    let count = match dimensions {
        0 => 0,
        1 => {
            let (count, _) = (word()?, word()?);
            usize::try_from(count).map_err(|_| wrong())?
        }
        _ => return Err(Failure::unsupported("an array of arrays", "use one dimension")),
    };
    if count > MAX_ELEMENTS {
        let message = format!("an array has at most {MAX_ELEMENTS} elements");
        return Err(Failure::new(code::LIMIT, message));
    }
    let mut found = Vec::new();
    for _ in 0..count {
        let (head, tail) = rest.split_at_checked(4).ok_or_else(wrong)?;
        let length = i32::from_be_bytes(head.try_into().map_err(|_| wrong())?);
        rest = tail;
        if length == -1 {
            found.push(None);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| wrong())?;
        let (head, tail) = rest.split_at_checked(length).ok_or_else(wrong)?;
        found.push(Some(text::to_text(&binary::parse(of, head)?)));
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(wrong());
    }
    Ok(render(kind, &found))
}

/// A value as an element's text; `None`: null.
pub fn of_value(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| text::to_text(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_postgresql_reads_them_and_written_as_it_writes_them() {
        for (kind, text, shown) in [
            (Kind::TextArray, "{}", "{}"),
            (Kind::TextArray, r#"{a,"b c",NULL,"NULL",""}"#, r#"{a,"b c",NULL,"NULL",""}"#),
            (Kind::TextArray, r#"{ a , b }"#, "{a,b}"),
            (Kind::TextArray, r#"{"a\"b","c\\d","e,f"}"#, r#"{"a\"b","c\\d","e,f"}"#),
            (Kind::Int4Array, "{1, 002 ,-3}", "{1,2,-3}"),
            (Kind::BoolArray, "{true,f}", "{t,f}"),
            (Kind::Int2Vector, "1  2", "1 2"),
        ] {
            let canonical = canonical(kind, text).expect(text);
            assert_eq!(canonical, shown, "{text}");
            let mut bytes = Vec::new();
            write_binary(&mut bytes, kind, &canonical).expect("writes");
            assert_eq!(read_binary(kind, &bytes).as_deref(), Ok(shown), "{text}");
        }
        for (text, code) in
            [("1", "22P02"), ("{1", "22P02"), ("{,}", "22P02"), ("{a\"b}", "22P02"), ("{{1}}", "0A000")]
        {
            assert_eq!(canonical(Kind::TextArray, text).expect_err(text).code, code, "{text}");
        }
        assert_eq!(canonical(Kind::Int4Array, "{x}").expect_err("no number").code, "22P02");
        assert_eq!(read_binary(Kind::Int4Array, &[0; 5]).expect_err("short").code, code::BAD_BINARY);
    }
}

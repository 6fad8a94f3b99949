//! Nested values: JSON, and with it bags (lists whose order does not matter).
//!
//! In JSON text a bag is written `{"$bag": [...]}` and a float that JSON has no number for `{"$float":
//! "NaN"}`. An object that would be taken for one of these is written `{"$object": {...}}`, so that every
//! tree comes back as it was.

use super::codec::{Input, put_bytes, put_signed, put_varint};
use super::value::compare_floats;
use serde_json::Value as Text;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// How deep a tree may be nested. Half of what JSON readers commonly accept, because a bag takes two levels
/// of JSON.
pub const MAX_DEPTH: usize = 60;

/// A nested value. Equality and order are those of the content: bags ignore order, all NaN are one, -0 is 0.
#[derive(Clone, Debug)]
pub enum Json {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number. Whole numbers beyond 64 bits are read as floats too.
    Float(f64),
    /// A text.
    Text(String),
    /// Values in an order.
    List(Vec<Json>),
    /// Values in no order; the same one may occur more than once.
    Bag(Bag),
    /// Values by name.
    Object(BTreeMap<String, Json>),
}

/// The values of a bag, kept sorted so that equal bags look the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Bag(Vec<Json>);

impl Bag {
    /// A bag of these values.
    pub fn new(mut items: Vec<Json>) -> Bag {
        items.sort();
        Bag(items)
    }

    /// The values, sorted.
    pub fn items(&self) -> &[Json] {
        &self.0
    }
}

/// Why something is not a [`Json`] tree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at all.
    #[error("not JSON: {0}")]
    Malformed(String),
    /// Nested too deep.
    #[error("nested deeper than 60 levels")]
    TooDeep,
    /// Stored bytes that no tree is encoded as.
    #[error("the stored bytes are damaged")]
    Damaged,
}

impl Json {
    /// Reads JSON text.
    pub fn parse(text: &str) -> Result<Json, JsonError> {
        let value = serde_json::from_str(text).map_err(|error| JsonError::Malformed(error.to_string()))?;
        Json::from_json(value)
    }

    /// Takes over a JSON value, bags and the other marked objects understood.
    pub fn from_json(value: Text) -> Result<Json, JsonError> {
        from_text(value, MAX_DEPTH)
    }

    /// The JSON value it is written as.
    pub fn to_json(&self) -> Text {
        match self {
            Json::Null => Text::Null,
            Json::Bool(truth) => Text::Bool(*truth),
            Json::Int(number) => Text::from(*number),
            Json::Float(number) => match serde_json::Number::from_f64(*number) {
                Some(number) => Text::Number(number),
                None => marked(FLOAT, Text::String(format!("{number:?}"))),
            },
            Json::Text(text) => Text::String(text.clone()),
            Json::List(items) => items.iter().map(Json::to_json).collect(),
            Json::Bag(bag) => marked(BAG, bag.0.iter().map(Json::to_json).collect()),
            Json::Object(fields) => {
                let mark =
                    fields.keys().next().filter(|_| fields.len() == 1).is_some_and(|name| is_mark(name));
                let object = fields.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
                if mark { marked(OBJECT, object) } else { object }
            }
        }
    }

    /// How deep it is nested; 0 for what has nothing inside. Stops counting above [`MAX_DEPTH`].
    pub fn depth(&self) -> usize {
        fn deepest<'a>(items: impl Iterator<Item = &'a Json>, left: usize) -> usize {
            let Some(left) = left.checked_sub(1) else { return 1 };
            1 + items.map(|item| below(item, left)).max().unwrap_or(0)
        }
        fn below(json: &Json, left: usize) -> usize {
            match json {
                Json::List(items) => deepest(items.iter(), left),
                Json::Bag(bag) => deepest(bag.0.iter(), left),
                Json::Object(fields) => deepest(fields.values(), left),
                _ => 0,
            }
        }
        below(self, MAX_DEPTH)
    }

    /// Appends the stored form. The tree is no deeper than [`MAX_DEPTH`].
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Json::Null | Json::Bool(_) => {}
            Json::Int(number) => put_signed(out, (*number).into()),
            Json::Float(number) => out.extend_from_slice(&number.to_bits().to_le_bytes()),
            Json::Text(text) => put_bytes(out, text.as_bytes()),
            Json::List(items) | Json::Bag(Bag(items)) => {
                put_varint(out, items.len() as u128);
                items.iter().for_each(|item| item.encode(out));
            }
            Json::Object(fields) => encode_fields(fields, out),
        }
    }

    /// Reads the stored form. `None` for bytes that no tree is stored as.
    pub(crate) fn decode(input: &mut Input<'_>) -> Option<Json> {
        decode_below(input, MAX_DEPTH)
    }

    fn tag(&self) -> u8 {
        match self {
            Json::Null => 0,
            Json::Bool(false) => 1,
            Json::Bool(true) => 2,
            Json::Int(_) => 3,
            Json::Float(_) => 4,
            Json::Text(_) => 5,
            Json::List(_) => 6,
            Json::Bag(_) => 7,
            Json::Object(_) => 8,
        }
    }
}

impl Ord for Json {
    fn cmp(&self, other: &Json) -> Ordering {
        match (self, other) {
            (Json::Int(one), Json::Int(two)) => one.cmp(two),
            (Json::Float(one), Json::Float(two)) => compare_floats(*one, *two),
            (Json::Text(one), Json::Text(two)) => one.cmp(two),
            (Json::List(one), Json::List(two)) => one.cmp(two),
            (Json::Bag(one), Json::Bag(two)) => one.cmp(two),
            (Json::Object(one), Json::Object(two)) => one.cmp(two),
            _ => self.tag().cmp(&other.tag()),
        }
    }
}

impl PartialOrd for Json {
    fn partial_cmp(&self, other: &Json) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Json {}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_json().fmt(f)
    }
}

const BAG: &str = "$bag";
const FLOAT: &str = "$float";
const OBJECT: &str = "$object";

fn is_mark(name: &str) -> bool {
    matches!(name, BAG | FLOAT | OBJECT)
}

fn marked(mark: &str, value: Text) -> Text {
    Text::Object([(mark.to_string(), value)].into_iter().collect())
}

fn from_text(value: Text, left: usize) -> Result<Json, JsonError> {
    let below = || left.checked_sub(1).ok_or(JsonError::TooDeep);
    Ok(match value {
        Text::Null => Json::Null,
        Text::Bool(truth) => Json::Bool(truth),
        Text::Number(number) => match number.as_i64() {
            Some(number) => Json::Int(number),
            None => Json::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Text::String(text) => Json::Text(text),
        Text::Array(items) => Json::List(list_from_text(items, below()?)?),
        Text::Object(mut fields) => {
            let mark = fields.keys().next().filter(|name| fields.len() == 1 && is_mark(name)).cloned();
            let inner = mark.as_ref().and_then(|name| fields.remove(name));
            match (mark.as_deref(), inner) {
                (Some(BAG), Some(Text::Array(items))) => {
                    Json::Bag(Bag::new(list_from_text(items, below()?)?))
                }
                (Some(FLOAT), Some(Text::String(text))) if float_of(&text).is_some() => {
                    Json::Float(float_of(&text).unwrap_or(f64::NAN))
                }
                (Some(OBJECT), Some(Text::Object(inner))) => object_from_text(inner, below()?)?,
                (Some(name), Some(other)) => {
                    object_from_text([(name.to_string(), other)].into_iter().collect(), below()?)?
                }
                _ => object_from_text(fields, below()?)?,
            }
        }
    })
}

fn float_of(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn list_from_text(items: Vec<Text>, left: usize) -> Result<Vec<Json>, JsonError> {
    items.into_iter().map(|item| from_text(item, left)).collect()
}

fn object_from_text(fields: serde_json::Map<String, Text>, left: usize) -> Result<Json, JsonError> {
    let fields = fields.into_iter().map(|(name, value)| Ok((name, from_text(value, left)?)));
    Ok(Json::Object(fields.collect::<Result<_, JsonError>>()?))
}

/// Appends named values in the order of their names.
pub(crate) fn encode_fields(fields: &BTreeMap<String, Json>, out: &mut Vec<u8>) {
    put_varint(out, fields.len() as u128);
    for (name, value) in fields {
        put_bytes(out, name.as_bytes());
        value.encode(out);
    }
}

/// Reads named values, each one level below the one that holds them.
pub(crate) fn decode_fields(input: &mut Input<'_>, left: usize) -> Option<BTreeMap<String, Json>> {
    let count = input.count()?;
    let mut fields = BTreeMap::new();
    for _ in 0..count {
        let name = input.text()?;
        // Ascending names make sure that none comes twice.
        if fields.last_key_value().is_some_and(|(last, _): (&String, _)| last.as_str() >= name) {
            return None;
        }
        fields.insert(name.to_string(), decode_below(input, left)?);
    }
    Some(fields)
}

fn decode_below(input: &mut Input<'_>, left: usize) -> Option<Json> {
    Some(match input.byte()? {
        0 => Json::Null,
        1 => Json::Bool(false),
        2 => Json::Bool(true),
        3 => Json::Int(input.signed()?.try_into().ok()?),
        4 => Json::Float(f64::from_bits(u64::from_le_bytes(input.array()?))),
        5 => Json::Text(input.text()?.to_string()),
        6 => Json::List(decode_items(input, left.checked_sub(1)?)?),
        7 => Json::Bag(Bag::new(decode_items(input, left.checked_sub(1)?)?)),
        8 => Json::Object(decode_fields(input, left.checked_sub(1)?)?),
        _ => return None,
    })
}

fn decode_items(input: &mut Input<'_>, left: usize) -> Option<Vec<Json>> {
    let count = input.count()?;
    // The list grows as items are really there: a false count must not reserve memory.
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(decode_below(input, left)?);
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_bag_ignores_order_and_counts_repetition() {
        assert_eq!(json(r#"{"$bag":[1,2,2]}"#), json(r#"{"$bag":[2,1,2]}"#));
        assert_ne!(json(r#"{"$bag":[1,2,2]}"#), json(r#"{"$bag":[1,2]}"#));
        assert_ne!(json("[1,2]"), json("[2,1]"));
        assert_eq!(json(r#"{"$bag":["b","a"]}"#).to_string(), r#"{"$bag":["a","b"]}"#);
    }

    #[test]
    fn every_tree_comes_back_from_its_text() {
        let one = |name: &str, value: Json| Json::Object([(name.to_string(), value)].into());
        let trees = [
            Json::Float(f64::NAN),
            Json::Float(f64::NEG_INFINITY),
            Json::Float(1.0),
            Json::Int(i64::MIN),
            one("$bag", Json::List(vec![Json::Int(1)])),
            one("$bag", Json::Int(1)),
            one("$float", Json::Text("NaN".into())),
            one("$object", one("$object", Json::Null)),
            one("a", Json::Bag(Bag::new(vec![one("$bag", Json::Null)]))),
            Json::Object(BTreeMap::new()),
        ];
        for tree in trees {
            assert_eq!(json(&tree.to_string()), tree, "{tree}");
        }
        assert_eq!(json(r#"{"$float":"x"}"#), one("$float", Json::Text("x".into())));
    }

    #[test]
    fn too_deep_is_refused_and_the_deepest_comes_back() {
        let nested = |levels: usize| {
            (0..levels).fold(Json::Int(1), |inner, _| Json::Object([("$bag".to_string(), inner)].into()))
        };
        let deepest = nested(MAX_DEPTH);
        assert_eq!(deepest.depth(), MAX_DEPTH);
        assert_eq!(json(&deepest.to_string()), deepest);
        assert_eq!(nested(MAX_DEPTH + 5).depth(), MAX_DEPTH + 1);
        let text = format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
        assert_eq!(Json::parse(&text), Err(JsonError::TooDeep));
        assert!(matches!(Json::parse("{"), Err(JsonError::Malformed(_))));
    }

    #[test]
    fn stored_names_must_ascend() {
        let twice = [8, 2, 1, b'a', 0, 1, b'a', 0];
        assert_eq!(Json::decode(&mut Input::new(&twice)), None);
        let deep = [6, 1].repeat(MAX_DEPTH + 1);
        assert_eq!(Json::decode(&mut Input::new(&deep)), None);
    }
}

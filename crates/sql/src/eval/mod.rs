//! Functions and operators on values, as PostgreSQL 15 has them. The evaluating engine calls them for each
//! row, the binder calls them once for constants.

pub mod cast;
mod dates;
pub mod json;
pub mod like;
mod maths;
pub mod numeric;
mod regex;
mod spans;
mod strings;

use crate::ty::{Ty, common};
use pg::Failure;
use std::sync::OnceLock;
use types::data::Value;

/// What computes a function. Its arguments have the types of its signature, and none of them is null.
pub type Eval = fn(&[Value]) -> Result<Value, Failure>;

/// One function for one list of types. All are strict: with a null among their arguments they give null.
pub struct Function {
    /// Its name; operators have theirs.
    pub name: &'static str,
    /// The types of its arguments.
    pub arguments: &'static [Ty],
    /// The type of what it gives.
    pub result: Ty,
    /// How.
    pub eval: Eval,
}

/// Names a [`Function`] in the engine's statements.
pub type FunctionId = usize;

/// Every function.
pub fn all() -> &'static [Function] {
    static ALL: OnceLock<Vec<Function>> = OnceLock::new();
    ALL.get_or_init(|| {
        let of_text = strings::functions().into_iter().chain(regex::functions()).chain(json::functions());
        let of_time = dates::functions().into_iter().chain(spans::functions());
        maths::functions().into_iter().chain(of_text).chain(of_time).collect()
    })
}

/// What became of a search for a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// This one.
    One(FunctionId),
    /// The name is known, but not with such arguments.
    OtherArguments,
    /// The name is not known.
    Nothing,
}

/// The function of this name that takes such arguments; `None` stands for a literal or parameter without a
/// type.
///
/// As in PostgreSQL, most arguments of the very type win; untyped ones prefer text, or the type of the only
/// typed one.
pub fn find(name: &str, given: &[Option<Ty>]) -> Found {
    let named = || all().iter().enumerate().filter(|(_, function)| function.name == name);
    if named().next().is_none() {
        return Found::Nothing;
    }
    best(named().map(|(id, function)| (id, function.arguments)), given)
        .map_or(Found::OtherArguments, Found::One)
}

/// The best of several lists of arguments for those that are given, by its number.
pub fn best(candidates: impl Iterator<Item = (usize, &'static [Ty])>, given: &[Option<Ty>]) -> Option<usize> {
    let fits = |arguments: &[Ty]| {
        arguments.len() == given.len()
            && arguments.iter().zip(given).all(|(to, from)| from.is_none_or(|from| from.becomes(*to)))
    };
    // An operator with one untyped side takes it to be like the other side.
    let other = given.iter().flatten().copied().reduce(|one, two| common(one, two).unwrap_or(one));
    let score = |arguments: &[Ty]| {
        let of = |(to, from): (&Ty, &Option<Ty>)| match from {
            Some(from) if from == to => 4,
            // Where no number is of the very type, PostgreSQL prefers double precision.
            Some(_) if *to == Ty::Float8 => 1,
            Some(_) => 0,
            None if other == Some(*to) => 2,
            None if other.is_none() && *to == Ty::Text => 2,
            None => 0,
        };
        arguments.iter().zip(given).map(of).sum::<i32>()
    };
    let mut best: Option<(FunctionId, i32)> = None;
    for (id, arguments) in candidates.filter(|(_, arguments)| fits(arguments)) {
        let score = score(arguments);
        if best.is_none_or(|(_, known)| score > known) {
            best = Some((id, score));
        }
    }
    best.map(|(id, _)| id)
}

/// Calls a function; null if an argument is.
pub fn call(id: FunctionId, arguments: &[Value]) -> Result<Value, Failure> {
    match arguments.iter().any(Value::is_null) {
        true => Ok(Value::Null),
        false => (all()[id].eval)(arguments),
    }
}

/// Arguments of a function do not have its types: the binder or the engine has a bug.
pub(crate) fn mistyped(arguments: &[Value]) -> Failure {
    Failure::new(pg::code::INTERNAL, format!("a function was called with {arguments:?}"))
}

/// A UUID that nobody can guess: of version 4.
pub fn random_uuid() -> Value {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    Value::Uuid(types::data::uuid::version_4(bytes))
}

/// True for names of the one zone that is known here.
pub fn is_utc(name: &str) -> bool {
    ["utc", "etc/utc", "gmt", "0", "+00:00"].contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function, arguments as `type:text`, result as text or an error's code.
    const CASES: &[(&str, &[&str], &str)] = &[
        ("+", &["i:2147483646", "i:1"], "2147483647"),
        ("+", &["i:2147483647", "i:1"], "22003"),
        ("+", &["i:2147483647", "l:1"], "2147483648"),
        ("+", &["l:9223372036854775807", "l:1"], "22003"),
        ("*", &["l:4611686018427387904", "l:2"], "22003"),
        ("/", &["i:7", "i:2"], "3"),
        ("/", &["i:-7", "i:2"], "-3"),
        ("/", &["i:1", "i:0"], "22012"),
        ("%", &["i:-7", "i:2"], "-1"),
        ("/", &["l:-9223372036854775808", "l:-1"], "22003"),
        ("%", &["l:-9223372036854775808", "l:-1"], "0"),
        ("+", &["n:0.1", "n:0.2"], "0.3"),
        ("+", &["i:1", "n:0.5"], "1.5"),
        ("+", &["f:0.1", "f:0.2"], "0.30000000000000004"),
        ("*", &["f:1e200", "f:1e200"], "22003"),
        ("/", &["f:1", "f:0"], "22012"),
        ("-", &["i:-2147483648"], "22003"),
        ("abs", &["n:-1.5"], "1.5"),
        ("round", &["n:2.5"], "3"),
        ("round", &["f:2.5"], "2"),
        ("round", &["n:2.345", "i:2"], "2.35"),
        ("ceil", &["n:1.1"], "2"),
        ("floor", &["f:-1.5"], "-2"),
        ("round", &["i:7"], "7"),
        ("power", &["f:2", "f:10"], "1024"),
        ("sqrt", &["f:-1"], "2201F"),
        ("mod", &["i:7", "i:4"], "3"),
        ("length", &["t:é€"], "2"),
        ("octet_length", &["t:é€"], "5"),
        ("upper", &["t:straße"], "STRAßE"),
        ("substring", &["t:hello", "i:2", "i:3"], "ell"),
        ("substring", &["t:hello", "i:0", "i:2"], "h"),
        ("substring", &["t:hello", "i:3"], "llo"),
        ("substring", &["t:hello", "i:1", "i:-1"], "22011"),
        ("btrim", &["t:  a "], "a"),
        ("ltrim", &["t:xxa", "t:x"], "a"),
        ("replace", &["t:aXbX", "t:X", "t:--"], "a--b--"),
        ("strpos", &["t:hello", "t:l"], "3"),
        ("left", &["t:hello", "i:-2"], "hel"),
        ("right", &["t:hello", "i:2"], "lo"),
        ("||", &["t:a", "t:b"], "ab"),
        ("repeat", &["t:ab", "i:3"], "ababab"),
        ("+", &["d:2024-02-28", "i:2"], "2024-03-01"),
        ("-", &["d:2024-03-01", "d:2024-02-28"], "2"),
        ("date_part", &["t:year", "d:2024-03-01"], "2024"),
        ("extract", &["t:epoch", "z:1970-01-01 00:00:01.5+00"], "1.5"),
        ("date_part", &["t:dow", "d:2024-03-03"], "0"),
        ("extract", &["t:week", "d:2021-01-01"], "0A000"),
        ("date_trunc", &["t:month", "z:2024-03-15 12:34:56+00"], "2024-03-01 00:00:00+00"),
        ("starts_with", &["t:hello", "t:he"], "t"),
        ("->", &["j:{\"a\": {\"b\": [1, null, \"x\"]}}", "t:a"], "{\"b\":[1,null,\"x\"]}"),
        ("->", &["j:[1, 2]", "i:-1"], "2"),
        ("->>", &["j:[1, \"two\"]", "i:1"], "two"),
        ("#>>", &["j:{\"a\": {\"b\": [1, null, \"x\"]}}", "a:{a,b,2}"], "x"),
        ("#>", &["j:{\"a\": [1]}", "a:{a,-1}"], "1"),
        ("@>", &["j:{\"a\": [1, 2.0], \"b\": 3}", "j:{\"a\": [2]}"], "t"),
        ("@>", &["j:[1, [2]]", "j:[2]"], "f"),
        ("@>", &["j:[1, [2]]", "j:1"], "t"),
        ("<@", &["j:1", "j:1.0"], "t"),
        ("||", &["j:{\"a\": 1}", "j:{\"a\": 2, \"b\": 3}"], "{\"a\":2,\"b\":3}"),
        ("||", &["j:[1]", "j:2"], "[1,2]"),
        ("?", &["j:[\"a\"]", "t:a"], "t"),
        ("?&", &["j:{\"a\": 1}", "a:{a,b}"], "f"),
        ("?|", &["j:{\"a\": 1}", "a:{a,b}"], "t"),
        ("-", &["j:{\"a\": 1, \"b\": 2}", "t:a"], "{\"b\":2}"),
        ("-", &["j:[1, 2, 3]", "i:-1"], "[1,2]"),
        ("-", &["j:1", "t:a"], "22023"),
        ("#>", &["j:{\"a\": 1}", "a:{a,NULL}"], ""),
        ("#-", &["j:{\"a\": 1}", "a:{NULL}"], "22004"),
        ("#-", &["j:1", "a:{a}"], "22023"),
        ("#-", &["j:[1]", "a:{x}"], "22P02"),
        ("jsonb_set", &["j:{\"a\": 1}", "a:{a,NULL}", "j:2"], "22004"),
        ("@>", &["j:9007199254740993", "j:9007199254740992.0"], "f"),
        ("#-", &["j:{\"a\": [1, 2]}", "a:{a,0}"], "{\"a\":[2]}"),
        ("jsonb_set", &["j:{\"a\": [1, 2]}", "a:{a,1}", "j:9"], "{\"a\":[1,9]}"),
        ("jsonb_set", &["j:{\"a\": 1}", "a:{b}", "j:9"], "{\"a\":1,\"b\":9}"),
        ("jsonb_array_length", &["j:[1, 2]"], "2"),
        ("json_array_length", &["j:{}"], "22023"),
        ("jsonb_typeof", &["j:1.5"], "number"),
        ("jsonb_strip_nulls", &["j:{\"a\": null, \"b\": [null]}"], "{\"b\":[null]}"),
    ];

    fn argument(text: &str) -> (Ty, Value) {
        let (ty, text) = text.split_once(':').expect("type:text");
        let ty = match ty {
            "i" => Ty::Int4,
            "l" => Ty::Int8,
            "n" => Ty::Numeric,
            "f" => Ty::Float8,
            "t" => Ty::Text,
            "d" => Ty::Date,
            "z" => Ty::Timestamptz,
            "j" => Ty::Json,
            "a" => Ty::TextArray,
            other => panic!("{other}"),
        };
        (ty, pg::text::parse(ty.kind(), text).expect("a value"))
    }

    #[test]
    fn functions_give_what_postgresql_gives() {
        for (name, arguments, expected) in CASES {
            let typed: Vec<(Ty, Value)> = arguments.iter().map(|text| argument(text)).collect();
            let given: Vec<Option<Ty>> = typed.iter().map(|(ty, _)| Some(*ty)).collect();
            let Found::One(id) = find(name, &given) else { panic!("{name} {arguments:?} is not found") };
            let pairs = typed.into_iter().zip(all()[id].arguments);
            let values: Vec<Value> =
                pairs.map(|((from, value), to)| cast::cast(value, from, *to).expect("casts")).collect();
            let shown = match call(id, &values) {
                Ok(value) => {
                    assert!(all()[id].result.has(&value), "{name} {arguments:?}");
                    pg::text::to_text(&value)
                }
                Err(failure) => failure.code.to_string(),
            };
            assert_eq!(shown, *expected, "{name} {arguments:?}");
        }
    }

    #[test]
    fn untyped_arguments_become_like_the_others() {
        let result = |name, given: &[Option<Ty>]| match find(name, given) {
            Found::One(id) => Some(all()[id].arguments.to_vec()),
            _ => None,
        };
        assert_eq!(result("+", &[Some(Ty::Int8), None]), Some(vec![Ty::Int8, Ty::Int8]));
        assert_eq!(result("+", &[Some(Ty::Int4), Some(Ty::Numeric)]), Some(vec![Ty::Numeric, Ty::Numeric]));
        assert_eq!(result("upper", &[None]), Some(vec![Ty::Text]));
        assert_eq!(result("round", &[Some(Ty::Int4)]), Some(vec![Ty::Float8]));
        assert_eq!(find("upper", &[Some(Ty::Int4)]), Found::OtherArguments);
        assert_eq!(find("nonsense", &[]), Found::Nothing);
        assert_eq!(call(0, &[Value::Null, Value::Int(1)]), Ok(Value::Null));
    }
}

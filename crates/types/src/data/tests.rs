//! Laws that hold for every value: order is kept, what was encoded comes back, and no bytes make it panic.

use super::json::MAX_DEPTH;
use super::row::decode_row;
use super::text::{row_from_json, row_to_json, row_to_json_text};
use super::*;
use crate::engine::MAX_VALUE_BYTES;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const KEY_TYPES: [ColumnType; 10] = [
    ColumnType::Uuid,
    ColumnType::Time,
    ColumnType::Int,
    ColumnType::Float,
    ColumnType::Decimal,
    ColumnType::Text,
    ColumnType::Bytes,
    ColumnType::Bool,
    ColumnType::Date,
    ColumnType::Timestamp,
];

/// Texts short and alike enough that one is often the beginning of another.
fn text() -> BoxedStrategy<String> {
    let alike = vec(
        prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), Just('b'), Just('é'), Just('\u{10ffff}')],
        0..5,
    );
    prop_oneof![alike.prop_map(|chars| chars.into_iter().collect()), any::<String>()].boxed()
}

fn float() -> BoxedStrategy<f64> {
    let special = proptest::sample::select(vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
    ]);
    prop_oneof![special, any::<u64>().prop_map(f64::from_bits)].boxed()
}

fn decimal() -> BoxedStrategy<Decimal> {
    let limit = 10i128.pow(38) - 1;
    prop_oneof![(-120i128..120, 0u32..4), (-limit..=limit, 0u32..=38)]
        .prop_map(|(mantissa, scale)| Decimal::new(mantissa, scale).expect("in range"))
        .boxed()
}

fn json() -> BoxedStrategy<Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any::<i64>().prop_map(Json::Int),
        float().prop_map(Json::Float),
        text().prop_map(Json::Text),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let name =
            prop_oneof![text(), Just("$bag".to_string()), Just("$float".into()), Just("$object".into())];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Json::List),
            vec(inner.clone(), 0..4).prop_map(|items| Json::Bag(Bag::new(items))),
            btree_map(name, inner, 0..4).prop_map(Json::Object),
        ]
    })
    .boxed()
}

/// Spans that can be written: what is less than nothing of one part and more of another, too.
fn interval() -> BoxedStrategy<Interval> {
    let months = prop_oneof![-2i32..3, -100_000i32..100_000];
    let days = prop_oneof![-2i32..3, -1_000_000i32..1_000_000];
    let micros = prop_oneof![-2i64..3, -(1i64 << 50)..(1i64 << 50)];
    (months, days, micros).prop_map(|(months, days, micros)| Interval { months, days, micros }).boxed()
}

fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
    let present = match column_type {
        ColumnType::Int => prop_oneof![-2i64..3, any::<i64>()].prop_map(Value::Int).boxed(),
        ColumnType::Float => float().prop_map(Value::Float).boxed(),
        ColumnType::Decimal => decimal().prop_map(Value::Decimal).boxed(),
        ColumnType::Text => text().prop_map(Value::Text).boxed(),
        ColumnType::Bytes => {
            let alike = vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..5);
            prop_oneof![alike, vec(any::<u8>(), 0..20)].prop_map(Value::Bytes).boxed()
        }
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Date => prop_oneof![-2i32..3, any::<i32>()].prop_map(Value::Date).boxed(),
        ColumnType::Timestamp => prop_oneof![-2i64..3, any::<i64>()].prop_map(Value::Timestamp).boxed(),
        // JSON's null is written as no value, so it would not come back from a row's text.
        ColumnType::Json => {
            json().prop_filter("not null", |tree| *tree != Json::Null).prop_map(Value::Json).boxed()
        }
        ColumnType::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        ColumnType::Time => (0..=86_400_000_000i64).prop_map(Value::Time).boxed(),
        ColumnType::Interval => interval().prop_map(Value::Interval).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 9 => present].boxed()
}

fn values(types: &[ColumnType]) -> BoxedStrategy<Vec<Value>> {
    types.iter().map(|column_type| value(*column_type)).collect::<Vec<_>>().boxed()
}

fn schema(types: &[ColumnType], key: usize, open: bool) -> Schema {
    let columns = types.iter().enumerate().map(|(index, column)| Column::new(format!("c{index}"), *column));
    let names: Vec<String> = (0..key).map(|index| format!("c{index}")).collect();
    Schema::new(columns.collect(), &names, 1, open).expect("valid")
}

/// A schema whose columns are all in the key, and two keys that often share their first columns.
fn two_keys() -> impl Strategy<Value = (Schema, Vec<Value>, Vec<Value>)> {
    vec(proptest::sample::select(&KEY_TYPES[..]), 1..4).prop_flat_map(|types| {
        let shared = 0..=types.len();
        let schema = schema(&types, types.len(), false);
        (Just(schema), values(&types), values(&types), shared).prop_map(|(schema, one, mut two, shared)| {
            two[..shared].clone_from_slice(&one[..shared]);
            (schema, one, two)
        })
    })
}

/// An open schema with any columns behind a key of one, and a row of it.
fn any_row() -> impl Strategy<Value = (Schema, Row)> {
    let types = vec(proptest::sample::select(&ColumnType::ALL[..]), 0..12);
    (proptest::sample::select(&KEY_TYPES[..]), types).prop_flat_map(|(key, mut types)| {
        types.insert(0, key);
        let open = btree_map(text().prop_map(|name| format!("open {name}")), json(), 0..3);
        (Just(schema(&types, 1, true)), values(&types), open)
            .prop_map(|(schema, values, open)| (schema, Row { values, open }))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn order_of_keys_is_order_of_values((schema, one, two) in two_keys()) {
        let first = encode_key(&schema, &one).expect("encodes");
        let second = encode_key(&schema, &two).expect("encodes");
        prop_assert_eq!(first.cmp(&second), one.cmp(&two));
        prop_assert_eq!(decode_key(&schema, &first).expect("decodes"), one);
    }

    #[test]
    fn a_prefix_spans_exactly_its_keys((schema, one, two) in two_keys(), length in 0usize..4) {
        let length = length.min(one.len());
        let prefix = encode_key_prefix(&schema, &one[..length]).expect("encodes");
        let end = prefix_end(&prefix);
        let key = encode_key(&schema, &two).expect("encodes");
        let inside = key >= prefix && (end.is_empty() || key < end);
        prop_assert_eq!(inside, one[..length] == two[..length]);
        prop_assert_eq!(end.is_empty(), length == 0);
    }

    #[test]
    fn the_partition_key_is_the_encoding_of_its_columns((schema, one, _) in two_keys(), by in 1usize..4) {
        let by = by.min(one.len());
        let schema = Schema::from_parts(SchemaParts { partition_by: by, ..schema.into_parts() }).expect("valid");
        let key = encode_key(&schema, &one).expect("encodes");
        let prefix = encode_key_prefix(&schema, &one[..by]).expect("encodes");
        prop_assert_eq!(partition_key(&schema, &key).expect("long enough"), &prefix[..]);
    }

    #[test]
    fn rows_come_back((schema, row) in any_row()) {
        let key = key::encode_row_key(&schema, &row).expect("encodes");
        let stored = encode_row(&schema, &row).expect("encodes");
        let decoded = decode_row(&schema, &key, &stored).expect("decodes");
        prop_assert_eq!(&decoded, &row);
        prop_assert_eq!(encode_row(&schema, &decoded).expect("encodes"), stored);
    }

    #[test]
    fn rows_come_back_from_json((schema, row) in any_row()) {
        let object = row_to_json(&schema, &row);
        prop_assert_eq!(&row_from_json(&schema, object.clone()).expect("reads"), &row);
        let text = row_to_json_text(&schema, &row);
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), object);
    }

    #[test]
    fn values_come_back_from_text(
        (column_type, value) in proptest::sample::select(&ColumnType::ALL[..])
            .prop_flat_map(|column_type| (Just(column_type), value(column_type)))
    ) {
        if !value.is_null() {
            prop_assert_eq!(column_type.parse(&value.to_string()).expect("reads"), value);
        }
    }

    #[test]
    fn garbage_never_panics((schema, row) in any_row(), bytes in vec(any::<u8>(), 0..200), at in any::<usize>()) {
        let key = key::encode_row_key(&schema, &row).expect("encodes");
        let stored = encode_row(&schema, &row).expect("encodes");
        let _ = decode_key(&schema, &bytes);
        let _ = partition_key(&schema, &bytes);
        let _ = decode_row(&schema, &key, &bytes);
        // Random bytes seldom get far; a good row with a few other bytes does.
        let mut damaged = stored.clone();
        let at = at % damaged.len();
        for (old, new) in damaged[at..].iter_mut().zip(&bytes).take(4) {
            *old = *new;
        }
        let _ = decode_row(&schema, &key, &damaged);
        prop_assert!(decode_row(&schema, &key, &stored[..at]).is_err());
        let mut longer = stored;
        longer.push(0);
        prop_assert!(decode_row(&schema, &key, &longer).is_err());
        let tagged: Vec<u8> = key.iter().take(2).chain(&bytes).copied().collect();
        let _ = decode_key(&schema, &tagged);
        let _ = partition_key(&schema, &tagged);
    }

    #[test]
    fn any_text_is_refused_or_read(text in any::<String>(), digits in "[-+0-9.eE:TZ ]{0,30}") {
        for column_type in ColumnType::ALL {
            for text in [&text, &digits] {
                let _ = Value::from_json_text(column_type, text);
                if let Ok(value) = column_type.parse(text) {
                    prop_assert_eq!(value.column_type(), Some(column_type));
                }
            }
        }
    }

    #[test]
    fn decimals_order_like_their_difference(one in decimal(), two in decimal()) {
        if one.scale() < 20 && two.scale() < 20 && one.mantissa().abs() < 1 << 60 && two.mantissa().abs() < 1 << 60 {
            let aligned = |number: Decimal| number.mantissa() * 10i128.pow(19 - number.scale());
            prop_assert_eq!(one.cmp(&two), aligned(one).cmp(&aligned(two)));
        }
        prop_assert_eq!(one.to_string().parse::<Decimal>().expect("reads"), one);
    }
}

fn flights() -> Schema {
    let columns = vec![
        Column::new("day", ColumnType::Date).not_null(),
        Column::new("delay", ColumnType::Int),
        Column::new("carrier", ColumnType::Text).not_null(),
    ];
    Schema::new(columns, &["day"], 1, true).expect("valid")
}

/// The layout is on disk: it must not change by accident.
#[test]
fn the_layout_of_a_row_stays_as_it_is() {
    let mut row = Row::new(vec![Value::Date(1), Value::Null, "UA".into()]);
    row.open.insert("x".into(), Json::List(vec![Json::Int(-1)]));
    let stored = encode_row(&flights(), &row).expect("encodes");
    assert_eq!(stored, [1, 1, 2, 0b10, 2, b'U', b'A', 1, 1, b'x', 6, 1, 3, 1]);
}

#[test]
fn rows_of_an_older_version_are_read_and_of_a_newer_one_refused() {
    let old = flights();
    let new = old.with_column(Column::new("gate", ColumnType::Text)).expect("valid");
    let mut row = Row::new(vec![Value::Date(1), Value::Int(5), "UA".into()]);
    row.open.insert("other".into(), Json::Bool(true));
    let key = key::encode_row_key(&old, &row).expect("encodes");
    let stored = encode_row(&old, &row).expect("encodes");
    let mut expected = row.clone();
    expected.values.push(Value::Null);
    assert_eq!(decode_row(&new, &key, &stored), Ok(expected.clone()));
    let newer = encode_row(&new, &expected).expect("encodes");
    assert_eq!(decode_row(&old, &key, &newer), Err(RowError::NewerSchema { row: 2, schema: 1 }));
}

#[test]
fn an_extra_field_becomes_the_column_that_came_later_if_it_fits() {
    let old = flights();
    let new = old.with_column(Column::new("gate", ColumnType::Text)).expect("valid");
    let decode = |gate: Json| {
        let mut row = Row::new(vec![Value::Date(1), Value::Null, "UA".into()]);
        row.open.insert("gate".into(), gate);
        let key = key::encode_row_key(&old, &row).expect("encodes");
        decode_row(&new, &key, &encode_row(&old, &row).expect("encodes")).expect("decodes")
    };
    let fits = decode(Json::Text("B4".into()));
    assert_eq!((fits.values[3].clone(), fits.open.len()), ("B4".into(), 0));
    let other = decode(Json::Int(4));
    assert_eq!((other.values[3].clone(), other.open.len()), (Value::Null, 1));
    // Nothing is hidden: the JSON form shows the field once, with its value.
    assert_eq!(row_to_json(&new, &other)["gate"], 4);
    assert_eq!(encode_row(&new, &other), Err(RowError::OpenColumn("gate".into())));
}

#[test]
fn rows_that_do_not_fit_are_refused_in_a_sentence() {
    let closed = Schema::from_parts(SchemaParts { open: false, ..flights().into_parts() }).expect("valid");
    let good = Row::new(vec![Value::Date(1), Value::Null, "UA".into()]);
    let refused = |change: &dyn Fn(&mut Row)| {
        let mut row = good.clone();
        change(&mut row);
        encode_row(&closed, &row).expect_err("refused").to_string()
    };
    assert_eq!(refused(&|row| row.values.truncate(2)), "the table has 3 columns, but the row has 2 values");
    assert_eq!(refused(&|row| row.values[2] = Value::Null), "the column `carrier` must have a value");
    assert_eq!(refused(&|row| row.values[1] = "x".into()), "the column `delay` is of type int, not text");
    assert_eq!(
        refused(&|row| drop(row.open.insert("x".into(), Json::Null))),
        "`x` is not a column, and the table takes no other fields"
    );
    let long = refused(&|row| row.values[2] = Value::Text("x".repeat(MAX_VALUE_BYTES)));
    assert_eq!(long, "the row is 8388617 bytes long, but at most 8388608 can be stored");
    let deep = (0..=MAX_DEPTH).fold(Json::Null, |inner, _| Json::List(vec![inner]));
    let mut row = good.clone();
    row.open.insert("x".into(), deep);
    assert_eq!(encode_row(&flights(), &row), Err(RowError::TooDeep("x".into())));
    assert_eq!(decode_row(&flights(), &[0x02], &[9]), Err(RowError::UnknownFormat(9)));
}

#[test]
fn the_room_for_a_row_is_known_before_it_is_written() {
    let text = |number: usize| Column::new(format!("c{number}"), ColumnType::Text);
    let columns = std::iter::once(Column::new("id", ColumnType::Int)).chain((1..=10).map(text));
    let schema = Schema::new(columns.collect(), &["id"], 1, false).expect("a schema");
    let values = std::iter::once(Value::Int(1)).chain((1..=10).map(|_| Value::Text("x".repeat(100))));
    let stored = encode_row(&schema, &Row::new(values.collect())).expect("a row");
    let (length, room) = (stored.len(), stored.capacity());
    assert!(length > 1_000 && room < length + 100, "{length} bytes in {room}: they were moved on the way");
}

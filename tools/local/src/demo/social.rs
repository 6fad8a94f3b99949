//! A seeded social network: users with their friends and their nested employment records, near 384 bytes
//! each.

use types::data::{Bag, Column, ColumnType, Json, Row, Schema, SchemaError, Value};
use types::random::Random;

const FIRST: &[&str] = &[
    "Ada", "Bela", "Chidi", "Dana", "Emil", "Fatima", "Goran", "Hana", "Isaac", "Juno", "Kofi", "Lena",
    "Mateo", "Nadia", "Olga", "Pavel", "Quinn", "Rosa", "Sven", "Tariq", "Uma", "Viktor", "Wanda", "Ximena",
    "Yusuf", "Zoe",
];
const LAST: &[&str] = &[
    "Abara",
    "Berg",
    "Castillo",
    "Dufour",
    "Eriksen",
    "Fontana",
    "Grigorev",
    "Hassan",
    "Ishikawa",
    "Jansen",
    "Kowalski",
    "Lindqvist",
    "Moreau",
    "Nakamura",
    "Okafor",
    "Petrov",
    "Quispe",
    "Rossi",
    "Schneider",
    "Takeda",
];
const COMPANIES: &[&str] = &[
    "Codetechno",
    "Hexviafind",
    "Kongreen",
    "Labzatron",
    "Newcom",
    "Physcane",
    "Plexlane",
    "Roundhex",
    "Solophase",
    "Streettax",
    "Ventatech",
    "Zamcorporation",
];
const TITLES: &[&str] =
    &["engineer", "analyst", "driver", "teacher", "nurse", "designer", "buyer", "electrician"];
const CITIES: &[&str] =
    &["Accra", "Bergen", "Cusco", "Durban", "Eger", "Fukuoka", "Graz", "Haifa", "Irvine", "Jaipur"];

/// 2005-01-01 as days since 1970.
const SINCE: i64 = 12_784;

/// The columns of a user: its id is the key.
pub fn schema() -> Result<Schema, SchemaError> {
    Schema::new(columns(), &["id"], 1, false)
}

/// The columns of a user.
pub fn columns() -> Vec<Column> {
    vec![
        Column::new("id", ColumnType::Int).not_null(),
        Column::new("alias", ColumnType::Text).not_null(),
        Column::new("name", ColumnType::Text).not_null(),
        Column::new("city", ColumnType::Text),
        Column::new("user_since", ColumnType::Timestamp),
        Column::new("friends", ColumnType::Json),
        Column::new("employment", ColumnType::Json),
    ]
}

/// The user with this number, out of `users`.
pub fn user(random: &mut Random, id: u64, users: u64) -> Row {
    let (first, last) = (random.pick(FIRST), random.pick(LAST));
    let joined = SINCE + random.below(5000) as i64;
    let friends = (0..3 + random.below(8)).map(|_| Json::Int(random.below(users.max(1)) as i64)).collect();
    let jobs = (0..2 + random.below(2)).map(|_| employment(random)).collect();
    Row::new(vec![
        Value::Int(id as i64),
        Value::Text(format!("{}{id}", first.to_lowercase())),
        Value::Text(format!("{first} {last}")),
        Value::Text(random.pick(CITIES).to_string()),
        Value::Timestamp(joined * 86_400_000_000 + random.below(86_400_000_000) as i64),
        Value::Json(Json::Bag(Bag::new(friends))),
        Value::Json(Json::List(jobs)),
    ])
}

fn employment(random: &mut Random) -> Json {
    let text = |text: String| Json::Text(text);
    let (from, years) = (2005 + random.below(15), random.below(6));
    let date = |random: &mut Random, year: u64| {
        Json::Text(format!("{year}-{:02}-{:02}", 1 + random.below(12), 1 + random.below(28)))
    };
    let start = date(random, from);
    let mut fields = vec![
        ("organization".to_string(), text(random.pick(COMPANIES).to_string())),
        ("title".to_string(), text(random.pick(TITLES).to_string())),
        ("start_date".to_string(), start),
    ];
    if years > 0 {
        fields.push(("end_date".to_string(), date(random, from + years)));
    }
    let (street, number) = (random.pick(LAST), random.below(200));
    let address = [
        ("city".to_string(), text(random.pick(CITIES).to_string())),
        ("street".to_string(), text(format!("{number} {street} Street"))),
    ];
    fields.push(("address".to_string(), Json::Object(address.into())));
    Json::Object(fields.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::data::encode_row;

    #[test]
    fn users_repeat_with_the_seed_and_have_the_size_that_is_promised() {
        let schema = schema().expect("valid");
        let bytes = |seed| {
            let mut random = Random::new(seed);
            let rows = (0..2000).map(|id| user(&mut random, id, 2000));
            rows.map(|row| encode_row(&schema, &row).expect("a row")).collect::<Vec<_>>()
        };
        let rows = bytes(7);
        assert_eq!(rows, bytes(7));
        assert_ne!(rows, bytes(8));
        let mean = rows.iter().map(Vec::len).sum::<usize>() / rows.len();
        assert!((365..=403).contains(&mean), "a user has {mean} bytes on average");
    }
}

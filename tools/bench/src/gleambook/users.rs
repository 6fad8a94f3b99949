//! The document's data (listing 5.1): users with their friends and their employments, 384 bytes each on
//! average (table 5.1).
//!
//! What is measured is the cluster, so rows are made and encoded before the clock runs: up to [`DISTINCT`]
//! different ones, which then repeat under other keys, far enough apart that no block of a file holds one
//! twice.

use bytes::Bytes;
use types::data::{
    Bag, Column, ColumnType, Json, Row, Schema, Value, decode_row, encode_key, encode_row, row_to_json_text,
};
use types::random::Random;
use wire::RowOp;

/// Different rows that are kept, some 100 MB.
pub const DISTINCT: u64 = 1 << 18;

/// Bytes of a record on average, as the document's table 5.1 has it.
pub const RECORD_BYTES: u64 = 384;

const NAMES: [&str; 24] = [
    "Margarita",
    "Isbel",
    "Emory",
    "Nicholas",
    "Von",
    "Willis",
    "Suzanna",
    "Nila",
    "Bram",
    "Woodrow",
    "Dortha",
    "Elva",
    "Reuben",
    "Celestina",
    "Marcos",
    "Odell",
    "Trudy",
    "Lazaro",
    "Quiana",
    "Hollis",
    "Imelda",
    "Jarrett",
    "Yolanda",
    "Zachary",
];

const FAMILIES: [&str; 20] = [
    "Stoddard", "Dull", "Unk", "Stroh", "Wyland", "Tillson", "Milom", "Hatch", "Wynne", "Rader", "Kemble",
    "Blatt", "Ashbaugh", "Grover", "Hennessy", "Lowe", "Pershing", "Quick", "Vinson", "Younger",
];

const ORGANIZATIONS: [&str; 16] = [
    "Codetechno",
    "Hexviafind",
    "geomedia",
    "Zamcorporation",
    "subtam",
    "Streettax",
    "Kongreen",
    "Roundhex",
    "Labzatron",
    "Plexlane",
    "Newcom",
    "physcane",
    "jaydax",
    "Ventrax",
    "Qualtexam",
    "Solophase",
];

/// 2005-01-01 in days since 1970.
const SINCE: u64 = 12_784;
const DAY_US: u64 = 86_400_000_000;
/// Ids that friends have.
const FRIENDS: u64 = 20_000_000;

/// The columns of `GleambookUserType`, the id its key.
pub fn schema() -> Schema {
    let columns = vec![
        Column::new("id", ColumnType::Int).not_null(),
        Column::new("alias", ColumnType::Text).not_null(),
        Column::new("name", ColumnType::Text).not_null(),
        Column::new("user_since", ColumnType::Timestamp).not_null(),
        Column::new("friend_ids", ColumnType::Json).not_null(),
        Column::new("employment", ColumnType::Json).not_null(),
    ];
    Schema::new(columns, &["id"], 1, false).expect("the key is one of the columns")
}

/// One user. Friends are drawn from the document's largest data set, whatever is made up here: so sizes do
/// not depend on it.
fn user(random: &mut Random, id: u64) -> Row {
    let pick =
        |random: &mut Random, from: &[&str]| from[random.below(from.len() as u64) as usize].to_string();
    let (name, family) = (pick(random, &NAMES), pick(random, &FAMILIES));
    let joined = (SINCE + random.below(3_000)) * DAY_US + random.below(DAY_US);
    let friends = (0..10 + random.below(72)).map(|_| Json::Int(random.below(FRIENDS) as i64)).collect();
    let jobs = (0..1 + random.below(3)).map(|_| employment(random)).collect();
    Row::new(vec![
        Value::Int(id as i64),
        Value::Text(format!("{name}{id}")),
        Value::Text(format!("{name} {family}")),
        Value::Timestamp(joined as i64),
        Value::Json(Json::Bag(Bag::new(friends))),
        Value::Json(Json::List(jobs)),
    ])
}

fn employment(random: &mut Random) -> Json {
    let date = |random: &mut Random, year: u64| {
        Json::Text(format!("{year}-{:02}-{:02}", 1 + random.below(12), 1 + random.below(28)))
    };
    let organization = ORGANIZATIONS[random.below(ORGANIZATIONS.len() as u64) as usize];
    let year = 2000 + random.below(12);
    let mut fields = vec![
        ("organization".to_string(), Json::Text(organization.to_string())),
        ("start_date".to_string(), date(random, year)),
    ];
    if random.below(2) == 0 {
        let until = year + 1 + random.below(4);
        fields.push(("end_date".to_string(), date(random, until)));
    }
    Json::Object(fields.into_iter().collect())
}

/// The rows of all data sets, encoded. The same seed gives the same.
#[derive(Debug)]
pub struct Users {
    schema: Schema,
    rows: Vec<Bytes>,
}

impl Users {
    /// For data sets of up to so many records.
    pub fn new(seed: u64, records: u64) -> Users {
        let schema = schema();
        let mut random = Random::new(seed);
        let distinct = records.clamp(1, DISTINCT);
        let rows: Vec<Bytes> = (0..distinct)
            .map(|id| {
                let row = user(&mut random, id);
                encode_row(&schema, &row).expect("a row of the schema").into()
            })
            .collect();
        Users { schema, rows }
    }

    /// Writes the record with this id.
    pub fn put(&self, id: u64) -> RowOp {
        let (key, row) = self.encoded(id);
        RowOp::Put { key, row }
    }

    /// The record with this id as a line of JSON, without its end.
    pub fn line(&self, id: u64) -> String {
        let (key, row) = self.encoded(id);
        row_to_json_text(&self.schema, &decode_row(&self.schema, &key, &row).expect("encoded here"))
    }

    fn encoded(&self, id: u64) -> (Bytes, Bytes) {
        let key = encode_key(&self.schema, &[Value::Int(id as i64)]).expect("a key of the schema");
        (key.into(), self.rows[(id % self.rows.len() as u64) as usize].clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_documents_size_and_repeat_with_the_seed() {
        let users = Users::new(7, 20_000);
        let mean = users.rows.iter().map(Bytes::len).sum::<usize>() / users.rows.len();
        assert!(mean.abs_diff(RECORD_BYTES as usize) <= 10, "a record has {mean} bytes");
        let (again, other) = (Users::new(7, 20_000), Users::new(8, 20_000));
        assert_eq!(users.rows, again.rows);
        assert_ne!(users.rows, other.rows);
    }

    #[test]
    fn a_record_reads_back_as_the_documents_type() {
        let users = Users::new(1, 1_000);
        let RowOp::Put { key, row } = users.put(17) else { panic!("a put") };
        let read = decode_row(&schema(), &key, &row).expect("reads");
        let values = read.values;
        assert_eq!(values[0], Value::Int(17));
        assert!(matches!(&values[1], Value::Text(alias) if alias.ends_with("17")), "{values:?}");
        let Value::Json(Json::List(jobs)) = &values[5] else { panic!("{values:?}") };
        let Json::Object(job) = &jobs[0] else { panic!("{jobs:?}") };
        assert!(job.contains_key("organization") && job.contains_key("start_date"), "{job:?}");
        assert!(matches!(&values[4], Value::Json(Json::Bag(_))), "{values:?}");
    }

    #[test]
    fn ids_beyond_the_kept_rows_have_keys_of_their_own() {
        let users = Users::new(1, 10);
        let (near, far) = (users.put(3), users.put(13));
        assert_eq!(near.row(), far.row());
        assert_ne!(near.key(), far.key());
    }
}

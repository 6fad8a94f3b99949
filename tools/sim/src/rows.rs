//! Keys and rows of the simulated tables: bytes of the simulator's own, or, where there are indexes, those of
//! the schema.

use bytes::Bytes;
use std::sync::LazyLock;
use types::KeySpace;
use types::TableId;
use types::data::{Column, ColumnType, Row, Schema, Value, decode_key, decode_row, encode_key, encode_row};
use types::index::entry_prefix;

/// Makes stored values longer than those of the other form.
const ABOVE: i64 = 1 << 40;

/// The most columns that a table of a database has behind those that every table here has.
pub const MOST_COLUMNS: u32 = 3;

/// The schema of every table here.
pub fn schema() -> Schema {
    let columns = vec![
        Column::new("k", ColumnType::Text).not_null(),
        Column::new("v", ColumnType::Int),
        Column::new("hue", ColumnType::Int),
    ];
    Schema::new(columns, &["k"], 1, false).expect("a schema of three columns")
}

/// The column of a database's table whose values some tables have once: [`mark`].
pub const MARK: usize = 3;
/// The column of a database's table that refers to rows of another one: [`refers`].
pub const REFERS: usize = 4;

/// The table of databases with global transactions, which clients make where it is not there.
pub const TABLE: TableId = TableId(900_000);
/// Another one, whose rows have a unique value: [`mark`].
pub const PEOPLE: TableId = TableId(900_002);
/// A third one, whose rows refer to rows of the second: [`refers`].
pub const LETTERS: TableId = TableId(900_004);
/// A fourth one, whose rows refer to rows of the second by their unique value: [`mark`].
pub const NOTES: TableId = TableId(900_006);

/// Which of these tables has a row, by its name.
pub fn table_of(name: &str) -> TableId {
    match name.as_bytes().first() {
        Some(b'm') => PEOPLE,
        Some(b'l') => LETTERS,
        Some(b'n') => NOTES,
        _ => TABLE,
    }
}

/// The schema of a table in a database: columns for constraints, and so many more, behind those that every
/// table here has.
pub fn table_schema(version: u32, more: u32) -> Schema {
    let mut parts = schema().into_parts();
    parts.columns.push(Column::new("mark", ColumnType::Int));
    parts.columns.push(Column::new("refers", ColumnType::Text));
    parts.columns.extend((0..more).map(|n| Column::new(format!("x{n}"), ColumnType::Int)));
    parts.version = version;
    Schema::from_parts(parts).expect("a schema of a few columns")
}

/// The row of a key with this value in a table of a database, written under this version of its columns, with
/// so many behind those that every table has.
pub fn table_row(name: &str, value: u64, (version, more): (u32, u32)) -> Bytes {
    let mut values = vec![name.into(), Value::Int(value as i64 + ABOVE), hue(value)];
    values.push(mark(name, value).map_or(Value::Null, Value::Int));
    values.push(refers(name, value).map_or(Value::Null, Value::Text));
    values.extend((0..more).map(|_| Value::Int(value as i64)));
    encode_row(&table_schema(version, more), &Row::new(values)).expect("a row").into()
}

/// A number that follows from a key's name and the value written there.
fn mixed(name: &str, value: u64) -> u64 {
    let number = name.bytes().fold(value, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    (number ^ number >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}

/// What the row of a key with this value has in [`MARK`]: few numbers, so that some meet; now and then none.
pub fn mark(name: &str, value: u64) -> Option<i64> {
    let number = mixed(name, value) % 32;
    (number > 0).then_some(number as i64)
}

/// The name of the key that the row of a key with this value has in [`REFERS`]; often none.
pub fn refers(name: &str, value: u64) -> Option<String> {
    let number = mixed(name, value) / 32 % 16;
    (number < 7).then(|| format!("m{number}"))
}

/// What an index of a database's table has for the row of a key with this value, behind its number.
pub fn table_entry(column: usize, name: &str, value: u64) -> Vec<u8> {
    let value = match column {
        MARK => mark(name, value).map_or(Value::Null, Value::Int),
        _ => refers(name, value).map_or(Value::Null, Value::Text),
    };
    let prefix = entry_prefix(&[value]).expect("a short value");
    [&prefix[..], &key(name, true)].concat()
}

/// The value of a row of a database's table, whatever version it was written under; the greatest number for
/// what is none.
pub fn table_value(row: &[u8]) -> u64 {
    static WIDEST: LazyLock<(Schema, Bytes)> =
        LazyLock::new(|| (table_schema(u32::MAX, MOST_COLUMNS), key("", true)));
    let decoded = decode_row(&WIDEST.0, &WIDEST.1, row);
    match decoded.as_ref().map(|row| row.values.as_slice()) {
        Ok([_, Value::Int(value), ..]) => (value - ABOVE) as u64,
        _ => u64::MAX,
    }
}

/// The name and the value of a stored row, by its whole key. In a database the table is part of the name.
pub fn stored(of_database: bool, stored: &[u8], row: Option<&[u8]>) -> (String, Option<u64>) {
    let table = stored.get(1..5).and_then(|id| id.try_into().ok()).filter(|_| of_database);
    let Some(table) = table.map(|id| TableId(u32::from_be_bytes(id))) else {
        return (name_of(&stored[1..]), row.map(value_of));
    };
    let key = KeySpace::Table(table).key_of(&Bytes::copy_from_slice(stored));
    (format!("{}/{}", table.0, name_of(&key)), row.map(table_value))
}

/// A key by its name.
pub fn key(name: &str, typed: bool) -> Bytes {
    match typed {
        true => encode_key(&schema(), &[name.into()]).expect("a key").into(),
        false => Bytes::from(name.to_string()),
    }
}

/// What is indexed in worlds that have indexes: the index's name, and its columns.
pub const INDEXES: [(&str, &[&str]); 3] = [("hues", &["hue"]), ("both", &["hue", "v"]), ("values", &["v"])];

/// One of five hues, of which one is null.
fn hue(value: u64) -> Value {
    if value.is_multiple_of(5) { Value::Null } else { Value::Int((value % 5) as i64) }
}

/// Where the row of a key with this value stands in the index of this name. Typed rows alone have a place.
pub fn entry(index: &str, name: &str, value: u64) -> Option<Vec<u8>> {
    let (_, columns) = INDEXES.into_iter().find(|(known, _)| *known == index)?;
    let of = |column: &&str| if *column == "hue" { hue(value) } else { Value::Int(value as i64 + ABOVE) };
    let prefix = entry_prefix(&columns.iter().map(of).collect::<Vec<_>>()).ok()?;
    Some([&prefix[..], &key(name, true)].concat())
}

/// What the entries of an index begin with that are of this hue.
pub fn entries_of_hue(hue: i64) -> Bytes {
    entry_prefix(&[Value::Int(hue)]).expect("a number").into()
}

/// The row of a key with this value. Typed ones have a hue.
pub fn row(name: &str, value: u64, typed: bool) -> Bytes {
    if !typed {
        return Bytes::copy_from_slice(&value.to_le_bytes());
    }
    let values = vec![name.into(), Value::Int(value as i64 + ABOVE), hue(value)];
    encode_row(&schema(), &Row::new(values)).expect("a row").into()
}

/// The name of a key of either form.
pub fn name_of(key: &[u8]) -> String {
    match decode_key(&schema(), key).as_deref() {
        Ok([Value::Text(name)]) => name.clone(),
        _ => String::from_utf8_lossy(key).into_owned(),
    }
}

/// The value of a row of either form; the greatest number for what is none.
pub fn value_of(row: &[u8]) -> u64 {
    if let Ok(bytes) = row.try_into() {
        return u64::from_le_bytes(bytes);
    }
    let decoded = decode_row(&schema(), &key("", true), row);
    match decoded.as_ref().map(|row| row.values.as_slice()) {
        Ok([_, Value::Int(value), _]) => (value - ABOVE) as u64,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_read_back() {
        for typed in [false, true] {
            for value in [0, 1, 64, 8191, 7 << 32 | 5] {
                assert_eq!(value_of(&row("r1", value, typed)), value, "{typed}");
            }
            assert_eq!(name_of(&key("r1", typed)), "r1");
        }
    }
}

//! Real files, written to a temporary directory and read back.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Cursor, Read, Write};
use std::path::PathBuf;
use tempfile::TempDir;
use types::data::{Column, ColumnType, Json, Schema, Value, decode_row, row_to_json_text};
use understudy_input::{
    BadRow, Format, Inferred, Input, InputError, Item, Options, Reader, Reason, Record, parse_columns,
};

const FLIGHTS: &str = "\
year,day,delay,carrier,tail,at
2013,1,2,UA,N14228,2013-01-01T10:00:00Z
2013,1,NA,\"U,S\",NA,2013-01-01 11:00:00
2013,2,-1,B6,,2013-01-02T10:00:00+01:00
";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn write(directory: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, bytes).expect("a temporary file can be written");
    path
}

fn na() -> Options {
    Options { null: Some("NA".into()), ..Options::default() }
}

fn memory(text: impl Into<Vec<u8>>, name: &str, options: Options) -> Result<Input, InputError> {
    Input::from_reader(Cursor::new(text.into()), name, options)
}

fn infer(text: &str, name: &str, options: Options) -> Inferred {
    memory(text, name, options).expect("opens").infer().expect("infers")
}

fn split(reader: Reader) -> (Vec<Record>, Vec<BadRow>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for item in reader {
        match item.expect("the file can be read") {
            Item::Row(record) => good.push(record),
            Item::Bad(row) => bad.push(row),
        }
    }
    (good, bad)
}

fn columns(list: &str) -> Vec<Column> {
    let columns = parse_columns(list).expect("columns");
    columns.into_iter().map(|(name, column_type)| Column::new(name, column_type)).collect()
}

fn schema(list: &str, open: bool) -> Schema {
    let mut columns = columns(list);
    columns[0].nullable = false;
    let key = columns[0].name.clone();
    Schema::new(columns, &[key], 1, open).expect("a schema")
}

fn read(text: impl Into<Vec<u8>>, name: &str, schema: &Schema) -> (Vec<Record>, Vec<BadRow>) {
    split(memory(text, name, Options::default()).expect("opens").reader(schema).expect("reads"))
}

#[test]
fn a_csv_file_plain_and_gzipped_gives_the_same_rows() {
    let directory = TempDir::new().expect("a temporary directory");
    let two_members = [gzip(&FLIGHTS.as_bytes()[..50]), gzip(&FLIGHTS.as_bytes()[50..])].concat();
    let files = [
        write(&directory, "flights.csv", FLIGHTS.as_bytes()),
        write(&directory, "flights.csv.gz", &gzip(FLIGHTS.as_bytes())),
        write(&directory, "named-otherwise", &two_members),
        write(&directory, "bom.csv", format!("\u{feff}{FLIGHTS}").as_bytes()),
        write(&directory, "crlf.csv", FLIGHTS.replace('\n', "\r\n").as_bytes()),
    ];
    for path in files {
        let mut input = Input::open(&path, na()).expect("opens");
        assert_eq!(input.format(), Format::Csv);
        let inferred = input.infer().expect("infers");
        let schema = inferred.schema(&["year", "day", "carrier"], 1, false).expect("a schema");
        let reader = input.reader(&schema).expect("reads");
        let progress = reader.progress();
        let (good, bad) = split(reader);
        assert_eq!(bad, []);
        let rows: Vec<String> = good.iter().map(|record| row_to_json_text(&schema, &record.row)).collect();
        assert_eq!(
            rows,
            [
                r#"{"year":2013,"day":1,"delay":2,"carrier":"UA","tail":"N14228","at":"2013-01-01T10:00:00Z"}"#,
                r#"{"year":2013,"day":1,"delay":null,"carrier":"U,S","tail":null,"at":"2013-01-01T11:00:00Z"}"#,
                r#"{"year":2013,"day":2,"delay":-1,"carrier":"B6","tail":"","at":"2013-01-02T09:00:00Z"}"#,
            ]
        );
        for record in &good {
            assert_eq!(decode_row(&schema, &record.key, &record.value).as_ref(), Ok(&record.row));
        }
        let places: Vec<_> = good.iter().map(|record| (record.index, record.line)).collect();
        assert_eq!(places, [(0, 2), (1, 3), (2, 4)]);
        let size = fs::metadata(&path).expect("a size").len();
        assert_eq!((progress.read(), progress.total()), (size, Some(size)), "{path:?}");
    }
}

#[test]
fn inferred_types_are_shown_in_lines() {
    let inferred = infer(FLIGHTS, "flights.csv", na());
    let expected = "\
types of 6 columns from all 3 records
year     int
day      int
delay    int        1 without a value
carrier  text
tail     text       1 without a value
at       timestamp
";
    assert_eq!(inferred.to_string(), expected);
    let options = Options { sample: 2, types: parse_columns("day:float").expect("a type"), ..na() };
    let inferred = infer(FLIGHTS, "flights.csv", options);
    assert!(!inferred.complete);
    assert!(inferred.to_string().starts_with("types of 6 columns from the first 2 records\n"), "{inferred}");
    assert!(inferred.to_string().contains("day      float      as given\n"), "{inferred}");
}

#[test]
fn a_type_for_a_column_that_is_not_there_is_refused() {
    let types = parse_columns("gate:text").expect("a type");
    let options = Options { types, ..Options::default() };
    let error = memory(FLIGHTS, "f.csv", options.clone()).expect("opens").infer().expect_err("refused");
    assert_eq!(error.to_string(), "f.csv has no column `gate` to give a type");
    let inferred = infer("{\"a\":1}\n", "f.ndjson", options);
    assert_eq!(inferred.columns[1].column_type, ColumnType::Text);
}

#[test]
fn nothing_that_was_looked_at_is_lost() {
    let mut text = String::from("id,word\n");
    for id in 0..50_000 {
        text.push_str(&format!("{id},word {id}\n"));
    }
    // One byte at a time, as a slow pipe gives it.
    struct Slow(Cursor<Vec<u8>>);
    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = buffer.len().min(1);
            self.0.read(&mut buffer[..most])
        }
    }
    let stream = Slow(Cursor::new(text.into_bytes()));
    let options = Options { sample: 100, ..Options::default() };
    let mut input = Input::from_reader(stream, "-", options).expect("opens");
    let inferred = input.infer().expect("infers");
    assert_eq!((inferred.records, inferred.complete), (100, false));
    assert_eq!(input.infer().expect("infers again"), inferred);
    let schema = inferred.schema(&["id"], 1, false).expect("a schema");
    let (good, bad) = split(input.reader(&schema).expect("reads"));
    assert_eq!((good.len(), bad.len()), (50_000, 0));
    assert_eq!(good[49_999].row.values, [Value::Int(49_999), "word 49999".into()]);
}

#[test]
fn bad_rows_of_csv_say_where_and_why_and_do_not_stop() {
    let text = b"id,n,d\n1,x,\n2,5\n3,1,2013-02-30\n,1,\n4,\xff,\n5,7,2013-01-01\n6,\"1\n".to_vec();
    let (good, bad) = read(text, "f.csv", &schema("id:int,n:int,d:date", false));
    let said: Vec<String> = bad.iter().map(|row| row.to_string()).collect();
    assert_eq!(
        said,
        [
            "f.csv line 2, column `n`: \"x\" is not an int: expected digits",
            "f.csv line 3: it has 2 fields, but the header line has 3",
            "f.csv line 4, column `d`: \"2013-02-30\" is not a date: there is no such day in the calendar",
            "f.csv line 5, column `id`: the key column `id` must have a value",
            "f.csv line 6, column `n`: it is not UTF-8 text",
            "f.csv line 8: a quote is not closed before the end of the file",
        ]
    );
    assert_eq!((bad[0].raw_text(100), bad[0].raw_text(2), bad[0].index), ("1,x,".into(), "1,...".into(), 0));
    assert_eq!(bad[4].raw, b"4,\xff,");
    assert_eq!(good.len(), 1);
    assert_eq!((good[0].index, good[0].line), (5, 7));
}

#[test]
fn bad_rows_of_ndjson_say_where_and_why_and_do_not_stop() {
    let text = b"{\"id\":1,\"n\":\"x\"}\n[1]\n{\"n\":1}\n{\"id\":2,\"id\":2}\n{\"id\":3,\"z\":1}\n\xff\n{\"id\":4}\n{\"id\":5";
    let (good, bad) = read(text.to_vec(), "f.ndjson", &schema("id:int,n:int", false));
    let said: Vec<String> = bad.iter().map(|row| row.to_string()).collect();
    assert_eq!(
        said,
        [
            "f.ndjson line 1, column `n`: \"x\" is not an int: it is of another JSON type",
            "f.ndjson line 2: it is not a JSON object: invalid type: sequence, expected a JSON object at line 1 column 0",
            "f.ndjson line 3, column `id`: the key column `id` must have a value",
            "f.ndjson line 4, column `id`: the field is there more than once",
            "f.ndjson line 5, column `z`: it is not a column, and the table takes no other fields",
            "f.ndjson line 6: it is not UTF-8 text",
            "f.ndjson line 8: it is not a JSON object: EOF while parsing an object at line 1 column 7",
        ]
    );
    assert_eq!((good.len(), good[0].line), (1, 7));
}

#[test]
fn too_long_a_record_or_key_is_a_bad_row() {
    let long = "x".repeat(understudy_input::MAX_RECORD_BYTES);
    let key = "k".repeat(40_000);
    let text = format!("id,t\na,{long}\n{key},t\nb,t\n");
    let (good, bad) = read(text, "f.csv", &schema("id:text,t:text", false));
    assert_eq!(good.len(), 1);
    assert_eq!(bad[0].reason, Reason::TooLong { limit: 8 * 1024 * 1024 });
    assert_eq!(bad[1].reason.to_string(), "the key is 40000 bytes long, but at most 32767 can be stored");
    let text = format!("{{\"id\":\"a\",\"t\":\"{long}\"}}\n{{\"id\":\"b\"}}\n");
    let (good, bad) = read(text, "f.jsonl", &schema("id:text,t:text", false));
    assert_eq!((good.len(), bad.len(), bad[0].line), (1, 1, 1));
}

#[test]
fn nested_values_and_extra_fields_come_through() {
    let text = r#"{"id":1,"price":0.12345678901234567890,"tags":{"$bag":["b","a"]},"name":"x"}
{"id":2,"extra":{"deep":[1,2.5]},"price":"7.10"}
"#;
    let inferred = infer(text, "-", Options::default());
    let types: Vec<_> = inferred.columns.iter().map(|column| column.column_type).collect();
    use ColumnType::*;
    assert_eq!(types, [Int, Json, Json, Text, Json]);
    let schema = schema("id:int,price:decimal,tags:json", true);
    let (good, bad) = read(text, "-", &schema);
    assert_eq!(bad, []);
    assert_eq!(
        row_to_json_text(&schema, &good[0].row),
        r#"{"id":1,"price":"0.1234567890123456789","tags":{"$bag":["a","b"]},"name":"x"}"#
    );
    assert_eq!(
        row_to_json_text(&schema, &good[1].row),
        r#"{"id":2,"price":"7.1","tags":null,"extra":{"deep":[1,2.5]}}"#
    );
}

#[test]
fn columns_go_by_name_and_extra_ones_only_into_an_open_table() {
    let text = "more,n,id\nyes,,1\n";
    let open = schema("id:int,n:int,unseen:text", true);
    let (good, _) = read(text, "f.csv", &open);
    assert_eq!(good[0].row.values, [Value::Int(1), Value::Null, Value::Null]);
    assert_eq!(good[0].row.open.get("more"), Some(&Json::Text("yes".into())));
    let refused = |list| {
        let input = memory(text, "f.csv", Options::default()).expect("opens");
        input.reader(&schema(list, false)).err().expect("refused").to_string()
    };
    assert_eq!(
        refused("id:int,n:int"),
        "f.csv has a column `more` that the table does not have, and the table takes no other fields"
    );
    assert_eq!(refused("key:int"), "f.csv has no column `key`, which must have a value in every row");
}

#[test]
fn csv_in_its_other_forms() {
    let schema = schema("id:int,t:text", false);
    let given = Options { columns: Some(vec!["id".into(), "t".into()]), ..Options::default() };
    let reader = memory("1,a\n2,b\n", "-", given).expect("opens").reader(&schema).expect("reads");
    let (good, _) = split(reader);
    assert_eq!((good.len(), good[0].line), (2, 1));
    assert_eq!(read("id\tt\n1\ta,b\n", "f.tsv", &schema).0[0].row.values[1], "a,b".into());
    let semicolon = Options { delimiter: Some(b';'), ..Options::default() };
    let reader = memory("id;t\n1;x\n", "-", semicolon).expect("opens").reader(&schema).expect("reads");
    assert_eq!(split(reader).0.len(), 1);
    assert_eq!(infer(",b\n1,2\n", "f.csv", Options::default()).columns[0].name, "column1");
    let none = infer("a,b\n", "f.csv", Options::default());
    assert_eq!((none.records, none.complete, none.columns[0].column_type), (0, true, ColumnType::Text));
}

#[test]
fn a_feed_goes_on_where_it_stopped() {
    let text = "id\n1\nx\n3\n4\n";
    let schema = schema("id:int", false);
    let open = || memory(text, "f.csv", Options::default()).expect("opens").reader(&schema).expect("reads");
    let mut first = open();
    let all: Vec<Item> = first.by_ref().map(|item| item.expect("reads")).collect();
    assert_eq!((all.len(), first.records()), (4, 4));
    for stopped in 0..=4 {
        let mut again = open();
        assert_eq!(again.skip_records(stopped).expect("skips"), stopped);
        let rest: Vec<Item> = again.map(|item| item.expect("reads")).collect();
        assert_eq!(rest, all[stopped as usize..]);
    }
    assert_eq!(open().skip_records(9).expect("skips"), 4);
}

#[test]
fn a_damaged_file_is_an_error_and_not_a_bad_row() {
    let mut text = String::from("id,t\n");
    for id in 0..100_000 {
        text.push_str(&format!("{id},{}\n", id * 7919 % 104_729));
    }
    let whole = gzip(text.as_bytes());
    let cut = whole[..whole.len() / 2].to_vec();
    let mut flipped = whole.clone();
    let at = flipped.len() - 6;
    flipped[at] ^= 1;
    for damaged in [cut, flipped] {
        let input = memory(damaged, "f.csv.gz", Options::default()).expect("opens");
        let mut reader = input.reader(&schema("id:int,t:int", false)).expect("reads");
        let error = reader.find_map(|item| item.err()).expect("damage is noticed");
        assert!(matches!(&error, InputError::Damaged { records, .. } if *records > 1000), "{error}");
        assert!(error.to_string().starts_with("f.csv.gz is damaged after "), "{error}");
        assert!(reader.next().is_none(), "nothing comes after damage");
    }
}

#[test]
fn files_that_cannot_be_read_at_all() {
    let directory = TempDir::new().expect("a temporary directory");
    let missing = Input::open(&directory.path().join("none.csv"), Options::default()).err().expect("refused");
    assert!(matches!(missing, InputError::Io { .. }), "{missing}");
    let refused = |text: &[u8], name: &str| match memory(text, name, Options::default()) {
        Err(error) => error.to_string(),
        Ok(mut input) => input.infer().expect_err("refused").to_string(),
    };
    assert_eq!(refused(b"", "f.csv"), "f.csv is empty: there is no header line");
    assert_eq!(
        refused(b"a,a\n", "f.csv"),
        "the header line of f.csv cannot be used: `a` is in it more than once"
    );
    assert_eq!(refused(b"\xffa\n", "f.csv"), "the header line of f.csv cannot be used: it is not UTF-8 text");
    assert_eq!(refused(b"\xff\xfea\0", "f.csv"), "f.csv is not CSV: it is UTF-16 text, but must be UTF-8");
    assert_eq!(
        refused(b"[{}]", "f.json"),
        "f.json is not NDJSON: it begins with a list, but must have one JSON object per line"
    );
    let quote = Options { delimiter: Some(b'"'), ..Options::default() };
    assert!(matches!(memory("a", "f.csv", quote), Err(InputError::BadDelimiter('"'))));
}

/// The year of flights, if the environment says where it is: every row comes out, under a key of its own.
#[test]
fn the_flights_of_a_year() {
    let Some(path) = std::env::var_os("UNDERSTUDY_FLIGHTS") else { return };
    let mut input = Input::open(&PathBuf::from(path), na()).expect("opens");
    let inferred = input.infer().expect("infers");
    let key = ["year", "month", "day", "carrier", "flight", "origin"];
    let schema = inferred.schema(&key, key.len(), false).expect("a schema");
    let (good, bad) = split(input.reader(&schema).expect("reads"));
    assert_eq!((good.len(), bad.len()), (336_776, 0));
    let keys: BTreeSet<&[u8]> = good.iter().map(|record| &record.key[..]).collect();
    assert_eq!(keys.len(), 336_776);
    let departed = schema.column_index("dep_time").expect("a column");
    assert_eq!(good.iter().filter(|record| record.row.values[departed].is_null()).count(), 8_255);
}

//! `pg_dump` writes a database, psql restores it into another one, and that one is written the same.

use super::drivers::{run, runs, with_cluster, with_database};
use super::sql::rows;
use std::path::Path;
use std::process::Command;

/// Views whose names stand before what they show, sequences of columns and on their own, constraints of each
/// kind, a table without a key, values that need care.
const DATABASE: &str = "
    CREATE TABLE town (id int PRIMARY KEY, name text NOT NULL DEFAULT 'x', UNIQUE (name));
    CREATE TABLE pet (id serial PRIMARY KEY, town int REFERENCES town (id) ON DELETE CASCADE, weight numeric(10, 2),
        CHECK (weight > 0), born timestamp, chip uuid, numbered int GENERATED ALWAYS AS IDENTITY);
    CREATE INDEX pet_weight ON pet (weight, town);
    CREATE VIEW with_towns AS SELECT pet.id, pet.weight, town.name FROM pet JOIN town ON pet.town = town.id;
    CREATE VIEW heavy AS SELECT name FROM with_towns WHERE weight > 2;
    CREATE SEQUENCE tickets START 5;
    CREATE TABLE plain (x int, y text[]);
    INSERT INTO town VALUES (1, 'a \"b\"'), (2, E'two\\nlines');
    INSERT INTO pet (town, weight, born, chip) VALUES
        (1, 2.5, '2024-02-29 12:00:00', '6f9619ff-8b86-d011-b42d-00c04fc964ff'), (2, 1, NULL, NULL);
    INSERT INTO plain VALUES (1, '{a,NULL,\"b,c\"}'), (NULL, NULL);
    SELECT nextval('tickets');";

/// What pg_dump writes, without the words that are others each time.
fn dump(url: &str, options: &[&str]) -> String {
    let text = run(Command::new("pg_dump").args(options).arg(url));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("\\restrict")).collect();
    lines.into_iter().filter(|line| !line.starts_with("\\unrestrict")).collect::<Vec<_>>().join("\n")
}

fn restore(url: &str, dir: &Path, dump: &str) {
    let path = dir.join("dump.sql");
    std::fs::write(&path, dump).expect("written");
    run(Command::new("psql").args([url, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(&path));
}

pub fn restored() {
    if !runs("pg_dump", "--version") || !runs("psql", "--version") {
        return println!("skipped: pg_dump is not installed");
    }
    with_cluster(|url| {
        rows(url, "CREATE DATABASE one");
        rows(url, "CREATE DATABASE two");
        let (one, two) = (with_database(url, "one"), with_database(url, "two"));
        rows(&one, DATABASE);
        let written = dump(&one, &[]);
        assert!(!written.contains("EXTENSION") && !written.contains("SCHEMA understudy"), "{written}");
        let dir = tempfile::tempdir().expect("a directory");
        restore(&two, dir.path(), &written);
        assert_eq!(dump(&two, &[]), written);
        for table in ["town", "pet", "plain", "heavy"] {
            let query = format!("SELECT * FROM {table} ORDER BY 1");
            assert_eq!(rows(&two, &query), rows(&one, &query), "{table}");
        }
        rows(url, "CREATE DATABASE three");
        let three = with_database(url, "three");
        restore(&three, dir.path(), &dump(&one, &["--inserts", "-t", "town", "-t", "plain"]));
        for table in ["town", "plain"] {
            let query = format!("SELECT * FROM {table} ORDER BY 1");
            assert_eq!(rows(&three, &query), rows(&one, &query), "{table}");
        }
        let town = dump(&one, &["-t", "town"]);
        assert!(town.contains("CREATE TABLE public.town") && !town.contains("public.pet"), "{town}");
        // Numbers go on behind those that were given out.
        assert_eq!(rows(&two, "SELECT nextval('tickets')"), "6");
        let made = "INSERT INTO pet (town, weight) VALUES (1, 7) RETURNING id, numbered";
        assert_eq!(rows(&two, made), "3|3");
    });
}

//! Completion: keywords, tables, columns; and when a line needs another one.

use super::backslash::HELP;
use ops::gateway::{End, end};
use rustyline::completion::Completer;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Helper, Highlighter, Hinter};

/// What is asked for the tables and their columns.
pub const COLUMNS: &str = "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns \
                           WHERE table_schema = 'public' ORDER BY table_name, ordinal_position;";

/// What is asked for their keys.
pub const KEYS: &str = "SELECT table_name, column_name, ordinal_position FROM information_schema.key_column_usage \
                        WHERE table_schema = 'public' ORDER BY table_name, ordinal_position;";

/// Rows of text, as they come through the door.
pub type Rows = Vec<Vec<Option<String>>>;

/// A table and its columns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Field>,
}

/// A column.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// It may be NULL.
    pub nullable: bool,
    /// Its place in the key, from 1.
    pub key: Option<usize>,
}

impl Table {
    /// The names of its columns.
    fn names(&self) -> impl Iterator<Item = &String> {
        self.columns.iter().map(|column| &column.name)
    }

    /// The columns of its key, in order.
    pub fn key(&self) -> Vec<&str> {
        let mut key: Vec<&Field> = self.columns.iter().filter(|column| column.key.is_some()).collect();
        key.sort_by_key(|column| column.key);
        key.into_iter().map(|column| column.name.as_str()).collect()
    }
}

/// From the rows of [`COLUMNS`] and [`KEYS`].
pub fn tables(columns: &Rows, keys: &Rows) -> Vec<Table> {
    let place = |table: &str, column: &str| {
        let same = |row: &&Vec<Option<String>>| {
            row.first().is_some_and(|name| name.as_deref() == Some(table))
                && row.get(1).is_some_and(|name| name.as_deref() == Some(column))
        };
        keys.iter().find(same).and_then(|row| row.get(2)?.as_ref()?.parse().ok())
    };
    let mut tables: Vec<Table> = Vec::new();
    for row in columns {
        let [Some(table), Some(name), Some(kind), Some(nullable)] = &row[..] else { continue };
        // Those are the cluster's own.
        if types::system::is_reserved(table) {
            continue;
        }
        let key = place(table, name);
        let field = Field { name: name.clone(), kind: kind.clone(), nullable: nullable != "NO", key };
        match tables.last_mut().filter(|last| last.name == *table) {
            Some(last) => last.columns.push(field),
            None => tables.push(Table { name: table.clone(), columns: vec![field] }),
        }
    }
    tables
}

/// The tables as a client of the cluster knows them.
pub fn of_cluster_map(map: &client::Map) -> Vec<Table> {
    let users = map.tables().filter(|table| !table.first_partition.is_system());
    let table = |table: &std::sync::Arc<types::TableRecord>| {
        let schema = &table.schema;
        let field = |(at, column): (usize, &types::data::Column)| Field {
            name: column.name.clone(),
            kind: column.column_type.to_string(),
            nullable: column.nullable,
            key: schema.key().iter().position(|key| *key == at).map(|place| place + 1),
        };
        Table { name: table.name.clone(), columns: schema.columns().iter().enumerate().map(field).collect() }
    };
    users.map(table).collect()
}

/// Words that statements are made of.
const KEYWORDS: &[&str] = &[
    "ALTER",
    "AND",
    "AS",
    "ASC",
    "BEGIN",
    "BETWEEN",
    "BY",
    "CASE",
    "COMMIT",
    "COUNT",
    "CREATE",
    "CROSS",
    "DELETE",
    "DESC",
    "DISTINCT",
    "DO",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FALSE",
    "FETCH",
    "FILTER",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IF",
    "ILIKE",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "KEY",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NOTHING",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "PRIMARY",
    "RIGHT",
    "ROLLBACK",
    "SELECT",
    "SET",
    "SHOW",
    "TABLE",
    "THEN",
    "TRUE",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
    "WITH",
];

/// Words after which a table is named.
const BEFORE_TABLES: [&str; 6] = ["from", "join", "into", "table", "update", "\\d"];

/// What is completed.
#[derive(Helper, Highlighter, Hinter, Default)]
pub struct Words {
    /// The tables there are.
    pub tables: Vec<Table>,
}

impl Words {
    /// What the word that ends at `at` can become, and where it begins.
    fn matching(&self, line: &str, at: usize) -> (usize, Vec<String>) {
        let before = &line[..at];
        let inside = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '\\';
        let start = before
            .rfind(|letter| !inside(letter))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let word = &before[start..];
        let earlier = before[..start].split_whitespace().next_back().unwrap_or("").to_lowercase();
        if word.starts_with('\\') {
            let commands = HELP.lines().filter_map(|line| line.split_whitespace().next());
            let commands = commands.filter(|command| command.starts_with('\\') && command.starts_with(word));
            return (start, commands.map(str::to_string).collect());
        }
        let small = word.to_lowercase();
        let begins = |name: &&String| name.starts_with(&small);
        let tables = self.tables.iter().map(|table| &table.name).filter(begins).cloned();
        if BEFORE_TABLES.contains(&earlier.as_str()) {
            return (start, tables.collect());
        }
        if let Some(table) =
            before[..start].strip_suffix('.').and_then(|text| self.table_before_dot(text, line))
        {
            return (start, table.names().filter(begins).cloned().collect());
        }
        let mut found: Vec<String> = self.columns_of(line).filter(begins).cloned().collect();
        found.extend(tables);
        if !word.is_empty() {
            let upper = word.chars().all(|letter| letter.is_ascii_uppercase());
            let keywords = KEYWORDS.iter().filter(|keyword| keyword.starts_with(&word.to_uppercase()));
            found.extend(
                keywords.map(|keyword| if upper { keyword.to_string() } else { keyword.to_lowercase() }),
            );
        }
        found.sort();
        found.dedup();
        (start, found)
    }

    /// Columns of the tables that the statement names; of all if it names none yet.
    fn columns_of<'a>(&'a self, line: &'a str) -> impl Iterator<Item = &'a String> {
        let named = move |table: &Table| {
            line.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
                .any(|word| word.eq_ignore_ascii_case(&table.name))
        };
        let any = self.tables.iter().any(named);
        self.tables.iter().filter(move |table| !any || named(table)).flat_map(Table::names)
    }

    /// `flights.` is that table; `f.` is the one that the statement calls so.
    fn table_before_dot(&self, text: &str, line: &str) -> Option<&Table> {
        let name =
            text.rsplit(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next()?.to_lowercase();
        let words: Vec<String> = line
            .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
            .filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("as"))
            .map(str::to_lowercase)
            .collect();
        let is_alias = |table: &&Table| words.windows(2).any(|pair| pair[0] == table.name && pair[1] == name);
        self.tables.iter().find(|table| table.name == name).or_else(|| self.tables.iter().find(is_alias))
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.matching(line, at))
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_whole(context.input()) {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

/// True if a line can be run as it is: it holds nothing, a command, or statements that have all ended.
fn is_whole(text: &str) -> bool {
    let mut rest = text.trim();
    if rest.starts_with('\\') || ["exit", "quit"].contains(&rest) {
        return true;
    }
    loop {
        match end(rest) {
            End::Nothing => return true,
            End::Open => return false,
            End::At(at) => rest = &rest[at..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        let table = |name: &str, columns: &[&str]| Table {
            name: name.into(),
            columns: columns
                .iter()
                .map(|name| Field { name: name.to_string(), ..Field::default() })
                .collect(),
        };
        Words { tables: vec![table("flights", &["carrier", "day"]), table("pets", &["name", "owner"])] }
    }

    fn completed(line: &str) -> Vec<String> {
        words().matching(line, line.len()).1
    }

    #[test]
    fn tables_columns_and_keywords_are_completed() {
        assert_eq!(completed("select * from fl"), ["flights"]);
        assert_eq!(completed("SELECT count(*) FROM "), ["flights", "pets"]);
        assert_eq!(completed("select owner from pets where na"), ["name"]);
        assert_eq!(completed("select * from pets p where p."), ["name", "owner"]);
        assert_eq!(completed("select flights.d"), ["day"]);
        assert_eq!(completed("SEL"), ["SELECT"]);
        assert_eq!(completed("sel"), ["select"]);
        assert_eq!(completed("\\d"), ["\\dt", "\\d"]);
        assert_eq!(completed("\\d pe"), ["pets"]);
        assert_eq!(words().matching("select 'ü', na", "select 'ü', na".len()), (13, vec!["name".into()]));
    }

    #[test]
    fn columns_and_keys_are_put_together() {
        let row = |cells: &[&str]| cells.iter().map(|cell| Some(cell.to_string())).collect::<Vec<_>>();
        let columns = vec![row(&["pets", "name", "text", "NO"]), row(&["pets", "owner", "bigint", "YES"])];
        let tables = tables(&columns, &vec![row(&["pets", "owner", "1"]), row(&["pets", "name", "2"])]);
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].key(), ["owner", "name"]);
        assert_eq!((tables[0].columns[0].nullable, tables[0].columns[1].kind.as_str()), (false, "bigint"));
    }

    #[test]
    fn a_line_is_whole_when_all_that_began_has_ended() {
        for whole in ["", "\\dt", "select 1;", "select 1; select 2;", "-- x", "exit", "select ';';"] {
            assert!(is_whole(whole), "{whole}");
        }
        for open in ["select 1", "select 1; select", "select ';", "select 1 -- ;"] {
            assert!(!is_whole(open), "{open}");
        }
    }
}

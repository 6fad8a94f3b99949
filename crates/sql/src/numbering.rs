//! CREATE, ALTER and DROP SEQUENCE, and the sequences that SERIAL and identity columns bring. The parser's
//! own reads options in one order only, and dumps have another.

use crate::bind::{folded, table_name};
use crate::catalog::Catalog;
use crate::columns::Numbered;
use crate::constraints::define::invalid;
use crate::constraints::violation;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{DataType, Ident, ObjectName};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use types::data::kind::{Kind, Sequence};
use types::data::{Column, ColumnType, Fallback, Rules, Schema};
use types::{CatalogTable, TableId, TableRecord};

/// A statement on sequences.
#[derive(Clone, PartialEq, Debug)]
pub enum SequenceStatement {
    /// Makes one.
    Create {
        /// Its name.
        name: ObjectName,
        /// One of this name may be there.
        if_not_exists: bool,
        /// What it is like.
        options: Box<Counting>,
    },
    /// Changes one.
    Alter {
        /// Its name.
        name: ObjectName,
        /// One that there is not is skipped.
        if_exists: bool,
        /// What becomes different.
        options: Box<Counting>,
        /// Its other name.
        rename: Option<Ident>,
    },
    /// Drops some.
    Drop {
        /// Their names.
        names: Vec<ObjectName>,
        /// One that there is not is skipped.
        if_exists: bool,
        /// With the defaults that name them.
        cascade: bool,
    },
}

/// Options of a sequence as they are written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counting {
    bits: Option<u8>,
    step: Option<i64>,
    least: Option<Option<i64>>,
    most: Option<Option<i64>>,
    start: Option<i64>,
    /// RESTART, and with which number.
    pub restart: Option<Option<i64>>,
    cycle: Option<bool>,
    /// The table and the column that it goes with; `None` inside: with none.
    pub owner: Option<Option<(String, String)>>,
    /// Of an identity column's: its name.
    pub name: Option<String>,
}

impl SequenceStatement {
    /// What the client is told is done.
    pub fn tag(&self) -> &'static str {
        match self {
            SequenceStatement::Create { .. } => "CREATE SEQUENCE",
            SequenceStatement::Alter { .. } => "ALTER SEQUENCE",
            SequenceStatement::Drop { .. } => "DROP SEQUENCE",
        }
    }
}

/// A statement on sequences, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<SequenceStatement>, ParserError> {
    if parser.parse_keywords(&[Keyword::CREATE, Keyword::SEQUENCE]) {
        let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        let options = Box::new(options(parser)?);
        return Ok(Some(SequenceStatement::Create { name, if_not_exists, options }));
    }
    if parser.parse_keywords(&[Keyword::ALTER, Keyword::SEQUENCE]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = parser.parse_object_name(false)?;
        if parser.parse_keywords(&[Keyword::OWNER, Keyword::TO]) {
            parser.parse_identifier()?;
        }
        let rename = match parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
            true => Some(parser.parse_identifier()?),
            false => None,
        };
        let options = Box::new(options(parser)?);
        return Ok(Some(SequenceStatement::Alter { name, if_exists, options, rename }));
    }
    if parser.parse_keywords(&[Keyword::DROP, Keyword::SEQUENCE]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
        let cascade = parser.parse_keyword(Keyword::CASCADE);
        let _ = parser.parse_keyword(Keyword::RESTRICT);
        return Ok(Some(SequenceStatement::Drop { names, if_exists, cascade }));
    }
    Ok(None)
}

/// `ALTER TABLE t ALTER c ADD GENERATED ... AS IDENTITY (...)` as dumps write it: the table, the column, who
/// may number, and the options. Otherwise the parser stays where it was.
pub fn parse_added(
    parser: &mut Parser<'_>,
) -> Result<Option<(ObjectName, Ident, types::data::Identity, Counting)>, ParserError> {
    let added = parser.maybe_parse(|parser| {
        parser.expect_keywords(&[Keyword::ALTER, Keyword::TABLE])?;
        let _ = parser.parse_keyword(Keyword::ONLY);
        let table = parser.parse_object_name(false)?;
        parser.expect_keyword(Keyword::ALTER)?;
        let _ = parser.parse_keyword(Keyword::COLUMN);
        let column = parser.parse_identifier()?;
        parser.expect_keywords(&[Keyword::ADD, Keyword::GENERATED])?;
        let always = parser.parse_keyword(Keyword::ALWAYS);
        if !always {
            parser.expect_keywords(&[Keyword::BY, Keyword::DEFAULT])?;
        }
        parser.expect_keywords(&[Keyword::AS, Keyword::IDENTITY])?;
        let counting = match parser.consume_token(&Token::LParen) {
            true => {
                let counting = options(parser)?;
                parser.expect_token(&Token::RParen)?;
                counting
            }
            false => Counting::default(),
        };
        let identity = if always { types::data::Identity::Always } else { types::data::Identity::ByDefault };
        Ok((table, column, identity, counting))
    })?;
    Ok(added)
}

/// Options of identity columns in the order that the parser reads; `None`: there are none.
pub fn in_order(tokens: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let is = |at: usize, keyword| matches!(&tokens[at].token, Token::Word(word) if word.keyword == keyword);
    let blank = |at: &usize| !matches!(tokens[*at].token, Token::Whitespace(_));
    let (mut found, mut last) = (Vec::new(), 0);
    for at in (0..tokens.len()).filter(|at| is(*at, Keyword::IDENTITY)) {
        let Some(open) = (at + 1..tokens.len()).find(blank) else { break };
        if tokens[open].token != Token::LParen {
            continue;
        }
        let close = (open..tokens.len()).find(|at| tokens[*at].token == Token::RParen)?;
        let inner: Vec<TokenWithSpan> = tokens[open + 1..close].to_vec();
        let text: String = inner.iter().map(|token| token.token.to_string()).collect();
        // What names its sequence is read elsewhere.
        let Ok(counting) = Counting::of_column(&text) else { continue };
        let added = (0..at).rev().find(|at| is(*at, Keyword::ADD));
        let added = added.and_then(|at| (at + 1..tokens.len()).find(blank));
        if counting.name.is_some() || added.is_some_and(|at| is(at, Keyword::GENERATED)) {
            continue;
        }
        found.extend_from_slice(&tokens[last..=open]);
        let written = Tokenizer::new(&PostgreSqlDialect {}, &counting.to_string()).tokenize().ok()?;
        found.extend(written.into_iter().map(TokenWithSpan::wrap));
        last = close;
    }
    found.extend_from_slice(&tokens[last..]);
    (last > 0).then_some(found)
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.step.map(|step| format!("INCREMENT BY {step}")));
        words.extend(self.least.map(|least| bound("MINVALUE", least)));
        words.extend(self.most.map(|most| bound("MAXVALUE", most)));
        words.extend(self.start.map(|start| format!("START WITH {start}")));
        words.extend(self.cycle.map(|cycle| if cycle { "CYCLE".into() } else { "NO CYCLE".to_string() }));
        f.write_str(&words.join(" "))
    }
}

fn bound(word: &str, bound: Option<i64>) -> String {
    bound.map_or_else(|| format!("NO {word}"), |bound| format!("{word} {bound}"))
}

fn number(parser: &mut Parser<'_>) -> Result<i64, ParserError> {
    let sign = parser.consume_token(&Token::Minus);
    let token = parser.next_token();
    let Token::Number(text, _) = &token.token else { return parser.expected("a number", token) };
    let text = if sign { format!("-{text}") } else { text.clone() };
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) => parser.expected("a whole number of 64 bits", token),
    }
}

/// Options in any order, up to what is none.
fn options(parser: &mut Parser<'_>) -> Result<Counting, ParserError> {
    let mut found = Counting::default();
    loop {
        if parser.parse_keyword(Keyword::AS) {
            let ty = parser.parse_data_type()?;
            found.bits = Some(match ty {
                DataType::SmallInt(None) | DataType::Int2(None) => 16,
                DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => 32,
                DataType::BigInt(None) | DataType::Int8(None) => 64,
                _ => return Err(ParserError::ParserError("a sequence is of whole numbers".into())),
            });
        } else if parser.parse_keyword(Keyword::INCREMENT) {
            let _ = parser.parse_keyword(Keyword::BY);
            found.step = Some(number(parser)?);
        } else if parser.parse_keyword(Keyword::MINVALUE) {
            found.least = Some(Some(number(parser)?));
        } else if parser.parse_keyword(Keyword::MAXVALUE) {
            found.most = Some(Some(number(parser)?));
        } else if parser.parse_keywords(&[Keyword::NO, Keyword::MINVALUE]) {
            found.least = Some(None);
        } else if parser.parse_keywords(&[Keyword::NO, Keyword::MAXVALUE]) {
            found.most = Some(None);
        } else if parser.parse_keywords(&[Keyword::NO, Keyword::CYCLE]) {
            found.cycle = Some(false);
        } else if parser.parse_keyword(Keyword::CYCLE) {
            found.cycle = Some(true);
        } else if parser.parse_keyword(Keyword::START) {
            let _ = parser.parse_keyword(Keyword::WITH);
            found.start = Some(number(parser)?);
        } else if parser.parse_keyword(Keyword::RESTART) {
            let with = parser.parse_keyword(Keyword::WITH);
            let given = with || matches!(parser.peek_token_ref().token, Token::Number(..) | Token::Minus);
            found.restart = Some(if given { Some(number(parser)?) } else { None });
        } else if parser.parse_keyword(Keyword::CACHE) {
            number(parser)?;
        } else if parser.parse_keywords(&[Keyword::OWNED, Keyword::BY]) {
            found.owner = Some(owner(parser)?);
        } else if parser.parse_keywords(&[Keyword::SEQUENCE, Keyword::NAME]) {
            let name = parser.parse_object_name(false)?;
            found.name = table_name(&name).ok();
        } else {
            return Ok(found);
        }
    }
}

fn owner(parser: &mut Parser<'_>) -> Result<Option<(String, String)>, ParserError> {
    if parser.parse_keyword(Keyword::NONE) {
        return Ok(None);
    }
    let name = parser.parse_object_name(false)?;
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    match parts.as_slice() {
        [schema, table, column] if schema != "public" => {
            Ok(Some((format!("{schema}.{table}"), column.clone())))
        }
        [.., table, column] => Ok(Some((table.clone(), column.clone()))),
        _ => Err(ParserError::ParserError("OWNED BY names a table and a column".into())),
    }
}

impl Counting {
    /// Options that make the same sequence again.
    pub fn like(sequence: &Sequence) -> Counting {
        Counting {
            step: Some(sequence.step),
            least: Some(Some(sequence.least)),
            most: Some(Some(sequence.most)),
            start: Some(sequence.start),
            cycle: Some(sequence.cycle),
            ..Counting::default()
        }
    }

    /// What is written in CREATE TABLE, which the parser has read.
    pub fn of_column(text: &str) -> Result<Counting, Failure> {
        let dialect = PostgreSqlDialect {};
        let read = Parser::new(&dialect).try_with_sql(text).and_then(|mut parser| options(&mut parser));
        read.map_err(|error| Failure::new(code::SYNTAX, error.to_string()))
    }

    /// The sequence that is made by them, of so many bits unless they say it; or what they make of one.
    pub fn sequence(&self, bits: u8, before: Option<&Sequence>) -> Result<Sequence, Failure> {
        let wrong = |message: String| Err(Failure::new("22023", message));
        let bits = self.bits.or(before.map(|before| before.bits)).unwrap_or(bits);
        let step = self.step.or(before.map(|before| before.step)).unwrap_or(1);
        if step == 0 {
            return wrong("INCREMENT must not be zero".into());
        }
        let (lowest, highest) = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
        let other = self.bits.is_some_and(|bits| before.is_none_or(|before| before.bits != bits));
        let known = before.filter(|_| !other);
        let least = match self.least {
            Some(Some(least)) => least,
            None if known.is_some() => known.map_or(1, |known| known.least),
            _ => {
                if step > 0 {
                    1
                } else {
                    lowest
                }
            }
        };
        let most = match self.most {
            Some(Some(most)) => most,
            None if known.is_some() => known.map_or(1, |known| known.most),
            _ => {
                if step > 0 {
                    highest
                } else {
                    -1
                }
            }
        };
        if most > highest {
            return wrong(format!(
                "MAXVALUE ({most}) is out of range for sequence data type {}",
                named(bits)
            ));
        }
        if least < lowest {
            return wrong(format!(
                "MINVALUE ({least}) is out of range for sequence data type {}",
                named(bits)
            ));
        }
        if least >= most {
            return wrong(format!("MINVALUE ({least}) must be less than MAXVALUE ({most})"));
        }
        let first = if step > 0 { least } else { most };
        let start = self.start.or(before.map(|before| before.start)).unwrap_or(first);
        if start < least {
            return wrong(format!("START value ({start}) cannot be less than MINVALUE ({least})"));
        }
        if start > most {
            return wrong(format!("START value ({start}) cannot be greater than MAXVALUE ({most})"));
        }
        let cycle = self.cycle.or(before.map(|before| before.cycle)).unwrap_or(false);
        Ok(Sequence { bits, start, step, least, most, cycle })
    }
}

/// What a type of so many bits is called.
pub fn named(bits: u8) -> &'static str {
    match bits {
        16 => "smallint",
        32 => Ty::Int4.name(),
        _ => Ty::Int8.name(),
    }
}

/// A sequence in the catalog.
pub fn defined(id: TableId, name: &str, sequence: Sequence) -> CatalogTable {
    let columns =
        [("last_value", ColumnType::Int), ("log_cnt", ColumnType::Int), ("is_called", ColumnType::Bool)];
    kinded(id, name, columns.map(|(name, of)| Column::new(name, of)).to_vec(), Kind::Sequence(sequence))
}

/// What is no table, with the columns that it shows.
pub fn kinded(id: TableId, name: &str, mut columns: Vec<Column>, kind: Kind) -> CatalogTable {
    let rules = Rules { hidden: true, ..Rules::default() };
    let key = Column::new(crate::columns::HIDDEN, ColumnType::Int).with(rules).not_null();
    columns.push(key);
    let schema = Schema::new(columns, &[crate::columns::HIDDEN], 1, false);
    let schema = schema.and_then(|schema| schema.of_kind(kind)).expect("columns of different names");
    CatalogTable::new(id, name, schema, client::wall_ms())
}

/// The error of a sequence that there is not.
pub fn missing(name: &str) -> Failure {
    Failure::new("42P01", format!("relation \"{name}\" does not exist"))
}

/// A sequence by its name; the error is of what is none.
pub fn find(catalog: &Catalog, name: &ObjectName) -> Result<(TableId, Sequence), Failure> {
    let name = table_name(name)?;
    match catalog.other(&name) {
        Some(found) => match found.schema.kind() {
            Some(Kind::Sequence(sequence)) => Ok((found.id, *sequence)),
            _ => Err(Failure::new("42809", format!("\"{name}\" is not a sequence"))),
        },
        None if catalog.table(&name).is_some() => {
            Err(Failure::new("42809", format!("\"{name}\" is not a sequence")))
        }
        None => Err(missing(&name)),
    }
}

/// A sequence by the text that `nextval` is given.
pub fn by_text(catalog: &Catalog, text: &str) -> Result<TableId, Failure> {
    let dialect = PostgreSqlDialect {};
    let read = Parser::new(&dialect).try_with_sql(text);
    let name = read.and_then(|mut parser| parser.parse_object_name(false));
    let name = name.map_err(|_| Failure::new("42602", "invalid name syntax"))?;
    find(catalog, &name).map(|(id, _)| id)
}

/// A free name for a column's sequence.
pub fn free_name(catalog: &Catalog, table: &str, column: &str, others: &[String]) -> String {
    let taken = |name: &String| catalog.has_relation(name) || others.contains(name);
    // As PostgreSQL shortens: the longer part first.
    let (mut table, mut column) = (table.to_string(), column.to_string());
    while table.len() + column.len() + 5 > 63 {
        let longer = if table.len() > column.len() { &mut table } else { &mut column };
        longer.pop();
    }
    let base = format!("{table}_{column}_seq");
    let numbered = (1..).map(|number| format!("{base}{number}"));
    std::iter::once(base.clone()).chain(numbered).find(|name| !taken(name)).expect("numbers do not end")
}

/// Columns of other tables, by their table's name and their own, whose defaults name this sequence.
pub fn users(catalog: &Catalog, sequence: TableId) -> Vec<(String, String, bool)> {
    let mut found = Vec::new();
    for table in catalog.all() {
        for column in table.schema.columns() {
            let by_default = column.rules.default == Some(types::data::Fallback::Next(sequence.0));
            let owned = column.rules.sequence == Some(sequence.0);
            if by_default || owned && column.rules.identity.is_some() {
                found.push((table.name.clone(), column.name.clone(), column.rules.identity.is_some()));
            }
        }
    }
    found
}

/// A column that is numbered by a sequence which goes with a column of another table.
pub struct OtherNumbered {
    /// The table that goes.
    table: String,
    /// Its sequence.
    sequence: String,
    /// The default, in PostgreSQL's words.
    pub what: String,
}

/// The columns of tables that stay, of whose sequences some go with these tables.
pub fn others_numbered(catalog: &Catalog, gone: &BTreeSet<TableId>) -> Vec<OtherNumbered> {
    let stays = |name: &str| catalog.table(name).is_some_and(|table| !gone.contains(&table.id));
    let mut found = Vec::new();
    for table in catalog.all().filter(|table| gone.contains(&table.id)) {
        for sequence in owned(catalog, table) {
            let users = users(catalog, sequence.id).into_iter().filter(|(other, ..)| stays(other));
            found.extend(users.map(|(other, column, _)| OtherNumbered {
                table: table.name.clone(),
                sequence: sequence.name.clone(),
                what: default_of(&other, &column),
            }));
        }
    }
    found
}

/// What PostgreSQL calls the default of a column.
pub fn default_of(table: &str, column: &str) -> String {
    format!("default value for column {column} of table {table}")
}

/// The error of tables that are to go, if one that stays is numbered by a sequence that goes with them.
pub fn number_no_others(catalog: &Catalog, gone: &BTreeSet<TableId>) -> Result<(), Failure> {
    let Some(OtherNumbered { table, sequence, what }) = others_numbered(catalog, gone).into_iter().next()
    else {
        return Ok(());
    };
    let message = format!("cannot drop table {table} because other objects depend on it");
    Err(violation::depended_on(message, format!("{what} depends on sequence {sequence}")))
}

/// True if the default of one of its columns is the next number of one of these sequences.
pub fn is_numbered_by(table: &TableRecord, sequences: &BTreeSet<TableId>) -> bool {
    table.schema.columns().iter().any(|column| is_next(column, sequences))
}

fn is_next(column: &Column, sequences: &BTreeSet<TableId>) -> bool {
    matches!(column.rules.default, Some(Fallback::Next(id)) if sequences.contains(&TableId(id)))
}

/// Has a table's columns no defaults that are numbers of these sequences.
pub fn forget(table: &mut CatalogTable, sequences: &BTreeSet<TableId>) {
    let mut parts = table.schema.clone().into_parts();
    for column in parts.columns.iter_mut().filter(|column| is_next(column, sequences)) {
        column.rules.default = None;
    }
    table.schema = Schema::from_parts(parts).expect("columns that a table has");
}

/// The sequences that go with columns of these tables.
pub fn owned_by(catalog: &Catalog, tables: &BTreeSet<TableId>) -> BTreeSet<TableId> {
    let all = catalog.all().filter(|table| tables.contains(&table.id));
    all.flat_map(|table| owned(catalog, table)).map(|sequence| sequence.id).collect()
}

/// The sequences that go with a table's columns.
pub fn owned(catalog: &Catalog, table: &TableRecord) -> Vec<Arc<TableRecord>> {
    let ids: Vec<u32> = table.schema.columns().iter().filter_map(|column| column.rules.sequence).collect();
    catalog.others().filter(|other| ids.contains(&other.id.0)).cloned().collect()
}

/// The same sequences under other ids, so that they begin again: each with the one that it replaces.
pub fn again(
    catalog: &Catalog,
    table: &TableRecord,
    restart: bool,
    first: u32,
) -> Vec<(Arc<TableRecord>, CatalogTable)> {
    let owned = if restart { owned(catalog, table) } else { Vec::new() };
    let renewed = owned.into_iter().zip(first..).filter_map(|(old, id)| {
        let (name, sequence) = catalog.sequence_by_id(old.id)?;
        let new = defined(TableId(id), name, sequence);
        Some((old, new))
    });
    renewed.collect()
}

/// Has a table's columns numbered by one sequence instead of another.
pub fn instead(table: &mut CatalogTable, old: TableId, new: TableId) {
    let mut parts = table.schema.clone().into_parts();
    for rules in parts.columns.iter_mut().map(|column| &mut column.rules) {
        if rules.sequence == Some(old.0) {
            rules.sequence = Some(new.0);
        }
        if rules.default == Some(Fallback::Next(old.0)) {
            rules.default = Some(Fallback::Next(new.0));
        }
    }
    table.schema = Schema::from_parts(parts).expect("columns that a table has");
}

/// Columns whose rows are numbered, and the sequences that come with them, which get ids from `first` on.
pub fn columns(
    catalog: &Catalog,
    (table, schema): (&str, &Schema),
    numbered: &[(usize, Numbered)],
    first: u32,
) -> Result<(Schema, Vec<CatalogTable>), Failure> {
    let (mut parts, mut made) = (schema.clone().into_parts(), Vec::<CatalogTable>::new());
    for ((at, by), id) in numbered.iter().zip(first..) {
        let column = &mut parts.columns[*at];
        let counting = match by {
            Numbered::By(name) => {
                column.rules.default = Some(Fallback::Next(by_text(catalog, name)?.0));
                continue;
            }
            Numbered::Serial => {
                column.rules.identity = None;
                column.rules.default = Some(Fallback::Next(id));
                &Counting::default()
            }
            Numbered::Identity(counting) => counting,
        };
        column.rules.sequence = Some(id);
        let sequence = counting.sequence(column.rules.bits.unwrap_or(64), None)?;
        let others: Vec<String> = made.iter().map(|one| one.name.clone()).collect();
        let free = free_name(catalog, table, &column.name, &others);
        made.push(defined(TableId(id), &free, sequence));
    }
    Ok((Schema::from_parts(parts).map_err(invalid)?, made))
}

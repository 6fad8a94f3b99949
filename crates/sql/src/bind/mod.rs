//! From PostgreSQL's syntax to a statement of the evaluating engine: names are resolved, every expression
//! gets a type, and each operator is one whose result is PostgreSQL's. What is not known here is refused.
//!
//! The engine's text holds no word and no literal of the client: constants and parameters are numbered slots,
//! names are our own. Conditions on columns of a table that compare them with a slot are noted, so that a
//! scan reads only their range.

mod aggregate;
mod arrays;
mod calls;
mod conflict;
mod expr;
mod from;
mod json;
mod made;
mod merge;
mod modify;
mod objects;
mod operators;
mod order;
mod query;
mod quick;
mod reads;
mod recursive;
mod select;
mod sets;
mod tuples;
mod window;
mod with_parts;
mod write;

use crate::catalog::Catalog;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, WindowSpec};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::TableRecord;
use types::data::Value;

/// The names of aggregates.
const AGGREGATES: [&str; 14] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "every",
    "string_agg",
    "array_agg",
    "json_agg",
    "jsonb_agg",
    "json_object_agg",
    "jsonb_object_agg",
];

/// True for the names of aggregates.
fn is_aggregate(name: &str) -> bool {
    let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
    AGGREGATES.contains(&name.to_ascii_lowercase().as_str())
}

pub use ::types::choice::Comparison;
pub use calls::VERSION;
pub use from::query_of;
pub use made::columns_of;
pub use merge::{Branch, Merge, merge, merge_alone};
pub use modify::{Change, Returning};
pub use operators::data_type;
pub use query::{Bound, Locks, Output, Point, whole_key};
pub use quick::Quick;
pub use reads::{named, text as view_text};
pub use with_parts::{Last, Part, Parts, Planned, Writing, of_parts, writes};
pub use write::{Arbiters, Conflict, Insertion, Rows, Upsert, constant, writable};

/// A value that is known when a statement is executed.
#[derive(Clone, PartialEq, Debug)]
pub enum Slot {
    /// Written in the statement.
    Const(Value),
    /// A parameter, by its number from 0.
    Param(usize),
    /// The moment at which the statement began.
    Now,
    /// Its day.
    Today,
    /// A UUID that is drawn anew for each row. Only a column's default.
    Random,
}

/// A condition that every wanted row of a table meets.
#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    /// The column, by its index in the table.
    pub column: usize,
    /// How.
    pub comparison: Comparison,
    /// With what; of the column's own type.
    pub slot: Slot,
}

/// Stands for a column: the encoded key of the row.
pub const KEY: usize = usize::MAX;
/// Stands for a column: the row as it is stored.
pub const STORED: usize = usize::MAX - 1;
/// Stands for a column: the number of the row, for rows that are given.
pub const NUMBER: usize = usize::MAX - 2;

/// A table as a statement reads it: once, at one position of each partition, however often the statement
/// names it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The table.
    pub table: Arc<TableRecord>,
    /// The columns that are used, in the order in which the engine gets them.
    pub columns: Vec<usize>,
    /// What every row meets that can matter.
    pub conditions: Vec<Condition>,
    /// How often the statement names it.
    uses: usize,
}

impl Source {
    /// All of a table.
    pub fn whole(table: Arc<TableRecord>) -> Source {
        let columns = (0..table.schema.columns().len()).collect();
        Source { table, columns, conditions: Vec::new(), uses: 1 }
    }
}

/// Which of a statement's uses of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Use {
    source: usize,
    number: usize,
}

/// An expression with its type. `ty` is `None` for a literal in quotes, a null or a parameter that nothing
/// has decided yet.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    form: Form,
    ty: Option<Ty>,
    /// The column of a table that it is, and nothing else.
    column: Option<(Use, usize)>,
    /// What holds where this is true.
    conditions: Vec<(Use, Condition)>,
    /// This is true exactly where the conditions hold.
    exact: bool,
    /// The same without the engine, if that is possible and it is not a slot.
    quick: Option<Quick>,
}

#[derive(Clone, Debug)]
enum Form {
    Engine(String),
    Slot(Slot),
}

impl Typed {
    fn engine(text: String, ty: Ty) -> Typed {
        let (conditions, form) = (Vec::new(), Form::Engine(text));
        Typed { form, ty: Some(ty), column: None, conditions, exact: false, quick: None }
    }

    fn slot(slot: Slot, ty: Option<Ty>) -> Typed {
        let (conditions, form) = (Vec::new(), Form::Slot(slot));
        Typed { form, ty, column: None, conditions, exact: false, quick: None }
    }

    /// The same without the engine.
    fn quick(&self) -> Option<Quick> {
        match &self.form {
            Form::Slot(slot) => Some(Quick::Slot(slot.clone())),
            Form::Engine(_) => self.quick.clone(),
        }
    }

    /// The same with what it is without the engine.
    fn with(mut self, quick: Option<Quick>) -> Typed {
        self.quick = quick;
        self
    }

    fn constant(value: Value, ty: Ty) -> Typed {
        Typed::slot(Slot::Const(value), Some(ty))
    }

    /// Its value, if it is written in the statement.
    fn known(&self) -> Option<&Value> {
        match &self.form {
            Form::Slot(Slot::Const(value)) => Some(value),
            _ => None,
        }
    }
}

/// A column that expressions can name.
#[derive(Clone, Debug)]
struct Visible {
    name: String,
    ty: Ty,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A column of a table, which the engine is given only if somebody names it.
    Column(usize),
    /// The engine's text.
    Text(String),
}

/// A table, subquery or common table expression in FROM.
#[derive(Clone, Debug)]
struct Relation {
    /// The schema that may stand before its name; none if it has an alias.
    schema: Cow<'static, str>,
    /// The name by which its columns can be qualified.
    name: String,
    /// The engine's name.
    alias: String,
    columns: Vec<Visible>,
    /// The number of a system table among the catalogs: its column `tableoid`, which only its name finds.
    number: Option<u32>,
    of: Option<Use>,
}

impl Relation {
    /// True if this is its name, perhaps with its schema before it; or if there is none.
    fn is_called(&self, name: &[String]) -> bool {
        match name {
            [] => true,
            [table] => self.name == *table,
            [schema, table] => self.schema == *schema && self.name == *table,
            _ => false,
        }
    }

    /// True if no query may have both: names without a schema, which aliases are, are those of all schemas.
    fn is_taken_for(&self, other: &Relation) -> bool {
        let alone = self.schema.is_empty() || other.schema.is_empty();
        self.name == other.name && (alone || self.schema == other.schema)
    }
}

/// What the expressions of one SELECT see.
#[derive(Clone, Debug, Default)]
struct Scope {
    relations: Vec<Relation>,
    /// Columns of a join's USING, which are named without a table.
    merged: Vec<Visible>,
    /// The engine's texts of the GROUP BY; `None`: rows are not grouped.
    groups: Option<Vec<String>>,
    /// Inside of an aggregate's arguments.
    in_aggregate: bool,
    /// Aggregates may not stand here, and where "here" is.
    no_aggregates: Option<&'static str>,
    /// Functions that give several rows may stand here.
    sets_allowed: bool,
    /// Those that do.
    sets: Option<sets::Sets>,
    /// Window functions may stand here.
    windows_allowed: bool,
    /// One does.
    windows_used: bool,
    /// Windows that have a name.
    windows: Vec<(String, WindowSpec)>,
}

/// A common table expression.
#[derive(Clone, Debug)]
struct Common {
    /// The engine's name; empty: it gives no rows.
    alias: String,
    columns: Vec<(String, Ty)>,
}

/// Translates one statement.
pub struct Binder<'a> {
    catalog: &'a Catalog,
    /// The types of parameters, as far as they are decided.
    pub params: Vec<Option<Ty>>,
    /// The engine's slots, in order, with their types.
    pub slots: Vec<(Slot, Ty)>,
    /// The tables that are read.
    pub sources: Vec<Source>,
    /// The system tables that are read, by their number among all of them.
    systems: Vec<usize>,
    /// The engine's names of relations, with the statement's.
    names: Vec<(String, String)>,
    scopes: Vec<Scope>,
    commons: Vec<BTreeMap<String, Common>>,
    /// What stands in WITH before the part of a statement that this is, if it is one.
    around: Option<Arc<with_parts::Around>>,
    /// The engine's texts of that.
    outer: Vec<String>,
    aliases: usize,
    /// Relations in all FROMs.
    relations: usize,
    /// How many subqueries in expressions the binder is in.
    inside: usize,
    /// A table is read by such a subquery, and so perhaps more than once.
    repeated: bool,
    /// The next query is the statement itself, which may lock rows.
    may_lock: bool,
    /// Conditions of each use.
    pushed: Vec<(Use, Condition)>,
    /// To how many characters columns of the last query are filled up.
    widths: Vec<Option<u32>>,
}

impl<'a> Binder<'a> {
    /// For a statement whose parameters have these types, as far as the client has decided them.
    pub fn new(catalog: &'a Catalog, given: &[Option<Ty>]) -> Binder<'a> {
        Binder {
            catalog,
            params: given.to_vec(),
            slots: Vec::new(),
            sources: Vec::new(),
            systems: Vec::new(),
            names: Vec::new(),
            scopes: Vec::new(),
            commons: Vec::new(),
            around: None,
            outer: Vec::new(),
            aliases: 0,
            relations: 0,
            inside: 0,
            repeated: false,
            may_lock: false,
            pushed: Vec::new(),
            widths: Vec::new(),
        }
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("t{}", self.aliases)
    }

    fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("expressions are bound in a scope")
    }

    /// A parameter by its name, `$1`.
    fn parameter(&mut self, name: &str) -> Result<Typed, Failure> {
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let Some(number) = number.filter(|number| (1..=65_535).contains(number)) else {
            return Err(Failure::new("42P02", format!("there is no parameter {name}")));
        };
        if self.params.len() < number {
            self.params.resize(number, None);
        }
        Ok(Typed::slot(Slot::Param(number - 1), self.params[number - 1]))
    }

    /// The engine's text of an expression whose type is decided.
    fn text(&mut self, typed: &Typed) -> String {
        match &typed.form {
            Form::Engine(text) => text.clone(),
            Form::Slot(slot) => {
                let ty = typed.ty.expect("slots are written once their type is decided");
                let same = |(known, of): &(Slot, Ty)| *of == ty && alike(known, slot);
                let at = self.slots.iter().position(same).unwrap_or_else(|| {
                    self.slots.push((slot.clone(), ty));
                    self.slots.len() - 1
                });
                format!("?{}", at + 1)
            }
        }
    }

    /// The types of all parameters. Those that nothing decided are text, as PostgreSQL has it for those that
    /// are used.
    pub fn parameter_types(&self) -> Result<Vec<Ty>, Failure> {
        all_decided(&self.params)
    }
}

/// The types of parameters. The error: one is not decided.
fn all_decided(params: &[Option<Ty>]) -> Result<Vec<Ty>, Failure> {
    let each = params.iter().enumerate().map(|(at, ty)| {
        ty.ok_or_else(|| {
            let message = format!("could not determine data type of parameter ${}", at + 1);
            Failure::new("42P18", message)
        })
    });
    each.collect()
}

/// Values that look the same are the same: -0 is not 0 here, and 1 is not 1.0.
fn alike(one: &Slot, two: &Slot) -> bool {
    match (one, two) {
        (Slot::Const(one), Slot::Const(two)) => {
            one == two && one.column_type() == two.column_type() && one.to_string() == two.to_string()
        }
        (one, two) => one == two,
    }
}

/// A name as PostgreSQL takes it: lower case, unless it is quoted.
pub fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// The parts of a qualified name.
pub fn parts(name: &ObjectName) -> Result<Vec<String>, Failure> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Ok(folded(ident)),
        ObjectNamePart::Function(_) => Err(Failure::new(code::SYNTAX, format!("syntax error at \"{name}\""))),
    };
    name.0.iter().map(part).collect()
}

/// The name in the catalog of what is to be made under this name: its schema must be there.
pub fn new_name(catalog: &Catalog, name: &ObjectName) -> Result<String, Failure> {
    let found = table_name(name)?;
    match parts(name)?.as_slice() {
        [schema, _] if schema != "public" && catalog.schema(schema).is_none() => Err(no_schema(schema)),
        // The catalog would show it in that schema.
        [own] if catalog.placed(own).0.is_some() => {
            Err(Failure::unsupported(format!("the name \"{own}\""), "it begins with the name of a schema"))
        }
        _ => Ok(found),
    }
}

/// An index's name, which may be qualified by its table's schema. No two in a database have one name.
pub fn index_name(catalog: &Catalog, name: &ObjectName) -> Result<String, Failure> {
    let found = table_name(name)?;
    match parts(name)?.as_slice() {
        [schema, _] if !catalog.has_schema(schema) => Err(no_schema(schema)),
        [_, own] => Ok(own.clone()),
        _ => Ok(found),
    }
}

/// A table's name in the catalog: what is not in `public` has its schema, and a point, before it.
pub fn table_name(name: &ObjectName) -> Result<String, Failure> {
    let parts = parts(name)?;
    match parts.as_slice() {
        [table] => Ok(table.clone()),
        [schema, table] if schema == "public" => Ok(table.clone()),
        [schema, _] if ["pg_catalog", "information_schema"].contains(&schema.as_str()) => Err(
            Failure::unsupported(format!("{name}"), "`understudy table list` shows tables and their columns"),
        ),
        [schema, table] => Ok(format!("{schema}.{table}")),
        _ => Err(Failure::unsupported(format!("the name {name}"), "name a table, or its schema and it")),
    }
}

/// A column that is to be written.
fn target_column(table: &TableRecord, name: &str) -> Result<usize, Failure> {
    let seen = |at: &usize| !table.schema.columns()[*at].rules.hidden;
    table.schema.column_index(name).filter(seen).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        Failure::new("42703", message)
    })
}

/// The error of a schema that there is not.
pub fn no_schema(name: &str) -> Failure {
    Failure::new("3F000", format!("schema \"{name}\" does not exist"))
}

/// The error of a table that there is not.
pub fn no_table(name: &str) -> Failure {
    Failure::new("42P01", format!("relation \"{name}\" does not exist"))
}

//! ALTER TABLE in a database: columns that come, go, and get other names and rules.
//!
//! Mostly no row is written for it. A definition names columns and their rules, and rows that were written
//! under an older one stay readable (PR-122): a column that is dropped stays where it is and is seen by
//! nobody, one that is added says what older rows have. Where rows must be looked at first (NOT NULL, a
//! narrower type), a CHECK is added for that time, as ALTER TABLE ... ADD CONSTRAINT adds it. Where rows must
//! become others (another type, another primary key), they are copied.
//!
//! | what | where |
//! | --- | --- |
//! | from the statement to steps | here |
//! | what steps make of a definition | [`apply`] |
//! | which rows must be looked at, and the entries | [`carry`] |
//! | which rows become others, and how | [`rewrite`] |
//! | what rows that are there must be, within a transaction | [`demands`] |
//! | COMMIT of such a transaction | [`holding`] |

pub mod apply;
pub mod carry;
pub mod demands;
pub mod holding;
pub mod rewrite;

use crate::alter;
use crate::bind::{folded, parts, table_name};
use crate::catalog::Catalog;
use crate::columns::{self, Numbered};
use crate::constraints::define::{self, Declared};
use crate::ddl;
use crate::numbering;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    AlterColumnOperation, AlterSchema, AlterSchemaOperation, AlterTable, AlterTableOperation, ColumnDef,
    DropBehavior, Expr, Ident, Owner, RenameTableNameKind, TableConstraint,
};
use types::data::{Column, Identity, Rules, Schema};
use types::{CatalogTable, TableRecord};

/// A change of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Altering {
    /// The table's name.
    pub table: String,
    /// A table that there is not is skipped.
    pub if_exists: bool,
    /// What is done, one after the other.
    pub steps: Vec<Step>,
}

/// One step of it.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// A new column.
    Add(Box<Added>),
    /// A column goes.
    Drop {
        /// Its name.
        name: String,
        /// One that there is not is skipped.
        if_exists: bool,
        /// With the foreign keys of other tables that need it.
        cascade: bool,
    },
    /// A column gets another name.
    Rename(String, String),
    /// The table does.
    RenameTable(String),
    /// A constraint does.
    RenameConstraint(String, String),
    /// A column is never null; or it may be.
    NotNull(String, bool),
    /// The sequence that goes with a column; `None`: none does any more.
    Own(String, Option<u32>),
    /// What a column has for rows that say nothing.
    Default(String, Option<Box<Expr>>),
    /// A column of another type.
    Type(String, Box<Retyped>),
    /// A primary key of these columns, for a table that has none.
    Key(Vec<String>),
    /// A column whose rows are numbered; `None`: they are no more. With whether one that is not is skipped.
    Number(String, Option<Identity>, bool),
}

/// Another type for a column.
#[derive(Clone, PartialEq, Debug)]
pub struct Retyped {
    /// The type.
    pub ty: Ty,
    /// What goes with it.
    pub rules: Rules,
    /// What rows have then that are there; `None`: what they have, as PostgreSQL casts it for an assignment.
    pub using: Option<Expr>,
}

/// A new column.
#[derive(Clone, PartialEq, Debug)]
pub struct Added {
    /// The column, as new rows have it.
    pub column: Column,
    /// Its constraints.
    pub declared: Vec<Declared>,
    /// It is the primary key.
    pub is_key: bool,
    /// One of this name may be there.
    pub if_not_exists: bool,
    /// How its rows are numbered, those that are there among them.
    pub numbered: Option<Numbered>,
    /// The sequence that comes with it, if one does.
    pub sequence: Option<CatalogTable>,
}

impl Altering {
    /// True if rows are numbered in a new column.
    pub fn numbers(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Add(added) if added.numbered.is_some()))
    }
}

/// The same with new columns that are numbered by sequences. Those that come with columns have ids from
/// `first` on, of which each step may need one.
pub fn numbered(
    catalog: &Catalog,
    table: &TableRecord,
    altering: &Altering,
    first: u32,
) -> Result<Altering, Failure> {
    let mut altering = altering.clone();
    let is_there =
        |added: &Added| added.if_not_exists && table.schema.column_index(&added.column.name).is_some();
    let new = altering.steps.iter_mut().filter_map(|step| match step {
        Step::Add(added) => Some(added.as_mut()),
        _ => None,
    });
    let new: Vec<&mut Added> = new.filter(|added| added.numbered.is_some() && !is_there(added)).collect();
    let mut columns: Vec<Column> = new.iter().map(|added| added.column.clone()).collect();
    columns.push(ddl::hidden_key());
    let how = new.iter().enumerate().filter_map(|(at, added)| Some((at, added.numbered.clone()?)));
    let how: Vec<(usize, Numbered)> = how.collect();
    let schema = Schema::new(columns, &[columns::HIDDEN], 1, false).map_err(define::invalid)?;
    let (schema, made) = numbering::columns(catalog, (&table.name, &schema), &how, first)?;
    for (added, column) in new.into_iter().zip(schema.columns()) {
        added.column = column.clone();
        let own = made.iter().find(|one| column.rules.sequence == Some(one.id.0));
        added.sequence = own.cloned();
    }
    Ok(altering)
}

/// When PostgreSQL does a step: what goes, then types, then new columns, and then the rest.
fn pass(step: &Step) -> u8 {
    match step {
        Step::Drop { .. } | Step::NotNull(_, false) | Step::Default(_, None) | Step::Number(_, None, _) => 0,
        Step::Type(..) => 1,
        Step::Add(_) => 2,
        _ => 3,
    }
}

/// Another name is given by a statement of its own.
fn renames_alone(alter: &AlterTable) -> Result<(), Failure> {
    let renames = |operation: &AlterTableOperation| {
        matches!(
            operation,
            AlterTableOperation::RenameColumn { .. }
                | AlterTableOperation::RenameTable { .. }
                | AlterTableOperation::RenameConstraint { .. }
        )
    };
    match alter.operations.len() > 1 && alter.operations.iter().any(renames) {
        true => Err(Failure::new(code::SYNTAX, "syntax error: RENAME stands alone in an ALTER TABLE")),
        false => Ok(()),
    }
}

/// The change that an ALTER TABLE is. Its steps are in the order in which PostgreSQL does them.
pub fn read(alter: &AlterTable) -> Result<Altering, Failure> {
    renames_alone(alter)?;
    let mut steps = Vec::new();
    for operation in &alter.operations {
        match operation {
            AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                steps.push(Step::Add(Box::new(added(column_def, *if_not_exists)?)));
            }
            AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                let cascade = *drop_behavior == Some(DropBehavior::Cascade);
                let drop = |name: &Ident| Step::Drop { name: folded(name), if_exists: *if_exists, cascade };
                steps.extend(column_names.iter().map(drop));
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                steps.push(Step::Rename(folded(old_column_name), folded(new_column_name)));
            }
            AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(name) } => {
                // It stays in its schema.
                let renamed = match (parts(&alter.name)?.as_slice(), parts(name)?.as_slice()) {
                    ([schema, _], [own]) if schema != "public" => format!("{schema}.{own}"),
                    _ => table_name(name)?,
                };
                steps.push(Step::RenameTable(renamed));
            }
            AlterTableOperation::RenameConstraint { old_name, new_name } => {
                steps.push(Step::RenameConstraint(folded(old_name), folded(new_name)));
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                steps.push(of_column(folded(column_name), op)?);
            }
            AlterTableOperation::AddConstraint { constraint: TableConstraint::PrimaryKey(key), .. } => {
                steps.push(Step::Key(alter::key_columns(&key.columns)?));
            }
            AlterTableOperation::OwnerTo { new_owner } => owner(new_owner)?,
            other => {
                let hint =
                    "columns come, go, and get other names, types and defaults: docs/databases-reference.md";
                return Err(Failure::unsupported(format!("ALTER TABLE ... {other}"), hint));
            }
        }
    }
    steps.sort_by_key(pass);
    Ok(Altering { table: table_name(&alter.name)?, if_exists: alter.if_exists, steps })
}

/// True for an ALTER TABLE that gives a sequence or a view to the one role, as `pg_dump` writes it: nothing
/// is to be done.
pub fn is_ownership(catalog: &Catalog, alter: &AlterTable) -> Result<bool, Failure> {
    if catalog.other(&table_name(&alter.name)?).is_none_or(|other| other.schema.procedure().is_some()) {
        return Ok(false);
    }
    for operation in &alter.operations {
        match operation {
            AlterTableOperation::OwnerTo { new_owner } => owner(new_owner)?,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// True for an ALTER SCHEMA that gives a schema to the one role: nothing is to be done.
pub fn is_schemas_ownership(catalog: &Catalog, alter: &AlterSchema) -> Result<bool, Failure> {
    let schema = crate::bind::parts(&alter.name)?.concat();
    if schema != "public" && catalog.schema(&schema).is_none() {
        return Err(crate::bind::no_schema(&schema));
    }
    for operation in &alter.operations {
        match operation {
            AlterSchemaOperation::OwnerTo { owner: new_owner } => owner(new_owner)?,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// There is one role.
pub fn owner(owner: &Owner) -> Result<(), Failure> {
    match owner {
        Owner::Ident(name) if folded(name) != crate::USER => {
            Err(Failure::new("42704", format!("role \"{}\" does not exist", folded(name))))
        }
        _ => Ok(()),
    }
}

fn added(definition: &ColumnDef, if_not_exists: bool) -> Result<Added, Failure> {
    let mut key = Vec::new();
    let column = columns::read(definition, &mut key)?;
    let (declared, numbered) = (define::of_column(definition)?, columns::numbered(definition)?);
    Ok(Added { column, declared, is_key: !key.is_empty(), if_not_exists, numbered, sequence: None })
}

fn of_column(name: String, operation: &AlterColumnOperation) -> Result<Step, Failure> {
    Ok(match operation {
        AlterColumnOperation::SetNotNull => Step::NotNull(name, true),
        AlterColumnOperation::DropNotNull => Step::NotNull(name, false),
        AlterColumnOperation::SetDefault { value } => Step::Default(name, Some(Box::new(value.clone()))),
        AlterColumnOperation::DropDefault => Step::Default(name, None),
        AlterColumnOperation::SetDataType { data_type, using, .. } => {
            let (ty, rules) = columns::bounded(data_type)?;
            Step::Type(name, Box::new(Retyped { ty, rules, using: using.clone() }))
        }
        AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
            // Those that are written otherwise are read by [`crate::numbering`].
            columns::check_counting(sequence_options.as_deref().unwrap_or_default())?;
            Step::Number(name, Some(columns::identity(generated_as.as_ref())), false)
        }
    })
}

/// True if a column's values are what `using` says, of the type that it gets: the column, or its cast to that
/// type. A cast that shortens or rounds is none.
fn is_plain(using: &Expr, name: &str, (ty, rules): (Ty, &Rules)) -> bool {
    match using {
        Expr::Identifier(column) => folded(column) == name,
        Expr::Nested(inner) => is_plain(inner, name, (ty, rules)),
        Expr::Cast { expr, data_type, .. } => {
            let whole = rules.max_chars.is_none() && rules.digits.is_none();
            let column = matches!(expr.as_ref(), Expr::Identifier(column) if folded(column) == name);
            let same = |(to, by): &(Ty, Rules)| *to == ty && by == rules;
            whole && column && columns::bounded(data_type).is_ok_and(|to| same(&to))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use sqlparser::ast::Statement;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use types::data::{ColumnType, Fallback};

    #[test]
    fn new_columns_are_numbered_by_sequences_of_their_own() {
        let table = Arc::new(example(vec![Column::new("id", ColumnType::Int).not_null()]));
        let catalog = Catalog::from_map(1, BTreeMap::from([("t".to_string(), table.clone())]));
        let text = "ALTER TABLE t ADD COLUMN a serial, ADD COLUMN n int, \
            ADD COLUMN b bigint GENERATED ALWAYS AS IDENTITY, ADD COLUMN IF NOT EXISTS id bigserial";
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text).expect("syntax");
        let [Statement::AlterTable(alter)] = parsed.as_slice() else { panic!("{parsed:?}") };
        let read = read(alter).expect("good");
        assert!(read.numbers());
        let altering = numbered(&catalog, &table, &read, 7).expect("good");
        let applied = apply::apply(&catalog, &table, &altering, (20, 0)).expect("good");
        let made: Vec<(u32, &str)> =
            applied.sequences.made.iter().map(|one| (one.id.0, one.name.as_str())).collect();
        assert_eq!(made, [(7, "t_a_seq"), (8, "t_b_seq")]);
        let of = |step: &Step| match step {
            Step::Add(added) => (added.column.rules.default.clone(), added.column.rules.sequence),
            other => panic!("{other:?}"),
        };
        let columns: Vec<_> = altering.steps.iter().map(of).collect();
        assert_eq!(columns[..3], [(Some(Fallback::Next(7)), Some(7)), (None, None), (None, Some(8))]);
        assert_eq!(columns[3], (None, None), "what is there is numbered by nothing else");
    }

    #[test]
    fn a_table_gets_a_key_with_new_columns() {
        let columns = vec![ddl::hidden_key(), Column::new("v", ColumnType::Text)];
        let hidden = Schema::new(columns, &[columns::HIDDEN], 1, false).expect("valid");
        let id = Column::new("id", ColumnType::Int).not_null();
        let table = Arc::new(TableRecord { schema: hidden, ..example(vec![id.clone()]) });
        let catalog = Catalog::from_map(1, BTreeMap::from([("t".to_string(), table.clone())]));
        let applied = |table: &Arc<TableRecord>, text: &str| -> Result<String, &'static str> {
            let text = format!("ALTER TABLE t {text}");
            let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &text).expect("syntax");
            let [Statement::AlterTable(alter)] = parsed.as_slice() else { panic!("{parsed:?}") };
            let altering = numbered(&catalog, table, &read(alter).expect("good"), 7).expect("good");
            let applied = apply::apply(&catalog, table, &altering, (20, 0)).map_err(|why| why.code)?;
            let rewrite = rewrite::Rewrite::of(&catalog, table, &applied).map_err(|why| why.code)?;
            let schema = rewrite.of_no_rows(&catalog, table).map_err(|why| why.code)?;
            let names = |at: &usize| schema.columns()[*at].name.clone();
            let key: Vec<String> = schema.key().iter().map(names).collect();
            let all: Vec<String> = (0..schema.columns().len()).map(|at| names(&at)).collect();
            assert_eq!(applied.rekeys(&table.schema), key != [columns::HIDDEN], "{text}");
            Ok(format!("{} by {}", all.join(" "), key.join(" ")))
        };
        for (text, expected) in [
            ("ADD COLUMN n serial", "ctid v n by ctid"),
            ("ADD COLUMN n serial PRIMARY KEY", "v n by n"),
            ("ADD COLUMN n int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ADD m int", "v n m by n"),
            ("ADD COLUMN n uuid DEFAULT gen_random_uuid(), ADD PRIMARY KEY (n, v)", "v n by n v"),
            ("ADD COLUMN n int PRIMARY KEY", "v n by n"),
        ] {
            assert_eq!(applied(&table, text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(applied(&table, "ADD n int PRIMARY KEY, ADD m int PRIMARY KEY"), Err("42P16"));
        assert_eq!(applied(&table, "ADD n int, ADD PRIMARY KEY (m)"), Err("42703"));
        assert_eq!(applied(&Arc::new(example(vec![id])), "ADD COLUMN n serial PRIMARY KEY"), Err("42P16"));
    }
}

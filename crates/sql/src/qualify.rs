//! Names without a schema are given the one in which `search_path` finds them, before a statement is planned.
//! Where the path is `public` alone, nothing is to be done: that is what a name without a schema means.

use crate::bind::{folded, no_table, parts};
use crate::catalog::Catalog;
use crate::copy::CopyStatement;
use crate::copy::syntax::Whose;
use crate::cursors::CursorStatement;
use crate::numbering::{Counting, SequenceStatement};
use crate::parse::Said;
use crate::system;
use crate::views::ViewStatement;
use pg::Failure;
use sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, CreateTable, FromTable, Ident, ObjectName,
    ObjectNamePart, ObjectType, Query, Statement, TableConstraint, TableFactor, TableObject, VisitMut,
    VisitorMut, With,
};
use std::ops::ControlFlow;

/// The statement, with names as the catalog's path finds them.
pub(crate) fn qualified(catalog: &Catalog, said: &Said) -> Result<Said, Failure> {
    let mut said = said.clone();
    let mut names = Names { catalog, parts: Vec::new(), withs: Vec::new() };
    match &mut said {
        Said::Sql(statement) => names.sql(statement)?,
        Said::Copy(CopyStatement { whose: Whose::Table(name, _), .. }) => names.there(name)?,
        Said::Copy(CopyStatement { whose: Whose::Query(query), .. }) => names.visit(query.as_mut())?,
        Said::Upkeep(upkeep) => upkeep.tables_mut().try_for_each(|name| names.there(name))?,
        Said::Sequence(statement) => names.sequence(statement)?,
        Said::View(ViewStatement::Create { name, query, .. }) => {
            names.made(name)?;
            names.visit(query.as_mut())?;
        }
        Said::View(ViewStatement::Drop { names: all, .. }) => {
            all.iter_mut().try_for_each(|name| names.there(name))?;
        }
        Said::Cursor(CursorStatement::Declare { query, .. }) => names.visit(query.as_mut())?,
        Said::AddIdentity(altering, counting) => {
            altering.table = names.found(&altering.table)?.unwrap_or_else(|| altering.table.clone());
            names.owner(counting)?;
        }
        Said::TableAs(made) => {
            names.made(&mut made.name)?;
            names.visit(made.query.as_mut())?;
        }
        Said::TableLike(made) => {
            names.create(&mut made.create)?;
            names.visit(&mut made.create)?;
            made.likes.iter_mut().try_for_each(|like| names.there(&mut like.name))?;
        }
        // What is prepared is planned when it is executed; databases and procedures lie in no schema, and
        // constraints are called the same in any.
        Said::Cursor(_) | Said::Database(_) | Said::Procedure(_) | Said::SetConstraints(_) => {}
    }
    Ok(said)
}

/// Names of a statement that are looked for.
struct Names<'a> {
    catalog: &'a Catalog,
    /// Names of the queries in WITH that can be seen, from the outermost query on.
    parts: Vec<Vec<String>>,
    /// What stands in WITH, while the query behind it is looked through.
    withs: Vec<Option<With>>,
}

impl Names<'_> {
    fn visit(&mut self, what: &mut impl VisitMut) -> Result<(), Failure> {
        match what.visit(self) {
            ControlFlow::Break(failure) => Err(failure),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    fn sql(&mut self, statement: &mut Statement) -> Result<(), Failure> {
        match statement {
            Statement::CreateTable(create) => self.create(create)?,
            Statement::AlterTable(alter) => self.alter(alter)?,
            Statement::Drop {
                object_type: ObjectType::Table | ObjectType::View | ObjectType::Sequence,
                names,
                ..
            } => {
                names.iter_mut().try_for_each(|name| self.there(name))?;
            }
            _ => {}
        }
        self.visit(statement)
    }

    /// True if this is what a query in WITH is called.
    fn is_part(&self, name: &ObjectName) -> bool {
        let [ObjectNamePart::Identifier(own)] = name.0.as_slice() else { return false };
        let own = folded(own);
        self.parts.iter().flatten().any(|part| *part == own)
    }

    fn create(&mut self, create: &mut CreateTable) -> Result<(), Failure> {
        let own = create.name.clone();
        self.made(&mut create.name)?;
        let made = create.name.clone();
        // It may refer to itself.
        let refer = |names: &Self, to: &mut ObjectName| match *to == own {
            true => {
                *to = made.clone();
                Ok(())
            }
            false => names.there(to),
        };
        create.constraints.iter_mut().filter_map(referred).try_for_each(|to| refer(self, to))?;
        let columns = create.columns.iter_mut().flat_map(referred_by_column);
        columns.into_iter().try_for_each(|to| refer(self, to))
    }

    fn alter(&mut self, alter: &mut AlterTable) -> Result<(), Failure> {
        for operation in &mut alter.operations {
            match operation {
                AlterTableOperation::AddConstraint { constraint, .. } => {
                    referred(constraint).map_or(Ok(()), |to| self.there(to))?;
                }
                AlterTableOperation::AddColumn { column_def, .. } => {
                    referred_by_column(column_def).try_for_each(|to| self.there(to))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn sequence(&mut self, statement: &mut SequenceStatement) -> Result<(), Failure> {
        match statement {
            SequenceStatement::Create { name, options, .. } => {
                self.made(name)?;
                self.owner(options)
            }
            SequenceStatement::Alter { name, options, .. } => {
                self.there(name)?;
                self.owner(options)
            }
            SequenceStatement::Drop { names, .. } => names.iter_mut().try_for_each(|name| self.there(name)),
        }
    }

    /// The table that a sequence goes with.
    fn owner(&self, options: &mut Counting) -> Result<(), Failure> {
        if let Some(Some((table, _))) = &mut options.owner
            && let Some(found) = self.found(table)?
        {
            *table = found;
        }
        Ok(())
    }

    /// What is made is made in the first schema of the path that is there.
    fn made(&self, name: &mut ObjectName) -> Result<(), Failure> {
        if parts(name)?.len() != 1 {
            return Ok(());
        }
        match self.catalog.current_schema() {
            None => Err(Failure::new("3F000", "no schema has been selected to create in")),
            Some(schema) => {
                place(name, schema);
                Ok(())
            }
        }
    }

    /// What is there is looked for.
    fn there(&self, name: &mut ObjectName) -> Result<(), Failure> {
        let parts = parts(name)?;
        let [own] = parts.as_slice() else { return Ok(()) };
        if let Some(schema) = self.schema_of(own)?.filter(|schema| *schema != "public") {
            place(name, schema);
        }
        Ok(())
    }

    /// The name in the catalog of what is called so, if that is not in `public`.
    fn found(&self, own: &str) -> Result<Option<String>, Failure> {
        let schema = self.schema_of(own)?;
        Ok(schema.and_then(|schema| self.catalog.named_in(schema, own)))
    }

    /// The schema of the path in which there is something of this name; an error if there is in `public`
    /// alone, and that is not in the path.
    fn schema_of(&self, own: &str) -> Result<Option<&str>, Failure> {
        let found = self.catalog.path.schemas().find(|schema| self.catalog.named_in(schema, own).is_some());
        let hidden = || self.catalog.named_in("public", own).is_some();
        match found {
            None if hidden() && system::find(&[own.to_string()]).is_none() => Err(no_table(own)),
            found => Ok(found),
        }
    }
}

/// The table that a statement writes.
fn target(statement: &mut Statement) -> Option<&mut ObjectName> {
    let relation = match statement {
        Statement::Insert(insert) => {
            return match &mut insert.table {
                TableObject::TableName(name) => Some(name),
                _ => None,
            };
        }
        Statement::Update(update) => &mut update.table.relation,
        Statement::Merge(merge) => &mut merge.table,
        Statement::Delete(delete) => match &mut delete.from {
            FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => {
                &mut from.first_mut()?.relation
            }
        },
        _ => return None,
    };
    match relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

/// Puts a schema in front of a name.
fn place(name: &mut ObjectName, schema: &str) {
    name.0.insert(0, ObjectNamePart::Identifier(Ident::with_quote('"', schema)));
}

/// The table that a constraint refers to.
fn referred(constraint: &mut TableConstraint) -> Option<&mut ObjectName> {
    match constraint {
        TableConstraint::ForeignKey(key) => Some(&mut key.foreign_table),
        _ => None,
    }
}

/// The tables that constraints of a column refer to.
fn referred_by_column(column: &mut ColumnDef) -> impl Iterator<Item = &mut ObjectName> {
    column.options.iter_mut().filter_map(|option| match &mut option.option {
        ColumnOption::ForeignKey(key) => Some(&mut key.foreign_table),
        _ => None,
    })
}

impl VisitorMut for Names<'_> {
    type Break = Failure;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Failure> {
        // A query in WITH sees those before it, and all of them if they are recursive.
        let mut with = query.with.take();
        let all = with.iter().filter(|with| with.recursive).flat_map(|with| &with.cte_tables);
        let seen = all.map(|one| folded(&one.alias.name)).collect();
        self.parts.push(seen);
        let level = self.parts.len() - 1;
        for one in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            one.query.visit(self)?;
            self.parts[level].push(folded(&one.alias.name));
        }
        self.withs.push(with);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Failure> {
        query.with = self.withs.pop().flatten();
        self.parts.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Failure> {
        // What is written is a table, whatever parts of WITH are called.
        match target(statement).filter(|name| self.is_part(name)).map(|name| self.there(name)) {
            None | Some(Ok(())) => ControlFlow::Continue(()),
            Some(Err(failure)) => ControlFlow::Break(failure),
        }
    }

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<Failure> {
        if self.is_part(name) {
            return ControlFlow::Continue(());
        }
        match self.there(name) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => ControlFlow::Break(failure),
        }
    }
}

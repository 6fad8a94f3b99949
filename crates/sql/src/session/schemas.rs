//! Schemas: made and dropped, at once or with the transaction.

use super::SqlSession;
use crate::bind::no_schema;
use crate::constraints::violation;
use crate::database;
use crate::numbering::kinded;
use crate::schemas::SchemaStatement;
use pg::{Failure, Outcome};
use std::collections::BTreeSet;
use types::TableId;
use types::data::kind::Kind;

impl SqlSession {
    /// Makes or drops schemas.
    pub(super) async fn define_schema(&mut self, statement: &SchemaStatement) -> Result<Outcome, Failure> {
        match statement {
            SchemaStatement::Create { name, if_not_exists } => {
                self.create_schema(name, *if_not_exists).await?;
            }
            SchemaStatement::Drop { names, if_exists, cascade } => {
                for name in names {
                    let catalog = self.tables().await?;
                    match catalog.schema(name).map(|schema| schema.id) {
                        Some(schema) => self.drop_schema(name, schema, *cascade).await?,
                        None if *if_exists => {
                            self.note(format!("schema \"{name}\" does not exist, skipping"));
                        }
                        None => return Err(no_schema(name)),
                    }
                }
            }
        }
        Ok(Outcome::Done(statement.tag().into()))
    }

    async fn create_schema(&mut self, name: &str, if_not_exists: bool) -> Result<(), Failure> {
        let catalog = self.tables().await?;
        let taken = || format!("schema \"{name}\" already exists");
        if catalog.has_schema(name) {
            if !if_not_exists {
                return Err(Failure::new("42P06", taken()));
            }
            self.note(format!("{}, skipping", taken()));
            return Ok(());
        }
        // Tables of `public` may have a point in their names.
        if let Some(other) = catalog.in_schema(name).next() {
            let hint = format!("rename \"{}\" first: it would be in that schema", other.name);
            return Err(Failure::unsupported(format!("the schema \"{name}\""), hint));
        }
        let id = TableId(database::numbers(&self.evaluator.handle, 1).await?);
        let made = kinded(id, &format!("{name}."), Vec::new(), Kind::Schema);
        if let Some(fault) = made.fault() {
            return Err(Failure::new("42622", fault));
        }
        self.add_definition(made).await
    }

    /// What is in it goes one after the other; the schema is the last, so that a second try finds the rest.
    async fn drop_schema(&mut self, name: &str, schema: TableId, cascade: bool) -> Result<(), Failure> {
        let catalog = self.tables().await?;
        let inside: Vec<_> = catalog.in_schema(name).cloned().collect();
        if let Some(first) = inside.first().filter(|_| !cascade) {
            let message = format!("cannot drop schema {name} because other objects depend on it");
            let what = first.schema.kind().map_or("table", Kind::name);
            let detail = format!("{what} {} depends on schema {name}", first.name);
            return Err(violation::depended_on(message, detail));
        }
        if !inside.is_empty() && self.open.is_some() {
            let hint = "drop what is in it first, or send this by itself";
            return Err(Failure::unsupported("DROP SCHEMA CASCADE in a transaction", hint));
        }
        let views = inside.iter().filter(|one| matches!(one.schema.kind(), Some(Kind::View(_))));
        let views: BTreeSet<TableId> = views.map(|view| view.id).collect();
        if !views.is_empty() {
            self.remove_definitions(&views).await?;
        }
        let tables: Vec<String> =
            inside.iter().filter(|one| one.schema.kind().is_none()).map(|one| one.name.clone()).collect();
        if !tables.is_empty() {
            let handle = self.evaluator.handle.clone();
            for note in database::drop_tables(&handle, tables, (true, true)).await? {
                self.note(note);
            }
        }
        let catalog = self.tables().await?;
        let rest = catalog.in_schema(name).filter(|one| one.schema.kind().is_some());
        let mut rest: BTreeSet<TableId> = rest.map(|one| one.id).collect();
        rest.insert(schema);
        self.remove_definitions(&rest).await
    }
}

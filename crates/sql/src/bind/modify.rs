//! UPDATE, DELETE and RETURNING: which rows, what becomes of them, and what the client is told of them.

use super::write::{is_default, writable};
use super::{Binder, Bound, Condition, KEY, Output, Quick, STORED, Scope, Slot, Typed, Visible, What};
use super::{all_decided, parts, table_name, target_column, whole_key};
use crate::columns::default_slot;
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, SelectItem, TableFactor, TableWithJoins, Update,
    UpdateTableFromKind,
};
use std::sync::Arc;
use types::TableRecord;
use types::data::Value;

/// An UPDATE or a DELETE.
pub struct Change {
    /// Of this table.
    pub table: Arc<TableRecord>,
    /// It removes the rows.
    pub removes: bool,
    /// The rows: their keys, themselves as they are stored, and the new values of the columns that are set.
    pub read: Arc<Bound>,
    /// The row's key, if the conditions name it whole and nothing else.
    pub point: Option<Vec<Slot>>,
    /// The columns that are set, in the order of their values.
    pub set: Vec<usize>,
    /// The new values, if no engine is needed for them.
    pub quick: Option<Vec<Quick>>,
    /// What the client is told of each row.
    pub returning: Option<Returning>,
}

/// What RETURNING gives of each row that was written.
pub struct Returning {
    /// In the engine's language, over the rows as they are now (of a DELETE: as they were).
    pub bound: Arc<Bound>,
    /// The same without the engine.
    pub quick: Option<Vec<Quick>>,
}

/// Columns that are set, in the order in which they are written, and their values.
pub(super) type Settings = (Vec<usize>, Vec<Typed>);

const AS_SELECT: &str = "choose the rows by a subquery: WHERE key IN (SELECT ...)";

impl Binder<'_> {
    /// An UPDATE, and the types of its parameters.
    pub fn update(self, update: &Update) -> Result<(Change, Vec<Ty>), Failure> {
        let (change, params) = self.update_part(update)?;
        Ok((change, all_decided(&params)?))
    }

    /// The same of a part of a statement: the types of parameters as far as it decides them.
    pub(super) fn update_part(mut self, update: &Update) -> Result<(Change, Vec<Option<Ty>>), Failure> {
        let found = [
            (matches!(update.from, Some(UpdateTableFromKind::BeforeSet(_))), "this form of UPDATE"),
            (update.or.is_some() || update.limit.is_some(), "this form of UPDATE"),
            (!update.order_by.is_empty() || update.output.is_some(), "this form of UPDATE"),
        ];
        if let Some((_, what)) = found.iter().find(|(there, _)| *there) {
            return Err(Failure::unsupported(*what, AS_SELECT));
        }
        let table = self.target(&update.table)?;
        self.see_around()?;
        let others = match &update.from {
            Some(UpdateTableFromKind::AfterSet(others)) => self.beside(others)?,
            _ => String::new(),
        };
        let (set, values) = self.settings(&table, &update.assignments, "UPDATE")?;
        let (tail, point) = self.narrowed(update.selection.as_ref())?;
        let tail = once(&others, tail);
        self.changed(table, false, (set, values), tail, point, &update.table, update.returning.as_deref())
    }

    /// A DELETE, and the types of its parameters.
    pub fn delete(self, delete: &Delete) -> Result<(Change, Vec<Ty>), Failure> {
        let (change, params) = self.delete_part(delete)?;
        Ok((change, all_decided(&params)?))
    }

    /// The same of a part of a statement: the types of parameters as far as it decides them.
    pub(super) fn delete_part(mut self, delete: &Delete) -> Result<(Change, Vec<Option<Ty>>), Failure> {
        let found = [
            (!delete.order_by.is_empty() || delete.limit.is_some(), "this form of DELETE"),
            (!delete.tables.is_empty() || delete.output.is_some(), "this form of DELETE"),
        ];
        if let Some((_, what)) = found.iter().find(|(there, _)| *there) {
            return Err(Failure::unsupported(*what, AS_SELECT));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = from.as_slice() else {
            return Err(Failure::unsupported("DELETE from several tables", AS_SELECT));
        };
        let table = self.target(from)?;
        self.see_around()?;
        let others = match &delete.using {
            Some(others) => self.beside(others)?,
            None => String::new(),
        };
        let (tail, point) = self.narrowed(delete.selection.as_ref())?;
        let tail = once(&others, tail);
        self.changed(table, true, Settings::default(), tail, point, from, delete.returning.as_deref())
    }

    /// The table that is written. It is the only relation of a new scope, and the first source.
    pub(super) fn target(&mut self, written: &TableWithJoins) -> Result<Arc<TableRecord>, Failure> {
        let TableFactor::Table { name, .. } = &written.relation else {
            return Err(Failure::unsupported("a change of something else than a table", "name a table"));
        };
        if !written.joins.is_empty() {
            return Err(Failure::unsupported("a change of a join", AS_SELECT));
        }
        let table = writable(self.catalog, &table_name(name)?)?;
        self.scopes.push(Scope::default());
        self.from(std::slice::from_ref(written))?;
        Ok(table)
    }

    /// Tables that are read beside the one that is written.
    fn beside(&mut self, others: &[TableWithJoins]) -> Result<String, Failure> {
        let others = self.from(others)?;
        self.scope().no_aggregates = None;
        Ok(format!(" JOIN {others}"))
    }

    /// The engine's text of the conditions, and the key if they name it whole and nothing else.
    fn narrowed(&mut self, selection: Option<&Expr>) -> Result<(String, Option<Vec<Slot>>), Failure> {
        let Some(selection) = selection else { return Ok((String::new(), None)) };
        self.scope().no_aggregates = Some("WHERE");
        let condition = self.condition(selection, "WHERE")?;
        self.push_down(&condition);
        let conditions: Vec<&Condition> =
            condition.conditions.iter().map(|(_, condition)| condition).collect();
        let single = condition.exact && self.sources.len() == 1 && self.relations == 1;
        let point = single.then(|| whole_key(&self.sources[0], &conditions)).flatten();
        Ok((format!(" WHERE {}", self.text(&condition)), point))
    }

    /// The columns that are set and their values, as they are stored.
    pub(super) fn settings(
        &mut self,
        table: &TableRecord,
        assignments: &[Assignment],
        place: &'static str,
    ) -> Result<Settings, Failure> {
        self.scope().no_aggregates = Some(place);
        let (mut set, mut values) = Settings::default();
        for assignment in assignments {
            for (name, expr) in pairs(assignment)? {
                let at = target_column(table, &name)?;
                if set.contains(&at) {
                    let message = format!("multiple assignments to same column \"{name}\"");
                    return Err(Failure::new(code::SYNTAX, message));
                }
                if table.schema.key().contains(&at) {
                    return Err(Failure::unsupported(
                        format!("an UPDATE of the key's column \"{name}\""),
                        "delete the row and insert it under its new key",
                    ));
                }
                let column = &table.schema.columns()[at];
                let ty = Ty::of_column(column);
                let typed = match is_default(expr) {
                    true => match default_slot(column)? {
                        Some(Slot::Const(Value::Null)) => Typed::slot(Slot::Const(Value::Null), None),
                        // Another one for each row.
                        Some(Slot::Random) => Typed::engine("uuid_(random())".into(), ty),
                        Some(slot) => Typed::slot(slot, Some(ty)),
                        None => {
                            let what = format!("DEFAULT of column \"{name}\" in {place}");
                            return Err(Failure::unsupported(what, "new rows alone are numbered"));
                        }
                    },
                    false => self.expr(expr)?,
                };
                values.push(self.assigned(typed, ty, &name)?);
                set.push(at);
            }
        }
        Ok((set, values))
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one statement, from one place")]
    fn changed(
        mut self,
        table: Arc<TableRecord>,
        removes: bool,
        (set, values): Settings,
        tail: String,
        point: Option<Vec<Slot>>,
        written: &TableWithJoins,
        returning: Option<&[SelectItem]>,
    ) -> Result<(Change, Vec<Option<Ty>>), Failure> {
        let quick = values.iter().map(Typed::quick).collect();
        let mut items = vec![("key", self.hidden(KEY)?), ("row", self.hidden(STORED)?)];
        items.extend(values.into_iter().map(|typed| ("new", typed)));
        let (items, columns) = self.list(items);
        let text = format!("SELECT {items} FROM {}{tail}", self.first_table());
        let catalog = self.catalog;
        let (read, params) = self.part(text, columns);
        let told = Binder::new(catalog, &params);
        let (returning, params) = told
            .returning(returning, |binder| binder.target(written).map(drop))
            .map_err(|failure| match read.sources.len() > 1 && matches!(failure.code, "42P01" | "42703") {
                true => Failure::unsupported("RETURNING of a table that is not written", "ask for it apart"),
                false => failure,
            })?;
        let read = Arc::new(read);
        Ok((Change { table, removes, read, point, set, quick, returning }, params))
    }

    /// RETURNING, and the types of the statement's parameters as far as they are decided. `target` makes the
    /// table visible that is written.
    pub(super) fn returning(
        mut self,
        items: Option<&[SelectItem]>,
        target: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(Option<Returning>, Vec<Option<Ty>>), Failure> {
        let Some(items) = items else { return Ok((None, self.params)) };
        target(&mut self)?;
        self.scope().no_aggregates = Some("RETURNING");
        let mut items = self.items(items)?;
        if self.relations > 1 {
            return Err(Failure::unsupported("a subquery in RETURNING", "ask by a statement of its own"));
        }
        for (_, typed) in &mut items {
            *typed = self.decided(typed.clone())?;
        }
        let params = self.params.clone();
        let quick = items.iter().map(|(_, typed)| typed.quick()).collect();
        let (texts, columns) =
            self.list(items.iter().map(|(name, typed)| (name.as_str(), typed.clone())).collect());
        let text = format!("SELECT {texts} FROM {}", self.first_table());
        let (bound, _) = self.part(text, columns);
        Ok((Some(Returning { bound: Arc::new(bound), quick }), params))
    }

    /// Something of the first relation's rows that is no column.
    pub(super) fn hidden(&mut self, what: usize) -> Result<Typed, Failure> {
        let column = Visible { name: String::new(), ty: Ty::Bytea, what: What::Column(what) };
        self.visible(self.scopes.len() - 1, Some(0), &column)
    }

    /// The engine's list of these, and what the client sees of it.
    pub(super) fn list(&mut self, items: Vec<(&str, Typed)>) -> (String, Output) {
        let mut texts = Vec::new();
        let mut columns = Output::new();
        self.widths = self.widths_of(&items);
        for (at, (name, typed)) in items.into_iter().enumerate() {
            texts.push(format!("{} AS o{at}", self.text(&typed)));
            columns.push((name.to_string(), typed.ty.expect("decided")));
        }
        (texts.join(", "), columns)
    }

    /// The engine's text of the first relation.
    pub(super) fn first_table(&mut self) -> String {
        let alias = self.scope().relations[0].alias.clone();
        format!("{} AS {alias}", super::from::mark(0))
    }
}

/// What stands behind the table that is written. A row that meets several of other tables is written once, by
/// one of them.
fn once(others: &str, tail: String) -> String {
    if others.is_empty() { tail } else { format!("{others}{tail} GROUP BY 1") }
}

/// Each column that an assignment names, with its value.
fn pairs(assignment: &Assignment) -> Result<Vec<(String, &Expr)>, Failure> {
    let name = |name| Ok(parts(name)?.join("."));
    match (&assignment.target, &assignment.value) {
        (AssignmentTarget::ColumnName(column), value) => Ok(vec![(name(column)?, value)]),
        (AssignmentTarget::Tuple(columns), Expr::Tuple(values)) => {
            if columns.len() != values.len() {
                let message = "number of columns does not match number of values";
                return Err(Failure::new(code::SYNTAX, message));
            }
            columns.iter().zip(values).map(|(column, value)| Ok((name(column)?, value))).collect()
        }
        (AssignmentTarget::Tuple(_), _) => Err(Failure::unsupported(
            format!("{assignment} in SET"),
            "set each column by itself, or write (column, ...) = (value, ...)",
        )),
    }
}

//! COMMIT of a transaction that writes more rows than one write may have.
//!
//! The tables with most of its rows are held, all in one entry, and filled under other ids with their rows
//! as the transaction leaves them ([`super::merge`]), each behind those that it refers to. One last entry
//! gives these the names, and writes the rows of the other tables. So the transaction is seen as a whole, or
//! not at all. Whatever fails before that entry leaves the tables as they were.

use super::choice::{self, Extent, ForeignKey};
use super::like;
use super::merge::{Guard, Merge};
use crate::altering::rewrite;
use crate::catalog::Catalog;
use crate::constraints::children;
use crate::database;
use crate::ddl;
use crate::driver::Handle;
use crate::evaluate::Evaluator;
use crate::fault;
use crate::refill::{self, Beside, Broken, Filling, Target};
use crate::txn::buffer::{Written, aside};
use crate::txn::commit::forbidden;
use crate::txn::{Acknowledged, Buffer, Limit, Open};
use client::{Client, ClientError, Table};
use pg::{Failure, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{Position, TableId};
use wire::TablePart;
use wire::message::MAX_CHANGES;

/// Commits it. `all`: one entry has no room for what its rows change in indexes, so all tables are filled.
pub async fn carry_out(evaluator: &Evaluator, mut open: Open, all: bool) -> Result<(), Failure> {
    open.busy()?;
    if !open.definitions().is_empty() {
        let hint = "it has also made, dropped or emptied tables: do that in a transaction of its own";
        return Err(Limit::WRITE.passed().hint(hint));
    }
    let done = commit(evaluator, &mut open, all).await;
    // What it has met may be so only because somebody else has changed a row that it has seen.
    if done.as_ref().is_err_and(|failure| failure.code.starts_with("23")) {
        let handle = &evaluator.handle;
        if let Ok(catalog) = handle.look().await {
            open.look_at(&catalog);
        }
        if matches!(open.is_overtaken_anywhere(handle).await, Ok(true)) {
            return Err(fault::conflict());
        }
    }
    done
}

async fn commit(evaluator: &Evaluator, open: &mut Open, all: bool) -> Result<(), Failure> {
    let handle = &evaluator.handle;
    let survey = Survey::of(open.buffer()).await?;
    if !all && Extent::fit_a_write(survey.written.values()) {
        // What was spilled is not written any more, but for this.
        open.bring_back().await?;
        return open.commit(handle, None).await;
    }
    let (catalog, chosen) = survey.choose(evaluator, (open, all)).await.map_err(before)?;
    let fill = FillPlan::prepare(evaluator, open, (&catalog, &chosen)).await.map_err(before)?;
    let since = survey.seen.newest(handle).await.map_err(before)?;
    let rest = open.buffer().tables().into_iter().filter(|table| !chosen.contains(table));
    let rest: Vec<TableId> = rest.collect();
    let read = move |buffer: &Buffer| rest.into_iter().map(|table| buffer.written(table)).collect();
    let rest: Vec<Written> = aside(open.buffer(), read).await?;
    let (inserted, refused) = (open.inserted(&rest), open.refused(&rest));
    let parts = rest.into_iter().filter(|written| !written.ops.is_empty()).map(|written| {
        let Written { table, ops, seen } = written;
        Ok(TablePart { seen, ..open.table(table)?.part(ops) })
    });
    let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
    let filled = fill.carry_out(handle, (since, parts)).await?;
    // Tables have other ids, or other versions, whatever came of it.
    handle.look_again().await;
    match filled {
        Ok(()) => Ok(()),
        Err(Broken::Before(why)) => Err(before(why)),
        Err(Broken::AtTheEnd(ClientError::Exists)) => Err(open.one_exists(handle, &inserted).await),
        Err(Broken::AtTheEnd(ClientError::Violates(number))) => {
            Err(forbidden(handle, number, (&refused, open.buffer())).await)
        }
        Err(Broken::AtTheEnd(why)) => Err(fault::of_client(why)),
    }
}

/// The error of what failed before the last entry. Where it is not known whether rows were written under
/// another id, or an entry was made that changes nothing, it is known that the transaction is not done.
fn before(why: Failure) -> Failure {
    if !fault::is_unknown(&why) {
        return why;
    }
    let message = "rows of a large transaction that were written ahead may be lost with a primary";
    Failure::new(fault::SERIALIZATION, message).hint("nothing was changed; do the transaction again")
}

/// The error where rows of tables refer to each other in a circle.
fn out_of_order(catalog: &Catalog, key: &ForeignKey) -> Failure {
    let table = catalog.all().find(|table| table.id == key.child);
    let (name, table) = (&key.name, table.map_or("", |table| table.name.as_str()));
    let hint =
        format!("\"{name}\" of \"{table}\" refers to rows that are written with it: commit more often");
    Limit::WRITE.passed().hint(hint)
}

/// What the transaction does, and what that rests on.
struct Survey {
    written: BTreeMap<TableId, Extent>,
    /// The states that it has seen.
    seen: Acknowledged,
}

impl Survey {
    /// Looks at all rows, beside other sessions.
    async fn of(buffer: &Arc<Buffer>) -> Result<Survey, Failure> {
        let buffer = buffer.clone();
        let look = move || {
            buffer.is_there()?;
            let (mut written, mut seen) = (BTreeMap::new(), Acknowledged::default());
            for table in buffer.tables() {
                let mut extent = Extent::default();
                for edit in buffer.all(table) {
                    let edit = edit?;
                    extent.add(&edit);
                    edit.since.into_iter().for_each(|since| seen.add(since));
                }
                written.insert(table, extent);
            }
            Ok(Survey { written, seen })
        };
        let down = |_| Failure::new(code::SHUTDOWN, "this node is going down");
        tokio::task::spawn_blocking(look).await.map_err(down)?
    }

    /// The tables that are to be filled, in their order, once nobody else copies rows of them.
    async fn choose(
        &self,
        evaluator: &Evaluator,
        (open, all): (&Open, bool),
    ) -> Result<(Arc<Catalog>, Vec<TableId>), Failure> {
        loop {
            database::lift_abandoned(&evaluator.handle).await?;
            let catalog = evaluator.handle.look().await?;
            open.knows_its_tables(&catalog)?;
            let keys = self.foreign_keys(&catalog);
            let chosen = choice::chosen(&self.written, &keys, all);
            let chosen = chosen.map_err(|key| out_of_order(&catalog, key))?;
            if !chosen.iter().any(|table| rewrite::under_way(&catalog, *table)) {
                return Ok((catalog, chosen));
            }
            rewrite::pause(evaluator).await?;
        }
    }

    /// The foreign keys among the tables that are written.
    fn foreign_keys(&self, catalog: &Catalog) -> Vec<ForeignKey> {
        let mut keys = Vec::new();
        for parent in catalog.all().filter(|table| self.written.contains_key(&table.id)) {
            for (child, constraint, reference) in children(catalog, parent.id) {
                let key = parent.schema.key();
                let by_key = reference.parent_columns.iter().all(|at| key.contains(at));
                keys.push(ForeignKey { name: constraint.name, child: child.id, parent: parent.id, by_key });
            }
        }
        keys.retain(|key| self.written.contains_key(&key.child));
        keys
    }
}

/// Tables that are to be filled.
struct FillPlan {
    tables: Vec<(Table, TableId, Target)>,
    merges: Vec<Merge>,
    /// The first of the versions under which they are held.
    version: u32,
}

impl FillPlan {
    async fn prepare(
        evaluator: &Evaluator,
        open: &Open,
        (catalog, chosen): (&Catalog, &[TableId]),
    ) -> Result<FillPlan, Failure> {
        let handle = &evaluator.handle;
        let count = chosen.len() as u32;
        let first = database::numbers(handle, 2 * count).await?;
        let renamed: BTreeMap<TableId, TableId> =
            chosen.iter().copied().zip((first..).map(TableId)).collect();
        let (mut tables, mut merges) = (Vec::new(), Vec::new());
        let mut referring = BTreeSet::new();
        for (table, id) in chosen.iter().zip((first..).map(TableId)) {
            let table = open.table(*table)?.clone();
            let target = like(catalog, table.record(), &renamed)?;
            database::counted(handle, &target.schema).await?;
            referring.extend(target.children.iter().map(|child| child.id));
            let guards = guards(catalog, table.id(), &renamed);
            merges.push(Merge::new(evaluator, (table.clone(), open.buffer().clone()), guards));
            tables.push((table, id, target));
        }
        referring.retain(|child| !renamed.contains_key(child));
        if 2 * tables.len() + referring.len() > MAX_CHANGES {
            let hint = "so many tables are written, or refer to those: commit more often";
            return Err(Limit::WRITE.passed().hint(hint));
        }
        Ok(FillPlan { tables, merges, version: first + count })
    }

    /// Fills them, with what is done beside.
    async fn carry_out(
        self,
        handle: &Handle,
        (since, parts): (Option<Position>, Vec<TablePart>),
    ) -> Result<Result<(), Broken>, Failure> {
        let database = handle.database_record()?;
        let FillPlan { tables, mut merges, version } = self;
        let work = move |client: &mut Client| {
            let mut fillings = Vec::with_capacity(tables.len());
            for ((table, id, target), merge) in tables.into_iter().zip(&mut merges) {
                fillings.push(Filling { table, id, target, convert: merge });
            }
            Ok(refill::refill_all(client, &database, (fillings, version), Beside { since, parts }))
        };
        ddl::on_a_client(handle, work).await
    }
}

/// The foreign keys of tables that are not filled with this one.
fn guards(catalog: &Catalog, table: TableId, filled: &BTreeMap<TableId, TableId>) -> Vec<Guard> {
    let all = children(catalog, table).into_iter().filter(|(child, ..)| !filled.contains_key(&child.id));
    all.map(|(child, constraint, reference)| Guard {
        name: (constraint.name, child.name.clone()),
        columns: reference.parent_columns,
    })
    .collect()
}

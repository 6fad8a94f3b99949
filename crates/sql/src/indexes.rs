//! CREATE INDEX and DROP INDEX.

use crate::bind::{folded, index_name, table_name};
use crate::catalog::Catalog;
use crate::constraining::{self, Constraining};
use crate::ddl::on_a_client;
use crate::driver::Handle;
use client::{Client, ClientError};
use pg::Failure;
use sqlparser::ast::{CreateIndex, Expr, IndexColumn, IndexType, ObjectName, OrderByOptions};
use std::time::{Duration, Instant};
use types::TableRecord;
use wire::RecordText;
use wire::control::{AddIndex, AdminCommand, AlterTable as Request};

/// How long CREATE INDEX waits until it is ready in every partition; it is being built after that too.
const READY: Duration = Duration::from_secs(60);
/// Between two looks at how far it is.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A change of indexes: each request is of one table.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// What the client is told at its end.
    pub tag: &'static str,
    /// What is to be done.
    pub requests: Vec<Request>,
}

/// The table that has an index of this name.
fn holder<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a TableRecord> {
    catalog.all().find(|table| table.indexes.named(name).is_some()).map(AsRef::as_ref)
}

/// An index to be.
pub fn create(catalog: &Catalog, create: &CreateIndex) -> Result<Change, Failure> {
    if create.unique {
        return Err(Failure::unsupported(
            "CREATE UNIQUE INDEX",
            "an index is local to its partition and cannot see the others: make the table without options, or in a database (CREATE DATABASE)",
        ));
    }
    refuse(create)?;
    let of = table_name(&create.table_name)?;
    let table = catalog.table(&of);
    let table = table.ok_or_else(|| Failure::new("42P01", format!("relation \"{of}\" does not exist")))?;
    if types::system::is_reserved(&of) {
        return Err(Failure::new("42501", format!("permission denied for table {of}"))
            .hint("it is the cluster's own"));
    }
    let columns = create.columns.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
    let name = match &create.name {
        Some(name) => index_name(catalog, name)?,
        None => free_name(catalog, &format!("{}_{}_idx", catalog.placed(&of).1, columns.join("_"))),
    };
    let mut change = Change { tag: "CREATE INDEX", requests: Vec::new() };
    if catalog.has_relation(&name) {
        return match create.if_not_exists {
            true => Ok(change),
            false => Err(Failure::new("42P07", format!("relation \"{name}\" already exists"))),
        };
    }
    let unknown = columns.iter().any(|name| table.schema.column_index(name).is_none());
    table.indexes.clone().add(&table.schema, &name, &columns).map_err(|why| match unknown {
        true => Failure::new("42703", why),
        false => Failure::unsupported(why, "docs/sql.md says what can be indexed"),
    })?;
    let add_index = Some(AddIndex { name, columns });
    change.requests.push(Request { name: of, add_index, ..Request::default() });
    Ok(change)
}

/// An index to be, of a table in a database.
pub fn create_within(catalog: &Catalog, create: &CreateIndex) -> Result<Constraining, Failure> {
    refuse(create)?;
    let of = table_name(&create.table_name)?;
    if catalog.table(&of).is_none() {
        return Err(Failure::new("42P01", format!("relation \"{of}\" does not exist")));
    }
    let columns = create.columns.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
    constraining::index(catalog, create, columns)
}

/// A name that nothing has.
fn free_name(catalog: &Catalog, wanted: &str) -> String {
    let cut: String = wanted.chars().take(58).collect();
    let taken = |name: &String| catalog.has_relation(name);
    let numbered = (1..).map(|number| format!("{cut}{number}"));
    std::iter::once(cut.clone()).chain(numbered).find(|name| !taken(name)).expect("numbers do not end")
}

fn plain(column: &IndexColumn) -> Result<String, Failure> {
    let in_order = OrderByOptions { asc: Some(true), nulls_first: None };
    // Texts are in the order of their bytes anyhow, which is what patterns need.
    let class = column.operator_class.as_ref().map(ToString::to_string);
    let class = class.is_none_or(|class| {
        matches!(class.as_str(), "text_pattern_ops" | "varchar_pattern_ops" | "bpchar_pattern_ops")
    });
    match &column.column.expr {
        Expr::Identifier(name)
            if class
                && (column.column.options == in_order
                    || column.column.options == OrderByOptions::default()) =>
        {
            Ok(folded(name))
        }
        other => Err(Failure::unsupported(
            format!("an index on {other}"),
            match other {
                Expr::Identifier(_) => "their order is ascending, and it can be read by in any",
                _ => "name columns only: keep what it computes in a column of its own, and index that",
            },
        )),
    }
}

fn refuse(create: &CreateIndex) -> Result<(), Failure> {
    let tree = matches!(create.using, None | Some(IndexType::BTree));
    let found = [
        (!tree, "an index that is not a btree"),
        (create.predicate.is_some(), "an index with WHERE"),
        (!create.include.is_empty(), "INCLUDE"),
        (create.nulls_distinct.is_some(), "NULLS DISTINCT"),
        (!create.with.is_empty() || !create.index_options.is_empty(), "options of an index"),
        (!create.alter_options.is_empty(), "options of an index"),
    ];
    match found.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(Failure::unsupported(*what, "write CREATE INDEX name ON table (columns)")),
        None => Ok(()),
    }
}

/// True if these are indexes of tables that have partitions for themselves.
pub fn are_bare(catalog: &Catalog, names: &[ObjectName]) -> Result<bool, Failure> {
    let bare = |name: &ObjectName| {
        let name = index_name(catalog, name)?;
        let key = name.strip_suffix("_pkey").and_then(|of| catalog.table(of));
        let table = holder(catalog, &name).or_else(|| key.map(AsRef::as_ref));
        Ok(table.map_or(!catalog.is_of_database(), |table| table.database().is_none()))
    };
    let all = names.iter().map(bare).collect::<Result<Vec<_>, Failure>>()?;
    if all.iter().any(|one| *one != all[0]) {
        let hint = "some are of tables with partitions for themselves: drop one at a time";
        return Err(Failure::unsupported("DROP INDEX of both kinds of tables", hint));
    }
    Ok(all.first().copied().unwrap_or(false))
}

/// Indexes to be dropped.
pub fn drop(catalog: &Catalog, names: &[ObjectName], if_exists: bool) -> Result<Change, Failure> {
    let mut change = Change { tag: "DROP INDEX", requests: Vec::new() };
    for name in names {
        let name = index_name(catalog, name)?;
        match holder(catalog, &name) {
            Some(table) => {
                let drop_index = Some(name);
                change.requests.push(Request { name: table.name.clone(), drop_index, ..Request::default() });
            }
            None if if_exists => {}
            None if name.strip_suffix("_pkey").is_some_and(|of| catalog.table(of).is_some()) => {
                return Err(Failure::new(
                    "2BP01",
                    format!("cannot drop index {name}: it is the primary key's"),
                ));
            }
            None => return Err(Failure::new("42704", format!("index \"{name}\" does not exist"))),
        }
    }
    Ok(change)
}

/// Changes indexes. One that is made is waited for; it serves statements as soon as it is ready.
pub async fn carry_out(handle: &Handle, requests: &[Request]) -> Result<(), Failure> {
    for request in requests.iter().cloned() {
        let (of, added, dropped) =
            (request.name.clone(), request.add_index.clone(), request.drop_index.clone());
        let failed = on_a_client(handle, move |client| change(client, &request)).await?;
        if let Some(why) = failed {
            return Err(Failure::new("54000", why).hint("nothing was kept of the index"));
        }
        handle
            .wait_catalog(|catalog| match catalog.table(&of) {
                None => true,
                Some(table) => {
                    added.as_ref().is_none_or(|index| table.indexes.named(&index.name).is_some())
                        && dropped.as_ref().is_none_or(|name| table.indexes.named(name).is_none())
                }
            })
            .await;
    }
    Ok(())
}

/// Sends a request, and waits for an index to be ready. One that failed is dropped: then the answer is why.
pub(crate) fn change(client: &mut Client, request: &Request) -> Result<Option<String>, ClientError> {
    client.admin(AdminCommand::AlterTable(RecordText::new(request)))?;
    let Some(AddIndex { name, .. }) = &request.add_index else { return Ok(None) };
    let deadline = Instant::now() + READY;
    while Instant::now() < deadline {
        client.poll(POLL_INTERVAL)?;
        let table = client.table(&request.name)?;
        let indexes =
            if table.record().indexes.named(name).is_some() { client.indexes(&table)? } else { continue };
        let Some(index) = indexes.into_iter().find(|index| index.name == *name && !index.columns.is_empty())
        else {
            return Ok(None);
        };
        if index.is_ready() {
            return Ok(None);
        }
        if index.failed.is_some() {
            let gone =
                Request { name: request.name.clone(), drop_index: Some(name.clone()), ..Request::default() };
            client.admin(AdminCommand::AlterTable(RecordText::new(&gone)))?;
            return Ok(Some(format!("index {name} {}", index.state())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::ast::{ObjectType, Statement};
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use types::data::{Column, ColumnType};

    fn planned(text: &str) -> Result<Vec<Request>, String> {
        let columns = vec![
            Column::new("id", ColumnType::Int),
            Column::new("name", ColumnType::Text),
            Column::new("tree", ColumnType::Json),
        ];
        let mut table = crate::catalog::example(columns);
        table.indexes.add(&table.schema.clone(), "by_name", &["name".into()]).expect("valid");
        let catalog = Catalog::from_map(1, BTreeMap::from([("t".to_string(), Arc::new(table))]));
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text).map_err(|error| error.to_string())?;
        let change = match &parsed[0] {
            Statement::CreateIndex(index) => create(&catalog, index),
            Statement::Drop { object_type: ObjectType::Index, names, if_exists, .. } => {
                drop(&catalog, names, *if_exists)
            }
            other => panic!("{other}"),
        };
        change.map(|change| change.requests).map_err(|failure| failure.code.to_string())
    }

    #[test]
    fn plain_columns_are_indexed_and_nothing_else() {
        let add = |name: &str, columns: &[&str]| {
            let columns = columns.iter().map(ToString::to_string).collect();
            let add_index = Some(AddIndex { name: name.into(), columns });
            Ok(vec![Request { name: "t".into(), add_index, ..Request::default() }])
        };
        assert_eq!(planned("CREATE INDEX i ON t (name, id)"), add("i", &["name", "id"]));
        assert_eq!(
            planned("CREATE INDEX CONCURRENTLY I ON public.t USING btree (Name ASC)"),
            add("i", &["name"])
        );
        assert_eq!(planned("CREATE INDEX ON t (name)"), add("t_name_idx", &["name"]));
        assert_eq!(planned("CREATE INDEX IF NOT EXISTS by_name ON t (id)"), Ok(Vec::new()));
        let gone = Request { name: "t".into(), drop_index: Some("by_name".into()), ..Request::default() };
        assert_eq!(planned("DROP INDEX by_name"), Ok(vec![gone]));
        assert_eq!(planned("DROP INDEX IF EXISTS nope"), Ok(Vec::new()));
        for (text, code) in [
            ("CREATE UNIQUE INDEX i ON t (name)", "0A000"),
            ("CREATE INDEX by_name ON t (id)", "42P07"),
            ("CREATE INDEX t ON t (id)", "42P07"),
            ("CREATE INDEX i ON u (id)", "42P01"),
            ("CREATE INDEX i ON t (nope)", "42703"),
            ("CREATE INDEX i ON t (tree)", "0A000"),
            ("CREATE INDEX i ON t (lower(name))", "0A000"),
            ("CREATE INDEX i ON t (name DESC)", "0A000"),
            ("CREATE INDEX i ON t USING hash (name)", "0A000"),
            ("CREATE INDEX i ON t (name) WHERE id > 5", "0A000"),
            ("DROP INDEX nope", "42704"),
            ("DROP INDEX t_pkey", "2BP01"),
        ] {
            assert_eq!(planned(text), Err(code.into()), "{text}");
        }
    }
}

//! The catalog of a database of several partitions. Each partition has all of it, as rows. The first one's is
//! what counts: tables are changed there, and whoever finds another partition behind brings it to the same,
//! by one entry of that partition. What is to be done follows from the two catalogs alone, so it matters to
//! nobody who does it, how often, or who stopped in the middle.
//!
//! A replicated table has all of its rows in every partition, and they never change under its id. A partition
//! has all of them if the table has a name there (PR-405). So whoever finds that it has none there yet copies
//! the rows first, into a definition without a name ([`CatalogTable::to_fill`]), and then goes on as with any
//! other table.

use crate::{RecordText, TableChange};
use std::collections::{BTreeMap, BTreeSet};
use types::data::{Constraint, Schema, SchemaParts};
use types::database::MAX_NAME_BYTES;
use types::{CatalogTable, Position, Rules, TableId, TableState};

/// Every table of a partition, those among them whose rows are being removed.
pub type Tables = BTreeMap<TableId, (TableState, CatalogTable)>;

/// The tables that are not being removed.
fn there(tables: &Tables) -> impl Iterator<Item = &CatalogTable> {
    tables.values().filter(|(state, _)| *state != TableState::Dropping).map(|(_, table)| table)
}

fn is_there(tables: &Tables, id: TableId) -> bool {
    tables.get(&id).is_some_and(|(state, _)| *state != TableState::Dropping)
}

/// A definition for another partition. A constraint that is being dropped has gone for that one, however far
/// it is there.
fn text(table: &CatalogTable) -> RecordText {
    let kept = table.schema.constraints().iter().filter(|one| one.is_enforced()).cloned().collect();
    RecordText::new(&table.clone().constrained(kept).expect("fewer constraints than it has"))
}

/// Tables of other partitions of which the first one says nothing, the newest definition of each. They were
/// dropped there and removed, or the first one has lost that they were made: whoever asks finds out whether
/// its log has [`CatalogTable::seen`] (PR-172).
pub fn unknown<'a>(others: &[&'a Tables], first: &Tables) -> Vec<&'a CatalogTable> {
    newest(others).into_values().filter(|table| !first.contains_key(&table.id)).collect()
}

/// True if a partition has this table under its name: of a replicated one it has all rows then.
fn has_named(tables: &Tables, id: TableId) -> bool {
    tables.get(&id).is_some_and(|(state, _)| state.is_named())
}

/// The replicated tables whose rows must be copied to a partition before it is told that they have a name, as
/// the first one has them (PR-405).
pub fn to_copy<'a>(own: &Tables, first: &'a Tables) -> Vec<&'a CatalogTable> {
    let named = first.values().filter(|(state, _)| state.is_named()).map(|(_, table)| table);
    let going = |id: TableId| own.get(&id).is_some_and(|(state, _)| *state == TableState::Dropping);
    let lacks = |table: &&CatalogTable| !has_named(own, table.id) && !going(table.id);
    named.filter(|table| table.schema.is_replicated()).filter(lacks).collect()
}

/// The replicated tables whose rows must be copied to the first partition before it is given them back
/// ([`given_back`]): it has lost them, or that they have a name. Each with the place, among the others, of
/// one that has all rows (PR-409).
pub fn to_return<'a>(
    others: &[&'a Tables],
    first: &Tables,
    lost: &BTreeSet<TableId>,
) -> Vec<(&'a CatalogTable, usize)> {
    let has_lost = |id: TableId| match first.get(&id) {
        None => lost.contains(&id),
        Some((state, _)) => *state == TableState::Filling,
    };
    let mut found: BTreeMap<TableId, (&CatalogTable, usize)> = BTreeMap::new();
    for (place, own) in others.iter().enumerate() {
        let named = own.values().filter(|(state, _)| state.is_named()).map(|(_, table)| table);
        for table in named.filter(|table| table.schema.is_replicated() && has_lost(table.id)) {
            found.entry(table.id).or_insert((table, place));
        }
    }
    found.into_values().collect()
}

/// True if another partition has a replicated table under its name, and the first one is removing what had
/// none there yet: it has lost that it had the name, and whoever filled it has dropped it, or somebody who
/// took it for one that nobody fills any more. Nobody has dropped the table, so nothing is told of that
/// (PR-409).
fn is_unnamed(table: &CatalogTable, first: &Tables) -> bool {
    let going = first.get(&table.id).is_some_and(|(state, there)| {
        *state == TableState::Dropping && there.schema.is_replicated() && there.fills.is_some()
    });
    going && table.fills.is_none()
}

/// True if the first partition must have removed a table before it can be given it back.
pub fn must_wait(others: &[&Tables], first: &Tables) -> bool {
    others.iter().flat_map(|own| there(own)).any(|table| is_unnamed(table, first))
}

/// Replicated tables of the first partition that may be what is left of those that it is given back: another
/// partition has such a one under the same name, and not this one. It was dropped if the first one's log has
/// the state that is given with it: then it was there when the other one got the name (PR-409).
pub fn left_over(
    others: &[&Tables],
    first: &Tables,
    lost: &BTreeSet<TableId>,
) -> BTreeMap<TableId, Position> {
    let mut found = BTreeMap::new();
    for (back, place) in to_return(others, first, lost) {
        let named = first.values().filter(|(state, _)| state.is_named()).map(|(_, table)| table);
        let same = |table: &&CatalogTable| table.schema.is_replicated() && table.name == back.name;
        let gone = |table: &&CatalogTable| !is_there(others[place], table.id);
        if let Some(table) = named.filter(same).find(gone)
            && let (Some(then), Some(now)) = (back.seen, table.seen)
        {
            found.insert(table.id, Position::new(then.term, now.lsn));
        }
    }
    found
}

/// What brings a partition's catalog to the first one's, which must have been read behind it, and says of
/// each table where it is in the log ([`CatalogTable::seen`]). Nothing: it is there already. Tables that the
/// first one has lost stay. Of a constraint that the partition does not have yet it looks at its own rows,
/// whatever the first one says of it (PR-171). Rows of replicated tables were copied before ([`to_copy`]),
/// and `own` has the definitions that got them.
pub fn changes(own: &Tables, first: &Tables, lost: &BTreeSet<TableId>) -> Vec<TableChange> {
    changes_by(own, first, lost, Rules::ALL)
}

/// The same by these rules: all, but in a mutant.
pub fn changes_by(own: &Tables, first: &Tables, lost: &BTreeSet<TableId>, rules: Rules) -> Vec<TableChange> {
    let gone = there(own).filter(|table| !is_there(first, table.id) && !lost.contains(&table.id));
    let gone = gone.filter(|table| !is_unnamed(table, first));
    let mut changes: Vec<TableChange> =
        gone.map(|table| TableChange::Drop { table: table.id, schema: table.schema.version() }).collect();
    for table in there(first) {
        match own.get(&table.id) {
            // The other partitions get its rows when it has a name.
            None if table.schema.is_replicated() && table.fills.is_some() => {}
            None => changes.push(TableChange::Create(text(table))),
            Some((TableState::Dropping, _)) => {}
            Some((_, known))
                if known.schema.version() < table.schema.version() && rules.whoever_comes_finishes() =>
            {
                let from = known.schema.version();
                changes.push(TableChange::Alter { from, to: text(table) });
            }
            Some(_) => {}
        }
    }
    changes
}

/// What the first partition is given back that it has lost, and another one knows: newer definitions, tables
/// of which it says nothing (`lost`), and that tables were dropped, also where the others have removed them
/// by now (`left`: see [`left_over`]). There is any only where an operator forced a promotion, or all copies
/// lost what was newest (PR-172).
///
/// A table whose name is taken by now gets another one, and foreign keys to what is not there any more go.
/// Such a definition is a newer one, of a version that `version` gives. So is that of every lost table: then
/// others note anew where it was seen, and it can be dropped even if it had been dropped before and the first
/// partition's history does not reach back that far. Rows of replicated tables were copied before
/// ([`to_return`]), and `first` has the definitions that got them.
pub fn given_back<E>(
    others: &[&Tables],
    first: &Tables,
    (lost, left): (&BTreeSet<TableId>, &BTreeSet<TableId>),
    mut version: impl FnMut() -> Result<u32, E>,
) -> Result<Vec<TableChange>, E> {
    let mut after = first.clone();
    let begun = begun_for(others, first);
    let newest = newest_of(others.iter().flat_map(|own| there(own)).chain(&begun));
    let older = |table: &CatalogTable| is_older(first.get(&table.id), table);
    let back: Vec<TableId> = newest
        .values()
        .filter(|table| lost.contains(&table.id) || older(table))
        .map(|table| table.id)
        .collect();
    for id in &back {
        after.insert(*id, (newest[id].state(), newest[id].clone()));
    }
    let mut changes = Vec::new();
    let dropped = others.iter().flat_map(|own| own.keys().filter(|id| !is_there(own, **id)));
    let dropped: BTreeSet<TableId> = dropped.chain(left).copied().collect();
    for id in dropped.into_iter().filter(|id| is_there(first, *id)) {
        if !is_parent(&after, id) {
            after.remove(&id);
            changes.push(TableChange::Drop { table: id, schema: first[&id].1.schema.version() });
        }
    }
    for id in back {
        if !after.contains_key(&id) {
            continue;
        }
        let mut table = sound(&after, id);
        if lost.contains(&id) || !is_alike(&after[&id].1, &table) {
            table = of_version(table, version()?);
        }
        changes.push(match first.get(&id) {
            None => TableChange::Create(text(&table)),
            Some((_, known)) => TableChange::Alter { from: known.schema.version(), to: text(&table) },
        });
        after.insert(id, (table.state(), table));
    }
    Ok(changes)
}

/// Copies of replicated tables that other partitions are getting, as what they were begun for, where the
/// first one has the table under its name: it may have lost what the table was like then (PR-409).
fn begun_for(others: &[&Tables], first: &Tables) -> Vec<CatalogTable> {
    let all = others.iter().flat_map(|own| there(own));
    let copies = all.filter(|table| table.schema.is_replicated() && table.fills.is_some());
    let named = |table: &CatalogTable| {
        let version = table.schema.version() + 1;
        CatalogTable { fills: None, ..of_version(table.clone(), version) }
    };
    copies.filter(|table| has_named(first, table.id)).map(named).collect()
}

/// The newest definition of each table in these catalogs.
fn newest<'a>(catalogs: &[&'a Tables]) -> BTreeMap<TableId, &'a CatalogTable> {
    newest_of(catalogs.iter().flat_map(|own| there(own)))
}

/// The newest of these definitions of each table.
fn newest_of<'a>(all: impl Iterator<Item = &'a CatalogTable>) -> BTreeMap<TableId, &'a CatalogTable> {
    let mut newest: BTreeMap<TableId, &CatalogTable> = BTreeMap::new();
    for table in all {
        let known = newest.entry(table.id).or_insert(table);
        if known.schema.version() < table.schema.version() {
            *known = table;
        }
    }
    newest
}

fn is_older(known: Option<&(TableState, CatalogTable)>, table: &CatalogTable) -> bool {
    known.is_some_and(|(state, known)| {
        *state != TableState::Dropping && known.schema.version() < table.schema.version()
    })
}

/// True if a foreign key of another table names this one.
fn is_parent(tables: &Tables, id: TableId) -> bool {
    let others = there(tables).filter(|table| table.id != id);
    let mut all = others.flat_map(|table| table.schema.constraints()).filter(|one| one.is_enforced());
    all.any(|one| one.reference().is_some_and(|to| to.parent == id))
}

/// One of these tables as it can be beside the others.
fn sound(tables: &Tables, id: TableId) -> CatalogTable {
    let (state, table) = &tables[&id];
    let taken = |name: &str| {
        let mut others = tables.iter().filter(|(other, (state, _))| **other != id && state.is_named());
        others.any(|(_, (_, there))| there.name == name)
    };
    let name = match state.is_named() && taken(&table.name) {
        true => other_name(table, taken),
        false => table.name.clone(),
    };
    let has_parent = |one: &&Constraint| one.reference().is_none_or(|to| is_there(tables, to.parent));
    let kept = table.schema.constraints().iter().filter(has_parent).cloned().collect();
    let table = CatalogTable { name, seen: None, ..table.clone() };
    table.constrained(kept).expect("fewer constraints than it has")
}

fn is_alike(one: &CatalogTable, other: &CatalogTable) -> bool {
    one.name == other.name && one.schema.constraints().len() == other.schema.constraints().len()
}

fn of_version(table: CatalogTable, version: u32) -> CatalogTable {
    let parts = SchemaParts { version, ..table.schema.into_parts() };
    CatalogTable { schema: Schema::from_parts(parts).expect("the same columns"), ..table }
}

/// A name that says which table it was, and that no other has: with its number behind it.
fn other_name(table: &CatalogTable, taken: impl Fn(&str) -> bool) -> String {
    let ends = (1..).map(|n| match n {
        1 => format!("_{}", table.id.0),
        n => format!("_{}_{n}", table.id.0),
    });
    let mut names = ends.map(|end| {
        let room = (MAX_NAME_BYTES - end.len()).min(table.name.len());
        let cut = (0..=room).rev().find(|at| table.name.is_char_boundary(*at));
        format!("{}{end}", &table.name[..cut.unwrap_or(0)])
    });
    names.find(|name| !taken(name)).expect("fewer tables than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::data::{Column, ColumnType};
    use types::{Lsn, Term};

    fn table(id: u32, name: &str, version: u32) -> CatalogTable {
        let columns = vec![Column::new("w", ColumnType::Int), Column::new("id", ColumnType::Int)];
        let mut parts = Schema::new(columns, &["w", "id"], 1, false).expect("valid").into_parts();
        parts.version = version;
        CatalogTable::new(TableId(id), name, Schema::from_parts(parts).expect("valid"), 0)
    }

    fn tables(all: &[(TableState, CatalogTable)]) -> Tables {
        all.iter().map(|(state, table)| (table.id, (*state, table.clone()))).collect()
    }

    #[test]
    fn a_partition_is_brought_to_what_the_first_one_has_and_no_further() {
        use TableState::{Dropping, Live};
        let first = tables(&[
            (Live, table(1, "same", 1)),
            (Live, table(2, "changed", 9)),
            (Live, table(3, "made", 1)),
            (Dropping, table(4, "dropped", 1)),
            (Live, table(6, "back", 1)),
            (Live, table(7, "lost", 2)),
            (Live, table(10, "taken", 2)),
        ]);
        let own = tables(&[
            (Live, table(1, "same", 1)),
            (Live, table(2, "old", 4)),
            (Live, table(4, "dropped", 1)),
            (Live, table(5, "removed", 3)),
            (Dropping, table(6, "back", 1)),
            (Live, table(7, "newer", 8)),
            (Dropping, table(8, "removed", 3)),
            (Live, table(9, "taken", 3)),
            (Live, table(10, "taken before", 1)),
        ]);
        let lost_by_it = BTreeSet::from([TableId(9)]);
        let unsure: Vec<TableId> = unknown(&[&own], &first).iter().map(|table| table.id).collect();
        assert_eq!(unsure, [TableId(5), TableId(9)], "one says that it is being dropped");
        let expected = [
            TableChange::Drop { table: TableId(4), schema: 1 },
            TableChange::Drop { table: TableId(5), schema: 3 },
            TableChange::Alter { from: 4, to: text(&table(2, "changed", 9)) },
            TableChange::Create(text(&table(3, "made", 1))),
            TableChange::Alter { from: 1, to: text(&table(10, "taken", 2)) },
        ];
        assert_eq!(changes(&own, &first, &lost_by_it), expected);
        let back = [
            TableChange::Alter { from: 2, to: text(&table(7, "newer", 8)) },
            TableChange::Create(text(&table(9, "taken_9", 50))),
        ];
        let none = BTreeSet::new();
        let given = |own: &Tables, lost: &BTreeSet<TableId>| {
            given_back(&[own], &first, (lost, &none), || Ok::<u32, ()>(50)).expect("given")
        };
        assert_eq!(given(&own, &lost_by_it)[1..], back);
        let drop = TableChange::Drop { table: TableId(6), schema: 1 };
        assert_eq!(given(&own, &lost_by_it)[0], drop, "somebody has dropped it");
        assert_eq!(changes(&first, &first, &none), []);
        assert_eq!(given(&first, &none), []);
    }

    fn replicated(id: u32, version: u32) -> CatalogTable {
        let mut parts = table(id, "item", version).schema.into_parts();
        parts.replicated = true;
        CatalogTable::new(TableId(id), "item", Schema::from_parts(parts).expect("valid"), 0)
    }

    #[test]
    fn pr405_rows_of_a_replicated_table_are_copied_before_it_has_its_name() {
        use TableState::{Dropping, Filling, Held};
        let (old, new) = (replicated(1, 12), replicated(2, 22));
        let filling = new.to_fill().expect("the version before");
        let first = tables(&[(Dropping, old.clone()), (Held, new.clone())]);
        let behind = tables(&[(Held, old.clone())]);
        let half = tables(&[(Held, old.clone()), (Filling, filling.clone())]);
        let level = tables(&[(Held, new.clone())]);
        let copied = |own: &Tables| -> Vec<TableId> {
            to_copy(own, &first).into_iter().map(|table| table.id).collect()
        };
        assert_eq!((copied(&behind), copied(&half)), (vec![new.id], vec![new.id]), "it has no name there");
        assert_eq!(copied(&level), []);
        assert_eq!(copied(&tables(&[(Dropping, new.clone())])), [], "it was dropped there");
        let none = BTreeSet::new();
        let drop = TableChange::Drop { table: old.id, schema: 12 };
        let named = TableChange::Alter { from: 21, to: text(&new) };
        assert_eq!(changes(&half, &first, &none), [drop, named], "in one entry");
        // Whoever fills it in the first partition may stop: nobody else has anything of it then.
        let filled = tables(&[(Held, old.clone()), (Filling, filling)]);
        assert_eq!((to_copy(&behind, &filled), changes(&behind, &filled, &none)), (vec![], vec![]));
    }

    #[test]
    fn pr409_a_replicated_table_is_given_back_with_its_rows() {
        use TableState::{Dropping, Filling, Held};
        let (old, new) = (replicated(1, 12), replicated(2, 22));
        let filling = new.to_fill().expect("the version before");
        let other = tables(&[(Dropping, old.clone()), (Held, new.clone())]);
        let (lost, none) = (BTreeSet::from([new.id]), BTreeSet::new());
        let without_name = tables(&[(Held, old.clone()), (Filling, filling.clone())]);
        let without = tables(&[(Held, old.clone())]);
        let returned = |first: &Tables, lost: &BTreeSet<TableId>| -> Vec<(TableId, usize)> {
            let all = to_return(&[&without, &other], first, lost);
            all.into_iter().map(|(table, from)| (table.id, from)).collect()
        };
        assert_eq!(returned(&without_name, &none), [(new.id, 1)]);
        assert_eq!(returned(&without, &lost), [(new.id, 1)]);
        assert_eq!(returned(&without, &none), [], "it was dropped in the first partition");
        assert_eq!(returned(&other, &none), []);
        let given = |others: &[&Tables], first: &Tables, left: &BTreeSet<TableId>| {
            given_back(others, first, (&none, left), || Ok::<u32, ()>(50)).expect("given")
        };
        let drop = TableChange::Drop { table: old.id, schema: 12 };
        let named = TableChange::Alter { from: 21, to: text(&new) };
        assert_eq!(given(&[&other], &without_name, &none), [drop.clone(), named.clone()]);
        // Another one has removed the table as it was, and nobody says any more that it was dropped.
        let at = |term, lsn| Some(Position::new(Term(term), Lsn(lsn)));
        let seen = |table: &CatalogTable, seen| CatalogTable { seen, ..table.clone() };
        let removed = tables(&[(Held, seen(&new, at(2, 30)))]);
        let first = tables(&[(Held, seen(&old, at(5, 9))), (Filling, filling.clone())]);
        let left = left_over(&[&removed], &first, &none);
        assert_eq!(left, BTreeMap::from([(old.id, Position::new(Term(2), Lsn(9)))]));
        assert_eq!(given(&[&removed], &first, &BTreeSet::from([old.id])), [drop, named]);
        let both = tables(&[(Held, seen(&new, at(2, 30))), (Held, replicated(1, 40))]);
        assert_eq!(left_over(&[&both], &first, &none), BTreeMap::new(), "it got another name");
    }

    #[test]
    fn pr409_what_is_dropped_before_it_has_its_name_is_not_dropped_where_it_has_it() {
        use TableState::{Dropping, Filling, Held};
        let new = replicated(2, 22);
        let filling = new.to_fill().expect("the version before");
        let (other, copy) = (tables(&[(Held, new.clone())]), tables(&[(Filling, filling.clone())]));
        let first = tables(&[(Dropping, filling)]);
        let none = BTreeSet::new();
        let drop = |schema: u32| TableChange::Drop { table: new.id, schema };
        assert!(must_wait(&[&copy, &other], &first) && !must_wait(&[&copy], &first));
        assert_eq!((changes(&other, &first, &none), changes(&copy, &first, &none)), (vec![], vec![drop(21)]));
        let dropped = tables(&[(Dropping, new.clone())]);
        assert!(!must_wait(&[&other], &dropped), "it had its name there");
        assert_eq!(changes(&other, &dropped, &none), [drop(22)]);
    }

    #[test]
    fn pr409_what_a_copy_was_begun_for_is_given_back() {
        use TableState::{Filling, Held};
        let (old, new) = (replicated(2, 22), replicated(2, 30));
        let copy = tables(&[(Filling, new.to_fill().expect("the version before"))]);
        let given = |first: &CatalogTable| {
            let (first, none) = (tables(&[(Held, first.clone())]), BTreeSet::new());
            given_back(&[&copy], &first, (&none, &none), || Ok::<u32, ()>(50)).expect("given")
        };
        // The first one has lost that it was altered before the copy was begun.
        assert_eq!(given(&old), [TableChange::Alter { from: 22, to: text(&new) }]);
        assert_eq!(given(&replicated(2, 29)), [TableChange::Alter { from: 29, to: text(&new) }]);
        assert_eq!((given(&new), given(&replicated(2, 31))), (vec![], vec![]));
    }

    #[test]
    fn pr172_names_that_are_given_back_are_nobody_elses() {
        let name = "ä".repeat(31);
        let given = |own: &[(u32, &str, u32)], first: &[(u32, &str, u32)]| {
            let all = |some: &[(u32, &str, u32)]| {
                let live =
                    |(id, name, version): &(u32, &str, u32)| (TableState::Live, table(*id, name, *version));
                tables(&some.iter().map(live).collect::<Vec<_>>())
            };
            let (own, first) = (all(own), all(first));
            let lost = unknown(&[&own], &first).iter().map(|table| table.id).collect();
            let (all, left) = ([&own], BTreeSet::new());
            let given = given_back(&all, &first, (&lost, &left), || Ok::<u32, ()>(50)).expect("given");
            let read = |change: &TableChange| match change {
                TableChange::Create(text) | TableChange::Alter { to: text, .. } => {
                    let table: CatalogTable = text.read().expect("a table");
                    assert_eq!(table.fault(), None);
                    (table.id.0, table.name.clone(), table.schema.version())
                }
                TableChange::Drop { .. } => panic!("{change:?}"),
            };
            given.iter().map(read).collect::<Vec<_>>()
        };
        assert_eq!(given(&[(2, "t", 7)], &[]), [(2, "t".into(), 50)]);
        assert_eq!(given(&[(77, &name, 7)], &[(1, &name, 1)]), [(77, format!("{}_77", &name[..60]), 50)]);
        let swapped = given(&[(1, "b", 8), (2, "a", 9)], &[(1, "a", 1), (2, "b", 2)]);
        assert_eq!(swapped, [(1, "b".into(), 8), (2, "a".into(), 9)]);
    }
}

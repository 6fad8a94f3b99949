//! Statements with parts in WITH that write. All parts see rows as they were when the statement began; one
//! knows of another what its RETURNING tells. Each is computed once, whether it is named or not, and what all
//! of them do is sent as one write. A query beside them that gives other rows each time is computed once, as
//! they are.

use crate::bind::{Bound, Last, Part, Parts, Writing};
use crate::edits::{self, Edits, Effects};
use crate::engine;
use crate::evaluate::Evaluator;
use crate::follow;
use crate::merge;
use crate::read::{self, Values};
use crate::txn::{Limit, Room, View};
use bytes::Bytes;
use pg::{Failure, Row};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::TableId;
use types::data::Value;

/// Memory that the parts of a statement have in any case for what they do and tell.
const FREE_BYTES: usize = 64 << 20;
/// What an edit takes beside its own bytes, of which there is one copy: it is kept as it is, and by who looks
/// at what was written before.
const EDIT_BYTES: usize = 400;

/// What it does, with all that follows from it, if rows are as the view has them.
pub async fn effects(
    evaluator: &Evaluator,
    parts: &Parts,
    values: &Values,
    view: &View,
) -> Result<Effects, Failure> {
    let mut values = values.clone();
    values.parameters.resize(parts.first, Value::Null);
    let (mut ahead, mut all) = (view.clone(), Vec::new());
    let (room, mut packed_bytes, mut bytes) = (Room::new(&evaluator.memory, FREE_BYTES), 0, 0);
    for part in &parts.once {
        let rows = match part {
            Part::Reads(bound) => of_query(evaluator, bound, &values, view).await?,
            Part::Writes(writing) => {
                let mut edits = of_part(evaluator, writing, &values, (view, &ahead)).await?;
                let rows = edits.told.take().unwrap_or_default();
                bytes += edits.edits.iter().map(|edit| EDIT_BYTES + edit.bytes()).sum::<usize>();
                follow::see(&mut ahead, &edits)?;
                all.push(edits);
                rows
            }
        };
        let packed = engine::pack(&rows, packed_bytes)?;
        packed_bytes += packed.len();
        room.hold(packed_bytes + bytes)?;
        values.parameters.push(Value::Bytes(packed));
    }
    let (count, told) = match &parts.last {
        Last::Rows(bound) => {
            let rows = of_query(evaluator, bound, &values, view).await?;
            (rows.len() as u64, Some(rows))
        }
        Last::Writes(part) => {
            let mut edits = of_part(evaluator, part, &values, (view, &ahead)).await?;
            let said = (edits.count, edits.told.take());
            all.push(edits);
            said
        }
    };
    once_each(&mut all);
    let edits = follow::with_all(evaluator, all, &values, view).await?;
    Ok(Effects { edits, count, told })
}

/// The rows that a query among them gives, of what there was.
async fn of_query(
    evaluator: &Evaluator,
    bound: &Arc<Bound>,
    values: &Values,
    view: &View,
) -> Result<Vec<Row>, Failure> {
    read::pin(&evaluator.handle, read::partitions(&bound.sources, values), view).await?;
    let (rows, _room) = evaluator.all(bound.clone(), values.clone(), view.clone(), Limit::WRITE).await?;
    Ok(rows)
}

/// What one of them does. It reads by the view; `ahead` has what those before it have written.
async fn of_part(
    evaluator: &Evaluator,
    part: &Writing,
    values: &Values,
    (view, ahead): (&View, &View),
) -> Result<Edits, Failure> {
    match part {
        Writing::Insert(insertion) => edits::of_insertion(evaluator, insertion, values, (view, ahead)).await,
        Writing::Change(change) => {
            edits::of_change_beside(evaluator, change, values, (view, Some(ahead))).await
        }
        Writing::Merge(merge) => merge::of_merge(evaluator, merge, values, (view, ahead)).await,
    }
}

/// A row that one part removes and another one inserts is changed, once: the last one says what it is, and
/// the first one has seen it.
fn once_each(all: &mut [Edits]) {
    let mut known: BTreeMap<(TableId, Bytes), (usize, bool)> = BTreeMap::new();
    for (at, edits) in all.iter_mut().enumerate() {
        let id = edits.table.id();
        for edit in &mut edits.edits {
            let (last, existed) = known.entry((id, edit.key.clone())).or_insert((at, edit.existed));
            (*last, edit.existed) = (at, *existed);
        }
    }
    for (at, edits) in all.iter_mut().enumerate() {
        let id = edits.table.id();
        edits.edits.retain(|edit| known.get(&(id, edit.key.clone())).is_some_and(|(last, _)| *last == at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::example;
    use crate::txn::{After, Edit};
    use client::Table;
    use std::sync::Arc;
    use types::data::{Column, ColumnType};

    #[test]
    fn a_row_that_is_removed_and_inserted_is_changed() {
        let table = Table::new(Arc::new(example(vec![Column::new("id", ColumnType::Int).not_null()])));
        let part = |list: &[(&'static [u8], bool, After)]| {
            let edit = |(key, existed, after): &(&'static [u8], bool, After)| {
                Edit::new(Bytes::from_static(key), *existed, after.clone())
            };
            Edits {
                table: table.clone(),
                partition: None,
                edits: list.iter().map(edit).collect(),
                count: 0,
                told: None,
                replaced: Vec::new(),
            }
        };
        let row = After::Row(Bytes::from_static(b"row"));
        let mut all = [
            part(&[(&b"a"[..], true, After::Gone), (&b"b"[..], true, After::Gone)]),
            part(&[(&b"a"[..], false, row.clone()), (&b"c"[..], false, row.clone())]),
        ];
        once_each(&mut all);
        assert_eq!(all[0].edits, part(&[(&b"b"[..], true, After::Gone)]).edits);
        assert_eq!(all[1].edits, part(&[(&b"a"[..], true, row.clone()), (&b"c"[..], false, row)]).edits);
    }
}

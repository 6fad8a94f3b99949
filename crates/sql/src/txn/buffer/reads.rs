//! What is read of a buffer: of memory, of the file that it has spilled to, and of the buffer below it.
//!
//! All that gives a `Result` may read the file, and blocks then: on the gateway's thread by way of [`aside`].

use super::{After, Buffer, Edit, Limit, OVERHEAD, Written};
use crate::txn::spill::unreadable;
use bytes::Bytes;
use pg::{Failure, code};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::sync::Arc;
use types::{PartitionId, TableId};
use wire::RowOp;

/// What a transaction sees under a key: a row, or none. `None`: what was there before it.
pub type Seen = Option<Option<Bytes>>;

/// The end of a table.
static END: Bytes = Bytes::new();

/// An edit, of memory or of a file.
type Item<'a> = Result<Cow<'a, Edit>, Failure>;

/// Edits in the order of keys.
type EditIter<'a> = Box<dyn Iterator<Item = Item<'a>> + Send + 'a>;

/// Edits of an upper and a lower layer, in the order of keys: of two for one row that of the upper one.
struct Layered<'a> {
    upper: Peekable<EditIter<'a>>,
    lower: Peekable<EditIter<'a>>,
}

impl<'a> Layered<'a> {
    fn boxed(upper: EditIter<'a>, lower: EditIter<'a>) -> EditIter<'a> {
        Box::new(Layered { upper: upper.peekable(), lower: lower.peekable() })
    }
}

impl<'a> Iterator for Layered<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let order = match (self.upper.peek(), self.lower.peek()) {
            // An error is told at once.
            (Some(Err(_)), _) | (Some(_), None) => Ordering::Less,
            (_, Some(Err(_))) | (None, _) => Ordering::Greater,
            (Some(Ok(upper)), Some(Ok(lower))) => upper.key.cmp(&lower.key),
        };
        match order {
            Ordering::Less => self.upper.next(),
            Ordering::Greater => self.lower.next(),
            Ordering::Equal => {
                let (upper, lower) = (self.upper.next()?, self.lower.next());
                // It is locked as it is below.
                let locked = upper.as_ref().is_ok_and(|edit| edit.after == After::Same);
                if locked { lower } else { Some(upper) }
            }
        }
    }
}

/// Looks at a buffer: here, or on a thread that may block if a file is to be read.
pub async fn aside<T: Send + 'static>(
    buffer: &Arc<Buffer>,
    look: impl FnOnce(&Buffer) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    if !buffer.is_spilled() {
        return look(buffer);
    }
    let buffer = buffer.clone();
    let looked = tokio::task::spawn_blocking(move || look(&buffer)).await;
    looked.map_err(|_| Failure::new(code::SHUTDOWN, "this node is going down"))?
}

impl Buffer {
    /// True if a file is read with it.
    pub fn is_spilled(&self) -> bool {
        self.spilled.is_some() || self.below.as_ref().is_some_and(|below| below.is_spilled())
    }

    /// True if ON CONFLICT has inserted a row after it had looked for one with its key.
    pub fn has_looked(&self, table: TableId, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.own_edit(table, key)?.is_some_and(|edit| edit.arbiter.is_key()))
    }

    /// True if more rows of a table are written than so many, as far as that is known without a look.
    pub fn has_more(&self, table: TableId, rows: usize) -> bool {
        let own = self.tables.get(&table).map_or(0, BTreeMap::len);
        let set_aside = self.spilled.as_ref().map_or(0, |spilled| spilled.rows_of(table));
        own + set_aside > rows || self.below.as_ref().is_some_and(|below| below.has_more(table, rows))
    }

    /// The tables of which rows are written.
    pub fn tables(&self) -> BTreeSet<TableId> {
        let own = self.tables.iter().filter(|(_, rows)| !rows.is_empty()).map(|(table, _)| *table);
        own.chain(self.spilled.iter().flat_map(|spilled| spilled.tables())).collect()
    }

    /// What is written of a row here.
    pub fn own_edit(&self, table: TableId, key: &[u8]) -> Result<Option<Cow<'_, Edit>>, Failure> {
        self.is_there()?;
        if let Some(edit) = self.tables.get(&table).and_then(|rows| rows.get(key)) {
            return Ok((!edit.is_nothing()).then_some(Cow::Borrowed(edit)));
        }
        let Some(spilled) = &self.spilled else { return Ok(None) };
        let found = spilled.store.get(table, &[Bytes::copy_from_slice(key)])?;
        Ok(found.into_iter().next().flatten().map(Cow::Owned))
    }

    /// What the transaction sees under a key of a table in this partition.
    pub fn row(&self, (table, partition): (TableId, PartitionId), key: &[u8]) -> Result<Seen, Failure> {
        if !self.holds(partition) {
            return Ok(None);
        }
        match self.own_edit(table, key)?.as_deref().map(|edit| &edit.after) {
            Some(After::Row(row)) => Ok(Some(Some(row.clone()))),
            Some(After::Gone) => Ok(Some(None)),
            Some(After::Same) | None => match &self.below {
                Some(below) => below.row((table, partition), key),
                None => Ok(None),
            },
        }
    }

    /// The same; it does not block.
    pub async fn seen(
        this: &Arc<Buffer>,
        place: (TableId, PartitionId),
        key: &Bytes,
    ) -> Result<Seen, Failure> {
        let key = key.clone();
        aside(this, move |buffer| buffer.row(place, &key)).await
    }

    /// The same of several keys, in their order.
    pub async fn rows(
        this: &Arc<Buffer>,
        place: (TableId, PartitionId),
        keys: &[Bytes],
    ) -> Result<Vec<Seen>, Failure> {
        if !this.is_spilled() {
            return keys.iter().map(|key| this.row(place, key)).collect();
        }
        let keys = keys.to_vec();
        aside(this, move |buffer| keys.iter().map(|key| buffer.row(place, key)).collect()).await
    }

    /// The error: what was written is not whole any more, and nothing of it may be read or committed.
    pub fn is_there(&self) -> Result<(), Failure> {
        if self.lost { Err(unreadable("the transaction ended while they were written")) } else { Ok(()) }
    }

    /// What is written here of a range of a table, in the order of keys. An empty `to`: to the table's end.
    pub fn own<'a>(&'a self, table: TableId, (from, to): (&Bytes, &'a Bytes)) -> EditIter<'a> {
        if let Err(why) = self.is_there() {
            return Box::new(std::iter::once(Err(why)));
        }
        let rows = self.tables.get(&table).map(|rows| rows.range(from.clone()..));
        let rows = rows.into_iter().flatten().map(|(_, edit)| edit);
        let rows = rows.take_while(move |edit| to.is_empty() || edit.key < to);
        let here: EditIter<'a> = Box::new(rows.map(|edit| Ok(Cow::Borrowed(edit))));
        match &self.spilled {
            None => here,
            Some(spilled) => {
                let stored = spilled.store.range(table, (from.clone(), to.clone()));
                let both = Layered::boxed(here, Box::new(stored.map(|edit| edit.map(Cow::Owned))));
                Box::new(both.filter(|edit| edit.as_ref().map_or(true, |edit| !edit.is_nothing())))
            }
        }
    }

    /// The same of a whole table.
    pub fn all(&self, table: TableId) -> EditIter<'_> {
        self.own(table, (&Bytes::new(), &END))
    }

    /// What is written in a range of a table, with what is below.
    fn edits<'a>(&'a self, table: TableId, range: (&Bytes, &'a Bytes)) -> EditIter<'a> {
        let own = self.own(table, range);
        match &self.below {
            None => own,
            Some(below) => Layered::boxed(own, below.edits(table, range)),
        }
    }

    /// The first rows of a range of a table that are in it, at most so many, in the order of their keys. An
    /// empty `to`: to the end.
    pub fn range(
        &self,
        table: TableId,
        range: (&Bytes, &Bytes),
        most: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        let mut rows = Vec::new();
        for edit in self.edits(table, range) {
            if rows.len() >= most {
                break;
            }
            let edit = edit?;
            if let After::Row(row) = &edit.after {
                rows.push((edit.key.clone(), row.clone()));
            }
        }
        Ok(rows)
    }

    /// All rows of a table that are in it, to be kept in memory. The error: they are too many for that.
    pub fn whole(&self, table: TableId) -> Result<Vec<(Bytes, Bytes)>, Failure> {
        let spilled = self.spilled.as_ref().or(self.below.as_ref().and_then(|below| below.spilled.as_ref()));
        if spilled.is_some_and(|spilled| spilled.bytes > Limit::LARGE.bytes) {
            let hint = "its rows are to be compared with all that the transaction has written: commit before";
            return Err(Limit::LARGE.passed().hint(hint));
        }
        self.range(table, (&Bytes::new(), &Bytes::new()), usize::MAX)
    }

    /// By how many rows a range of a table has more than without it.
    pub fn grown(&self, table: TableId, range: (&Bytes, &Bytes)) -> Result<i64, Failure> {
        let mut sum = 0;
        for edit in self.own(table, range) {
            let edit = edit?;
            sum += match (edit.existed, &edit.after) {
                (false, After::Row(_)) => 1,
                (true, After::Gone) => -1,
                _ => 0,
            };
        }
        match &self.below {
            Some(below) => Ok(sum + below.grown(table, range)?),
            None => Ok(sum),
        }
    }

    /// The operations that write it all, table by table, if every row must be as it was seen.
    pub fn operations(&self) -> Result<Vec<Written>, Failure> {
        self.is_there()?;
        let all = self.tables().into_iter().map(|table| self.written(table));
        let mut all = all.collect::<Result<Vec<_>, _>>()?;
        all.retain(|written| !written.ops.is_empty());
        Ok(all)
    }

    /// The same of one table.
    pub fn written(&self, table: TableId) -> Result<Written, Failure> {
        let mut written = Written { table, ops: Vec::new(), seen: Vec::new() };
        for edit in self.all(table) {
            let edit = edit?.into_owned();
            let since = edit.since;
            if let Some(op) = edit.operation() {
                written.ops.push(op);
                written.seen.extend(since);
            }
        }
        Ok(written)
    }

    /// What asks whether rows that were there are as they were seen: of those behind the first `passed` as
    /// many as one write has. Nothing: there are no more.
    pub fn unchanged(&self, passed: usize) -> Result<Vec<Written>, Failure> {
        self.is_there()?;
        let (mut all, mut size, mut left) = (Vec::<Written>::new(), (0, 0), passed);
        for table in self.tables() {
            for edit in self.all(table) {
                let edit = edit?;
                if !edit.existed {
                    continue;
                }
                if left > 0 {
                    left -= 1;
                    continue;
                }
                size = (size.0 + 1, size.1 + edit.key.len() + OVERHEAD);
                if !Limit::WRITE.has(size) {
                    return Ok(all);
                }
                if all.last().is_none_or(|last| last.table != table) {
                    all.push(Written { table, ops: Vec::new(), seen: Vec::new() });
                }
                let written = all.last_mut().expect("pushed above");
                written.ops.push(RowOp::Keep { key: edit.key.clone() });
                written.seen.extend(edit.since);
            }
        }
        Ok(all)
    }
}

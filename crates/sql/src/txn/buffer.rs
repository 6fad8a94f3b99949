//! What a transaction has written and not committed: rows of one partition, by table and key, with a failback
//! to each savepoint.

use bytes::Bytes;
use pg::{Failure, code};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use types::{PartitionId, Position, TableId};
use wire::RowOp;

/// The most bytes of keys and rows that a transaction keeps. A write may have twice as many.
pub const MAX_BYTES: usize = 8 << 20;
/// What a row takes beside its own bytes, on the wire and here.
const OVERHEAD: usize = 16;

/// What becomes of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum After {
    /// It is this.
    Row(Bytes),
    /// There is none.
    Gone,
    /// It is as it was, and must still be so when the transaction commits.
    Same,
}

/// One row that a statement writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// Its key, encoded.
    pub key: Bytes,
    /// The statement saw a row with this key.
    pub existed: bool,
    /// What becomes of it.
    pub after: After,
    /// At which state it saw that.
    pub since: Option<Position>,
}

impl Edit {
    fn bytes(&self) -> usize {
        let row = match &self.after {
            After::Row(row) => row.len(),
            After::Gone | After::Same => 0,
        };
        self.key.len() + row + OVERHEAD
    }

    /// The operation that does it, if the row must be as it was seen; `None`: nothing is to be done.
    pub fn operation(self) -> Option<RowOp> {
        let key = self.key;
        Some(match (self.existed, self.after) {
            (true, After::Row(row)) => RowOp::Update { key, row },
            (true, After::Gone) => RowOp::Delete { key },
            (true, After::Same) => RowOp::Keep { key },
            (false, After::Row(row)) => RowOp::Insert { key, row },
            (false, After::Gone | After::Same) => return None,
        })
    }
}

/// The rows that are written. Cheap to clone as long as nobody writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Buffer {
    partition: PartitionId,
    /// They may lie in other partitions, too.
    spread: bool,
    /// Of tables of a database there may be several.
    tables: BTreeMap<TableId, BTreeMap<Bytes, Edit>>,
    rows: usize,
    bytes: usize,
    /// Rows that were not there are written whatever is there then.
    puts: bool,
}

/// What is written of one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// The table.
    pub table: TableId,
    /// Row by row.
    pub ops: Vec<RowOp>,
    /// The states at which the rows were seen: one for each, or none if nobody else knows the table.
    pub seen: Vec<Position>,
}

/// What was in a buffer under a key before a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undo {
    table: TableId,
    key: Bytes,
    before: Option<Edit>,
}

impl Buffer {
    /// The partition whose rows they are; of no meaning while there are none.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Rows of any partitions are taken in from now on.
    pub fn spread(&mut self) {
        self.spread = true;
    }

    /// True if rows of this partition may be in it.
    pub fn holds(&self, partition: PartitionId) -> bool {
        self.spread || self.partition == partition
    }

    /// Among what is written are rows that a program puts, whatever was there: one that has come meanwhile is
    /// none that it must not meet, but one that it has not seen.
    pub fn puts(&mut self) {
        self.puts = true;
    }

    /// True if [`Buffer::puts`] was said.
    pub fn has_puts(&self) -> bool {
        self.puts
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// What the transaction sees under a key of a table in this partition: a row, or none. `None`: what was
    /// there before it.
    pub fn row(&self, (table, partition): (TableId, PartitionId), key: &[u8]) -> Option<Option<&Bytes>> {
        if !self.holds(partition) {
            return None;
        }
        match &self.tables.get(&table)?.get(key)?.after {
            After::Row(row) => Some(Some(row)),
            After::Gone => Some(None),
            After::Same => None,
        }
    }

    /// What is written in a range of a table, in the order of keys. An empty `to`: to the table's end.
    fn edits<'a>(
        &'a self,
        table: TableId,
        (from, to): (&Bytes, &'a Bytes),
    ) -> impl Iterator<Item = &'a Edit> + use<'a> {
        let rows = self.tables.get(&table).map(|rows| rows.range(from.clone()..));
        let rows = rows.into_iter().flatten().map(|(_, edit)| edit);
        rows.take_while(move |edit| to.is_empty() || edit.key < to)
    }

    /// The rows of a range of a table that are in it, in the order of their keys. An empty `to`: to the end.
    pub fn range<'a>(
        &'a self,
        table: TableId,
        range: (&Bytes, &'a Bytes),
    ) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        self.edits(table, range).filter_map(|edit| match &edit.after {
            After::Row(row) => Some((&edit.key, row)),
            After::Gone | After::Same => None,
        })
    }

    /// By how many rows a range of a table has more than without it.
    pub fn grown(&self, table: TableId, range: (&Bytes, &Bytes)) -> i64 {
        let rows = self.edits(table, range);
        rows.map(|edit| match (edit.existed, &edit.after) {
            (false, After::Row(_)) => 1,
            (true, After::Gone) => -1,
            _ => 0,
        })
        .sum()
    }

    /// Takes a statement's writes in, all or none. What they replaced goes to `undo`.
    pub fn take(
        &mut self,
        (table, partition): (TableId, PartitionId),
        edits: Vec<Edit>,
        undo: &mut Vec<Undo>,
    ) -> Result<(), Failure> {
        let more: usize = edits.iter().map(Edit::bytes).sum();
        let most = wire::message::MAX_OPS;
        if self.bytes + more > MAX_BYTES || self.rows + edits.len() > most {
            let message = format!("a transaction writes at most {most} rows, and {MAX_BYTES} bytes of them");
            return Err(Failure::new(code::LIMIT, message).hint("commit more often"));
        }
        self.partition = partition;
        for edit in edits {
            let key = edit.key.clone();
            let before = self.put(table, edit);
            undo.push(Undo { table, key, before });
        }
        Ok(())
    }

    /// Puts one in. What was there.
    fn put(&mut self, table: TableId, mut edit: Edit) -> Option<Edit> {
        let entry = match self.tables.entry(table).or_default().entry(edit.key.clone()) {
            Entry::Vacant(vacant) => {
                if edit.existed || edit.after != After::Gone {
                    self.bytes += edit.bytes();
                    self.rows += 1;
                    vacant.insert(edit);
                }
                return None;
            }
            Entry::Occupied(occupied) => occupied,
        };
        let before = entry.get().clone();
        if edit.after == After::Same {
            // It is locked as it is here.
            return Some(before);
        }
        self.bytes -= before.bytes();
        // Whether there was a row is what the first write saw.
        (edit.existed, edit.since) = (before.existed, before.since);
        match edit.existed || edit.after != After::Gone {
            true => {
                self.bytes += edit.bytes();
                *entry.into_mut() = edit;
            }
            // Inserted and removed: nothing is left of it.
            false => {
                self.rows -= 1;
                drop(entry.remove());
            }
        }
        Some(before)
    }

    /// Takes the rows of a table out, as operations. What was written of it cannot be undone any more.
    pub fn take_out(&mut self, table: TableId) -> Vec<RowOp> {
        let rows = self.tables.remove(&table).unwrap_or_default();
        self.rows -= rows.len();
        self.bytes -= rows.values().map(Edit::bytes).sum::<usize>();
        rows.into_values().filter_map(Edit::operation).collect()
    }

    /// Goes back to how it was when `undo` had this length.
    pub fn back(&mut self, undo: &mut Vec<Undo>, length: usize) {
        while undo.len() > length {
            let Some(Undo { table, key, before }) = undo.pop() else { return };
            let rows = self.tables.entry(table).or_default();
            if let Some(now) = rows.remove(&key) {
                self.bytes -= now.bytes();
                self.rows -= 1;
            }
            if let Some(before) = before {
                self.bytes += before.bytes();
                self.rows += 1;
                rows.insert(key, before);
            }
        }
    }

    /// The operations that write it all, table by table, if every row must be as it was seen.
    pub fn operations(&self) -> Vec<Written> {
        let of = |(table, rows): (&TableId, &BTreeMap<Bytes, Edit>)| {
            let mut written = Written { table: *table, ops: Vec::new(), seen: Vec::new() };
            for edit in rows.values().cloned() {
                let since = edit.since;
                if let Some(op) = edit.operation() {
                    written.ops.push(op);
                    written.seen.extend(since);
                }
            }
            written
        };
        self.tables.iter().map(of).filter(|written| !written.ops.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(key: &str, existed: bool, after: Option<&str>) -> Edit {
        let after = after.map_or(After::Gone, |row| After::Row(Bytes::copy_from_slice(row.as_bytes())));
        Edit { key: Bytes::copy_from_slice(key.as_bytes()), existed, after, since: None }
    }

    fn shown(buffer: &Buffer) -> String {
        let one = |op: &RowOp| {
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            let sign = match op {
                RowOp::Update { .. } => '=',
                RowOp::Delete { .. } => '-',
                RowOp::Keep { .. } => '!',
                _ => '+',
            };
            format!("{sign}{}{}", text(op.key()), op.row().map_or(String::new(), text))
        };
        buffer.operations().iter().flat_map(|written| &written.ops).map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_first_write_of_a_row_says_whether_it_was_there() {
        let (mut buffer, mut undo) = (Buffer::default(), Vec::new());
        let here = (TableId(1), PartitionId(7));
        let steps: &[(Edit, &str)] = &[
            (edit("a", true, Some("1")), "=a1"),
            (edit("b", false, Some("2")), "=a1 +b2"),
            (edit("b", true, Some("3")), "=a1 +b3"),
            (edit("a", true, None), "-a +b3"),
            (edit("b", true, None), "-a"),
            (edit("a", false, Some("4")), "=a4"),
            (Edit { after: After::Same, ..edit("a", true, None) }, "=a4"),
            (Edit { after: After::Same, ..edit("c", true, None) }, "=a4 !c"),
            (edit("c", true, Some("5")), "=a4 =c5"),
        ];
        let mut states = vec![(0, buffer.clone())];
        for (step, expected) in steps {
            buffer.take(here, vec![step.clone()], &mut undo).expect("room");
            assert_eq!(shown(&buffer), *expected, "{step:?}");
            states.push((undo.len(), buffer.clone()));
        }
        let (from, to) = (Bytes::new(), Bytes::from_static(b"c"));
        assert_eq!(buffer.range(TableId(1), (&from, &to)).count(), 1);
        assert_eq!(buffer.range(TableId(2), (&from, &to)).count(), 0);
        assert_eq!(buffer.row((TableId(2), PartitionId(7)), b"a"), None);
        assert_eq!(buffer.row(here, b"a"), Some(Some(&Bytes::from_static(b"4"))));
        assert_eq!(buffer.row((TableId(1), PartitionId(8)), b"a"), None);
        while let Some((length, state)) = states.pop() {
            buffer.back(&mut undo, length);
            assert_eq!((buffer.operations(), buffer.bytes), (state.operations(), state.bytes));
            assert_eq!(buffer.rows, state.rows);
        }
        assert_eq!(buffer.bytes, 0);
    }

    #[test]
    fn what_is_too_much_is_refused_as_a_whole() {
        let (mut buffer, mut undo) = (Buffer::default(), Vec::new());
        let long = "x".repeat(MAX_BYTES / 2);
        let both = vec![edit("a", false, Some(&long)), edit("b", false, Some(&long))];
        let refused = buffer.take((TableId(1), PartitionId(7)), both, &mut undo).expect_err("too much");
        assert_eq!((refused.code, buffer.is_empty(), undo.len()), ("54000", true, 0));
        buffer
            .take((TableId(1), PartitionId(7)), vec![edit("a", false, Some(&long))], &mut undo)
            .expect("room");
        assert_eq!(buffer.grown(TableId(1), (&Bytes::new(), &Bytes::new())), 1);
        buffer.take((TableId(1), PartitionId(7)), vec![edit("a", true, None)], &mut undo).expect("room");
        assert_eq!((buffer.grown(TableId(1), (&Bytes::new(), &Bytes::new())), buffer.bytes), (0, 0));
    }
}

//! What a transaction has written and not committed: rows of one partition, by table and key, with a failback
//! to each savepoint. What is too much for memory is in a file ([`spilling`]); [`reads`] sees both.

mod reads;
mod spilling;

pub use reads::{Seen, aside};

use super::arbiter::Arbiter;
use super::memory::Room;
use bytes::Bytes;
use pg::{Failure, code};
use spilling::Spilled;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use types::{PartitionId, Position, TableId, TableRecord};
use wire::RowOp;
use wire::message::MAX_OPS;

/// The most bytes of keys and rows that `COMMIT` sends as one write, with [`OVERHEAD`] for each row. An entry
/// of the log has room for them; what has more with its index rows goes the way of several entries.
pub const MAX_WRITE_BYTES: usize = 16_000_000;
/// The most rows of a transaction whose tables are filled again if one write is too small (`crate::large`).
const MAX_LARGE_ROWS: usize = 2_000_000;
/// The most bytes of its keys and rows.
const MAX_LARGE_BYTES: usize = 256 << 20;
/// What a row takes beside its own bytes on the wire.
const OVERHEAD: usize = 16;
/// What it takes in memory beside its own bytes.
const ROW_MEMORY: usize = 232;
/// What it takes to go back to what a row was, beside that row's bytes.
const UNDO_MEMORY: usize = 192;

/// How much a transaction may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// So many rows.
    pub rows: usize,
    /// So many bytes of keys and rows.
    pub bytes: usize,
}

impl Limit {
    /// What one write has.
    pub const WRITE: Limit = Limit { rows: MAX_OPS, bytes: MAX_WRITE_BYTES };
    /// Where tables are filled again.
    pub const LARGE: Limit = Limit { rows: MAX_LARGE_ROWS, bytes: MAX_LARGE_BYTES };

    /// Of a transaction that writes this table.
    pub fn of(table: &TableRecord) -> Limit {
        match table.database().is_some() && table.partitions == 1 && !table.is_global() {
            true => Limit::LARGE,
            false => Limit::WRITE,
        }
    }

    /// What of it may be in memory.
    pub fn in_memory(self) -> Limit {
        Limit { rows: self.rows.min(MAX_LARGE_ROWS), bytes: self.bytes.min(MAX_LARGE_BYTES) }
    }

    /// The error of a transaction that writes more.
    pub fn passed(self) -> Failure {
        let Limit { rows, bytes } = self;
        let message = format!("a transaction writes at most {rows} rows, and {bytes} bytes of them");
        Failure::new(code::LIMIT, message).hint("commit more often")
    }

    fn has(self, (rows, bytes): (usize, usize)) -> bool {
        rows <= self.rows && bytes <= self.bytes
    }
}

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
    /// By what it has looked for another row, to do something else if there is one.
    pub arbiter: Arbiter,
}

impl Edit {
    /// Of a statement that demands no more than what it saw; at which state it saw that is said when the
    /// transaction takes it in.
    pub fn new(key: Bytes, existed: bool, after: After) -> Edit {
        Edit { key, existed, after, since: None, arbiter: Arbiter::None }
    }

    /// What it takes of a write.
    pub fn bytes(&self) -> usize {
        let row = match &self.after {
            After::Row(row) => row.len(),
            After::Gone | After::Same => 0,
        };
        self.key.len() + row + OVERHEAD
    }

    /// True if nothing is to be done: a row was inserted and removed. Of what a file has it says that it
    /// counts no more.
    pub fn is_nothing(&self) -> bool {
        !self.existed && self.after == After::Gone
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

/// The rows that are written. A clone has all of them once more.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// What was written before; what is here counts first. Only who looks ahead has such a buffer.
    below: Option<Arc<Buffer>>,
    /// It may have more than one write has.
    large: bool,
    /// The memory that it takes.
    room: Option<Arc<Room>>,
    partition: PartitionId,
    /// They may lie in other partitions, too.
    spread: bool,
    /// Of tables of a database there may be several.
    tables: BTreeMap<TableId, BTreeMap<Bytes, Edit>>,
    rows: usize,
    bytes: usize,
    /// Rows that were not there are written whatever is there then.
    puts: bool,
    /// What was written before and is in a file; what is in `tables` counts first.
    spilled: Option<Spilled>,
    /// What was written is in no file and not here: nothing can be read any more.
    lost: bool,
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
struct Undo {
    table: TableId,
    key: Bytes,
    before: Option<Edit>,
}

impl Undo {
    fn memory(&self) -> usize {
        UNDO_MEMORY + self.before.as_ref().map_or(0, Edit::bytes)
    }
}

/// What a buffer was before writes, the newest last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UndoLog {
    undo: Vec<Undo>,
    memory: usize,
}

impl UndoLog {
    /// How many writes it can undo.
    pub fn len(&self) -> usize {
        self.undo.len()
    }

    /// True if it can undo none.
    pub fn is_empty(&self) -> bool {
        self.undo.is_empty()
    }

    fn push(&mut self, undo: Undo) {
        self.memory += undo.memory();
        self.undo.push(undo);
    }

    fn pop(&mut self) -> Option<Undo> {
        let undo = self.undo.pop()?;
        self.memory -= undo.memory();
        Some(undo)
    }
}

impl Buffer {
    /// A transaction's, which may be large and takes its memory from this room.
    pub fn with_room(room: Room) -> Buffer {
        Buffer { large: true, room: Some(Arc::new(room)), ..Buffer::default() }
    }

    /// For who writes. Somebody who still reads by it keeps it as it is, and the copy that is written needs
    /// as much memory once more.
    pub fn writable(this: &mut Arc<Buffer>) -> Result<&mut Buffer, Failure> {
        if Arc::get_mut(this).is_none() {
            let room = this.room.as_ref().map(|room| room.another()).transpose()?;
            *this = Arc::new(Buffer { room: room.map(Arc::new), ..(**this).clone() });
        }
        Ok(Arc::make_mut(this))
    }

    /// A buffer over this one: for who looks what becomes of rows before they are written. Its memory is not
    /// counted.
    pub fn over(below: &Arc<Buffer>) -> Buffer {
        let Buffer { large, partition, spread, puts, .. } = **below;
        Buffer { below: Some(below.clone()), large, partition, spread, puts, ..Buffer::default() }
    }

    /// True if it lies over another one.
    pub fn is_ahead(&self) -> bool {
        self.below.is_some()
    }

    /// True if a row is among what this buffer has over another one.
    pub fn is_written_ahead(&self, table: TableId, key: &[u8]) -> bool {
        self.is_ahead() && self.tables.get(&table).is_some_and(|rows| rows.contains_key(key))
    }

    /// How much may be written of this table.
    pub fn limit(&self, table: &TableRecord) -> Limit {
        if self.large { Limit::of(table) } else { Limit::WRITE }
    }

    /// The partition whose rows they are; of no meaning while there are none.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Rows of any partitions are taken in from now on.
    pub fn spread(&mut self) {
        self.spread = true;
    }

    /// True if [`Buffer::spread`] was said.
    pub fn is_spread(&self) -> bool {
        self.spread
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

    /// True if a row of a table is in memory.
    pub fn has_rows(&self, table: TableId) -> bool {
        let rows = self.tables.get(&table).into_iter().flat_map(|rows| rows.values());
        rows.into_iter().any(|edit| matches!(edit.after, After::Row(_)))
    }

    /// True if nothing was written to it.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
            && self.spilled.is_none()
            && !self.lost
            && self.below.as_ref().is_none_or(|below| below.is_empty())
    }

    /// True if one write has all rows, those of these tables left out.
    pub fn fits_a_write(&self, but: impl Fn(TableId) -> bool) -> bool {
        if self.spilled.is_some() || self.lost {
            return false;
        }
        if Limit::WRITE.has((self.rows, self.bytes)) {
            return true;
        }
        let rows = self.tables.iter().filter(|(table, _)| !but(**table)).flat_map(|(_, rows)| rows.values());
        let mut size = (0, 0);
        for edit in rows {
            size = (size.0 + 1, size.1 + edit.bytes());
            if !Limit::WRITE.has(size) {
                return false;
            }
        }
        true
    }

    /// Takes a statement's writes in, all or none. What they replaced goes to `undo`, if it is kept.
    pub fn take(
        &mut self,
        (table, partition): (TableId, PartitionId),
        edits: Vec<Edit>,
        (limit, mut undo): (Limit, Option<&mut UndoLog>),
    ) -> Result<(), Failure> {
        self.admit(table, &edits, (limit, undo.as_deref()))?;
        self.put_all((table, partition), edits, undo.as_deref_mut());
        self.settle(undo.as_deref());
        Ok(())
    }

    /// Sees to it that there is room for these writes. The error: there is none, or they are too many.
    pub fn admit(
        &self,
        table: TableId,
        edits: &[Edit],
        (limit, undo): (Limit, Option<&UndoLog>),
    ) -> Result<(), Failure> {
        let (size, replaced) = self.size_with(table, edits);
        let (rows, bytes) = self.spilled.as_ref().map_or((0, 0), |spilled| (spilled.rows, spilled.bytes));
        if !limit.has((size.0 + rows, size.1 + bytes)) {
            return Err(limit.passed());
        }
        // What cannot be spilled, as it is behind a savepoint, is bounded by itself.
        let in_memory = limit.in_memory();
        if !in_memory.has(size) {
            return Err(in_memory.passed());
        }
        let kept = undo.map_or(0, |undo| undo.memory + UNDO_MEMORY * edits.len() + replaced);
        self.hold(memory(size) + kept)
    }

    /// Puts writes in that were admitted.
    pub fn put_all(
        &mut self,
        (table, partition): (TableId, PartitionId),
        edits: impl IntoIterator<Item = Edit>,
        mut undo: Option<&mut UndoLog>,
    ) {
        self.partition = partition;
        for edit in edits {
            let key = edit.key.clone();
            let before = self.put(table, edit);
            if let Some(undo) = &mut undo {
                undo.push(Undo { table, key, before });
            }
        }
    }

    /// How many rows and bytes there are at most behind these edits, and the bytes of what they replace.
    fn size_with(&self, table: TableId, edits: &[Edit]) -> ((usize, usize), usize) {
        let known = self.tables.get(&table).filter(|known| !known.is_empty());
        let (mut rows, mut bytes, mut replaced) = (self.rows, self.bytes, 0);
        for edit in edits {
            match known.and_then(|known| known.get(&edit.key)) {
                None => (rows, bytes) = (rows + 1, bytes + edit.bytes()),
                Some(before) => {
                    replaced += before.bytes();
                    if edit.after != After::Same {
                        bytes = (bytes + edit.bytes()).saturating_sub(before.bytes());
                    }
                }
            }
        }
        ((rows, bytes), replaced)
    }

    fn hold(&self, bytes: usize) -> Result<(), Failure> {
        self.room.as_ref().map_or(Ok(()), |room| room.hold(bytes))
    }

    /// Takes no more memory from here on than it needs, with what is kept to undo writes.
    pub fn settle(&self, undo: Option<&UndoLog>) {
        let kept = undo.map_or(0, |undo| undo.memory);
        self.note_kept();
        // It is less than it had, or not much more: then the next write is told.
        drop(self.hold(memory((self.rows, self.bytes)) + kept));
    }

    /// Puts one in. What was there.
    fn put(&mut self, table: TableId, mut edit: Edit) -> Option<Edit> {
        let entry = match self.tables.entry(table).or_default().entry(edit.key.clone()) {
            Entry::Vacant(vacant) => {
                if !edit.is_nothing() {
                    self.bytes += edit.bytes();
                    self.rows += 1;
                    vacant.insert(edit);
                }
                return None;
            }
            Entry::Occupied(occupied) => occupied,
        };
        let before = entry.get().clone();
        if before.is_nothing() {
            if !edit.is_nothing() {
                self.bytes = self.bytes + edit.bytes() - before.bytes();
                *entry.into_mut() = edit;
            }
            return Some(before);
        }
        if edit.after == After::Same {
            // It is locked as it is here.
            return Some(before);
        }
        self.bytes -= before.bytes();
        // Whether there was a row is what the first write saw.
        (edit.existed, edit.since) = (before.existed, before.since);
        let stays = matches!((&before.after, &edit.after), (After::Row(_), After::Row(_)));
        if stays && edit.arbiter == Arbiter::None {
            edit.arbiter = before.arbiter;
        }
        // If a file has it too, it is said that this counts no more.
        match self.spilled.is_some() || !edit.is_nothing() {
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
    pub fn back(&mut self, undo: &mut UndoLog, length: usize) {
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
        undo.undo.shrink_to(length);
    }
}

/// What so many rows take in memory.
fn memory((rows, bytes): (usize, usize)) -> usize {
    rows * ROW_MEMORY + bytes
}

#[cfg(test)]
mod tests;

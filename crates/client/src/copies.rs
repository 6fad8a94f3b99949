//! Rows of replicated tables, copied from one partition of a database to another one ([`wire::spread`]).
//!
//! A partition has all rows of such a table if the table has a name there, so its rows are written before,
//! into a definition without one (PR-405). They never change under their table's id. Several clients may copy
//! the same rows at once, and each writes all of them: what one of them has left half done is of no concern.

use crate::client::Client;
use crate::database::{Database, created};
use crate::error::ClientError;
use crate::table::{Table, unexpected};
use bytes::Bytes;
use std::borrow::Cow;
use types::{CatalogTable, PartitionId, Position, TableState};
use wire::request::ReadSnapshot;
use wire::spread::Tables;
use wire::{Body, Op, RowOp};

/// Rows of a page, which are written at once.
const ROWS: u32 = 2_000;
/// Bytes of keys and rows behind which no more are written at once.
const BYTES: usize = 4 << 20;

/// A partition's tables with those that have got their rows, and the last entry that it rests on.
pub(crate) type Copied<'a> = (Cow<'a, Tables>, Option<Position>);

/// What was written to a partition until now.
#[derive(Default)]
struct Written {
    /// The last entry.
    last: Option<Position>,
}

impl Written {
    /// One more entry. All of them are of one term: then a log that has the last one has all others, too.
    fn note(&mut self, at: Position) -> Result<(), ClientError> {
        match self.last {
            Some(before) if before.term != at.term => Err(ClientError::Changed),
            _ => {
                self.last = Some(at);
                Ok(())
            }
        }
    }
}

impl Client {
    /// Copies rows of these tables, each from a partition that has all of them, to another partition, whose
    /// tables are `own`. What names the tables there must rest on the entry that is given.
    /// [`ClientError::Stale`], [`ClientError::Changed`]: tables have changed, or a failover has lost rows; it
    /// is to be done again.
    pub(crate) fn copy_tables<'a>(
        &mut self,
        database: &Database,
        (to, own): (PartitionId, &'a Tables),
        tables: Vec<(&CatalogTable, PartitionId)>,
    ) -> Result<Copied<'a>, ClientError> {
        let (mut own, mut written) = (Cow::Borrowed(own), Written::default());
        for (table, from) in tables {
            let filling = match own.get(&table.id) {
                Some((_, known)) => known.clone(),
                None => self.begin_copy(database, (table, to), &mut written)?,
            };
            let (source, target) = (database.table(table.clone()), database.table(filling.clone()));
            self.copy_rows((&source, from), (&target, to), &mut written)?;
            own.to_mut().insert(table.id, (TableState::Filling, filling));
        }
        Ok((own, written.last))
    }

    /// Makes the definition that gets the rows.
    fn begin_copy(
        &mut self,
        database: &Database,
        (table, to): (&CatalogTable, PartitionId),
        written: &mut Written,
    ) -> Result<CatalogTable, ClientError> {
        let bad = |why: String| ClientError::Data { table: table.name.clone(), why };
        let filling = table.to_fill().map_err(bad)?;
        let made = database.transact_in(to, vec![created(&filling)], Vec::new(), None);
        written.note(self.call(made)?.position())?;
        Ok(filling)
    }

    /// Writes all rows that are there, as they are stored.
    fn copy_rows(
        &mut self,
        (source, from): (&Table, PartitionId),
        (target, to): (&Table, PartitionId),
        written: &mut Written,
    ) -> Result<(), ClientError> {
        let mut next = Some(Bytes::new());
        while let Some(first) = next {
            let op = Op::Scan { from: first, to: Bytes::new(), limit: ROWS, at: ReadSnapshot::Newest };
            let (rows, more) = match self.call(source.call(from, op))?.body {
                Body::Rows { rows, more } => (rows, more),
                other => return Err(unexpected(&other)),
            };
            // The smallest key above the last one.
            let last = rows.last().map(|(last, ..)| Bytes::from([last, &[0u8][..]].concat()));
            let (mut ops, mut bytes) = (Vec::new(), 0);
            for (key, _, row) in rows {
                bytes += key.len() + row.len();
                ops.push(RowOp::Put { key, row });
                if bytes >= BYTES {
                    let full = target.write(to, std::mem::take(&mut ops));
                    written.note(self.call(full)?.position())?;
                    bytes = 0;
                }
            }
            if !ops.is_empty() {
                written.note(self.call(target.write(to, ops))?.position())?;
            }
            next = last.filter(|_| more);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Lsn, Term};

    #[test]
    fn pr405_what_was_written_in_two_terms_is_written_again() {
        let at = |term, lsn| Position::new(Term(term), Lsn(lsn));
        let mut written = Written::default();
        assert_eq!((written.note(at(2, 10)), written.note(at(2, 11))), (Ok(()), Ok(())));
        assert_eq!(written.note(at(3, 12)), Err(ClientError::Changed), "the first ones may be lost");
        assert_eq!(written.last, Some(at(2, 11)));
    }
}

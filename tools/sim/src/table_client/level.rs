//! How a partition of a database is brought to the tables that the first one has (PR-170): its own catalog is
//! read, then the first one's, and one entry does what is lacking, by the code of real clients
//! ([`wire::spread`]). Some stop in the middle, as if they had died; whoever comes next begins at the start.

use crate::check::catalog::is_reserved;
use crate::check::tables::TableAnswer;
use crate::random::Stream;
use bytes::Bytes;
use std::collections::BTreeSet;
use types::{CatalogTable, Lsn, PartitionId, Position, Rules};
use wire::TableChange;
use wire::spread::{self, Tables};

/// Of a thousand who go on so many stop.
const STOPS: u64 = 120;

/// What is asked next.
#[derive(Debug)]
pub(super) enum Step {
    /// The partition's own catalog.
    Own,
    /// The first one's. It had these tables before.
    First(Tables),
    /// That it makes these changes.
    Change(Vec<TableChange>),
}

/// How far a client is with it.
#[derive(Debug)]
pub(super) struct Level {
    first: PartitionId,
    rules: Rules,
    random: Stream,
    step: Step,
    next_at: u64,
}

impl Level {
    /// Of a client whose partition is not this first one.
    pub fn new(first: PartitionId, rules: Rules, random: Stream) -> Level {
        Level { first, rules, random, step: Step::Own, next_at: 0 }
    }

    /// The first partition.
    pub fn first(&self) -> PartitionId {
        self.first
    }

    /// What is asked now, if it is time.
    pub fn due(&self, now: u64) -> Option<&Step> {
        (now >= self.next_at).then_some(&self.step)
    }

    /// A catalog was read, in this state: what comes next follows from it.
    pub fn read(&mut self, rows: &[(Bytes, Lsn, Bytes)], at: Position) {
        self.step = match std::mem::replace(&mut self.step, Step::Own) {
            Step::Own => Step::First(tables_of(rows, None)),
            Step::First(own) => {
                let first = tables_of(rows, Some(at));
                match spread::changes_by(&own, &first, &BTreeSet::new(), self.rules) {
                    changes if changes.is_empty() => Step::Own,
                    changes => Step::Change(changes),
                }
            }
            Step::Change(_) => Step::Own,
        };
    }

    /// What was asked has ended so.
    pub fn ended(&mut self, now: u64, told: &TableAnswer) {
        let goes_on = matches!(told, TableAnswer::Shown(..)) && !matches!(self.step, Step::Own);
        if goes_on && !self.random.chance(STOPS) {
            self.next_at = now;
            return;
        }
        self.step = Step::Own;
        self.next_at = now + self.random.between(50_000, 500_000);
    }
}

/// The tables of a catalog. Those of the first partition, read `at`, say where in its log they are.
fn tables_of(rows: &[(Bytes, Lsn, Bytes)], at: Option<Position>) -> Tables {
    let mut tables = Tables::new();
    for (key, lsn, row) in rows.iter().filter(|(key, ..)| !is_reserved(key)) {
        let Ok((state, mut table)) = CatalogTable::decode(key, row) else { continue };
        table.seen = at.map(|at| Position::new(at.term, *lsn));
        tables.insert(table.id, (state, table));
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::catalog::{Standing, Table};
    use crate::check::tables::Shown;
    use crate::random::Concern;
    use types::{Epoch, TableId, Term};

    fn catalog(ids: &[u32]) -> Vec<(Bytes, Lsn, Bytes)> {
        let row = |id: &u32| {
            let (name, standing, keeps) = (format!("t{id}"), Standing::Live, Vec::new());
            let table = Table { id: TableId(*id), name, version: 1, more: 0, standing, keeps }.definition();
            (Bytes::copy_from_slice(&id.to_be_bytes()), Lsn(3), table.encode(table.state()))
        };
        ids.iter().map(row).collect()
    }

    #[test]
    fn a_partition_gets_what_the_first_one_has_unless_who_brings_it_stops() {
        let at = Position::new(Term(1), Lsn(5));
        let shown = TableAnswer::Shown(Shown::Tables(Vec::new()), Lsn(5), Epoch(1));
        let (mut changed, mut stopped) = (0, 0);
        for which in 0..200 {
            let mut level = Level::new(PartitionId(64), Rules::ALL, Stream::new(7, Concern::Workload, which));
            assert!(matches!(level.due(0), Some(Step::Own)));
            level.read(&catalog(&[7, 9]), at);
            level.ended(10, &shown);
            if level.due(10).is_none() {
                stopped += 1;
                continue;
            }
            assert!(matches!(level.due(10), Some(Step::First(_))));
            level.read(&catalog(&[8, 9]), at);
            level.ended(20, &shown);
            let Some(Step::Change(changes)) = level.due(20) else { continue };
            let [TableChange::Drop { table: TableId(7), schema: 1 }, TableChange::Create(text)] =
                &changes[..]
            else {
                panic!("{changes:?}")
            };
            let made: CatalogTable = text.read().expect("a table");
            assert_eq!((made.id, made.seen), (TableId(8), Some(Position::new(Term(1), Lsn(3)))));
            changed += 1;
            level.ended(30, &TableAnswer::Done(at));
            assert!(level.due(30).is_none() && matches!(level.due(900_000), Some(Step::Own)));
        }
        assert!(changed > 100 && stopped > 5, "{changed} and {stopped}");
        // Nothing is lacking.
        let mut level = Level::new(PartitionId(64), Rules::ALL, Stream::new(7, Concern::Workload, 1));
        level.read(&catalog(&[7]), at);
        level.read(&catalog(&[7]), at);
        assert!(matches!(level.due(0), Some(Step::Own)));
    }
}

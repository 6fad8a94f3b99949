//! A transaction over two tables in several entries, as SQL commits large ones: the tables are held, copies
//! without names are made and filled by several writes, and one last entry gives the copies the names.
//! Nothing of it is to be seen before that one. Where something fails all is given up, in one entry, or in
//! steps if that cannot be done at once (PR-371).

use super::numbers::Numbers;
use crate::check::catalog::{Demands, Kept, Standing, Table};
use crate::check::tables::{TableAnswer, TableChange};
use crate::random::Stream;
use types::TableId;

/// What is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The tables are held, all in one entry.
    Hold,
    /// Their copies are made.
    Make,
    /// So many more writes fill the copies.
    Fill(u32),
    /// The copies take the places of the tables.
    Commit,
    /// All is given up, in one entry.
    GiveUp,
    /// The same in steps, of which so many are done: all copies first, then table by table.
    Steps(usize),
}

/// A table that is written.
#[derive(Debug)]
struct Written {
    /// Its version before.
    from: u32,
    /// The table as it is held.
    held: Table,
    /// What takes its place, once that was made.
    copy: Option<Table>,
}

/// A large transaction under way.
#[derive(Debug)]
pub(super) struct Large {
    tables: Vec<Written>,
    /// So many writes fill the copies.
    writes: u32,
    step: Step,
}

impl Large {
    /// One over these tables. Takes a number for each.
    pub fn begin(tables: Vec<Table>, writes: u32, numbers: &mut Numbers) -> Large {
        let held = |table: Table| {
            let (from, version) = (table.version, number(numbers));
            Written { from, held: Table { version, standing: Standing::Held, ..table }, copy: None }
        };
        Large { tables: tables.into_iter().map(held).collect(), writes, step: Step::Hold }
    }

    /// True if the next entry is the last one.
    pub fn commits(&self) -> bool {
        self.step == Step::Commit
    }

    /// The changes of tables that come next, or the copy that is written. Takes three numbers at most.
    pub fn next(&mut self, numbers: &mut Numbers, random: &mut Stream) -> (Vec<TableChange>, Option<Table>) {
        let changes = match self.step {
            Step::Hold => {
                let hold = |one: &Written| TableChange::Alter(one.from, one.held.clone());
                self.tables.iter().map(hold).collect()
            }
            Step::Make => self.make(numbers, random),
            Step::Fill(_) => {
                let copies: Vec<&Table> = self.copies().collect();
                return (Vec::new(), random.pick(&copies).map(|copy| (*copy).clone()));
            }
            Step::Commit => {
                let drop = |one: &Written| TableChange::Drop(one.held.id, one.held.version);
                let mut changes: Vec<TableChange> = self.tables.iter().map(drop).collect();
                changes.extend(self.copies().map(|copy| live(copy, numbers)));
                changes
            }
            Step::GiveUp => {
                let mut changes = self.without_copies();
                changes.extend(self.tables.iter().map(|one| live(&one.held, numbers)));
                changes
            }
            Step::Steps(0) => self.without_copies(),
            Step::Steps(at) => vec![live(&self.tables[at - 1].held, numbers)],
        };
        (changes, None)
    }

    fn copies(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter_map(|one| one.copy.as_ref())
    }

    fn without_copies(&self) -> Vec<TableChange> {
        self.copies().map(|copy| TableChange::Drop(copy.id, copy.version)).collect()
    }

    /// Makes the copies; rows of the last one may refer to rows of the first.
    fn make(&mut self, numbers: &mut Numbers, random: &mut Stream) -> Vec<TableChange> {
        for one in &mut self.tables {
            let standing = Standing::Filling(one.held.id);
            let (id, keeps) = (TableId(number(numbers)), Vec::new());
            one.copy = Some(Table { id, version: 1, standing, keeps, ..one.held.clone() });
        }
        let first = self.copies().next().map(|copy| copy.id);
        let last = self.tables.last_mut().and_then(|one| one.copy.as_mut());
        if let (Some(first), Some(last)) = (first, last)
            && random.chance(400)
        {
            last.keeps.push(Kept::new(number(numbers), Demands::Parents(first)));
        }
        self.copies().map(|copy| TableChange::Create(copy.clone())).collect()
    }

    /// What came of the last step. False: there is nothing more to be done.
    pub fn heard(&mut self, told: &TableAnswer) -> bool {
        let done = matches!(told, TableAnswer::Done(_));
        self.step = match (self.step, done) {
            (Step::Hold, true) => Step::Make,
            (Step::Make, true) => Step::Fill(self.writes),
            (Step::Fill(left), true) if left > 1 => Step::Fill(left - 1),
            (Step::Fill(_), true) => Step::Commit,
            (Step::Make | Step::Fill(_), false) => Step::GiveUp,
            // What is not known may be done.
            (Step::Commit, false) if *told != TableAnswer::Unknown => Step::GiveUp,
            (Step::GiveUp, false) => Step::Steps(0),
            (Step::Steps(at), _) if at < self.tables.len() => Step::Steps(at + 1),
            _ => return false,
        };
        true
    }
}

fn number(numbers: &mut Numbers) -> u32 {
    numbers.take().expect("there are enough")
}

/// A table is live again, or for the first time, under a version that no table had.
fn live(table: &Table, numbers: &mut Numbers) -> TableChange {
    let to = Table { version: number(numbers), standing: Standing::Live, ..table.clone() };
    TableChange::Alter(table.version, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tables::Refused;
    use crate::random::Concern;
    use types::{Lsn, Position, Term};

    fn large() -> (Large, Numbers, Stream) {
        let table = |id: u32| Table {
            id: TableId(id),
            name: format!("t{id}"),
            version: 3,
            more: 0,
            standing: Standing::Live,
            keeps: Vec::new(),
        };
        let mut numbers = Numbers::of(20..80);
        let large = Large::begin(vec![table(7), table(8)], 2, &mut numbers);
        (large, numbers, Stream::new(1, Concern::Workload, 0))
    }

    /// What each change is, and the version that it names.
    fn brief(changes: &[TableChange]) -> Vec<(&'static str, u32, u32)> {
        let brief = |change: &TableChange| match change {
            TableChange::Create(table) => ("create", table.id.0, 0),
            TableChange::Alter(from, to) if to.standing == Standing::Held => ("hold", to.id.0, *from),
            TableChange::Alter(from, to) => ("live", to.id.0, *from),
            TableChange::Drop(id, version) => ("drop", id.0, *version),
        };
        changes.iter().map(brief).collect()
    }

    #[test]
    fn a_large_transaction_is_named_by_one_entry_behind_all_that_fills_it() {
        let (mut large, mut numbers, mut random) = large();
        let done = TableAnswer::Done(Position::new(Term(1), Lsn(9)));
        let mut steps = Vec::new();
        loop {
            let commits = large.commits();
            let (changes, copy) = large.next(&mut numbers, &mut random);
            assert_eq!(copy.is_some(), changes.is_empty(), "rows are written into a copy");
            steps.push(brief(&changes));
            let goes_on = large.heard(&done);
            assert_eq!(goes_on, !commits);
            if !goes_on {
                break;
            }
        }
        let expected: [&[(&str, u32, u32)]; 5] = [
            &[("hold", 7, 3), ("hold", 8, 3)],
            &[("create", 22, 0), ("create", 23, 0)],
            &[],
            &[],
            &[("drop", 7, 20), ("drop", 8, 21), ("live", 22, 1), ("live", 23, 1)],
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn pr371_what_cannot_be_given_up_at_once_is_given_up_in_steps() {
        let (mut large, mut numbers, mut random) = large();
        let done = TableAnswer::Done(Position::new(Term(1), Lsn(9)));
        let stale = TableAnswer::Refused(Refused::Stale, Lsn(9));
        for told in [&done, &done, &stale] {
            large.next(&mut numbers, &mut random);
            assert!(large.heard(told));
        }
        let (all, _) = large.next(&mut numbers, &mut random);
        let lifts = [("live", 7, 20), ("live", 8, 21)];
        assert_eq!(brief(&all)[..2], [("drop", 22, 1), ("drop", 23, 1)]);
        assert_eq!(brief(&all)[2..], lifts);
        assert!(large.heard(&stale));
        let (copies, _) = large.next(&mut numbers, &mut random);
        assert_eq!(brief(&copies), [("drop", 22, 1), ("drop", 23, 1)]);
        for (at, lift) in lifts.into_iter().enumerate() {
            assert!(large.heard(&stale), "step {at}");
            let (one, _) = large.next(&mut numbers, &mut random);
            assert_eq!(brief(&one), [lift]);
        }
        assert!(!large.heard(&done));
        // Nothing is held where holding was refused, and what is not known may be done.
        let (mut large, ..) = self::large();
        assert!(!large.heard(&stale));
    }
}

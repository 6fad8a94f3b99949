//! What a client of a database asks next: it makes, changes and drops tables, writes rows of several, and
//! reads them, by a catalog that others change meanwhile.

use super::large::Large;
use super::numbers::Numbers;
use crate::check::catalog::{Demands, Kept, Standing, Table};
use crate::check::history::{Bound, KeyRange, RowChange};
use crate::check::tables::{Asked, Part, Shown, TableAnswer, TableChange, Transaction, What};
use crate::random::Stream;
use crate::rows::MOST_COLUMNS;
use types::{Lsn, Position, TableId, Term};
use wire::request::ReadSnapshot;

/// Names of tables: few, so that they are taken.
const NAMES: [&str; 5] = ["accounts", "branches", "history", "orders", "tellers"];
/// Keys of rows: few, so that writes meet.
const KEYS: u64 = 7;
/// With more tables than this some are dropped.
const MOST_TABLES: usize = 5;

/// A table is being copied into another id, which then takes its place (PR-124): the next step.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Refill {
    /// It is held, or will be.
    Hold(Table),
    /// The other id is made, and has no name.
    Make(Table, Table),
    /// Its rows are read.
    Read(Table, Table),
    /// They are written into the other id.
    Copy(Table, Table, Vec<String>),
    /// The one is dropped, and the other gets its name.
    Switch(Table, Table),
}

/// What a client knows and wants.
#[derive(Debug)]
pub(super) struct Choices {
    random: Stream,
    /// It makes, changes and drops tables. Else others do, elsewhere.
    changes: bool,
    /// It makes large transactions, too.
    enlarges: bool,
    /// The tables as they were when it last looked.
    tables: Vec<Table>,
    /// What some were before that.
    older: Vec<Table>,
    /// It has to look again.
    looks: bool,
    refill: Option<Refill>,
    /// A large transaction, and whether a step of it was asked for last.
    large: (Option<Large>, bool),
    /// The newest state that a primary has shown.
    seen: Option<Position>,
    /// The greatest LSN that was told.
    token: Lsn,
}

impl Choices {
    /// Of a client that knows nothing. It changes tables or not, and makes large transactions or not.
    pub fn new(random: Stream, (changes, enlarges): (bool, bool)) -> Choices {
        Choices {
            random,
            changes,
            enlarges,
            tables: Vec::new(),
            older: Vec::new(),
            looks: true,
            refill: None,
            large: (None, false),
            seen: None,
            token: Lsn::ZERO,
        }
    }

    /// Where its decisions are drawn from.
    pub fn random(&mut self) -> &mut Stream {
        &mut self.random
    }

    /// The next operation; a write is known by `value`.
    pub fn next(&mut self, value: u64, numbers: &mut Numbers) -> Asked {
        if self.looks || self.random.chance(60) {
            return Asked::Catalog(self.snapshot());
        }
        if self.refill.is_some() && numbers.are_enough() {
            // Some die in the middle.
            match self.random.chance(60) {
                true => self.refill = None,
                false => return self.refilling(value, numbers),
            }
        }
        if self.enlarges && numbers.are_enough() {
            let large = self.enlarging(value, numbers);
            if let Some(asked) = large.or_else(|| self.cascading(value)) {
                return asked;
            }
        }
        let choice = self.random.below(100);
        if self.changes && numbers.are_enough() && (choice < 26 || self.tables.is_empty()) {
            return self.changing(value, numbers);
        }
        match self.tables.is_empty() {
            true => Asked::Catalog(ReadSnapshot::Newest),
            false if choice < 66 => self.writing(value),
            false => self.reading(),
        }
    }

    fn snapshot(&mut self) -> ReadSnapshot {
        match (self.random.below(10), self.seen) {
            (0..2, Some(at)) => ReadSnapshot::At(at),
            (2..5, _) => ReadSnapshot::Begin,
            _ => ReadSnapshot::Newest,
        }
    }

    /// One of the tables that it knows, now and then as it was before.
    fn table(&mut self) -> Option<Table> {
        if let Some(old) = self.random.pick(&self.older).cloned().filter(|_| self.random.chance(70)) {
            return Some(old);
        }
        self.random.pick(&self.tables).cloned()
    }

    /// A write that rests on nothing.
    pub fn write(value: u64, changes: Vec<TableChange>, parts: Vec<Part>) -> Asked {
        let (since, alone) = (None, false);
        Asked::Write(Box::new(Transaction { value, changes, parts, since, alone }))
    }

    fn changing(&mut self, value: u64, numbers: &mut Numbers) -> Asked {
        let (changes, parts) = self.changes(numbers);
        Choices::write(value, changes, parts)
    }

    fn changes(&mut self, numbers: &mut Numbers) -> (Vec<TableChange>, Vec<Part>) {
        let (kind, rows) = (self.random.below(100), self.random.chance(500));
        let of = self.table().filter(|_| kind >= 35 || self.tables.len() > MOST_TABLES);
        let Some(table) = of else {
            let name = self.random.pick(&NAMES).expect("not empty").to_string();
            return self.created(&name, numbers, rows);
        };
        if table.standing == Standing::Held && self.random.chance(600) {
            return self.altered(&table, numbers, |table| table.standing = Standing::Live);
        }
        let drop = TableChange::Drop(table.id, table.version);
        match kind {
            // TRUNCATE.
            35..50 => {
                let (mut changes, parts) = self.created(&table.name, numbers, rows);
                changes.insert(0, drop);
                (changes, parts)
            }
            50..60 => {
                let parts = if rows { self.parts() } else { Vec::new() };
                let others = |part: &Part| part.table != table.id;
                (vec![drop], parts.into_iter().filter(others).collect())
            }
            60..68 => {
                let name = self.random.pick(&NAMES).expect("not empty").to_string();
                self.altered(&table, numbers, |table| table.name = name)
            }
            68..75 => self.altered(&table, numbers, |table| table.more = MOST_COLUMNS.min(table.more + 1)),
            // Its last column would go, and rows that are there could not be read.
            75..78 => self.altered(&table, numbers, |table| table.more = table.more.saturating_sub(1)),
            78..88 => {
                let keeps = self.constrained(&table, numbers);
                self.altered(&table, numbers, |table| table.keeps = keeps)
            }
            88..96 if table.standing == Standing::Live => {
                self.refill = Some(Refill::Hold(table.clone()));
                self.altered(&table, numbers, |table| table.standing = Standing::Held)
            }
            _ => (vec![drop], Vec::new()),
        }
    }

    /// A new table of this name, with rows of it and others if so.
    fn created(&mut self, name: &str, numbers: &mut Numbers, rows: bool) -> (Vec<TableChange>, Vec<Part>) {
        let id = TableId(numbers.take().expect("there are enough"));
        let more = self.random.below(2) as u32;
        let (standing, keeps) = (Standing::Live, Vec::new());
        let mut table = Table { id, name: name.into(), version: 1, more, standing, keeps };
        if self.random.chance(500) {
            table.keeps = self.constrained(&table, numbers);
        }
        let mut parts = Vec::new();
        if rows {
            let ops = self.ops();
            parts = if self.random.chance(400) { self.parts() } else { parts };
            parts.push(Part { table: id, version: 1, more, ops, seen: Vec::new() });
        }
        (vec![TableChange::Create(table)], parts)
    }

    /// The constraints of a table with one more, or without one of them.
    fn constrained(&mut self, table: &Table, numbers: &mut Numbers) -> Vec<Kept> {
        let mut keeps = table.keeps.clone();
        if !keeps.is_empty() && self.random.chance(400) {
            keeps.remove(self.random.below(keeps.len() as u64) as usize);
            return keeps;
        }
        // Of its own rows, now and then.
        let parent = self.table().filter(|_| self.random.chance(900)).map_or(table.id, |table| table.id);
        let demands = if self.random.chance(500) { Demands::Marks } else { Demands::Parents(parent) };
        keeps.push(Kept::new(numbers.take().expect("there are enough"), demands));
        keeps
    }

    /// A table becomes another one, under a version that no table had.
    fn altered(
        &mut self,
        table: &Table,
        numbers: &mut Numbers,
        change: impl FnOnce(&mut Table),
    ) -> (Vec<TableChange>, Vec<Part>) {
        let version = numbers.take().expect("there are enough");
        let mut to = Table { version, ..table.clone() };
        change(&mut to);
        let parts = match self.random.chance(300) {
            true => vec![self.part(&to)],
            false => Vec::new(),
        };
        (vec![TableChange::Alter(table.version, to)], parts)
    }

    fn ops(&mut self) -> Vec<(RowChange, String)> {
        use RowChange::*;
        let kinds = [Put, Put, Put, Insert, Update, Delete, Keep];
        let count = self.random.between(1, 4);
        let op = |_| {
            let kind = *self.random.pick(&kinds).expect("not empty");
            (kind, format!("m{}", self.random.below(KEYS)))
        };
        (0..count).map(op).collect()
    }

    fn part(&mut self, table: &Table) -> Part {
        let ops = self.ops();
        Part { table: table.id, version: table.version, more: table.more, ops, seen: Vec::new() }
    }

    /// Rows of up to three tables.
    fn parts(&mut self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..self.random.between(1, 3) {
            if let Some(table) = self.table()
                && parts.iter().all(|part| part.table != table.id)
            {
                parts.push(self.part(&table));
            }
        }
        parts
    }

    fn writing(&mut self, value: u64) -> Asked {
        let mut parts = self.parts();
        let since = self.seen.filter(|_| self.random.chance(350));
        let alone = parts.len() == 1 && self.random.chance(500);
        if let Some(seen) = self.seen.filter(|_| !alone && self.random.chance(200)) {
            parts.iter_mut().for_each(|part| part.seen = vec![seen; part.ops.len()]);
        }
        Asked::Write(Box::new(Transaction { value, changes: Vec::new(), parts, since, alone }))
    }

    fn reading(&mut self) -> Asked {
        let table = self.table().expect("it knows some");
        let ranges = [("", ""), ("", ""), ("m3", ""), ("", "m4"), ("m1", "m6")];
        let (from, to) = *self.random.pick(&ranges).expect("not empty");
        let range = KeyRange { from: from.into(), behind: false, to: to.into() };
        let limit = *self.random.pick(&[1, 2, 3, 5, 1_000, 1_000]).expect("not empty");
        let what = match self.random.below(10) {
            0..2 => What::Row(format!("m{}", self.random.below(KEYS))),
            2..7 => What::Rows(range, limit),
            _ => What::Count(range),
        };
        let at = self.snapshot();
        let lags = [60, 100, 200, 400, 1_500];
        let max_lag_ms = *self.random.pick(&lags).expect("not empty");
        let token = if self.random.chance(500) { self.token } else { Lsn::ZERO };
        let any = self.random.chance(200).then_some(Bound { token, max_lag_ms });
        Asked::Read { table: table.id, version: table.version, what, at, any }
    }

    /// The next step of a table that takes another one's place.
    fn refilling(&mut self, value: u64, numbers: &mut Numbers) -> Asked {
        let next = self.refill.clone().expect("asked by the caller");
        match next {
            // It was held, and so its version is the one that the catalog shows.
            Refill::Hold(old) => {
                let id = TableId(numbers.take().expect("there are enough"));
                let standing = Standing::Filling(old.id);
                let new = Table { id, version: 1, standing, keeps: Vec::new(), ..old.clone() };
                self.refill = Some(Refill::Make(old, new.clone()));
                Choices::write(value, vec![TableChange::Create(new)], Vec::new())
            }
            Refill::Make(old, new) | Refill::Read(old, new) => {
                let range = KeyRange { from: String::new(), behind: false, to: String::new() };
                let (table, version, what) = (old.id, old.version, What::Rows(range, 1_000));
                self.refill = Some(Refill::Read(old, new));
                Asked::Read { table, version, what, at: ReadSnapshot::Newest, any: None }
            }
            Refill::Copy(old, new, keys) => {
                let ops = keys.into_iter().map(|key| (RowChange::Put, key)).collect();
                let (table, version, more) = (new.id, new.version, new.more);
                let part = Part { table, version, more, ops, seen: Vec::new() };
                self.refill = Some(Refill::Switch(old, new));
                Choices::write(value, Vec::new(), vec![part])
            }
            Refill::Switch(old, new) => {
                self.refill = None;
                let version = numbers.take().expect("there are enough");
                let named = Table { version, standing: Standing::Live, ..new.clone() };
                let drop = TableChange::Drop(old.id, old.version);
                Choices::write(value, vec![drop, TableChange::Alter(new.version, named)], Vec::new())
            }
        }
    }

    /// The next step of a large transaction, which begins now and then. Some die in the middle.
    fn enlarging(&mut self, value: u64, numbers: &mut Numbers) -> Option<Asked> {
        let begun = self.large.0.is_some();
        if begun && self.random.chance(40) {
            self.large.0 = None;
        } else if !begun && self.random.chance(120) {
            self.large.0 = self.enlarged(numbers);
        }
        let large = self.large.0.as_mut()?;
        let commits = large.commits();
        let (changes, copy) = large.next(numbers, &mut self.random);
        let mut parts: Vec<Part> = copy.iter().map(|copy| self.part(copy)).collect();
        if commits && self.random.chance(500) {
            // Rows of other tables come with the last entry.
            let is_changed = |id: TableId| changes.iter().any(|change| change.id() == id);
            parts = self.parts().into_iter().filter(|part| !is_changed(part.table)).collect();
        }
        self.large.1 = true;
        Some(Choices::write(value, changes, parts))
    }

    /// A write of rows that refer to others and of those others, in any order: what an entry demands of rows
    /// is asked of the state behind all of it. So SQL removes what refers to a row together with that
    /// (cascades), and looks at deferred constraints last.
    fn cascading(&mut self, value: u64) -> Option<Asked> {
        if !self.random.chance(60) {
            return None;
        }
        let live = |id: TableId| self.tables.iter().find(|table| table.id == id && !table.is_held());
        let parent = |table: &Table| {
            let parents = table.enforced().filter_map(|kept| match kept.demands {
                Demands::Parents(parent) if parent != table.id => live(parent),
                _ => None,
            });
            parents.last().cloned()
        };
        let pairs: Vec<(Table, Table)> =
            self.tables.iter().filter_map(|table| Some((table.clone(), parent(table)?))).collect();
        let (child, parent) = self.random.pick(&pairs)?.clone();
        let all = |change: RowChange| (0..KEYS).map(|key| (change, format!("m{key}"))).collect();
        let (mut first, mut second) = (self.part(&child), self.part(&parent));
        match self.random.chance(600) {
            // All that may refer to the rows goes with them.
            true => {
                first.ops = all(RowChange::Delete);
                second.ops.iter_mut().for_each(|(change, _)| *change = RowChange::Delete);
            }
            // All that the rows may refer to comes with them.
            false => second.ops = all(RowChange::Put),
        }
        if self.random.chance(500) {
            std::mem::swap(&mut first, &mut second);
        }
        Some(Choices::write(value, Vec::new(), vec![first, second]))
    }

    /// A large transaction over two of the tables that it knows, if there are as many.
    fn enlarged(&mut self, numbers: &mut Numbers) -> Option<Large> {
        let live = self.tables.iter().filter(|table| table.standing == Standing::Live);
        let live: Vec<Table> = live.cloned().collect();
        let count = live.len() as u64;
        if count < 2 {
            return None;
        }
        let (first, behind) = (self.random.below(count), 1 + self.random.below(count - 1));
        let chosen = [first, (first + behind) % count].map(|at| live[at as usize].clone());
        let writes = self.random.between(2, 5) as u32;
        Some(Large::begin(chosen.into(), writes, numbers))
    }

    /// What it was told of an operation.
    pub fn heard(&mut self, asked: &Asked, told: &TableAnswer) {
        if std::mem::take(&mut self.large.1) && self.large.0.as_mut().is_some_and(|large| !large.heard(told))
        {
            self.large.0 = None;
        }
        match told {
            TableAnswer::Done(at) => {
                self.token = self.token.max(at.lsn);
                if let Asked::Write(write) = asked {
                    write.changes.iter().for_each(|change| self.changed(change));
                }
            }
            TableAnswer::Shown(Shown::Stale, ..) => (self.looks, self.refill) = (true, None),
            TableAnswer::Shown(shown, at, epoch) => {
                if asked.bound().is_none() {
                    self.seen = Some(Position::new(Term::of(*epoch), *at));
                }
                self.token = self.token.max(*at);
                self.shown(asked, shown);
            }
            TableAnswer::Refused(..) | TableAnswer::NotDone | TableAnswer::Unknown => {
                (self.looks, self.refill) = (true, None);
            }
        }
    }

    /// A change of a table that it made itself.
    fn changed(&mut self, change: &TableChange) {
        let (id, now) = match change {
            TableChange::Create(table) | TableChange::Alter(_, table) => (table.id, Some(table.clone())),
            TableChange::Drop(id, _) => (*id, None),
        };
        if let Some(Refill::Hold(old)) = &mut self.refill
            && let Some(held) = now.as_ref().filter(|now| now.id == old.id)
        {
            *old = held.clone();
        }
        let (gone, kept) = std::mem::take(&mut self.tables).into_iter().partition(|table| table.id == id);
        self.tables = kept;
        self.keep_older(gone);
        self.tables.extend(now);
    }

    fn shown(&mut self, asked: &Asked, shown: &Shown) {
        match (asked, shown) {
            (Asked::Catalog(at), Shown::Tables(tables)) => {
                let known = |table: &&Table| table.standing != Standing::Dropped;
                let tables: Vec<Table> = tables.iter().filter(known).cloned().collect();
                let before = std::mem::replace(&mut self.tables, tables);
                let gone = before.into_iter().filter(|table| !self.tables.contains(table)).collect();
                self.keep_older(gone);
                // What an earlier state had is old news.
                self.looks = matches!(at, ReadSnapshot::At(_)) && self.random.chance(500);
            }
            (_, Shown::Rows(rows, _)) => {
                if let Some(Refill::Read(old, new)) = self.refill.take_if(|refill| {
                    matches!((refill, asked), (Refill::Read(old, _), Asked::Read { table, .. }) if old.id == *table)
                }) {
                    let keys = rows.iter().map(|(key, ..)| key.clone()).collect();
                    self.refill = Some(Refill::Copy(old, new, keys));
                }
            }
            _ => {}
        }
    }

    fn keep_older(&mut self, gone: Vec<Table>) {
        self.older.extend(gone);
        let excess = self.older.len().saturating_sub(8);
        self.older.drain(..excess);
    }
}

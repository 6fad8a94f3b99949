//! Numbers for rows that have none, and of sequences: each node takes blocks of them, by a conditional write
//! of the row that counts them.
//!
//! A number is never given out twice, also across failovers. Numbers that a node has taken and not used are
//! lost with it, and rows are not numbered in the order of time: so it is with PostgreSQL's sequences that
//! have a cache. `setval` is known at once to the node that is asked, and to others when they have used up
//! what they have taken.

use crate::catalog::Catalog;
use crate::columns::numbering;
use crate::driver::Handle;
use crate::fault::{self, Decided};
use crate::read::CALL;
use client::{Answer, Outcome, Table};
use pg::{Failure, code};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use types::data::kind::{Kind, Sequence};
use types::data::{Row, Value};
use types::system::SEQUENCES;
use types::{CatalogTable, Position, TableId, Term};
use wire::request::Outcome as Refusal;
use wire::{Body, RowOp};

/// Numbers that a node takes at once, where few are used.
const BLOCK: u64 = 100;
/// The most that it takes at once for what is still to come.
const MAX_BLOCK: u64 = 10_000;
/// Twice as many as the last time are taken where those were used up within this time: so rows that come one
/// after the other wait less often for a write of the counter, and what is lost with a node is about what it
/// used in that time.
const DOUBLES_WITHIN: Duration = Duration::from_secs(1);
/// How often somebody else may be faster.
const ATTEMPTS: usize = 1_000;

/// What is counted: a column of a table by its index, or a sequence by its id and 0.
type Counted = (TableId, usize);

/// How it is counted.
#[derive(Clone, Debug)]
struct Rule {
    of: Counted,
    /// What it is called where it has no numbers any more.
    name: String,
    numbers: Sequence,
}

/// Numbers in a row.
#[derive(Clone, Copy, Debug)]
struct Block {
    next: i64,
    step: i64,
    left: u64,
}

impl Block {
    fn take(&mut self) -> Option<i64> {
        let number = self.next;
        self.left = self.left.checked_sub(1)?;
        // Behind the last one nothing is asked for.
        self.next = number.saturating_add(self.step);
        Some(number)
    }
}

/// The numbers of one kind that this node has taken and not used yet.
#[derive(Debug, Default)]
struct Stock {
    blocks: Vec<Block>,
    /// When some were taken last, and how many.
    last: Option<(Instant, u64)>,
}

impl Stock {
    /// How many are to be taken now for what is still to come.
    fn wanted(&self, now: Instant) -> u64 {
        match self.last {
            Some((at, count)) if now.saturating_duration_since(at) < DOUBLES_WITHIN => {
                count.saturating_mul(2).clamp(BLOCK, MAX_BLOCK)
            }
            _ => BLOCK,
        }
    }

    /// These were taken.
    fn add(&mut self, block: Block, now: Instant) {
        self.last = Some((now, block.left));
        self.blocks.push(block);
    }
}

/// The numbers that this node has taken and not used yet.
#[derive(Default)]
pub struct Sequences {
    stocks: Mutex<HashMap<Counted, Stock>>,
}

/// What a session was given by sequences: what `currval` and `lastval` tell.
#[derive(Debug, Default)]
pub struct SequenceValues {
    last: Mutex<(Option<TableId>, HashMap<TableId, i64>)>,
}

impl SequenceValues {
    /// A sequence has given it this number.
    pub fn tell(&self, sequence: TableId, number: i64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.0 = Some(sequence);
        last.1.insert(sequence, number);
    }

    /// The last number of a sequence.
    pub fn of(&self, sequence: TableId) -> Option<i64> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).1.get(&sequence).copied()
    }

    /// The last number, of whatever sequence.
    pub fn last(&self) -> Option<i64> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.0.and_then(|sequence| last.1.get(&sequence).copied())
    }

    /// Forgets all.
    pub fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }
}

/// A sequence by its id.
fn rule(catalog: &Catalog, sequence: TableId) -> Result<Rule, Failure> {
    let missing = || Failure::new("42P01", "the sequence that numbers these rows does not exist");
    let (name, numbers) = catalog.sequence_by_id(sequence).ok_or_else(missing)?;
    Ok(Rule { of: (sequence, 0), name: name.to_string(), numbers })
}

impl Sequences {
    /// So many numbers for a column of a table.
    pub async fn take(
        &self,
        handle: &Handle,
        told: &SequenceValues,
        (table, column): (&Table, usize),
        count: usize,
    ) -> Result<Vec<i64>, Failure> {
        let place = column;
        let column = &table.schema().columns()[column];
        if let Some(sequence) = numbering(column) {
            return self.next(handle, told, sequence, count).await;
        }
        let of = match column.rules.counter {
            Some((table, column)) => (TableId(table), column as usize),
            None => (table.id(), place),
        };
        let numbers = Sequence { bits: 64, start: 1, step: 1, least: 1, most: i64::MAX, cycle: false };
        self.numbers(handle, &Rule { of, name: column.name.clone(), numbers }, count).await
    }

    /// So many numbers of a sequence.
    pub async fn next(
        &self,
        handle: &Handle,
        told: &SequenceValues,
        sequence: TableId,
        count: usize,
    ) -> Result<Vec<i64>, Failure> {
        let catalog = handle.current().await?;
        self.next_by(handle, told, &rule(&catalog, sequence)?, count).await
    }

    /// The same of a sequence that is about to be made, for rows that are about to have its numbers.
    pub async fn first(
        &self,
        handle: &Handle,
        told: &SequenceValues,
        made: &CatalogTable,
        count: usize,
    ) -> Result<Vec<i64>, Failure> {
        let Some(Kind::Sequence(numbers)) = made.schema.kind() else {
            return Err(Failure::new(code::INTERNAL, "what numbers these rows is no sequence"));
        };
        let rule = Rule { of: (made.id, 0), name: made.name.clone(), numbers: *numbers };
        self.next_by(handle, told, &rule, count).await
    }

    /// So many numbers, the last of which the session is told.
    async fn next_by(
        &self,
        handle: &Handle,
        told: &SequenceValues,
        rule: &Rule,
        count: usize,
    ) -> Result<Vec<i64>, Failure> {
        let numbers = self.numbers(handle, rule, count).await?;
        if let Some(last) = numbers.last() {
            told.tell(rule.of.0, *last);
        }
        Ok(numbers)
    }

    /// The next number of a sequence as far as this node knows, and whether one was given out.
    pub async fn standing(&self, handle: &Handle, sequence: TableId) -> Result<(i64, bool), Failure> {
        let catalog = handle.current().await?;
        let rule = rule(&catalog, sequence)?;
        let own = {
            let stocks = self.stocks.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = stocks.get(&rule.of).and_then(|stock| stock.blocks.iter().find(|one| one.left > 0));
            kept.map(|block| block.next)
        };
        let next = match own {
            Some(next) => next,
            None => match stored(handle, rule.of).await?.0 {
                Some(next) => next,
                None => return Ok((rule.numbers.start, false)),
            },
        };
        match next == rule.numbers.start {
            true => Ok((next, false)),
            false => Ok((next.saturating_sub(rule.numbers.step), true)),
        }
    }

    /// Has a sequence go on with this number.
    pub async fn set(&self, handle: &Handle, sequence: TableId, next: i64) -> Result<(), Failure> {
        let of = (sequence, 0);
        for _ in 0..ATTEMPTS {
            let (before, since) = stored(handle, of).await?;
            if store(handle, of, (before.is_some(), next), since).await? {
                self.stocks.lock().unwrap_or_else(PoisonError::into_inner).remove(&of);
                return Ok(());
            }
        }
        Err(busy())
    }

    async fn numbers(&self, handle: &Handle, rule: &Rule, count: usize) -> Result<Vec<i64>, Failure> {
        let mut numbers = Vec::with_capacity(count);
        loop {
            self.kept(rule.of, count, &mut numbers);
            if numbers.len() == count {
                return Ok(numbers);
            }
            let wanted = self.wanted(rule.of);
            let block = block(handle, rule, ((count - numbers.len()) as u64, wanted)).await?;
            let mut stocks = self.stocks.lock().unwrap_or_else(PoisonError::into_inner);
            stocks.entry(rule.of).or_default().add(block, Instant::now());
        }
    }

    fn wanted(&self, of: Counted) -> u64 {
        let stocks = self.stocks.lock().unwrap_or_else(PoisonError::into_inner);
        stocks.get(&of).map_or(BLOCK, |stock| stock.wanted(Instant::now()))
    }

    fn kept(&self, of: Counted, count: usize, numbers: &mut Vec<i64>) {
        let mut stocks = self.stocks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Stock { blocks, .. }) = stocks.get_mut(&of) else { return };
        for block in blocks.iter_mut() {
            while numbers.len() < count {
                let Some(number) = block.take() else { break };
                numbers.push(number);
            }
        }
        blocks.retain(|block| block.left > 0);
    }
}

fn busy() -> Failure {
    Failure::new("55P03", "the numbers are wanted by too many at once").hint("try again")
}

/// The table that counts.
fn counters(handle: &Handle) -> Result<Table, Failure> {
    let catalog = handle.catalog().ok_or_else(fault::not_ready)?;
    catalog.table(SEQUENCES).cloned().map(Table::new).ok_or_else(|| {
        Failure::new("57P03", format!("the table {SEQUENCES}, which numbers rows, is not there yet"))
            .hint("try again")
    })
}

fn key_of(of: Counted) -> [Value; 2] {
    [Value::Int(i64::from(of.0.0)), Value::Int(of.1 as i64)]
}

/// The number that is to be given out next, if one was ever; and the state that says so.
async fn stored(handle: &Handle, of: Counted) -> Result<(Option<i64>, Position), Failure> {
    let handle = &handle.bare();
    let table = counters(handle)?;
    let key = key_of(of);
    let encoded = table.key(&key).map_err(fault::of_client)?;
    let call = table.get(&key).map_err(fault::of_client)?.within(CALL);
    let read = fault::decided(handle.call(call).await)?;
    let Decided::Done(Answer { body: Body::Row(found), epoch, lsn, .. }) = read else {
        return Err(Failure::new(code::INTERNAL, "the answer was not of the expected kind"));
    };
    let at = Position::new(Term::of(epoch), lsn);
    let Some((_, stored)) = &found else { return Ok((None, at)) };
    let row = table.decode(&encoded, stored).map_err(fault::of_client)?;
    match row.values.get(2) {
        Some(Value::Int(next)) => Ok((Some(*next), at)),
        _ => Err(Failure::new(code::INTERNAL, "a counter without a number")),
    }
}

/// Stores the next number, if nobody has since. False: somebody has, or it is not known.
async fn store(
    handle: &Handle,
    of: Counted,
    (there, next): (bool, i64),
    since: Position,
) -> Result<bool, Failure> {
    let handle = &handle.bare();
    let table = counters(handle)?;
    let [one, two] = key_of(of);
    let (key, row) = table.encode(&Row::new(vec![one, two, Value::Int(next)])).map_err(fault::of_client)?;
    let partition = table.partition_of(&key).map_err(fault::of_client)?;
    let op = if there { RowOp::Update { key, row } } else { RowOp::Insert { key, row } };
    match handle.call(table.write_since(partition, vec![op], since).within(CALL)).await {
        Outcome::Ok(_) => Ok(true),
        // Somebody else was faster; or nobody knows, and then the numbers are given up.
        Outcome::Refused(Refusal::Exists | Refusal::Changed, _) | Outcome::Unknown(_) => Ok(false),
        other => fault::decided(other).map(|_| false),
    }
}

/// Takes the next numbers for this node alone (PR-154): as many as are lacking, and up to `wanted`, but of
/// few that are left not many that nobody asks for.
async fn block(handle: &Handle, rule: &Rule, (lacking, wanted): (u64, u64)) -> Result<Block, Failure> {
    let Sequence { start, step, cycle, most, least, .. } = rule.numbers;
    for _ in 0..ATTEMPTS {
        let (next, since) = stored(handle, rule.of).await?;
        let there = next.is_some();
        let mut next = next.unwrap_or(start);
        if rule.numbers.left(next) == 0 {
            if !cycle {
                let (what, bound) = if step > 0 { ("maximum", most) } else { ("minimum", least) };
                let message =
                    format!("nextval: reached {what} value of sequence \"{}\" ({bound})", rule.name);
                return Err(Failure::new("2200H", message));
            }
            next = rule.numbers.again();
        }
        let all = rule.numbers.left(next);
        let left = lacking.max(wanted.min(BLOCK.max(all / 100))).min(all);
        // Whoever reaches the end of all numbers begins behind it.
        let end = i128::from(next) + i128::from(step) * i128::from(left);
        let end = end.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        if store(handle, rule.of, (there, end), since).await? {
            return Ok(Block { next, step, left });
        }
    }
    Err(busy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_numbers_are_taken_at_once_while_they_are_used_up_quickly() {
        let (mut stock, mut now) = (Stock::default(), Instant::now());
        let mut sizes = Vec::new();
        for _ in 0..9 {
            sizes.push(stock.wanted(now));
            stock.add(Block { next: 1, step: 1, left: stock.wanted(now) }, now);
            now += DOUBLES_WITHIN / 2;
        }
        assert_eq!(sizes, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(stock.wanted(now + DOUBLES_WITHIN), BLOCK, "what was taken has lasted");
        // A statement that has asked for many is no reason to take as many for nobody.
        stock.add(Block { next: 1, step: 1, left: 1_000_000 }, now);
        assert_eq!(stock.wanted(now), MAX_BLOCK);
        stock.add(Block { next: 1, step: 1, left: 3 }, now);
        assert_eq!(stock.wanted(now), BLOCK);
    }
}

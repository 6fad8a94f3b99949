//! What clients of single rows ask, and what they were told.

use crate::check::history::{Action, Answer, Bound, Operation, USUAL_LAG_MS};
use crate::client::wide::{self, Wide};
use crate::plan::RunPlan;
use crate::random::Stream;
use crate::rows;
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{Epoch, IndexState, Lsn, PartitionId, Position, TableId, Term};
use wire::request::ReadSnapshot;
use wire::{Body, Op, Outcome, ReadLevel, RowOp};

/// What a read found, and the snapshot that it was made at.
type Seen = (Option<(Lsn, u64)>, Position);

/// What was decided about an operation.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// Why it was refused, if it was.
    pub refused: Option<&'a Outcome>,
    /// The LSN that carries its outcome.
    pub lsn: Lsn,
    /// The epoch of that.
    pub epoch: Epoch,
    /// The copies that were named.
    pub copies: u8,
    /// What came back.
    pub body: &'a Body,
}

impl Decided<'_> {
    /// The position of the entry, or of the snapshot of a read.
    pub fn position(&self) -> Position {
        Position::new(Term::of(self.epoch), self.lsn)
    }
}

/// The operations of one client, those to come and those that ended.
#[derive(Debug)]
pub struct Operations {
    client: u32,
    random: Stream,
    /// Keys and rows are those of the schema.
    typed: bool,
    tables: BTreeMap<PartitionId, TableId>,
    left: u64,
    next_at: u64,
    last_number: u64,
    history: Vec<Operation>,
    /// The newest acknowledgement per partition.
    newest: BTreeMap<PartitionId, Position>,
    /// What the newest read of a register found.
    seen: BTreeMap<(PartitionId, String), Seen>,
    /// What it asks beside single rows.
    wide: Option<Wide>,
}

impl Operations {
    /// A client's share of the plan's operations, on the plan's tables.
    pub fn new(client: u32, random: Stream, plan: &RunPlan) -> Operations {
        let tables = plan.bare_partitions().collect();
        let clients = u64::from(plan.workload.clients);
        Operations {
            client,
            random,
            typed: plan.workload.indexes,
            tables,
            left: plan.workload.operations / clients
                + u64::from(u64::from(client) < plan.workload.operations % clients),
            next_at: 0,
            last_number: 0,
            history: Vec::new(),
            newest: BTreeMap::new(),
            seen: BTreeMap::new(),
            wide: plan.workload.wide.as_ref().map(|wide| Wide::new(client, wide, plan.workload.indexes)),
        }
    }

    /// Where a client's decisions are drawn from.
    pub fn random(&mut self) -> &mut Stream {
        &mut self.random
    }

    /// The tables of all partitions.
    pub fn tables(&self) -> &BTreeMap<PartitionId, TableId> {
        &self.tables
    }

    /// Operations that ended, in the order in which they did.
    pub fn history(&self) -> &[Operation] {
        &self.history
    }

    /// True if there is nothing more to ask.
    pub fn are_asked(&self) -> bool {
        self.left == 0
    }

    /// So many more are to be asked.
    pub fn go_on(&mut self, more: u64) {
        self.left += more;
    }

    /// No more are to be asked.
    pub fn stop(&mut self) {
        self.left = 0;
    }

    /// A number that no other operation or request of any client has.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        u64::from(self.client) << 32 | self.last_number
    }

    /// Thinks of the next operation, if it is time. The flag says whether a client that sends writes outside
    /// of sessions is to do so.
    pub fn next(&mut self, now: u64) -> Option<(Operation, bool)> {
        if self.left == 0 || now < self.next_at {
            return None;
        }
        let pause = if self.random.chance(250) { 0 } else { self.random.between(40_000, 420_000) };
        self.next_at = now + pause;
        self.left -= 1;
        let number = self.number();
        let partitions: Vec<PartitionId> = self.tables.keys().copied().collect();
        let partition = *self.random.pick(&partitions).expect("there is a partition");
        let (key, action, numbered) = self.choose(number, partition);
        let (client, told) = (self.client, Answer::Unknown);
        let operation = Operation {
            number,
            client,
            partition,
            key,
            action,
            session: None,
            invoked: now,
            completed: 0,
            told,
        };
        Some((operation, numbered))
    }

    fn choose(&mut self, number: u64, partition: PartitionId) -> (String, Action, bool) {
        let wide = self.wide.as_mut().and_then(|wide| wide.choose(number, partition));
        if let Some(chosen) = wide {
            return chosen;
        }
        let register = format!("r{}", self.random.below(4));
        let newest = self.newest.get(&partition).copied();
        match self.random.below(100) {
            0..28 => (register, Action::Put(number), true),
            28..40 => match self.seen.get(&(partition, register.clone())) {
                Some((read, since)) => {
                    let action = Action::Swap { value: number, read: *read, since: *since };
                    (register, action, self.random.chance(750))
                }
                None => (register, Action::Put(number), true),
            },
            40..58 => (register, Action::Get(self.random.chance(300)), false),
            58..64 => match self.seen.get(&(partition, register.clone())) {
                Some((_, at)) => (register, Action::GetAt(*at), false),
                None => (register, Action::Get(true), false),
            },
            64..72 => {
                let token =
                    if self.random.chance(500) { newest.map_or(Lsn::ZERO, |at| at.lsn) } else { Lsn::ZERO };
                (register, Action::GetAny(Bound { token, max_lag_ms: USUAL_LAG_MS }), false)
            }
            72..80 => (format!("i{}", self.random.below(12)), Action::Insert(number), true),
            80..88 => (format!("i{}", self.random.below(12)), Action::Insert(number), false),
            88..94 => (format!("d{}", self.random.below(2)), Action::Delete, true),
            94..98 => (format!("d{}", self.random.below(2)), Action::Put(number), true),
            _ => match newest {
                Some(at) => (String::new(), Action::TermEnd(at), false),
                None => (register, Action::Get(false), false),
            },
        }
    }

    /// What an operation asks of a node.
    pub fn asks(&self, operation: &Operation) -> (Op, ReadLevel) {
        let key = || rows::key(&operation.key, self.typed);
        let row = |value: u64| rows::row(&operation.key, value, self.typed);
        let write = |op: RowOp| Op::write(vec![op]);
        let read = match operation.action.bound() {
            Some(Bound { token, max_lag_ms }) => ReadLevel::Any { max_lag_ms, min_lsn: token },
            None => ReadLevel::Primary,
        };
        let op = match &operation.action {
            Action::Put(value) => write(RowOp::Put { key: key(), row: row(*value) }),
            Action::Insert(value) => write(RowOp::Insert { key: key(), row: row(*value) }),
            Action::Delete => write(RowOp::Delete { key: key() }),
            Action::Swap { value, read, since } => {
                let (key, row) = (key(), row(*value));
                let op = match read {
                    Some(_) => RowOp::Update { key, row },
                    None => RowOp::Insert { key, row },
                };
                Op::Write { ops: vec![op], mark: None, since: Some(*since) }
            }
            Action::Get(kept) => {
                let at = if *kept { ReadSnapshot::Begin } else { ReadSnapshot::Newest };
                Op::Get { key: key(), at }
            }
            Action::GetAt(at) => Op::Get { key: key(), at: ReadSnapshot::At(*at) },
            Action::GetAny(_) => Op::Get { key: key(), at: ReadSnapshot::Newest },
            Action::TermEnd(at) => Op::TermEnd { term: at.term },
            action => wide::asks(action, self.typed).expect("every other one is a client's alone"),
        };
        (op, read)
    }

    /// What a decision tells about an operation, and what is kept of it for later ones. The error is a
    /// sentence: that is no answer to this.
    pub fn told(&mut self, operation: &Operation, decided: Decided<'_>) -> Result<Answer, String> {
        let at = decided.position();
        let found = |(key, lsn, row): &(Bytes, Lsn, Bytes)| (rows::name_of(key), *lsn, rows::value_of(row));
        let told = match (decided.refused, &operation.action, decided.body) {
            (Some(Outcome::Exists), ..) => Answer::Exists(decided.lsn),
            (Some(_), ..) => Answer::Changed(decided.lsn),
            (None, action, _) if action.writes() => Answer::Done { at, copies: decided.copies },
            (None, Action::TermEnd(_), Body::TermEnd(end)) => Answer::Ended(*end),
            (None, _, Body::Row(row)) => {
                let row = row.as_ref().map(|(lsn, bytes)| (*lsn, rows::value_of(bytes)));
                Answer::Found { row, at: decided.lsn, epoch: decided.epoch }
            }
            (None, Action::Scan { .. }, Body::Rows { rows, more }) => {
                let (rows, more) = (rows.iter().map(found).collect(), *more);
                Answer::Rows { rows, more, at: decided.lsn, epoch: decided.epoch }
            }
            (None, Action::Find { .. }, Body::Found { rows, next }) => {
                let (rows, next) = (rows.iter().map(found).collect(), next.clone());
                Answer::FoundBy { rows, next, at: decided.lsn, epoch: decided.epoch }
            }
            (None, Action::Indexes, Body::Indexes(all)) => {
                let ready = all.iter().filter(|index| index.state == IndexState::Ready);
                Answer::Indexes(ready.map(|index| (index.number, index.name.clone())).collect())
            }
            (None, Action::Count { .. } | Action::Feed(_), Body::Number(number)) => {
                Answer::Number { number: *number, at: decided.lsn, epoch: decided.epoch }
            }
            _ => return Err(format!("{operation:?} was answered with {decided:?}")),
        };
        if let (Answer::Found { row, .. }, Action::Get(_)) = (&told, &operation.action) {
            self.seen.insert((operation.partition, operation.key.clone()), (*row, at));
        }
        if let Some(wide) = &mut self.wide {
            wide.heard(operation.partition, &operation.action, &told);
        }
        if matches!(told, Answer::Done { .. }) {
            let newest = self.newest.entry(operation.partition).or_default();
            *newest = (*newest).max(at);
        }
        Ok(told)
    }

    /// An operation ended.
    pub fn ended(&mut self, now: u64, mut operation: Operation, told: Answer) {
        operation.completed = now;
        operation.told = told;
        self.history.push(operation);
    }
}

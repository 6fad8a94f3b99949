//! The tellers: who transfers, and who reads all accounts at one snapshot.

use crate::recorder::Shared;
use client::{Client, ClientError, Database, FailKind, Table};
use history::bank::Total;
use history::{At, Ending, Transaction, Version};
use local::LocalError;
use std::time::Duration;
use types::Position;
use types::data::{Row, Value};
use types::random::Random;

/// Accounts: few, so that tellers meet on them.
const ACCOUNTS: u32 = 24;
/// What each holds at first.
const AMOUNT: i64 = 1000;
/// So many of them are read at once by who reads all.
const ROWS_OF_A_TRANSACTION: usize = 6;
/// Between two transactions of a teller.
const PAUSE: Duration = Duration::from_millis(3);
/// After somebody was not there.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// Where the accounts are.
pub struct Accounts {
    pub database: Database,
    pub table: Table,
}

impl Accounts {
    /// The partition of an account; 0: it has none.
    pub fn place(&self, account: u32) -> u32 {
        let key = self.table.key(&[Value::Int(account.into())]);
        key.and_then(|key| self.table.partition_of(&key)).map_or(0, |partition| partition.0)
    }
}

/// What a teller does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Moves amounts between two or three accounts.
    Transfer,
    /// Reads all accounts.
    Snapshot,
}

/// A client with a thread of its own.
pub struct Teller<'a> {
    number: u32,
    role: Role,
    client: Client,
    accounts: &'a Accounts,
    shared: &'a Shared,
    random: Random,
}

/// What all accounts hold.
pub fn total() -> Total {
    Total { accounts: ACCOUNTS as usize, amount: AMOUNT * i64::from(ACCOUNTS) }
}

fn at(position: Position) -> At {
    At { term: position.term.0, lsn: position.lsn.0 }
}

fn row(version: Version) -> Row {
    let int = |number: u64| Value::Int(number as i64);
    let Version { key, tag, prev, amount } = version;
    Row::new(vec![int(key.into()), int(tag), int(prev), Value::Int(amount)])
}

fn version(row: &Row) -> Result<Version, LocalError> {
    match row.values[..] {
        [Value::Int(key), Value::Int(tag), Value::Int(prev), Value::Int(amount)] => {
            Ok(Version { key: key as u32, tag: tag as u64, prev: prev as u64, amount })
        }
        _ => Err(LocalError::Failed(format!("a row is none of ours: {row:?}"))),
    }
}

/// An account that is not there.
fn absent(key: u32) -> Version {
    Version { key, tag: 0, prev: 0, amount: 0 }
}

/// Errors that faults explain; of others the check itself fails.
fn explained(error: ClientError) -> Result<ClientError, LocalError> {
    match &error {
        ClientError::Failed { kind: FailKind::Bad | FailKind::NotFound | FailKind::Corrupt, .. } => {
            Err(LocalError::Failed(format!("an operation was refused: {error}")))
        }
        ClientError::Failed { .. }
        | ClientError::Changed
        | ClientError::OutcomeUnknown(_)
        | ClientError::NoController { .. }
        | ClientError::NotReady { .. } => Ok(error),
        _ => Err(error.into()),
    }
}

fn begun(client: u32, (begun, started): (u64, u64), snapshot: Position) -> Transaction {
    Transaction {
        number: 0,
        client,
        begun,
        started,
        asked: None,
        ended: None,
        snapshot: at(snapshot),
        whole: false,
        reads: Vec::new(),
        writes: Vec::new(),
        ending: Ending::Read,
    }
}

/// Opens all accounts in one transaction.
pub fn fill(client: &mut Client, accounts: &Accounts, shared: &Shared) -> Result<Transaction, LocalError> {
    let before = shared.now();
    let open = |key| Version { key, tag: shared.tag(), prev: 0, amount: AMOUNT };
    let all: Vec<Version> = (0..ACCOUNTS).map(open).collect();
    let (snapshot, committed) = client.transact_at(&accounts.database, |_, transaction| {
        all.iter().try_for_each(|version| transaction.put(&accounts.table, &row(*version)))?;
        Ok(transaction.snapshot())
    })?;
    let (now, ending) = (shared.now(), Ending::Committed(at(committed)));
    let made = begun(0, (before, now), snapshot);
    Ok(Transaction { ended: Some(now), writes: all, ending, ..made })
}

/// What came of reading all accounts.
pub enum Seen {
    /// All of them.
    All(Transaction),
    /// Some of them, before somebody was not there: these must be of one snapshot all the same.
    Some(Transaction, String),
    /// Nothing.
    Nothing(String),
}

impl Seen {
    /// What was read, if anything was.
    fn transaction(self) -> Option<Transaction> {
        match self {
            Seen::All(transaction) | Seen::Some(transaction, _) => Some(transaction),
            Seen::Nothing(_) => None,
        }
    }
}

/// Reads all accounts, some at a time.
pub fn snapshot(
    client: &mut Client,
    accounts: &Accounts,
    shared: &Shared,
    number: u32,
) -> Result<Seen, LocalError> {
    let before = shared.now();
    let transaction = match client.begin(&accounts.database) {
        Ok(transaction) => transaction,
        Err(error) => return explained(error).map(|error| Seen::Nothing(error.to_string())),
    };
    let mut done = begun(number, (before, shared.now()), transaction.snapshot());
    for from in (0..ACCOUNTS).step_by(ROWS_OF_A_TRANSACTION) {
        let to = ACCOUNTS.min(from + ROWS_OF_A_TRANSACTION as u32);
        let key = |number: u32| accounts.table.key(&[Value::Int(number.into())]);
        match client.scan_in(&transaction, &accounts.table, (key(from)?, key(to)?)) {
            Ok(rows) => done.reads.extend(read(from..to, &rows)?),
            Err(error) => {
                let why = explained(error)?.to_string();
                let nothing = done.reads.is_empty();
                return Ok(if nothing { Seen::Nothing(why) } else { Seen::Some(done, why) });
            }
        }
    }
    (done.whole, done.ended) = (true, Some(shared.now()));
    Ok(Seen::All(done))
}

/// These accounts as they were found, or were not.
fn read(keys: std::ops::Range<u32>, rows: &[Row]) -> Result<Vec<Version>, LocalError> {
    let found: Vec<Version> = rows.iter().map(version).collect::<Result<_, _>>()?;
    let is_missing = |key: &u32| found.iter().all(|version| version.key != *key);
    Ok(keys.filter(is_missing).map(absent).chain(found.iter().copied()).collect())
}

impl<'a> Teller<'a> {
    /// Who does nothing yet.
    pub fn new(
        number: u32,
        role: Role,
        client: Client,
        accounts: &'a Accounts,
        shared: &'a Shared,
        seed: u64,
    ) -> Teller<'a> {
        Teller { number, role, client, accounts, shared, random: Random::new(seed) }
    }

    /// Works until asked to stop.
    pub fn run(mut self) -> Result<Vec<Transaction>, LocalError> {
        let mut all = Vec::new();
        while !self.shared.stopping() {
            let done = match self.role {
                Role::Transfer => self.transfer()?,
                Role::Snapshot => {
                    snapshot(&mut self.client, self.accounts, self.shared, self.number)?.transaction()
                }
            };
            let pause = if done.is_some() { PAUSE } else { PAUSE_AFTER_ERROR };
            if done.is_some() {
                self.shared.count();
            }
            all.extend(done);
            self.client.poll(pause)?;
        }
        Ok(all)
    }

    /// Two or three different accounts.
    fn choose(&mut self) -> Vec<u32> {
        let count = 2 + self.random.below(2) as usize;
        let mut keys: Vec<u32> = Vec::new();
        while keys.len() < count {
            let key = self.random.below(ACCOUNTS.into()) as u32;
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn transfer(&mut self) -> Result<Option<Transaction>, LocalError> {
        let (keys, table, before) = (self.choose(), &self.accounts.table, self.shared.now());
        let mut transaction = match self.client.begin(&self.accounts.database) {
            Ok(transaction) => transaction,
            Err(error) => return explained(error).map(|_| None),
        };
        let moments = (before, self.shared.now());
        let mut done = begun(self.number, moments, transaction.snapshot());
        for key in keys {
            match self.client.get_in(&transaction, table, &[Value::Int(key.into())]) {
                Ok(found) => {
                    done.reads.push(found.as_ref().map_or(Ok(absent(key)), version)?);
                }
                // What it has read must be of one snapshot all the same.
                Err(error) => return explained(error).map(|_| Some(done)),
            }
        }
        done.writes = self.moved(&done.reads);
        for write in &done.writes {
            transaction.put(table, &row(*write))?;
        }
        done.asked = Some(self.shared.now());
        let committed = self.client.commit(transaction);
        done.ending = match committed {
            Ok(position) => {
                done.ended = Some(self.shared.now());
                Ending::Committed(at(position))
            }
            Err(error) => match explained(error)? {
                ClientError::Changed | ClientError::Failed { .. } => Ending::Aborted,
                _ => Ending::Unknown,
            },
        };
        Ok(Some(done))
    }

    /// What a transfer writes over what it has read: the first gives to the others. Now and then it writes
    /// something else to the first account before.
    fn moved(&mut self, reads: &[Version]) -> Vec<Version> {
        let mut writes = Vec::new();
        if let Some(first) = reads.first().filter(|_| self.random.below(8) == 0) {
            let tag = self.shared.tag();
            writes.push(Version { key: first.key, tag, prev: first.tag, amount: first.amount - 1_000_000 });
        }
        let sum = self.random.below(50) as i64;
        let others = reads.len() as i64 - 1;
        for (turn, read) in reads.iter().enumerate() {
            let amount = if turn == 0 { read.amount - sum * others } else { read.amount + sum };
            writes.push(Version { key: read.key, tag: self.shared.tag(), prev: read.tag, amount });
        }
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_that_are_not_found_are_read_as_absent() {
        let there = Version { key: 7, tag: 3, prev: 1, amount: 900 };
        let found = read(6..9, &[row(there)]).expect("a row of ours");
        assert_eq!(found, [absent(6), absent(8), there]);
        assert!(read(6..9, &[Row::new(vec![Value::Int(1)])]).is_err());
    }
}

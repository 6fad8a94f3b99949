//! A bare table that is held while its rows are copied: nobody writes them (PR-400), and at the end nobody
//! reads them where they were (PR-403). Whoever holds it says again and again that it does.

use super::copying::{self, Page, kept};
use super::filling::RENEW;
use crate::fault;
use bytes::Bytes;
use client::{Client, ClientError, Table, wall_ms};
use pg::{Failure, code};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{Lsn, PartitionId, Position, TableId, TableRecord};
use wire::control::AdminCommand;
use wire::moves::{MoveStep, MoveTable};
use wire::{Op, RecordText};

/// The code of a table that somebody else has something to do with.
pub const IN_USE: &str = "55006";

/// Between two reads of a partition that does not show all yet what clients have written.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A bare table that is held.
pub struct BareHold {
    /// As it was when it was held.
    table: Table,
    number: TableId,
    /// The version of its policy.
    version: u32,
    /// The entry of each partition behind which no client writes.
    since: BTreeMap<PartitionId, Position>,
    renewed: Instant,
}

impl BareHold {
    /// Holds the table with this id, for a move into this database, or into other partitions of its own.
    /// [`IN_USE`]: somebody holds it already.
    pub fn begin(
        client: &mut Client,
        table: TableId,
        (number, into): (TableId, Option<TableId>),
    ) -> Result<BareHold, Failure> {
        let step = MoveStep::Hold { at_ms: wall_ms(), into };
        let record = read(asked(client, MoveTable { table, number, version: 0, step }).map_err(refused)?)?;
        if record.policy.moves.is_none_or(|moves| moves.number != number) {
            let message = format!("table \"{}\" is not held any more", record.name);
            return Err(Failure::new(IN_USE, message).hint("nothing was changed; try again"));
        }
        let (version, renewed) = (record.policy.version, Instant::now());
        let table = Table::new(Arc::new(record));
        Ok(BareHold { table, number, version, since: BTreeMap::new(), renewed })
    }

    /// The table, as it was when it was held.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The number of the move.
    pub fn number(&self) -> TableId {
        self.number
    }

    /// Has a controller do the next step.
    pub fn ask(&self, client: &mut Client, step: MoveStep) -> Result<String, ClientError> {
        let (table, number, version) = (self.table.id(), self.number, self.version);
        asked(client, MoveTable { table, number, version, step })
    }

    /// Waits until every partition has the hold: from then on clients write nothing there.
    pub fn confirm(&mut self, client: &mut Client) -> Result<(), Failure> {
        self.since = self.confirmed(client, false)?;
        Ok(())
    }

    fn confirmed(
        &self,
        client: &mut Client,
        closed: bool,
    ) -> Result<BTreeMap<PartitionId, Position>, Failure> {
        let call = |partition| self.table.call(partition, Op::Held { number: self.number, closed });
        let answers = client.all(self.table.partitions().map(call).collect()).map_err(fault::of_client)?;
        Ok(self.table.partitions().zip(answers.iter().map(client::Answer::position)).collect())
    }

    /// Rows of a partition from this key on: all that clients have written is in them. A bulk load that was
    /// asked for before the hold is waited for.
    pub fn page(
        &mut self,
        client: &mut Client,
        partition: PartitionId,
        first: &Bytes,
    ) -> Result<Page, Failure> {
        let since = self.since.get(&partition).map_or(Lsn::MAX, |at| at.lsn);
        let deadline = Instant::now() + client.timeout();
        loop {
            self.renew(client)?;
            let page = copying::read(client, (&self.table, partition), first.clone())?;
            if page.at >= since {
                return Ok(page);
            }
            if Instant::now() >= deadline {
                let message = format!("partition {partition} does not show all of its rows yet");
                return Err(Failure::new("57P03", message).hint("nothing was changed; try again"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Says that it is still held, if nobody has said so for a while.
    pub fn renew(&mut self, client: &mut Client) -> Result<(), Failure> {
        if self.renewed.elapsed() >= RENEW {
            self.ask(client, MoveStep::Renew { at_ms: wall_ms() }).map_err(refused)?;
            self.renewed = Instant::now();
        }
        Ok(())
    }

    /// The error that a failover has lost something of what was copied, if so.
    pub fn is_kept(&self, client: &mut Client) -> Result<(), Failure> {
        self.since.iter().try_for_each(|(partition, at)| kept(client, (&self.table, *partition), *at))
    }

    /// Has nobody read its rows here any more, and waits until nobody does: where they have been copied to
    /// they may be written then, and no node that has not heard of it shows what was before (PR-403).
    pub fn close(&mut self, client: &mut Client) -> Result<(), Failure> {
        let record = read(self.ask(client, MoveStep::Close).map_err(refused)?)?;
        (self.version, self.renewed) = (record.policy.version, Instant::now());
        self.confirmed(client, true).map(drop)
    }

    /// It is read and written again as it was. False: there is no such table any more.
    pub fn free(&self, client: &mut Client) -> Result<bool, ClientError> {
        match self.ask(client, MoveStep::Free { said_ms: None }) {
            Ok(_) => Ok(true),
            Err(ClientError::Admin { status: 3, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn asked(client: &mut Client, request: MoveTable) -> Result<String, ClientError> {
    client.admin(AdminCommand::MoveTable(RecordText::new(&request)))
}

fn read(answer: String) -> Result<TableRecord, Failure> {
    RecordText(answer).read().map_err(|why| Failure::new(code::INTERNAL, why))
}

/// What a controller says of a step that it does not do: the table is held by somebody else, or not any more.
pub fn refused(error: ClientError) -> Failure {
    match error {
        ClientError::Admin { status: 5, sentence } => Failure::new(IN_USE, sentence),
        error => fault::of_client(error),
    }
}

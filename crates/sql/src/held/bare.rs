//! A bare table that is held while its rows are copied: nobody writes them (PR-400), and at the end nobody
//! reads them where they were (PR-403). Whoever holds it says again and again that it does.

use crate::fault;
use client::{Client, ClientError, Table, wall_ms};
use pg::{Failure, code};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::{PartitionId, Position, TableId, TableRecord};
use wire::control::AdminCommand;
use wire::moves::{MoveStep, MoveTable};
use wire::{Op, RecordText};

/// The code of a table that somebody else has something to do with.
pub const IN_USE: &str = "55006";

/// How often it is said that a table is still held.
pub const RENEW: Duration = Duration::from_secs(10);

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
        Ok(BareHold::of(Arc::new(record), number))
    }

    /// A table that somebody holds for the move with this number, as its record says.
    pub fn of(record: Arc<TableRecord>, number: TableId) -> BareHold {
        let (version, renewed) = (record.policy.version, Instant::now());
        BareHold { table: Table::new(record), number, version, since: BTreeMap::new(), renewed }
    }

    /// The table, as it was when it was held.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The number of the move.
    pub fn number(&self) -> TableId {
        self.number
    }

    /// The entry of each partition behind which no client writes.
    pub fn since(&self) -> &BTreeMap<PartitionId, Position> {
        &self.since
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

    /// Says that it is still held, if nobody has said so for a while.
    pub fn renew(&mut self, client: &mut Client) -> Result<(), Failure> {
        if self.renewed.elapsed() >= RENEW { self.say(client) } else { Ok(()) }
    }

    /// Says that it is still held. The error that it is not, if so.
    pub fn say(&mut self, client: &mut Client) -> Result<(), Failure> {
        self.ask(client, MoveStep::Renew { at_ms: wall_ms() }).map_err(refused)?;
        self.renewed = Instant::now();
        Ok(())
    }

    /// Has nobody read its rows here any more, and waits until nobody does: where they have been copied to
    /// they may be written then, and no node that has not heard of it shows what was before (PR-403).
    pub fn close(&mut self, client: &mut Client) -> Result<(), Failure> {
        if !self.table.record().policy.moves.is_some_and(|moves| moves.closed) {
            let record = read(self.ask(client, MoveStep::Close).map_err(refused)?)?;
            (self.version, self.renewed) = (record.policy.version, Instant::now());
        }
        self.confirmed(client, true).map(drop)
    }

    /// True if there is no such table any more: whoever has gone on with the move was faster.
    pub fn is_gone(&self, client: &mut Client) -> bool {
        let said = self.ask(client, MoveStep::Renew { at_ms: wall_ms() });
        matches!(said, Err(ClientError::Admin { status: 3, .. }))
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

/// Has a controller do a step.
pub fn asked(client: &mut Client, request: MoveTable) -> Result<String, ClientError> {
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

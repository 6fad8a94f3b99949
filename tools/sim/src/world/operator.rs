//! The operator: creates the tables, and asks for things, one after the other.

use crate::network::Conn;
use crate::plan::{Part, TablePlan};
use types::config::Holds;
use types::database::{catalog_schema, catalog_schema_by};
use types::policy::Standby;
use wire::RecordText;
use wire::control::{Admin, AdminAnswer, AdminCommand, CreateTable};

/// Commands that wait at most.
const MOST_COMMANDS: usize = 4;

/// What an operator wants to be done now.
pub(super) enum Want {
    /// A connection to some controller.
    Dial,
    /// A command goes out.
    Send(Conn, Admin),
}

/// The operator, with one connection at most.
#[derive(Default)]
pub(super) struct Operator {
    conn: Option<Conn>,
    dialling: bool,
    /// Tables that exist.
    created: usize,
    waiting: Option<u64>,
    next: u64,
    /// Asked for when connected, the newest first.
    commands: Vec<AdminCommand>,
}

impl Operator {
    /// Tables that exist.
    pub fn created(&self) -> usize {
        self.created
    }

    /// True if something is to be asked that was not asked for yet.
    pub fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// A command is to be asked. False if too much is already.
    pub fn queue(&mut self, command: AdminCommand) -> bool {
        let room = self.commands.len() < MOST_COMMANDS;
        if room {
            self.commands.push(command);
        }
        room
    }

    /// What there is to do: the tables first, then what is to be asked.
    pub fn wakes(&mut self, tables: &[TablePlan]) -> Option<Want> {
        let Some(conn) = self.conn else {
            return (!std::mem::replace(&mut self.dialling, true)).then_some(Want::Dial);
        };
        if self.waiting.is_some() {
            return None;
        }
        let command = match tables.get(self.created) {
            Some(table) if table.database => AdminCommand::CreateDatabase(RecordText::new(&creation(table))),
            Some(table) => AdminCommand::CreateTable(RecordText::new(&creation(table))),
            None => self.commands.pop()?,
        };
        self.next += 1;
        self.waiting = Some(self.next);
        Some(Want::Send(conn, Admin { id: self.next, command }))
    }

    /// A connection was made, or not, or broke.
    pub fn linked(&mut self, conn: Option<Conn>) {
        (self.conn, self.dialling, self.waiting) = (conn, false, None);
    }

    /// An answer came; `tables` are to be created.
    pub fn hears(&mut self, answer: &AdminAnswer, tables: usize) {
        if self.waiting != Some(answer.id) {
            return;
        }
        self.waiting = None;
        if self.created < tables && answer.result.is_ok() {
            self.created += 1;
        }
    }
}

/// What backups do.
pub(super) fn standby(cold: bool) -> Standby {
    if cold { Standby::Cold } else { Standby::Hot }
}

fn creation(table: &TablePlan) -> CreateTable {
    CreateTable {
        name: table.name.clone(),
        schema: match table.part {
            Part::Manager => types::system::schema(&table.name).expect("a system table"),
            // Several partitions of rows that transactions of one partition write: by the key.
            _ if table.is_spread() => {
                let rows = crate::rows::schema();
                catalog_schema_by(&rows.columns()[..1]).expect("a column more")
            }
            _ if table.database => catalog_schema(),
            _ => crate::rows::schema(),
        },
        engine: table.engine(),
        log: table.log,
        policy: table.policy.into(),
        factor: Some(table.factor),
        min_in_sync: Some(table.min_in_sync),
        available: table.available,
        partitions: table.partitions,
        placement: Vec::new(),
        scheme: Default::default(),
        standby: table.cold.map(standby),
        failover_target_ms: None,
        ship: table.ship,
        ranges: types::Ranges::default(),
        holds: if table.database { Holds::Database } else { Holds::Table },
        global: table.part == Part::Written,
    }
}

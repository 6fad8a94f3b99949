//! A database's tables, as far as clients and checkers speak of them.

use crate::programs;
use crate::rows;
use types::data::constraint::{Action, Demand, Reference};
use types::data::{self, Constraint};
use types::{CatalogTable, TableId, TableState};

/// What an entry does to the catalog: the table, or that its definition goes.
pub type CatalogChange = (TableId, Option<Table>);

/// True for a row of the catalog, by its key without the space, that is about procedures: they have a checker
/// of their own.
pub fn is_reserved(key: &[u8]) -> bool {
    key.try_into().is_ok_and(|id| programs::is_reserved(TableId(u32::from_be_bytes(id))))
}

/// How far a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is read and written.
    Live,
    /// It is read, and written by nobody.
    Held,
    /// It has no name yet, and takes the place of that table.
    Filling(TableId),
    /// It was dropped, and its rows are being removed.
    Dropped,
}

impl Standing {
    /// True if its name is its own.
    pub fn has_name(self) -> bool {
        matches!(self, Standing::Live | Standing::Held)
    }
}

/// What a constraint demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demands {
    /// No two rows have one mark.
    Marks,
    /// The row that one refers to is there in that table.
    Parents(TableId),
}

impl Demands {
    /// The column that it is about.
    pub fn column(self) -> usize {
        match self {
            Demands::Marks => rows::MARK,
            Demands::Parents(_) => rows::REFERS,
        }
    }
}

/// A constraint of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// Its number.
    pub number: u32,
    /// What it demands.
    pub demands: Demands,
    /// How far it is.
    pub standing: data::Standing,
}

impl Kept {
    /// One that every row keeps.
    pub fn new(number: u32, demands: Demands) -> Kept {
        Kept { number, demands, standing: data::Standing::Valid }
    }

    /// True if it demands something of what is written.
    pub fn is_enforced(&self) -> bool {
        self.standing != data::Standing::Dropping
    }

    fn read(constraint: &Constraint) -> Result<Kept, String> {
        let demands = match &constraint.demand {
            Demand::Unique(columns) if columns == &[rows::MARK] => Demands::Marks,
            Demand::Foreign(to) if to.columns == [rows::REFERS] && to.parent_columns == [0] => {
                Demands::Parents(to.parent)
            }
            other => return Err(format!("nobody has asked for {other:?}")),
        };
        Ok(Kept { number: constraint.number, demands, standing: constraint.standing })
    }

    fn definition(&self) -> Constraint {
        let demand = match self.demands {
            Demands::Marks => Demand::Unique(vec![rows::MARK]),
            Demands::Parents(parent) => Demand::Foreign(Reference {
                columns: vec![rows::REFERS],
                parent,
                parent_columns: vec![0],
                on_delete: Action::None,
                on_update: Action::None,
                deferred: None,
            }),
        };
        Constraint::new(self.number, &format!("c{}", self.number), demand).turned(self.standing)
    }
}

/// A table's definition, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Its id.
    pub id: TableId,
    /// Its name.
    pub name: String,
    /// The version of its columns.
    pub version: u32,
    /// Columns behind those that every table here has.
    pub more: u32,
    /// How far it is.
    pub standing: Standing,
    /// Its constraints.
    pub keeps: Vec<Kept>,
}

impl Table {
    /// From a row of the catalog: its key without the space, and its value. The error is a sentence.
    pub fn read(key: &[u8], value: &[u8]) -> Result<Table, String> {
        let (state, table) = CatalogTable::decode(key, value)?;
        Table::of(state, table)
    }

    /// From a definition, and how far the table is. The error is a sentence.
    pub fn of(state: TableState, table: CatalogTable) -> Result<Table, String> {
        let columns = (table.schema.columns().len(), rows::table_schema(1, 0).columns().len());
        let more = columns.0.saturating_sub(columns.1) as u32;
        let standing = match (state, table.fills) {
            (TableState::Live, None) => Standing::Live,
            (TableState::Held, None) => Standing::Held,
            (TableState::Filling, Some(of)) => Standing::Filling(of),
            (TableState::Dropping, _) => Standing::Dropped,
            (state, fills) => return Err(format!("table {} is {state:?} and fills {fills:?}", table.id)),
        };
        let version = table.schema.version();
        let keeps = table.schema.constraints().iter().map(Kept::read).collect::<Result<_, _>>()?;
        Ok(Table { id: table.id, name: table.name, version, more, standing, keeps })
    }

    /// Those of its constraints that demand something of what is written.
    pub fn enforced(&self) -> impl Iterator<Item = &Kept> {
        self.keeps.iter().filter(|kept| kept.is_enforced())
    }

    /// True if nobody writes it.
    pub fn is_held(&self) -> bool {
        self.standing == Standing::Held
    }

    /// As clients send it. One that was dropped is sent by nobody.
    pub fn definition(&self) -> CatalogTable {
        let constraints = self.keeps.iter().map(Kept::definition).collect();
        let schema = rows::table_schema(self.version, self.more).with_constraints(constraints);
        let schema = schema.expect("constraints of its own columns");
        let mut table = CatalogTable::new(self.id, &self.name, schema, 0);
        match self.standing {
            Standing::Live | Standing::Dropped => {}
            Standing::Held => table.held_ms = Some(1),
            Standing::Filling(of) => table.fills = Some(of),
        }
        table
    }
}

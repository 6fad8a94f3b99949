//! Programs that are compiled in: for workloads, and for whoever builds a node of their own.

use crate::rows::{Look, Rows};
use crate::shape::Shape;
use crate::work::{Effects, Order, Work, one, several};
use bytes::Bytes;
use std::sync::Arc;
use types::EngineError;
use types::data::{Column, ColumnType, Row, Value};
use types::procedure::{Failure, FailureKind};

/// A program that is compiled in. It must do the same whenever it is called with the same: it asks no clock,
/// draws no numbers and keeps nothing.
pub trait Builtin: Send + Sync {
    /// The tables that it needs, by their names, as the program counts them from 0.
    fn tables(&self) -> Vec<String>;

    /// Why it cannot be called with these parameters, results and tables, as a sentence, if so.
    fn fault(&self, parameters: &[Column], results: &[Column], tables: &[Shape]) -> Option<String>;

    /// Which edition of the program it is: another one wherever it does something else than before. Replicas
    /// that have the same one make calls of it themselves.
    fn edition(&self) -> u32 {
        1
    }

    /// Does what it does. An error undoes all of it.
    fn call(&self, tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure>;
}

impl dyn Builtin {
    /// Its tables, as they are. The error is a sentence.
    pub(crate) fn shapes(
        &self,
        parameters: &[Column],
        results: &[Column],
        find: &dyn Fn(&str) -> Option<Shape>,
    ) -> Result<Vec<Shape>, String> {
        let found = |name: &String| find(name).ok_or_else(|| format!("there is no table `{name}`"));
        let shapes: Vec<Shape> = self.tables().iter().map(found).collect::<Result<_, _>>()?;
        match self.fault(parameters, results, &shapes) {
            Some(fault) => Err(fault),
            None => Ok(shapes),
        }
    }
}

/// The tables as a program sees them: what has been executed, and what it has written itself.
pub struct Tables<'a> {
    work: &'a mut Work,
    rows: &'a dyn Rows,
    /// What the engine could not do: it ends the call, whatever the program makes of it.
    error: Option<EngineError>,
}

impl Tables<'_> {
    /// What the call was given beside its arguments.
    pub fn given(&self) -> &crate::Given {
        &self.work.given
    }

    fn engine<T>(&mut self, found: Result<T, EngineError>) -> Result<T, Failure> {
        found.map_err(|error| {
            let failure = Failure::new(FailureKind::Tables, error.to_string());
            self.error = Some(error);
            failure
        })
    }

    fn stored(&mut self, key: &Bytes) -> Result<Option<Bytes>, Failure> {
        let found = match self.work.own(key) {
            Some(own) => own,
            None => {
                let found = Look::Get(key.clone()).find(self.rows);
                one(self.engine(found)?)
            }
        };
        self.work.read(key.len() + found.as_ref().map_or(0, Bytes::len))?;
        Ok(found)
    }

    /// The row with this key, if there is one.
    pub fn get(&mut self, table: usize, key: Vec<Value>) -> Result<Option<Row>, Failure> {
        let key = self.work.key(table, key)?;
        let found = self.stored(&key)?;
        found.map(|value| self.work.decode(table, &key, &value)).transpose()
    }

    /// Rows whose keys begin with the first `fixed` of these values, from where all of them stand.
    pub fn range(
        &mut self,
        table: usize,
        from: (Vec<Value>, usize),
        rows: usize,
    ) -> Result<Vec<Row>, Failure> {
        self.ordered(table, from, (rows, Order::Forwards))
    }

    /// The same backwards: those whose keys begin with the first `fixed` of these values, from where all of
    /// them stand to the first.
    pub fn range_back(
        &mut self,
        table: usize,
        from: (Vec<Value>, usize),
        rows: usize,
    ) -> Result<Vec<Row>, Failure> {
        self.ordered(table, from, (rows, Order::Backwards))
    }

    fn ordered(
        &mut self,
        table: usize,
        from: (Vec<Value>, usize),
        wanted: (usize, Order),
    ) -> Result<Vec<Row>, Failure> {
        let look = self.work.range(table, from, wanted)?;
        let found = look.find(self.rows);
        let found = several(self.engine(found)?);
        self.work.merged(table, &look, found, wanted)
    }

    /// Writes a row, whatever was there.
    pub fn put(&mut self, table: usize, row: Row) -> Result<(), Failure> {
        self.work.put(table, row)
    }

    /// Removes a row. True if there was one.
    pub fn delete(&mut self, table: usize, key: Vec<Value>) -> Result<bool, Failure> {
        let key = self.work.key(table, key)?;
        let there = self.stored(&key)?.is_some();
        if there {
            self.work.delete(table, key)?;
        }
        Ok(there)
    }

    /// Gives a row.
    pub fn give(&mut self, values: Vec<Value>) -> Result<(), Failure> {
        self.work.give(values)
    }
}

/// A call of such a program.
pub(crate) struct BuiltinCall {
    builtin: Arc<dyn Builtin>,
    work: Work,
    arguments: Vec<Value>,
}

impl BuiltinCall {
    pub fn new(builtin: Arc<dyn Builtin>, work: Work, arguments: Vec<Value>) -> BuiltinCall {
        BuiltinCall { builtin, work, arguments }
    }

    /// Makes it, in one piece.
    pub fn run(&mut self, rows: &dyn Rows) -> Result<Result<Effects, Failure>, EngineError> {
        let mut tables = Tables { work: &mut self.work, rows, error: None };
        let ended = self.builtin.call(&mut tables, &self.arguments);
        match tables.error {
            Some(error) => Err(error),
            None => Ok(ended.map(|()| self.work.finish())),
        }
    }
}

/// What every node has.
pub(crate) fn bundled() -> Vec<(String, Arc<dyn Builtin>)> {
    vec![("count".into(), Arc::new(Count))]
}

/// Adds to a number: the least that reads and writes one row. `counters(id int primary key, n int)`.
struct Count;

impl Builtin for Count {
    fn tables(&self) -> Vec<String> {
        vec!["counters".into()]
    }

    fn fault(&self, parameters: &[Column], results: &[Column], tables: &[Shape]) -> Option<String> {
        let ints = |columns: &[Column], many: usize| {
            columns.len() == many && columns.iter().all(|column| column.column_type == ColumnType::Int)
        };
        let counters = &tables[0].schema;
        let fits =
            ints(parameters, 2) && ints(results, 1) && ints(counters.columns(), 2) && counters.key() == [0];
        (!fits).then(|| {
            "`count` is (id int, by int), gives an int and adds to table counters (id int, n int)".into()
        })
    }

    fn call(&self, tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let [id, Value::Int(by)] = arguments else {
            return Err(Failure::new(FailureKind::Arguments, "two numbers are wanted"));
        };
        let before = match tables.get(0, vec![id.clone()])?.as_ref().map(|row| &row.values[1]) {
            Some(Value::Int(number)) => *number,
            _ => 0,
        };
        let after = before.checked_add(*by);
        let after = after.ok_or_else(|| Failure::new(FailureKind::Raised, "the number is too large"))?;
        tables.put(0, Row::new(vec![id.clone(), Value::Int(after)]))?;
        tables.give(vec![Value::Int(after)])
    }
}

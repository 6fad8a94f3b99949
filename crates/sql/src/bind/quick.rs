//! Expressions that are evaluated without the engine: for one row, its start costs more than all the rest of
//! the statement.

use super::Slot;
use crate::eval::{self, FunctionId, cast};
use crate::ty::Ty;
use pg::Failure;
use types::data::Value;

/// Slots, columns, functions and casts.
#[derive(Clone, PartialEq, Debug)]
pub enum Quick {
    /// A value that is known when the statement is executed.
    Slot(Slot),
    /// A column of the row.
    Column(usize),
    /// A function of these.
    Call(FunctionId, Vec<Quick>),
    /// A cast from one type to another.
    Cast(Box<Quick>, Ty, Ty),
}

impl Quick {
    /// Its value for a row. `slot` gives the values of slots.
    pub fn value(&self, row: &[Value], slot: &dyn Fn(&Slot) -> Value) -> Result<Value, Failure> {
        match self {
            Quick::Slot(known) => Ok(slot(known)),
            Quick::Column(at) => Ok(row.get(*at).cloned().unwrap_or_default()),
            Quick::Call(function, arguments) => {
                let each = arguments.iter().map(|argument| argument.value(row, slot));
                eval::call(*function, &each.collect::<Result<Vec<_>, _>>()?)
            }
            Quick::Cast(inner, from, to) => cast::cast(inner.value(row, slot)?, *from, *to),
        }
    }

    /// True if it names a column.
    pub fn reads(&self) -> bool {
        match self {
            Quick::Slot(_) => false,
            Quick::Column(_) => true,
            Quick::Call(_, arguments) => arguments.iter().any(Quick::reads),
            Quick::Cast(inner, ..) => inner.reads(),
        }
    }
}

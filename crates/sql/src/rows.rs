//! Rows before they are written: what a statement did not say is filled in, and every value fits its column.

use crate::bind::Slot;
use crate::columns::default_slot;
use crate::driver::Handle;
use crate::eval::random_uuid;
use crate::read::Values;
use crate::sequences::{SequenceValues, Sequences};
use crate::ty::{Ty, written};
use client::Table;
use pg::{Failure, code};
use types::data::{Breach, Column, Value};

/// What a column gets that a statement does not name.
enum Rest {
    /// The same in every row.
    Value(Value),
    /// A number of its own in every row.
    Number,
    /// A UUID of its own in every row.
    Random,
}

/// Fills rows up.
pub struct Filler {
    /// The columns of rows that are filled: those that are given, then these.
    pub columns: Vec<usize>,
    rest: Vec<(usize, Rest)>,
}

impl Filler {
    /// For rows that give these columns of a table, in a statement that begins now.
    pub fn new(table: &Table, given: &[usize], values: &Values) -> Result<Filler, Failure> {
        let mut filler = Filler { columns: given.to_vec(), rest: Vec::new() };
        for (at, column) in table.schema().columns().iter().enumerate() {
            if given.contains(&at) {
                continue;
            }
            let rest = match default_slot(column)? {
                None => Rest::Number,
                Some(Slot::Random) => Rest::Random,
                Some(slot) => match values.of(&slot) {
                    // What is not said is null anyhow.
                    Value::Null => continue,
                    value => Rest::Value(value),
                },
            };
            filler.columns.push(at);
            filler.rest.push((at, rest));
        }
        Ok(filler)
    }

    /// Appends what the rows lack.
    pub async fn fill(
        &self,
        handle: &Handle,
        (sequences, told): (&Sequences, &SequenceValues),
        table: &Table,
        rows: &mut [Vec<Value>],
    ) -> Result<(), Failure> {
        for (at, rest) in &self.rest {
            match rest {
                Rest::Value(value) => rows.iter_mut().for_each(|row| row.push(value.clone())),
                Rest::Random => rows.iter_mut().for_each(|row| row.push(random_uuid())),
                Rest::Number => {
                    let numbers = sequences.take(handle, told, (table, *at), rows.len()).await?;
                    let largest = numbers.iter().copied().max().unwrap_or(0);
                    let column = &table.schema().columns()[*at];
                    if column.rules.check(&Value::Int(largest)).is_err() {
                        let message = format!("the numbers of column \"{}\" are used up", column.name);
                        return Err(Failure::new("2200H", message));
                    }
                    rows.iter_mut().zip(numbers).for_each(|(row, number)| row.push(Value::Int(number)));
                }
            }
        }
        Ok(())
    }
}

/// The value as its column keeps it.
pub fn fitted(column: &Column, value: Value) -> Result<Value, Failure> {
    column.rules.fit(value).map_err(|why| breach(column, why))
}

/// The error of a value that its column does not hold.
pub fn breach(column: &Column, why: Breach) -> Failure {
    match why {
        Breach::Range(16) => Failure::new(code::OUT_OF_RANGE, "smallint out of range"),
        Breach::Range(_) => Failure::new(code::OUT_OF_RANGE, format!("{} out of range", Ty::Int4.name())),
        Breach::Chars(_) => Failure::new("22001", format!("value too long for type {}", written(column))),
        Breach::Digits(precision, scale) => {
            let detail = format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than {}.",
                match precision - scale {
                    0 => "1".to_string(),
                    whole => format!("10^{whole}"),
                }
            );
            Failure::new(code::OUT_OF_RANGE, "numeric field overflow").detail(detail)
        }
    }
}

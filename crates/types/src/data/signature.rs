//! Lists of values that are rows of no table: the arguments of a procedure, and the rows that it gives.

use super::key::encode_key;
use super::row::{Row, RowError, decode_row, encode_row};
use super::schema::{Column, Schema, SchemaError};
use super::value::{ColumnType, Value};

/// The name of a key that nobody sees.
pub const HIDDEN_KEY: &str = "ctid";

/// Columns without a key. Values are encoded like those of a row ([`super::row`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The columns, and behind them a key that is always 0.
    schema: Schema,
    key: Vec<u8>,
}

/// The columns with a key behind them that nobody sees.
pub fn keyless(columns: &[Column]) -> Result<Schema, SchemaError> {
    let hidden = super::rules::Rules { hidden: true, ..Default::default() };
    let key = Column::new(HIDDEN_KEY, ColumnType::Int).with(hidden).not_null();
    let columns = columns.iter().cloned().chain([key]).collect();
    Schema::new(columns, &[HIDDEN_KEY], 1, false)
}

impl Signature {
    /// Of these columns, which have different names. There may be none.
    pub fn new(columns: &[Column]) -> Result<Signature, SchemaError> {
        let schema = keyless(columns)?;
        let key = encode_key(&schema, &[Value::Int(0)]).expect("a number is a key");
        Ok(Signature { schema, key })
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        let all = self.schema.columns();
        &all[..all.len() - 1]
    }

    /// The bytes of these values. The error says which of them is none of its column's.
    pub fn encode(&self, mut values: Vec<Value>) -> Result<Vec<u8>, RowError> {
        let (expected, given) = (self.columns().len(), values.len());
        if expected != given {
            return Err(RowError::WrongCount { expected, given });
        }
        values.push(Value::Int(0));
        encode_row(&self.schema, &Row::new(values))
    }

    /// Values from their bytes, which may come from anybody.
    pub fn decode(&self, bytes: &[u8]) -> Result<Vec<Value>, RowError> {
        let mut values = decode_row(&self.schema, &self.key, bytes)?.values;
        values.pop();
        let wrong = |(column, value): &(&Column, &Value)| !column.accepts(value);
        match self.columns().iter().zip(&values).find(wrong) {
            Some((column, _)) => Err(RowError::Null { column: column.name.clone() }),
            None => Ok(values),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_and_others_are_refused() {
        let columns = [Column::new("a", ColumnType::Int).not_null(), Column::new("b", ColumnType::Text)];
        let both = Signature::new(&columns).expect("valid");
        let values = vec![Value::Int(7), Value::Null];
        let bytes = both.encode(values.clone()).expect("fits");
        assert_eq!(both.decode(&bytes), Ok(values));
        for length in 0..bytes.len() {
            assert!(both.decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(both.encode(vec![Value::Int(7)]).is_err(), "too few");
        assert!(both.encode(vec![Value::Text("x".into()), Value::Null]).is_err(), "another type");
        assert!(both.encode(vec![Value::Null, Value::Null]).is_err(), "null where none may be");
        let loose = Signature::new(
            &[columns[0].clone(), columns[1].clone()].map(|one| Column { nullable: true, ..one }),
        );
        let nulls = loose.expect("valid").encode(vec![Value::Null, Value::Null]).expect("fits");
        assert!(both.decode(&nulls).is_err(), "null where none may be");
        let none = Signature::new(&[]).expect("valid");
        let bytes = none.encode(Vec::new()).expect("fits");
        assert_eq!((none.columns(), none.decode(&bytes)), (&[][..], Ok(Vec::new())));
    }
}

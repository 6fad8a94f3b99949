//! Values from programs as values of columns, and back.

use types::data::{Column, ColumnType, Decimal, Value};

/// True for types whose values programs have as numbers of 64 bits.
pub(crate) fn is_number(of: ColumnType) -> bool {
    use ColumnType::*;
    matches!(of, Int | Bool | Date | Timestamp | Time)
}

/// The number of a value of such a type; 0 of null.
pub(crate) fn number(value: &Value) -> i64 {
    match value {
        Value::Int(number) | Value::Timestamp(number) | Value::Time(number) => *number,
        Value::Bool(truth) => i64::from(*truth),
        Value::Date(day) => i64::from(*day),
        _ => 0,
    }
}

/// The bytes of a value of another type: those of `bytes`, else its text. None of null.
pub(crate) fn content(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => Vec::new(),
        Value::Bytes(bytes) => bytes.clone(),
        Value::Text(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    }
}

/// A value as one of this column: numbers as what the column has as numbers, texts as its type reads them.
/// The error is the end of a sentence.
pub(crate) fn fitted(column: &Column, value: Value) -> Result<Value, String> {
    let of = column.column_type;
    let no = |what: &str| format!("column `{}` is of type {of} and takes no {what}", column.name);
    let value = match (value, of) {
        (Value::Null, _) => Value::Null,
        (Value::Int(number), ColumnType::Bool) if (0..=1).contains(&number) => Value::Bool(number == 1),
        (Value::Int(number), ColumnType::Date) => {
            Value::Date(i32::try_from(number).map_err(|_| no("such day"))?)
        }
        (Value::Int(number), ColumnType::Timestamp) => Value::Timestamp(number),
        (Value::Int(number), ColumnType::Time) if (0..=86_400_000_000).contains(&number) => {
            Value::Time(number)
        }
        (Value::Int(number), ColumnType::Decimal) => {
            Value::Decimal(Decimal::new(number.into(), 0).ok_or_else(|| no("such number"))?)
        }
        (Value::Text(text), ColumnType::Bytes) => Value::Bytes(text.into_bytes()),
        (Value::Text(text), of) if of != ColumnType::Text => {
            of.parse(&text).map_err(|error| error.to_string())?
        }
        (value, of) if value.column_type() == Some(of) => value,
        (Value::Int(_), _) => return Err(no("number")),
        _ => return Err(no("value of another type")),
    };
    if value.is_null() && !column.nullable {
        return Err(format!("column `{}` must have a value", column.name));
    }
    column.rules.fit(value).map_err(|breach| format!("column `{}`: {breach}", column.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_become_what_the_column_is() {
        let fit = |of: ColumnType, value: Value| fitted(&Column::new("c", of), value);
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(fit(ColumnType::Bool, Value::Int(1)), Ok(Value::Bool(true)));
        assert!(fit(ColumnType::Bool, Value::Int(2)).is_err());
        assert_eq!(fit(ColumnType::Date, Value::Int(3)), Ok(Value::Date(3)));
        assert!(fit(ColumnType::Date, Value::Int(1 << 40)).is_err());
        assert_eq!(fit(ColumnType::Int, text("17")), Ok(Value::Int(17)));
        assert!(fit(ColumnType::Int, text("x")).is_err());
        assert!(fit(ColumnType::Text, Value::Int(1)).is_err());
        assert_eq!(fit(ColumnType::Text, Value::Null), Ok(Value::Null));
        assert!(fitted(&Column::new("c", ColumnType::Int).not_null(), Value::Null).is_err());
        assert_eq!(content(&Value::Decimal(Decimal::new(150, 2).expect("fits"))), b"1.5".to_vec());
    }
}

//! Functions on sequences.

use super::facts::Facts;
use super::functions::{Asking, add, maybe, oid, words};
use super::names::{must_find, quoted, relation};
use super::relations::{Relation, place};
use crate::ty::Ty::{Bool, Int8, Regclass, Text};
use ::types::TableId;
use ::types::data::Value;
use ::types::data::kind::Sequence;
use pg::{Failure, code};

/// The sequence with this number.
fn sequence(facts: &Facts, value: &Value) -> Result<(Relation, TableId, Sequence), Failure> {
    let number = match value {
        Value::Text(name) => must_find(facts, Regclass, name)? as u32,
        value => oid(value),
    };
    let found = relation(facts, number);
    let found =
        found.ok_or_else(|| Failure::new("42P01", format!("could not open relation with OID {number}")))?;
    match found.sequence() {
        Some((id, sequence)) => Ok((found, id, sequence)),
        None => Err(Failure::new("42809", format!("\"{}\" is not a sequence", found.name))),
    }
}

/// Numbers one after the other.
pub(super) fn sequences(all: &mut Vec<Asking>) {
    for one in [&[Regclass][..], &[Text]] {
        add(all, "nextval", one, Int8, |facts, a| {
            let (_, id, _) = sequence(facts, &a[0])?;
            let numbers = facts.counting(|sequences, handle, told| async move {
                sequences.next(&handle, &told, id, 1).await
            })?;
            Ok(Value::Int(numbers[0]))
        });
        add(all, "currval", one, Int8, |facts, a| {
            let (relation, id, _) = sequence(facts, &a[0])?;
            facts.asker.told.of(id).map(Value::Int).ok_or_else(|| {
                let message =
                    format!("currval of sequence \"{}\" is not yet defined in this session", relation.name);
                Failure::new("55000", message)
            })
        });
    }
    add(all, "setval", &[Text, Int8], Int8, |facts, a| set(facts, &a[0], &a[1], true));
    add(all, "setval", &[Text, Int8, Bool], Int8, |facts, a| {
        set(facts, &a[0], &a[1], a[2] == Value::Bool(true))
    });
    add(all, "lastval", &[], Int8, |facts, _| {
        let missing = || Failure::new("55000", "lastval is not yet defined in this session");
        facts.asker.told.last().map(Value::Int).ok_or_else(missing)
    });
    add(all, "setval", &[Regclass, Int8], Int8, |facts, a| set(facts, &a[0], &a[1], true));
    add(all, "setval", &[Regclass, Int8, Bool], Int8, |facts, a| {
        set(facts, &a[0], &a[1], a[2] == Value::Bool(true))
    });
    add(all, "sequence_last", &[Regclass], Int8, |facts, a| {
        let (_, id, _) = sequence(facts, &a[0])?;
        standing(facts, id).map(|(last, _)| Value::Int(last))
    });
    add(all, "sequence_called", &[Regclass], Bool, |facts, a| {
        let (_, id, _) = sequence(facts, &a[0])?;
        standing(facts, id).map(|(_, called)| Value::Bool(called))
    });
    add(all, "pg_sequence_last_value", &[Regclass], Int8, |facts, a| {
        let (_, id, _) = sequence(facts, &a[0])?;
        standing(facts, id).map(|(last, called)| if called { Value::Int(last) } else { Value::Null })
    });
    add(all, "pg_get_serial_sequence", &[Text, Text], Text, |facts, a| {
        let of = must_find(facts, Regclass, words(&a[0]))?;
        let found = relation(facts, of as u32);
        let table = found.as_ref().and_then(Relation::table);
        let name = words(&a[1]);
        let column = table.and_then(|table| Some(&table.schema.columns()[table.schema.column_index(name)?]));
        let Some(column) = column else {
            let of = found.as_ref().map_or("", |found| found.name.as_str());
            let message = format!("column \"{name}\" of relation \"{of}\" does not exist");
            return Err(Failure::new("42703", message));
        };
        let own = column.rules.sequence.and_then(|id| facts.catalog.sequence_by_id(TableId(id)));
        let ((_, schema), name) = match own {
            Some((name, _)) => place(&facts.catalog, name),
            None => return Ok(Value::Null),
        };
        maybe(Some(format!("{}.{}", quoted(schema), quoted(name))))
    });
}

/// The last number of a sequence, and whether it was given out.
pub fn standing(facts: &Facts, id: TableId) -> Result<(i64, bool), Failure> {
    facts.counting(|sequences, handle, _| async move { sequences.standing(&handle, id).await })
}

fn set(facts: &Facts, of: &Value, to: &Value, called: bool) -> Result<Value, Failure> {
    let (relation, id, sequence) = sequence(facts, of)?;
    let Value::Int(number) = *to else { return Ok(Value::Null) };
    let Sequence { least, most, step, .. } = sequence;
    if !(least..=most).contains(&number) {
        let name = &relation.name;
        let message =
            format!("setval: value {number} is out of bounds for sequence \"{name}\" ({least}..{most})");
        return Err(Failure::new(code::OUT_OF_RANGE, message));
    }
    let next = if called { number.saturating_add(step) } else { number };
    facts.counting(|sequences, handle, told| async move {
        sequences.set(&handle, id, next).await?;
        if called {
            told.tell(id, number);
        }
        Ok(Value::Int(number))
    })
}

//! I15: the index rows of a replica are, at every position, what its rows say.

use std::collections::{BTreeMap, BTreeSet};
use types::engine::{Engine, Row, space};
use types::index::{self, Definition, IndexState};
use types::{EngineError, Lsn, ReadAt};

/// Compares. None: this state cannot be read now. The error is a sentence.
pub fn check(engine: &dyn Engine, at: ReadAt) -> Option<Result<(), String>> {
    let state = FoundIndex::read(engine, at).ok()?;
    Some(state.check())
}

/// What a state has of rows and indexes.
struct FoundIndex {
    definitions: Vec<Row>,
    rows: Vec<Row>,
    entries: BTreeSet<Vec<u8>>,
}

impl FoundIndex {
    fn read(engine: &dyn Engine, at: ReadAt) -> Result<FoundIndex, EngineError> {
        let (first, end) = index::definition_range();
        let all = |from: &[u8], to: &[u8]| engine.scan(from, to, at, 1 << 20, 1 << 30);
        Ok(FoundIndex {
            definitions: all(&first, &end)?,
            rows: all(&[space::ROW], &[space::ROW + 1])?,
            entries: all(&[space::INDEX], &[space::INDEX + 1])?
                .into_iter()
                .map(|row| row.key.to_vec())
                .collect(),
        })
    }

    fn check(mut self) -> Result<(), String> {
        let rows: BTreeMap<Vec<u8>, (Lsn, Vec<u8>)> =
            self.rows.iter().map(|row| (row.key[1..].to_vec(), (row.lsn, row.value.to_vec()))).collect();
        for row in std::mem::take(&mut self.definitions) {
            let definition = Definition::decode(&row.key, &row.value)?;
            self.check_index(&definition, &rows)?;
        }
        match self.entries.first() {
            Some(entry) => Err(format!("the index row {entry:02x?} is of no index")),
            None => Ok(()),
        }
    }

    /// Takes the index's rows out.
    fn check_index(
        &mut self,
        definition: &Definition,
        rows: &BTreeMap<Vec<u8>, (Lsn, Vec<u8>)>,
    ) -> Result<(), String> {
        let prefix = index::index_prefix(definition.index.number);
        let (mut entries, others) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition::<BTreeSet<_>, _>(|key| key.starts_with(&prefix));
        self.entries = others;
        if !definition.is_maintained() {
            return Ok(());
        }
        let (name, state) = (&definition.index.name, definition.state);
        for (key, (lsn, row)) in rows {
            let entry = definition.entry(key, row).map_err(|error| format!("index {name}: {error}"))?;
            let due = state == IndexState::Ready || key[..] < definition.next[..];
            if !entries.remove(&entry[..]) && due {
                return Err(format!("index {name}, {}, lacks the row {key:02x?} of {lsn}", state.name()));
            }
        }
        match entries.first() {
            Some(entry) => Err(format!("index {name} has {entry:02x?}, which no row has")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;
    use bytes::Bytes;
    use engine::MemoryEngine;
    use types::Term;
    use types::{Indexes, Mutation, Position};

    fn definition() -> Definition {
        let mut indexes = Indexes::default();
        indexes.add(&rows::schema(), "hue", &["hue".into()]).expect("valid");
        Definition::begin(indexes.wanted[0].clone(), rows::schema())
    }

    fn verdict(mutations: &[Mutation]) -> Result<(), String> {
        let mut engine = MemoryEngine::volatile();
        engine.execute(Position::new(Term(1), Lsn(1)), mutations);
        check(&engine, ReadAt::Applied).expect("it can be read")
    }

    #[test]
    fn what_lacks_and_what_is_left_over_is_rejected() {
        let (key, row) = (rows::key("r1", true), rows::row("r1", 7, true));
        let stored = [&[space::ROW], &key[..]].concat();
        let put = |key: Bytes, value: Bytes| Mutation { key, value: Some(value) };
        let there = put(stored.into(), row.clone());
        let entry = put(definition().entry(&key, &row).expect("indexable"), Bytes::new());
        let ready = definition().turned(IndexState::Ready).mutation();
        let building = definition().mutation();
        assert_eq!(verdict(&[ready.clone(), there.clone(), entry.clone()]), Ok(()));
        assert!(verdict(&[ready.clone(), there.clone()]).is_err(), "it lacks");
        assert!(verdict(&[ready, entry.clone()]).is_err(), "it is left over");
        assert!(verdict(std::slice::from_ref(&entry)).is_err(), "there is no index");
        assert_eq!(verdict(&[building.clone(), there.clone()]), Ok(()), "not come to yet");
        assert!(verdict(&[building, entry]).is_err(), "it is left over");
        let mut half = definition();
        half.next = [&key[..], &[0]].concat().into();
        assert!(verdict(&[half.mutation(), there]).is_err(), "it was come to");
    }
}

//! Secondary indexes (`types::index`): maintained in the entry of the write itself, built and removed in
//! slices by entries of their own, and read at one position.
//!
//! Only the primary thinks. What it finds out is in the entries, so backups apply index rows and definitions
//! like any others.

use crate::rows::Evaluated;
use crate::session::row_key;
use crate::settings::Settings;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::data::Standing;
use types::database::catalog_key;
use types::engine::{Engine, EngineError, mutation_fault, space};
use types::index::{self, Definition, IndexState, Wanted};
use types::{CatalogTable, KeySpace, Lsn, Mutation, PartitionId, Position, ReadAt, Rules, TableId, Term};
use wire::effects::MAX_MUTATIONS;
use wire::entry::MAX_PAYLOAD_BYTES;
use wire::request::{IndexStatus, MAX_FOUND};
use wire::{Body, Effects, Entry, Op, Outcome, Status};

/// More definitions than a partition ever has at a time.
const MAX_INDEX_ROWS: usize = 10_000;
/// Room in an entry for what goes into it beside rows, rows of jobs above all: so many mutations, and so many
/// bytes.
pub(crate) const BESIDE: usize = 512;
const BESIDE_BYTES: usize = 16 << 10;
/// The most bytes of rows in one answer.
const FOUND_BYTES: usize = 4 << 20;

/// What a leader knows of its indexes. Good for one term: in it nobody else changes the state.
///
/// Invariants (`validate`): the last entry about indexes is not behind the log's end.
#[derive(Debug, Default)]
pub(crate) struct KnownIndexes {
    /// The term that all of this is of; zero: none.
    term: Term,
    /// The last entry about indexes that was made in it.
    last: Lsn,
    /// As the state has them, if that was looked up since.
    definitions: Option<Arc<[Definition]>>,
}

/// What brings a partition nearer to what is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Begin(types::IndexRecord),
    Build(Definition),
    Drop(Definition),
    Remove(Definition),
}

/// The next step, or none. A definition with a higher number than was ever given out is of a newer record of
/// the table.
fn next_step(definitions: &[Definition], wanted: &Wanted) -> Option<Step> {
    let indexes = &wanted.indexes;
    let known = |number: u32| definitions.iter().any(|definition| definition.index.number == number);
    let is_wanted = |number: u32| indexes.wanted.iter().any(|index| index.number == number);
    if let Some(index) = indexes.wanted.iter().find(|index| !known(index.number)) {
        return Some(Step::Begin(index.clone()));
    }
    let dropped = |definition: &&Definition| {
        let number = definition.index.number;
        number <= indexes.last && !is_wanted(number) && definition.state != IndexState::Dropping
    };
    if let Some(definition) = definitions.iter().find(dropped) {
        return Some(Step::Drop(definition.turned(IndexState::Dropping)));
    }
    definitions.iter().find_map(|definition| match definition.state {
        IndexState::Building => Some(Step::Build(definition.clone())),
        IndexState::Dropping => Some(Step::Remove(definition.clone())),
        IndexState::Ready | IndexState::Failed => None,
    })
}

/// True if one entry can have these changes, and what the executor adds to them.
pub(crate) fn fit_an_entry(mutations: &[Mutation]) -> bool {
    let bytes = Effects::encoded_len(mutations);
    mutations.len() <= MAX_MUTATIONS - BESIDE && bytes <= MAX_PAYLOAD_BYTES - BESIDE_BYTES
}

impl KnownIndexes {
    /// The indexes as executed so far. Only a leader has a term, and asks.
    fn definitions(
        &mut self,
        engine: &dyn Engine,
        leading: Option<Term>,
    ) -> Result<Arc<[Definition]>, EngineError> {
        let Some(term) = leading else { return Ok(Arc::new([])) };
        if let Some(definitions) = self.definitions.as_ref().filter(|_| self.term == term) {
            return Ok(definitions.clone());
        }
        let definitions: Arc<[Definition]> = definitions_at(engine, ReadAt::Applied)?.into();
        let last = if self.term == term { self.last } else { Lsn::ZERO };
        *self = KnownIndexes { term, last, definitions: Some(definitions.clone()) };
        Ok(definitions)
    }

    /// True if writes change rows of indexes.
    pub fn are_maintained(
        &mut self,
        engine: &dyn Engine,
        leading: Option<Term>,
    ) -> Result<bool, EngineError> {
        Ok(self.definitions(engine, leading)?.iter().any(Definition::is_maintained))
    }

    /// Adds to what a write changes what it changes in the indexes, or refuses it.
    pub fn with_index_rows(
        &mut self,
        engine: &dyn Engine,
        leading: Option<Term>,
        rules: Rules,
        evaluated: Evaluated,
    ) -> Result<Evaluated, EngineError> {
        let (outcome, affected, mut mutations) = evaluated;
        let definitions = self.definitions(engine, leading)?;
        if outcome != Outcome::Done {
            return Ok((outcome, affected, mutations));
        }
        if definitions.iter().any(Definition::is_maintained) {
            let Some(changes) = index_changes(engine, rules, &definitions, &mutations)? else {
                return Ok((Outcome::Unindexable, 0, Vec::new()));
            };
            mutations.extend(changes);
        }
        if !fit_an_entry(&mutations) {
            return Ok((Outcome::TooMuch, 0, Vec::new()));
        }
        Ok((outcome, affected, mutations))
    }

    /// True if the last step of this term is not committed yet.
    pub fn is_pending(&self, term: Term, committed: Lsn) -> bool {
        self.term == term && self.last > committed
    }

    /// What the next step towards `wanted` changes, if there is one.
    pub fn next_mutations(
        &mut self,
        engine: &dyn Engine,
        term: Term,
        settings: &Settings,
        wanted: &Wanted,
    ) -> Result<Option<Vec<Mutation>>, EngineError> {
        let definitions = self.definitions(engine, Some(term))?;
        let step = next_step(&definitions, wanted);
        step.map(|step| take_step(engine, settings, wanted, step)).transpose()
    }

    /// An entry at `at` has changed the definitions, or will have when it is executed.
    pub fn changed_at(&mut self, at: Position) {
        assert!(at.term >= self.term, "indexes of term {} change in the older {}", self.term, at.term);
        *self = KnownIndexes { term: at.term, last: at.lsn, definitions: None };
    }

    /// What must hold of them in a log that ends at `end`.
    pub fn validate(&self, leading: Option<Term>, end: Lsn) -> Result<(), String> {
        match leading == Some(self.term) && self.last > end {
            true => {
                Err(format!("the last entry about indexes, {}, is behind the log's end {end}", self.last))
            }
            false => Ok(()),
        }
    }
}

/// The indexes of a state, by number.
pub fn definitions_at(engine: &dyn Engine, at: ReadAt) -> Result<Vec<Definition>, EngineError> {
    let (from, to) = index::definition_range();
    let rows = engine.scan(&from, &to, at, MAX_INDEX_ROWS, usize::MAX)?;
    let read = |row: &types::engine::Row| Definition::decode(&row.key, &row.value);
    rows.iter().map(read).collect::<Result<_, _>>().map_err(EngineError::Corrupt)
}

/// What these changes of rows change in the indexes. None: a row cannot be indexed.
fn index_changes(
    engine: &dyn Engine,
    rules: Rules,
    definitions: &[Definition],
    mutations: &[Mutation],
) -> Result<Option<Vec<Mutation>>, EngineError> {
    let mut changes = Vec::new();
    // A write sees its own earlier operations.
    let mut own: BTreeMap<&Bytes, Option<&Bytes>> = BTreeMap::new();
    for mutation in mutations.iter().filter(|mutation| mutation.key[0] == space::ROW) {
        let old = match own.insert(&mutation.key, mutation.value.as_ref()) {
            Some(old) => old.cloned(),
            None => engine.get(&mutation.key, ReadAt::Applied)?.map(|(_, value)| value),
        };
        for definition in definitions.iter().filter(|definition| definition.is_maintained()) {
            let entry = |row: &Bytes| definition.entry(&mutation.key[1..], row);
            // While an index is built there may be rows that have no place in it and have not been come to
            // yet.
            let before = old.as_ref().and_then(|row| entry(row).ok());
            let Ok(after) = mutation.value.as_ref().map(entry).transpose() else { return Ok(None) };
            if before == after {
                continue;
            }
            if let Some(key) = before.filter(|_| rules.indexes_lose_old_values()) {
                changes.push(Mutation { key, value: None });
            }
            changes.extend(after.map(|key| Mutation { key, value: Some(Bytes::new()) }));
        }
    }
    Ok(Some(changes))
}

fn take_step(
    engine: &dyn Engine,
    settings: &Settings,
    wanted: &Wanted,
    step: Step,
) -> Result<Vec<Mutation>, EngineError> {
    match step {
        Step::Begin(index) => Ok(vec![Definition::begin(index, wanted.schema.clone()).mutation()]),
        Step::Drop(definition) => Ok(vec![definition.mutation()]),
        Step::Build(definition) => build(engine, settings, definition),
        Step::Remove(definition) => remove_index(engine, settings, definition),
    }
}

/// Index rows for the next rows, and how far that is.
fn build(
    engine: &dyn Engine,
    settings: &Settings,
    mut definition: Definition,
) -> Result<Vec<Mutation>, EngineError> {
    let (limit, bytes) = (settings.slice_rows, settings.slice_bytes);
    let from = row_key(&definition.next);
    let rows = engine.scan(&from, &[space::ROW + 1], ReadAt::Applied, limit, bytes)?;
    let read: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
    let mut whole = rows.len() < limit && read < bytes;
    let (mut mutations, mut size) = (Vec::with_capacity(rows.len() + 1), 0);
    for row in &rows {
        let key = match definition.entry(&row.key[1..], &row.value) {
            Ok(key) => key,
            Err(why) => {
                definition.note = format!("a row cannot be indexed: {why}");
                return Ok(vec![definition.turned(IndexState::Failed).mutation()]);
            }
        };
        size += key.len();
        mutations.push(Mutation { key, value: Some(Bytes::new()) });
        definition.next = [&row.key[1..], &[0]].concat().into();
        definition.entries += 1;
        if size >= bytes {
            whole &= mutations.len() == rows.len();
            break;
        }
    }
    if whole {
        definition = definition.turned(IndexState::Ready);
    }
    mutations.push(definition.mutation());
    Ok(mutations)
}

/// Takes the next index rows away; behind the last the definition.
fn remove_index(
    engine: &dyn Engine,
    settings: &Settings,
    mut definition: Definition,
) -> Result<Vec<Mutation>, EngineError> {
    let number = definition.index.number;
    let from = match definition.next.is_empty() {
        true => index::index_prefix(number),
        false => definition.next.to_vec(),
    };
    let end = index::index_end(number);
    let (limit, bytes) = (settings.slice_rows, settings.slice_bytes);
    let rows = engine.scan(&from, &end, ReadAt::Applied, limit, bytes)?;
    let mut mutations: Vec<Mutation> =
        rows.iter().map(|row| Mutation { key: row.key.clone(), value: None }).collect();
    match rows.last() {
        Some(last) => {
            definition.next = [&last.key[..], &[0]].concat().into();
            mutations.push(definition.mutation());
        }
        None => mutations.push(Mutation { key: index::definition_key(number), value: None }),
    }
    Ok(mutations)
}

/// Which indexes there are, for a client.
pub(crate) fn index_status(engine: &dyn Engine, at: ReadAt) -> Result<Body, EngineError> {
    let status = |definition: Definition| IndexStatus {
        number: definition.index.number,
        name: definition.index.name,
        state: definition.state,
        entries: definition.entries,
        note: definition.note,
    };
    Ok(Body::Indexes(definitions_at(engine, at)?.into_iter().map(status).collect()))
}

/// Rows by an index of the table that these keys are of.
pub(crate) fn find(
    engine: &dyn Engine,
    (partition, keys, rules): (PartitionId, KeySpace, Rules),
    op: &Op,
    at: ReadAt,
) -> Result<(Status, Body), EngineError> {
    let Op::Find { index: number, from, to, limit, .. } = op else { return Ok((Status::Ok, Body::None)) };
    let columns = match ready_columns(engine, (partition, keys), *number, at)? {
        Ok(columns) => columns,
        Err(why) => return Ok((Status::NoIndex(why), Body::None)),
    };
    let (prefix, end) = keys.index_range(Some(*number));
    let begin = [&prefix[..], from].concat();
    let end = if to.is_empty() { end } else { [&prefix[..], to].concat() };
    if begin >= end {
        return Ok((Status::Ok, Body::Found { rows: Vec::new(), next: Bytes::new() }));
    }
    let limit = (*limit as usize).clamp(1, MAX_FOUND);
    let entries = engine.scan(&begin, &end, at, limit + 1, FOUND_BYTES)?;
    let rows_at = if rules.finds_are_of_one_state() { at } else { ReadAt::Applied };
    let (mut rows, mut bytes, mut next) = (Vec::with_capacity(entries.len()), 0, Bytes::new());
    let full = entries.iter().map(|entry| entry.key.len()).sum::<usize>() >= FOUND_BYTES;
    for (place, entry) in entries.iter().enumerate() {
        let own = &entry.key[prefix.len()..];
        let key = index::row_behind(own, columns).map_err(|error| EngineError::Corrupt(error.to_string()))?;
        let Some((lsn, row)) = engine.get(&keys.row_key(key), rows_at)? else {
            let why = format!("index {number} of {partition} has an entry of a row that is not there");
            return Ok((Status::Corrupt(why), Body::None));
        };
        bytes += key.len() + row.len();
        rows.push((entry.key.slice_ref(key), lsn, row));
        let more = place + 1 < entries.len() || full;
        if more && (place + 1 >= limit || bytes >= FOUND_BYTES || place + 1 == entries.len()) {
            next = [own, &[0]].concat().into();
            break;
        }
    }
    Ok((Status::Ok, Body::Found { rows, next }))
}

/// How many columns an index has that is ready in this state, or why it cannot be read by.
fn ready_columns(
    engine: &dyn Engine,
    (partition, keys): (PartitionId, KeySpace),
    number: u32,
    at: ReadAt,
) -> Result<Result<usize, String>, EngineError> {
    let none = || Ok(Err(format!("partition {partition} has no index {number}")));
    let state = match keys {
        KeySpace::Catalog => return none(),
        KeySpace::Table(table) => constraint_index(engine, table, number, at)?,
        KeySpace::Bare => {
            let value = engine.get(&index::definition_key(number), at)?.map(|(_, value)| value);
            value.map(|value| index::state_of(&value)).transpose().map_err(EngineError::Corrupt)?
        }
    };
    Ok(match state {
        None => return none(),
        Some((IndexState::Ready, columns)) => Ok(columns),
        Some((state, _)) => Err(format!("index {number} of partition {partition} is {}", state.name())),
    })
}

/// How far the index of a constraint of a database's table is, and how many columns it has.
fn constraint_index(
    engine: &dyn Engine,
    table: TableId,
    number: u32,
    at: ReadAt,
) -> Result<Option<(IndexState, usize)>, EngineError> {
    let key = catalog_key(table);
    let Some((_, value)) = engine.get(&key, at)? else { return Ok(None) };
    let read = CatalogTable::decode(&KeySpace::Catalog.key_of(&key), &value);
    let (_, table) = read.map_err(EngineError::Corrupt)?;
    let mut all = table.schema.constraints().iter();
    Ok(all.find(|one| one.number == number).and_then(|one| {
        let state = match one.standing {
            Standing::Valid => IndexState::Ready,
            Standing::Building => IndexState::Building,
            Standing::Failed => IndexState::Failed,
            Standing::Dropping => IndexState::Dropping,
        };
        Some((state, one.indexed()?.len()))
    }))
}

/// What an entry about indexes changes. The error is a sentence.
pub(crate) fn decode(entry: &Entry) -> Result<Vec<Mutation>, String> {
    let mutations = Effects::decode(entry.payload())?.mutations;
    let (first, end) = index::definition_range();
    // Rows of a database's table that was dropped are removed by the same kind, and where its feeds were, and
    // definitions of tables are changed.
    let fits = |mutation: &Mutation| {
        let (key, removed) = (&mutation.key[..], mutation.value.is_none());
        let of_table = removed && matches!(key[0], space::ROW | space::FEED) || KeySpace::Catalog.has(key);
        key[0] == space::INDEX || key >= &first[..] && key < &end[..] || of_table
    };
    if let Some(fault) = mutations.iter().find_map(mutation_fault) {
        return Err(format!("PR-72: the entry at {}: {fault}", entry.at()));
    }
    match mutations.iter().all(fits) {
        true => Ok(mutations),
        false => Err(format!("the entry at {} about indexes and tables changes something else", entry.at())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at};
    use types::data::{Column, ColumnType, Schema};
    use types::index::Indexes;

    fn wanted(names: &[&str], dropped: &[&str]) -> Wanted {
        let columns = vec![Column::new("k", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
        let schema = Schema::new(columns, &["k"], 1, false).expect("valid");
        let mut indexes = Indexes::default();
        names.iter().for_each(|name| indexes.add(&schema, name, &["v".into()]).expect("valid"));
        dropped.iter().for_each(|name| assert!(indexes.remove(name)));
        Wanted { indexes, schema }
    }

    fn has(wanted: &Wanted, state: IndexState) -> Vec<Definition> {
        let of = |index: &types::IndexRecord| Definition::begin(index.clone(), wanted.schema.clone());
        wanted.indexes.wanted.iter().map(|index| of(index).turned(state)).collect()
    }

    #[test]
    fn a_partition_is_brought_to_what_is_wanted_step_by_step() {
        let (none, one) = (wanted(&[], &[]), wanted(&["a"], &[]));
        let gone = wanted(&["a"], &["a"]);
        assert_eq!(next_step(&[], &none), None);
        assert!(matches!(next_step(&[], &one), Some(Step::Begin(index)) if index.number == 1));
        let building = has(&one, IndexState::Building);
        assert!(matches!(next_step(&building, &one), Some(Step::Build(_))));
        assert_eq!(next_step(&has(&one, IndexState::Ready), &one), None);
        assert_eq!(next_step(&has(&one, IndexState::Failed), &one), None);
        for state in [IndexState::Building, IndexState::Ready, IndexState::Failed] {
            let step = next_step(&has(&one, state), &gone);
            assert!(matches!(step, Some(Step::Drop(to)) if to.state == IndexState::Dropping), "{state:?}");
        }
        assert!(matches!(next_step(&has(&one, IndexState::Dropping), &gone), Some(Step::Remove(_))));
    }

    #[test]
    fn what_is_known_is_of_one_term_and_a_step_waits_for_the_one_before() {
        let (engine, settings) = (FakeEngine::new(), Settings::default());
        let (one, mut indexes) = (wanted(&["a"], &[]), KnownIndexes::default());
        let step = indexes.next_mutations(&engine, Term(1), &settings, &one).expect("no error");
        assert_eq!(step.map(|mutations| mutations.len()), Some(1), "its definition");
        assert!(!indexes.is_pending(Term(1), Lsn(3)));
        indexes.changed_at(at(4));
        assert!(indexes.is_pending(Term(1), Lsn(3)) && !indexes.is_pending(Term(1), Lsn(4)));
        assert!(!indexes.is_pending(Term(2), Lsn(3)), "another primary's steps are not waited for");
        indexes.validate(Some(Term(1)), Lsn(4)).expect("valid");
        assert!(indexes.validate(Some(Term(1)), Lsn(3)).is_err());
    }

    #[test]
    #[should_panic(expected = "change in the older")]
    fn indexes_do_not_change_in_a_term_that_is_over() {
        let mut indexes = KnownIndexes::default();
        indexes.changed_at(Position::new(Term(2), Lsn(4)));
        indexes.changed_at(at(5));
    }

    #[test]
    fn a_primary_that_is_behind_leaves_newer_indexes_alone() {
        let (old, new) = (wanted(&["a"], &[]), wanted(&["a", "b"], &[]));
        assert_eq!(next_step(&has(&new, IndexState::Ready), &old), None);
        assert_eq!(next_step(&has(&new, IndexState::Ready), &wanted(&[], &[])), None);
        // What is being removed is removed before it begins again, whatever an old record says.
        assert!(matches!(next_step(&has(&old, IndexState::Dropping), &old), Some(Step::Remove(_))));
    }
}

//! The files of a bulk load: made in a scratch tree, and looked at before they are staged.

use super::{LOADED, Tree, component, error, with_lsn};
use crate::lsm::environment::Environment;
use bytes::Bytes;
use lsm_tree::{AbstractTree, AnyTree, Cache, Checksum, InternalValue, Slice, Table, ValueType};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::engine::{MAX_KEY_BYTES, space};
use types::{Component, EngineError, LoadId, Lsn};

impl Tree {
    /// Writes a load's files in a new directory, which nothing else uses. Rows come in the order of their
    /// keys, each once.
    pub(in crate::lsm) fn write_load(
        dir: &Path,
        load: LoadId,
        rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Vec<(Component, PathBuf)>, EngineError> {
        let scratch = Tree::create(dir, &Environment::of_process())?;
        let AnyTree::Standard(tree) = &scratch.tree else {
            unreachable!("PR-72: key-value separation is off")
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "this counter numbers files, it stamps nothing (PR-68)"
        )]
        tree.table_id_counter.fetch_max(load.first_file());
        let rows = rows.map(|(key, value)| {
            let value = with_lsn(Lsn(LOADED | load.0), &value);
            Ok(InternalValue::from_components(key, value, 0, ValueType::Value))
        });
        let (tables, _) = scratch.tree.flush_to_tables(rows).map_err(error)?.expect("not without rows");
        tables.iter().map(|table| Ok((component(table)?, table.path.to_path_buf()))).collect()
    }
}

/// The lowest and the highest stored key of a load.
pub(in crate::lsm) type LoadKeys = (Bytes, Bytes);

/// Why the files cannot be those of a load, if so; else how many rows they have, and their keys. Their
/// digests are right.
pub(in crate::lsm) fn check_load(
    load: LoadId,
    files: &[(Component, PathBuf)],
) -> Result<Result<(u64, LoadKeys), String>, EngineError> {
    let cache = Arc::new(Cache::with_capacity_bytes(1 << 20));
    let open = |(file, path): &(Component, PathBuf)| {
        let digest = Checksum::from_raw(file.digest);
        Table::recover(path.clone(), digest, 0, 0, cache.clone(), None, false, false)
    };
    let opened =
        catch_unwind(AssertUnwindSafe(|| files.iter().map(open).collect::<lsm_tree::Result<Vec<_>>>()));
    let tables = match opened {
        Ok(Ok(tables)) => tables,
        Ok(Err(failure)) => match error(failure) {
            EngineError::Corrupt(why) => return Ok(Err(why)),
            other => return Err(other),
        },
        Err(_) => return Ok(Err("a file of the load cannot be opened".into())),
    };
    let (mut rows, mut before) = (0, Slice::from([space::ROW]));
    let mut lowest: Option<Bytes> = None;
    for (table, (file, _)) in tables.iter().zip(files) {
        let (meta, range) = (&table.metadata, &table.metadata.key_range);
        let fits = table.id() == file.number
            && table.get_highest_seqno() == 0
            && meta.tombstone_count == 0
            && meta.weak_tombstone_count == 0
            && before < *range.min()
            && *range.min() <= *range.max()
            && range.max().first() == Some(&space::ROW)
            && range.max().len() <= MAX_KEY_BYTES;
        if !fits {
            return Ok(Err(format!("file {} is none of load {load}", file.number)));
        }
        rows += meta.item_count;
        lowest.get_or_insert_with(|| Bytes::copy_from_slice(range.min()));
        before = range.max().clone();
    }
    Ok(Ok((rows, (lowest.unwrap_or_default(), Bytes::copy_from_slice(&before)))))
}

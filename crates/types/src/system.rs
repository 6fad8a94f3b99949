//! System tables: what the cluster remembers about itself, in tables that are replicated like any other
//! (design section 8).
//!
//! Their partitions have ids below [`PartitionId::FIRST_USER`]. They can be read by everybody and are written
//! by the cluster alone. The metastore keeps only what decisions need; what is kept for people to read is
//! here.

use crate::config::FailoverRecord;
use crate::data::{Column, ColumnType, Json, Row, Schema, Value, decode_row, encode_key, encode_row};
use crate::ids::{PartitionId, TableId};
use crate::position::{Lsn, Position, Term};
use bytes::Bytes;

/// What the names of system tables begin with; users' tables do not.
pub const PREFIX: &str = "sys_";

/// Every failover that there was: cause, times, loss.
pub const FAILOVERS: &str = "sys_failovers";

/// The next number of every column whose rows are numbered, by the table's id and the column's index.
pub const SEQUENCES: &str = "sys_sequences";

/// The commits of global transactions ([`crate::commits`]): the transaction manager's recovery log, as far as
/// it is kept.
pub const COMMITS: &str = "sys_commits";

/// True if this is the name of a system table, or could be one of a later version.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// What the name of a table begins with that gets the rows of one that moves into partitions of its own. The
/// number of the move follows, and when it has all rows it takes the other one's name.
pub const MOVING: &str = "sys_moving_";

/// The name of the table that gets the rows in the move with this number.
pub fn moving(number: TableId) -> String {
    format!("{MOVING}{}", number.0)
}

/// The move in which a table of this name gets rows; `None`: it is another table.
pub fn moves(name: &str) -> Option<TableId> {
    name.strip_prefix(MOVING)?.parse().ok().map(TableId)
}

/// True if this is the name of one of the cluster's own tables, which nobody alters or drops.
pub fn is_own(name: &str) -> bool {
    is_reserved(name) && moves(name).is_none()
}

/// The columns of a system table; `None`: there is no such table.
pub fn schema(name: &str) -> Option<Schema> {
    use ColumnType::{Bool, Bytes, Int, Json, Text, Timestamp};
    let columns = match name {
        FAILOVERS => &[
            ("id", Int),
            ("partition", Int),
            ("table", Text),
            ("cause", Text),
            ("from_node", Int),
            ("to_node", Int),
            ("last_heard", Timestamp),
            ("suspected", Timestamp),
            ("sealed", Timestamp),
            ("reconciled", Timestamp),
            ("serving", Timestamp),
            ("loss_possible", Bool),
            ("lost_commits", Int),
            ("record", Json),
        ][..],
        SEQUENCES => &[("table", Int), ("column", Int), ("next", Int)],
        COMMITS => &[
            ("term", Int),
            ("lsn", Int),
            ("at", Timestamp),
            ("partitions", Int),
            ("rows", Int),
            ("write_set", Bytes),
        ],
        _ => return None,
    };
    let key = match name {
        SEQUENCES => &["table", "column"][..],
        COMMITS => &["term", "lsn"],
        _ => &["id"],
    };
    let columns = columns.iter().map(|(name, of)| Column::new(*name, *of)).collect();
    Some(Schema::new(columns, key, 1, false).expect("a system table's schema is valid"))
}

/// A failover as a row of [`FAILOVERS`]. `table` is the name that the partition's table had. Commits that
/// were set aside are counted as lost; those whose disk is gone as well are not known.
pub fn failover_row(record: &FailoverRecord, table: &str) -> Row {
    let time = |ms: u64| Value::Timestamp(ms as i64 * 1000);
    let maybe = |ms: Option<u64>| ms.map_or(Value::Null, time);
    let lost = record.loss.tails.iter().map(|tail| tail.commits).sum::<u64>();
    let whole = serde_json::to_value(record).expect("a record has only text keys");
    let text = |value: &serde_json::Value| Value::Text(value.as_str().unwrap_or_default().into());
    Row::new(vec![
        Value::Int(record.id as i64),
        Value::Int(i64::from(record.partition.0)),
        Value::Text(table.into()),
        text(&whole["cause"]),
        Value::Int(i64::from(record.old_primary.node.0)),
        Value::Int(i64::from(record.new_primary.node.0)),
        time(record.last_heard_ms),
        time(record.suspected_ms),
        time(record.sealed_ms),
        maybe(record.reconciled_ms),
        maybe(record.serving_ms),
        Value::Bool(record.loss.possible),
        Value::Int(lost as i64),
        Json::from_json(whole).map_or(Value::Null, Value::Json),
    ])
}

/// A commit as a row of [`COMMITS`]: its key and its value, as they are stored without space.
pub fn commit_row(
    at: Position,
    wall_ms: u64,
    (partitions, rows): (usize, usize),
    write_set: &[u8],
) -> (Bytes, Bytes) {
    let schema = schema(COMMITS).expect("a system table");
    let count = |count: usize| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    let row = Row::new(vec![
        Value::Int(at.term.0 as i64),
        Value::Int(at.lsn.0 as i64),
        Value::Timestamp(wall_ms as i64 * 1000),
        count(partitions),
        count(rows),
        Value::Bytes(write_set.to_vec()),
    ]);
    let key = commit_key(at);
    (key, encode_row(&schema, &row).expect("a commit's row is of its table").into())
}

/// The key of a commit in [`COMMITS`], encoded. Keys are in the order of timestamps.
pub fn commit_key(at: Position) -> Bytes {
    let schema = schema(COMMITS).expect("a system table");
    let values = [Value::Int(at.term.0 as i64), Value::Int(at.lsn.0 as i64)];
    encode_key(&schema, &values).expect("two numbers are a key").into()
}

/// What a row of [`COMMITS`] says: the timestamp, when it was made, milliseconds since 1970, and the
/// write-set. The error is a sentence.
pub fn read_commit(key: &[u8], stored: &[u8]) -> Result<(Position, u64, Vec<u8>), String> {
    let schema = schema(COMMITS).expect("a system table");
    let row = decode_row(&schema, key, stored).map_err(|error| error.to_string())?;
    match &row.values[..] {
        [Value::Int(term), Value::Int(lsn), Value::Timestamp(at), _, _, Value::Bytes(write_set)] => {
            let position = Position::new(Term(*term as u64), Lsn(*lsn as u64));
            Ok((position, (*at / 1000) as u64, write_set.clone()))
        }
        _ => Err("a row of the commits has other columns than it should".into()),
    }
}

impl PartitionId {
    /// The lowest partition id of a system table.
    pub const FIRST_SYSTEM: u32 = 1;

    /// True for partitions of system tables.
    pub fn is_system(self) -> bool {
        self.0 < PartitionId::FIRST_USER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_get_rows_are_reserved_and_not_the_clusters_own() {
        let name = moving(TableId(17));
        assert_eq!((name.as_str(), moves(&name)), ("sys_moving_17", Some(TableId(17))));
        assert!(is_reserved(&name) && !is_own(&name));
        for other in [SEQUENCES, "sys_moving_", "sys_moving_x", "sys_moving_1_2"] {
            assert!(is_own(other) && moves(other).is_none(), "{other}");
        }
        assert!(!is_own("moving_17") && moves("moving_17").is_none());
    }
}

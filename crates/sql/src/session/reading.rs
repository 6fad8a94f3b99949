//! Reads that partitions answer by themselves.

use super::SqlSession;
use crate::bind::Bound;
use crate::range::range;
use crate::read::{self, Values};
use crate::statements::canceled;
use crate::txn::View;
use client::Table;
use pg::Failure;

impl SqlSession {
    /// A count of a range of keys, which the partitions know themselves.
    pub(super) async fn count(
        &self,
        bound: &Bound,
        values: &Values,
        view: &View,
    ) -> Result<Option<i64>, Failure> {
        if !bound.counts {
            return Ok(None);
        }
        let source = &bound.sources[0];
        let table = Table::new(source.table.clone());
        let of = values.of_conditions(&source.conditions);
        match range(&table, source, &of) {
            None => Ok(Some(0)),
            Some(range) if range.exact => tokio::select! {
                count = read::count(&self.evaluator.handle, &table, &range, view) => count.map(Some),
                () = self.evaluator.cancel.wait() => Err(canceled()),
            },
            Some(_) => Ok(None),
        }
    }
}

//! How far the indexes of a table are, over all its partitions.

use crate::client::Client;
use crate::error::ClientError;
use crate::table::{Table, unexpected};
use std::collections::BTreeMap;
use types::{IndexState, PartitionId};
use wire::{Body, Op};

/// One index of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexProgress {
    /// Its number in the table's record.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its columns' names; empty if the table's record does not want it any more.
    pub columns: Vec<String>,
    /// Partitions in which it is ready.
    pub ready: u32,
    /// Partitions of the table.
    pub partitions: u32,
    /// Rows that were there before it and have been indexed so far.
    pub entries: u64,
    /// The first partition in which it failed, and why.
    pub failed: Option<(PartitionId, String)>,
}

impl IndexProgress {
    /// True if it has every row of every partition.
    pub fn is_ready(&self) -> bool {
        !self.columns.is_empty() && self.ready == self.partitions
    }

    /// In a word or two.
    pub fn state(&self) -> String {
        match &self.failed {
            _ if self.columns.is_empty() => "dropping".into(),
            Some((partition, why)) => format!("failed in {partition}: {why}"),
            None if self.is_ready() => "ready".into(),
            None => format!("building, {} of {} partitions ready", self.ready, self.partitions),
        }
    }
}

impl Client {
    /// Every index of a table by its number: those that are wanted, and those that are still being removed.
    pub fn indexes(&mut self, table: &Table) -> Result<Vec<IndexProgress>, ClientError> {
        let (schema, partitions) = (table.schema(), table.record().partitions);
        let begun = |number, name: String, columns| IndexProgress {
            number,
            name,
            columns,
            ready: 0,
            partitions,
            entries: 0,
            failed: None,
        };
        let wanted = table.record().indexes.wanted.iter().map(|index| {
            let columns = index.columns.iter().map(|at| schema.columns()[*at].name.clone()).collect();
            (index.number, begun(index.number, index.name.clone(), columns))
        });
        let mut all: BTreeMap<u32, IndexProgress> = wanted.collect();
        // Those of a database's tables are named when they are ready.
        if table.record().database().is_some() {
            all.values_mut().for_each(|index| index.ready = partitions);
            return Ok(all.into_values().collect());
        }
        let asked: Vec<PartitionId> = table.partitions().collect();
        let answers =
            self.all(asked.iter().map(|partition| table.call(*partition, Op::Indexes)).collect())?;
        for (partition, answer) in asked.into_iter().zip(answers) {
            let Body::Indexes(indexes) = answer.body else { return Err(unexpected(&answer.body)) };
            for index in indexes {
                let sum =
                    all.entry(index.number).or_insert_with(|| begun(index.number, index.name, Vec::new()));
                sum.entries += index.entries;
                match index.state {
                    IndexState::Ready => sum.ready += 1,
                    IndexState::Failed => drop(sum.failed.get_or_insert((partition, index.note))),
                    IndexState::Building | IndexState::Dropping => {}
                }
            }
        }
        Ok(all.into_values().collect())
    }
}

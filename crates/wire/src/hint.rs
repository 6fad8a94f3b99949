//! The newest configuration, sent along with a refusal.

use serde::{Deserialize, Serialize};
use types::PartitionRecord;

/// A configuration sent along: JSON of a [`PartitionRecord`], as the metastore has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hint(pub String);

impl Hint {
    /// From a record.
    pub fn new(record: &PartitionRecord) -> Hint {
        Hint(serde_json::to_string(record).expect("a record has only text keys"))
    }

    /// The record, if it can be read.
    pub fn record(&self) -> Option<PartitionRecord> {
        serde_json::from_str(&self.0).ok()
    }
}

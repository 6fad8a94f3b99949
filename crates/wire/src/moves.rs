//! The steps of a bare table that moves, as whoever copies its rows asks a controller for them
//! ([`crate::control::AdminCommand::MoveTable`]). A hold is part of the table's policy
//! ([`types::Moves`]); each step that changes it gives the policy another version.
//!
//! Each step names the move and the version of the policy that it knows, so one that comes late, behind
//! somebody who has ended the hold, decides nothing (PR-402). Each may be asked for again.

use serde::{Deserialize, Serialize};
use types::TableId;

/// What is asked for of a bare table that moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoveTable {
    /// The table, whatever it is called by now.
    pub table: TableId,
    /// The number of the move.
    pub number: TableId,
    /// The version of the table's policy that it rests on. Of no concern to [`MoveStep::Hold`] and
    /// [`MoveStep::Free`].
    pub version: u32,
    /// What.
    pub step: MoveStep,
}

/// A step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStep {
    /// The table is held: from now on clients do not write it. Answered with its record. Refused if it moves
    /// already, and if it is the cluster's own.
    Hold {
        /// When that is asked for, milliseconds since 1970.
        at_ms: u64,
        /// The database that it moves into; `None`: into other partitions of its own.
        into: Option<TableId>,
    },
    /// Its rows are still being copied.
    Renew {
        /// When that is said, milliseconds since 1970.
        at_ms: u64,
    },
    /// All rows are copied: clients do not read them here any more. Answered with the table's record.
    Close,
    /// It is read and written again. Whoever finds a hold of which nobody has spoken for long says when that
    /// was, and it is done only if nobody has spoken since.
    Free {
        /// When somebody has spoken of it last, milliseconds since 1970; `None`: whoever asks holds it.
        said_ms: Option<u64>,
    },
    /// The table is dropped, and the one with the rows ([`types::system::moving`]) gets its name: both or
    /// neither. The hold must be closed.
    Replace,
    /// The table is dropped. The hold must be closed.
    Drop,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordText;

    #[test]
    fn steps_are_read_as_they_are_written() {
        for step in [
            MoveStep::Hold { at_ms: 5, into: None },
            MoveStep::Hold { at_ms: 5, into: Some(TableId(4)) },
            MoveStep::Renew { at_ms: 6 },
            MoveStep::Close,
            MoveStep::Free { said_ms: Some(7) },
            MoveStep::Free { said_ms: None },
            MoveStep::Replace,
            MoveStep::Drop,
        ] {
            let asked = MoveTable { table: TableId(3), number: TableId(9), version: 2, step };
            assert_eq!(RecordText::new(&asked).read(), Ok(asked));
        }
        let asked = MoveTable { table: TableId(3), number: TableId(9), version: 2, step: MoveStep::Close };
        assert_eq!(RecordText::new(&asked).0, r#"{"table":3,"number":9,"version":2,"step":"close"}"#);
    }
}

//! Which engines there are, by name, and what is known of each before one is open.

use serde::{Deserialize, Serialize};

/// Which engine a table's partitions run on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// A log-structured merge tree on disk.
    Lsm,
    /// Ordered and multi-version in memory, with snapshots on disk.
    Memory,
}

impl EngineKind {
    /// All of them.
    pub const ALL: [EngineKind; 2] = [EngineKind::Lsm, EngineKind::Memory];

    /// Its name, for people and in records.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Lsm => "lsm",
            EngineKind::Memory => "memory",
        }
    }

    /// The engine of this name.
    pub fn by_name(name: &str) -> Option<EngineKind> {
        EngineKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// True if it is of no use where the log is in memory only: a restart finds its files, and nothing that
    /// follows them.
    pub fn needs_log_on_disk(self) -> bool {
        match self {
            EngineKind::Lsm => true,
            EngineKind::Memory => false,
        }
    }

    /// True if its files can be shipped to another replica, and files of bulk loads be made part of them:
    /// where the log is on disk it can have cold standbys, and bulk loads.
    pub fn ships_files(self) -> bool {
        match self {
            EngineKind::Lsm => true,
            EngineKind::Memory => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_known_by_the_names_in_records() {
        for kind in EngineKind::ALL {
            assert_eq!(EngineKind::by_name(kind.name()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).expect("a name"), format!("{:?}", kind.name()));
        }
        assert_eq!(EngineKind::by_name("heap"), None);
    }
}

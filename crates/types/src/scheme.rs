//! How the copies of a table's partitions are spread over the nodes: four schemes, by name.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A scheme of placement. What each does with a failure is told by `understudy plan`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// The nodes stand in a ring, and a partition's copies on neighbours.
    #[default]
    Chained,
    /// The nodes stand in groups, and the copies beside one node's primaries on all of its group in turn.
    Interleaved,
    /// The nodes stand in groups of as many as there are copies, and the nodes of a group hold the same.
    Mirrored,
    /// The copies beside one node's primaries lie on as many nodes of the cluster as there can be.
    Spread,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Scheme; 4] = [Scheme::Chained, Scheme::Interleaved, Scheme::Mirrored, Scheme::Spread];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Chained => "chained",
            Scheme::Interleaved => "interleaved",
            Scheme::Mirrored => "mirrored",
            Scheme::Spread => "spread",
        }
    }

    /// The scheme with this name. The error is a sentence.
    pub fn parse(name: &str) -> Result<Scheme, String> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| {
            let all = Scheme::ALL.map(Scheme::name).join(", ");
            format!("'{name}' is no scheme of placement: there are {all}")
        })
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::parse(&scheme.to_string()), Ok(scheme));
            assert_eq!(serde_json::json!(scheme), serde_json::json!(scheme.name()));
        }
        let why = Scheme::parse("random").expect_err("there is no such scheme");
        assert!(why.contains("'random'") && why.contains("mirrored"), "{why}");
    }
}

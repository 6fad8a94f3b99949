//! What members of a set are sent of a call of a procedure.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What members of a database's partitions are sent of a call. It is decided anew for each call, by the
/// primary; the entry says which of the two it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ship {
    /// What it has written.
    #[default]
    Effects,
    /// The call, which they make themselves.
    Calls,
}

impl Ship {
    /// True for what is so where nothing is said.
    pub fn is_effects(&self) -> bool {
        *self == Ship::Effects
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<Ship> {
        match name {
            "effects" => Some(Ship::Effects),
            "calls" => Some(Ship::Calls),
            _ => None,
        }
    }
}

impl fmt::Display for Ship {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_effects() { "effects" } else { "calls" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_known_by_their_names() {
        for ship in [Ship::Effects, Ship::Calls] {
            let name = ship.to_string();
            assert_eq!(Ship::by_name(&name), Some(ship));
            assert_eq!(serde_json::to_value(ship).expect("a word"), serde_json::json!(name));
        }
        assert_eq!((Ship::by_name("rows"), Ship::default()), (None, Ship::Effects));
    }
}

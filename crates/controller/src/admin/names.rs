//! What tables and databases are called: in the metastore, and in sentences.

use super::{NOT_FOUND, REFUSED, Refusal, USAGE};
use crate::keys::Key;
use crate::placement::Site;
use types::{Holds, TableRecord};

/// Why a table or a database cannot have this name, if so.
pub(super) fn check_name(holds: Holds, name: &str) -> Result<(), Refusal> {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if letters && name.starts_with(|first: char| first.is_ascii_alphabetic()) && name.len() <= 63 {
        return Ok(());
    }
    let whose = if holds == Holds::Database { "database" } else { "table" };
    Err((
        USAGE,
        format!("'{name}' is not a {whose}'s name: letters, digits and _, a letter first, at most 63 bytes"),
    ))
}

/// What a record is called in sentences.
pub(super) fn called(holds: Holds, name: &str) -> String {
    match holds {
        Holds::Database => format!("database '{name}'"),
        Holds::Table | Holds::TableOf(_) => format!("table '{name}'"),
    }
}

/// The key that makes a name unique: tables and databases may have the same.
pub(crate) fn name_key(holds: Holds, name: &str) -> Key {
    match holds {
        Holds::Database => Key::Database(name.into()),
        Holds::Table | Holds::TableOf(_) => Key::Name(name.into()),
    }
}

/// That there is none.
pub(super) fn none(holds: Holds, name: &str) -> Refusal {
    (NOT_FOUND, format!("there is no {}", called(holds, name)))
}

/// That a table wants more copies than there are nodes.
pub(super) fn too_few((holds, name): (Holds, &str), copies: usize, sites: &[Site]) -> String {
    let nodes: Vec<String> = sites.iter().map(|site| site.node.to_string()).collect();
    let are = if nodes.len() == 1 { "node is" } else { "nodes are" };
    let what = called(holds, name);
    format!("{what} wants {copies} copies, but only {} {are} live: {}", nodes.len(), nodes.join(", "))
}

/// That nobody alters or drops a table now, because its rows are being copied, if so (PR-402).
pub(super) fn not_held(table: &TableRecord) -> Result<(), Refusal> {
    match table.policy.moves {
        None => Ok(()),
        Some(_) => Err((REFUSED, being_moved(table))),
    }
}

/// What is said of such a table.
pub(super) fn being_moved(table: &TableRecord) -> String {
    format!(
        "table '{}' is being moved: wait until that is done; if whoever moves it is gone, a statement that \
         writes or drops it in SQL ends that after a minute",
        table.name
    )
}

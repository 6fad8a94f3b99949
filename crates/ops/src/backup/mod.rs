//! Backups: all tables, or some, as of one point, in a directory; and back (`docs/formats.md` has the files
//! byte by byte).
//!
//! | what | where |
//! | --- | --- |
//! | the point: which positions of the partitions belong together | [`cluster_snapshot`] |
//! | a partition's file | [`file`](mod@file) |
//! | the manifest, written last: without it there is no backup | [`manifest`] |
//! | what a database has at the point | [`databases`] |
//! | `backup create`, `backup restore`, `backup verify` | [`create`](mod@create), [`restore`], [`verify`] |
//! | a database is made anew | [`into_database`] |

pub mod cluster_snapshot;
pub mod create;
mod databases;
pub mod file;
mod into_database;
pub mod manifest;
mod pages;
mod rate;
pub mod restore;
pub mod verify;

use crate::failure::Failure;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io;
use types::Lsn;
use types::engine::{Row, row_hash};

/// What rows come to: how many, their bytes, and a hash that does not depend on their order, on who keeps
/// them where, nor on the LSNs that wrote them. Those of parts add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    /// Rows.
    pub rows: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The wrapping sum of the hashes of all rows.
    pub digest: u64,
}

impl Sum {
    /// One row more.
    pub fn add(&mut self, key: &Bytes, value: &Bytes) {
        self.rows += 1;
        self.bytes += (key.len() + value.len()) as u64;
        let row = Row { key: key.clone(), lsn: Lsn::ZERO, value: value.clone() };
        self.digest = self.digest.wrapping_add(row_hash(&row));
    }

    /// Another part.
    pub fn join(&mut self, other: &Sum) {
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// 64 bits as people and JSON readers see them: sixteen hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex(pub u64);

impl From<Hex> for String {
    fn from(hex: Hex) -> String {
        format!("{:016x}", hex.0)
    }
}

impl TryFrom<String> for Hex {
    type Error = String;

    fn try_from(text: String) -> Result<Hex, String> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(&text, 16).ok().filter(|_| digits);
        number.map(Hex).ok_or_else(|| format!("`{text}` is not sixteen hexadecimal digits"))
    }
}

/// Why a file of a backup cannot be used.
#[derive(Debug)]
pub enum Fault {
    /// The system's word.
    Io(io::Error),
    /// It is not what was written. One sentence's end: "its block 3 is damaged".
    Damage(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Io(error)
    }
}

impl Fault {
    /// As a failure about this file.
    pub fn of(self, file: impl std::fmt::Display) -> Failure {
        match self {
            Fault::Io(error) => Failure::io(file, &error),
            Fault::Damage(what) => Failure::failed(format!("{file}: {what}")),
        }
    }
}

fn damage<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Damage(what.into()))
}

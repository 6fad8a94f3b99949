//! Bulk loads (`types::bulk`, PR-39): how files of rows get from a client to every replica that counts, and
//! the entry that makes them part of the state.
//!
//! ```text
//! client                        primary                            members
//!   Op::Stage: these files        Stage: these files                 StageTold: what is missing, or ready
//!   Op::StagePiece: a piece       StagePiece: the same piece
//!   ...                           ...
//!   Op::Stage: ready everywhere?  Stage                              StageTold: ready
//!   Op::Load                      the entry: Kind::Bulk
//! ```
//!
//! The client sends whatever anybody lacks, and asks until all have everything; then whatever was lost on the
//! way, by whatever failure, is sent again. A piece that comes twice changes nothing.

use crate::effects::Effects;
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use types::{Component, Epoch, LoadId, Lsn, Member, PartitionId, Staging};

/// The longest piece of a load's file, in bytes.
pub const MAX_STAGED_BYTES: usize = 1 << 20;
/// The payload of a [`crate::Kind::Bulk`] entry begins with so many bytes before its effects.
const HEAD: usize = 24;

/// A primary has the files of a load staged at a member, or asks how far it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StageLoad {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// Names this request in its answer; grows.
    pub number: u64,
    /// The load.
    pub load: LoadId,
    /// Its files: always the same of one load.
    pub files: Vec<Component>,
}

/// A member's answer to [`StageLoad`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StageAnswer {
    /// The partition.
    pub partition: PartitionId,
    /// The request's epoch.
    pub epoch: Epoch,
    /// The member.
    pub from: Member,
    /// The request's number.
    pub number: u64,
    /// The load.
    pub load: LoadId,
    /// How far the member is with it.
    pub staging: Staging,
}

/// A piece of a load's file, as the client sent it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StagePiece {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// The load.
    pub load: LoadId,
    /// An index into its files.
    pub file: u32,
    /// Its first byte.
    pub at: u64,
    /// At most [`MAX_STAGED_BYTES`].
    pub bytes: Bytes,
}

/// Nobody wants this load any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unstage {
    /// The partition.
    pub partition: PartitionId,
    /// The primary's epoch.
    pub epoch: Epoch,
    /// The primary.
    pub from: Member,
    /// The load.
    pub load: LoadId,
}

/// How far a load is, for its client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoadStatus {
    /// The least that any replica that counts is at. Of no meaning once it is part of the state.
    pub staging: Staging,
    /// The entry that made it part of the state, once that is committed.
    pub loaded: Option<Lsn>,
    /// True if every replica that counts has it in its own files.
    pub installed: bool,
}

/// The payload of a [`crate::Kind::Bulk`] entry: load u64, digest of its files [16], and then effects on
/// reserved rows ([`crate::effects`]), little-endian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadMark {
    /// The load.
    pub load: LoadId,
    /// `types::bulk::files_digest` of its files.
    pub digest: [u8; 16],
    /// What else changes.
    pub effects: Effects,
}

impl LoadMark {
    /// Encodes.
    pub fn encode(&self) -> Bytes {
        let effects = self.effects.encode();
        let mut out = BytesMut::with_capacity(HEAD + effects.len());
        out.put_u64_le(self.load.0);
        out.put_slice(&self.digest);
        out.put_slice(&effects);
        out.freeze()
    }

    /// Decodes. The error is a sentence.
    pub fn decode(payload: Bytes) -> Result<LoadMark, String> {
        let Some((head, _)) = payload.split_first_chunk::<HEAD>() else {
            return Err(format!("an entry of a load of {} bytes is cut short", payload.len()));
        };
        let (load, digest) = head.split_at(8);
        let load = LoadId(u64::from_le_bytes(load.try_into().expect("eight bytes")));
        let digest = digest.try_into().expect("sixteen bytes");
        if !load.is_valid() {
            return Err("an entry of a load names none".into());
        }
        Ok(LoadMark { load, digest, effects: Effects::decode(payload.slice(HEAD..))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Mutation;

    #[test]
    fn a_mark_reads_back_and_cuts_are_noticed() {
        let load = LoadId::from_random(9);
        let mutations = vec![Mutation { key: types::bulk::load_key(load), value: Some("x".into()) }];
        let effects = Effects { request_hash: 1, confirmed: 2, outcome: 0, affected: 7, mutations };
        let mark = LoadMark { load, digest: [9; 16], effects };
        let bytes = mark.encode();
        assert_eq!(LoadMark::decode(bytes.clone()), Ok(mark));
        for cut in 0..bytes.len() {
            assert!(LoadMark::decode(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
    }
}

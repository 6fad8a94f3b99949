//! The payload of a `Call` entry: what a replica needs to make the same call, and the digest of what it came
//! to at the primary. Who has the same code makes it and compares (F21); everybody else is sent the effects
//! beside it (PR-240).
//!
//! ```text
//!  0 digest of the effects u64, XXH3-64 of their bytes ([`crate::effects`]) | 8 the call, postcard
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{Lsn, TableId, Term};
use xxhash_rust::xxh3::xxh3_64;

const DIGEST_BYTES: usize = 8;

/// A call as the primary has made it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CallMark {
    /// The procedure.
    pub procedure: TableId,
    /// The version of its definition.
    pub version: u32,
    /// The last change of tables below this entry that its primary knows of. Between two entries that name
    /// the same the catalog is the same.
    pub edition: (Term, Lsn),
    /// With what code it was made: engine, host functions, and what is compiled in.
    pub code: u64,
    /// What its parameters' signature encodes.
    pub arguments: Bytes,
    /// What the encoded keys of all rows begin with that it may touch.
    pub route: Bytes,
    /// The time that it was given, in milliseconds since 1970.
    pub now_ms: u64,
    /// What it draws numbers from.
    pub seed: u64,
    /// The policy in force, by its name or as it is written.
    pub policy: String,
    /// How many copies counted.
    pub copies: u8,
    /// How much it might read, in bytes: what it finds of a range ends there.
    pub read_bytes: u64,
    /// Hash of the request (PR-47).
    pub request_hash: u64,
    /// The client has every reply up to this sequence number.
    pub confirmed: u64,
}

impl CallMark {
    /// The payload, of a call that came to these effects, as they are encoded.
    pub fn encode(&self, effects: &[u8]) -> Vec<u8> {
        let out = digest(effects).to_le_bytes().to_vec();
        postcard::to_extend(self, out).expect("numbers and bytes")
    }

    /// From the payload. The error is a sentence.
    pub fn decode(payload: &[u8]) -> Result<CallMark, String> {
        let call = payload.get(DIGEST_BYTES..).ok_or("a call is cut short")?;
        match postcard::take_from_bytes(call) {
            Ok((mark, [])) => Ok(mark),
            Ok((_, rest)) => Err(format!("{} bytes follow a call", rest.len())),
            Err(error) => Err(format!("a call cannot be read: {error}")),
        }
    }
}

/// The digest of effects.
pub fn digest(effects: &[u8]) -> u64 {
    xxh3_64(effects)
}

/// True if the call of this payload came to these effects.
pub fn digest_fits(payload: &[u8], effects: &[u8]) -> bool {
    payload.get(..DIGEST_BYTES).is_some_and(|known| known == digest(effects).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_read_back_and_cuts_are_noticed() {
        let mark = CallMark {
            procedure: TableId(7),
            version: 3,
            edition: (Term(2), Lsn(90)),
            code: u64::MAX,
            arguments: Bytes::from_static(b"arguments"),
            route: Bytes::new(),
            now_ms: 1_700_000_000_000,
            seed: 99,
            policy: "semi".into(),
            copies: 3,
            read_bytes: 8 << 20,
            request_hash: 5,
            confirmed: 4,
        };
        let payload = mark.encode(b"effects");
        assert_eq!(CallMark::decode(&payload), Ok(mark));
        assert!(digest_fits(&payload, b"effects") && !digest_fits(&payload, b"effect"));
        for cut in 0..payload.len() {
            assert!(CallMark::decode(&payload[..cut]).is_err(), "cut at {cut}");
        }
    }
}

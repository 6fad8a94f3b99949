//! The payload of a `Rows` entry: the effects on rows, and the outcome that a retry of the request must get
//! again. That of a `Schema` entry has the same form, without request and outcome: only what changes.
//!
//! ```text
//!  0 request hash u64 | 8 confirmed sequence u64 | 16 outcome u8 | 17 affected rows u32 | 21 count u32
//! 25 per mutation: key length u32, key, value length u32 (0xffff_ffff: deleted), value
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use types::Mutation;
use types::engine::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

const DELETED: u32 = u32::MAX;
/// What stands before the mutations, in bytes.
const FIXED_BYTES: usize = 25;
/// The most mutations in one entry.
pub const MAX_MUTATIONS: usize = 100_000;

/// What a request did, in the same entry as its effect (N12, F22).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effects {
    /// Hash of the request that caused this (PR-47).
    pub request_hash: u64,
    /// The client has every reply up to this sequence number: outcomes below may be forgotten.
    pub confirmed: u64,
    /// The outcome's number: [`crate::request::Outcome`].
    pub outcome: u8,
    /// Rows that the request changed.
    pub affected: u32,
    /// The changes, in order.
    pub mutations: Vec<Mutation>,
}

impl Effects {
    /// The length of the payload that [`Effects::encode`] makes of these mutations, in bytes.
    pub fn encoded_len(mutations: &[Mutation]) -> usize {
        let one = |m: &Mutation| 8 + m.key.len() + m.value.as_ref().map_or(0, Bytes::len);
        FIXED_BYTES + mutations.iter().map(one).sum::<usize>()
    }

    /// Encodes. Panics on more than [`MAX_MUTATIONS`]: callers check requests at the door.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(Effects::encoded_len(&self.mutations));
        self.put(&mut out);
        out.freeze()
    }

    /// Appends what [`Effects::encode`] gives to `out`. Panics like that.
    pub(crate) fn put(&self, out: &mut BytesMut) {
        assert!(self.mutations.len() <= MAX_MUTATIONS, "{} mutations", self.mutations.len());
        out.put_u64_le(self.request_hash);
        out.put_u64_le(self.confirmed);
        out.put_u8(self.outcome);
        out.put_u32_le(self.affected);
        out.put_u32_le(self.mutations.len() as u32);
        for mutation in &self.mutations {
            out.put_u32_le(mutation.key.len() as u32);
            out.put_slice(&mutation.key);
            match &mutation.value {
                None => out.put_u32_le(DELETED),
                Some(value) => {
                    out.put_u32_le(value.len() as u32);
                    out.put_slice(value);
                }
            }
        }
    }

    /// Makes the values parts of `encoded`, which is what these effects were encoded to: they hold no other
    /// memory from then on.
    pub fn share(&mut self, encoded: &Bytes) {
        let mut at = FIXED_BYTES;
        for mutation in &mut self.mutations {
            at += 8 + mutation.key.len();
            if let Some(value) = &mut mutation.value {
                let shared = encoded.slice(at..at + value.len());
                debug_assert_eq!(shared, *value, "effects share what they were encoded to");
                at += shared.len();
                *value = shared;
            }
        }
        assert_eq!(at, encoded.len(), "effects share what they were encoded to");
    }

    /// Decodes. Keys and values share the payload's memory. The error is a sentence.
    pub fn decode(mut payload: Bytes) -> Result<Effects, String> {
        if payload.len() < FIXED_BYTES {
            return Err(format!("effects of {} bytes are cut short", payload.len()));
        }
        let request_hash = payload.get_u64_le();
        let confirmed = payload.get_u64_le();
        let outcome = payload.get_u8();
        let affected = payload.get_u32_le();
        let count = payload.get_u32_le() as usize;
        if count > MAX_MUTATIONS {
            return Err(format!("{count} mutations are over the limit of {MAX_MUTATIONS}"));
        }
        // A replica adds the row of the session.
        let mut mutations = Vec::with_capacity(count.min(payload.len() / 8) + 1);
        for _ in 0..count {
            let key = take(&mut payload, MAX_KEY_BYTES)?.ok_or("a key is missing")?;
            if key.is_empty() {
                return Err("a key is empty".into());
            }
            mutations.push(Mutation { key, value: take(&mut payload, MAX_VALUE_BYTES)? });
        }
        if !payload.is_empty() {
            return Err(format!("{} bytes follow the effects", payload.len()));
        }
        Ok(Effects { request_hash, confirmed, outcome, affected, mutations })
    }
}

fn take(payload: &mut Bytes, limit: usize) -> Result<Option<Bytes>, String> {
    if payload.len() < 4 {
        return Err("effects are cut short".into());
    }
    let length = payload.get_u32_le();
    if length == DELETED {
        return Ok(None);
    }
    let length = length as usize;
    if length > limit || length > payload.len() {
        return Err(format!("a length of {length} bytes does not fit"));
    }
    Ok(Some(payload.split_to(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_read_back_and_cuts_are_noticed() {
        let effects = Effects {
            request_hash: 1,
            confirmed: 2,
            outcome: 3,
            affected: 2,
            mutations: vec![
                Mutation { key: Bytes::from_static(b"k"), value: Some(Bytes::from_static(b"value")) },
                Mutation { key: Bytes::from_static(b"gone"), value: None },
            ],
        };
        let bytes = effects.encode();
        assert_eq!(Effects::decode(bytes.clone()).expect("decodes"), effects);
        let mut shared = effects.clone();
        shared.share(&bytes);
        assert_eq!(shared, effects);
        let value = shared.mutations[0].value.as_ref().expect("it writes the row");
        assert!(bytes.as_ptr_range().contains(&value.as_ptr()), "it is a part of the encoded effects");
        for cut in 0..bytes.len() {
            assert!(Effects::decode(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
    }
}

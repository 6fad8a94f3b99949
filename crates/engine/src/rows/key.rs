//! Keys as the memory engine stores them: short ones in place, so that a search compares without following
//! pointers.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;

/// The longest key that is stored in place. Chosen so that a key takes 32 bytes, half a cache line.
const INLINE: usize = 30;

/// A stored key with an allocation of its own, or none.
#[derive(Clone)]
pub(super) enum CompactKey {
    /// At most [`INLINE`] bytes.
    Inline { len: u8, bytes: [u8; INLINE] },
    /// A longer key.
    Heap(Box<[u8]>),
}

impl CompactKey {
    /// Copies `key`.
    pub(super) fn new(key: &[u8]) -> CompactKey {
        if key.len() > INLINE {
            return CompactKey::Heap(key.into());
        }
        let mut bytes = [0; INLINE];
        bytes[..key.len()].copy_from_slice(key);
        CompactKey::Inline { len: key.len() as u8, bytes }
    }

    /// The key's bytes.
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            CompactKey::Inline { len, bytes } => &bytes[..usize::from(*len)],
            CompactKey::Heap(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for CompactKey {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for CompactKey {
    fn eq(&self, other: &CompactKey) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for CompactKey {}

impl PartialOrd for CompactKey {
    fn partial_cmp(&self, other: &CompactKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CompactKey {
    fn cmp(&self, other: &CompactKey) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl fmt::Debug for CompactKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_bytes_do_not_depend_on_where_a_key_is_stored() {
        assert_eq!(size_of::<CompactKey>(), 32);
        let mut keys: Vec<Vec<u8>> = (0..=64).map(|len| vec![7; len]).collect();
        keys.extend([vec![8], vec![6; 40], vec![0, 0]]);
        for a in &keys {
            assert_eq!(CompactKey::new(a).as_slice(), &a[..]);
            for b in &keys {
                assert_eq!(CompactKey::new(a).cmp(&CompactKey::new(b)), a.cmp(b));
            }
        }
    }
}

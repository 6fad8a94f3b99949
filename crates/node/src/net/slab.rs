//! Things under keys that are never used twice: a slot and how often it was filled.

use std::num::NonZeroU32;

#[derive(Debug)]
struct Slot<T> {
    generation: NonZeroU32,
    thing: Option<T>,
}

/// Things under keys. A look-up is one index.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// In every key, so that no two slabs of different owners give the same one.
    owner: u8,
}

/// Bits of a key that are the index. The owner is in those above them, then the generation.
const INDEX_BITS: u32 = 24;

/// Whose slab gave this key.
pub fn owner_of(key: u64) -> u8 {
    (key >> INDEX_BITS) as u8
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::of(0)
    }
}

impl<T> Slab<T> {
    /// An empty one of this owner ([`owner_of`]).
    pub fn of(owner: u8) -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new(), owner }
    }

    fn key(&self, index: u32, generation: NonZeroU32) -> u64 {
        u64::from(generation.get()) << 32 | u64::from(self.owner) << INDEX_BITS | u64::from(index)
    }

    /// The index of a key that this one gave.
    fn index(&self, key: u64) -> Option<u32> {
        (owner_of(key) == self.owner).then_some(key as u32 & ((1 << INDEX_BITS) - 1))
    }

    /// Puts a thing in and gives its key.
    pub fn insert(&mut self, thing: T) -> u64 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.thing = Some(thing);
            let generation = slot.generation;
            return self.key(index, generation);
        }
        assert!(self.slots.len() < 1 << INDEX_BITS, "fewer than 2^24 connections");
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: NonZeroU32::MIN, thing: Some(thing) });
        self.key(index, NonZeroU32::MIN)
    }

    /// The thing under this key, unless it was taken out.
    pub fn get(&self, key: u64) -> Option<&T> {
        let slot = self.slots.get(self.index(key)? as usize)?;
        slot.thing.as_ref().filter(|_| u64::from(slot.generation.get()) == key >> 32)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let index = self.index(key)?;
        let slot = self.slots.get_mut(index as usize)?;
        slot.thing.as_mut().filter(|_| u64::from(slot.generation.get()) == key >> 32)
    }

    /// Takes a thing out. Its key is never given again.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let index = self.index(key)?;
        let slot = self.slots.get_mut(index as usize)?;
        if u64::from(slot.generation.get()) != key >> 32 {
            return None;
        }
        let thing = slot.thing.take()?;
        // A slot that was filled as often as can be counted is not used again.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(index);
        }
        Some(thing)
    }

    /// All keys and things.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(move |(index, slot)| {
            Some((self.key(index as u32, slot.generation), slot.thing.as_ref()?))
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Notes once that a connection has something to be written. `is_noted`: its own mark of that; `None`: the
/// connection is gone.
pub fn note_dirty(dirty: &mut Vec<u64>, key: u64, is_noted: Option<&mut bool>) {
    if let Some(is_noted) = is_noted
        && !std::mem::replace(is_noted, true)
    {
        dirty.push(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_thing_for_ever() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert("a"), slab.insert("b"));
        assert_eq!((slab.get(a), slab.get(b), slab.len()), (Some(&"a"), Some(&"b"), 2));
        assert_eq!(slab.remove(a), Some("a"));
        let c = slab.insert("c");
        assert_eq!((slab.get(a).copied(), slab.get_mut(a).is_none(), slab.remove(a)), (None, true, None));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(c, &"c"), (b, &"b")]);
        assert!(a != c && !slab.is_empty() && slab.get(u64::MAX).is_none());
    }

    #[test]
    fn a_key_says_whose_it_is_and_names_nothing_elsewhere() {
        let (mut first, mut last) = (Slab::default(), Slab::of(u8::MAX));
        let (a, b) = (first.insert("a"), last.insert("b"));
        assert_eq!((owner_of(a), owner_of(b)), (0, u8::MAX));
        assert_eq!((first.get(a), last.get(b)), (Some(&"a"), Some(&"b")));
        assert_eq!((first.get(b), last.get(a)), (None, None));
        assert_eq!((first.get_mut(b).is_none(), first.remove(b), last.remove(a)), (true, None, None));
        assert_eq!(last.remove(b), Some("b"));
        let c = last.insert("c");
        assert!(c != b && owner_of(c) == u8::MAX && last.get(b).is_none());
    }
}

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
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

fn key(index: u32, generation: NonZeroU32) -> u64 {
    u64::from(generation.get()) << 32 | u64::from(index)
}

impl<T> Slab<T> {
    /// Puts a thing in and gives its key.
    pub fn insert(&mut self, thing: T) -> u64 {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.thing = Some(thing);
            return key(index, slot.generation);
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 connections");
        self.slots.push(Slot { generation: NonZeroU32::MIN, thing: Some(thing) });
        key(index, NonZeroU32::MIN)
    }

    /// The thing under this key, unless it was taken out.
    pub fn get(&self, key: u64) -> Option<&T> {
        let slot = self.slots.get(key as u32 as usize)?;
        slot.thing.as_ref().filter(|_| u64::from(slot.generation.get()) == key >> 32)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(key as u32 as usize)?;
        slot.thing.as_mut().filter(|_| u64::from(slot.generation.get()) == key >> 32)
    }

    /// Takes a thing out. Its key is never given again.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let index = key as u32;
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
        slots.filter_map(|(index, slot)| Some((key(index as u32, slot.generation), slot.thing.as_ref()?)))
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
}

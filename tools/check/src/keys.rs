//! Which rows the load works on: a few on each shelf, each until somebody removes it, and then another takes
//! its place.

use history::Key;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use types::random::Random;

/// Rows of a shelf that are worked on at a time: few, so that clients meet on them.
const ACTIVE: u32 = 6;
/// Rows that were removed and are still looked at.
const GONE: usize = 4;
/// The prober's row on each shelf.
const PROBE: u32 = 0;

/// A shelf: rows in one partition.
#[derive(Debug)]
struct Shelf {
    active: Vec<u32>,
    gone: VecDeque<u32>,
    next: u32,
}

/// The shelves, for all threads.
#[derive(Debug)]
pub struct Keys {
    shelves: Vec<(u32, u32, Mutex<Shelf>)>,
}

impl Keys {
    /// With these shelves: the number of each, and its partition.
    pub fn new(shelves: impl IntoIterator<Item = (u32, u32)>) -> Keys {
        let shelf = || Shelf { active: (1..=ACTIVE).collect(), gone: VecDeque::new(), next: ACTIVE + 1 };
        Keys {
            shelves: shelves
                .into_iter()
                .map(|(number, place)| (number, place, Mutex::new(shelf())))
                .collect(),
        }
    }

    /// How many shelves there are.
    pub fn count(&self) -> usize {
        self.shelves.len()
    }

    /// The number of a shelf.
    pub fn number(&self, shelf: usize) -> u32 {
        self.shelves[shelf].0
    }

    /// The partition of a shelf.
    pub fn place(&self, shelf: usize) -> u32 {
        self.shelves[shelf].1
    }

    fn shelf(&self, shelf: usize) -> MutexGuard<'_, Shelf> {
        self.shelves[shelf].2.lock().expect("a thread panicked while it chose a row")
    }

    /// A row to write.
    pub fn to_write(&self, shelf: usize, random: &mut Random) -> Key {
        let of = self.shelf(shelf);
        Key(self.number(shelf), of.active[random.below(of.active.len() as u64) as usize])
    }

    /// Two different rows to write at once.
    pub fn two(&self, shelf: usize, random: &mut Random) -> [Key; 2] {
        let of = self.shelf(shelf);
        let count = of.active.len() as u64;
        let one = random.below(count);
        let other = (one + 1 + random.below(count - 1)) % count;
        [one, other].map(|at| Key(self.number(shelf), of.active[at as usize]))
    }

    /// A row to read: now and then one that was removed.
    pub fn to_read(&self, shelf: usize, random: &mut Random) -> Key {
        let gone = {
            let of = self.shelf(shelf);
            let at = random.below(10 * GONE as u64) as usize;
            of.gone.get(at).copied()
        };
        gone.map_or_else(|| self.to_write(shelf, random), |id| Key(self.number(shelf), id))
    }

    /// A row to remove: nobody else is given it for that, and another takes its place.
    pub fn to_remove(&self, shelf: usize, random: &mut Random) -> Key {
        let mut of = self.shelf(shelf);
        let at = random.below(of.active.len() as u64) as usize;
        let fresh = of.next;
        of.next += 1;
        let id = std::mem::replace(&mut of.active[at], fresh);
        of.gone.push_front(id);
        of.gone.truncate(GONE);
        Key(self.number(shelf), id)
    }

    /// The prober's row.
    pub fn probe(&self, shelf: usize) -> Key {
        Key(self.number(shelf), PROBE)
    }

    /// Rows of which a scan says whether they are there.
    pub fn known(&self, shelf: usize) -> Vec<Key> {
        let of = self.shelf(shelf);
        of.active.iter().chain(&of.gone).map(|id| Key(self.number(shelf), *id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_removed_once_and_read_for_a_while() {
        let keys = Keys::new([(7, 64), (9, 65)]);
        let mut random = Random::new(1);
        let mut removed = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let [one, other] = keys.two(1, &mut random);
            assert_ne!(one, other);
            let key = keys.to_remove(1, &mut random);
            assert_eq!(key.0, 9);
            assert!(removed.insert(key), "{key} was given twice");
            assert!(keys.known(1).contains(&key));
            assert_eq!(keys.known(1).len() - keys.shelf(1).gone.len(), ACTIVE as usize);
        }
        let read: std::collections::BTreeSet<Key> = (0..500).map(|_| keys.to_read(1, &mut random)).collect();
        assert!(
            read.iter().any(|key| removed.contains(key)) && read.iter().any(|key| !removed.contains(key))
        );
        assert!(keys.known(0).iter().all(|key| key.0 == 7));
    }
}

//! Which seeds have nodes with several executors, and how many.

use types::Executors;

/// Remainders of the numbers of seeds with several: none of the seeds that found something before has one of
/// them, so that those are what they were.
const SEEDS: [u64; 88] = [
    16, 22, 23, 26, 30, 35, 36, 42, 44, 45, 46, 49, 51, 53, 55, 57, 63, 66, 67, 69, 70, 78, 89, 91, 92, 94,
    101, 103, 106, 111, 112, 113, 120, 121, 122, 123, 124, 127, 128, 129, 131, 133, 147, 156, 163, 166, 168,
    170, 171, 174, 176, 178, 182, 183, 184, 187, 189, 194, 196, 199, 200, 202, 205, 207, 213, 214, 215, 217,
    219, 227, 235, 236, 237, 239, 240, 241, 244, 245, 248, 249, 255, 257, 260, 261, 262, 263, 264, 268,
];
const OF: u64 = 269;

/// True for a sixth of the seeds: one of several executors of a node may stand still by itself.
pub fn hang(seed: u64) -> bool {
    !executors(seed).is_one() && seed.is_multiple_of(2)
}

/// How many executors the nodes of a seed have.
pub fn executors(seed: u64) -> Executors {
    let count = if SEEDS.contains(&(seed % OF)) { 2 + (seed % 3) as u32 } else { 1 };
    Executors::new(count).expect("one to four can be")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_seeds_have_several_executors() {
        let with = |count: usize| (0..2_690).filter(|seed| executors(*seed).count() == count).count();
        let found = [1, 2, 3, 4].map(with);
        assert_eq!(found.iter().sum::<usize>(), 2_690);
        assert!(found[1..].iter().all(|seeds| *seeds >= 250), "{found:?}");
        let hung = (0..2_690).filter(|seed| hang(*seed)).count();
        assert!((300..600).contains(&hung), "executors hang in {hung} of 2690");
    }
}

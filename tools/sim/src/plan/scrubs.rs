//! Which seeds have an operator who has replicas read their files back, and gives up those that are damaged.

use super::RunPlan;

/// Remainders of the numbers of seeds with such an operator: none of the seeds that found something before
/// there was one has one of them, so that those are what they were.
const SEEDS: [u64; 20] =
    [13, 29, 44, 57, 70, 83, 97, 107, 120, 126, 139, 152, 166, 174, 187, 203, 212, 221, 232, 243];
const OF: u64 = 251;

/// True if a seed has such an operator, if there is something to be found.
pub fn has_scrubs(seed: u64) -> bool {
    SEEDS.contains(&(seed % OF))
}

impl RunPlan {
    /// An operator who has files read back, where some may rot: in later terms of a partition as well, since
    /// in the first one there are hardly any yet.
    pub(super) fn add_scrubs(&mut self) {
        let trees = self.tables.iter().any(|table| table.lsm);
        self.scrubs = trees || self.faults.iter().any(|fault| fault.rots());
        self.loses_later |= self.scrubs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_of_the_seeds_have_such_an_operator() {
        let has = |seed: &u64| RunPlan::new(*seed, 300, None).scrubs;
        let count = (0..2_510).filter(has).count();
        assert!((125..=200).contains(&count), "{count}");
    }
}

//! Plants: one remedy taken out, so that the simulator itself is tested.

use types::{Finding, Remedy};

/// Every remedy but one is in force; none is out in [`Without::NOTHING`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Without(Option<Finding>);

impl Without {
    /// Every remedy in force, as in the nodes that are shipped.
    pub const NOTHING: Without = Without(None);

    /// The remedy against this finding is out; all others are in.
    pub fn of(finding: Finding) -> Without {
        Without(Some(finding))
    }

    /// What is out.
    pub fn finding(self) -> Option<Finding> {
        self.0
    }
}

impl From<Option<Finding>> for Without {
    fn from(finding: Option<Finding>) -> Without {
        Without(finding)
    }
}

impl Remedy for Without {
    fn has(&self, finding: Finding) -> bool {
        self.0 != Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_out_and_the_others_are_in() {
        for finding in Finding::ALL {
            assert!(Without::NOTHING.has(finding));
            let without = Without::of(finding);
            assert_eq!(Finding::ALL.iter().filter(|other| !without.has(**other)).count(), 1);
            assert!(!without.has(finding));
        }
    }
}

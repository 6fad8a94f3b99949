//! A replica that found damage: why, and when a copy may help.

use types::{EngineError, Micros};

/// What a replica cannot go on with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// What the engine has cannot be trusted. The log is none the worse for it.
    Engine(String),
    /// Nor can the log.
    Log(String),
}

impl Fault {
    /// As a sentence.
    pub fn reason(&self) -> String {
        match self {
            Fault::Engine(reason) | Fault::Log(reason) => reason.clone(),
        }
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Fault {
        Fault::Engine(error.to_string())
    }
}

/// What is known of the damage. It refuses everything until it is given a copy.
#[derive(Debug)]
pub(crate) struct Damage {
    reason: String,
    /// When it may be made anew at the earliest.
    from_scratch_at: Micros,
    /// Its engine's place is lost, and no other one was given yet.
    storage_lost: bool,
}

impl Damage {
    /// A copy helps from `from_scratch_at` on.
    pub fn new(reason: String, from_scratch_at: Micros) -> Damage {
        Damage { reason, from_scratch_at, storage_lost: false }
    }

    /// The sentence that says what was found.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// True if it may be given a copy now. One that was damaged on the way, by a full disk for instance,
    /// takes none for a while, and one whose engine has no place takes none at all.
    pub fn takes_copy(&self, now: Micros) -> bool {
        !self.storage_lost && now >= self.from_scratch_at
    }

    /// True if its engine has no place.
    pub fn is_storage_lost(&self) -> bool {
        self.storage_lost
    }

    /// Its engine's place is lost.
    pub fn lose_storage(&mut self) {
        self.storage_lost = true;
    }

    /// Its engine has another place.
    pub fn give_storage(&mut self) {
        assert!(self.storage_lost, "F15: its engine has a place");
        self.storage_lost = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_waits_for_its_time_and_for_a_place() {
        let mut damage = Damage::new("torn".into(), Micros(10));
        assert!(!damage.takes_copy(Micros(9)) && damage.takes_copy(Micros(10)));
        damage.lose_storage();
        assert!(damage.is_storage_lost() && !damage.takes_copy(Micros(10)));
        damage.give_storage();
        assert!(damage.takes_copy(Micros(10)));
        assert_eq!(damage.reason(), "torn");
    }

    #[test]
    #[should_panic(expected = "its engine has a place")]
    fn an_engine_that_has_a_place_is_given_no_other() {
        Damage::new("torn".into(), Micros::ZERO).give_storage();
    }
}

//! An engine whose place is lost: the disk under this replica's files is gone, and the node and its log are not. The replica is
//! damaged, whatever it led is led by another, which may fetch what its log has, and it takes no copy before a driver has given it
//! an engine in another place.
//!
//! That is asked for only when a primary takes it in again: as long as nobody can, the lost place may come back with the node's
//! next start, and be the last good copy.

use crate::damage::Damage;
use crate::replica::{Ctx, Replica};
use types::{Engine, Lsn};

impl Replica {
    /// The place of this replica's files is lost. It goes on without an engine: `empty` keeps nothing. Gives the engine that was
    /// there, for the driver to drop where that may take long; none if there is none already.
    pub(crate) fn lose(
        &mut self,
        ctx: &mut Ctx,
        empty: Box<dyn Engine>,
        reason: String,
    ) -> Option<Box<dyn Engine>> {
        if self.storage_lost() {
            return None;
        }
        assert!(empty.applied().lsn == Lsn::ZERO, "{}: what stands in for a lost engine is empty", self.id);
        self.fail(ctx, reason);
        self.features.scrub.end(self.engine.as_mut());
        // All of these were of the engine that is gone.
        self.readers.close_all();
        self.features.loads.forget_above(Lsn::ZERO);
        self.transfer.engine_lost();
        self.replay_reads = false;
        if let Some(damage) = self.role.damage_mut() {
            damage.lose_storage();
        }
        Some(std::mem::replace(&mut self.engine, empty))
    }

    /// True if it needs another place for its engine now: a primary has taken it in, and a copy is to come.
    pub(crate) fn wants_storage(&self) -> bool {
        let taken_in = self.config.is_catching_up(&self.me);
        self.storage_lost() && taken_in
    }

    fn storage_lost(&self) -> bool {
        self.role.damage().is_some_and(Damage::is_storage_lost)
    }

    /// An empty engine in another place.
    pub(crate) fn relocate(&mut self, engine: Box<dyn Engine>) {
        assert!(self.storage_lost(), "{}: its engine has a place", self.id);
        assert!(engine.applied().lsn == Lsn::ZERO, "F15: {}: a copy comes to an empty engine", self.id);
        self.transfer.incoming.expect_leftovers(engine.ships_files());
        self.engine = engine;
        if let Some(damage) = self.role.damage_mut() {
            damage.give_storage();
        }
    }
}

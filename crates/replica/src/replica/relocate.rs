//! An engine whose place is lost: the disk under this replica's files is gone, and the node and its log are
//! not. The replica is damaged, whatever it led is led by another, which may fetch what its log has, and it
//! takes no copy before a driver has given it an engine in another place.
//!
//! That is asked for only when a primary takes it in again: as long as nobody can, the lost place may come
//! back with the node's next start, and be the last good copy.

use crate::context::Ctx;
use crate::damage::Fault;
use crate::replica::Replica;
use types::Engine;

impl Replica {
    /// The place of this replica's files is lost. It goes on without an engine: `empty` keeps nothing. Gives
    /// the engine that was there, for the driver to drop where that may take long; none if there is none
    /// already.
    pub(crate) fn lose(
        &mut self,
        ctx: &mut Ctx,
        empty: Box<dyn Engine>,
        reason: String,
    ) -> Option<Box<dyn Engine>> {
        if self.role.is_storage_lost() {
            return None;
        }
        self.fail(ctx, Fault::Engine(reason));
        self.features.scrub.end(self.data.engine.as_mut());
        // All of these were of the engine that is gone.
        self.readers.close_all();
        self.transfer.engine_lost();
        if let Some(damage) = self.role.damage_mut() {
            damage.lose_storage();
        }
        Some(self.data.replace_engine(empty))
    }

    /// An empty engine in another place.
    pub(crate) fn relocate(&mut self, engine: Box<dyn Engine>) {
        assert!(self.role.is_storage_lost(), "{}: its engine has a place", self.identity.id);
        self.transfer.incoming.expect_leftovers(engine.ships_files());
        drop(self.data.replace_engine(engine));
        if let Some(damage) = self.role.damage_mut() {
            damage.give_storage();
        }
    }
}

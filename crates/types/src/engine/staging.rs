//! What an engine may offer: files of bulk loads, staged beside the state and made part of it by one entry
//! (PR-39).

use super::{Engine, EngineError};
use crate::bulk::{LoadId, Staged, Staging};
use crate::component::Component;
use crate::engine::Mutation;
use crate::position::{Lsn, Position};
use bytes::Bytes;

/// An engine that takes files of bulk loads ([`crate::bulk`]). Staged files are no part of the state.
pub trait StagesLoads {
    /// Begins to stage the files of a bulk load, or says how far they are. The files of a load are always the
    /// same; what is wanted comes by [`StagesLoads::stage_piece`]. When all is here, the files are checked
    /// and made durable beside other work, and this is to be asked again.
    fn stage(&mut self, load: LoadId, files: &[Component]) -> Result<Staging, EngineError>;

    /// Takes the bytes of a file from `from` on. False if they are not the next ones that are wanted; nothing
    /// is changed then, nor if there is no room ([`EngineError::Full`]).
    fn stage_piece(
        &mut self,
        load: LoadId,
        file: usize,
        from: u64,
        bytes: &[u8],
    ) -> Result<bool, EngineError>;

    /// What is staged of a load, if it is [`Staging::Ready`].
    fn staged(&self, load: LoadId) -> Option<Staged>;

    /// The lowest and the highest stored key of a load that is [`Staging::Ready`]; none if it is not.
    fn staged_keys(&self, load: LoadId) -> Result<Option<(Bytes, Bytes)>, EngineError>;

    /// The files of a load that is [`Staging::Ready`], in order; none if it is not.
    fn staged_files(&self, load: LoadId) -> Vec<Component>;

    /// At most `max_bytes` bytes of such a file from `from` on. None if there is no such file.
    fn read_staged(
        &self,
        load: LoadId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError>;

    /// Every load of which something is staged.
    fn loads(&self) -> Vec<LoadId>;

    /// Bytes of the loads that are being staged which are not here yet.
    fn to_stage(&self) -> u64;

    /// Removes what is staged of a load. What is pending ([`StagesLoads::pending_load`]) stays.
    fn unstage(&mut self, load: LoadId) -> Result<(), EngineError>;

    /// [`Engine::execute`] for the entry that makes a staged load part of the state; its own mutations are
    /// reserved rows. The rows of the load can be read when the entry is published, and not before, not even
    /// at [`super::ReadAt::Applied`]. [`Engine::publish`] stops below the entry until its files are
    /// installed: by a checkpoint, once that is allowed ([`StagesLoads::allow_load`]), or with a received set
    /// that has them.
    ///
    /// Panics if the load is not staged.
    fn execute_load(&mut self, at: Position, load: LoadId, mutations: &[Mutation]);

    /// The first such entry that is executed and whose files are not installed.
    fn pending_load(&self) -> Option<Position>;

    /// Such entries up to here are committed and secured: checkpoints may install their files, one each, when
    /// everything below is persisted.
    fn allow_load(&mut self, upto: Lsn);

    /// False while what would have to end before a load could be installed may take long.
    fn is_settled(&self) -> bool {
        true
    }
}

/// What is asked of any engine; one that stages nothing has none.
impl dyn Engine + '_ {
    /// [`StagesLoads::staged`].
    pub fn staged(&self, load: LoadId) -> Option<Staged> {
        self.staging()?.staged(load)
    }

    /// [`StagesLoads::loads`].
    pub fn loads(&self) -> Vec<LoadId> {
        self.staging().map(|staging| staging.loads()).unwrap_or_default()
    }

    /// [`StagesLoads::pending_load`].
    pub fn pending_load(&self) -> Option<Position> {
        self.staging()?.pending_load()
    }
}

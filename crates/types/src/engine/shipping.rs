//! What an engine may offer: its files can be sent to another replica, and another's become its state.

use super::{Engine, EngineError, Wake};
use crate::component::{ComponentSet, Installation, Missing, PinId};
use bytes::Bytes;

/// An engine whose state is in files that another engine of its kind can take over ([`crate::component`]).
/// The state of an engine without it is copied by rows ([`Engine::reset`]).
pub trait ShipsFiles {
    /// Keeps the files of the persisted state readable until [`ShipsFiles::unpin`], a [`Engine::reset`] or an
    /// installation. None if the engine has no files yet, or is just writing some.
    fn pin(&mut self) -> Result<Option<(PinId, ComponentSet)>, EngineError>;

    /// At most `max_bytes` bytes of a pinned file from `from` on, none at its end. None at all if the pin is
    /// not known (any more) or has no such file.
    fn read_component(
        &self,
        pin: PinId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError>;

    /// Nobody reads these files any more.
    fn unpin(&mut self, pin: PinId);

    /// Begins to receive a set, or goes on with it after a restart, beside reads and writes. Files that are
    /// here already are not received. Gives up any other set that was being received. False if the set is of
    /// no use here: the engine has as much in files of its own, or no engine of its kind can have made the
    /// set.
    ///
    /// The caller makes sure that what the engine has published above the set follows the set's state (R3).
    fn receive(&mut self, set: ComponentSet) -> Result<bool, EngineError>;

    /// The same, as if the engine had no files of its own: all of the set comes in, but for what came of it
    /// before.
    fn receive_whole(&mut self, set: ComponentSet) -> Result<bool, EngineError>;

    /// What is missing of the set that is being received.
    fn missing(&self) -> Vec<Missing>;

    /// Takes the bytes of a file from `from` on. False if they are not the next ones that are wanted; nothing
    /// is changed then, nor if there is no room ([`EngineError::Full`]).
    fn receive_piece(&mut self, file: usize, from: u64, bytes: &[u8]) -> Result<bool, EngineError>;

    /// Checks a set of which nothing is missing, beside other work, and then makes it the engine's state.
    /// Entries above it stay, published or tentative; the floor rises to it.
    fn begin_installation(&mut self, wake: &Wake) -> Result<Installation, EngineError>;

    /// Goes on with it.
    fn go_on_installation(&mut self) -> Result<Installation, EngineError>;

    /// Bytes of the set that the installation under way has checked, for those who wait for it. An engine
    /// that checks all at once has none to tell.
    fn checked_bytes(&self) -> u64 {
        0
    }

    /// Gives up the set that is being received, and removes what is there of it.
    fn stop_receiving(&mut self) -> Result<(), EngineError>;
}

impl dyn Engine + '_ {
    /// True if the engine's files can be shipped.
    pub fn ships_files(&self) -> bool {
        self.shipping().is_some()
    }
}

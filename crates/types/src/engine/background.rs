//! What an engine may offer: checkpoints that are written beside its other work.

use super::{Engine, EngineError};
use std::sync::Arc;

/// Where a checkpoint beside the engine's other work stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoint {
    /// None is under way.
    Idle,
    /// It can go on at once, when others have had their turn.
    Ready,
    /// It waits for the disk; the engine wakes its driver.
    Waiting,
}

/// Called from another thread when something that an engine does beside its calls may go on.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Checkpoints that hold up nothing: no call here takes long. What every engine offers is
/// [`Engine::checkpoint`], which returns when all is durable.
pub trait BackgroundCheckpoints {
    /// Begins to write everything published to disk. [`Engine::persisted`] moves when all is durable, not
    /// before. Begins nothing if there is nothing to write or the engine is not ready for it.
    fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError>;

    /// Goes on with it.
    fn go_on_checkpoint(&mut self) -> Result<Checkpoint, EngineError>;
}

impl dyn Engine + '_ {
    /// [`BackgroundCheckpoints::begin_checkpoint`]; an engine that does not offer it writes its checkpoint at
    /// once.
    pub fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError> {
        if let Some(background) = self.background_checkpoints() {
            return background.begin_checkpoint(wake);
        }
        self.checkpoint()?;
        Ok(Checkpoint::Idle)
    }

    /// [`BackgroundCheckpoints::go_on_checkpoint`].
    pub fn go_on_checkpoint(&mut self) -> Result<Checkpoint, EngineError> {
        self.background_checkpoints().map_or(Ok(Checkpoint::Idle), |background| background.go_on_checkpoint())
    }
}

//! A copy by rows on its way to a member.

use types::{Micros, Position};
use wire::peer::Copy;

/// A copy that is being sent.
#[derive(Debug)]
pub(crate) struct CopyOut {
    pub(super) number: u64,
    /// The position at which the state is copied.
    pub(super) at: Position,
    pub(super) at_crc: u32,
    pub(super) next_key: Vec<u8>,
    /// The piece on its way.
    pub(super) pending: Option<Copy>,
    pub(super) sent_at: Micros,
    /// How often that piece was sent again.
    pub(super) resent: u32,
}

impl CopyOut {
    /// The connection is new: the piece on its way is lost.
    pub fn resend(&mut self) {
        self.sent_at = Micros::ZERO;
    }
}

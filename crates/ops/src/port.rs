//! The little that loads and feeds need of a client, so that their rules can be tested without a cluster.

use client::{Call, Client, ClientError, Completed, LaneId, Loss, Ticket};
use std::time::Duration;

/// Takes calls in and says what became of them. One job uses it at a time.
pub trait Port {
    /// A lane that nobody else uses, with so many writes of each session on their way at once.
    fn open_lane(&mut self, window: usize) -> LaneId;
    /// Takes a call in. It is sent by the next [`Port::poll`].
    fn submit(&mut self, lane: LaneId, call: Call) -> Ticket;
    /// Sends what was taken in, waits until something ends, at most `timeout`, and says what did.
    fn poll(&mut self, timeout: Duration) -> Result<Vec<Completed>, ClientError>;
    /// Losses of acknowledged writes noticed since the last call.
    fn take_losses(&mut self) -> Vec<Loss>;
}

impl Port for Client {
    fn open_lane(&mut self, window: usize) -> LaneId {
        let lane = self.new_lane();
        self.set_window(lane, window);
        lane
    }

    fn submit(&mut self, lane: LaneId, call: Call) -> Ticket {
        Client::submit(self, lane, call)
    }

    fn poll(&mut self, timeout: Duration) -> Result<Vec<Completed>, ClientError> {
        Client::poll(self, timeout)
    }

    fn take_losses(&mut self) -> Vec<Loss> {
        Client::take_losses(self)
    }
}

//! While a transaction is open its states are kept by the primaries, which would forget them seconds after
//! their last use.

use super::turns::Leaver;
use super::view::Known;
use crate::driver::Handle;
use crate::read::CALL;
use client::txn::OpenTransaction;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use types::Position;
use wire::Op;
use wire::request::ReadSnapshot;

/// Between two renewals. A primary keeps a state for three times as long.
const EACH: Duration = Duration::from_secs(3);

/// Renews a transaction's states until it is dropped, or until the client has been silent too long.
pub struct Keeper {
    state: Arc<KeeperState>,
    task: JoinHandle<()>,
    /// As long as it is there the transaction counts as one that executes.
    _open: Option<OpenTransaction>,
}

struct KeeperState {
    /// Since when the client has been silent; `None`: a statement runs.
    silent: Mutex<Option<Instant>>,
    over: AtomicBool,
    /// Who waits for that is told.
    ended: Notify,
}

impl Keeper {
    /// Starts. `limit` is how long the client may be silent: then its rows are others'.
    pub fn start(handle: Handle, kept: (Known, Leaver), limit: Duration) -> Keeper {
        let (silent, over) = (Mutex::default(), AtomicBool::new(false));
        let state = Arc::new(KeeperState { silent, over, ended: Notify::new() });
        let open = handle.begun();
        let task = tokio::spawn(keep(handle, kept, limit, state.clone()));
        Keeper { state, task, _open: open }
    }

    /// A statement begins. False: the client was silent too long, and what was kept is given up.
    pub fn busy(&self) -> bool {
        *self.state.silent.lock().unwrap_or_else(PoisonError::into_inner) = None;
        !self.state.over.load(Ordering::Acquire)
    }

    /// Ends when the client has been silent too long. It holds nothing of the transaction.
    pub fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let state = self.state.clone();
        async move {
            let ended = state.ended.notified();
            if !state.over.load(Ordering::Acquire) {
                ended.await;
            }
        }
    }

    /// A statement has ended.
    pub fn idle(&self) {
        *self.state.silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(handle: Handle, (known, leaver): (Known, Leaver), limit: Duration, state: Arc<KeeperState>) {
    loop {
        tokio::time::sleep(EACH.min(limit)).await;
        let silent = *state.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.is_some_and(|since| since.elapsed() >= limit) {
            state.over.store(true, Ordering::Release);
            state.ended.notify_waiters();
            return leaver.leave();
        }
        for (table, partition, position) in known.all() {
            let at = match handle.is_global() {
                true => ReadSnapshot::Commit { at: position, after: Position::ZERO },
                false => ReadSnapshot::At(position),
            };
            let call = table.call(partition, Op::Hold { at });
            // A state that is lost is noticed by whoever reads or commits.
            handle.submit(call.within(CALL), drop);
        }
    }
}

//! Transactions that read what all copies have secured (T_P*): any copy that is in sync shows it, also while
//! the primary is missed, or a server is recovered (PR-322). They write nothing.

use super::{CALL_TIMEOUT, KEYS, LEDGER, Open, Purpose, TxnClient};
use crate::check::commits::{TxnEnd, TxnOperation};
use ::client::txn::{Manager, Secured};
use ::client::{Call, LaneId, Outcome};

impl TxnClient {
    /// Begins such a transaction, if it is the turn of one. False: it is not.
    pub(super) fn begins_stale(&mut self, now: u64, manager: Manager) -> bool {
        let Some(random) = self.stale.as_mut() else { return false };
        if !random.chance(300) {
            return false;
        }
        let count = random.between(1, 6);
        let to_read = (0..count).map(|_| format!("a{}", random.below(KEYS))).collect();
        let operation = TxnOperation { stale: true, ..TxnOperation::new(self.id, now) };
        self.open = Some(Open::new(operation, to_read));
        self.ask_secured(now, Secured::call_of_primary(manager), true);
        true
    }

    fn ask_secured(&mut self, now: u64, call: Call, of_primary: bool) {
        let ticket = self.shell.submit(now, LaneId(2 * self.incarnation.number), call);
        self.calls.insert(ticket, Purpose::Secured { of_primary });
    }

    /// What all copies have secured is known. Where the manager's primary does not answer, one of its copies
    /// is asked.
    pub(super) fn secured_known(&mut self, now: u64, of_primary: bool, outcome: Outcome) {
        let (Some(manager), Some(record)) = (self.manager(), self.shell.core().map().database(LEDGER)) else {
            return self.end(now, TxnEnd::NotDone);
        };
        let own = record.first_partition.0..record.first_partition.0 + record.partitions;
        let answer = match outcome {
            Outcome::Ok(answer) => answer,
            _ if of_primary => {
                return self.ask_secured(now, Secured::call(manager).within(CALL_TIMEOUT), false);
            }
            _ => return self.end(now, TxnEnd::NotDone),
        };
        match Secured::of(&answer, |partition| own.contains(&partition.0)) {
            Ok(secured) => {
                let Some(open) = &mut self.open else { return };
                open.operation.snapshot = Some(secured.at());
                (open.current, open.secured) = (Some(secured.at()), Some(secured));
                self.next_read(now);
            }
            Err(error) => {
                self.reported.fault = Some(format!("thresholds were asked for: {error}"));
                self.end(now, TxnEnd::NotDone);
            }
        }
    }
}

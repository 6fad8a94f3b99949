//! Turns at rows ([`crate::Op::Turn`]): gateways ask a partition's primary which transaction changes a row
//! next, so that clients of several nodes do not abort each other. They are kept in the primary's memory
//! alone and are lost with its term. Nothing rests on them: without a turn COMMIT finds out what others have
//! changed.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::engine::MAX_KEY_BYTES;

/// The longest wait for a turn, in milliseconds.
pub const MAX_TURN_WAIT_MS: u32 = 5_000;

/// Names a transaction among all that ask for turns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct TurnHolder {
    /// Drawn at random by each process that asks.
    pub gateway: u64,
    /// Ascends there, and is never used twice.
    pub transaction: u64,
}

/// What a gateway asks. From gateways to primaries.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TurnOp {
    /// The turn at a row of the request's table. The answer comes when it is this one's turn, or when it has
    /// waited long enough. A write of the row passes the turn on, and so does [`TurnOp::Release`]; ten
    /// seconds behind the holder's last question it ends by itself.
    Ask {
        /// Which transaction asks. It waits for one row at a time.
        who: TurnHolder,
        /// The encoded key.
        key: Bytes,
        /// How long it waits, in milliseconds: at most [`MAX_TURN_WAIT_MS`].
        wait_ms: u32,
    },
    /// The transaction has ended: all that it has in this partition is passed on, and it waits no more.
    Release {
        /// Which one.
        who: TurnHolder,
    },
}

/// The answer. From primaries to gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TurnAnswer {
    /// It is its turn. All that was executed when it came is committed by now: whoever reads the row at the
    /// primary reads what the one before has written. The reply's LSN says how far the log reached then.
    Granted {
        /// Others had it until now.
        waited: bool,
    },
    /// It goes on without: it has waited long enough, or the primary keeps no more turns.
    Without,
    /// It would wait for itself: the transaction is to be given up.
    Deadlock,
    /// What it had is passed on.
    Released,
}

impl TurnOp {
    /// What is wrong with it, as a sentence.
    pub fn fault(&self) -> Option<String> {
        match self {
            TurnOp::Ask { key, .. } if key.is_empty() || key.len() >= MAX_KEY_BYTES => {
                Some(format!("a key of {} bytes is outside 1 to {}", key.len(), MAX_KEY_BYTES - 1))
            }
            TurnOp::Ask { wait_ms, .. } if *wait_ms > MAX_TURN_WAIT_MS => {
                Some(format!("a wait of {wait_ms} ms is over the limit of {MAX_TURN_WAIT_MS} ms"))
            }
            TurnOp::Ask { .. } | TurnOp::Release { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Message, Op, Reply, Request, Status};
    use types::{Epoch, Lsn, PartitionId, TableId};

    const WHO: TurnHolder = TurnHolder { gateway: 7, transaction: 9 };

    fn ask(bytes: usize, wait_ms: u32) -> TurnOp {
        TurnOp::Ask { who: WHO, key: Bytes::from(vec![b'k'; bytes]), wait_ms }
    }

    fn travels(message: Message) {
        let body = message.encode_body(Vec::new()).expect("it is encoded");
        assert_eq!(Message::decode_body(message.number(), &body), Ok(message));
    }

    #[test]
    fn turns_travel() {
        for asked in [ask(3, 5), TurnOp::Release { who: WHO }] {
            let op = Op::Turn(asked);
            assert!(op.needs_primary() && !op.writes() && !op.makes_entries() && !op.reads_rows());
            travels(Message::Request(Request::new(TableId(1), 1, PartitionId(64), op)));
        }
        let granted = |waited: bool| TurnAnswer::Granted { waited };
        let all = [granted(true), granted(false), TurnAnswer::Without, TurnAnswer::Deadlock];
        for answer in all.into_iter().chain([TurnAnswer::Released]) {
            let (id, status, lsn, epoch, body) = (1, Status::Ok, Lsn(7), Epoch(1), Body::Turn(answer));
            travels(Message::Reply(Reply { id, status, lsn, epoch, policy: 1, copies: 0, hint: None, body }));
        }
    }

    #[test]
    fn pr376_keys_that_no_engine_takes_and_waits_without_end_are_refused() {
        let fits = |asked: TurnOp| {
            let request = Request::new(TableId(1), 1, PartitionId(64), Op::Turn(asked));
            Message::Request(Request { id: 1, ..request }).validate().is_ok()
        };
        assert!(fits(ask(MAX_KEY_BYTES - 1, MAX_TURN_WAIT_MS)) && fits(TurnOp::Release { who: WHO }));
        assert!(!fits(ask(0, 1)) && !fits(ask(MAX_KEY_BYTES, 1)) && !fits(ask(1, MAX_TURN_WAIT_MS + 1)));
    }
}

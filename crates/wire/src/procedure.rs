//! Calls of procedures: what a primary is asked ([`CallRequest`]) and what it says ([`CallResult`]).
//!
//! ```text
//! client                                  primary of the partition
//!   Op::Call: procedure, arguments        runs it against what has been executed; one entry: what it writes,
//!                                         the session's row, and the result as a row of its own
//!   the same again                        the result's row
//!   any write that confirms it            the row goes, in the entry of that write
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::TableId;
use types::procedure::Failure;

/// The most bytes of arguments of one call, as they are encoded.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// The most bytes of results that are kept for one session. Beyond them the client must confirm some first.
pub const MAX_SESSION_RESULT_BYTES: usize = 1 << 20;

/// A call of a procedure of a database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallRequest {
    /// The procedure.
    pub procedure: TableId,
    /// The version of its definition by which the arguments were encoded. Refused with
    /// [`crate::Outcome::Stale`] if it is another one.
    pub version: u32,
    /// What its parameters' signature ([`types::data::Signature`]) encodes.
    pub arguments: Bytes,
    /// Of a database of several partitions: what the encoded keys of all rows begin with that it may touch.
    /// Empty: the database has one partition.
    pub route: Bytes,
    /// The client knows the procedure as one that changes nothing: the call needs no session. Refused with
    /// [`crate::Outcome::Stale`] if it is none.
    pub read_only: bool,
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CallResult {
    /// It was done, and gave these rows, as the signature of its results encodes them.
    Rows(Vec<Bytes>),
    /// Nothing of it was done.
    Failed(Failure),
}

impl CallResult {
    /// As it is kept for a repeated call.
    pub fn encode(&self) -> Bytes {
        postcard::to_stdvec(self).expect("rows and words").into()
    }

    /// From what was kept. The error is a sentence.
    pub fn decode(bytes: &[u8]) -> Result<CallResult, String> {
        match postcard::take_from_bytes(bytes) {
            Ok((result, [])) => Ok(result),
            Ok((_, rest)) => Err(format!("{} bytes follow the result of a call", rest.len())),
            Err(error) => Err(format!("the result of a call cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::procedure::FailureKind;

    #[test]
    fn results_read_back_and_cuts_are_noticed() {
        let rows = CallResult::Rows(vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")]);
        let failed = CallResult::Failed(Failure::new(FailureKind::Raised, "no"));
        for result in [rows, failed] {
            let bytes = result.encode();
            assert_eq!(CallResult::decode(&bytes), Ok(result));
            for cut in 0..bytes.len() {
                assert!(CallResult::decode(&bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }
}

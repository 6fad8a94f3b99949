//! What can go wrong, one sentence each, with the exit status that the conventions give it.

use crate::call::{Answer, FailKind, Outcome};
use types::Position;
use types::procedure::Failure;
use wire::request::Outcome as Refusal;
use wire::{Body, CallResult};

/// Why a client's operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientError {
    /// No controller answered in time.
    #[error(
        "cannot reach any controller of [{}]: {why}; is the cluster running? start one with `understudy dev`",
        .controllers.join(", ")
    )]
    NoController {
        /// The addresses that were tried.
        controllers: Vec<String>,
        /// What happened at the last one.
        why: String,
    },
    /// A controller or node did not let this client in.
    #[error("{address} refused the connection: {why}")]
    NotWelcome {
        /// Who.
        address: String,
        /// Its sentence.
        why: String,
    },
    /// The table does not exist.
    #[error("there is no table `{0}`; `understudy table list` shows those that exist")]
    NoTable(String),
    /// The database does not exist.
    #[error("there is no database `{0}`; `understudy database list` shows those that exist")]
    NoDatabase(String),
    /// A table of a database is not as the caller knew it. Nothing was done.
    #[error("a table was changed or dropped meanwhile; nothing was done; look at it again")]
    Stale,
    /// A table of the database has the name already. Nothing was changed.
    #[error("there is a table of this name in the database; nothing was changed")]
    NameTaken,
    /// The procedure does not exist.
    #[error("there is no procedure `{0}`; `understudy procedure list` shows those that exist")]
    NoProcedure(String),
    /// A procedure, or the arguments of a call, cannot be so.
    #[error("procedure `{name}`: {why}")]
    Procedure {
        /// The procedure.
        name: String,
        /// What cannot be.
        why: String,
    },
    /// A call failed; nothing of it was done.
    #[error("the call failed and nothing of it was done: {0}")]
    Call(Failure),
    /// The table exists, but some of its partitions were not served in time.
    #[error("table `{table}` was not ready in time: {why}")]
    NotReady {
        /// The table.
        table: String,
        /// What is missing.
        why: String,
    },
    /// A row or key does not fit the table.
    #[error("table `{table}`: {why}")]
    Data {
        /// The table.
        table: String,
        /// What does not fit.
        why: String,
    },
    /// A row was written under a later version of the table's columns than the caller knows.
    #[error("table `{table}` has got columns meanwhile: try again")]
    NewerSchema {
        /// The table.
        table: String,
    },
    /// An insert found a row with its key; nothing was changed.
    #[error("a row with this key exists already; nothing was changed")]
    Exists,
    /// A row had changed since the snapshot that a write rests on; nothing was changed.
    #[error("a row has changed since it was read; nothing was changed; read again and try again")]
    Changed,
    /// A row has no place in one of the table's indexes.
    #[error(
        "a row cannot be indexed: a value in an indexed column is too long, or the row is none of this table; nothing was \
         changed"
    )]
    Unindexable,
    /// A write with all that it changes in indexes is too large for one entry of the log.
    #[error(
        "the write is too large with what it changes in the table's indexes; nothing was changed; write fewer rows at a time"
    )]
    TooMuch,
    /// A transaction over partitions writes too much: the write that it was told of last was not taken.
    #[error("{0}; the write was not taken; commit more often")]
    TooLarge(wire::commit::TooLarge),
    /// So many transactions over partitions of this client are open that no more are begun.
    #[error("{0} transactions of this client are open, and no more are begun: commit or drop some")]
    TooManyOpen(usize),
    /// A transaction over partitions was committed, at this timestamp, and not all of its partitions have
    /// secured it in the time that the client waits for that (PR-370).
    #[error(
        "the transaction is committed, at {0}, and the transaction manager keeps it; but not all of its partitions have \
         secured it in time; do not do it again"
    )]
    NotSecured(Position),
    /// A constraint of a table of a database forbids a write; nothing was changed. Its number.
    #[error(
        "a constraint of the table, or of one that refers to it, forbids it; nothing was changed; `psql` names the constraint"
    )]
    Violates(u32),
    /// A piece of a job was refused: a record in it, or the job has ended.
    #[error("the job does not go on: a record of it was refused, or it has ended")]
    Stopped,
    /// A write may have been done or not.
    #[error("it is not known whether the write was done: {0}")]
    OutcomeUnknown(String),
    /// The call surely did nothing.
    #[error("{sentence}")]
    Failed {
        /// Why.
        kind: FailKind,
        /// In words.
        sentence: String,
    },
    /// A controller refused or failed an operator's request.
    #[error("{sentence}")]
    Admin {
        /// The exit status that the controller gave.
        status: u8,
        /// In words.
        sentence: String,
    },
    /// The connection to the controller broke after a request that must not be sent twice.
    #[error(
        "the controller did not say how `{request}` ended: {why}; look at the cluster before trying again"
    )]
    AdminUnknown {
        /// What was asked.
        request: &'static str,
        /// What happened.
        why: String,
    },
    /// An answer of the wrong kind: the other side has a bug or another version.
    #[error("the answer was not of the expected kind: {0}")]
    Protocol(String),
    /// This machine refused a socket or a poll.
    #[error("the operating system refused: {0}")]
    System(String),
}

impl ClientError {
    /// The process's exit status for it.
    pub fn exit_status(&self) -> u8 {
        match self {
            ClientError::NoController { .. } | ClientError::NotReady { .. } => 4,
            ClientError::OutcomeUnknown(_) | ClientError::AdminUnknown { .. } => 4,
            ClientError::NotSecured(_) => 4,
            ClientError::NoTable(_) | ClientError::NoDatabase(_) | ClientError::NoProcedure(_) => 3,
            ClientError::Procedure { .. } | ClientError::Call(_) => 1,
            ClientError::NotWelcome { .. } => 5,
            ClientError::Failed { kind, .. } => kind.exit_status(),
            ClientError::Admin { status, .. } => *status,
            ClientError::System(_) => 7,
            ClientError::Data { .. } | ClientError::Exists | ClientError::Changed => 1,
            ClientError::Unindexable | ClientError::TooMuch | ClientError::Stopped => 1,
            ClientError::TooLarge(_) | ClientError::TooManyOpen(_) => 1,
            ClientError::Protocol(_) | ClientError::NameTaken | ClientError::Violates(_) => 1,
            ClientError::NewerSchema { .. } | ClientError::Stale => 4,
        }
    }
}

impl Outcome {
    /// The answer of a call that was done, else the error.
    pub fn into_result(self) -> Result<Answer, ClientError> {
        match self {
            Outcome::Ok(answer) => Ok(answer),
            Outcome::Refused(Refusal::Exists, _) => Err(ClientError::Exists),
            Outcome::Refused(Refusal::Changed, _) => Err(ClientError::Changed),
            Outcome::Refused(Refusal::Unindexable, _) => Err(ClientError::Unindexable),
            Outcome::Refused(Refusal::TooMuch, _) => Err(ClientError::TooMuch),
            Outcome::Refused(Refusal::Stopped, _) => Err(ClientError::Stopped),
            Outcome::Refused(Refusal::Stale, _) | Outcome::Failed(FailKind::Stale, _) => {
                Err(ClientError::Stale)
            }
            Outcome::Refused(Refusal::NameTaken, _) => Err(ClientError::NameTaken),
            Outcome::Refused(Refusal::Violates, answer) => Err(ClientError::Violates(answer.violated())),
            Outcome::Refused(
                Refusal::CallFailed,
                Answer { body: Body::Called(CallResult::Failed(why)), .. },
            ) => Err(ClientError::Call(why)),
            Outcome::Refused(Refusal::CallFailed, _) => {
                Err(ClientError::Protocol("a call failed and nobody says why".into()))
            }
            Outcome::Refused(Refusal::Done | Refusal::Returned, _) => {
                Err(ClientError::Protocol("a refusal that says `done`".into()))
            }
            Outcome::Unknown(why) => Err(ClientError::OutcomeUnknown(why)),
            Outcome::Failed(kind, sentence) => Err(ClientError::Failed { kind, sentence }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_say_what_to_do_and_statuses_follow_the_conventions() {
        let error = ClientError::NoController {
            controllers: vec!["127.0.0.1:7400".into(), "127.0.0.1:7401".into()],
            why: "connection refused".into(),
        };
        assert_eq!(
            error.to_string(),
            "cannot reach any controller of [127.0.0.1:7400, 127.0.0.1:7401]: connection refused; is the cluster \
             running? start one with `understudy dev`"
        );
        assert_eq!(error.exit_status(), 4);
        assert_eq!(ClientError::NoTable("x".into()).exit_status(), 3);
        let full = ClientError::Failed { kind: FailKind::Full, sentence: "the disk is full".into() };
        assert_eq!((full.exit_status(), full.to_string().as_str()), (7, "the disk is full"));
    }
}

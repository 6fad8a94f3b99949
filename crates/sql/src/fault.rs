//! What the cluster says when something is not done, as PostgreSQL's clients read it (conventions: SQLSTATE).

use client::{Answer, ClientError, FailKind, Outcome};
use pg::{Failure, Reason, code};
use types::TableRecord;
use types::procedure::FailureKind;
use wire::request::Outcome as Refusal;
use wire::{Body, CallResult};

/// How a write ended that was decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decided {
    /// It was done.
    Done(Answer),
    /// An insert found its key. Nothing was changed.
    Exists,
    /// A row is not as it was read. Nothing was changed.
    Changed,
    /// The constraint with this number forbids it. Nothing was changed.
    Violates(u32),
}

/// How a write ended.
pub fn decided(outcome: Outcome) -> Result<Decided, Failure> {
    match outcome {
        Outcome::Ok(answer) => Ok(Decided::Done(answer)),
        Outcome::Refused(Refusal::Exists, _) => Ok(Decided::Exists),
        Outcome::Refused(Refusal::Changed, _) => Ok(Decided::Changed),
        Outcome::Refused(Refusal::Violates, answer) => Ok(Decided::Violates(answer.violated())),
        Outcome::Refused(Refusal::Unindexable, _) => Err(of_client(ClientError::Unindexable)),
        Outcome::Refused(Refusal::TooMuch, _) => Err(of_client(ClientError::TooMuch)),
        Outcome::Refused(Refusal::Stopped, _) => Err(of_client(ClientError::Stopped)),
        Outcome::Refused(Refusal::Stale, _) => Err(of_client(ClientError::Stale)),
        Outcome::Refused(Refusal::NameTaken, _) => Err(of_client(ClientError::NameTaken)),
        Outcome::Refused(Refusal::CallFailed, answer) => Err(call_failed(&answer)),
        Outcome::Refused(Refusal::Done | Refusal::Returned, _) => {
            Err(Failure::new(code::INTERNAL, "a refusal that says `done`"))
        }
        Outcome::Unknown(why) => Err(unknown(&why)),
        Outcome::Failed(kind, why) => Err(failed(kind, &why)),
    }
}

/// A call of a procedure that failed, with the code that PostgreSQL has for the like.
fn call_failed(answer: &Answer) -> Failure {
    let Body::Called(CallResult::Failed(failure)) = &answer.body else {
        return Failure::new(code::INTERNAL, "a call failed and nobody says why");
    };
    of_call(failure)
}

/// The same of the failure itself.
pub fn of_call(failure: &types::procedure::Failure) -> Failure {
    let code = match failure.kind {
        FailureKind::Steps | FailureKind::Time | FailureKind::Later => code::CANCELED,
        FailureKind::Memory | FailureKind::Reads | FailureKind::Writes | FailureKind::Results => code::LIMIT,
        FailureKind::Depth => "54001",
        FailureKind::Arguments => "22023",
        FailureKind::Tables => "42P01",
        FailureKind::Elsewhere => code::UNSUPPORTED,
        FailureKind::Row => "22000",
        FailureKind::ReadOnly => "25006",
        FailureKind::Trap => "38000",
        FailureKind::Raised => "P0001",
    };
    Failure::new(code, failure.why.clone())
}

/// The answer to a read.
pub fn answer(outcome: Outcome) -> Result<Answer, Failure> {
    match decided(outcome)? {
        Decided::Done(answer) => Ok(answer),
        other => Err(Failure::new(code::INTERNAL, format!("a read was refused: {other:?}"))),
    }
}

/// Somebody else has changed what was read.
pub fn conflict() -> Failure {
    Failure::new(SERIALIZATION, CONFLICT).hint("nothing was changed; do the transaction again")
}

/// True if what a write rests on has changed, or is lost, and nothing was done.
pub fn is_conflict(failure: &Failure) -> bool {
    failure.code == SERIALIZATION && failure.message == CONFLICT
}

const CONFLICT: &str = "could not serialize access due to concurrent update";

/// The code of a transaction that is to be done again.
pub const SERIALIZATION: &str = "40001";

/// True if it is not known whether something was done.
pub fn is_unknown(failure: &Failure) -> bool {
    failure.code == UNKNOWN
}

/// The code of what may have been done or not.
const UNKNOWN: &str = "40003";

/// The error of a write whose outcome is not known.
fn unknown(why: &str) -> Failure {
    Failure::new(UNKNOWN, format!("it is not known whether the statement was done: {why}"))
        .hint("read what it should have changed before doing it again")
}

fn failed(kind: FailKind, why: &str) -> Failure {
    match kind {
        FailKind::TimedOut => Failure::new("57P03", format!("no primary has answered: {why}"))
            .hint("nothing was done; try again"),
        FailKind::Bad => Failure::new(code::INTERNAL, why.to_string()),
        FailKind::TooFewCopies => {
            Failure::new("57P03", format!("too few copies: {why}")).hint("nothing was done")
        }
        FailKind::Full => Failure::new("53100", why.to_string()).hint("nothing was done"),
        FailKind::NotFound => Failure::new("42P01", why.to_string()).hint(GONE),
        FailKind::Corrupt => Failure::new("XX001", why.to_string()),
        FailKind::NoIndex => Failure::new(SERIALIZATION, why.to_string()).hint("do the transaction again"),
        FailKind::Stale => stale(),
        FailKind::TooOld | FailKind::Behind(_) => {
            Failure::new(SERIALIZATION, format!("could not serialize access: {why}"))
                .hint("do the transaction again")
        }
    }
}

/// What a client of one's own says.
pub fn of_client(error: ClientError) -> Failure {
    let sentence = error.to_string();
    match error {
        ClientError::NoController { .. } | ClientError::NotReady { .. } => Failure::new("57P03", sentence),
        ClientError::AdminUnknown { .. } | ClientError::OutcomeUnknown(_) => Failure::new("40003", sentence),
        ClientError::NoTable(_) | ClientError::Admin { status: 3, .. } => Failure::new("42P01", sentence),
        ClientError::Admin { status: 2, .. } => Failure::new("22023", sentence),
        ClientError::Admin { status: 4, .. } => Failure::new("57P03", sentence),
        ClientError::Admin { status: 5, .. } if sentence.contains(TOO_FEW_NODES) => {
            Failure::new("53000", sentence)
                .hint("ask for fewer copies (factor = ...), or let more nodes run: nothing was done")
        }
        ClientError::Admin { status: 5, .. } => Failure::new("42501", sentence),
        ClientError::Unindexable | ClientError::TooMuch | ClientError::TooLarge(_) => {
            Failure::new("54000", sentence)
        }
        ClientError::TooManyOpen(_) => Failure::new(code::TOO_MANY, sentence),
        ClientError::NewerSchema { .. } => Failure::new("40001", sentence),
        ClientError::Violates(_) => Failure::new("23000", sentence),
        ClientError::Changed => conflict(),
        ClientError::Stale => stale(),
        ClientError::NameTaken => Failure::new("42P07", sentence).because(Reason::NameTaken),
        ClientError::NoDatabase(_) => Failure::new("3D000", sentence),
        ClientError::Failed { kind, .. } => failed(kind, &sentence),
        _ => Failure::new(code::INTERNAL, sentence),
    }
}

/// What a controller says of more copies than there are nodes.
const TOO_FEW_NODES: &str = "copies, but only";

/// A table is not as a plan thought: it is to be looked at again.
pub fn stale() -> Failure {
    Failure::new(SERIALIZATION, "a table was changed or dropped meanwhile")
        .hint("do the transaction again")
        .because(Reason::Stale)
}

/// True if a table was not as a plan thought, and nothing was done.
pub fn is_stale(failure: &Failure) -> bool {
    failure.reason == Reason::Stale
}

/// True if the partitions that were asked are gone, and nothing was done: another table may have taken the
/// place of theirs.
pub fn is_gone(failure: &Failure) -> bool {
    failure.code == "42P01" && failure.hint.as_deref() == Some(GONE)
}

const GONE: &str = "was the table dropped meanwhile?";

/// Refuses what only tables of a database know, of one that has partitions for itself.
pub fn together(table: &TableRecord, what: &str) -> Result<(), Failure> {
    if table.database().is_some() {
        return Ok(());
    }
    let hint = "it has partitions for itself: make it without options, or in a database (CREATE DATABASE)";
    Err(Failure::unsupported(format!("{what} of \"{}\"", table.name), hint))
}

/// The error of who writes or locks rows of a replicated table in a transaction.
pub fn replicated_within(table: &str) -> Failure {
    let what = format!("writing or locking rows of the replicated table \"{table}\" in a transaction");
    let hint = "send the statement by itself, outside of BEGIN: it fills the table again in every partition";
    Failure::unsupported(what, hint)
}

/// The error of a replicated table with more bytes of keys and rows than it may have.
pub fn replicated_too_large(table: &str, bytes: usize) -> Failure {
    let message = format!("the replicated table \"{table}\" has at most {bytes} bytes of keys and rows");
    let hint =
        "all of them are written again with each change: have its key begin with the partition key instead";
    Failure::new(code::LIMIT, message).hint(hint)
}

/// True if one entry of a log does not have a write with what it changes in indexes. Nothing was changed.
pub fn is_too_much(failure: &Failure) -> bool {
    let known = of_client(ClientError::TooMuch);
    (failure.code, &failure.message) == (known.code, &known.message)
}

/// True if a name is given to something else already. That is read from the sentence of a controller, whose
/// answers have a status for people's scripts and a text, and no more.
pub fn is_taken(failure: &Failure) -> bool {
    failure.code == code::INTERNAL && failure.message.contains("exists already")
}

/// True if a controller has not altered or dropped a table because its rows are being copied. That is read
/// from its sentence, too.
pub fn is_being_moved(failure: &Failure) -> bool {
    failure.code == "42501" && failure.message.contains("is being moved")
}

/// The cluster was not found yet.
pub fn not_ready() -> Failure {
    Failure::new("57P03", "this node has not heard of its cluster yet").hint("try again")
}

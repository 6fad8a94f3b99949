//! What a client is told when something is not done.

/// One error, as PostgreSQL's clients read it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The five characters programs go by.
    pub code: &'static str,
    /// One sentence, without a capital and a full stop, as PostgreSQL writes them.
    pub message: String,
    /// What it is about, as the key that is there already.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Where it came up, as the line of a COPY.
    pub context: Option<Box<str>>,
    /// Which object it is about, for programs.
    pub object: Option<Box<Object>>,
    /// The connection ends with it.
    pub fatal: bool,
    /// What the program that made it may conclude from it. Clients are not told.
    pub reason: Reason,
}

/// What is asked of an error where it decides what is done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reason {
    /// Nothing.
    #[default]
    Other,
    /// A table is not as a plan thought, and nothing was done: it is to be looked at again.
    Stale,
    /// A statement that was prepared has other columns now.
    OtherShape,
    /// The table that was to be made is there.
    TableExists,
    /// A name that was to be given is given already; it is not known to what.
    NameTaken,
}

/// What an error is about, by name: drivers tell one constraint from another by it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Object {
    /// The schema that the table is in.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The column, if it is about one.
    pub column: Option<String>,
    /// The constraint, if it is about one that has a name.
    pub constraint: Option<String>,
}

/// Classes of errors that are told apart by programs.
pub mod code {
    /// Not supported.
    pub const UNSUPPORTED: &str = "0A000";
    /// The protocol was not kept.
    pub const PROTOCOL: &str = "08P01";
    /// The text of the statement makes no sense.
    pub const SYNTAX: &str = "42601";
    /// A value does not have the form of its type.
    pub const BAD_TEXT: &str = "22P02";
    /// Data of COPY that are not of its format.
    pub const BAD_COPY: &str = "22P04";
    /// Bytes that are no value of their type.
    pub const BAD_BINARY: &str = "22P03";
    /// Beyond what a type holds.
    pub const OUT_OF_RANGE: &str = "22003";
    /// Bytes that are not UTF-8.
    pub const BAD_ENCODING: &str = "22021";
    /// Not a date or a time.
    pub const BAD_DATE: &str = "22007";
    /// Stopped because it was asked to.
    pub const CANCELED: &str = "57014";
    /// Wrong user or password.
    pub const BAD_PASSWORD: &str = "28P01";
    /// No such prepared statement.
    pub const NO_STATEMENT: &str = "26000";
    /// No such portal.
    pub const NO_PORTAL: &str = "34000";
    /// A name is taken already.
    pub const DUPLICATE_STATEMENT: &str = "42P05";
    /// The transaction has failed; nothing but its end is accepted.
    pub const FAILED_TRANSACTION: &str = "25P02";
    /// The client is gone.
    pub const GONE: &str = "08006";
    /// The server is going down.
    pub const SHUTDOWN: &str = "57P01";
    /// Too many connections.
    pub const TOO_MANY: &str = "53300";
    /// More than the server is willing to hold.
    pub const LIMIT: &str = "54000";
    /// A bug.
    pub const INTERNAL: &str = "XX000";
}

impl Failure {
    /// A statement that was prepared has other columns now.
    pub fn other_shape() -> Failure {
        Failure::new(code::UNSUPPORTED, "cached plan must not change result type")
            .hint("a table has changed: prepare the statement again")
            .because(Reason::OtherShape)
    }

    /// True if it says so.
    pub(crate) fn is_of_another_shape(&self) -> bool {
        self.reason == Reason::OtherShape
    }

    /// An error of this code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure {
            code,
            message,
            detail: None,
            hint: None,
            context: None,
            object: None,
            fatal: false,
            reason: Reason::Other,
        }
    }

    /// The same error, with what may be concluded from it.
    pub fn because(self, reason: Reason) -> Failure {
        Failure { reason, ..self }
    }

    /// The same error with advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The same error, with what it is about.
    pub fn detail(mut self, detail: impl Into<String>) -> Failure {
        self.detail = Some(detail.into());
        self
    }

    /// The same error, with where it came up.
    pub fn context(mut self, context: impl Into<Box<str>>) -> Failure {
        self.context = Some(context.into());
        self
    }

    /// The same error, with the object that it is about.
    pub fn about(mut self, object: Object) -> Failure {
        self.object = Some(Box::new(object));
        self
    }

    /// The same error, which ends the connection.
    pub fn fatal(mut self) -> Failure {
        self.fatal = true;
        self
    }

    /// Something that is not supported, and what to do instead.
    pub fn unsupported(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::new(code::UNSUPPORTED, format!("{} is not supported", what.into())).hint(hint)
    }

    /// The protocol was not kept: the connection ends.
    pub fn protocol(message: impl Into<String>) -> Failure {
        Failure::new(code::PROTOCOL, message).fatal()
    }
}

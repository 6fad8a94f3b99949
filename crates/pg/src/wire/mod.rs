//! The bytes of the protocol: the only module that knows the crate `pgwire`.
//!
//! `pgwire` encodes what is sent and checks passwords. What clients send is read here ([`front`]): its
//! decoder panics on a message that is shorter than it says, and reads names and statements that are not
//! UTF-8 as something else.

mod back;
mod front;
pub(crate) mod scram;

pub(crate) use front::{Bind, Front, Parse, Target};

use crate::failure::Failure;
use crate::tls::Tls;
use bytes::{Bytes, BytesMut};
use front::Cut;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// So much is kept of what a client sends while its statement runs.
const AHEAD: usize = 64 * 1024;
/// Answers are written when so much of them waits.
const LONG: usize = 64 * 1024;
/// The longest message of a client that has logged in.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;
/// All that is read of a client before it has logged in.
pub(crate) const MAX_BEFORE_LOGIN: usize = 10_000;

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client is gone, or cannot be written to.
    Gone,
    /// It is told this, and hung up on.
    Failed(Failure),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

/// A message that begins a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    /// The client asks for encryption by TLS.
    Encrypt,
    /// The client asks for encryption by GSSAPI, which there is not.
    EncryptGss,
    /// It wants another connection's statement to be stopped.
    Cancel { pid: i32, key: i32 },
    /// It wants to talk.
    Startup { major: u16, minor: u16, parameters: Vec<(String, String)> },
}

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// A connection's buffers.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    is_encrypted: bool,
    input: BytesMut,
    out: BytesMut,
    row: Vec<u8>,
    scratch: String,
    /// What may still be read before the login; `None` afterwards.
    budget: Option<usize>,
    stopping: watch::Receiver<bool>,
}

impl Link {
    pub fn new(stream: impl Stream + 'static, stopping: watch::Receiver<bool>) -> Link {
        Link {
            stream: Box::new(stream),
            is_encrypted: false,
            input: BytesMut::with_capacity(4096),
            out: BytesMut::with_capacity(4096),
            row: Vec::new(),
            scratch: String::new(),
            budget: Some(MAX_BEFORE_LOGIN),
            stopping,
        }
    }

    /// The login is over: messages may be long from now on.
    pub fn admitted(&mut self) {
        self.budget = None;
    }

    /// True if nobody can read along.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Agrees to encrypt, and does so from now on. What a client sent before it heard that was not meant for
    /// us: whoever is in between could have put it there.
    pub async fn encrypt(&mut self, tls: &Tls) -> Result<(), End> {
        if !self.input.is_empty() {
            let message = "received unencrypted data after SSL request";
            return Err(Failure::protocol(message).fatal().into());
        }
        self.agree_to_encrypt();
        self.flush().await?;
        let plain = std::mem::replace(&mut self.stream, Box::new(tokio::io::empty()));
        let stopping = self.stopping.wait_for(|stopping| *stopping);
        let encrypted = tokio::select! {
            encrypted = tls.acceptor().accept(plain) => encrypted?,
            _ = stopping => return Err(End::Gone),
        };
        (self.stream, self.is_encrypted) = (Box::new(encrypted), true);
        Ok(())
    }

    /// The message that begins a connection; `None` if the client hung up.
    pub async fn opening(&mut self) -> Result<Option<Opening>, End> {
        loop {
            match front::cut_opening(&mut self.input, MAX_BEFORE_LOGIN)? {
                Cut::Whole(body) => return Ok(Some(front::opening(body)?)),
                Cut::Part => {}
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// True if a whole message waits, or one that will be refused.
    pub fn has_message(&self) -> bool {
        front::is_whole(&self.input)
    }

    /// True if the next message ends what belongs together; waits until it has begun to come.
    pub async fn ends_group(&mut self) -> Result<bool, End> {
        while self.input.is_empty() {
            self.flush().await?;
            if !self.read().await? {
                return Err(End::Gone);
            }
        }
        Ok(self.input[0] == b'S')
    }

    /// The next message; `None` if the client hung up.
    pub async fn message(&mut self) -> Result<Option<Front>, End> {
        match self.frame().await? {
            Some((tag, body)) => Ok(Some(front::read(tag, body)?)),
            None => Ok(None),
        }
    }

    /// The body of a message that answers a question about the password.
    pub async fn password(&mut self) -> Result<Option<Bytes>, End> {
        match self.frame().await? {
            Some((b'p', body)) => Ok(Some(body)),
            Some((tag, _)) => {
                let message = format!("expected SASL response, got message type {tag}");
                Err(Failure::protocol(message).into())
            }
            None => Ok(None),
        }
    }

    async fn frame(&mut self) -> Result<Option<(u8, Bytes)>, End> {
        let limit = self.budget.map_or(MAX_MESSAGE, |_| MAX_BEFORE_LOGIN);
        loop {
            match front::cut(&mut self.input, limit)? {
                Cut::Whole(frame) => return Ok(Some(frame)),
                Cut::Part => {}
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// Reads what has come. False at the end of the stream.
    async fn read(&mut self) -> Result<bool, End> {
        let stopping = self.stopping.wait_for(|stopping| *stopping);
        let count = tokio::select! {
            count = self.stream.read_buf(&mut self.input) => count?,
            _ = stopping => return Err(shutdown().into()),
        };
        if let Some(left) = &mut self.budget {
            *left = left.checked_sub(count).ok_or_else(too_much)?;
        }
        Ok(count > 0)
    }

    /// Waits until the client has hung up. What it sends meanwhile is kept; if that is much, no more is read,
    /// and its end is not noticed. Can be given up at any time.
    pub async fn gone(&mut self) {
        while self.input.len() < AHEAD {
            match self.stream.read_buf(&mut self.input).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
        std::future::pending().await
    }

    /// Writes what waits.
    pub async fn flush(&mut self) -> Result<(), End> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).await?;
            if self.is_encrypted {
                self.stream.flush().await?;
            }
            self.out.clear();
        }
        Ok(())
    }

    /// Writes what waits if it is much.
    pub async fn flush_if_long(&mut self) -> Result<(), End> {
        if self.out.len() >= LONG { self.flush().await } else { Ok(()) }
    }

    /// Tells why the connection ends, as far as the client still listens.
    pub async fn goodbye(&mut self, failure: &Failure) {
        self.error(&failure.clone().fatal());
        // A client that is gone is told nothing.
        let _ = self.flush().await;
        let _ = self.stream.shutdown().await;
    }
}

fn too_much() -> Failure {
    Failure::protocol(format!("more than {MAX_BEFORE_LOGIN} bytes before the login"))
}

fn shutdown() -> Failure {
    Failure::new(crate::failure::code::SHUTDOWN, "terminating connection due to administrator command")
        .fatal()
}

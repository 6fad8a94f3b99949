//! What a connection goes over: a socket, or a pipe within this process. Whoever has a connection does the
//! same with both.

use crate::pipe::{PipeEnd, PipeEvents};
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{self, IoSlice, Read, Write};
use types::engine::Wake;

/// It does not block.
#[derive(Debug)]
pub enum Stream {
    /// To another process, or to this one as to another.
    Tcp(TcpStream),
    /// Within this process.
    Local(PipeEnd),
}

impl Stream {
    /// Has a poll tell of a socket under `token`. Of a pipe none tells: see [`Stream::wake_by`].
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => registry.register(stream, token, Interest::READABLE | Interest::WRITABLE),
            Stream::Local(_) => Ok(()),
        }
    }

    /// Takes a socket out of the poll.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => registry.deregister(stream),
            Stream::Local(_) => Ok(()),
        }
    }

    /// Who has a pipe's end from now on is woken by this ([`PipeEnd::wake_by`]). Of a socket a poll tells.
    pub fn wake_by(&self, wake: &Wake) {
        if let Stream::Local(end) = self {
            end.wake_by(wake.clone());
        }
    }

    /// What a poll would say of a pipe; `None` for a socket, of which one says it.
    pub fn local_events(&self) -> Option<PipeEvents> {
        match self {
            Stream::Tcp(_) => None,
            Stream::Local(end) => Some(end.events()),
        }
    }

    /// True if it stays within this process.
    pub fn is_local(&self) -> bool {
        matches!(self, Stream::Local(_))
    }

    /// True once it is connected. The error says why it cannot be.
    pub fn is_connected(&self) -> io::Result<bool> {
        let Stream::Tcp(stream) = self else { return Ok(true) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let connected = stream.peer_addr().is_ok();
        if connected {
            // Fails only where the option does not exist.
            let _ = stream.set_nodelay(true);
        }
        Ok(connected)
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(room),
            Stream::Local(end) => end.read(room),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Local(end) => end.write(bytes),
        }
    }

    /// What is given in parts goes into a socket with one system call, too.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(parts),
            Stream::Local(end) => end.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn parts_go_into_a_socket_with_one_write() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        socket.set_nonblocking(true).expect("it can be");
        let mut stream = Stream::Tcp(TcpStream::from_std(socket));
        let parts = [IoSlice::new(b"before"), IoSlice::new(b"behind")];
        assert_eq!(stream.write_vectored(&parts).expect("writes"), 12);
    }
}

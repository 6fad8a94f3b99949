//! The few HTTP requests that a local cluster needs: one at a time, to loopback, each with a time limit.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest answer that is read.
const ANSWER_BYTES: u64 = 64 * 1024;

/// Asks and returns the status and the body. The error is a sentence.
pub fn request(method: &str, address: &str, path: &str, timeout: Duration) -> Result<(u16, String), String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let socket: SocketAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
    let mut stream = TcpStream::connect_timeout(&socket, timeout).map_err(failed)?;
    stream.set_read_timeout(Some(timeout)).map_err(failed)?;
    stream.set_write_timeout(Some(timeout)).map_err(failed)?;
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer).map_err(failed)?;
    parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| format!("{address} did not answer in HTTP"))
}

fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, body.trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_body_are_found() {
        let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\nnot ready";
        assert_eq!(parse(answer), Some((503, "not ready".into())));
        assert_eq!(parse("garbage"), None);
        assert_eq!(parse("HTTP/1.1 x\r\n\r\n"), None);
    }

    #[test]
    fn nobody_there_is_a_sentence() {
        let error = request("GET", "127.0.0.1:1", "/", Duration::from_secs(1)).expect_err("nobody listens");
        assert!(error.starts_with("127.0.0.1:1: "), "{error}");
    }
}

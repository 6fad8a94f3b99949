//! One question to another node over HTTP. Whoever answers may be anybody: time and length are bounded.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a question may take, answer included.
const WAIT_LIMIT: Duration = Duration::from_millis(500);
/// The longest answer, bytes: some ten thousand replicas.
const ANSWER_BYTES: u64 = 8 << 20;

/// Asks for a path. The error is a sentence.
pub(super) async fn get(address: &str, path: &str) -> Result<Vec<u8>, String> {
    match tokio::time::timeout(WAIT_LIMIT, ask(address, path)).await {
        Ok(answer) => answer.map_err(|why| format!("{address}: {why}")),
        Err(_) => Err(format!("{address} did not answer within {} ms", WAIT_LIMIT.as_millis())),
    }
}

async fn ask(address: &str, path: &str) -> Result<Vec<u8>, String> {
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let text = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    let read = stream.take(ANSWER_BYTES + 1).read_to_end(&mut answer).await;
    read.map_err(|error| error.to_string())?;
    if answer.len() as u64 > ANSWER_BYTES {
        return Err(format!("the answer is longer than {ANSWER_BYTES} bytes"));
    }
    body(answer)
}

/// The body of an answer that says 200.
fn body(mut answer: Vec<u8>) -> Result<Vec<u8>, String> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or("it does not speak HTTP")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_string();
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split_whitespace().nth(1));
    match status {
        Some("200") => Ok(answer.split_off(end + 4)),
        Some(other) => Err(format!("it answered {other}")),
        None => Err("it does not speak HTTP".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_good_answer_counts() {
        let said = |text: &str| body(text.as_bytes().to_vec());
        assert_eq!(said("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"), Ok(b"{}".to_vec()));
        assert_eq!(said("HTTP/1.1 404 Not Found\r\n\r\n"), Err("it answered 404".into()));
        assert!(
            said("HTTP/1.1 200 OK\r\n").is_err() && said("").is_err() && said("SSH-2.0\r\n\r\n").is_err()
        );
    }
}

//! Encryption of the door: agreed to, used for statements and for cancelling them, and not to be smuggled
//! into.

use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use types::data::Value;
use understudy_pg::{
    Cancel, Column, Failure, Kind, Login, Outcome, Rows, Rules, Service, Session, Shape, Tls, Transaction,
};

/// Answers every statement with one row, but for `wait`, which ends when it is cancelled.
struct One;

struct Waiting(Cancel);

impl Service for One {
    type Session = Waiting;

    fn open(&self, _: &Login, cancel: Cancel) -> Result<Waiting, Failure> {
        Ok(Waiting(cancel))
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Session for Waiting {
    type Parsed = String;
    type StatementPlan = String;

    fn split(&mut self, text: &str) -> Result<Vec<String>, Failure> {
        Ok(vec![text.to_string()])
    }

    async fn prepare(
        &mut self,
        parsed: &String,
        _: &[Option<Kind>],
    ) -> Result<(Arc<String>, Shape), Failure> {
        let columns = Some(vec![Column::new("n", Kind::Int8)]);
        Ok((Arc::new(parsed.clone()), Shape { parameters: Vec::new(), columns }))
    }

    fn commits(&self, _: &String) -> bool {
        false
    }

    fn begin_group(&mut self) {}

    async fn end_group(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn limit(&self) -> Option<std::time::Duration> {
        None
    }

    fn notices(&mut self) -> Vec<Failure> {
        Vec::new()
    }

    fn copies_in(&self, _: &String) -> bool {
        false
    }

    async fn copy_data(&mut self, _: bytes::Bytes) -> Result<(), Failure> {
        Err(Failure::protocol("nobody asked for rows"))
    }

    async fn copy_done(&mut self) -> Result<String, Failure> {
        Err(Failure::protocol("nobody asked for rows"))
    }

    async fn copy_ended(&mut self, why: Failure) -> Failure {
        why
    }

    async fn execute(&mut self, plan: Arc<String>, _: Vec<Value>) -> Result<Outcome, Failure> {
        if *plan == "wait" {
            self.0.wait().await;
            return Err(Failure::new("57014", "canceling statement due to user request"));
        }
        Ok(Outcome::Rows("SELECT", Rows::of(vec![vec![Value::Int(1)]])))
    }

    fn transaction(&self) -> Transaction {
        Transaction::Idle
    }

    fn failed(&mut self) {}
}

/// A server with a certificate of its own, and what a client must trust to believe it.
async fn server() -> (SocketAddr, RootCertStore, watch::Sender<bool>) {
    let dir = tempfile::tempdir().expect("a directory");
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let tls = Tls::load(&certificate, &key).expect("they fit");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (stop, stopping) = watch::channel(false);
    let rules =
        Rules { user: "ada".into(), password: None, max_connections: 9, tls: Some(tls), must_encrypt: true };
    tokio::spawn(understudy_pg::serve(listener, One, rules, stopping));
    (address, roots, stop)
}

const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

async fn encrypted(address: SocketAddr, roots: &RootCertStore) -> TlsStream<TcpStream> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(&SSL_REQUEST).await.expect("written");
    assert_eq!(stream.read_u8().await.expect("an answer"), b'S');
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("known");
    let config = config.with_root_certificates(roots.clone()).with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("it is who it says")
}

async fn next(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, Vec<u8>)> {
    let tag = stream.read_u8().await.ok()?;
    let length = stream.read_u32().await.ok()? as usize - 4;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((tag, body))
}

/// Logs in; the pid and key of the session's statements.
async fn log_in(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Vec<u8> {
    stream.write_all(b"\0\0\0\x12\0\x03\0\0user\0ada\0\0").await.expect("written");
    stream.flush().await.expect("written");
    let mut key = Vec::new();
    loop {
        match next(stream).await.expect("welcomed") {
            (b'K', body) => key = body,
            (b'Z', _) => return key,
            (b'E', body) => panic!("{}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
}

async fn query(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    let mut out = vec![b'Q'];
    out.extend((text.len() as u32 + 5).to_be_bytes());
    out.extend(text.as_bytes());
    out.push(0);
    stream.write_all(&out).await.expect("written");
    stream.flush().await.expect("written");
}

/// The tags up to ReadyForQuery.
async fn tags(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut tags = String::new();
    while let Some((tag, body)) = next(stream).await {
        tags.push(tag.into());
        if tag == b'E' && body.windows(6).any(|window| window == b"C57014") {
            tags.push_str("57014");
        }
        if tag == b'Z' {
            break;
        }
    }
    tags
}

#[tokio::test]
async fn statements_and_their_cancelling_are_encrypted() {
    let (address, roots, _stop) = server().await;
    let mut one = encrypted(address, &roots).await;
    let key = log_in(&mut one).await;
    query(&mut one, "select").await;
    assert_eq!(tags(&mut one).await, "TDCZ");
    query(&mut one, "wait").await;
    let mut other = encrypted(address, &roots).await;
    let cancel = [&[0, 0, 0, 16, 4, 210, 22, 46][..], &key].concat();
    other.write_all(&cancel).await.expect("written");
    other.flush().await.expect("written");
    assert!(tags(&mut one).await.ends_with("E57014Z"));
    // Whoever does not ask is let in from this very machine.
    let mut plain = TcpStream::connect(address).await.expect("it listens");
    assert_eq!(log_in(&mut plain).await.len(), 8);
}

#[tokio::test]
async fn what_was_sent_before_the_encryption_is_not_taken_for_encrypted() {
    let (address, _, _stop) = server().await;
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let smuggled = [&SSL_REQUEST[..], b"\0\0\0\x12\0\x03\0\0user\0ada\0\0"].concat();
    stream.write_all(&smuggled).await.expect("written");
    let (tag, body) = next(&mut stream).await.expect("an answer");
    assert_eq!(tag, b'E');
    assert!(String::from_utf8_lossy(&body).contains("unencrypted data after SSL request"));
}

#[tokio::test]
async fn a_handshake_that_is_none_ends_its_connection_alone() {
    let (address, roots, _stop) = server().await;
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(&SSL_REQUEST).await.expect("written");
    assert_eq!(stream.read_u8().await.expect("an answer"), b'S');
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    let mut rest = Vec::new();
    // An alert and the end, or the end alone.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!rest.contains(&b'Z'));
    assert_eq!(log_in(&mut encrypted(address, &roots).await).await.len(), 8);
}

#[test]
fn bad_files_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_string()]).expect("a certificate");
        let (certificate, key) =
            (dir.path().join(format!("{name}.pem")), dir.path().join(format!("{name}.key")));
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        (certificate, key)
    };
    let ((one, key_of_one), (other, _)) = (made("one"), made("other"));
    let nothing = dir.path().join("nothing");
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "").expect("written");
    assert!(Tls::load(&one, &key_of_one).is_ok());
    for (certificate, key, named) in [
        (&nothing, &key_of_one, "nothing"),
        (&empty, &key_of_one, "empty: no certificate"),
        (&one, &one, "one.pem"),
        (&one, &nothing, "nothing"),
        (&other, &key_of_one, "does not fit"),
    ] {
        let error = Tls::load(certificate, key).expect_err("refused");
        assert!(error.contains(named) && !error.contains('\n'), "{error}");
    }
}

//! The protocol against a small service, byte by byte: what PostgreSQL's clients rely on beyond single
//! statements.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use types::data::Value;
use understudy_pg::copy::Format;
use understudy_pg::{
    Cancel, Column, CopyOut, Failure, Kind, Login, Outcome, Overdue, Rows, Rules, Service, Session, Shape,
    Transaction,
};

/// Counts to the number that a statement says; `wait` never ends by itself; `write` is done, `doomed` too,
/// but it fails when its group ends; statements have so much time, if that is said. Tells of each `wait` that
/// was stopped.
#[derive(Default)]
struct Counting {
    stopped: Arc<Notify>,
    limit: Option<Duration>,
    /// A client may be silent for so long, if that is said.
    patience: Option<Duration>,
}

/// `forget` forgets a prepared statement, or all. `copy in` takes what it is sent up to an `x`, `copy out`
/// gives two rows.
struct Counter {
    cancel: Cancel,
    stopped: Arc<Notify>,
    limit: Option<Duration>,
    patience: Option<Duration>,
    grouped: bool,
    doomed: bool,
    copied: Vec<u8>,
}

impl Service for Counting {
    type Session = Counter;

    fn open(&self, _: &Login, cancel: Cancel) -> Result<Counter, Failure> {
        let (stopped, copied) = (self.stopped.clone(), Vec::new());
        let Counting { limit, patience, .. } = *self;
        Ok(Counter { cancel, stopped, limit, patience, grouped: false, doomed: false, copied })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![("server_version", "15.0".into())]
    }
}

impl Session for Counter {
    type Parsed = String;
    type StatementPlan = String;

    fn split(&mut self, text: &str) -> Result<Vec<String>, Failure> {
        Ok(text.split(';').map(|one| one.trim().to_string()).filter(|one| !one.is_empty()).collect())
    }

    async fn prepare(
        &mut self,
        parsed: &String,
        _: &[Option<Kind>],
    ) -> Result<(Arc<String>, Shape), Failure> {
        if parsed == "bad" {
            return Err(Failure::new("42601", "syntax error"));
        }
        let parameters = if parsed == "$1" { vec![Kind::Int8] } else { Vec::new() };
        let columns = Some(vec![Column::new("n", Kind::Int8)]);
        Ok((Arc::new(parsed.clone()), Shape { parameters, columns }))
    }

    fn commits(&self, plan: &String) -> bool {
        plan == "write" || plan == "doomed" || plan == "copy in"
    }

    fn copies_in(&self, plan: &String) -> bool {
        plan == "copy in"
    }

    async fn copy_data(&mut self, piece: Bytes) -> Result<(), Failure> {
        self.copied.extend_from_slice(&piece);
        if piece.contains(&b'x') { Err(Failure::new("22P04", "an x")) } else { Ok(()) }
    }

    async fn copy_done(&mut self) -> Result<String, Failure> {
        Ok(format!("COPY {}", self.copied.len()))
    }

    async fn copy_ended(&mut self, why: Failure) -> Failure {
        why.hint(format!("{} bytes had come", self.copied.len()))
    }

    fn begin_group(&mut self) {
        self.grouped = true;
    }

    async fn end_group(&mut self) -> Result<(), Failure> {
        self.grouped = false;
        match std::mem::take(&mut self.doomed) {
            true => Err(Failure::new("40001", "somebody else was first")),
            false => Ok(()),
        }
    }

    fn limit(&self) -> Option<Duration> {
        self.limit
    }

    fn overdue(&self) -> Option<Overdue> {
        let patience = self.patience?;
        Some(Box::pin(async move {
            tokio::time::sleep(patience).await;
            Failure::new("25P03", "it was silent for too long").fatal()
        }))
    }

    fn notices(&mut self) -> Vec<Failure> {
        Vec::new()
    }

    async fn execute(&mut self, plan: Arc<String>, parameters: Vec<Value>) -> Result<Outcome, Failure> {
        if *plan == "wait" {
            self.cancel.wait().await;
            self.stopped.notify_one();
            return Err(Failure::new("57014", "canceling statement due to user request"));
        }
        if *plan == "copy in" {
            self.copied.clear();
            return Ok(Outcome::CopyIn(2));
        }
        if let Some(name) = plan.strip_prefix("forget") {
            let name = Some(name.trim().to_string()).filter(|name| !name.is_empty());
            return Ok(Outcome::Forget(name, "DEALLOCATE".into()));
        }
        if *plan == "copy out" {
            let rows =
                Rows::of(vec![vec![Value::Int(1), Value::Null], vec!["a\tb".into(), Value::Bool(true)]]);
            let columns = vec![Column::new("n", Kind::Int8), Column::new("m", Kind::Text)];
            return Ok(Outcome::CopyOut(CopyOut { format: Format::text(), columns, rows }));
        }
        if self.commits(&plan) {
            self.doomed = *plan == "doomed";
            if self.doomed && !self.grouped {
                return Err(Failure::new("40P01", "it stands alone"));
            }
            return Ok(Outcome::Done("INSERT 0 1".into()));
        }
        let count = match parameters.first() {
            Some(Value::Int(count)) => *count,
            _ => plan.parse().unwrap_or(0),
        };
        Ok(Outcome::Rows("SELECT", Rows::of((1..=count).map(|number| vec![Value::Int(number)]).collect())))
    }

    fn transaction(&self) -> Transaction {
        if self.grouped && self.doomed { Transaction::Open } else { Transaction::Idle }
    }

    fn failed(&mut self) {
        self.doomed = false;
    }
}

/// A server that runs as long as the test does.
async fn server(password: Option<&str>) -> (std::net::SocketAddr, watch::Sender<bool>) {
    serve(password, Counting::default()).await
}

async fn serve(password: Option<&str>, service: Counting) -> (std::net::SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let (stop, stopping) = watch::channel(false);
    let rules = Rules {
        user: "ada".into(),
        password: password.map(str::to_string),
        max_connections: 3,
        tls: None,
        must_encrypt: false,
    };
    tokio::spawn(understudy_pg::serve(listener, service, rules, stopping));
    (address, stop)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
    out
}

fn startup(user: &str) -> Vec<u8> {
    let body = [&b"\0\x03\0\0user\0"[..], user.as_bytes(), b"\0\0"].concat();
    let mut out = (body.len() as u32 + 4).to_be_bytes().to_vec();
    out.extend(body);
    out
}

struct Peer(TcpStream);

impl Peer {
    async fn connect(address: std::net::SocketAddr) -> Peer {
        Peer(TcpStream::connect(address).await.expect("it listens"))
    }

    /// Logged in, where no password is asked for. The pid and key of its statements come along.
    async fn welcome(address: std::net::SocketAddr) -> (Peer, Vec<u8>) {
        let mut peer = Peer::connect(address).await;
        peer.send(&startup("ada")).await;
        let mut key = Vec::new();
        loop {
            match peer.next().await.expect("welcomed") {
                (b'K', body) => key = body,
                (b'Z', _) => return (peer, key),
                _ => {}
            }
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("written");
    }

    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes(head[1..].try_into().expect("four")) as usize - 4;
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.ok()?;
        Some((head[0], body))
    }

    /// The tags up to ReadyForQuery, and with an error its code.
    async fn tags(&mut self) -> String {
        let mut tags = String::new();
        loop {
            let (tag, body) = self.next().await.expect("an answer");
            tags.push(tag as char);
            if tag == b'E' {
                tags.push_str(&code(&body));
            }
            if tag == b'Z' {
                return tags;
            }
        }
    }
}

fn code(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let found =
        fields.filter(|field| field.first() == Some(&b'C')).map(|field| String::from_utf8_lossy(&field[1..]));
    found.map(|code| code.to_string()).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn simple_statements_end_at_the_first_error() {
    runtime().block_on(async {
        let (address, _stop) = server(None).await;
        let (mut peer, _) = Peer::welcome(address).await;
        for (text, tags) in [
            ("2", "TDDCZ"),
            ("1; 0", "TDCTCZ"),
            ("", "IZ"),
            ("1; bad; 1", "TDCE42601Z"),
            ("write; 1", "CTDCZ"),
            // The last statement is not complete before all of them are.
            ("doomed; 1", "CTDE40001Z"),
            ("doomed; write; bad", "CCE42601Z"),
            ("doomed", "E40P01Z"),
        ] {
            peer.send(&message(b'Q', format!("{text}\0").as_bytes())).await;
            assert_eq!(peer.tags().await, tags, "{text}");
        }
    });
}

#[test]
fn a_pipeline_is_skipped_from_an_error_to_its_sync_and_portals_are_read_in_pieces() {
    runtime().block_on(async {
        let (address, _stop) = server(None).await;
        let (mut peer, _) = Peer::welcome(address).await;
        let parse = |name: &str, text: &str| message(b'P', format!("{name}\0{text}\0\0\0").as_bytes());
        let bind = |statement: &str| message(b'B', format!("\0{statement}\0\0\0\0\0\0\0").as_bytes());
        let execute = |limit: u8| message(b'E', &[0, 0, 0, 0, limit]);
        let sync = message(b'S', b"");
        let mut pipeline = [parse("s", "3"), bind("s"), execute(0), sync.clone()].concat();
        pipeline.extend([parse("", "bad"), bind("s"), execute(0), sync.clone()].concat());
        pipeline.extend([bind("s"), execute(2), execute(2), execute(2), sync.clone()].concat());
        peer.send(&pipeline).await;
        assert_eq!(peer.tags().await, "12DDDCZ");
        assert_eq!(peer.tags().await, "E42601Z");
        // All rows were sent after the third: the portal cannot be run again.
        assert_eq!(peer.tags().await, "2DDsDCE55000Z");
        peer.send(&[execute(0), sync.clone()].concat()).await;
        assert_eq!(peer.tags().await, "E34000Z", "a portal ends with its Sync");
        let describe = message(b'D', b"Ss\0");
        peer.send(&[describe, bind("nothing"), sync.clone()].concat()).await;
        assert_eq!(peer.tags().await, "tTE26000Z");
        // A parameter in binary, and its result in binary.
        let body = b"\0p\0\0\x01\0\x01\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x01\0\x01\0\x01";
        peer.send(&[parse("p", "$1"), message(b'B', body), execute(0), sync].concat()).await;
        let mut row = Vec::new();
        loop {
            match peer.next().await.expect("an answer") {
                (b'D', body) => row = body,
                (b'E', body) => panic!("{}", code(&body)),
                (b'Z', _) => break,
                _ => {}
            }
        }
        assert_eq!(row, [0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
    });
}

#[test]
fn what_is_written_before_a_sync_is_one_group_unless_it_stands_alone() {
    runtime().block_on(async {
        let (address, _stop) = server(None).await;
        let (mut peer, _) = Peer::welcome(address).await;
        let parse = |text: &str| message(b'P', format!("\0{text}\0\0\0").as_bytes());
        let bind = message(b'B', &[0; 8]);
        let execute = message(b'E', &[0; 5]);
        let (sync, close) = (message(b'S', b""), message(b'C', b"S\0"));
        let one = |text: &str| [parse(text), bind.clone(), execute.clone()].concat();
        for (messages, tags) in [
            ([one("1"), one("write")], "12DC12CZ"),
            ([one("1"), one("doomed")], "12DC12E40P01Z"),
            ([one("write"), one("1")], "12C12DCZ"),
            ([one("doomed"), one("1")], "12C12DCE40001Z"),
            ([one("doomed"), close], "12C3E40001Z"),
            ([one("doomed"), one("bad")], "12CE42601Z"),
        ] {
            peer.send(&[messages.concat(), sync.clone()].concat()).await;
            assert_eq!(peer.tags().await, tags);
        }
        // A Flush asks for answers; the group ends with the Sync.
        peer.send(&[one("doomed"), message(b'H', b"")].concat()).await;
        for tag in [b'1', b'2', b'C'] {
            assert_eq!(peer.next().await.map(|(found, _)| found), Some(tag));
        }
        peer.send(&[one("1"), sync].concat()).await;
        assert_eq!(peer.tags().await, "12DCE40001Z");
    });
}

#[test]
fn copies_begin_and_end_by_messages_of_their_own() {
    runtime().block_on(async {
        let (address, _stop) = server(None).await;
        let (mut peer, _) = Peer::welcome(address).await;
        let query = |text: &str| message(b'Q', format!("{text}\0").as_bytes());
        let (done, sync) = (message(b'c', b""), message(b'S', b""));
        peer.send(&query("copy out; 1")).await;
        let mut heard = Vec::new();
        while heard.last().is_none_or(|(tag, _)| *tag != b'Z') {
            heard.push(peer.next().await.expect("an answer"));
        }
        let tags: String = heard.iter().map(|(tag, _)| *tag as char).collect();
        assert_eq!(tags, "HddcCTDCZ");
        assert_eq!(heard[0].1, [0, 0, 2, 0, 0, 0, 0]);
        assert_eq!(heard[1].1, b"1\t\\N\n");
        assert_eq!(heard[2].1, b"a\\tb\tt\n");
        assert_eq!(heard[4].1, b"COPY 2\0");
        // Sync and Flush mean nothing while rows come.
        let data = |text: &str| message(b'd', text.as_bytes());
        let flush = message(b'H', b"");
        peer.send(&[query("copy in; 1"), data("ab"), sync.clone(), flush, data("c"), done.clone()].concat())
            .await;
        assert_eq!(peer.tags().await, "GCTDCZ");
        // After an error the rest is skipped, and the connection is in step.
        let rest = [data("ax"), data("more"), done.clone(), query("1")].concat();
        peer.send(&[query("copy in; 1"), rest].concat()).await;
        assert_eq!((peer.tags().await, peer.tags().await), ("GE22P04Z".into(), "TDCZ".into()));
        peer.send(&[query("copy in"), data("a"), message(b'f', b"no more\0"), query("1")].concat()).await;
        assert_eq!((peer.tags().await, peer.tags().await), ("GE57014Z".into(), "TDCZ".into()));
        // The same, prepared: what was sent up to the Sync after the rows belongs to the COPY.
        let parse = |text: &str| message(b'P', format!("\0{text}\0\0\0").as_bytes());
        let (bind, execute) = (message(b'B', &[0; 8]), message(b'E', &[0; 5]));
        let begin = [parse("copy in"), bind.clone(), execute.clone(), sync.clone()].concat();
        peer.send(&[begin.clone(), data("ab"), done.clone(), sync.clone()].concat()).await;
        assert_eq!(peer.tags().await, "12GCZ");
        peer.send(&[begin.clone(), data("x"), data("y"), done.clone(), sync.clone()].concat()).await;
        assert_eq!(peer.tags().await, "12GE22P04Z");
        let after = [parse("1"), bind, execute, sync].concat();
        peer.send(&[begin, done, after].concat()).await;
        assert_eq!(peer.tags().await, "12GC12DCZ", "what comes with it is done after it");
        // Anything else breaks the protocol.
        peer.send(&[query("copy in"), query("1")].concat()).await;
        assert_eq!(peer.next().await.map(|(tag, _)| tag), Some(b'G'));
        assert_eq!(peer.next().await.map(|(_, body)| code(&body)).as_deref(), Some("08P01"));
        assert_eq!(peer.next().await, None);
    });
}

#[test]
fn a_copy_is_stopped_from_outside() {
    runtime().block_on(async {
        let (address, _stop) = server(None).await;
        let (mut peer, key) = Peer::welcome(address).await;
        peer.send(&[message(b'Q', b"copy in\0"), message(b'd', b"a")].concat()).await;
        assert_eq!(peer.next().await.map(|(tag, _)| tag), Some(b'G'));
        let mut other = Peer::connect(address).await;
        other.send(&[&b"\0\0\0\x10\x04\xd2\x16\x2e"[..], &key].concat()).await;
        assert_eq!(other.next().await, None);
        assert_eq!(peer.tags().await, "E57014Z");
        peer.send(&[message(b'd', b"b"), message(b'c', b""), message(b'Q', b"1\0")].concat()).await;
        assert_eq!(peer.tags().await, "TDCZ");
    });
}

#[test]
fn before_the_login_little_is_read_and_strangers_are_told_off() {
    runtime().block_on(async {
        let (address, _stop) = server(Some("open sesame")).await;
        let fatal = async |bytes: Vec<u8>| {
            let mut peer = Peer::connect(address).await;
            peer.send(&bytes).await;
            loop {
                match peer.next().await {
                    Some((b'E', body)) => {
                        assert_eq!(peer.next().await, None, "the connection is closed");
                        return code(&body);
                    }
                    Some(_) => {}
                    None => return String::new(),
                }
            }
        };
        assert_eq!(fatal(10_001u32.to_be_bytes().to_vec()).await, "08P01");
        assert_eq!(fatal(vec![0, 0, 0, 3]).await, "08P01");
        assert_eq!(fatal(vec![0, 0, 0, 8, 0, 2, 0, 0]).await, "0A000");
        assert_eq!(fatal([startup("ada"), message(b'Q', b"1\0")].concat()).await, "08P01");
        assert_eq!(fatal([startup("ada"), message(b'p', &[b'x'; 9_990])].concat()).await, "08P01");
        let first = [&b"SCRAM-SHA-256\0\0\0\0\x14"[..], b"n,,n=,r=abcdefghijkl"].concat();
        let proof = b"c=biws,r=abcdefghijkl,p=AAAA".to_vec();
        let wrong = [startup("ada"), message(b'p', &first), message(b'p', &proof)].concat();
        assert_eq!(fatal(wrong).await, "08P01", "the server's nonce is missing");
        // Encryption is refused, and the client goes on without.
        let mut peer = Peer::connect(address).await;
        peer.send(b"\0\0\0\x08\x04\xd2\x16\x2f").await;
        let mut no = [0];
        peer.0.read_exact(&mut no).await.expect("an answer");
        assert_eq!(&no, b"N");
        peer.send(&startup("ada")).await;
        assert_eq!(peer.next().await.expect("asked for a password").0, b'R');
    });
}

#[test]
fn a_statement_whose_client_hangs_up_is_stopped() {
    runtime().block_on(async {
        let service = Counting::default();
        let stopped = service.stopped.clone();
        let (address, _stop) = serve(None, service).await;
        for bytes in [
            message(b'Q', b"wait\0"),
            [
                message(b'P', b"\0wait\0\0\0"),
                message(b'B', b"\0\0\0\0\0\0\0\0"),
                message(b'E', b"\0\0\0\0\0"),
                message(b'S', b""),
            ]
            .concat(),
        ] {
            let (mut peer, _) = Peer::welcome(address).await;
            peer.send(&bytes).await;
            drop(peer);
            let told = tokio::time::timeout(Duration::from_secs(30), stopped.notified()).await;
            assert!(told.is_ok(), "it goes on");
        }
        // What a client sends meanwhile is kept.
        let (mut peer, key) = Peer::welcome(address).await;
        peer.send(&[message(b'Q', b"wait\0"), message(b'Q', b"2\0")].concat()).await;
        let mut other = Peer::connect(address).await;
        other.send(&[&b"\0\0\0\x10\x04\xd2\x16\x2e"[..], &key].concat()).await;
        assert_eq!(peer.tags().await, "E57014Z");
        assert_eq!(peer.tags().await, "TDDCZ");
    });
}

#[test]
fn a_statement_that_takes_too_long_is_stopped() {
    runtime().block_on(async {
        let limit = Some(Duration::from_millis(20));
        let (address, _stop) = serve(None, Counting { limit, ..Counting::default() }).await;
        let (mut peer, _) = Peer::welcome(address).await;
        peer.send(&message(b'Q', b"1;wait;2\0")).await;
        for tag in [b'T', b'D', b'C'] {
            assert_eq!(peer.next().await.expect("the first one is done").0, tag);
        }
        let (tag, body) = peer.next().await.expect("an answer");
        assert_eq!((tag, code(&body).as_str()), (b'E', "57014"));
        assert!(String::from_utf8_lossy(&body).contains("statement timeout"), "{body:?}");
        assert_eq!(peer.next().await.expect("ready").0, b'Z');
        peer.send(&message(b'Q', b"2\0")).await;
        assert_eq!(peer.tags().await, "TDDCZ");
    });
}

#[test]
fn who_is_silent_for_too_long_in_a_transaction_is_hung_up_on() {
    runtime().block_on(async {
        let patience = Some(Duration::from_millis(300));
        let (address, _stop) = serve(None, Counting { patience, ..Counting::default() }).await;
        let (mut peer, _) = Peer::welcome(address).await;
        peer.send(&message(b'Q', b"2\0")).await;
        assert_eq!(peer.tags().await, "TDDCZ");
        let said = tokio::time::timeout(Duration::from_secs(30), peer.next()).await;
        let (tag, body) = said.expect("it is told").expect("an answer");
        assert_eq!((tag, code(&body).as_str()), (b'E', "25P03"));
        assert!(body.starts_with(b"SFATAL\0"), "{body:?}");
        assert!(peer.next().await.is_none(), "its connection goes on");
    });
}

#[test]
fn prepared_statements_are_forgotten_by_name_or_all() {
    runtime().block_on(async {
        let (address, _stop) = server(None).await;
        let (mut peer, _) = Peer::welcome(address).await;
        for name in ["a", "b", "c"] {
            let parse = message(b'P', format!("{name}\0002\0\0\0").as_bytes());
            peer.send(&[parse, message(b'S', b"")].concat()).await;
            assert_eq!(peer.tags().await, "1Z");
        }
        let known =
            |name: &str| [message(b'D', format!("S{name}\0").as_bytes()), message(b'S', b"")].concat();
        for (text, a, b, told) in [
            ("forget a", false, true, "CZ"),
            ("forget a", false, true, "E26000Z"),
            ("forget", false, false, "CZ"),
            ("forget", false, false, "CZ"),
        ] {
            peer.send(&message(b'Q', format!("{text}\0").as_bytes())).await;
            assert_eq!(peer.tags().await, told, "{text}");
            for (name, there) in [("a", a), ("b", b), ("c", b)] {
                peer.send(&known(name)).await;
                assert_eq!(peer.tags().await, if there { "tTZ" } else { "E26000Z" }, "{text}: {name}");
            }
        }
    });
}

#[test]
fn statements_are_stopped_and_too_many_clients_are_told() {
    runtime().block_on(async {
        let (address, stop) = server(None).await;
        let (mut peer, key) = Peer::welcome(address).await;
        peer.send(&message(b'Q', b"wait\0")).await;
        let cancel = |key: &[u8]| [&b"\0\0\0\x10\x04\xd2\x16\x2e"[..], key].concat();
        let wrong: Vec<u8> = key.iter().map(|byte| byte ^ 1).collect();
        for key in [&wrong, &key] {
            let mut other = Peer::connect(address).await;
            other.send(&cancel(key)).await;
            assert_eq!(other.next().await, None);
        }
        assert_eq!(peer.tags().await, "E57014Z");
        let (_two, _) = Peer::welcome(address).await;
        let (_three, _) = Peer::welcome(address).await;
        let mut four = Peer::connect(address).await;
        four.send(&startup("ada")).await;
        assert_eq!(four.next().await.map(|(_, body)| code(&body)).as_deref(), Some("53300"));
        stop.send(true).expect("it runs");
        assert_eq!(peer.next().await.map(|(_, body)| code(&body)).as_deref(), Some("57P01"));
    });
}

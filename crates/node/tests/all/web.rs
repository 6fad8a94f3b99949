//! The web page of a node, asked as a browser asks: complete without a script, live by its stream, and closed
//! to strangers.

use crate::common::{Cluster, create, put_all};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use types::{EngineKind, LogKind};

/// The streams that a node allows.
const STREAMS: usize = 64;

fn ask(address: &str, head: &str, body: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(crate::common::LONG)).expect("a timeout");
    write!(stream, "{head}\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .expect("writes");
    BufReader::new(stream)
}

/// The status and the rest.
fn whole(address: &str, head: &str, body: &str) -> (u16, String) {
    let mut text = String::new();
    ask(address, &format!("{head}\r\nConnection: close"), body).read_to_string(&mut text).expect("an answer");
    (text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), text)
}

/// Reads a stream until an event has this in it.
fn until(stream: &mut BufReader<TcpStream>, wanted: &str) -> String {
    let deadline = Instant::now() + crate::common::LONG;
    while Instant::now() < deadline {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).expect("an event in time") > 0, "the stream ended");
        if line.starts_with("data: ") && line.contains(wanted) {
            return line;
        }
    }
    panic!("no event has {wanted}");
}

#[test]
fn the_page_is_whole_and_its_stream_moves() {
    let cluster = Cluster::with(1, &[]);
    let mut client = cluster.ready();
    let mut wanted = create("flights", "durable", EngineKind::Memory, LogKind::Disk);
    wanted.factor = Some(1);
    let table = client.create_table(&wanted).expect("creates");
    let address = cluster.node(1).ports().listen["http"].clone();
    let (code, page) = whole(&address, "GET / HTTP/1.1", "");
    assert_eq!(code, 200);
    for part in [
        "content-security-policy: default-src 'none'",
        "<th scope=\"row\">flights</th>",
        "data-state=\"up\"",
        "no node crash",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
    assert!(!page.contains("://cdn") && !page.contains("https://"), "everything is the node's own");
    let mut stream = ask(&address, "GET /events HTTP/1.1", "");
    let _ = until(&mut stream, "flights");
    put_all(&mut client, &table, 0, 100, "x");
    // The watermarks have moved, and the page is told.
    let _ = until(&mut stream, "<h2>Partitions");
    let history = whole(&address, "GET /history.json?since=0 HTTP/1.1", "").1;
    assert!(history.contains("\"samples\":["), "{history}");
    let refused = whole(&address, "POST /operate HTTP/1.1", r#"{"action":"drain","node":1}"#);
    assert_eq!(refused.0, 404, "no token is set: {}", refused.1);
}

#[test]
fn streams_are_counted_and_given_back() {
    let cluster = Cluster::with(1, &[]);
    let _client = cluster.ready();
    let address = cluster.node(1).ports().listen["http"].clone();
    let mut open: Vec<_> = (0..STREAMS).map(|_| ask(&address, "GET /events HTTP/1.1", "")).collect();
    for stream in &mut open {
        let _ = until(stream, "summary");
    }
    assert_eq!(whole(&address, "GET /events HTTP/1.1", "").0, 503);
    assert_eq!(whole(&address, "GET / HTTP/1.1", "").0, 200, "the page itself is still there");
    drop(open);
    let deadline = Instant::now() + crate::common::LONG;
    loop {
        let mut again = ask(&address, "GET /events HTTP/1.1", "");
        let mut first = String::new();
        again.read_line(&mut first).expect("an answer");
        if first.contains("200") {
            break;
        }
        assert!(Instant::now() < deadline, "the places were not given back: {first}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_bad_token_is_named_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    for (text, why) in [("short\n", "16 or more"), ("\n", "is empty")] {
        std::fs::write(&file, text).expect("written");
        let path = file.display().to_string();
        let error =
            understudy_node::Config::with(&[("node.operator_token_file", &path)]).expect_err("refused");
        assert!(
            error.sentence.contains("node.operator_token_file") && error.sentence.contains(why),
            "{error}"
        );
    }
}

//! `understudy sql` against real nodes: from the command line, a file and a pipe; and with a person at a
//! terminal's other end.

mod common;

use common::{Cluster, Ran, understudy};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Runs the shell with this on its standard input.
fn piped(cluster: &Cluster, words: &[&str], text: &str) -> Ran {
    let mut command = understudy(cluster.dir.path());
    command.arg("sql").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // A shell that ended early does not read the rest.
    let _ = child.stdin.take().expect("piped").write_all(text.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let utf8 = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { status: output.status.code().unwrap_or(-1), out: utf8(output.stdout), err: utf8(output.stderr) }
}

#[test]
fn statements_run_from_everywhere() {
    let cluster = Cluster::start();
    let create = "CREATE TABLE people (id bigint PRIMARY KEY, name text, pay numeric, here boolean) WITH (partitions = 1);";
    assert_eq!(cluster.ok(&["sql", "--command", create]), "CREATE TABLE\n");
    let fill = "-- a comment; with a semicolon\nINSERT INTO people VALUES (1, 'Ada; or so', 100.50, true),\n (2, '日本', NULL, false);\n\
                INSERT INTO people VALUES (3, E'two\\nlines\\x1b', 7, NULL);";
    cluster.write("fill.sql", fill);
    assert_eq!(cluster.ok(&["sql", "--file", "fill.sql"]), "INSERT 0 2\nINSERT 0 1\n");
    let select = "SELECT * FROM people ORDER BY id";
    let table = [
        " id |    name    |  pay  | here",
        "----+------------+-------+------",
        "  1 | Ada; or so | 100.5 | t",
        "  2 | 日本       |  NULL | f",
        "  3 | two       +|     7 | NULL",
        "    | lines\\x1B  |       |",
        "(3 rows)",
        "",
    ]
    .join("\n");
    assert_eq!(cluster.ok(&["sql", "-c", select]), table);
    let json = cluster.ok(&["sql", "-c", select, "--json"]);
    let rows: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows[1], serde_json::json!({ "id": 2, "name": "日本", "pay": null, "here": false }));
    let ran =
        piped(&cluster, &[], "SELECT count(*)\n FROM people; \\x\nSELECT name FROM people WHERE id = 1");
    assert_eq!((ran.status, ran.err.as_str()), (0, "Expanded display is on.\n"));
    let block = " count\n-------\n     3\n(1 row)\n-[ RECORD 1 ]\nname | Ada; or so\n(1 row)\n";
    assert_eq!(ran.out, block);
    let described = cluster.ok(&["sql", "-c", "\\d people", "--json"]);
    let first: serde_json::Value =
        serde_json::from_str(described.lines().next().expect("a column")).expect("JSON");
    assert_eq!(
        (&first["column"], &first["nullable"], &first["key"]),
        (&"id".into(), &"not null".into(), &1.into())
    );
    let tables = cluster.ok(&["sql", "-c", "\\dt"]);
    assert!(tables.contains(" people ") && tables.contains("id"), "{tables}");
    mistakes(&cluster);
    cancelled(&cluster, &[]);
    typed(&cluster);
}

/// The first mistake ends it, in one line and with status 1.
fn mistakes(cluster: &Cluster) {
    let ran = piped(cluster, &[], "SELECT 1 AS one; SELEC 2; SELECT 3 AS three;");
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.out.contains("one") && !ran.out.contains("three"), "{ran:?}");
    assert!(ran.sentence().starts_with("ERROR: ") && ran.sentence().contains("[42601]"), "{ran:?}");
    for (words, status, part) in [
        (vec!["-c", "\\nonsense"], 1, "\\nonsense is not known"),
        (vec!["--url", "mysql://x", "-c", "SELECT 1"], 2, "begins with postgres://"),
        (vec!["--url", "postgres://127.0.0.1:1", "-c", "SELECT 1"], 4, "127.0.0.1:1"),
        (vec!["--file", "missing.sql"], 1, "missing.sql"),
        (vec!["--dir", "elsewhere", "-c", "SELECT 1"], 4, "no cluster runs in elsewhere"),
    ] {
        let ran = cluster.run(&[&["sql"][..], &words].concat());
        assert_eq!(ran.status, status, "{words:?}: {ran:?}");
        assert!(ran.sentence().contains(part), "{words:?}: {ran:?}");
    }
    let url = cluster.file()["sql_url"].as_str().expect("a URL").to_string();
    let wrong = url.replace("understudy@", "understudy:wrong@");
    let ran = cluster.run(&["sql", "--url", &wrong, "-c", "SELECT 1"]);
    assert!(ran.status == 1 && ran.sentence().contains("password authentication failed"), "{ran:?}");
    let without = cluster.run(&["sql", "--url", &url, "-c", "SELECT 1"]);
    assert!(without.status == 1 && without.sentence().contains("PGPASSWORD"), "{without:?}");
    let required = format!("{url}?sslmode=require");
    let ran = cluster.run(&["sql", "--url", &required, "-c", "SELECT 1"]);
    assert!(ran.status == 4 && ran.sentence().contains("sql.tls_cert_file"), "{ran:?}");
}

/// The door with a certificate: encrypted if it can be, verified if that is asked for, cancelled on an
/// encrypted connection, too.
#[test]
fn the_shell_encrypts() {
    let make = |dir: &std::path::Path, name: &str| {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).expect("a certificate");
        let (certificate, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        (certificate.display().to_string(), key.display().to_string())
    };
    let cluster = Cluster::with(|dir| {
        let (certificate, key) = make(dir, "ours");
        vec![("UNDERSTUDY_SQL_TLS_CERT_FILE", certificate), ("UNDERSTUDY_SQL_TLS_KEY_FILE", key)]
    });
    let _ = make(cluster.dir.path(), "other");
    let password = std::fs::read_to_string(cluster.path("understudy-dev/sql.password")).expect("made");
    let url = cluster.file()["sql_url"].as_str().expect("a URL").to_string();
    let url = url.replace("understudy@", &format!("understudy:{}@", password.trim()));
    let told =
        |mode: &str| cluster.run(&["sql", "--url", &format!("{url}?sslmode={mode}"), "-c", "\\conninfo"]);
    for (mode, how) in [
        ("disable", ", not encrypted"),
        ("prefer", ", encrypted"),
        ("require", ", encrypted"),
        ("verify-full&sslrootcert=ours.pem", ", encrypted"),
    ] {
        let ran = told(mode);
        assert!(ran.status == 0 && ran.out.trim_end().ends_with(how), "{mode}: {ran:?}");
    }
    let stranger = told("verify-full&sslrootcert=other.pem");
    assert!(stranger.status == 4 && stranger.sentence().contains("certificate"), "{stranger:?}");
    cancelled(&cluster, &["--url", &format!("{url}?sslmode=require")]);
}

/// Ctrl-C ends the statement, by way of the node.
fn cancelled(cluster: &Cluster, listener: &[&str]) {
    // Numbers 0 to 9, and then all pairs of all pairs: it does not end by itself while the test waits.
    let digits = "(VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9))";
    let many: Vec<String> = (0..14).map(|at| format!("{digits} AS t{at}(n)")).collect();
    let endless = format!("SELECT 'began' AS word; SELECT count(*) FROM {};", many.join(" CROSS JOIN "));
    let mut command = understudy(cluster.dir.path());
    command.arg("sql").args(listener).args(["-c", &endless]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut said = [0; 6];
    // The first statement has been answered: the second one is sent.
    child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("the first answer");
    common::signal(child.id().into(), "INT");
    let output = child.wait_with_output().expect("it ends");
    let complaint = String::from_utf8_lossy(&output.stderr).to_string();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("57014") || complaint.contains("interrupted"), "{complaint}");
}

/// A person types: prompts, a statement of two lines, a mistake that ends nothing, completion, history.
/// `script` makes the terminal; where it is not installed, this part is left out.
fn typed(cluster: &Cluster) {
    if Command::new("script").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return testing::missing("script", "no `script` to make a terminal with");
    }
    let shell = format!("{} sql --history typed.history", env!("CARGO_BIN_EXE_understudy"));
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &shell, "/dev/null"]).current_dir(cluster.dir.path());
    command.env("TERM", "xterm");
    for name in ["UNDERSTUDY_SECRET", "UNDERSTUDY_CONNECT"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("script runs");
    let mut terminal = Terminal::new(child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    terminal.wait_for("understudy=> ");
    terminal.type_in("SELECT count(*)\nFROM peo\t;\n", "     3");
    terminal.type_in("SELEC 1;\n", "[42601]");
    terminal.type_in("\\d people\n", "not null");
    terminal.type_in("SELECT 40 + 2;\n", "       42");
    terminal.keys.write_all(b"\\q\n").expect("typed");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{}", terminal.seen);
    let history = std::fs::read_to_string(cluster.path("typed.history")).expect("kept");
    assert!(history.contains("SELECT 40 + 2;"), "{history}");
}

/// What a person sees and types. A terminal forgets what is typed while nobody asks, so each line waits for
/// its prompt.
struct Terminal {
    keys: std::process::ChildStdin,
    pieces: mpsc::Receiver<String>,
    seen: String,
}

impl Terminal {
    fn new(keys: std::process::ChildStdin, mut screen: std::process::ChildStdout) -> Terminal {
        let (send, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                // The test has seen enough.
                if send.send(String::from_utf8_lossy(&piece[..count]).to_string()).is_err() {
                    return;
                }
            }
        });
        Terminal { keys, pieces, seen: String::new() }
    }

    /// Waits for something that has not been seen before.
    fn wait_for(&mut self, wanted: &str) {
        self.seen.clear();
        self.see(wanted);
    }

    fn see(&mut self, wanted: &str) {
        while !self.seen.contains(wanted) {
            let piece = self.pieces.recv_timeout(Duration::from_secs(60));
            let piece = piece.unwrap_or_else(|error| panic!("{wanted:?}: {error}: {:?}", self.seen));
            self.seen.push_str(&piece);
        }
    }

    /// Types at a prompt, waits for what it answers and for the next prompt.
    fn type_in(&mut self, keys: &str, answer: &str) {
        self.seen.clear();
        self.keys.write_all(keys.as_bytes()).expect("typed");
        self.see(answer);
        let after = self.seen.find(answer).expect("just seen") + answer.len();
        self.seen.drain(..after);
        self.see("understudy=> ");
    }
}

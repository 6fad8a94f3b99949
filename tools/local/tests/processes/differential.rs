//! The same statements to a PostgreSQL and to a cluster: rows, tags and SQLSTATEs must be the same.
//!
//! `tests/differential/*.sql` has the statements, `*.out` beside it what PostgreSQL 15 has answered. Where
//! its programs are installed one is started in a directory of its own and asked again; where they are not,
//! that is said. A statement behind a line `-- differs: why` is answered otherwise here, and the test prints
//! all of these; one that is answered alike must not have such a line. `UNDERSTUDY_RECORD=1` writes what
//! PostgreSQL answers.

use super::drivers::patient;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testing::missing;
use understudy_local::Cluster;

/// Stands before each answer.
const MARK: &str = "@@@";

struct Case {
    statement: String,
    differs: Option<String>,
}

fn cases(text: &str) -> Vec<Case> {
    let (mut found, mut differs, mut lines) = (Vec::new(), None, Vec::new());
    for line in text.lines() {
        if lines.is_empty() {
            if let Some(why) = line.strip_prefix("-- differs:") {
                differs = Some(why.trim().to_string());
                continue;
            }
            if line.is_empty() || line.starts_with("--") {
                continue;
            }
        }
        lines.push(line);
        if line.ends_with(';') {
            found.push(Case { statement: lines.join("\n"), differs: differs.take() });
            lines.clear();
        }
    }
    assert!(lines.is_empty(), "a statement without its end: {lines:?}");
    found
}

/// What psql prints for each statement, in one session.
fn ask(url: &str, cases: &[Case]) -> Vec<Answer> {
    let mut child = Command::new("psql")
        .args([url, "-X", "-A", "-t", "-v", "VERBOSITY=sqlstate", "-P", "null=NULL"])
        .env("PGTZ", "UTC")
        .env_remove("PGPASSWORD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql runs");
    let mut script = String::from("\\set ECHO none\n\\set QUIET 0\n");
    for case in cases {
        // The code of an error goes with the answer. Its message does not: it is shown where one is wrong.
        let statement = &case.statement;
        script.push_str(&format!(
            "\\echo {MARK}\n{statement}\n\\echo :SQLSTATE\n\\warn {MARK}:LAST_ERROR_MESSAGE\n"
        ));
    }
    let mut input = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()).expect("psql reads"));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it was written");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut errors = errors.split(MARK).skip(1);
    let answer = |text: &str| Answer {
        text: text.trim().to_string(),
        last_error: errors.next().and_then(|error| error.lines().next()).unwrap_or_default().to_string(),
    };
    text.split(MARK).skip(1).map(answer).collect()
}

/// What a statement was answered.
struct Answer {
    /// Its rows and its tag, and behind them its SQLSTATE.
    text: String,
    /// The last error of its session: of this statement, if it failed.
    last_error: String,
}

/// A PostgreSQL of our own.
struct Postgres {
    child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It ends at SIGINT, and its directory goes when it has.
        let pid = self.child.id().to_string();
        drop(Command::new("kill").args(["-INT", &pid]).status());
        drop(self.child.wait());
    }
}

/// The directory of PostgreSQL's programs.
fn programs() -> Option<PathBuf> {
    let here = std::env::var_os("PATH").unwrap_or_default();
    let mut all: Vec<PathBuf> = std::env::split_paths(&here).collect();
    all.push("/usr/lib/postgresql/15/bin".into());
    all.into_iter().find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}

/// A command as a user that PostgreSQL starts for: not root.
fn as_nobody(program: &Path) -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|found| {
        use std::os::unix::fs::MetadataExt;
        found.uid() == 0
    });
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command
}

impl Postgres {
    /// Starts one; `None`: it is not installed, and that is said.
    fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            missing("postgres", "PostgreSQL is not asked again: its initdb is not installed");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        std::fs::create_dir(&data).expect("makes");
        for path in [dir.path(), &data] {
            use std::os::unix::fs::PermissionsExt;
            let mode = if path == data { 0o700 } else { 0o777 };
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("sets");
        }
        // Only root may give it away, and only root has to.
        drop(std::os::unix::fs::chown(&data, Some(65_534), Some(65_534)));
        let made = as_nobody(&programs.join("initdb"))
            .args(["-U", "understudy", "-A", "trust", "--locale=C", "-E", "UTF8", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            missing("postgres", "PostgreSQL is not asked again: initdb does not work here");
            return None;
        }
        let mut command = as_nobody(&programs.join("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(dir.path());
        command.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "timezone=UTC"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let postgres = Postgres { child, dir };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !Command::new("psql")
            .args([&postgres.url("postgres"), "-X", "-c", "SELECT 1"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
        {
            assert!(Instant::now() < deadline, "PostgreSQL does not answer");
        }
        Some(postgres)
    }

    fn url(&self, database: &str) -> String {
        format!("host={} user=understudy dbname={database}", self.dir.path().display())
    }
}

fn database(url: &str, name: &str) {
    let made = Command::new("psql")
        .args([url, "-X", "-q", "-c", &format!("CREATE DATABASE {name}")])
        .env_remove("PGPASSWORD")
        .status();
    assert!(made.is_ok_and(|status| status.success()), "CREATE DATABASE {name}");
}

/// What differs between two lists of answers, and ought not to.
fn compare(name: &str, cases: &[Case], expected: &[String], found: &[Answer], known: bool) -> Vec<String> {
    assert_eq!(expected.len(), cases.len(), "{name}: as many answers as statements");
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let (found, error) = match found.get(at) {
            Some(answer) => (&answer.text[..], &answer.last_error[..]),
            None => ("no answer", ""),
        };
        let differs = known && case.differs.is_some();
        if (found == expected[at]) == differs {
            let Case { statement, .. } = case;
            wrong.push(format!(
                "{name}: {statement}\n   recorded: {:?}\n   answered: {found:?}\n   last error: {error}",
                expected[at]
            ));
        }
    }
    wrong
}

/// All files against a cluster, and against PostgreSQL where there is one.
pub fn run() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&here)
        .expect("the statements")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sql"))
        .collect();
    files.sort();
    let record = std::env::var_os("UNDERSTUDY_RECORD").is_some();
    let postgres = Postgres::start();
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(patient(dir.path(), 10_000)).expect("starts");
    let url = cluster.sql_url().expect("a password");
    let (mut wrong, mut count, mut known) = (Vec::new(), 0, Vec::new());
    for path in &files {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let cases = cases(&std::fs::read_to_string(path).expect("the statements"));
        count += cases.len();
        known.extend(cases.iter().filter_map(|case| Some((case.statement.clone(), case.differs.clone()?))));
        let recording = path.with_extension("out");
        if let Some(postgres) = &postgres {
            database(&postgres.url("postgres"), name);
            let answers = ask(&postgres.url(name), &cases);
            if record {
                let text: Vec<String> =
                    answers.iter().map(|answer| format!("{MARK}\n{}\n", answer.text)).collect();
                std::fs::write(&recording, text.concat()).expect("writes");
            }
            wrong.extend(compare(name, &cases, &recorded(&recording), &answers, false));
        }
        database(&url, name);
        let (before, _) = url.rsplit_once('/').expect("a database");
        let answers = ask(&format!("{before}/{name}"), &cases);
        wrong.extend(compare(name, &cases, &recorded(&recording), &answers, true));
    }
    cluster.shutdown();
    println!("{count} statements, {} of them answered otherwise than by PostgreSQL:", known.len());
    for (statement, why) in known {
        println!("  {why}: {}", statement.replace('\n', " "));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn recorded(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("what PostgreSQL has answered");
    text.split(MARK).skip(1).map(|answer| answer.trim().to_string()).collect()
}

//! The SQL gateway, with PostgreSQL's own client against a cluster of three nodes.

use std::process::{Command, Stdio};
use testing::missing;
use types::NodeId;
use understudy_local::{Cluster, ClusterOptions};

/// Runs psql: what it printed, and what it complained of.
pub fn psql(url: &str, arguments: &[&str]) -> (String, String) {
    let output = Command::new("psql")
        .args([url, "-X", "-A", "-t", "-q", "-v", "VERBOSITY=verbose", "-v", "ON_ERROR_STOP=0"])
        .args(arguments)
        .env("PGCONNECT_TIMEOUT", "20")
        .env_remove("PGPASSWORD")
        .stdin(Stdio::null())
        .output()
        .expect("psql runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8").trim().to_string();
    (text(output.stdout), text(output.stderr))
}

/// The rows of a statement that succeeds. A read that a failover ended is made again, as its error says: a
/// machine that is busy with other tests has some that nobody caused.
pub fn rows(url: &str, statement: &str) -> String {
    let asked = || psql(url, &["-c", statement]);
    let (rows, complaint) = match asked() {
        (_, complaint) if complaint.starts_with("ERROR:  40001") && statement.starts_with("SELECT") => {
            asked()
        }
        answered => answered,
    };
    assert_eq!(complaint, "", "{statement}");
    rows
}

/// The SQLSTATE of a statement that does not.
fn refused(url: &str, statement: &str) -> String {
    let (rows, complaint) = psql(url, &["-c", statement]);
    assert_eq!(rows, "", "{statement}");
    let line =
        complaint.lines().find(|line| line.starts_with("ERROR:")).unwrap_or_else(|| panic!("{complaint}"));
    line.split(": ").nth(1).map(|code| code.trim().to_string()).unwrap_or_default()
}

/// The URL with the address of one node.
pub fn of_node(url: &str, node: usize) -> String {
    let (before, rest) = url.split_once('@').expect("a user");
    let (addresses, database) = rest.split_once('/').expect("a database");
    format!("{before}@{}/{database}", addresses.split(',').nth(node).expect("a node"))
}

/// Tables are made, filled and asked from any node; what is wrong is told as PostgreSQL tells it.
fn works(cluster: &Cluster) {
    let url = &cluster.sql_url().expect("a password");
    let (one, two, three) = (&of_node(url, 0), &of_node(url, 1), &of_node(url, 2));
    rows(
        one,
        "CREATE TABLE people (id bigint PRIMARY KEY, name text NOT NULL, pay numeric) WITH (partitions = 1)",
    );
    rows(
        one,
        "CREATE TABLE pets (owner int, name text, seen timestamptz, PRIMARY KEY (owner, name)) WITH (partition_by = 1)",
    );
    rows(two, "INSERT INTO people VALUES (1, 'Ada', 100.50), (2, 'Grace', 99.9), (3, 'Joan', NULL)");
    for pet in ["(1, 'Rex', '2024-01-02 03:04:05+00')", "(1, 'Tom', now())", "(3, 'Rex', NULL)"] {
        rows(two, &format!("INSERT INTO pets VALUES {pet}"));
    }
    assert_eq!(rows(three, "SELECT * FROM people WHERE id = 2"), "2|Grace|99.9");
    assert_eq!(
        rows(three, "SELECT seen FROM pets WHERE owner = 1 AND name = 'Rex'"),
        "2024-01-02 03:04:05+00"
    );
    assert_eq!(rows(one, "SELECT count(*), sum(pay), avg(pay) FROM people"), "3|200.4|100.2");
    let joined = "SELECT p.name, count(q.name) FROM people p LEFT JOIN pets q ON q.owner = p.id GROUP BY p.name ORDER BY 1";
    assert_eq!(rows(two, joined), "Ada|2\nGrace|0\nJoan|1");
    assert_eq!(rows(two, "SELECT count(*) FROM people WHERE id BETWEEN 2 AND 9"), "2");
    rows(
        one,
        "INSERT INTO people VALUES (3, 'Joan', 1) ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name, pay = EXCLUDED.pay",
    );
    rows(one, "DELETE FROM people WHERE id = 2");
    assert_eq!(rows(three, "BEGIN; SELECT name, pay FROM people ORDER BY id; COMMIT"), "Ada|100.5\nJoan|1");
    for (statement, code) in [
        ("INSERT INTO people VALUES (1, 'Eve', 0)", "23505"),
        ("INSERT INTO people VALUES (4, NULL, 0)", "23502"),
        (
            "INSERT INTO pets VALUES (1, 'A', NULL), (2, 'B', NULL), (3, 'C', NULL), (4, 'D', NULL), (5, 'E', NULL), (6, 'F', NULL)",
            "0A000",
        ),
        ("SELECT * FROM nothing", "42P01"),
        ("SELEC 1", "42601"),
        ("SELECT 1 / 0", "22012"),
        ("CREATE TABLE people (id int PRIMARY KEY)", "42P07"),
        ("CREATE TABLE heap (id int) WITH (partitions = 2)", "0A000"),
        ("DROP TABLE nothing", "42P01"),
    ] {
        assert_eq!(refused(one, statement), code, "{statement}");
    }
    let (_, complaint) = psql(&one.replace("understudy:", "understudy:not"), &["-c", "SELECT 1"]);
    assert!(complaint.contains("password authentication failed for user \"understudy\""), "{complaint}");
    let other = format!("{}other", one.strip_suffix("understudy").expect("the database"));
    let (_, complaint) = psql(&other, &["-c", "SELECT 1"]);
    assert!(complaint.contains("database \"other\" does not exist"), "{complaint}");
}

/// The same, and with a node killed: a multi-host URL finds another one, and nothing is missing.
fn outlives() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
    works(&cluster);
    let url = cluster.sql_url().expect("a password");
    cluster.kill(NodeId(1)).expect("killed");
    assert_eq!(rows(&url, "SELECT name FROM people ORDER BY id"), "Ada\nJoan");
    rows(&url, "INSERT INTO people VALUES (5, 'Edith', 5)");
    assert_eq!(rows(&url, "SELECT pay FROM people WHERE id = 5"), "5");
    rows(&url, "DROP TABLE pets");
    assert_eq!(refused(&url, "SELECT * FROM pets"), "42P01");
    cluster.shutdown();
}

/// Skipped where PostgreSQL's client is not installed.
pub fn client() {
    with_psql(outlives);
}

/// The same for encryption.
pub fn encryption() {
    with_psql(encrypted);
}

/// Rows are copied in and out.
pub fn copies() {
    with_psql(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let mut cluster = Cluster::start(ClusterOptions::new(dir.path())).expect("starts");
        super::copy::in_and_out(&mut cluster);
        cluster.shutdown();
    });
}

/// Skipped where PostgreSQL's client is not installed.
fn with_psql(test: impl FnOnce()) {
    match Command::new("psql").arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => test(),
        Err(_) => missing("psql", "psql is not installed"),
    }
}

/// With a certificate psql's `require` and `verify-full` work; a client that trusts another one does not.
fn encrypted() {
    let dir = tempfile::tempdir().expect("a directory");
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).expect("a certificate");
        let (certificate, key) =
            (dir.path().join(format!("{name}.pem")), dir.path().join(format!("{name}.key")));
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        (certificate.display().to_string(), key.display().to_string())
    };
    let ((certificate, key), (other, other_key)) = (made("ours"), made("other"));
    let with_key = |name: &str, key: &str| {
        let mut options = ClusterOptions::new(dir.path().join(name));
        options.nodes = 1;
        options.settings.push(("sql.tls_cert_file".into(), certificate.clone()));
        options.settings.push(("sql.tls_key_file".into(), key.into()));
        Cluster::start(options)
    };
    let refused = with_key("refused", &other_key).expect_err("the key is another certificate's").to_string();
    assert!(refused.contains("sql.tls_key_file") && refused.contains("does not fit"), "{refused}");
    let cluster = with_key("cluster", &key).expect("starts");
    let url = cluster.sql_url().expect("a password");
    for mode in ["disable", "prefer", "require", &format!("verify-full&sslrootcert={certificate}")] {
        assert_eq!(rows(&format!("{url}?sslmode={mode}"), "SELECT 40 + 2"), "42", "{mode}");
    }
    let (said, _) = psql(&format!("{url}?sslmode=require"), &["-c", "\\conninfo"]);
    assert!(said.contains("SSL connection"), "{said}");
    let (_, complaint) = psql(&format!("{url}?sslmode=verify-full&sslrootcert={other}"), &["-c", "SELECT 1"]);
    assert!(complaint.contains("certificate verify failed"), "{complaint}");
    cluster.shutdown();
}

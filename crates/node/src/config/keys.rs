//! Every setting there is: its name, what it holds and its default. Whatever is not here is an unknown key.

/// What a setting holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text, also a path or an address.
    Text,
    /// A whole number, not negative.
    Number,
    /// `true` or `false`.
    Flag,
    /// A list of texts; separated by commas outside of files.
    List,
}

/// One setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// `section.key`.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Its default, written as in the environment.
    pub default: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
}

const fn text(name: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting { name, kind: Kind::Text, default, about }
}

const fn number(name: &'static str, default: &'static str, about: &'static str) -> Setting {
    Setting { name, kind: Kind::Number, default, about }
}

const fn flag(name: &'static str, about: &'static str) -> Setting {
    Setting { name, kind: Kind::Flag, default: "false", about }
}

const fn list(name: &'static str, about: &'static str) -> Setting {
    Setting { name, kind: Kind::List, default: "", about }
}

/// All of them.
pub const SETTINGS: &[Setting] = &[
    number("node.id", "0", "the node's number; 0: the one in its data directory"),
    text("node.data_dir", "./understudy-data", "everything the node keeps"),
    list(
        "node.data_dirs",
        "further directories for replicas' files, each on a disk of its own: losing one does not end the node",
    ),
    text("node.listen_client", "127.0.0.1:7401", "native clients"),
    text("node.listen_peer", "127.0.0.1:7402", "other nodes: log shipping"),
    text("node.listen_heartbeat", "127.0.0.1:7403", "other nodes: heartbeats"),
    text("node.listen_http", "127.0.0.1:7404", "health, metrics and the web page"),
    text(
        "node.operator_token_file",
        "",
        "a file with the token that operators give to the web page; empty: the page only shows",
    ),
    text("node.zone", "", "copies of one partition avoid sharing a zone"),
    list("node.controllers", "addresses of the controllers"),
    number(
        "node.max_connections",
        "4096",
        "connections of clients and nodes together, for each executor; a quarter is kept for nodes",
    ),
    number(
        "node.executors",
        "0",
        "threads that have the node's partitions, each its own; 0: half as many as there are cores, 1 to 16",
    ),
    flag("node.insecure", "allow addresses beyond loopback without encryption"),
    flag(
        "node.volatile",
        "keep unsynced bytes of the log, and of nothing else, from the disk, to play a power loss; tests only",
    ),
    flag("node.harm", "allow cuts of the network to be played over HTTP; tests only"),
    text(
        "node.freeze_at",
        "",
        "a stage of coming back, `tail` or `promoting`, at which the process freezes itself once; tests only",
    ),
    text("log.dir", "", "the log's directory; empty: `log` in the data directory"),
    number("log.segment_bytes", "67108864", "length of a segment file"),
    number("log.max_bytes", "17179869184", "writes are refused when the log takes more"),
    number("log.keep_bytes", "16777216", "newest entries kept in memory"),
    number(
        "log.checkpoint_bytes",
        "67108864",
        "log of a partition after which its engine is written to disk",
    ),
    number("log.reserve_bytes", "268435456", "writes are refused when the disk has less than this left"),
    number("timing.heartbeat_ms", "20", "between two heartbeats to a node"),
    number("timing.suspect_ms", "120", "a primary silent for so long is suspected"),
    number("timing.suspect_alone_ms", "1000", "the same where commits rest on the primary alone"),
    number("timing.lease_ms", "150", "a primary serves so long after sending a heartbeat that was answered"),
    number("timing.grace_ms", "180", "how long an answered heartbeat binds the one that answered"),
    number("timing.drift_permille", "50", "the clock rate error that lease and grace allow for"),
    number("timing.evict_lone_ms", "330", "a primary waits so long before it evicts the majority"),
    number("timing.evict_slow_ms", "1500", "a backup that acknowledges later leaves the set"),
    number("timing.gather_ms", "150", "a new primary waits so long for reports it can do without"),
    number("timing.ask_old_ms", "180", "the old primary is asked so long for what only it has"),
    number("timing.level_ms", "300", "a replica must be level for so long before it joins the set"),
    number("timing.hand_over_ms", "1000", "how long a hand-over may take"),
    number("timing.resend_ms", "50", "a request without an answer is asked again"),
    number("timing.session_ttl_ms", "3600000", "an unused session expires"),
    number(
        "timing.commits_alarm_ms",
        "10000",
        "the status says so when a partition has not secured a commit of global transactions for so long",
    ),
    number("limits.window_bytes", "8388608", "entries on the way to one member"),
    number("limits.append_bytes", "1048576", "entries in one message"),
    number("limits.uncommitted_bytes", "67108864", "uncommitted entries of a partition"),
    number("limits.tail_bytes", "4194304", "entries kept in memory for members a little behind"),
    number("limits.copy_bytes", "1048576", "rows in one piece of a copy"),
    number(
        "limits.commits_bytes",
        "2147483648",
        "commits of global transactions that partitions have not secured; of one partition a fourth of it",
    ),
    number(
        "limits.commits_alarm",
        "100000",
        "the status says so when partitions have not secured so many commits of global transactions",
    ),
    number("procedures.time_ms", "10", "how long a call of a procedure runs; 0: until its steps are used up"),
    number(
        "ship.bytes_per_second",
        "67108864",
        "engines' files sent to other nodes, all together; 0: as fast as it goes",
    ),
    number(
        "failback.log_bytes",
        "4194304",
        "a copy that comes back and lacks no more log than this is sent it; beyond it, log or files, whichever is less",
    ),
    number(
        "failback.keep_bytes",
        "0",
        "while a partition lacks copies, so much of its newest log is kept for them; 0: none",
    ),
    flag(
        "failback.full",
        "copies that come back on this node ignore what they have and are sent everything; to compare with",
    ),
    number(
        "scrub.bytes_per_second",
        "16777216",
        "files and log read back by `understudy scrub`; 0: as fast as it goes",
    ),
    text("sql.listen", "127.0.0.1:7405", "PostgreSQL's protocol; `off`: not at all"),
    text(
        "sql.password_file",
        "",
        "a file with the password of the user understudy; empty: it is the cluster's secret",
    ),
    text(
        "sql.tls_cert_file",
        "",
        "PEM: the certificate that SQL clients are shown, and what signed it; empty: no TLS",
    ),
    text("sql.tls_key_file", "", "PEM: its key"),
    number("sql.max_connections", "500", "connections of SQL clients"),
    number(
        "sql.spill_from",
        "33554432",
        "bytes of its rows that a SQL transaction keeps in memory before it moves them into a file in node.data_dir",
    ),
    number(
        "sql.spill_limit",
        "17179869184",
        "bytes of such files of a node, of which a transaction has at most a quarter; 0: there are none",
    ),
    text("cluster.secret", "", "everyone who connects must say it (UNDERSTUDY_SECRET); empty: nobody must"),
    text("controller.data_dir", "./understudy-controller", "the embedded metastore"),
    text("controller.listen", "127.0.0.1:7400", "nodes, operators and clients"),
    text("controller.metastore", "embedded", "`embedded` (one controller) or `etcd`"),
    list("controller.endpoints", "etcd's addresses"),
    text("controller.prefix", "/understudy", "what the keys in etcd begin with"),
    number("controller.failover_wait_ms", "5000", "wait for an old primary on which commits rested alone"),
    number(
        "controller.balance_after_ms",
        "3000",
        "the lead returns to the node placed first after this long",
    ),
    number("controller.spare_after_ms", "5000", "another node stands in for a missing copy after this long"),
    number(
        "controller.recovery_ms",
        "200",
        "between two passes over the partitions of global transactions, 10 to 3600000",
    ),
    flag("controller.insecure", "allow addresses beyond loopback without encryption"),
];

/// The setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The name that is most like `name`, if one is like it at all: for the sentence about an unknown key.
pub fn nearest(name: &str) -> Option<&'static str> {
    let key = name.rsplit('.').next().unwrap_or(name);
    let alike = |setting: &&Setting| {
        let known = setting.name.rsplit('.').next().unwrap_or(setting.name);
        known == key || distance(known, key) <= 2
    };
    SETTINGS.iter().find(alike).map(|setting| setting.name)
}

/// How many letters must be changed, added or removed.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

//! Health, metrics, status and the web page over HTTP, on a thread of its own: it reads the board and never
//! waits for the executor.

use crate::metrics::{head, line};
use crate::net::Cut;
use crate::shared_status::SharedStatus;
use crate::stop::Stop;
use crate::web::Web;
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use wire::control::{ExecutorStatus, NodeStatus, ReplicaStatus, Role};

type Shared = State<Arc<SharedStatus>>;

/// The thread.
pub struct HttpThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpThread {
    /// Serves on `listener`, which does not block.
    pub fn start(
        listener: TcpListener,
        shared_status: Arc<SharedStatus>,
        web: Arc<Web>,
    ) -> std::io::Result<HttpThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let routes = routes(shared_status).merge(web.routes());
        let serve = async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return eprintln!("http: {error}"),
            };
            // An open connection does not keep the process: the server is dropped with all of them.
            tokio::select! {
                _ = stopped => {}
                () = web.run() => {}
                served = axum::serve(listener, routes) => {
                    if let Err(error) = served {
                        eprintln!("http: {error}");
                    }
                }
            }
        };
        let spawned = std::thread::Builder::new().name("http".into()).spawn(move || runtime.block_on(serve));
        Ok(HttpThread { stop: Some(stop), thread: Some(spawned?) })
    }
}

impl Drop for HttpThread {
    fn drop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn routes(shared_status: Arc<SharedStatus>) -> Router {
    let mut routes = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/version", get(version))
        .route("/status.json", get(status))
        .route("/partition/{id}/primary", get(primary))
        .route("/partition/{id}/replica", get(replica));
    if shared_status.faults.is_some() {
        routes = routes.route("/harm/cut", post(cut)).route("/harm/heal", post(heal));
    }
    routes.with_state(shared_status)
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn version() -> String {
    format!("{}\n", crate::AGENT)
}

async fn status(State(shared_status): Shared) -> Response {
    let text = serde_json::to_string(&*shared_status.status()).expect("a status has only text keys");
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// The value of a query's key; empty if it has none.
fn value<'a>(query: &'a Option<String>, wanted: &str) -> Option<&'a str> {
    query.as_deref()?.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == wanted).then_some(value)
    })
}

async fn readyz(State(shared_status): Shared, RawQuery(query): RawQuery) -> Response {
    let status = shared_status.status();
    let checks = [
        ("controllers", shared_status.registered.load(Ordering::Acquire)),
        ("running", shared_status.stop.asked() == Stop::No),
        ("disk", !status.full),
        ("replicas", !status.replicas.iter().any(|replica| replica.role == Role::Damaged)),
        ("executors", status.executors.iter().all(|executor| executor.hangs_us == 0)),
    ];
    let ready = checks.iter().all(|(_, good)| *good);
    let mut text = String::new();
    if value(&query, "verbose").is_some() {
        for (name, good) in checks {
            let _ = writeln!(text, "[{}]{name}", if good { "+" } else { "-" });
        }
    }
    text.push_str(if ready { "ok\n" } else { "not ready\n" });
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, text).into_response()
}

/// What is said of a replica here; the error says why it is none that serves.
fn find(shared_status: &SharedStatus, id: u32) -> Result<ReplicaStatus, &'static str> {
    let status = shared_status.status();
    let mut replicas = status.replicas.iter();
    let replica = replicas.find(|replica| replica.partition.0 == id).ok_or("no replica")?;
    match status.hangs(replica.partition) {
        true => Err("its executor hangs"),
        false => Ok(replica.clone()),
    }
}

fn answer(good: bool, text: String) -> Response {
    let code = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, format!("{text}\n")).into_response()
}

async fn primary(State(shared_status): Shared, Path(id): Path<u32>) -> Response {
    match find(&shared_status, id) {
        Ok(replica) if replica.role == Role::Primary => answer(true, "primary".into()),
        Ok(replica) => answer(false, format!("{:?}", replica.role).to_lowercase()),
        Err(why) => answer(false, why.into()),
    }
}

/// A replica that may serve reads. `?lag=` in milliseconds: one that is further behind its primary does not
/// count.
async fn replica(State(shared_status): Shared, Path(id): Path<u32>, RawQuery(query): RawQuery) -> Response {
    let replica = match find(&shared_status, id) {
        Ok(replica) => replica,
        Err(why) => return answer(false, why.into()),
    };
    let serves = matches!(replica.role, Role::Primary | Role::Backup);
    let bound = match value(&query, "lag").map(str::parse::<u64>) {
        None => u64::MAX,
        Some(Ok(bound)) => bound,
        Some(Err(_)) => {
            return (StatusCode::BAD_REQUEST, "lag is a number of milliseconds\n").into_response();
        }
    };
    let lag_ms = replica.lag_us / 1000;
    answer(
        serves && lag_ms <= bound,
        format!("{} lag {lag_ms} ms", format!("{:?}", replica.role).to_lowercase()),
    )
}

async fn cut(State(shared_status): Shared, RawQuery(query): RawQuery) -> Response {
    let mut words = value(&query, "nodes").unwrap_or("").replace("%2C", ",");
    for flag in ["controllers", "clients"] {
        if value(&query, flag).is_some() {
            words = format!("{words},{flag}");
        }
    }
    match (Cut::parse(&words), &shared_status.faults) {
        (Ok(cut), Some(faults)) => {
            faults.set(cut);
            "cut\n".into_response()
        }
        (Err(error), _) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
        (_, None) => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Answers with what had been cut.
async fn heal(State(shared_status): Shared) -> String {
    let before = shared_status.faults.as_ref().map(|faults| faults.set(Cut::default()));
    format!("{}\n", before.unwrap_or_default())
}

async fn metrics(State(shared_status): Shared) -> Response {
    let mut out = String::new();
    shared_status.metrics.print(&mut out);
    print_status(&shared_status, &mut out);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], out).into_response()
}

fn print_status(shared_status: &SharedStatus, out: &mut String) {
    let status = shared_status.status();
    for (name, help, value) in [
        ("understudy_log_bytes", "Bytes of log kept.", status.log_bytes as f64),
        (
            "understudy_disk_full",
            "1 if writes are refused for want of room.",
            f64::from(u8::from(status.full)),
        ),
        ("understudy_tails", "Divergent tails set aside.", status.tails.len() as f64),
        (
            "understudy_up_incarnation",
            "How often this node was started.",
            shared_status.me.incarnation.0 as f64,
        ),
    ] {
        head(out, name, "gauge", help);
        line(out, name, value);
    }
    print_directories(&status, out);
    print_executors(&status, out);
    head(out, "process_cpu_seconds_total", "counter", "Processor time.");
    line(out, "process_cpu_seconds_total", status.cpu_us as f64 / 1e6);
    head(out, "understudy_partition_has_primary", "gauge", "1 if this node leads the partition and serves.");
    for replica in &status.replicas {
        let name = format!("understudy_partition_has_primary{{partition=\"{}\"}}", replica.partition.0);
        let serves = replica.role == Role::Primary && !status.hangs(replica.partition);
        line(out, &name, u8::from(serves));
    }
    head(
        out,
        "understudy_partition_committed_lsn",
        "gauge",
        "The partition's committed position as known here.",
    );
    for replica in &status.replicas {
        let name = format!("understudy_partition_committed_lsn{{partition=\"{}\"}}", replica.partition.0);
        line(out, &name, replica.committed.0);
    }
    let name = "understudy_replica_ship_missing_bytes";
    head(out, name, "gauge", "Bytes of files that a member still lacks, as this node, its primary, sees it.");
    for replica in &status.replicas {
        for (member, have, all) in &replica.shipping {
            let labels = format!("{{partition=\"{}\",node=\"{}\"}}", replica.partition.0, member.node.0);
            line(out, &format!("{name}{labels}"), all.saturating_sub(*have));
        }
    }
    print_failback(&status, out);
    for (name, help) in [
        (
            "understudy_replica_lag_bytes",
            "Bytes a member is behind its primary, as this node, its primary, sees it.",
        ),
        ("understudy_replica_lag_seconds", "Seconds a member is behind its primary."),
    ] {
        head(out, name, "gauge", help);
        for replica in &status.replicas {
            for (member, _, bytes, us) in &replica.members {
                let labels = format!("{{partition=\"{}\",node=\"{}\"}}", replica.partition.0, member.node.0);
                let value = if name.ends_with("bytes") { *bytes as f64 } else { *us as f64 / 1e6 };
                line(out, &format!("{name}{labels}"), value);
            }
        }
    }
}

/// The directories of replicas, where there are several.
fn print_directories(status: &NodeStatus, out: &mut String) {
    let help = [
        "1 if the directory is used, 0 if it is lost until the node starts again.",
        "Bytes of replicas' files in the directory.",
    ];
    for (name, help) in ["understudy_directory_used", "understudy_directory_bytes"].into_iter().zip(help) {
        if !status.directories.is_empty() {
            head(out, name, "gauge", help);
        }
        for directory in &status.directories {
            // As Prometheus has it: backslashes, quotes and line ends are escaped.
            let path = directory.path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let value =
                if name.ends_with("bytes") { directory.bytes } else { u64::from(directory.lost.is_empty()) };
            line(out, &format!("{name}{{directory=\"{path}\"}}"), value);
        }
    }
}

/// What each executor has, where there are several.
fn print_executors(status: &NodeStatus, out: &mut String) {
    type Value = fn(&ExecutorStatus) -> u64;
    let values: [(&str, &str, Value); 3] = [
        ("understudy_executor_partitions", "Replicas that the executor has.", |has| has.partitions.into()),
        ("understudy_executor_connections", "Open connections of the executor.", |has| {
            has.connections.into()
        }),
        ("understudy_executor_hangs", "1 if the executor does nothing: what it leads fails over.", |has| {
            u64::from(has.hangs_us > 0)
        }),
    ];
    for (name, help, value) in values.into_iter().filter(|_| !status.executors.is_empty()) {
        head(out, name, "gauge", help);
        for (number, executor) in status.executors.iter().enumerate() {
            line(out, &format!("{name}{{executor=\"{number}\"}}"), value(executor));
        }
    }
}

/// How copies on this node came back into their sets, or come back.
fn print_failback(status: &NodeStatus, out: &mut String) {
    let name = "understudy_failback_received_bytes";
    head(
        out,
        name,
        "gauge",
        "Bytes that brought this node's copy level when it last came back, by what they were.",
    );
    for replica in &status.replicas {
        let told = &replica.failback;
        for (by, bytes) in [("files", told.file_bytes), ("rows", told.row_bytes), ("log", told.log_bytes)] {
            let labels = format!("{{partition=\"{}\",by=\"{by}\"}}", replica.partition.0);
            line(out, &format!("{name}{labels}"), bytes);
        }
    }
    let name = "understudy_failback_seconds";
    head(out, name, "gauge", "From this copy's admission until it was in the set, or until now.");
    for replica in &status.replicas {
        let labels = format!("{{partition=\"{}\"}}", replica.partition.0);
        line(out, &format!("{name}{labels}"), replica.failback.took_us as f64 / 1e6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_executors_has_a_line_of_its_own() {
        let printed = |executors: Vec<ExecutorStatus>| {
            let mut out = String::new();
            print_executors(&NodeStatus { executors, ..NodeStatus::default() }, &mut out);
            out
        };
        let executor = ExecutorStatus { partitions: 12, connections: 7, hangs_us: 0 };
        let two = printed(vec![executor, ExecutorStatus { hangs_us: 1, ..executor }]);
        for expected in [
            "understudy_executor_partitions{executor=\"1\"} 12\n",
            "understudy_executor_connections{executor=\"0\"} 7\n",
            "understudy_executor_hangs{executor=\"0\"} 0\n",
            "understudy_executor_hangs{executor=\"1\"} 1\n",
        ] {
            assert!(two.contains(expected), "{expected} is missing in\n{two}");
        }
        assert_eq!(printed(Vec::new()), "", "one alone is the node");
    }
}

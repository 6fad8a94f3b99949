//! The SQL gateway: PostgreSQL's protocol on a thread of its own, and on the same one a native client of this
//! very cluster.

use crate::config::SqlConfig;
use ::sql::Programs;
use ::sql::resume::RESUME_INTERVAL;
use ::sql::system::sessions::Sessions;
use ::sql::txn::SpillSettings;
use client::Options;
use client::local::LocalNode;
use pg::Rules;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How long statements that are being evaluated may take to notice that the node stops.
const STOP: Duration = Duration::from_millis(500);

/// Room for the deepest statement that is understood.
const STACK: usize = 32 << 20;

/// The thread. Dropping it tells every client that the node stops.
pub struct SqlThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl SqlThread {
    /// Serves on `listener`, which does not block. The cluster is looked for from now on. Who is in which
    /// database is in `sessions`. `spill`: where large transactions go, if anywhere. Changes of tables that
    /// others have left half done are finished where this node leads (PR-503).
    pub fn start(
        listener: TcpListener,
        config: &SqlConfig,
        (cluster, programs): (Options, Programs),
        (sessions, spill): (Arc<Sessions>, Option<SpillSettings>),
    ) -> std::io::Result<SqlThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopping) = watch::channel(false);
        let service = {
            let _here = runtime.enter();
            let node = cluster.local.as_ref().map(LocalNode::node);
            let service = ::sql::Sql::start(cluster, programs).listing(sessions);
            let service = match spill {
                Some(spill) => service.spilling(spill),
                None => service,
            };
            match node {
                Some(node) => service.resuming(node, RESUME_INTERVAL),
                None => service,
            }
        };
        let rules = Rules {
            user: ::sql::USER.into(),
            password: config.password.said(),
            max_connections: config.max_connections,
            tls: config.tls.clone(),
            must_encrypt: config.must_encrypt,
        };
        let serve = async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => pg::serve(listener, service, rules, stopping).await,
                Err(error) => eprintln!("sql: {error}"),
            }
        };
        let run = move || {
            runtime.block_on(serve);
            runtime.shutdown_timeout(STOP);
        };
        let spawned = std::thread::Builder::new().name("sql".into()).stack_size(STACK).spawn(run)?;
        Ok(SqlThread { stop, thread: Some(spawned) })
    }
}

impl Drop for SqlThread {
    fn drop(&mut self) {
        // Fails only when the thread is gone.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

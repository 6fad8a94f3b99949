//! SQL sessions on a cluster of this process, without the protocol in front of them.

use super::{Cluster, LONG};
use pg::{Cancel, Failure, Login, Outcome, Service, Session};
use sql::session::SqlSession;
use sql::txn::SpillSettings;
use sql::{Programs, Sql};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A service, and the thread that its calls go through.
pub struct Behind {
    service: Arc<Sql>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Deref for Behind {
    type Target = Arc<Sql>;

    fn deref(&self) -> &Arc<Sql> {
        &self.service
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().expect("joined once").join().expect("it ends");
    }
}

/// The service of a cluster, as a node has it.
pub fn service(cluster: &Cluster) -> Behind {
    service_with(cluster, Programs::default())
}

/// The same, whose large transactions spill.
pub fn service_spilling(cluster: &Cluster, settings: SpillSettings) -> Behind {
    started(cluster, |options| Sql::start(options, Programs::default()).spilling(settings))
}

/// The same with other programs, or other limits of calls.
pub fn service_with(cluster: &Cluster, programs: Programs) -> Behind {
    started(cluster, |options| Sql::start(options, programs))
}

fn started(cluster: &Cluster, start: impl FnOnce(client::Options) -> Sql) -> Behind {
    let controllers = vec![cluster.controller_address()];
    let options = client::Options { controllers, wait: true, timeout: LONG, ..client::Options::default() };
    // The sessions of these tests have threads and runtimes of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let service = {
        let _here = runtime.enter();
        Arc::new(start(options))
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        // Told by the end of the service, whichever way it comes.
        let _ = runtime.block_on(stopped);
    });
    Behind { service, stop: Some(stop), thread: Some(thread) }
}

/// One client's session, without the protocol in front of it.
pub struct Talk {
    session: SqlSession,
    runtime: tokio::runtime::Runtime,
}

impl Talk {
    /// One in the database that is always there.
    pub fn new(service: &Sql) -> Talk {
        Talk::within(service, sql::DATABASE).expect("welcome")
    }

    /// One in a database; the error is why there is none.
    pub fn within(service: &Sql, database: &str) -> Result<Talk, Failure> {
        let (user, database) = (sql::USER.to_string(), database.to_string());
        let login = Login { user, database, parameters: BTreeMap::new(), address: None, pid: 1 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut talk = Talk { session: service.open(&login, Cancel::default())?, runtime };
        let began = Instant::now();
        while talk.say("SELECT 1").starts_with("57P03") {
            assert!(began.elapsed() < LONG, "the cluster was not found");
            std::thread::yield_now();
        }
        Ok(talk)
    }

    /// Does nothing for a while but let the session's timers run.
    pub fn rest(&mut self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// The SQLSTATE of what ends the connection of a client that is silent in a transaction, once it is so
    /// for too long. `None`: nothing does, for so long.
    pub fn overdue(&mut self, within: Duration) -> Option<String> {
        let overdue = self.session.overdue()?;
        let ended = self.runtime.block_on(async { tokio::time::timeout(within, overdue).await });
        ended.ok().filter(|failure| failure.fatal).map(|failure| failure.code.to_string())
    }

    /// What the client was told beside answers, since it was asked last.
    pub fn notices(&mut self) -> Vec<String> {
        let told = |notice: Failure| format!("{} {}", notice.code, notice.message);
        self.session.notices().into_iter().map(told).collect()
    }

    /// What comes of a text: the rows or the tag of its last statement, or the first error.
    pub fn say(&mut self, text: &str) -> String {
        self.ask(text).unwrap_or_else(|failure| format!("{} {}", failure.code, failure.message))
    }

    /// The same for what must succeed.
    pub fn good(&mut self, text: &str) -> String {
        self.ask(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"))
    }

    /// What its client was to know since it was last asked: SQLSTATEs and sentences.
    pub fn noted(&mut self) -> Vec<String> {
        let notices = self.session.notices();
        notices.into_iter().map(|notice| format!("{} {}", notice.code, notice.message)).collect()
    }

    /// Each of these is refused with this SQLSTATE and these words; it is rolled back then.
    pub fn refused(&mut self, all: &[(&str, &str, &str)]) {
        for (text, code, says) in all {
            let said = self.say(text);
            assert!(said.starts_with(code) && said.contains(says), "{text}: {said}");
            self.say("ROLLBACK");
        }
    }

    /// COPY FROM STDIN with these lines: its tag, or the error.
    pub fn copy(&mut self, text: &str, lines: &str) -> String {
        self.copy_after(text, Duration::ZERO, lines)
    }

    /// The same, the lines so long after the statement.
    pub fn copy_after(&mut self, text: &str, pause: Duration, lines: &str) -> String {
        let said = self.good(text);
        assert!(said.starts_with("CopyIn"), "{text}: {said}");
        if !pause.is_zero() {
            self.rest(pause);
        }
        let session = &mut self.session;
        self.runtime.block_on(async {
            // As clients send them.
            let mut sent = Ok(());
            for piece in lines.as_bytes().chunks(64 << 10) {
                sent = session.copy_data(piece.to_vec().into()).await;
                if sent.is_err() {
                    break;
                }
            }
            let done = match sent {
                Ok(()) => session.copy_done().await,
                Err(failure) => Err(failure),
            };
            match done {
                Ok(tag) => tag,
                Err(failure) => {
                    let failure = session.copy_ended(failure).await;
                    session.failed();
                    format!("{} {}", failure.code, failure.message)
                }
            }
        })
    }

    pub fn ask(&mut self, text: &str) -> Result<String, Failure> {
        let (session, mut last) = (&mut self.session, String::new());
        self.runtime.block_on(async {
            let parsed = session.split(text)?;
            if parsed.len() > 1 {
                session.begin_group();
            }
            for one in &parsed {
                match told(session, one).await {
                    Ok(said) => last = said,
                    Err(failure) => {
                        session.failed();
                        session.end_group().await?;
                        return Err(failure);
                    }
                }
            }
            session.end_group().await?;
            Ok(last)
        })
    }
}

async fn told(session: &mut SqlSession, parsed: &sql::plan::Parsed) -> Result<String, Failure> {
    let (plan, _) = session.prepare(parsed, &[]).await?;
    let outcome = session.execute(plan, Vec::new()).await?;
    let shown = |value: &types::data::Value| match value.is_null() {
        true => "-".to_string(),
        false => pg::text::to_text(value),
    };
    Ok(match outcome {
        Outcome::Rows(tag, mut rows) => {
            let mut lines = Vec::new();
            while let Some(row) = rows.next().await {
                lines.push(row?.iter().map(shown).collect::<Vec<_>>().join("|"));
            }
            if lines.is_empty() { format!("{tag} 0") } else { lines.join("\n") }
        }
        Outcome::Done(tag) | Outcome::Set(tag, _) => tag,
        other => format!("{other:?}"),
    })
}

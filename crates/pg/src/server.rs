//! The door itself: connections are accepted, logged in, and their statements can be stopped from another
//! connection.

use crate::failure::{Failure, code};
use crate::service::{Cancel, Login, Service};
use crate::session::Conversation;
use crate::tls::Tls;
use crate::wire::scram::{self, Verifier};
use crate::wire::{End, Link, Opening};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a client may take to log in.
const LOGIN: Duration = Duration::from_secs(30);
/// How long a stopping server lets clients read why.
const GOODBYE: Duration = Duration::from_millis(500);

/// Who may come in, and how many.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The only user.
    pub user: String,
    /// Its password; `None`: none is asked for.
    pub password: Option<String>,
    /// The most connections that have logged in or are about to.
    pub max_connections: usize,
    /// For clients that ask for encryption; `None`: they are told that there is none.
    pub tls: Option<Tls>,
    /// Whoever comes from another machine must ask for it.
    pub must_encrypt: bool,
}

struct Shared<S> {
    service: S,
    user: String,
    verifier: Option<Verifier>,
    max: usize,
    tls: Option<Tls>,
    must_encrypt: bool,
    open: AtomicUsize,
    next_pid: AtomicI32,
    running: Mutex<HashMap<i32, (i32, Cancel)>>,
}

/// Serves until `stopping` says true; then every client is told so and hung up on.
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: S,
    rules: Rules,
    stopping: watch::Receiver<bool>,
) {
    let shared = Arc::new(Shared {
        service,
        user: rules.user,
        verifier: rules.password.as_deref().map(Verifier::new),
        max: rules.max_connections,
        tls: rules.tls,
        must_encrypt: rules.must_encrypt,
        open: AtomicUsize::new(0),
        next_pid: AtomicI32::new(1),
        running: Mutex::default(),
    });
    let mut asked = stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = asked.wait_for(|stopping| *stopping) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let (shared, stopping) = (shared.clone(), stopping.clone());
                tokio::spawn(async move { shared.connection(stream, stopping).await });
            }
            // The system has no room, as of file descriptors: nothing tells when it has.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let gone = async {
        while shared.open.load(Ordering::Acquire) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    // Whoever does not read is hung up on all the same.
    let _ = tokio::time::timeout(GOODBYE, gone).await;
}

/// One of the connections that are counted.
struct Place<S>(Arc<Shared<S>>);

impl<S> Drop for Place<S> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection whose statements can be stopped.
struct Listed<S> {
    shared: Arc<Shared<S>>,
    pid: i32,
}

impl<S> Drop for Listed<S> {
    fn drop(&mut self) {
        self.shared.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pid);
    }
}

impl<S: Service> Shared<S> {
    async fn connection(self: Arc<Self>, stream: TcpStream, stopping: watch::Receiver<bool>) {
        // A delayed answer is worse than a small packet; a socket that refuses is about to fail anyhow.
        let _ = stream.set_nodelay(true);
        let address = stream.peer_addr().ok();
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        let _place = Place(self.clone());
        let is_local = address.is_some_and(|address| address.ip().is_loopback());
        let must_encrypt = self.must_encrypt && !is_local;
        let mut link = Link::new(stream, stopping);
        let login = self.login(&mut link, before >= self.max, must_encrypt);
        let login = tokio::time::timeout(LOGIN, login).await;
        let mut login = match login {
            Ok(Ok(Some(login))) => login,
            Ok(Ok(None)) | Ok(Err(End::Gone)) | Err(_) => return,
            Ok(Err(End::Failed(failure))) => return link.goodbye(&failure).await,
        };
        let cancel = Cancel::default();
        let listed = self.list(&cancel);
        (login.pid, login.address) = (listed.pid, address);
        let session = match self.service.open(&login, cancel.clone()) {
            Ok(session) => session,
            Err(failure) => return link.goodbye(&failure).await,
        };
        self.greet(&mut link, &login, listed.pid);
        let mut talk = Conversation::<S>::new(link, session, cancel);
        if let Err(End::Failed(failure)) = talk.run().await {
            talk.say_goodbye(&failure).await;
        }
    }

    /// `None`: there is nothing more to say to this client.
    async fn login(&self, link: &mut Link, full: bool, must_encrypt: bool) -> Result<Option<Login>, End> {
        let (minor, parameters) = loop {
            match link.opening().await? {
                None => return Ok(None),
                Some(Opening::Encrypt) if self.tls.is_some() && !link.is_encrypted() => {
                    link.encrypt(self.tls.as_ref().expect("looked at above")).await?;
                }
                Some(Opening::Encrypt | Opening::EncryptGss) => {
                    link.refuse_encryption();
                    link.flush().await?;
                }
                Some(Opening::Cancel { pid, key }) => {
                    self.stop_statement(pid, key);
                    return Ok(None);
                }
                Some(Opening::Startup { major: 3, minor, parameters }) => break (minor, parameters),
                Some(Opening::Startup { major, minor, .. }) => {
                    let what = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0");
                    return Err(Failure::new(code::UNSUPPORTED, what).fatal().into());
                }
            }
        };
        if must_encrypt && !link.is_encrypted() {
            let message = "connections from other machines must be encrypted";
            return Err(Failure::new("28000", message).hint("use sslmode=require").fatal().into());
        }
        let (login, unknown) = read_login(parameters)?;
        if minor > 0 || !unknown.is_empty() {
            link.negotiate(unknown);
        }
        if full {
            let message = "sorry, too many clients already";
            return Err(Failure::new(code::TOO_MANY, message).fatal().into());
        }
        let known = login.user == self.user;
        if let Some(verifier) = &self.verifier {
            if !scram::check(link, verifier, &login.user, known).await? {
                return Ok(None);
            }
        } else if !known {
            let message = format!("role \"{}\" does not exist", login.user);
            let hint = format!("the user is \"{}\"", self.user);
            return Err(Failure::new("28000", message).hint(hint).fatal().into());
        }
        link.admitted();
        Ok(Some(login))
    }

    fn list(self: &Arc<Self>, cancel: &Cancel) -> Listed<S> {
        let pid = self.next_pid.fetch_add(1, Ordering::Relaxed);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(pid, (scram::random_key(), cancel.clone()));
        Listed { shared: self.clone(), pid }
    }

    fn greet(&self, link: &mut Link, login: &Login, pid: i32) {
        link.welcome();
        for (name, value) in self.service.parameters() {
            link.parameter(name, &value);
        }
        link.parameter("session_authorization", &login.user);
        let application = login.parameters.get("application_name").map_or("", String::as_str);
        link.parameter("application_name", application);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let key = running.get(&pid).map_or(0, |(key, _)| *key);
        drop(running);
        link.key(pid, key);
    }

    fn stop_statement(&self, pid: i32, key: i32) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cancel)) = running.get(&pid).filter(|(known, _)| *known == key) {
            cancel.ask();
        }
    }
}

/// User, database and the rest; and protocol options, which are all unknown here.
fn read_login(parameters: Vec<(String, String)>) -> Result<(Login, Vec<String>), Failure> {
    let (options, parameters): (Vec<_>, Vec<_>) =
        parameters.into_iter().partition(|(name, _)| name.starts_with("_pq_."));
    let mut parameters: BTreeMap<String, String> = parameters.into_iter().collect();
    let Some(user) = parameters.remove("user").filter(|user| !user.is_empty()) else {
        return Err(Failure::new("28000", "no PostgreSQL user name specified in startup packet").fatal());
    };
    let database = parameters.remove("database").filter(|name| !name.is_empty());
    let database = database.unwrap_or_else(|| user.clone());
    if parameters.remove("replication").is_some_and(|value| !["false", "off", "no", "0"].contains(&&*value)) {
        return Err(Failure::unsupported(
            "PostgreSQL's replication protocol",
            "copies are kept by the cluster",
        )
        .fatal());
    }
    let unknown = options.into_iter().map(|(name, _)| name).collect();
    Ok((Login { user, database, parameters, pid: 0, address: None }, unknown))
}

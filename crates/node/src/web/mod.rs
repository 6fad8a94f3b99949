//! The web page: the whole cluster as this node sees it, drawn on the server, live by one event stream.
//!
//! | file | what |
//! | --- | --- |
//! | `gather` | asks the other nodes and puts the cluster map together, only while somebody looks |
//! | `peers` | one question to another node over HTTP, bounded in time and length |
//! | `history` | the last minutes of this node, a sample a second |
//! | `page`, `parts`, `chart` | HTML and SVG; everything that comes from outside is escaped |
//! | `desk` | what only a controller knows or does: failovers, operators' commands |
//! | `operate` | commands that come with the operator's token |
//!
//! It is for people; safety never rests on it. Nothing here waits for the executor, or makes it wait.

mod chart;
mod desk;
mod gather;
mod history;
mod look;
mod operate;
mod page;
mod parts;
mod peers;

use crate::clock;
use crate::shared_status::SharedStatus;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use desk::Desk;
use futures_util::stream;
use history::History;
use page::Page;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use types::Micros;
use wire::hello::Secret;

/// The most event streams at once; whoever comes then is told to come again.
const STREAMS: usize = 64;
/// So long after the last look nobody is asked any more.
const LINGER: Micros = Micros::from_millis(10_000);
/// How long a page waits for the first cluster map.
const FIRST: Duration = Duration::from_secs(3);
/// The longest command of an operator, bytes.
const COMMAND_BYTES: usize = 1024;
/// A comment on a stream on which nothing happens, so that the browser knows that it lives.
const ALIVE: Duration = Duration::from_secs(10);

const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/live.js");

/// Nothing from elsewhere, nothing written into the page: a name that got past the escaping could still do
/// nothing.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the page's handlers and the task that gathers share.
pub(crate) struct Web {
    shared_status: Arc<SharedStatus>,
    desk: Desk,
    /// What operators must say; `None`: the page only shows.
    token: Option<Secret>,
    history: Mutex<History>,
    /// The newest cluster map; `None` while nobody looks.
    newest: watch::Sender<Option<Arc<Page>>>,
    looked: Notify,
    looked_at: AtomicU64,
    streams: Arc<Semaphore>,
}

impl Web {
    /// For the node of this board. `cluster` says how a controller is reached.
    pub fn new(
        shared_status: Arc<SharedStatus>,
        cluster: client::Options,
        token: Option<Secret>,
    ) -> Arc<Web> {
        Arc::new(Web {
            shared_status,
            desk: Desk::new(cluster),
            token,
            history: Mutex::default(),
            newest: watch::Sender::new(None),
            looked: Notify::new(),
            looked_at: AtomicU64::new(0),
            streams: Arc::new(Semaphore::new(STREAMS)),
        })
    }

    /// The page's routes.
    pub fn routes(self: &Arc<Web>) -> Router {
        Router::new()
            .route("/", get(show))
            .route("/events", get(events))
            .route("/history.json", get(past))
            .route("/page.css", get(async || asset("text/css; charset=utf-8", STYLE)))
            .route("/live.js", get(async || asset("text/javascript; charset=utf-8", SCRIPT)))
            .route("/operate", post(operate).layer(DefaultBodyLimit::max(COMMAND_BYTES)))
            .with_state(self.clone())
    }

    /// What goes on beside the requests: a sample a second, and the gathering.
    pub async fn run(self: Arc<Web>) {
        tokio::join!(history::record(&self), gather::run(&self));
    }

    /// Somebody looks.
    fn look(&self) {
        self.looked_at.store(clock::mono().0, Ordering::Release);
        self.looked.notify_one();
    }

    /// True while somebody looks, or has a moment ago.
    fn is_watched(&self) -> bool {
        let since = clock::mono().since(Micros(self.looked_at.load(Ordering::Acquire)));
        since < LINGER || self.streams.available_permits() < STREAMS
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}

/// The page, complete as it is: without a script it is read as it was when it was asked for.
async fn show(State(web): State<Arc<Web>>) -> Response {
    web.look();
    let mut newest = web.newest.subscribe();
    let page = tokio::time::timeout(FIRST, newest.wait_for(Option::is_some)).await;
    let Some(page) = page.ok().and_then(|page| page.ok().and_then(|page| page.clone())) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "this node is busy; try again\n").into_response();
    };
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, page.document(web.token.is_some())).into_response()
}

/// A reader of the event stream: what it was sent last, and its place among those that are allowed.
struct Reader {
    newest: watch::Receiver<Option<Arc<Page>>>,
    sent: Option<Arc<Page>>,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    /// The sections that are not as they were sent. A reader that is slow misses cluster maps in between, and
    /// nothing piles up.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Reader)> {
        loop {
            let page = self.newest.wait_for(Option::is_some).await.ok()?.clone()?;
            self.newest.mark_unchanged();
            let changed = page.changed_since(self.sent.as_deref());
            self.sent = Some(page);
            if let Some(text) = changed {
                return Some((Ok(Event::default().data(text)), self));
            }
            self.newest.changed().await.ok()?;
        }
    }
}

async fn events(State(web): State<Arc<Web>>) -> Response {
    let Ok(place) = web.streams.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open on this node\n").into_response();
    };
    web.look();
    let reader = Reader { newest: web.newest.subscribe(), sent: None, _place: place };
    let stream = stream::unfold(reader, Reader::next);
    Sse::new(stream).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

/// The samples after `?since=`, in seconds since 1970.
async fn past(State(web): State<Arc<Web>>, RawQuery(query): RawQuery) -> Response {
    let since = query.as_deref().and_then(|query| query.strip_prefix("since=")?.parse().ok()).unwrap_or(0);
    let text = web.history().text(since);
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn operate(State(web): State<Arc<Web>>, headers: HeaderMap, body: Bytes) -> Response {
    match operate::run(&web.desk, web.token.as_ref(), &headers, &body).await {
        Ok(said) => {
            // What was asked for is to be seen soon.
            web.look();
            format!("{said}\n").into_response()
        }
        Err((code, why)) => (code, format!("{why}\n")).into_response(),
    }
}

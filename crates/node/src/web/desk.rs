//! What only a controller knows or does: the failovers, and what operators ask for. A thread with a client of
//! its own, that lives while it is asked.

use client::{Client, Options};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use wire::control::AdminCommand;

/// A client that was not asked for so long is hung up: it would be sent every change of the cluster map.
const IDLE: Duration = Duration::from_secs(10);
/// How long finding a controller may take.
const CONNECT: Duration = Duration::from_secs(2);

/// A controller's answer: JSON, or a sentence.
pub(super) type Answer = Result<String, String>;

struct Ask {
    command: AdminCommand,
    within: Duration,
    answer: oneshot::Sender<Answer>,
}

/// The way to the thread.
pub(super) struct Desk {
    options: Options,
    thread: Arc<Mutex<Option<Sender<Ask>>>>,
}

impl Desk {
    /// Nothing is started before it is asked.
    pub fn new(options: Options) -> Desk {
        Desk { options: Options { timeout: CONNECT, ..options }, thread: Arc::default() }
    }

    /// Asks a controller. The answer comes within that time and [`CONNECT`], or the receiver's sender is
    /// dropped.
    pub fn ask(&self, command: AdminCommand, within: Duration) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let ask = Ask { command, within, answer };
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let asks = match thread.take() {
            Some(asks) => asks,
            None => self.start(),
        };
        // Fails only when the thread could not be started; then nobody answers, and the next one tries again.
        *thread = asks.send(ask).is_ok().then_some(asks);
        answered
    }

    fn start(&self) -> Sender<Ask> {
        let (asks, asked) = mpsc::channel();
        let (options, place) = (self.options.clone(), self.thread.clone());
        let run = move || serve(&options, &asked, &place);
        // It ends by itself, at the latest a while after the node: nothing waits for it.
        if let Err(error) = std::thread::Builder::new().name("web-desk".into()).spawn(run) {
            eprintln!("http: {error}");
        }
        asks
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // The thread holds the place, and with it its own sender.
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn serve(options: &Options, asked: &Receiver<Ask>, place: &Mutex<Option<Sender<Ask>>>) {
    let mut client: Option<Client> = None;
    loop {
        let ask = match asked.recv_timeout(IDLE) {
            Ok(ask) => ask,
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // Whoever asks next starts another thread; what came just now is still answered.
                place.lock().unwrap_or_else(PoisonError::into_inner).take();
                match asked.try_recv() {
                    Ok(ask) => ask,
                    Err(_) => return,
                }
            }
        };
        let answer = answer(options, &mut client, ask.command, ask.within);
        // Nobody waits any more.
        let _ = ask.answer.send(answer);
    }
}

fn answer(options: &Options, client: &mut Option<Client>, command: AdminCommand, within: Duration) -> Answer {
    let mut connected = match client.take() {
        Some(client) => client,
        None => Client::connect(options.clone()).map_err(|error| error.to_string())?,
    };
    let answer = connected.admin_within(command, within).map_err(|error| error.to_string());
    *client = Some(connected);
    answer
}

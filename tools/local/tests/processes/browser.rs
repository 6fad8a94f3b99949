//! A real browser without a window, driven by its DevTools protocol.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};
use understudy_local::process::{Process, Program};

/// How long anything may take that is waited for.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// A running browser with one open page. Dropped, it is ended by its own pid.
pub struct Browser {
    process: Process,
    socket: WebSocket<std::net::TcpStream>,
    session: Option<String>,
    number: u64,
    /// Errors that the page's scripts ran into, and what the page was forbidden.
    pub complaints: Vec<String>,
    _dir: tempfile::TempDir,
}

/// Where the browser is installed; `None`: nowhere.
pub fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    /// Starts the browser with an empty page.
    pub fn start(binary: PathBuf) -> Browser {
        let dir = tempfile::tempdir().expect("a directory");
        let mut arguments: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
        ]
        .map(String::from)
        .to_vec();
        arguments.push(format!("--user-data-dir={}", dir.path().join("profile").display()));
        arguments.push("about:blank".into());
        let log = dir.path().join("log");
        let program = Program { name: "browser".into(), binary, arguments, env: vec![], log: log.clone() };
        let mut process = Process::start(program).expect("the browser starts");
        let ports = dir.path().join("profile/DevToolsActivePort");
        let deadline = Instant::now() + WAIT_LIMIT;
        let (port, path) = loop {
            let text = std::fs::read_to_string(&ports).unwrap_or_default();
            if let Some((port, path)) = text.split_once('\n').filter(|(_, path)| !path.is_empty()) {
                break (port.to_string(), path.trim().to_string());
            }
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(process.is_running(), "the browser ended: {}", said());
            assert!(Instant::now() < deadline, "the browser opens no port: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        };
        let address = format!("127.0.0.1:{port}");
        let stream = std::net::TcpStream::connect(&address).expect("the browser's port");
        stream.set_read_timeout(Some(WAIT_LIMIT)).expect("a timeout");
        let config = WebSocketConfig::default();
        let url = format!("ws://{address}{path}");
        let opened = tungstenite::client::client_with_config(url, stream, Some(config));
        let (socket, _) = opened.expect("the browser speaks its protocol");
        let mut browser =
            Browser { process, socket, session: None, number: 0, complaints: Vec::new(), _dir: dir };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.ask("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_string);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            let _ = browser.ask(domain, json!({}));
        }
        browser
    }

    /// Sends a command and waits for what came of it.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(command.to_string())).expect("the browser listens");
        loop {
            let message = self.socket.read().unwrap_or_else(|error| panic!("{method}: {error}"));
            let Ok(text) = message.to_text() else { continue };
            let Ok(answer) = serde_json::from_str::<Value>(text) else { continue };
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    /// Keeps what the page complains of. A stream to a node that is gone is no fault of the page.
    fn note(&mut self, event: &Value) {
        let entry = &event["params"]["entry"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(event["params"].to_string()),
            Some("Log.entryAdded") if entry["level"] == "error" && entry["source"] != "network" => {
                self.complaints.push(entry.to_string());
            }
            _ => {}
        }
    }

    /// Opens a page and waits until it is there.
    pub fn open(&mut self, url: &str) {
        let opened = self.ask("Page.navigate", json!({ "url": url }));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        let _ = self.wait("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// What an expression is on the page; a promise is waited for.
    pub fn run(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let ended = self.ask("Runtime.evaluate", parameters);
        assert!(ended["exceptionDetails"].is_null(), "{expression}: {}", ended["exceptionDetails"]);
        ended["result"]["value"].clone()
    }

    /// Waits until an expression holds, looking at every change of the page. What it is then.
    pub fn wait(&mut self, expression: &str) -> Value {
        let promise = format!(
            "new Promise((resolve, reject) => {{
                const look = () => {{
                    const found = ({expression});
                    if (!found) return;
                    observer.disconnect();
                    resolve(found);
                }};
                const observer = new MutationObserver(look);
                const what = {{ subtree: true, childList: true, characterData: true, attributes: true }};
                observer.observe(document, what);
                addEventListener('load', look);
                setTimeout(() => reject(new Error('not within the time; the page says: ' + document.body.innerText)), {});
                look();
            }})",
            WAIT_LIMIT.as_millis() / 2
        );
        self.run(&promise)
    }

    /// Ends the browser as a person does.
    pub fn close(mut self) {
        self.session = None;
        let _ = self.ask("Browser.close", json!({}));
        self.process.wait(Duration::from_secs(10));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.process.kill();
    }
}

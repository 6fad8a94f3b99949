//! Processes: started with their output in a file, ended by their own pid, never signalled unless they are
//! surely ours.
//!
//! A child dies with the thread that started it, so clusters are started from a thread that lives as long as
//! they do.

use crate::error::LocalError;
use std::fs::{self, OpenOptions};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What may be sent to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Please stop.
    Terminate,
    /// Gone at once.
    Kill,
    /// Frozen, with all its connections open.
    Stop,
    /// Goes on.
    Continue,
}

impl Signal {
    fn number(self) -> libc::c_int {
        match self {
            Signal::Terminate => libc::SIGTERM,
            Signal::Kill => libc::SIGKILL,
            Signal::Stop => libc::SIGSTOP,
            Signal::Continue => libc::SIGCONT,
        }
    }
}

/// A process to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// What messages call it.
    pub name: String,
    /// The file to run.
    pub binary: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Added to its environment.
    pub env: Vec<(String, String)>,
    /// Where its output goes, at the end of what is there.
    pub log: PathBuf,
}

impl Program {
    /// The same with further settings: `section.key` and the value. They win over earlier ones.
    pub fn set<'a>(mut self, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Program {
        for (key, value) in settings {
            self.arguments.extend(["--set".to_string(), format!("{key}={value}")]);
        }
        self
    }
}

/// A process that this one started.
#[derive(Debug)]
pub struct Process {
    program: Program,
    child: Child,
}

impl Process {
    /// Starts it, in a process group of its own, so that Ctrl-C at a terminal reaches only the one who starts
    /// and stops.
    pub fn start(program: Program) -> Result<Process, LocalError> {
        let log = OpenOptions::new().create(true).append(true).open(&program.log);
        let log = log.map_err(LocalError::io(&program.log))?;
        let errors = log.try_clone().map_err(LocalError::io(&program.log))?;
        let mut command = Command::new(&program.binary);
        command.args(&program.arguments).envs(program.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        die_with_parent(&mut command);
        let child = command.spawn().map_err(LocalError::io(&program.binary))?;
        Ok(Process { program, child })
    }

    /// What it was started from.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// True until it ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal. True if there was somebody to receive it: a pid of ours is not given to another before
    /// it is waited for.
    pub fn signal(&mut self, signal: Signal) -> bool {
        self.is_running() && send(self.pid(), signal)
    }

    /// Ends it at once, and waits until it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::Kill);
        // An error means that it was waited for already.
        let _ = self.child.wait();
    }

    /// Waits until it ends, at most so long. True if it ended.
    pub fn wait(&mut self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        while self.is_running() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Why it ended, for a sentence: the last line it wrote, else how it ended.
    pub fn last_words(&mut self) -> (String, Option<i32>) {
        let status = self.child.try_wait().ok().flatten();
        let how = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("it ended with status {code}"),
            Some((_, Some(signal))) => format!("signal {signal} ended it"),
            _ => "it still runs".to_string(),
        };
        (last_line(&self.program.log).unwrap_or(how), status.and_then(|status| status.code()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last line of a log that says something.
pub fn last_line(log: &Path) -> Option<String> {
    let text = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4096)..]).into_owned();
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_string)
}

/// True if the process with this pid has `mark`, a path that only ours was started with, among its arguments.
pub fn is_ours(pid: i32, mark: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mark = mark.as_os_str().as_encoded_bytes();
    line.split(|byte| *byte == 0).any(|argument| argument == mark)
}

/// True if the process is stopped by a signal.
pub fn is_stopped(pid: i32) -> bool {
    let Ok(line) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state follows the name, which is in parentheses and may hold anything.
    line.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['T', 't']))
}

/// Signals a process that somebody else started, if it is ours. False if it is not.
pub fn signal_ours(pid: i32, mark: &Path, signal: Signal) -> bool {
    is_ours(pid, mark) && send(pid, signal)
}

/// The number of the user who runs this process.
#[expect(unsafe_code, reason = "the user's number has no safe interface in the standard library")]
pub(crate) fn user() -> u32 {
    // SAFETY: it takes nothing, touches no memory of ours and cannot fail.
    unsafe { libc::geteuid() }
}

#[expect(unsafe_code, reason = "sending a signal has no safe interface in the standard library")]
fn send(pid: i32, signal: Signal) -> bool {
    // 0 and negative numbers would mean whole groups.
    assert!(pid > 1, "{pid} names no single process of ours");
    // SAFETY: kill takes two numbers and touches no memory of ours.
    unsafe { libc::kill(pid, signal.number()) == 0 }
}

#[expect(unsafe_code, reason = "what a child does before it becomes another program has no safe interface")]
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id() as i32;
    let before = move || {
        // SAFETY: both calls are allowed between fork and exec, and touch no memory of ours.
        let (set, still) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid() == parent) };
        match (set, still) {
            (0, true) => Ok(()),
            (0, false) => Err(std::io::Error::other("the starting process has ended")),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure allocates nothing on its good path and takes no lock.
    unsafe { command.pre_exec(before) };
}

/// Set by SIGINT and SIGTERM from [`catch_stop`] on.
static STOP: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// From now on SIGINT and SIGTERM are only counted: [`stops_asked`] says how often.
#[expect(unsafe_code, reason = "handling a signal has no safe interface in the standard library")]
pub fn catch_stop() {
    extern "C" fn count(_: libc::c_int) {
        STOP.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let handler = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only adds to an atomic number, which a signal handler may do.
        unsafe { libc::signal(signal, handler) };
    }
}

/// How often this process was asked to stop.
pub fn stops_asked() -> u32 {
    STOP.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path) -> Process {
        let program = Program {
            name: "sleeper".into(),
            binary: "/bin/sh".into(),
            arguments: vec!["-c".into(), "echo up; sleep 60".into(), dir.display().to_string()],
            env: Vec::new(),
            log: dir.join("sleeper.log"),
        };
        Process::start(program).expect("a shell starts")
    }

    #[test]
    fn a_process_is_known_by_its_arguments_and_stopped_by_its_pid() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut process = sleeper(dir.path());
        let pid = process.pid();
        let deadline = Instant::now() + Duration::from_secs(10);
        while last_line(&dir.path().join("sleeper.log")).as_deref() != Some("up") {
            assert!(Instant::now() < deadline, "the process says that it is up");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(is_ours(pid, dir.path()));
        assert!(!is_ours(pid, Path::new("/elsewhere")));
        assert!(!signal_ours(pid, Path::new("/elsewhere"), Signal::Kill));
        assert!(process.signal(Signal::Stop));
        while !is_stopped(pid) {
            assert!(Instant::now() < deadline, "the process stops");
        }
        assert!(process.signal(Signal::Continue));
        assert!(signal_ours(pid, dir.path(), Signal::Terminate));
        assert!(process.wait(Duration::from_secs(10)));
        assert!(!process.signal(Signal::Kill));
        assert!(!is_ours(pid, dir.path()));
    }

    #[test]
    fn dropping_a_process_ends_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let process = sleeper(dir.path());
        let pid = process.pid();
        drop(process);
        assert!(!is_ours(pid, dir.path()));
    }
}

//! A peer's server process: started in a folder of its own, stopped by its process id.

use crate::error::{BenchError, During};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that is stopped when the value is dropped.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    stop: Signal,
}

impl Server {
    /// Starts it with its output in `log`. `stop` is the signal that makes it end with all its children.
    pub fn start(
        command: &mut Command,
        address: SocketAddr,
        log: &Path,
        stop: Signal,
    ) -> Result<Server, BenchError> {
        let what = format!("{} cannot be started", command.get_program().display());
        // A process group of its own: Ctrl-C reaches only us, and we stop it in good order.
        command.process_group(0);
        end_with_parent(command, stop);
        let output = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = output.map_err(|error| BenchError::io(log.display().to_string(), error))?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().during(&what)?;
        Ok(Server { child, address, stop })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connects, trying again until the time is over. The error says how the process ended, if it has.
    pub fn connect(&mut self, within: Duration) -> Result<TcpStream, String> {
        let deadline = Instant::now() + within;
        loop {
            let error = match TcpStream::connect(self.address) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the server ended with {status}"));
            }
            if Instant::now() >= deadline {
                return Err(format!("{} does not answer: {error}", self.address));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// If the thread that starts it ends without stopping it, the kernel sends it this signal.
#[expect(unsafe_code, reason = "what a child does before it becomes another program has no safe interface")]
fn end_with_parent(command: &mut Command, stop: Signal) {
    let parent = Pid::from_raw(std::process::id() as i32);
    let before = move || {
        set_parent_process_death_signal(Some(stop))?;
        // The parent may have ended before the wish was noted.
        if getppid() == parent { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: the closure makes two system calls; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(before) };
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(pid) = Pid::from_raw(self.child.id() as i32) else { return };
        // It is our child and not yet waited for, so the id cannot have gone to another process.
        let asked = kill_process(pid, self.stop);
        let deadline = Instant::now() + Duration::from_secs(5);
        while asked.is_ok() && Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address on this machine that was free a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(|error| BenchError::io("no free port was found", error))
}

/// A program by its name, looked for where programs are.
pub(crate) fn find_program(name: &str, also: &[&Path]) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(also.iter().map(|folder| folder.to_path_buf()));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

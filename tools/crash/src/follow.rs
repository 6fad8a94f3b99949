//! Follows the system calls of a process and all its threads with ptrace.
//!
//! A [`Watcher`] sees every call before it is made and after. Of the calls that it takes for exclusive one at
//! a time is under way: a thread that is about to make another one is held until the first has returned. So
//! the order in which they are seen is the order in which they take effect.

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::{BTreeMap, VecDeque};
use std::process::Command;

/// A system call as a thread is about to make it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// Its arguments.
    pub args: [u64; 6],
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is made.
    Go,
    /// It is not made, and fails with this error.
    Fail(Errno),
    /// It is not made: the process is killed.
    Kill,
}

/// Who looks at the calls.
pub trait Watcher {
    /// True if no two such calls may be under way at the same time.
    fn is_exclusive(&self, call: &Call) -> bool;
    /// The thread is about to make the call.
    fn enter(&mut self, thread: Pid, call: &Call) -> Result<Action, String>;
    /// The call returned `result`, below zero for an error.
    fn leave(&mut self, thread: Pid, call: &Call, result: i64) -> Result<(), String>;
}

/// Why a process was not followed to its end.
#[derive(Debug)]
pub enum FollowError {
    /// The system does not let one process trace another, or the process could not be started.
    NotPermitted(String),
    /// The watcher refused to go on.
    Refused(String),
}

/// How a followed process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With this exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// Called by the process that is to be followed, in the thread whose calls and whose threads' calls are seen.
/// Returns once the other one follows.
pub fn let_oneself_be_followed() -> Result<(), String> {
    ptrace::traceme().and_then(|()| raise(Signal::SIGSTOP)).map_err(|errno| errno.to_string())
}

/// What a thread is doing.
#[derive(Default)]
struct Thread {
    /// The call that it is in.
    call: Option<Call>,
    /// The call fails with this.
    fails: Option<Errno>,
}

/// Starts the process and follows it to its end.
pub fn follow(command: &mut Command, watcher: &mut dyn Watcher) -> Result<Ended, FollowError> {
    let child = command.spawn().map_err(|error| FollowError::NotPermitted(error.to_string()))?;
    let process = Pid::from_raw(child.id() as i32);
    let mut follower = Follower {
        process,
        watcher,
        begun: false,
        threads: BTreeMap::new(),
        busy: None,
        waiting: VecDeque::new(),
    };
    let ended = follower.run();
    if ended.is_err() {
        // It may have ended by itself.
        let _ = kill(process, Signal::SIGKILL);
        while wait().is_ok_and(|status| status.pid().is_some()) {}
    }
    ended
}

fn wait() -> nix::Result<WaitStatus> {
    waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD))
}

fn not_permitted(errno: Errno) -> FollowError {
    FollowError::NotPermitted(errno.to_string())
}

struct Follower<'a> {
    process: Pid,
    watcher: &'a mut dyn Watcher,
    /// Its first thread has been seen.
    begun: bool,
    threads: BTreeMap<Pid, Thread>,
    /// The thread that is in an exclusive call.
    busy: Option<Pid>,
    /// Threads that are held before one.
    waiting: VecDeque<Pid>,
}

impl Follower<'_> {
    fn run(&mut self) -> Result<Ended, FollowError> {
        loop {
            match wait().map_err(not_permitted)? {
                WaitStatus::Stopped(thread, Signal::SIGSTOP) if !self.threads.contains_key(&thread) => {
                    self.begin(thread)?;
                }
                WaitStatus::Stopped(thread, signal) => self.go_on(thread, Some(signal))?,
                WaitStatus::PtraceEvent(thread, ..) => self.go_on(thread, None)?,
                WaitStatus::PtraceSyscall(thread) => self.at_call(thread)?,
                WaitStatus::Exited(thread, code) => {
                    self.gone(thread)?;
                    if thread == self.process {
                        return self.end(Ended::Code(code));
                    }
                }
                WaitStatus::Signaled(thread, signal, _) => {
                    self.gone(thread)?;
                    if thread == self.process {
                        return self.end(Ended::Signal(signal as i32));
                    }
                }
                WaitStatus::Continued(_) | WaitStatus::StillAlive => {}
            }
        }
    }

    fn end(&self, ended: Ended) -> Result<Ended, FollowError> {
        if !self.begun && ended == Ended::Code(NOT_FOLLOWED) {
            return Err(FollowError::NotPermitted("this system does not permit ptrace".into()));
        }
        Ok(ended)
    }

    /// The first stop of a thread.
    fn begin(&mut self, thread: Pid) -> Result<(), FollowError> {
        if !self.begun {
            self.begun = true;
            let options = Options::PTRACE_O_TRACESYSGOOD
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEFORK
                | Options::PTRACE_O_TRACEVFORK
                | Options::PTRACE_O_EXITKILL;
            ptrace::setoptions(thread, options).map_err(not_permitted)?;
        }
        self.threads.insert(thread, Thread::default());
        self.go_on(thread, None)
    }

    fn gone(&mut self, thread: Pid) -> Result<(), FollowError> {
        self.threads.remove(&thread);
        self.waiting.retain(|waiting| *waiting != thread);
        if self.busy == Some(thread) { self.free() } else { Ok(()) }
    }

    /// Lets a thread run to its next stop. It may have been killed meanwhile.
    fn go_on(&self, thread: Pid, signal: Option<Signal>) -> Result<(), FollowError> {
        match ptrace::syscall(thread, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(not_permitted(errno)),
        }
    }

    fn at_call(&mut self, thread: Pid) -> Result<(), FollowError> {
        let known = self.threads.get_mut(&thread).ok_or_else(|| refused("a thread that nobody knows"))?;
        match known.call.take() {
            Some(call) => self.leave(thread, call),
            None => self.arrive(thread),
        }
    }

    /// A thread is about to make a call.
    fn arrive(&mut self, thread: Pid) -> Result<(), FollowError> {
        let Some(call) = call(thread)? else { return Ok(()) };
        if !self.watcher.is_exclusive(&call) {
            return self.enter(thread, call);
        }
        if self.busy.is_some() {
            self.waiting.push_back(thread);
            return Ok(());
        }
        self.busy = Some(thread);
        self.enter(thread, call)
    }

    fn enter(&mut self, thread: Pid, call: Call) -> Result<(), FollowError> {
        let fails = match self.watcher.enter(thread, &call).map_err(FollowError::Refused)? {
            Action::Go => None,
            Action::Kill => return kill(self.process, Signal::SIGKILL).map_err(not_permitted),
            Action::Fail(errno) => {
                let mut registers = ptrace::getregs(thread).map_err(not_permitted)?;
                // No such call: nothing happens.
                registers.orig_rax = u64::MAX;
                ptrace::setregs(thread, registers).map_err(not_permitted)?;
                Some(errno)
            }
        };
        self.threads.insert(thread, Thread { call: Some(call), fails });
        self.go_on(thread, None)
    }

    fn leave(&mut self, thread: Pid, call: Call) -> Result<(), FollowError> {
        let mut registers = match ptrace::getregs(thread) {
            Err(Errno::ESRCH) => return Ok(()),
            registers => registers.map_err(not_permitted)?,
        };
        let fails = self.threads.get_mut(&thread).and_then(|known| known.fails.take());
        if let Some(errno) = fails {
            registers.rax = (-i64::from(errno as i32)) as u64;
            ptrace::setregs(thread, registers).map_err(not_permitted)?;
        }
        self.watcher.leave(thread, &call, registers.rax as i64).map_err(FollowError::Refused)?;
        self.go_on(thread, None)?;
        if self.busy == Some(thread) { self.free() } else { Ok(()) }
    }

    /// The exclusive call has returned: the next one is made.
    fn free(&mut self) -> Result<(), FollowError> {
        self.busy = None;
        while self.busy.is_none()
            && let Some(next) = self.waiting.pop_front()
        {
            self.arrive(next)?;
        }
        Ok(())
    }
}

/// The exit code of a process that could not let itself be followed.
pub const NOT_FOLLOWED: i32 = 77;

fn refused(why: &str) -> FollowError {
    FollowError::Refused(why.into())
}

/// The call that a stopped thread is about to make; none if it has been killed.
fn call(thread: Pid) -> Result<Option<Call>, FollowError> {
    let registers = match ptrace::getregs(thread) {
        Err(Errno::ESRCH) => return Ok(None),
        registers => registers.map_err(not_permitted)?,
    };
    if registers.rax as i64 != -i64::from(libc::ENOSYS) {
        return Err(refused("a stop at the end of a call was taken for one at its beginning"));
    }
    let args = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
    Ok(Some(Call { number: registers.orig_rax as i64, args }))
}

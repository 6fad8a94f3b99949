//! What a process did below a directory, step by step, and what it said in between.

use crate::calls::{self, FileCall};
use crate::fault::Fault;
use crate::follow::{Action, Call, Watcher};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file or directory; its names come and go. The recorded directory itself is [`Node::ROOT`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node(pub u32);

impl Node {
    /// The recorded directory.
    pub const ROOT: Node = Node(0);
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Entry {
    /// The directory.
    pub dir: Node,
    /// The name.
    pub name: String,
}

/// A change of the directory, or of a file below it, or something said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A name for a file, which may have others.
    Name(Entry, Node),
    /// A name for a new directory.
    NameDir(Entry, Node),
    /// A name goes.
    Unname(Entry),
    /// A name goes and another one comes, in one step.
    Rename(Entry, Entry, Node),
    /// Bytes from an offset on.
    Write(Node, u64, Arc<[u8]>),
    /// Another length.
    SetLength(Node, u64),
    /// All of a file, or all names in a directory, are durable.
    Sync(Node),
    /// A sync failed: what was written to the file before is lost or not, and no later sync tells (F08).
    SyncFailed(Node),
    /// A line that the process wrote for whoever records it.
    Note(String),
}

/// A step of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What was done.
    pub change: Change,
    /// To what, below the recorded directory; of a rename the new name.
    pub path: String,
}

impl Step {
    /// True if it writes bytes.
    pub fn is_write(&self) -> bool {
        matches!(self.change, Change::Write(..))
    }

    /// True if something may come to rest on what was done before it.
    pub fn is_point(&self) -> bool {
        matches!(self.change, Change::Sync(_) | Change::Rename(..) | Change::Note(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.change {
            Change::Name(..) => write!(to, "create {}", self.path),
            Change::NameDir(..) => write!(to, "mkdir {}", self.path),
            Change::Unname(_) => write!(to, "unlink {}", self.path),
            Change::Rename(..) => write!(to, "rename to {}", self.path),
            Change::Write(_, at, bytes) => write!(to, "write {}+{} of {}", at, bytes.len(), self.path),
            Change::SetLength(_, length) => write!(to, "truncate {} to {length}", self.path),
            Change::Sync(_) => write!(to, "sync {}", self.path),
            Change::SyncFailed(_) => write!(to, "failed sync of {}", self.path),
            Change::Note(note) => write!(to, "note \"{note}\""),
        }
    }
}

/// Where a fault can be put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chance {
    /// The call's name.
    pub call: &'static str,
    /// The path below the recorded directory.
    pub path: String,
    /// The errors that are tried there.
    pub errors: &'static [Errno],
}

/// Everything that happened.
#[derive(Clone, Default, Debug)]
pub struct Recording {
    /// In the order in which it took effect.
    pub steps: Vec<Step>,
    /// The calls that could have failed, in the order in which they were made.
    pub chances: Vec<Chance>,
    /// What was injected, if something was.
    pub injected: Option<Injected>,
}

/// A call that failed, or before which the process was killed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injected {
    /// The step before which it was.
    pub step: usize,
    /// What happened.
    pub action: Action,
    /// At which call.
    pub at: Chance,
}

impl fmt::Display for Injected {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:?} at {} of {} (step {})", self.action, self.at.call, self.at.path, self.step)
    }
}

/// Records a process that begins with an empty directory.
pub struct Recorder {
    root: PathBuf,
    notes: PathBuf,
    fault: Option<Fault>,
    nodes: BTreeMap<u64, Node>,
    last: u32,
    pending: BTreeMap<Pid, Pending>,
    recording: Recording,
}

/// What a call does when it succeeds.
enum Pending {
    /// Opens the file; if it is not there, the call makes it.
    Open {
        path: PathBuf,
        cuts: bool,
        makes: bool,
    },
    Write {
        node: Node,
        at: u64,
        bytes: Vec<u8>,
        path: String,
    },
    Note {
        bytes: Vec<u8>,
    },
    SetLength {
        node: Node,
        length: u64,
        path: String,
    },
    Sync {
        node: Node,
        path: String,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    MakeDir {
        path: PathBuf,
    },
}

impl Recorder {
    /// Records what is done below `root`, which is there and empty, and takes what is written to the file
    /// `notes` for what is said.
    pub fn new(root: &Path, notes: &Path, fault: Option<Fault>) -> Result<Recorder, String> {
        let inode = fs::metadata(root).map_err(|error| format!("{}: {error}", root.display()))?.ino();
        Ok(Recorder {
            root: root.to_owned(),
            notes: notes.to_owned(),
            fault,
            nodes: BTreeMap::from([(inode, Node::ROOT)]),
            last: 0,
            pending: BTreeMap::new(),
            recording: Recording::default(),
        })
    }

    /// What was recorded up to now.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// The process has ended; another one may follow, which finds what it left.
    pub fn ended(&mut self) {
        self.pending.clear();
    }

    /// What was recorded.
    pub fn into_recording(self) -> Recording {
        self.recording
    }

    /// The path below the directory, if it is below it.
    fn below(&self, path: &Path) -> Option<String> {
        path.strip_prefix(&self.root).ok().map(|below| below.display().to_string())
    }

    /// The path of a descriptor below the directory, without the mark of a file that has no name any more.
    fn below_fd(&self, thread: Pid, fd: i32) -> Option<String> {
        let path = self.below(&calls::path_of(thread, fd)?)?;
        Some(path.strip_suffix(" (deleted)").map_or(path.clone(), str::to_owned))
    }

    /// What the call concerns below the directory; none if nothing.
    fn subject(&self, thread: Pid, call: &FileCall) -> Option<String> {
        match call {
            FileCall::Open(path, _) | FileCall::Remove(path) | FileCall::MakeDir(path) => self.below(path),
            FileCall::Rename(from, to) | FileCall::Link(from, to) => {
                self.below(to).or_else(|| self.below(from))
            }
            FileCall::Write(fd, ..)
            | FileCall::SetLength(fd, _)
            | FileCall::Sync(fd)
            | FileCall::Read(fd) => self.below_fd(thread, *fd),
        }
    }

    /// Counts the call among those that can fail; gives what becomes of it.
    fn strike(&mut self, call: &FileCall, path: &str) -> Action {
        let chance = Chance { call: call.name(), path: path.to_owned(), errors: call.errors() };
        let number = self.recording.chances.len();
        let action = self.fault.as_ref().map_or(Action::Go, |fault| fault.at(number, &chance));
        if action != Action::Go {
            self.fault = None;
            let step = self.recording.steps.len();
            self.recording.injected = Some(Injected { step, action, at: chance.clone() });
        }
        self.recording.chances.push(chance);
        action
    }

    /// What the call will have done.
    fn pend(&self, thread: Pid, call: FileCall, path: String) -> Result<Option<Pending>, String> {
        Ok(Some(match call {
            FileCall::Read(_) => return Ok(None),
            FileCall::Open(path, flags) => {
                if flags & libc::O_TMPFILE == libc::O_TMPFILE {
                    return Err(format!("{}: a file without a name", path.display()));
                }
                let found = fs::symlink_metadata(&path).ok();
                let makes = found.is_none() && flags & libc::O_CREAT != 0;
                let cuts = flags & libc::O_TRUNC != 0 && found.is_some_and(|found| found.len() > 0);
                Pending::Open { path, cuts, makes }
            }
            FileCall::Write(fd, bytes, at) => {
                let node = self.node_of_fd(thread, fd)?;
                let (place, flags) = calls::place_of(thread, fd)?;
                let at = match at {
                    _ if flags & libc::O_APPEND != 0 => self.length_of_fd(thread, fd)?,
                    Some(at) => at,
                    None => place,
                };
                Pending::Write { node, at, bytes, path }
            }
            FileCall::SetLength(fd, length) => {
                Pending::SetLength { node: self.node_of_fd(thread, fd)?, length, path }
            }
            FileCall::Sync(fd) => Pending::Sync { node: self.node_of_fd(thread, fd)?, path },
            FileCall::Rename(from, to) => Pending::Rename { from, to },
            FileCall::Link(from, to) => Pending::Link { from, to },
            FileCall::Remove(path) => Pending::Remove { path },
            FileCall::MakeDir(path) => Pending::MakeDir { path },
        }))
    }

    fn node_of_fd(&self, thread: Pid, fd: i32) -> Result<Node, String> {
        self.node(Path::new(&format!("/proc/{thread}/fd/{fd}")))
    }

    fn length_of_fd(&self, thread: Pid, fd: i32) -> Result<u64, String> {
        let path = format!("/proc/{thread}/fd/{fd}");
        fs::metadata(&path).map(|found| found.len()).map_err(|error| format!("{path}: {error}"))
    }

    /// The node at a path.
    fn node(&self, path: &Path) -> Result<Node, String> {
        let inode = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.ino();
        self.nodes.get(&inode).copied().ok_or_else(|| format!("{}: nobody saw it made", path.display()))
    }

    /// The node of what was just made at a path.
    fn new_node(&mut self, path: &Path) -> Result<Node, String> {
        let inode = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.ino();
        self.last += 1;
        // The number may have been another file's, which is gone.
        self.nodes.insert(inode, Node(self.last));
        Ok(Node(self.last))
    }

    fn entry(&self, path: &Path) -> Result<Entry, String> {
        let (dir, name) = path.parent().zip(path.file_name()).ok_or("a path without a name")?;
        Ok(Entry { dir: self.node(dir)?, name: name.to_string_lossy().into_owned() })
    }

    fn push(&mut self, change: Change, path: String) {
        self.recording.steps.push(Step { change, path });
    }

    /// Both names must be below the directory, or neither.
    fn both(&self, from: &Path, to: &Path) -> Result<String, String> {
        let both = self.below(from).zip(self.below(to));
        both.map(|(_, to)| to)
            .ok_or_else(|| format!("{} and {}: one is elsewhere", from.display(), to.display()))
    }

    fn done(&mut self, pending: Pending, result: i64) -> Result<(), String> {
        match pending {
            Pending::Open { path, cuts, makes } => {
                let below = self.below(&path).unwrap_or_default();
                if makes {
                    let node = self.new_node(&path)?;
                    self.push(Change::Name(self.entry(&path)?, node), below);
                } else if cuts {
                    self.push(Change::SetLength(self.node(&path)?, 0), below);
                }
            }
            Pending::Write { node, at, mut bytes, path } => {
                bytes.truncate(result as usize);
                self.push(Change::Write(node, at, bytes.into()), path);
            }
            Pending::Note { bytes } => {
                for line in String::from_utf8_lossy(&bytes).lines() {
                    self.push(Change::Note(line.to_owned()), String::new());
                }
            }
            Pending::SetLength { node, length, path } => self.push(Change::SetLength(node, length), path),
            Pending::Sync { node, path } => self.push(Change::Sync(node), path),
            Pending::Rename { from, to } => {
                let (below, node) = (self.both(&from, &to)?, self.node(&to)?);
                self.push(Change::Rename(self.entry(&from)?, self.entry(&to)?, node), below);
            }
            Pending::Link { from, to } => {
                let (below, node) = (self.both(&from, &to)?, self.node(&to)?);
                self.push(Change::Name(self.entry(&to)?, node), below);
            }
            Pending::Remove { path } => {
                let below = self.below(&path).unwrap_or_default();
                self.push(Change::Unname(self.entry(&path)?), below);
            }
            Pending::MakeDir { path } => {
                let (below, node) = (self.below(&path).unwrap_or_default(), self.new_node(&path)?);
                self.push(Change::NameDir(self.entry(&path)?, node), below);
            }
        }
        Ok(())
    }
}

impl Watcher for Recorder {
    fn is_exclusive(&self, call: &Call) -> bool {
        calls::concerns_files(call)
    }

    fn enter(&mut self, thread: Pid, call: &Call) -> Result<Action, String> {
        if !calls::concerns_files(call) {
            return Ok(Action::Go);
        }
        let decoded = calls::decode(thread, call)?;
        if let FileCall::Write(fd, bytes, _) = &decoded
            && calls::path_of(thread, *fd).as_deref() == Some(&self.notes)
        {
            self.pending.insert(thread, Pending::Note { bytes: bytes.clone() });
            return Ok(Action::Go);
        }
        let Some(path) = self.subject(thread, &decoded) else { return Ok(Action::Go) };
        let action = self.strike(&decoded, &path);
        if action != Action::Kill
            && let Some(pending) = self.pend(thread, decoded, path)?
        {
            self.pending.insert(thread, pending);
        }
        Ok(action)
    }

    fn leave(&mut self, thread: Pid, _: &Call, result: i64) -> Result<(), String> {
        match self.pending.remove(&thread) {
            Some(pending) if result >= 0 => self.done(pending, result),
            Some(Pending::Sync { node, path }) => {
                self.push(Change::SyncFailed(node), path);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

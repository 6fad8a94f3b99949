//! What a system call does to files. A call that is in neither list, and may change files, is refused:
//! whoever follows a process must not miss a change.

use crate::follow::Call;
use nix::errno::Errno;
use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::fs;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A call on files, with its paths made absolute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileCall {
    /// Opens a file, and makes it or cuts it where the flags say so.
    Open(PathBuf, i32),
    /// Writes these bytes, at the offset or where the descriptor stands.
    Write(i32, Vec<u8>, Option<u64>),
    /// Gives the file of a descriptor another length.
    SetLength(i32, u64),
    /// Syncs the file of a descriptor.
    Sync(i32),
    /// Renames the first to the second.
    Rename(PathBuf, PathBuf),
    /// Gives the first the second as a further name.
    Link(PathBuf, PathBuf),
    /// Removes a file's name, or an empty directory.
    Remove(PathBuf),
    /// Makes a directory.
    MakeDir(PathBuf),
    /// Reads from a descriptor.
    Read(i32),
}

impl FileCall {
    /// Its name, for people.
    pub fn name(&self) -> &'static str {
        match self {
            FileCall::Open(..) => "open",
            FileCall::Write(..) => "write",
            FileCall::SetLength(..) => "ftruncate",
            FileCall::Sync(..) => "fsync",
            FileCall::Rename(..) => "rename",
            FileCall::Link(..) => "link",
            FileCall::Remove(..) => "unlink",
            FileCall::MakeDir(..) => "mkdir",
            FileCall::Read(..) => "read",
        }
    }

    /// The errors with which it is made to fail: no room, a disk that fails, no descriptor or memory left.
    pub fn errors(&self) -> &'static [Errno] {
        match self {
            FileCall::Open(_, flags) if flags & libc::O_CREAT != 0 => {
                &[Errno::EMFILE, Errno::ENOMEM, Errno::ENOSPC, Errno::EIO]
            }
            FileCall::Open(..) => &[Errno::EMFILE, Errno::ENOMEM, Errno::EIO],
            FileCall::Remove(_) | FileCall::Read(_) => &[Errno::EIO],
            FileCall::Write(..)
            | FileCall::SetLength(..)
            | FileCall::Sync(_)
            | FileCall::Rename(..)
            | FileCall::Link(..)
            | FileCall::MakeDir(_) => &[Errno::ENOSPC, Errno::ENOMEM, Errno::EIO],
        }
    }
}

/// True if a call can change files, or reads them.
pub fn concerns_files(call: &Call) -> bool {
    match call.number {
        libc::SYS_mmap => {
            let flags = call.args[3] as i32;
            flags & libc::MAP_ANONYMOUS == 0 && flags & libc::MAP_TYPE != libc::MAP_PRIVATE
        }
        libc::SYS_ioctl => [CLONE, CLONE_RANGE].contains(&call.args[1]),
        number => !HARMLESS.contains(&number),
    }
}

/// Requests of `ioctl` that make a file's content another's.
const CLONE: u64 = 0x4004_9409;
const CLONE_RANGE: u64 = 0x4020_940d;

/// What the call is about to do; an error if that cannot be told.
pub fn decode(thread: Pid, call: &Call) -> Result<FileCall, String> {
    let a = call.args;
    let (fd, cwd) = (a[0] as i32, libc::AT_FDCWD);
    let path = |dir: i32, address: u64| path(thread, dir, address);
    Ok(match call.number {
        libc::SYS_open => FileCall::Open(path(cwd, a[0])?, a[1] as i32),
        libc::SYS_creat => FileCall::Open(path(cwd, a[0])?, libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY),
        libc::SYS_openat => FileCall::Open(path(fd, a[1])?, a[2] as i32),
        libc::SYS_write => FileCall::Write(fd, bytes(thread, a[1], a[2] as usize)?, None),
        libc::SYS_pwrite64 => FileCall::Write(fd, bytes(thread, a[1], a[2] as usize)?, Some(a[3])),
        libc::SYS_writev => FileCall::Write(fd, vector(thread, a[1], a[2] as usize)?, None),
        libc::SYS_pwritev => FileCall::Write(fd, vector(thread, a[1], a[2] as usize)?, Some(a[3])),
        libc::SYS_ftruncate => FileCall::SetLength(fd, a[1]),
        libc::SYS_fsync | libc::SYS_fdatasync => FileCall::Sync(fd),
        libc::SYS_rename => FileCall::Rename(path(cwd, a[0])?, path(cwd, a[1])?),
        libc::SYS_renameat => FileCall::Rename(path(fd, a[1])?, path(a[2] as i32, a[3])?),
        libc::SYS_renameat2 if a[4] as u32 & !libc::RENAME_NOREPLACE == 0 => {
            FileCall::Rename(path(fd, a[1])?, path(a[2] as i32, a[3])?)
        }
        libc::SYS_link => FileCall::Link(path(cwd, a[0])?, path(cwd, a[1])?),
        libc::SYS_linkat if a[4] == 0 => FileCall::Link(path(fd, a[1])?, path(a[2] as i32, a[3])?),
        libc::SYS_unlink | libc::SYS_rmdir => FileCall::Remove(path(cwd, a[0])?),
        libc::SYS_unlinkat => FileCall::Remove(path(fd, a[1])?),
        libc::SYS_mkdir => FileCall::MakeDir(path(cwd, a[0])?),
        libc::SYS_mkdirat => FileCall::MakeDir(path(fd, a[1])?),
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_getdents64 => FileCall::Read(fd),
        number => {
            return Err(format!("system call {number} with {a:x?}: nobody knows what it does to files"));
        }
    })
}

/// The path that a descriptor was opened by, as the system has it now; none if it has none.
pub fn path_of(thread: Pid, descriptor: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{thread}/fd/{descriptor}")).ok()
}

/// Where a descriptor stands, and the flags that it was opened with.
pub fn place_of(thread: Pid, descriptor: i32) -> Result<(u64, i32), String> {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}"))
        .map_err(|error| format!("descriptor {descriptor}: {error}"))?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let place = field("pos:").and_then(|place| place.parse().ok());
    let flags = field("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok());
    place.zip(flags).ok_or_else(|| format!("descriptor {descriptor}: {text}"))
}

/// The absolute path whose text is at an address of the process.
fn path(thread: Pid, dir: i32, address: u64) -> Result<PathBuf, String> {
    let mut text = Vec::new();
    while !text.contains(&0) {
        let from = address + text.len() as u64;
        // Not beyond the page: the next one may not be there.
        text.extend(bytes(thread, from, (4096 - from % 4096).min(256) as usize)?);
    }
    text.truncate(text.iter().position(|byte| *byte == 0).expect("just seen"));
    let path = PathBuf::from(std::ffi::OsString::from_vec(text));
    if path.is_absolute() {
        return Ok(path);
    }
    let base = match dir {
        libc::AT_FDCWD => fs::read_link(format!("/proc/{thread}/cwd")).ok(),
        dir => path_of(thread, dir),
    };
    let base = base.ok_or_else(|| format!("{} is relative to nothing known", path.display()))?;
    Ok(if path == Path::new(".") { base } else { base.join(path) })
}

/// Bytes of the process's memory.
fn bytes(thread: Pid, address: u64, length: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; length];
    let remote = [RemoteIoVec { base: address as usize, len: length }];
    match process_vm_readv(thread, &mut [IoSliceMut::new(&mut bytes)], &remote) {
        Ok(read) if read == length => Ok(bytes),
        other => Err(format!("{length} bytes of the process's memory: {other:?}")),
    }
}

/// The bytes that a vector of addresses and lengths names.
fn vector(thread: Pid, address: u64, count: usize) -> Result<Vec<u8>, String> {
    let entries = bytes(thread, address, count * 16)?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let mut all = Vec::new();
    for entry in entries.chunks_exact(16) {
        all.extend(bytes(thread, word(&entry[..8]), word(&entry[8..]) as usize)?);
    }
    Ok(all)
}

/// Calls that change no file's content and no name, and read none.
const HARMLESS: [i64; 57] = [
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fchmod,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_kill,
    libc::SYS_lseek,
    libc::SYS_lstat,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_readlink,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_stat,
    libc::SYS_statx,
    libc::SYS_tgkill,
    libc::SYS_uname,
];

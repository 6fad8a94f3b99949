//! Threads that run on some of the machine's cores alone, as `taskset` has it.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io;

fn set_of(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    set
}

/// The numbers of the cores that this thread may run on.
pub(crate) fn own_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// From now on this thread runs on these cores alone.
pub(crate) fn pin_own(cores: &[usize]) -> io::Result<()> {
    sched_setaffinity(None, &set_of(cores)).map_err(io::Error::from)
}

/// From now on all threads of a process, and all that these start, run on these cores alone.
pub(crate) fn pin_process(process: u32, cores: &[usize]) -> io::Result<()> {
    let set = set_of(cores);
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let name = thread?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(id) = id else { continue };
        match sched_setaffinity(Some(id), &set) {
            // It has ended meanwhile.
            Err(rustix::io::Errno::SRCH) => {}
            pinned => pinned?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_thread_stays_on_its_cores() {
        let all = own_cores().expect("told");
        let last = [*all.last().expect("it runs somewhere")];
        let pinned = std::thread::spawn(move || {
            pin_own(&last).expect("permitted");
            own_cores().expect("told")
        });
        assert_eq!(pinned.join().expect("it ends"), last);
        assert_eq!(own_cores().expect("told"), all, "and others do as before");
    }

    #[test]
    fn a_process_stays_on_its_cores() {
        let core = own_cores().expect("told")[0];
        let mut child = Command::new("sleep").arg("30").spawn().expect("starts");
        let pinned = pin_process(child.id(), &[core]);
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        child.kill().expect("ends");
        child.wait().expect("ended");
        pinned.expect("permitted");
        let status = status.expect("it ran");
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        assert_eq!(allowed.map(str::trim), Some(core.to_string().as_str()));
    }
}

//! An equal share of a processor for every node: nodes on one machine otherwise take each other's time, and a
//! copy costs its primary what it would cost another machine.
//!
//! Each process gets a control group of its own. The kernel lets a group run for its share of every period;
//! with its usual period of 100 ms a node would be suspected to be dead in between, so it is 10 ms here.

use std::fs;
use std::path::{Path, PathBuf};

/// Microseconds.
const PERIOD: u64 = 10_000;

/// Control groups, removed when this is dropped: behind the processes in them.
#[derive(Debug)]
pub struct Quota {
    groups: Vec<PathBuf>,
}

/// How a kernel has control groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Quota {
    /// Gives each of these processes so many percent of a processor. The error says why it is not permitted.
    pub fn of(processes: &[u32], percent: u32) -> Result<Quota, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        let (version, root) = parse_root(&mounts).ok_or("there are no control groups of processors here")?;
        let mut quota = Quota { groups: Vec::new() };
        for process in processes {
            let group = root.join(format!("understudy-bench-{}-{process}", std::process::id()));
            fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
            quota.groups.push(group.clone());
            let share = PERIOD * u64::from(percent) / 100;
            let limits: &[(&str, String)] = match version {
                Version::One => {
                    &[("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", share.to_string())]
                }
                Version::Two => &[("cpu.max", format!("{share} {PERIOD}"))],
            };
            for (file, text) in limits {
                write(&group.join(file), text)?;
            }
            write(&group.join("cgroup.procs"), &process.to_string())?;
        }
        Ok(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        for group in &self.groups {
            // One whose process still ends cannot be removed; it is empty then, and costs nothing.
            let _ = fs::remove_dir(group);
        }
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    // Not created: what is not there the kernel does not offer.
    let written = fs::OpenOptions::new().write(true).open(file);
    let written = written.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// Where groups of processors are, from the text of `/proc/self/mounts`.
fn parse_root(mounts: &str) -> Option<(Version, PathBuf)> {
    let of = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, point, kind, options, ..] = fields[..] else { return None };
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                Some((Version::One, point.into()))
            }
            "cgroup2" => Some((Version::Two, point.into())),
            _ => None,
        }
    };
    let all: Vec<(Version, PathBuf)> = mounts.lines().filter_map(of).collect();
    let first = all.iter().find(|(version, _)| *version == Version::One);
    first.or(all.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_either_kind_of_kernel() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                   cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                   cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n";
        assert_eq!(parse_root(one), Some((Version::One, "/sys/fs/cgroup/cpu".into())));
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(parse_root(two), Some((Version::Two, "/sys/fs/cgroup".into())));
        assert_eq!(parse_root("tmpfs /tmp tmpfs rw 0 0\n"), None);
    }

    #[test]
    fn a_process_that_has_a_share_gets_no_more() {
        let mut busy = std::process::Command::new("sh");
        let mut busy = busy.args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let quota = match Quota::of(&[busy.id()], 20) {
            Ok(quota) => quota,
            Err(why) => {
                eprintln!("not permitted here: {why}");
                busy.kill().expect("ends");
                busy.wait().expect("ended");
                return;
            }
        };
        let before = crate::procfs::trees_cpu_us(&[busy.id()]).all;
        let begun = std::time::Instant::now();
        // Until it has used a fifth of a second: at its share that takes a second.
        while crate::procfs::trees_cpu_us(&[busy.id()]).all < before + 200_000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let took = begun.elapsed();
        busy.kill().expect("ends");
        busy.wait().expect("ended");
        let groups = quota.groups.clone();
        drop(quota);
        assert!(took.as_millis() > 600, "a fifth of a processor was not kept: {took:?}");
        assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    }
}

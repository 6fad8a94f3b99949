//! What the system knows of processes, processors, the loopback interface and file systems, read from
//! `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// One process, as its `stat` file tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessStat {
    /// The process that started it.
    pub parent: u32,
    /// Processor time of its own.
    pub own: CpuTime,
    /// Processor time of its children that have ended and were waited for.
    pub reaped: CpuTime,
}

/// Processor time, in clock ticks or microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// All of it.
    pub all: u64,
    /// What the kernel used of it, for system calls of the process.
    pub kernel: u64,
}

impl CpuTime {
    fn of(user: u64, kernel: u64) -> CpuTime {
        CpuTime { all: user + kernel, kernel }
    }

    /// Both together.
    pub fn plus(self, other: CpuTime) -> CpuTime {
        CpuTime { all: self.all + other.all, kernel: self.kernel + other.kernel }
    }

    /// What came to it since `before`.
    pub fn since(self, before: CpuTime) -> CpuTime {
        CpuTime {
            all: self.all.saturating_sub(before.all),
            kernel: self.kernel.saturating_sub(before.kernel),
        }
    }

    fn in_us(self) -> CpuTime {
        CpuTime { all: ticks_to_us(self.all), kernel: ticks_to_us(self.kernel) }
    }
}

impl ProcessStat {
    /// Reads the text of `/proc/PID/stat`. The process's name may hold spaces and parentheses: the last one
    /// ends it.
    pub fn parse(text: &str) -> Option<ProcessStat> {
        let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(ProcessStat {
            parent: u32::try_from(number(1)?).ok()?,
            own: CpuTime::of(number(11)?, number(12)?),
            reaped: CpuTime::of(number(13)?, number(14)?),
        })
    }
}

/// Processor time of the whole machine, in clock ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MachineStat {
    /// All processors together.
    pub total: u64,
    /// Of it, the time in which they had nothing to do.
    pub idle: u64,
    /// Of it, the time that the host gave to others.
    pub stolen: u64,
}

impl MachineStat {
    /// Reads the text of `/proc/stat`.
    pub fn parse(text: &str) -> Option<MachineStat> {
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        // user nice system idle iowait irq softirq steal; what follows is contained in user and nice.
        let ticks: Vec<u64> =
            line.split_ascii_whitespace().skip(1).take(8).map_while(|field| field.parse().ok()).collect();
        let &[_, _, _, idle, waiting, _, _, stolen] = &ticks[..] else { return None };
        Some(MachineStat { total: ticks.iter().sum(), idle: idle + waiting, stolen })
    }

    /// The machine now.
    pub fn now() -> MachineStat {
        fs::read_to_string("/proc/stat").ok().and_then(|text| MachineStat::parse(&text)).unwrap_or_default()
    }
}

/// How often the kernel was asked and processes were put to rest. All only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Switches {
    /// Times that a thread gave its processor up to wait for something: each ends with a wake-up.
    pub waits: u64,
    /// Times that the kernel took the processor away.
    pub preempted: u64,
    /// System calls that read or write files, those of sockets not among them; 0 where that is not told.
    pub file_calls: u64,
}

impl Switches {
    /// Both together.
    pub fn plus(self, other: Switches) -> Switches {
        Switches {
            waits: self.waits + other.waits,
            preempted: self.preempted + other.preempted,
            file_calls: self.file_calls + other.file_calls,
        }
    }

    /// Reads the text of a thread's `status`.
    pub fn parse(text: &str) -> Option<Switches> {
        let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok();
        let waits = of("voluntary_ctxt_switches:")?;
        Some(Switches { waits, preempted: of("nonvoluntary_ctxt_switches:")?, file_calls: 0 })
    }

    /// Of all threads of a process that runs; threads that have ended are not told.
    fn of_process(process: &str) -> Switches {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let of_thread = |thread: fs::DirEntry| {
            fs::read_to_string(thread.path().join("status")).ok().and_then(|text| Switches::parse(&text))
        };
        let all = threads.filter_map(of_thread).fold(Switches::default(), Switches::plus);
        let io = fs::read_to_string(format!("/proc/{process}/io")).ok();
        Switches { file_calls: io.and_then(|text| parse_file_calls(&text)).unwrap_or(0), ..all }
    }

    /// Of this process.
    pub fn own() -> Switches {
        Switches::of_process("self")
    }

    /// Of these processes and all that they started and that still run.
    pub fn of_trees(roots: &[u32]) -> Switches {
        if roots.is_empty() {
            return Switches::default();
        }
        let all = tree_members(roots, &every_process());
        all.into_iter()
            .map(|process| Switches::of_process(&process.to_string()))
            .fold(Switches::default(), Switches::plus)
    }
}

/// System calls that read or write files, from the text of `/proc/PID/io`.
pub fn parse_file_calls(text: &str) -> Option<u64> {
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    Some(of("syscr:")? + of("syscw:")?)
}

/// Packets that the loopback interface has carried, from the text of `/proc/net/dev`.
pub fn parse_loopback_packets(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Packets that the loopback interface has carried, whoever sent them.
pub fn loopback_packets() -> Option<u64> {
    parse_loopback_packets(&fs::read_to_string("/proc/net/dev").ok()?)
}

/// Bytes that the loopback interface has carried, headers included, from the text of `/proc/net/dev`.
pub fn parse_loopback(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Bytes that the loopback interface has carried, whoever sent them.
pub fn loopback_bytes() -> Option<u64> {
    parse_loopback(&fs::read_to_string("/proc/net/dev").ok()?)
}

/// Processor time in microseconds of this process alone, without its children.
pub fn own_cpu_us() -> CpuTime {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    stat.and_then(|text| ProcessStat::parse(&text)).map_or_else(CpuTime::default, |stat| stat.own.in_us())
}

/// The most memory in bytes that a process had since it started or since [`forget_peak`], from the text of
/// `/proc/PID/status`.
pub fn parse_peak(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The same of a process that runs.
pub fn peak_bytes(pid: u32) -> Option<u64> {
    parse_peak(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// From now on the peak of this process is counted anew. Where the system refuses that, it goes on as before.
pub fn forget_peak(pid: u32) {
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Processor time in microseconds of children of this process that have ended and were waited for.
pub fn reaped_cpu_us() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    stat.and_then(|text| ProcessStat::parse(&text)).map_or(0, |stat| stat.reaped.in_us().all)
}

/// Processor time in microseconds of these processes and all that they started, the ended ones included.
pub fn trees_cpu_us(roots: &[u32]) -> CpuTime {
    if roots.is_empty() { CpuTime::default() } else { trees_ticks(roots, &every_process()).in_us() }
}

fn trees_ticks(roots: &[u32], every: &BTreeMap<u32, ProcessStat>) -> CpuTime {
    // A child that ends in between moves from `own` of one to `reaped` of the other: the sum stays.
    let of =
        |process: u32| every.get(&process).map_or_else(CpuTime::default, |stat| stat.own.plus(stat.reaped));
    tree_members(roots, every).into_iter().map(of).fold(CpuTime::default(), CpuTime::plus)
}

/// These processes and all that they started, each once.
fn tree_members(roots: &[u32], every: &BTreeMap<u32, ProcessStat>) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (process, stat) in every {
        children.entry(stat.parent).or_default().push(*process);
    }
    let mut members = BTreeSet::new();
    let mut open: Vec<u32> = roots.to_vec();
    while let Some(process) = open.pop() {
        if every.contains_key(&process) && members.insert(process) {
            open.extend(children.get(&process).into_iter().flatten());
        }
    }
    members
}

fn every_process() -> BTreeMap<u32, ProcessStat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            Some((process, ProcessStat::parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect()
}

fn ticks_to_us(ticks: u64) -> u64 {
    ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

/// The type of the file system that a path lies on, such as `ext4` or `tmpfs`, from the text of
/// `/proc/self/mounts`.
pub fn parse_filesystem(mounts: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(point), Some(kind)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if path.starts_with(point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_string())
}

/// The type of the file system that a path lies on.
pub fn filesystem(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    parse_filesystem(&fs::read_to_string("/proc/self/mounts").ok()?, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "4242 (a (tricky) name) S 17 4242 4242 0 -1 4194560 52643 19500923 0 3789 274 823 114923 12534 \
                        20 0 13 0 11 54321152 5305 18446744073709551615 1 1 0 0 0";

    #[test]
    fn a_process_line_is_read_behind_the_last_parenthesis() {
        let stat = ProcessStat::parse(STAT).expect("reads");
        assert_eq!(
            stat,
            ProcessStat { parent: 17, own: CpuTime::of(274, 823), reaped: CpuTime::of(114_923, 12_534) }
        );
        assert_eq!(ProcessStat::parse("1 (short) S 0"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }

    #[test]
    fn the_machine_line_is_read_without_guests() {
        let text = "cpu  259759 10 22562 414348 4368 7 447 4916 99 99\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let machine = MachineStat::parse(text).expect("reads");
        assert_eq!(machine.idle, 414_348 + 4_368);
        assert_eq!(machine.stolen, 4_916);
        assert_eq!(machine.total, 259_759 + 10 + 22_562 + 414_348 + 4_368 + 7 + 447 + 4_916);
    }

    #[test]
    fn the_loopback_line_is_found() {
        let text = "Inter-|   Receive\n face |bytes    packets\n  eth0: 5 6\n    lo:  570728    7502    0\n";
        assert_eq!(parse_loopback(text), Some(570_728));
        assert_eq!(parse_loopback("eth0: 1"), None);
    }

    #[test]
    fn waits_calls_and_packets_are_read() {
        let text = "Name:\tx\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(Switches::parse(text), Some(Switches { waits: 17, preempted: 4, file_calls: 0 }));
        assert_eq!(Switches::parse("Name:\tx\n"), None);
        assert_eq!(parse_file_calls("rchar: 1\nwchar: 2\nsyscr: 30\nsyscw: 12\n"), Some(42));
        assert_eq!(parse_file_calls("rchar: 1\n"), None);
        let text = "Inter-|   Receive\n    lo:  570728    7502    0\n";
        assert_eq!(parse_loopback_packets(text), Some(7_502));
        let before = Switches::own();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(Switches::own().waits > before.waits, "a nap is a wait");
    }

    #[test]
    fn the_peak_is_in_bytes() {
        let text = "Name:\tunderstudy\nVmPeak:\t  9000 kB\nVmHWM:\t    1536 kB\nVmRSS:\t 12 kB\n";
        assert_eq!(parse_peak(text), Some(1536 * 1024));
        assert_eq!(parse_peak("VmHWM: many"), None);
        assert!(peak_bytes(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn a_tree_is_summed_with_its_ended_children_and_without_others() {
        let stat = |parent, own, reaped| ProcessStat {
            parent,
            own: CpuTime::of(own, 1_000 * own),
            reaped: CpuTime::of(reaped, 0),
        };
        let every = BTreeMap::from([
            (10, stat(1, 5, 100)),
            (11, stat(10, 7, 0)),
            (12, stat(11, 1, 2)),
            (20, stat(1, 1_000, 0)),
        ]);
        let whole = CpuTime { all: 115 + 13_000, kernel: 13_000 };
        assert_eq!(trees_ticks(&[10], &every), whole);
        assert_eq!(trees_ticks(&[10, 11], &every), whole, "a process under two roots counts once");
        assert_eq!(trees_ticks(&[99], &every), CpuTime::default());
    }

    #[test]
    fn the_deepest_mount_wins() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n";
        assert_eq!(parse_filesystem(mounts, Path::new("/dev/shm/x")).as_deref(), Some("tmpfs"));
        assert_eq!(parse_filesystem(mounts, Path::new("/tmp")).as_deref(), Some("ext4"));
    }

    #[test]
    fn this_process_is_there() {
        let id = std::process::id();
        assert!(every_process().contains_key(&id));
        assert!(MachineStat::now().total > 0);
    }
}

//! A small disk in memory, which only the process of one test sees: there a test can use up all room without
//! disturbing anybody.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Names the disk to the process that has it.
const DISK: &str = "UNDERSTUDY_TEST_DISK";

/// Such a disk. What else a test needs is in another directory.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Runs the test of this name again, in a process of its own that has a disk of so many MiB and names;
    /// gives the disk, if this is that process. Where the system does not let it have such a disk, that is
    /// said, and the test is skipped.
    pub fn of_test(name: &str, mebibytes: u32, names: u32) -> Option<SmallDisk> {
        if let Some(place) = std::env::var_os(DISK) {
            return Some(SmallDisk(place.into()));
        }
        let place = tempfile::tempdir().expect("a directory");
        let with_disk = |then: &str| {
            let mount = format!("mount -t tmpfs -o size={mebibytes}m,nr_inodes={names} tmpfs \"$0\"");
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
            command.arg(format!("{mount} && {then}")).arg(place.path());
            command
        };
        if !with_disk("true").output().is_ok_and(|output| output.status.success()) {
            crate::missing("small-disk", &format!("{name}: this system gives no disk of one's own"));
            return None;
        }
        let mut command = with_disk("exec \"$@\"");
        command.arg(std::env::current_exe().expect("this")).args(["--exact", name, "--nocapture"]);
        let output = command.env(DISK, place.path()).output().expect("runs");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{}", said.concat());
        None
    }

    /// A place on it.
    pub fn place(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Leaves no room for a byte, nor for a name.
    pub fn fill(&self) {
        let mut file = File::create(self.place("filler")).expect("begins");
        for piece in [vec![7; 4096], vec![7; 1]] {
            while file.write_all(&piece).is_ok() {}
        }
        let mut names = 0;
        while File::create(self.place(&format!("filler-{names}"))).is_ok() {
            names += 1;
            assert!(names < 100_000, "names never end");
        }
    }

    /// Leaves so much room.
    pub fn leave(&self, bytes: u64) {
        let file = File::create(self.place("filler")).expect("begins");
        let taken = self.free() - bytes;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, taken).expect("fills");
    }

    /// How much room there is.
    pub fn free(&self) -> u64 {
        let room = rustix::fs::statvfs(&self.0).expect("it is there");
        room.f_bavail * room.f_frsize
    }

    /// Takes back what was filled.
    pub fn make_room(&self) {
        for entry in fs::read_dir(&self.0).expect("lists") {
            let entry = entry.expect("readable");
            if entry.file_name().to_string_lossy().starts_with("filler") {
                fs::remove_file(entry.path()).expect("removes");
            }
        }
    }
}

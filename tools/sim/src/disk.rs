//! A simulated disk with three layers: what is written, what of it is synced, and which names are synced.
//!
//! A process that dies leaves what it has written. A machine that loses power keeps what is synced, and of
//! the rest a part ([`wal::cached`]). A sync can fail, and then forgets what it should have synced, as real
//! systems do. Bytes rot, writes land elsewhere, reads flip a bit, the disk fills up.

use crate::random::Stream;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use wal::cached::{Contents, Names};
use wal::{File, Files};

/// The numbers of errors: no open file, and a disk that fails.
const EMFILE: i32 = 24;
const EIO: i32 = 5;

/// What is wrong with a disk just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trouble {
    /// The next sync fails.
    pub fail_sync: bool,
    /// There is no room: writes that grow a file, and a part of the others, are refused.
    pub full: bool,
    /// The next write to a log lands at another place.
    pub misdirect: bool,
    /// The next read gives a flipped bit; what is on the disk is right.
    pub flip_read: bool,
    /// So many reads of a log fail.
    pub fail_reads: u32,
    /// So many writes to a log fail; a part of each may be there all the same.
    pub fail_writes: u32,
    /// No file can be made or opened in a directory: a pattern of calls that are refused, of 64 in a row.
    pub no_files: u64,
}

#[derive(Debug)]
struct DiskState {
    random: Stream,
    files: BTreeMap<u64, Contents>,
    names: Names,
    next: u64,
    trouble: Trouble,
    syncs: u64,
    failed_syncs: u64,
    refused: bool,
    /// Files that were asked for.
    opens: u32,
    /// What calls were made to fail with since the last look.
    met: Vec<&'static str>,
    /// What it had at an earlier time.
    image: Option<Image>,
    /// It went back to a copy.
    is_older: bool,
    /// A number for each life of a process on it.
    starts: Vec<u64>,
}

/// All that a disk has at one time.
#[derive(Clone, Debug)]
struct Image {
    files: BTreeMap<u64, Contents>,
    names: Names,
    next: u64,
    starts: Vec<u64>,
}

/// A disk. Clones share it; it outlives the processes that use it.
#[derive(Clone, Debug)]
pub struct Disk {
    state: Arc<Mutex<DiskState>>,
}

impl Disk {
    /// An empty disk.
    pub fn new(random: Stream) -> Disk {
        let state = DiskState {
            random,
            files: BTreeMap::new(),
            names: Names::default(),
            next: 0,
            trouble: Trouble::default(),
            syncs: 0,
            failed_syncs: 0,
            refused: false,
            opens: 0,
            met: Vec::new(),
            image: None,
            is_older: false,
            starts: Vec::new(),
        };
        Disk { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        // A panic of a state machine under the lock is caught by the world, which is then over.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is wrong just now.
    pub fn trouble(&self) -> Trouble {
        self.state().trouble
    }

    /// True if something was refused at any time because the disk was full.
    pub fn has_refused(&self) -> bool {
        self.state().refused
    }

    /// What calls for files of directories were made to fail with since the last look, by name.
    pub fn take_met(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().met)
    }

    /// Changes what is wrong.
    pub fn set_trouble(&self, change: impl FnOnce(&mut Trouble)) {
        change(&mut self.state().trouble);
    }

    /// The machine lost power.
    pub fn lose_power(&self) {
        let mut state = self.state();
        let DiskState { names, files, random, trouble, .. } = &mut *state;
        let mut below = |bound| random.below(bound);
        names.lose_power(Some(&mut below));
        for contents in files.values_mut() {
            contents.lose_power(Some(&mut below));
        }
        *trouble = Trouble { full: trouble.full, no_files: trouble.no_files, ..Trouble::default() };
        let live: Vec<u64> = names.all().map(|(_, id)| id).collect();
        files.retain(|id, _| live.contains(id));
    }

    /// Everything is gone: a new disk.
    pub fn wipe(&self) {
        let mut state = self.state();
        state.files.clear();
        state.names = Names::default();
        state.trouble = Trouble::default();
        (state.image, state.starts, state.is_older) = (None, Vec::new(), false);
    }

    /// True if it has what it had once, and not what it had last.
    pub fn is_older(&self) -> bool {
        self.state().is_older
    }

    /// A process begins that will register, with this number. Gives those of all lives, its own last.
    pub fn begin_incarnation(&self, number: u64) -> Vec<u64> {
        let mut state = self.state();
        state.starts.push(number);
        state.starts.clone()
    }

    /// The numbers of all lives that began on it.
    pub fn starts(&self) -> Vec<u64> {
        self.state().starts.clone()
    }

    /// Copies all that it has, for nobody writes.
    pub fn copy(&self) {
        let mut state = self.state();
        let (files, names) = (state.files.clone(), state.names.clone());
        state.image = Some(Image { files, names, next: state.next, starts: state.starts.clone() });
    }

    /// It has what the copy has, and nothing else. False if there is none.
    pub fn go_back(&self) -> bool {
        let mut state = self.state();
        let Some(Image { files, names, next, starts }) = state.image.take() else { return false };
        (state.files, state.names, state.next, state.starts) = (files, names, next, starts);
        state.is_older = true;
        true
    }

    /// A byte that was synced is not what it was, in a file whose name begins so. True if there was one to
    /// damage.
    pub fn rot(&self, prefix: &str) -> bool {
        let mut state = self.state();
        let DiskState { names, files, random, .. } = &mut *state;
        let candidates: Vec<u64> = names
            .all()
            .filter(|(name, _)| name.starts_with(prefix) && !name.contains("spare"))
            .map(|(_, id)| id)
            .filter(|id| files[id].disk().iter().any(|byte| *byte != 0))
            .collect();
        let Some(id) = random.pick(&candidates).copied() else { return false };
        let contents = files.get_mut(&id).expect("names have files");
        let used = contents.disk().iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1) as u64;
        let at = random.below(used) as usize;
        let bits = 1 << random.below(8);
        contents.damage(|bytes| {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bits;
            }
        });
        true
    }

    /// A file whose name begins so loses its end, at any byte. True if there was one with something in it.
    pub fn cut(&self, prefix: &str) -> bool {
        let mut state = self.state();
        let DiskState { names, files, random, .. } = &mut *state;
        let named = names.all().filter(|(name, _)| name.starts_with(prefix) && !name.contains("spare"));
        let used = |id: &u64| files[id].disk().iter().any(|byte| *byte != 0);
        let candidates: Vec<u64> = named.map(|(_, id)| id).filter(used).collect();
        let Some(id) = random.pick(&candidates).copied() else { return false };
        let contents = files.get_mut(&id).expect("names have files");
        let bytes = contents.disk();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        // The filling behind what is used is cut as often as that.
        let most = if random.chance(700) { used } else { bytes.len() };
        let at = random.below(most as u64) as usize;
        contents.damage(|bytes| bytes.truncate(at));
        true
    }

    /// Syncs so far, and how many of them failed.
    pub fn syncs(&self) -> (u64, u64) {
        let state = self.state();
        (state.syncs, state.failed_syncs)
    }

    /// The directory of this name, as the log's file layer.
    pub fn directory(&self, name: &str) -> Arc<dyn Files> {
        Arc::new(Directory { disk: self.clone(), prefix: format!("{name}/") })
    }

    /// The whole of a file. Flipped bits befall the files of directories alone: who a node is, is kept
    /// elsewhere too.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        let id = state.names.find(name)?;
        let mut bytes = state.files[&id].cache().to_vec();
        if name.contains('/') {
            state.flip(&mut bytes);
        }
        Ok(bytes)
    }

    /// Makes a file of these bytes, under another name first, so that after a crash there is the old one or
    /// the new one.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let unfinished = format!("{name}.new");
        let mut state = self.state();
        let id = state.create(&unfinished);
        let written = state.write(id, 0, bytes).and_then(|()| state.sync(id));
        if written.is_err() {
            // Nobody looks for it until the next start.
            state.names.unlink(&unfinished)?;
        }
        written?;
        state.names.rename(&unfinished, name)?;
        state.names.sync("");
        Ok(())
    }

    /// Makes an empty file. Its name is not synced.
    pub fn create(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if state.trouble.full {
            return Err(state.no_room());
        }
        state.create(name);
        Ok(())
    }

    /// Adds to the end of a file and syncs it if asked.
    pub fn append(&self, name: &str, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut state = self.state();
        let id = state.names.find(name)?;
        let end = state.files[&id].cache().len() as u64;
        state.write(id, end, bytes)?;
        if sync { state.sync(id) } else { Ok(()) }
    }

    /// Removes a file durably, if it is there.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        if state.names.unlink(name).is_ok() {
            state.names.sync("");
        }
        Ok(())
    }

    /// Names that begin so.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let state = self.state();
        let names = state.names.all().map(|(name, _)| name).filter(|name| name.starts_with(prefix));
        names.map(str::to_string).collect()
    }
}

impl DiskState {
    fn create(&mut self, name: &str) -> u64 {
        let id = self.next;
        self.next += 1;
        self.files.insert(id, Contents::default());
        self.names.link(name, id);
        id
    }

    fn no_room(&mut self) -> io::Error {
        self.refused = true;
        io::Error::from(io::ErrorKind::StorageFull)
    }

    fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(contents) = self.files.get_mut(&id) else {
            return Err(io::Error::other("the disk was replaced"));
        };
        let grows = offset + bytes.len() as u64 > contents.cache().len() as u64;
        if self.trouble.full && (grows || self.random.chance(700)) {
            // A part may be there all the same.
            let part = self.random.below(bytes.len() as u64 + 1) as usize;
            if !grows {
                contents.put(offset, &bytes[..part]);
            }
            return Err(self.no_room());
        }
        let mut offset = offset;
        if self.trouble.misdirect && offset > 4096 && !grows {
            self.trouble.misdirect = false;
            offset = self.random.below(offset - bytes.len().min(offset as usize) as u64 + 1);
        }
        contents.put(offset, bytes);
        Ok(())
    }

    /// A write fails; what it was to add to a file is not there, and of the rest a part may be.
    fn fail_write(&mut self, id: u64, offset: u64, bytes: &[u8]) -> io::Error {
        self.met.push("log-write-failed");
        let part = self.random.below(bytes.len() as u64 + 1) as usize;
        if let Some(contents) = self.files.get_mut(&id)
            && offset + part as u64 <= contents.cache().len() as u64
        {
            contents.put(offset, &bytes[..part]);
        }
        io::Error::from_raw_os_error(EIO)
    }

    fn sync(&mut self, id: u64) -> io::Result<()> {
        let Some(contents) = self.files.get_mut(&id) else {
            return Err(io::Error::other("the disk was replaced"));
        };
        self.syncs += 1;
        if self.trouble.fail_sync && contents.forget() {
            // The pages count as clean from now on, and were not written: what a later sync says of them is
            // worth nothing.
            self.trouble.fail_sync = false;
            self.failed_syncs += 1;
            return Err(io::Error::other("the sync failed"));
        }
        contents.sync();
        Ok(())
    }

    /// A file is asked for: an error if the process is given none.
    fn give_file(&mut self) -> io::Result<()> {
        self.opens = self.opens.wrapping_add(1);
        match self.trouble.no_files >> (self.opens % 64) & 1 {
            0 => Ok(()),
            _ => {
                self.met.push("log-no-file");
                Err(io::Error::from_raw_os_error(EMFILE))
            }
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        if self.trouble.flip_read && !bytes.is_empty() {
            self.trouble.flip_read = false;
            let at = self.random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.random.below(8);
        }
    }
}

/// One directory of a disk.
struct Directory {
    disk: Disk,
    prefix: String,
}

impl Directory {
    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Files for Directory {
    fn create(&self, name: &str, preallocate: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.disk.state();
        state.give_file()?;
        if state.trouble.full && preallocate > 0 {
            return Err(state.no_room());
        }
        let id = state.create(&self.path(name));
        state.files.insert(id, Contents::zeros(preallocate));
        Ok(Arc::new(Handle { disk: self.disk.clone(), id }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let mut state = self.disk.state();
        let id = state.names.find(&self.path(name))?;
        state.give_file()?;
        Ok(Arc::new(Handle { disk: self.disk.clone(), id }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.state().names.unlink(&self.path(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.state().names.rename(&self.path(from), &self.path(to))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.disk.state();
        let names = state.names.all().filter_map(|(name, _)| name.strip_prefix(&self.prefix));
        Ok(names.map(str::to_string).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.state().names.sync(&self.prefix);
        Ok(())
    }
}

struct Handle {
    disk: Disk,
    id: u64,
}

impl File for Handle {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.trouble.fail_writes > 0 {
            state.trouble.fail_writes -= 1;
            return Err(state.fail_write(self.id, offset, bytes));
        }
        state.write(self.id, offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        if state.trouble.fail_reads > 0 {
            state.trouble.fail_reads -= 1;
            state.met.push("log-read-failed");
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let Some(contents) = state.files.get(&self.id) else {
            return Err(io::Error::other("the disk was replaced"));
        };
        let length = contents.read_at(offset, buffer);
        state.flip(&mut buffer[..length]);
        Ok(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync(self.id)
    }

    fn size(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state
            .files
            .get(&self.id)
            .map(|contents| contents.cache().len() as u64)
            .ok_or_else(|| io::Error::other("gone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Concern;

    fn disk() -> Disk {
        Disk::new(Stream::new(1, Concern::Disk, 0))
    }

    #[test]
    fn what_is_synced_survives_a_power_loss() {
        let disk = disk();
        let files = disk.directory("log");
        let file = files.create("a", 128).expect("creates");
        files.sync_dir().expect("syncs");
        file.write_at(0, b"synced").expect("writes");
        file.sync_data().expect("syncs");
        disk.lose_power();
        assert_eq!(&disk.read("log/a").expect("is there")[..6], b"synced");
    }

    #[test]
    fn a_name_that_was_not_synced_may_go() {
        let gone = (0..20).any(|seed| {
            let disk = Disk::new(Stream::new(seed, Concern::Disk, 0));
            disk.directory("log").create("a", 8).expect("creates");
            disk.lose_power();
            disk.names("log/").is_empty()
        });
        assert!(gone);
    }

    #[test]
    fn a_failed_sync_forgets_what_it_should_have_synced() {
        let disk = disk();
        let files = disk.directory("log");
        let file = files.create("a", 64).expect("creates");
        files.sync_dir().expect("syncs");
        file.write_at(0, b"lost").expect("writes");
        disk.set_trouble(|trouble| trouble.fail_sync = true);
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok(), "the second one says that all is well");
        disk.lose_power();
        assert_eq!(disk.read("log/a").expect("is there"), vec![0; 64]);
    }

    #[test]
    fn a_replacement_is_all_or_nothing() {
        for seed in 0..50 {
            let disk = Disk::new(Stream::new(seed, Concern::Disk, 0));
            disk.replace("meta", b"old").expect("writes");
            disk.replace("meta", b"new").expect("writes");
            disk.lose_power();
            assert_eq!(disk.read("meta").expect("is there"), b"new");
        }
    }

    #[test]
    fn a_log_that_cannot_be_read_or_opened_for_a_while_is_what_it_was() {
        let disk = disk();
        let files = disk.directory("log");
        let file = files.create("a", 8).expect("creates");
        file.write_at(0, b"whole").expect("writes");
        file.sync_data().expect("syncs");
        disk.set_trouble(|trouble| (trouble.fail_reads, trouble.no_files) = (1, u64::MAX));
        let mut bytes = [0; 5];
        assert_eq!(file.read_at(0, &mut bytes).unwrap_err().raw_os_error(), Some(EIO));
        assert_eq!(file.read_at(0, &mut bytes).expect("one alone fails"), 5);
        assert_eq!(&bytes, b"whole");
        assert_eq!(files.create("b", 8).err().and_then(|error| error.raw_os_error()), Some(EMFILE));
        assert_eq!(files.open("a").err().and_then(|error| error.raw_os_error()), Some(EMFILE));
        disk.set_trouble(|trouble| trouble.no_files = 0);
        files.open("a").expect("opens");
    }

    #[test]
    fn a_write_of_a_log_that_fails_leaves_a_part_at_most() {
        let disk = disk();
        let file = disk.directory("log").create("a", 8).expect("creates");
        disk.set_trouble(|trouble| trouble.fail_writes = 1);
        assert_eq!(file.write_at(0, b"12345678").unwrap_err().raw_os_error(), Some(EIO));
        let left = disk.read("log/a").expect("reads");
        assert!(left.iter().zip(b"12345678").all(|(found, written)| found == written || *found == 0));
        file.write_at(0, b"12345678").expect("one alone fails");
        assert_eq!(
            (disk.read("log/a").expect("reads").len(), disk.take_met()),
            (8, vec!["log-write-failed"])
        );
    }

    #[test]
    fn a_file_that_is_cut_is_shorter_for_good() {
        let disk = disk();
        disk.replace("log/1", b"12345678").expect("writes");
        assert!(disk.cut("log/") && !disk.cut("nothing"));
        disk.lose_power();
        let left = disk.read("log/1").expect("reads");
        assert!(left.len() < 8 && b"12345678".starts_with(&left));
    }

    #[test]
    fn a_full_disk_refuses_and_rot_changes_one_bit() {
        let disk = disk();
        disk.replace("x", b"12345678").expect("writes");
        assert!(disk.rot("x"));
        let bits: u32 =
            disk.read("x").expect("reads").iter().zip(b"12345678").map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1);
        disk.set_trouble(|trouble| trouble.full = true);
        assert_eq!(disk.replace("y", b"1").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!disk.rot("nothing"));
    }
}

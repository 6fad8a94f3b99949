//! Removal: first a rename into `trash/`, which happens at once or not at all, then the slow part on another
//! thread. What is damaged is not removed: it is renamed into `damaged/`, where it stays for people to look
//! at.

use super::{DataDir, files};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

impl DataDir {
    /// Takes a file or directory out of use. What is not there is gone already.
    pub fn discard(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().expect("what is discarded has a name").to_string_lossy();
        self.rename_into("trash", path, &name)?;
        self.empty_trash(self.root_of(path));
        Ok(())
    }

    /// Takes what is damaged out of use, and keeps it. Gives its new name.
    pub fn set_aside(&self, path: &Path, name: &str) -> io::Result<PathBuf> {
        let root = self.root_of(path);
        files::ensure_within(root, &root.join("damaged"))?;
        self.rename_into("damaged", path, name)
    }

    fn rename_into(&self, place: &str, path: &Path, name: &str) -> io::Result<PathBuf> {
        // A rename stays on its disk.
        let place = self.root_of(path).join(place);
        let mut targets = (0_u64..).map(|n| place.join(format!("{name}-{n}")));
        loop {
            let target = targets.find(|target| !target.exists()).expect("numbers do not end");
            match fs::rename(path, &target) {
                Ok(()) => {
                    files::sync_dir(path.parent().expect("what is renamed lies in a directory"))?;
                    files::sync_dir(&place)?;
                    return Ok(target);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target),
                // Another executor has given this name to something just now.
                Err(error) if is_there(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes what is in the trash, on a thread of its own. What fails is tried again at the next start.
    pub(super) fn empty_trash(&self, root: &Path) {
        let trash = root.join("trash");
        let remove = move || {
            let Ok(entries) = fs::read_dir(&trash) else { return };
            for entry in entries.flatten() {
                let path = entry.path();
                let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            }
        };
        // Without the thread the trash stays until the next start.
        drop(std::thread::Builder::new().name("trash".into()).spawn(remove));
    }
}

/// True if what something was to be renamed to is there, and is not empty.
fn is_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datadir::{Kind, init};
    use std::thread;
    use types::NodeId;

    #[test]
    fn pr420_what_executors_put_away_at_the_same_time_has_a_name_of_its_own() {
        let keep = tempfile::tempdir().expect("a directory");
        let root = keep.path().join("data");
        init(&root, Kind::Node, NodeId(1)).expect("initialises");
        let dir = DataDir::open(&root, Kind::Node).expect("opens");
        let put_away = |number: usize| {
            let engine = root.join(format!("partitions/{number}/engine"));
            for _ in 0..50 {
                fs::create_dir_all(&engine).expect("makes");
                fs::write(engine.join("file"), "rows").expect("writes");
                dir.set_aside(&engine, "engine").expect("sets aside");
            }
        };
        // Nobody waits for another one, so they meet at the same names.
        thread::scope(|scope| (0..4).for_each(|number| drop(scope.spawn(move || put_away(number)))));
        let aside = fs::read_dir(root.join("damaged")).expect("lists");
        assert!(aside.map(|entry| entry.expect("an entry").path()).all(|path| path.join("file").exists()));
        assert_eq!(fs::read_dir(root.join("damaged")).expect("lists").count(), 200, "each is there");
    }
}

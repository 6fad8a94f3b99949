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
        let target = (0..).map(|n| place.join(format!("{name}-{n}"))).find(|target| !target.exists());
        let target = target.expect("numbers do not end");
        match fs::rename(path, &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(target),
            outcome => outcome?,
        }
        files::sync_dir(path.parent().expect("what is renamed lies in a directory"))?;
        files::sync_dir(&place)?;
        Ok(target)
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

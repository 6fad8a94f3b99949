//! Removal: first a rename into `trash/`, which happens at once or not at all, then the slow part on another thread.

use super::{DataDir, files};
use std::fs;
use std::io;
use std::path::Path;

impl DataDir {
    /// Takes a file or directory out of use. What is not there is gone already.
    pub fn discard(&self, path: &Path) -> io::Result<()> {
        let trash = self.root().join("trash");
        let name = path.file_name().expect("what is discarded has a name").to_string_lossy();
        let target = (0..).map(|n| trash.join(format!("{name}-{n}"))).find(|target| !target.exists());
        match fs::rename(path, target.expect("numbers do not end")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            outcome => outcome?,
        }
        files::sync_dir(path.parent().expect("what is discarded lies in a directory"))?;
        files::sync_dir(&trash)?;
        self.empty_trash();
        Ok(())
    }

    /// Removes what is in the trash, on a thread of its own. What fails is tried again at the next start.
    pub(super) fn empty_trash(&self) {
        let trash = self.root().join("trash");
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

//! A directory with all that is in it, as some of the recorded changes left it.

use crate::record::{Change, Entry, Node};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use xxhash_rust::xxh3::Xxh3;

/// A directory's content.
#[derive(Clone)]
pub struct Image {
    /// Which nodes are directories.
    directories: Rc<BTreeSet<Node>>,
    names: BTreeMap<Node, Rc<BTreeMap<String, Node>>>,
    files: BTreeMap<Node, Rc<Content>>,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    digest: OnceCell<u128>,
}

impl Image {
    /// An empty directory, in which these nodes will be directories.
    pub fn new(directories: Rc<BTreeSet<Node>>) -> Image {
        Image { directories, names: BTreeMap::new(), files: BTreeMap::new() }
    }

    /// Applies a change. What it rests on may be missing: a name comes to a file that lost its content, and a
    /// file of which a part was written has zeros below.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Name(entry, node) | Change::NameDir(entry, node) => self.name(entry, *node),
            Change::Unname(entry) => {
                Rc::make_mut(self.names.entry(entry.dir).or_default()).remove(&entry.name);
            }
            Change::Rename(from, to, node) => {
                let names = Rc::make_mut(self.names.entry(from.dir).or_default());
                if names.get(&from.name) == Some(node) {
                    names.remove(&from.name);
                }
                self.name(to, *node);
            }
            Change::Write(node, at, bytes) => {
                let content = self.content(*node);
                let (from, end) = (*at as usize, *at as usize + bytes.len());
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[from..end].copy_from_slice(bytes);
            }
            Change::SetLength(node, length) => self.content(*node).resize(*length as usize, 0),
            Change::Sync(_) | Change::SyncFailed(_) | Change::Note(_) => {}
        }
    }

    fn name(&mut self, entry: &Entry, node: Node) {
        Rc::make_mut(self.names.entry(entry.dir).or_default()).insert(entry.name.clone(), node);
    }

    fn content(&mut self, node: Node) -> &mut Vec<u8> {
        let content = Rc::make_mut(self.files.entry(node).or_default());
        content.digest.take();
        &mut content.bytes
    }

    /// The same for the same names and contents.
    pub fn digest(&self) -> u128 {
        let mut hash = Xxh3::new();
        self.hash(Node::ROOT, &mut hash);
        hash.digest128()
    }

    fn hash(&self, dir: Node, hash: &mut Xxh3) {
        for (name, node) in self.names.get(&dir).into_iter().flat_map(|names| names.iter()) {
            hash.update(&(name.len() as u64).to_le_bytes());
            hash.update(name.as_bytes());
            if self.directories.contains(node) {
                hash.update(b"(");
                self.hash(*node, hash);
                hash.update(b")");
            } else {
                let digest = |content: &Rc<Content>| {
                    *content.digest.get_or_init(|| xxhash_rust::xxh3::xxh3_128(&content.bytes))
                };
                let digest = self.files.get(node).map_or(1, digest);
                hash.update(&digest.to_le_bytes());
            }
        }
    }

    /// Writes it into an empty directory.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        self.write_dir(Node::ROOT, to, &mut BTreeMap::new())
    }

    fn write_dir(&self, dir: Node, to: &Path, written: &mut BTreeMap<Node, PathBuf>) -> io::Result<()> {
        for (name, node) in self.names.get(&dir).into_iter().flat_map(|names| names.iter()) {
            let path = to.join(name);
            if self.directories.contains(node) {
                fs::create_dir(&path)?;
                self.write_dir(*node, &path, written)?;
            } else if let Some(first) = written.get(node) {
                fs::hard_link(first, &path)?;
            } else {
                fs::write(&path, self.files.get(node).map_or(&[][..], |content| &content.bytes))?;
                written.insert(*node, path);
            }
        }
        Ok(())
    }
}

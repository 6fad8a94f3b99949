//! Scripts in which engines have files: what a script does to them, and what it is shown of shipping.

use super::{Node, P, World, member, numbers};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard};
use test_engines::{Parts, PartsEngine};
use types::engine::{Version, Wake, space};
use types::{Engine, Lsn, NodeId, Rules};
use understudy_engine::memory::{MemoryEngine, SnapshotStore, SnapshotWriter};
use understudy_replica::history::History;
use understudy_replica::{Host, LeaseManager, Recovered, Replica, Settings};
use wire::ship::{DESCRIPTION, Outcome, Piece};
use wire::{Body, Entry, Op, PeerMessage};

/// A disk: it outlives the replica that uses it.
#[derive(Clone, Default)]
pub struct Files {
    names: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Files {
    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.names.lock().expect("nobody panics with it")
    }

    /// The engine on these files.
    pub fn engine(&self) -> Box<PartsEngine> {
        let engine = MemoryEngine::with_store(Box::new(self.clone())).expect("opens");
        let engine = PartsEngine::new(engine, Box::new(self.clone()), Box::new(self.clone()), Rules::ALL);
        Box::new(engine.expect("opens"))
    }
}

impl SnapshotStore for Files {
    fn save(&mut self, write: SnapshotWriter<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        Parts::replace(self, "snapshot", &bytes)
    }

    fn load(&mut self) -> io::Result<Option<Box<dyn Read>>> {
        let bytes = self.names().get("snapshot").cloned();
        Ok(bytes.map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn Read>))
    }

    fn clear(&mut self) -> io::Result<()> {
        Parts::remove(self, "snapshot")
    }
}

impl Parts for Files {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.names().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        self.replace(name, &[])
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.names().entry(name.into()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.names().insert(name.into(), bytes.to_vec());
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.names().remove(name);
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        Files::names(self).keys().filter(|name| *name != "snapshot").cloned().collect()
    }
}

/// Pieces of files leave whenever they are asked for, and are read back slowly.
pub fn settings() -> Settings {
    let (ship_bytes_per_second, scrub_bytes_per_second, failback_log_bytes) = (0, 100, 0);
    Settings { ship_bytes_per_second, scrub_bytes_per_second, failback_log_bytes, ..Settings::default() }
}

/// What a replica says of its own files.
pub fn show(body: &Body) -> Option<String> {
    let Body::Scrubbed(scrubbed) = body else { return None };
    let (files, bytes) = (scrubbed.files, scrubbed.bytes);
    let mut text = format!(
        "{}, {} of {} files, {} of {} bytes, {} entries",
        if scrubbed.running { "at it" } else { "over" },
        files.1,
        files.0,
        bytes.1,
        bytes.0,
        scrubbed.entries
    );
    for damage in &scrubbed.damage {
        let _ = write!(text, "; {}: {}", damage.file, damage.what);
    }
    Some(text)
}

impl World {
    /// A new world with one setting, in which some have engines with files.
    pub fn begin_with(&mut self, setting: &str, number: usize, files: &[u32]) {
        let mut settings = settings();
        let (mut failback_full, mut failback_keep_bytes) = (0, 0);
        let field = match setting {
            "failback_full" => &mut failback_full,
            "failback_keep_bytes" => &mut failback_keep_bytes,
            // What is kept is on the disk alone.
            "failback_keep_disk" => {
                settings.tail_bytes = 0;
                &mut failback_keep_bytes
            }
            "slice_rows" => &mut settings.slice_rows,
            "tail_bytes" => &mut settings.tail_bytes,
            "waiting_replies" => &mut settings.waiting_replies,
            "copy_bytes" => &mut settings.copy_bytes,
            other => panic!("no setting {other}"),
        };
        *field = number;
        settings.failback_full = failback_full > 0;
        settings.failback_keep_bytes = failback_keep_bytes as u64;
        *self = World::with_settings(settings, files);
    }

    /// Commands about files; false if it is none of them.
    pub fn run_ships(&mut self, words: &[&str]) -> bool {
        match words[0] {
            "checkpoint" => self.checkpoint(numbers(&words[1..])[0]),
            "fail" => {
                self.with(numbers(&words[1..])[0], |host, now, out| {
                    host.fail(now, P, "a file rotted".into(), out)
                });
            }
            "full" => {
                self.with(numbers(&words[1..])[0], |host, now, out| host.short_of_room(now, out));
            }
            "unhouse" => self.unhouse(numbers(&words[1..])[0]),
            "rehouse" => self.relocate(numbers(&words[1..])[0]),
            "install" => self.install(numbers(&words[1..])[0]),
            "restart" => self.restart(numbers(&words[1..])[0]),
            "rot" => self.rot(numbers(&words[1..])[0]),
            "corrupt" => self.corrupt(words[1]),
            "files" => self.files(),
            "spoil" => self.spoil(numbers(&words[1..])[0]),
            "scrub" => {
                let op = Op::Scrub { start: words.contains(&"start") };
                self.ask(numbers(&words[1..2])[0], op, &["any"]);
            }
            "giveup" => {
                let nodes = numbers(&words[1..]);
                let op = Op::GiveUp { source: NodeId(nodes[1]), why: "it is damaged".into() };
                self.ask(nodes[0], op, &["any"]);
            }
            "garbage" => self.garbage(words[1], words[2].parse().expect("a count")),
            _ => return false,
        }
        true
    }

    /// The directory with a replica's files is gone; the node goes on.
    fn unhouse(&mut self, id: u32) {
        self.with(id, |host, now, out| {
            let empty = Box::new(MemoryEngine::volatile());
            drop(host.lose(now, P, empty, "its directory is gone".into(), out));
        });
    }

    /// A replica that asks for it gets another directory.
    fn relocate(&mut self, id: u32) {
        let files = self.shows_ships.then(Files::default);
        let asked = self.node(id).host.storage_lost().contains(&P);
        if !asked {
            let _ = writeln!(self.trace, "n{id} asks for no place");
            return;
        }
        let engine: Box<dyn Engine> = match &files {
            Some(files) => files.engine(),
            None => Box::new(MemoryEngine::volatile()),
        };
        self.node(id).files = files.unwrap_or_default();
        self.with(id, |host, now, out| host.relocate(now, P, engine, out));
    }

    /// A log takes no entry that does not continue it.
    pub fn logged(&mut self, id: u32, entry: Entry) {
        let node = self.nodes.get_mut(&id).expect("a node");
        let (end, crc) = node.log.last().map_or(node.base, |last| (last.at(), last.crc()));
        let (at, prev_crc) = (entry.at(), entry.header().prev_crc);
        assert!(
            at.lsn == end.lsn.next() && prev_crc == crc,
            "n{id}: {at} does not continue the log to {end}"
        );
        node.log.push(entry);
        node.unsynced = true;
    }

    /// A checkpoint is due.
    pub fn checkpoint(&mut self, node: u32) {
        self.with(node, |host, _, _| {
            host.replica_mut(P).expect("a replica").checkpoint().expect("writes");
        });
    }

    /// A member asked for one.
    pub fn asked_for_flush(&mut self, node: u32) {
        let _ = writeln!(self.trace, "n{node} is asked for a flush");
        self.checkpoint(node);
    }

    /// One step of an installation.
    pub fn install(&mut self, id: u32) {
        let wake: Wake = Arc::new(|| {});
        let mut again = false;
        self.with(id, |host, now, out| again = host.install(now, P, &wake, out));
        if !again {
            self.node(id).installs = false;
        }
    }

    fn node(&mut self, id: u32) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node")
    }

    /// A node's process ends and starts again, on the log and the files that it had.
    fn restart(&mut self, id: u32) {
        let lease_manager = LeaseManager::new(member(id), &self.settings, self.now);
        let settings = self.settings.clone();
        let node = self.node(id);
        let mut history = History::default();
        for entry in &node.log {
            history.append(entry.at());
        }
        let (base, base_crc) = node.base;
        let (end, end_crc) = node.log.last().map_or(node.base, |entry| (entry.at(), entry.crc()));
        let found =
            Recovered { base, base_crc, end, end_crc, history, secured: Lsn::ZERO, ..Recovered::nothing() };
        let mut replica = Replica::recover(member(id), P, Rules::ALL, node.files.engine(), found);
        while let Some(from) = replica.log().to_replay() {
            replica.replay(node.log.iter().filter(|entry| entry.lsn() >= from).take(1).cloned().collect());
        }
        node.host = Host::new(member(id), settings, lease_manager);
        node.host.add(replica);
        node.installs = false;
        self.wire.retain(|(from, to), _| *from != id && *to != id);
    }

    /// A node starts again, finds its log, and nothing that can be used of its engine's files, or no place
    /// for any.
    pub fn damage(&mut self, id: u32, whole: bool, storage_lost: bool) {
        let lease_manager = LeaseManager::new(member(id), &self.settings, self.now);
        let node = self.nodes.get_mut(&id).expect("a node");
        let mut history = History::default();
        for entry in &node.log {
            history.append(entry.at());
        }
        let (base, base_crc) = node.base;
        let (end, end_crc) = node.log.last().map_or(node.base, |entry| (entry.at(), entry.crc()));
        let damaged = Some("its files cannot be read".into());
        let secured = Lsn::ZERO;
        let torn = false;
        let found =
            Recovered { base, base_crc, end, end_crc, history, secured, torn, damaged, whole, storage_lost };
        let engine = Box::new(MemoryEngine::volatile());
        let mut replica = Replica::recover(member(id), P, Rules::ALL, engine, found);
        while let Some(from) = replica.log().to_replay() {
            replica.replay(node.log.iter().filter(|entry| entry.lsn() >= from).take(1).cloned().collect());
        }
        node.host = Host::new(member(id), self.settings.clone(), lease_manager);
        node.host.add(replica);
        self.wire.retain(|(from, to), _| *from != id && *to != id);
    }

    /// A byte of what a node has received changes on its disk.
    fn rot(&mut self, id: u32) {
        let files = self.node(id).files.clone();
        let mut names = files.names();
        let rotten = names.iter_mut().find(|(name, bytes)| name.starts_with("in-") && !bytes.is_empty());
        let (name, bytes) = rotten.expect("something was received");
        bytes[0] ^= 1;
        let _ = writeln!(self.trace, "n{id}: a byte of {name} changes");
    }

    /// A byte of the last file that a node has pinned changes on its disk.
    fn spoil(&mut self, id: u32) {
        let files = self.node(id).files.clone();
        let mut names = files.names();
        let pinned = names.iter_mut().rfind(|(name, bytes)| name.starts_with("pin-") && !bytes.is_empty());
        let (name, bytes) = pinned.expect("something is pinned");
        bytes[0] ^= 1;
        let _ = writeln!(self.trace, "n{id}: a byte of {name} changes");
    }

    /// The next piece on a link comes with another byte.
    fn corrupt(&mut self, link: &str) {
        let queue = self.wire.get_mut(&super::link(link)).into_iter().flatten();
        let chunk = queue.filter_map(|message| match message {
            PeerMessage::Chunk(chunk) => Some(chunk),
            _ => None,
        });
        let chunk = chunk.into_iter().next().expect("a piece is on its way");
        let mut bytes = chunk.bytes.to_vec();
        bytes[0] ^= 1;
        chunk.bytes = bytes.into();
    }

    /// Users' rows that are set aside.
    pub fn show_rows(&mut self, rows: &[Version]) {
        for version in rows.iter().filter(|version| version.key[0] == space::ROW) {
            let value = version.value.as_ref().map(|value| String::from_utf8_lossy(value));
            let key = String::from_utf8_lossy(&version.key[1..]);
            let value = value.as_deref().unwrap_or("deleted");
            let _ = writeln!(self.trace, "  the row {key} of LSN {}: {value}", version.lsn);
        }
    }

    /// What lies in the directories of all nodes.
    fn files(&mut self) {
        for (id, node) in &self.nodes {
            let names = Parts::names(&node.files);
            let _ = writeln!(
                self.trace,
                "n{id}: {}",
                if names.is_empty() { "nothing".into() } else { names.join(" ") }
            );
        }
    }

    /// A message about files is shown where it is delivered.
    pub fn show_ships(&mut self, from: u32, to: u32, message: &PeerMessage) {
        let name = |piece: &Piece| match piece.file {
            DESCRIPTION => format!("the description from {}", piece.from),
            file => format!("file {file} from {}", piece.from),
        };
        let what = match message {
            PeerMessage::TransferOffer(offer) => {
                format!("offers files at {}, in pieces of {}", offer.at, offer.piece_bytes)
            }
            PeerMessage::TransferRequest(want) if want.pieces.is_empty() => "is still at it".into(),
            PeerMessage::TransferRequest(want) => {
                let pieces: Vec<String> = want.pieces.iter().map(name).collect();
                format!("has {} bytes, wants {}", want.have, pieces.join(", "))
            }
            PeerMessage::Chunk(chunk) => format!("{}: {} bytes", name(&chunk.piece), chunk.bytes.len()),
            PeerMessage::Installed(taken) => match &taken.outcome {
                Outcome::Installed => "has installed them".into(),
                Outcome::Refused(why) => format!("refuses: {why}"),
                Outcome::LogIsLess => "takes the log instead".into(),
            },
            PeerMessage::Withdrawn(_) => "withdraws the offer".into(),
            PeerMessage::FlushRequest(asked) => format!("asks for files above {}", asked.persisted),
            PeerMessage::FlushAnswer(answer) if answer.flushed => format!("has files at {}", answer.at),
            PeerMessage::FlushAnswer(answer) => format!("has nothing to flush above {}", answer.at),
            PeerMessage::Copy(copy) => format!("copies {} rows at {}", copy.rows.len(), copy.at),
            _ => return,
        };
        if self.shows_ships {
            let _ = writeln!(self.trace, "n{from}>n{to} {what}");
        }
    }
}

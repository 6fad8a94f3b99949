//! The metastore: one journal on one simulated disk, which may be out of reach, slow, or lose its answers.

use crate::disk::Disk;
use crate::random::{Concern, Stream};
use controller::rebuild::Rebuilt;
use controller::{Txn, TxnError, TxnOutcome};
use metastore::embedded::journal;
use metastore::table::Table;
use metastore::{Changes, Embedded, MetaError, Metastore, RecordsSnapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use wire::RecordText;

/// What a transaction takes at most when nothing is wrong, microseconds.
const TXN_US: u64 = 500;

/// The metastore and its machine.
pub(super) struct Meta {
    disk: Disk,
    store: Embedded<Journal>,
    /// It answers nothing until then.
    down_until: u64,
    /// What a transaction takes at most.
    slow_us: u64,
    /// Answers that are lost, per thousand.
    unheard: u64,
    /// Its machine went down, and the journal could not be opened again yet.
    closed: bool,
    /// Its disk is gone.
    lost: bool,
    /// Up to this revision the checkers have seen what was written.
    seen: u64,
    /// The keys that were there then.
    keys: BTreeSet<String>,
    /// The reports of failovers that were there then: an operator has seen those.
    failovers: BTreeMap<String, RecordText>,
}

/// The journal of the metastore on a simulated disk.
struct Journal {
    disk: Disk,
}

const JOURNAL: &str = "journal";

/// Keys of reports of failovers begin so.
const FAILOVERS: &str = "failover/";

impl metastore::embedded::Store for Journal {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.disk.read(JOURNAL) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.append(JOURNAL, bytes, true)
    }

    fn hint(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.append(JOURNAL, bytes, false)
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.replace(JOURNAL, bytes)
    }
}

impl Meta {
    /// An empty one.
    pub fn new(disk: Disk) -> Meta {
        let store =
            Embedded::open(Journal { disk: disk.clone() }).expect("an empty disk holds an empty store");
        Meta {
            disk,
            store,
            down_until: 0,
            slow_us: TXN_US,
            unheard: 0,
            closed: false,
            lost: false,
            seen: 0,
            keys: BTreeSet::new(),
            failovers: BTreeMap::new(),
        }
    }

    /// All that it has, on another disk.
    pub fn copy(&self, disk: Disk) -> Meta {
        if let Ok(bytes) = self.disk.read(JOURNAL) {
            disk.replace(JOURNAL, &bytes).expect("an empty disk has room");
        }
        Meta::new(disk)
    }

    /// True if it answers nothing now.
    pub fn is_down(&self, now: u64) -> bool {
        self.down_until > now
    }

    /// True if it answers everything, quickly.
    pub fn is_well(&self, now: u64) -> bool {
        let is_sound = self.disk.trouble() == Default::default();
        !self.is_down(now) && self.slow_us == TXN_US && self.unheard == 0 && is_sound && !self.lost
    }

    /// Its disk is full, or not any more.
    pub fn fill(&self, full: bool) {
        self.disk.set_trouble(|trouble| trouble.full = full);
    }

    /// The next sync of its journal fails.
    pub fn fail_sync(&self) {
        self.disk.set_trouble(|trouble| trouble.fail_sync = true);
    }

    /// True if something failed and nothing is accepted any more (F08).
    pub fn has_failed(&mut self) -> bool {
        self.closed || self.store.range("").is_err()
    }

    /// Opens the journal again, if the store has failed and that works now. The error says that it is
    /// damaged.
    fn reopen(&mut self) -> Result<(), String> {
        if self.lost || !self.has_failed() {
            return Ok(());
        }
        match Embedded::open(Journal { disk: self.disk.clone() }) {
            Ok(store) => (self.store, self.closed) = (store, false),
            Err(error @ MetaError::Damaged(_)) => return Err(error.to_string()),
            Err(_) => {}
        }
        Ok(())
    }

    /// Opens a copy of its journal that has lost its end, at any byte. False if that is damaged, and says so.
    /// The error: it opens, and has what was there at no moment.
    pub fn open_cut(&mut self, random: &mut Stream) -> Result<bool, String> {
        let Ok(mut bytes) = self.disk.read(JOURNAL) else { return Ok(false) };
        let at = random.below(bytes.len().max(1) as u64) as usize;
        bytes.truncate(at);
        let disk = Disk::new(Stream::new(random.next(), Concern::FileFaults, 2));
        disk.replace(JOURNAL, &bytes).expect("an empty disk has room");
        let mut opened = match Embedded::open(Journal { disk }) {
            Ok(opened) => opened,
            Err(MetaError::Damaged(_)) => return Ok(false),
            Err(error) => return Err(format!("a journal that was cut at byte {at}: {error}")),
        };
        // What has failed tells nothing to compare with.
        let (Ok(left), Ok(all)) = (opened.range(""), self.store.range("")) else { return Ok(true) };
        let mut older = all.entries.iter().filter(|entry| entry.revision <= left.revision);
        match left.revision <= all.revision && older.all(|entry| left.entries.contains(entry)) {
            true => Ok(true),
            false => Err(format!("a journal that was cut at byte {at} has other records than were there")),
        }
    }

    /// Its disk is gone, with all records; the reports of failovers that were there are given back. That the
    /// journal may have failed before does not matter to who has read them.
    pub fn lose(&mut self) -> Vec<RecordText> {
        self.disk.wipe();
        (self.lost, self.closed) = (true, true);
        std::mem::take(&mut self.failovers).into_values().collect()
    }

    /// It begins with records that were made anew.
    pub fn restore(&mut self, rebuilt: &Rebuilt) {
        let entry = |(key, value): &(controller::Key, Vec<u8>)| controller::Entry {
            key: key.to_string(),
            revision: rebuilt.revision,
            value: value.clone(),
        };
        let entries = rebuilt.entries.iter().map(entry).collect();
        let table = Table::restore(RecordsSnapshot { revision: rebuilt.revision, entries });
        self.disk.wipe();
        self.disk.replace(JOURNAL, &journal::fresh(&table)).expect("an empty disk has room");
        self.store = Embedded::open(Journal { disk: self.disk.clone() }).expect("it was just written");
        (self.lost, self.closed) = (false, false);
        // Nobody may have heard of the records that were made before these: then both begin alike.
        self.seen = 0;
    }

    /// What a transaction takes at most.
    pub fn slow_us(&self) -> u64 {
        self.slow_us
    }

    /// Answers that are lost, per thousand.
    pub fn unheard(&self) -> u64 {
        self.unheard
    }

    /// It answers nothing until then; with `power` its machine loses power too, and is started again.
    pub fn goes_down(&mut self, until: u64, power: bool) -> Result<(), String> {
        self.down_until = until;
        if power {
            self.disk.lose_power();
            self.closed = true;
            self.reopen()?;
        }
        Ok(())
    }

    /// Other weather; what is not named stays.
    pub fn weather(&mut self, slow_us: Option<u64>, unheard: Option<u64>) {
        self.slow_us = slow_us.unwrap_or(self.slow_us);
        self.unheard = unheard.unwrap_or(self.unheard);
    }

    /// Transactions are quick again, and answered.
    pub fn clear(&mut self) {
        self.weather(Some(TXN_US), Some(0));
    }

    /// Its troubles are over.
    pub fn heal(&mut self) {
        self.down_until = 0;
        self.disk.set_trouble(|trouble| *trouble = Default::default());
        self.clear();
    }

    /// Everything in it, for a controller that starts, which opens it if it had failed. None: it cannot now.
    /// The error says that it is damaged.
    pub fn open(&mut self) -> Result<Option<controller::Input>, String> {
        self.reopen()?;
        Ok(self.load())
    }

    /// Everything in it.
    fn load(&mut self) -> Option<controller::Input> {
        if self.closed {
            return None;
        }
        let all = self.store.range("").ok()?;
        Some(controller::Input::Loaded { revision: all.revision, entries: all.entries })
    }

    /// What was written since a controller's revision; none if nothing was.
    pub fn changes_since(&mut self, revision: u64) -> Option<controller::Input> {
        if self.closed {
            return None;
        }
        match self.store.changes_since(revision) {
            Ok(Changes::Since { changes, .. }) if changes.is_empty() => None,
            Ok(Changes::Since { revision, changes }) => {
                Some(controller::Input::Changed { revision, changes })
            }
            Ok(Changes::Reload) => self.load(),
            Err(_) => None,
        }
    }

    /// Does a transaction. As long as the journal cannot be opened there is no process that could.
    pub fn txn(&mut self, txn: Txn) -> Result<TxnOutcome, TxnError> {
        if self.closed {
            return Err(TxnError::Unknown);
        }
        match self.store.txn(txn) {
            Ok(outcome) => Ok(outcome),
            Err(metastore::MetaError::Invalid(why)) => Err(TxnError::Refused(why)),
            Err(_) => Err(TxnError::Unknown),
        }
    }

    /// What was written since the last call, in order: each key, and its record if there is one now.
    pub fn news(&mut self) -> Vec<(String, Option<RecordText>)> {
        let news = self.written();
        for (key, record) in &news {
            match record {
                Some(_) => self.keys.insert(key.clone()),
                None => self.keys.remove(key),
            };
            match record.clone().filter(|_| key.starts_with(FAILOVERS)) {
                Some(record) => self.failovers.insert(key.clone(), record),
                None => self.failovers.remove(key),
            };
        }
        news
    }

    fn written(&mut self) -> Vec<(String, Option<RecordText>)> {
        match self.store.changes_since(self.seen) {
            Ok(Changes::Since { revision, changes }) => {
                self.seen = revision;
                let text = |value: Option<Vec<u8>>| value.map(|value| text_of(&value));
                changes.into_iter().map(|change| (change.key, text(change.value))).collect()
            }
            // It was opened again, with what nobody knew the outcome of: what was deleted is there no more.
            Ok(Changes::Reload) => {
                let Ok(all) = self.store.range("") else { return Vec::new() };
                let seen = std::mem::replace(&mut self.seen, all.revision);
                let is_there = |key: &&String| all.entries.iter().any(|entry| entry.key == **key);
                let gone = self.keys.iter().filter(|key| !is_there(key)).cloned();
                let mut news: Vec<_> = gone.map(|key| (key, None)).collect();
                let newer = all.entries.into_iter().filter(|entry| entry.revision > seen);
                news.extend(newer.map(|entry| (entry.key, Some(text_of(&entry.value)))));
                news
            }
            Err(_) => Vec::new(),
        }
    }

    /// Records whose keys begin so.
    pub fn records(&mut self, prefix: &str) -> Vec<RecordText> {
        let snapshot = self.store.range(prefix).map(|snapshot| snapshot.entries).unwrap_or_default();
        snapshot.into_iter().map(|entry| text_of(&entry.value)).collect()
    }
}

fn text_of(value: &[u8]) -> RecordText {
    RecordText(String::from_utf8_lossy(value).into_owned())
}

//! A node that starts, or connects again, says who it is.

use crate::api::ConnId;
use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::config::{FORMAT, NodeRecord};
use types::{Now, StoreId};
use wire::control::{Register, RegisterRefused};

/// What to do where a node comes with an older copy of its data directory (PR-145).
const OLDER: &str = "what it has acknowledged since may be missing here. Start it on the directory on which it \
                     ran last, or on a new one (`understudy init`), which is filled by the others";

/// A registration under way.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RegisterJob {
    /// Who waits.
    pub(crate) conn: ConnId,
    /// What it said.
    pub(crate) register: Register,
    /// The same process has said something since: this is not tried again (PR-354).
    pub(crate) outdated: bool,
}

impl Controller {
    /// Writes the node's record if it is news, then sends the cluster map.
    pub(crate) fn on_register(&mut self, now: Now, conn: ConnId, register: Register) {
        if self.records.was_removed(register.member.node, register.member.store) {
            // It is not in the cluster map: that says it all.
            self.send_whole(conn);
            self.close(conn);
            return;
        }
        let known = self.records.node(register.member.node);
        if let Some(refused) = known.and_then(|known| self.not_known(now, known, &register)) {
            self.send(conn, refused);
            self.close(conn);
            return;
        }
        let record = self.node_record(&register);
        // What it said before may yet be written over what is recorded now: then this has to follow it.
        let follows = self.outdate(&register);
        if !follows && self.records.node(register.member.node) == Some(&record) {
            self.welcome(now, conn, &register);
            return;
        }
        let key = Key::Node(record.id);
        let removed = Key::Removed(record.id);
        let txn = Txn::default()
            .compare(&key, self.records.compare_with(&key))
            .compare(&removed, self.records.compare_with(&removed))
            .put(&key, &record);
        self.submit(Purpose::Register(RegisterJob { conn, register, outdated: false }), txn);
    }

    /// A process says something: what it said before is not tried again. True if that is being written.
    fn outdate(&mut self, register: &Register) -> bool {
        let mut found = false;
        for purpose in self.ledger.purposes_mut() {
            if let Purpose::Register(job) = purpose
                && job.register.member == register.member
                && job.register.starts == register.starts
            {
                (job.outdated, found) = (true, true);
            }
        }
        found
    }

    /// Why the one who registers is not the node that the records have, if so: a life that was followed by
    /// another one, a copy of its directory, or another directory beside one on which a process lives.
    fn not_known(&self, now: Now, known: &NodeRecord, register: &Register) -> Option<RegisterRefused> {
        let (member, id) = (register.member, known.id);
        if known.store != member.store {
            let copied = self.is_older_copy(known, &register.starts, member.store);
            if copied {
                let why = format!("node {id} has run on another copy of this data directory since: {OLDER}");
                return Some(RegisterRefused { why, for_good: true });
            }
            let lives = self.failure_detector.hears(&known.member(), now.mono, self.settings.alive);
            let why = format!("node {id} runs on another data directory");
            return lives.then_some(RegisterRefused { why, for_good: false });
        }
        let what = match known.incarnation > member.incarnation {
            true => "was started again since, or this data directory is an older copy of its own",
            false => "has run on another copy of this data directory since",
        };
        let copied = self.is_older_copy(known, &register.starts, member.store);
        let why = format!("node {id} {what}: {OLDER}");
        let refused = copied || known.incarnation > member.incarnation;
        refused.then_some(RegisterRefused { why, for_good: true })
    }

    /// True if a life that drew these numbers lacks the newest one that was known on its directory, whatever
    /// the node has run on since (PR-145, PR-210).
    fn is_older_copy(&self, known: &NodeRecord, starts: &[u64], store: StoreId) -> bool {
        let newest = match known.store == store {
            true => Some(known.start).filter(|start| *start != 0),
            false => known.former().into_iter().find(|(former, _)| *former == store).map(|(_, start)| start),
        };
        newest.is_some_and(|newest| !starts.contains(&newest))
            && self.settings.rules.older_copies_do_not_count()
    }

    fn node_record(&self, register: &Register) -> NodeRecord {
        let member = register.member;
        let known = self.records.node(member.node);
        let unknown = known.map(|known| known.unknown.clone()).unwrap_or_default();
        let mut record = NodeRecord {
            format: FORMAT,
            id: member.node,
            store: member.store,
            incarnation: member.incarnation,
            clean_start: register.clean_start,
            addresses: register.addresses.clone(),
            zone: register.zone.clone(),
            damaged: register.damaged.clone(),
            start: register.starts.last().copied().unwrap_or_default(),
            executors: register.executors,
            unknown,
        };
        if let Some(known) = known {
            record.remember_former(known);
        }
        if known.is_none_or(|known| known.member() != member) {
            // A node that starts anew takes part again.
            record.mark(NodeRecord::DRAINING, false);
        }
        record
    }

    /// The record is in, or somebody else wrote one: then everything is looked at again.
    pub(crate) fn registered(&mut self, now: Now, job: RegisterJob, applied: bool) {
        match applied {
            _ if !self.failure_detector.is_open(job.conn) => {}
            true => self.welcome(now, job.conn, &job.register),
            false if job.outdated => {}
            false => self.on_register(now, job.conn, job.register),
        }
    }

    fn welcome(&mut self, now: Now, conn: ConnId, register: &Register) {
        self.send_whole(conn);
        self.failure_detector.registered(conn, register.member, now.mono);
        self.repeat_advice(&register.member);
        self.decide_all(now);
    }
}

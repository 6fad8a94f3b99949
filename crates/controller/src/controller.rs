//! The state machine: its state, its one entrance, and what follows from every input.

use crate::admin::Waiting;
use crate::api::{ConnId, Input, Output};
use crate::arbitration::Arbitration;
use crate::failover_decision::Sealing;
use crate::failure_detector::FailureDetector;
use crate::keys::Key;
use crate::ledger::{Ledger, Purpose};
use crate::planner::Planner;
use crate::records::{Records, Replaced};
use crate::settings::Settings;
use crate::txn::{Reading, Txn};
use types::config::{ClusterRecord, FORMAT, PartitionRecord};
use types::random::mix;
use types::{ClusterId, Now, PartitionId, ProposalId};
use wire::Message;

/// What makes this controller this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster's id, used if the cluster's record must be created.
    pub cluster: ClusterId,
    /// A random number, another one in every life of every controller: proposals and hash seeds come from it.
    pub seed: u64,
}

/// A controller. See the crate's page.
#[derive(Debug)]
pub struct Controller {
    pub(crate) settings: Settings,
    pub(crate) identity: Identity,
    /// How many numbers were drawn from the seed.
    drawn: u64,
    /// True once the metastore was read.
    loaded: bool,
    /// True if this controller plans.
    pub(crate) leading: bool,
    /// The cluster map.
    pub(crate) records: Records,
    /// Who is heard.
    pub(crate) failure_detector: FailureDetector,
    /// Transactions under way.
    pub(crate) ledger: Ledger,
    /// Seals under way, and when restarts were first seen.
    pub(crate) sealing: Sealing,
    /// Who lost arbitrations lately.
    pub(crate) arbitration: Arbitration,
    /// What the planner remembers.
    pub(crate) planner: Planner,
    /// Operators' wishes that wait for their turn.
    pub(crate) waiting: Waiting,
    out: Vec<Output>,
}

impl Controller {
    /// A controller that knows nothing yet.
    pub fn new(identity: Identity, settings: Settings) -> Controller {
        Controller {
            settings,
            identity,
            drawn: 0,
            loaded: false,
            leading: false,
            records: Records::default(),
            failure_detector: FailureDetector::default(),
            ledger: Ledger::default(),
            sealing: Sealing::default(),
            arbitration: Arbitration::default(),
            planner: Planner::default(),
            waiting: Waiting::default(),
            out: Vec::new(),
        }
    }

    /// Tells the controller something; it answers with what is to be done, in order.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Output> {
        match input {
            Input::Loaded { revision, entries } => self.on_loaded(now, revision, entries),
            Input::Changed { revision, changes } => self.on_changed(now, revision, changes),
            Input::Received { conn, message } => self.on_received(now, conn, message),
            Input::Disconnected { conn } => self.failure_detector.disconnected(conn),
            Input::TxnDone { tag, outcome } => self.on_txn_done(now, tag, outcome),
            Input::Lead(leading) => self.on_lead(leading),
            Input::Tick => self.on_tick(now),
        }
        self.push_delta();
        debug_assert_eq!(self.validate(), Ok(()));
        std::mem::take(&mut self.out)
    }

    /// The last known record of a partition.
    pub fn partition(&self, id: PartitionId) -> Option<&PartitionRecord> {
        self.records.partition(id)
    }

    /// Everything in the metastore up to this revision is known here: where the shell asks for changes from.
    pub fn revision(&self) -> u64 {
        self.records.complete()
    }

    /// True if this controller plans.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// Checks what must hold between the parts of the state (habits 6). The error is a sentence.
    pub fn validate(&self) -> Result<(), String> {
        self.ledger.validate()?;
        self.sealing.validate(&self.ledger)
    }

    fn on_loaded(&mut self, now: Now, revision: u64, entries: Vec<crate::txn::Entry>) {
        let replaced = self.records.load(revision, entries);
        self.loaded = true;
        self.noticed(now, replaced);
        self.bootstrap(now);
        self.decide_all(now);
    }

    /// Creates the cluster's record if there is none.
    pub(crate) fn bootstrap(&mut self, now: Now) {
        if self.records.cluster().is_some()
            || self.ledger.any(|purpose| matches!(purpose, Purpose::Bootstrap))
        {
            return;
        }
        let record = ClusterRecord {
            format: FORMAT,
            id: self.identity.cluster,
            created_ms: now.wall_ms,
            next_table: 1,
            next_partition: PartitionId::FIRST_USER,
            next_system: PartitionId::FIRST_SYSTEM,
            next_failover: 1,
            generation: Default::default(),
            asked: 0,
            unknown: Default::default(),
        };
        let revision = self.records.compare_with(&Key::Cluster);
        self.submit(
            Purpose::Bootstrap,
            Txn::default().compare(Key::Cluster, revision).put(Key::Cluster, &record),
        );
    }

    fn on_changed(&mut self, now: Now, revision: u64, changes: Vec<crate::txn::Change>) {
        let apply = |change: &crate::txn::Change| {
            self.records.apply(&change.key, change.revision, change.value.as_deref())
        };
        let replaced: Vec<Replaced> = changes.iter().filter_map(apply).collect();
        self.records.caught_up(revision);
        self.noticed(now, replaced);
        if !changes.is_empty() {
            self.decide_all(now);
        }
    }

    /// Takes in what a transaction read.
    pub(crate) fn learn(&mut self, now: Now, revision: u64, readings: &[Reading]) {
        let replaced = self.records.read(revision, readings);
        self.noticed(now, replaced);
    }

    /// What is remembered about partitions follows their records.
    fn noticed(&mut self, now: Now, replaced: Vec<Replaced>) {
        for change in replaced {
            self.planner.noticed(now.mono, &self.settings, &change);
            let (Some(old), Some(new)) = (&change.old, &change.new) else { continue };
            if old.primary != new.primary {
                self.arbitration.term_ended(new, now.mono, &self.settings);
            }
        }
    }

    fn on_received(&mut self, now: Now, conn: ConnId, message: Message) {
        if !self.loaded {
            // Nothing can be answered truly yet: come again.
            self.close(conn);
            return;
        }
        self.failure_detector.something_came(conn, now.mono);
        match message {
            Message::Register(register) => self.on_register(now, conn, register),
            Message::NodeStatus(status) => self.failure_detector.status(conn, status, now.mono),
            Message::Suspect(suspect) => self.on_suspect(now, conn, suspect),
            Message::Propose(propose) => self.on_propose(now, conn, propose),
            Message::Served(served) => self.on_served(served),
            Message::TailSetAside(tail) => self.on_tail(tail),
            Message::Admin(admin) => self.on_admin(now, conn, admin),
            // No other message is meant for a controller.
            _ => self.close(conn),
        }
    }

    fn on_lead(&mut self, leading: bool) {
        self.leading = leading;
        if !leading {
            self.planner.stop();
        }
    }

    fn on_tick(&mut self, now: Now) {
        if !self.loaded {
            return;
        }
        self.repeat_unknown(now);
        self.bootstrap(now);
        self.decide_all(now);
        self.go_on_waiting(now);
        if self.leading {
            self.plan(now);
        }
    }

    /// A number that no other proposal has.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.identity.seed.wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A new proposal's name.
    pub(crate) fn proposal(&mut self) -> ProposalId {
        ProposalId(self.draw())
    }

    /// Sends a message, unless the connection is gone.
    pub(crate) fn send(&mut self, conn: ConnId, message: impl Into<Message>) {
        if !self.failure_detector.is_open(conn) {
            return;
        }
        self.out.push(Output::Send { conn, message: message.into() });
    }

    /// Closes a connection and forgets it.
    pub(crate) fn close(&mut self, conn: ConnId) {
        self.failure_detector.disconnected(conn);
        self.out.push(Output::Close { conn });
    }

    /// Hands out an effect.
    pub(crate) fn emit(&mut self, output: Output) {
        self.out.push(output);
    }

    /// The whole cluster map, to one connection; it gets every change from now on.
    pub(crate) fn send_whole(&mut self, conn: ConnId) {
        // What changed just now goes to the others first: this connection's deltas begin after its whole
        // cluster map.
        self.push_delta();
        let whole = self.records.whole();
        self.failure_detector.subscribe(conn, whole.whole);
        self.send(conn, whole);
    }

    /// Sends what is news. Whoever was sent all that was known here, before it was known what there is not,
    /// gets the whole cluster map once that is (PR-161).
    fn push_delta(&mut self) {
        let delta = self.records.delta();
        for conn in self.failure_detector.subscribers().collect::<Vec<_>>() {
            delta.iter().for_each(|delta| self.send(conn, delta.clone()));
        }
        if self.records.is_whole() {
            for conn in self.failure_detector.take_owed() {
                let whole = self.records.whole();
                self.send(conn, whole);
            }
        }
    }
}

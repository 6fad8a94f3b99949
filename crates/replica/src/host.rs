//! All replicas of one node, driven together: inputs go to the partition they name, and what coalesces is
//! sent once per batch of inputs.

use crate::budget::{Budgets, Look, Need, Shares};
use crate::context::Ctx;
use crate::damage::Fault;
use crate::lease::Leases;
use crate::output::{ClientRef, Output, ReadFor};
use crate::replica::{Replica, row_turns};
use crate::settings::Settings;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::engine::Wake;
use types::index::Wanted;
use types::{
    Durable, Engine, Epoch, Member, Micros, NodeId, Now, PartitionId, PartitionRecord, Position, Ship,
    TableId,
};
use wire::control::{Advise, Proposed, ReplicaStatus, Suspect};
use wire::peer::Append;
use wire::{Body, Entry, PeerMessage, Reply, Request, Status};

/// How long a primary was not heard, and for which partitions.
type Missed = (Micros, Vec<(PartitionId, Epoch, Position)>);

/// The most pieces of files that are read back in one tick, however many bytes may be read.
const SCRUB_PIECES: usize = 16;
/// Who was not ticked for so many heartbeat intervals stands still, and has no part in what a node may send.
const TICKS_MISSED: u64 = 5;

/// A node's replicas and what they share.
pub struct Host<L: Leases> {
    me: Member,
    settings: Settings,
    leases: L,
    replicas: BTreeMap<PartitionId, Replica>,
    /// The newest life of each node that was connected.
    incarnations: BTreeMap<NodeId, Member>,
    /// Replicas that had an input since the last flush.
    touched: BTreeSet<PartitionId>,
    /// Replicas with a count or a digest under way.
    aggregating: VecDeque<PartitionId>,
    /// Replicas of which members want pieces of files.
    shipping: VecDeque<PartitionId>,
    /// What may be shipped and read back now.
    shares: Shares,
    /// The indexes that tables are to have.
    wanted: BTreeMap<TableId, Wanted>,
    /// The databases whose members are sent calls.
    calling: BTreeSet<TableId>,
    /// There is no room for what would be built.
    rests: bool,
    /// Replicas that read their files back.
    scrubbing: VecDeque<PartitionId>,
}

impl<L: Leases> Host<L> {
    /// A node without replicas.
    pub fn new(me: Member, settings: Settings, leases: L) -> Host<L> {
        Host {
            me,
            settings,
            leases,
            replicas: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            touched: BTreeSet::new(),
            aggregating: VecDeque::new(),
            shipping: VecDeque::new(),
            shares: Shares::of(&Budgets::default()),
            wanted: BTreeMap::new(),
            calling: BTreeSet::new(),
            rests: false,
            scrubbing: VecDeque::new(),
        }
    }

    /// The same, with the budgets of its node: all hosts that share them ship and read back no more in a
    /// second, all together, than the settings say.
    pub fn sharing(self, budgets: Budgets) -> Host<L> {
        Host { shares: Shares::of(&budgets), ..self }
    }

    /// This life of this node.
    pub fn me(&self) -> Member {
        self.me
    }

    /// The settings it runs with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The leases.
    pub fn leases(&mut self) -> &mut L {
        &mut self.leases
    }

    /// Adds a replica, new or recovered.
    pub fn add(&mut self, replica: Replica) {
        self.replicas.insert(replica.id(), replica);
    }

    /// A driver found that a replica's storage cannot be used: it stops until it is given a copy.
    pub fn fail(&mut self, now: Now, partition: PartitionId, reason: String, out: &mut Vec<Output>) {
        self.with(now, partition, out, |replica, ctx| replica.fail(ctx, Fault::Engine(reason)));
    }

    /// The place of a replica's files is lost, and only that: it is damaged, and `empty`, an engine that
    /// keeps nothing, stands in for its own until [`Host::relocate`]. Gives the engine that was there.
    pub fn lose(
        &mut self,
        now: Now,
        partition: PartitionId,
        empty: Box<dyn Engine>,
        reason: String,
        out: &mut Vec<Output>,
    ) -> Option<Box<dyn Engine>> {
        self.with(now, partition, out, |replica, ctx| replica.lose(ctx, empty, reason)).flatten()
    }

    /// The replicas whose engine lost its place and that are to be given a copy now: each needs
    /// [`Host::relocate`].
    pub fn storage_lost(&self) -> Vec<PartitionId> {
        self.replicas
            .values()
            .filter(|replica| replica.role.is_storage_lost() && replica.config.is_catching_up(&self.me))
            .map(Replica::id)
            .collect()
    }

    /// Gives such a replica an empty engine in another place. Nothing may be left there of an earlier copy.
    pub fn relocate(
        &mut self,
        now: Now,
        partition: PartitionId,
        engine: Box<dyn Engine>,
        out: &mut Vec<Output>,
    ) {
        self.with(now, partition, out, |replica, _| replica.relocate(engine));
    }

    /// Answers all that waits at a replica that is to be removed next.
    pub fn dismiss(&mut self, now: Now, partition: PartitionId, out: &mut Vec<Output>) {
        self.with(now, partition, out, |replica, ctx| replica.dismiss(ctx));
    }

    /// Removes a replica: its table was dropped, or it has departed.
    pub fn remove(&mut self, partition: PartitionId) -> Option<Replica> {
        self.leases.lead(partition, None);
        self.touched.remove(&partition);
        self.aggregating.retain(|other| *other != partition);
        self.shipping.retain(|other| *other != partition);
        self.scrubbing.retain(|other| *other != partition);
        self.replicas.remove(&partition)
    }

    /// True if this node has this partition's replica.
    pub fn has(&self, partition: PartitionId) -> bool {
        self.replicas.contains_key(&partition)
    }

    /// A replica.
    pub fn replica(&self, partition: PartitionId) -> Option<&Replica> {
        self.replicas.get(&partition)
    }

    /// A replica, for checkpoints. With the next flush it forgets what they have made superfluous.
    pub fn replica_mut(&mut self, partition: PartitionId) -> Option<&mut Replica> {
        let replica = self.replicas.get_mut(&partition)?;
        self.touched.insert(partition);
        Some(replica)
    }

    /// All replicas.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values()
    }

    fn with<T>(
        &mut self,
        now: Now,
        partition: PartitionId,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Replica, &mut Ctx) -> T,
    ) -> Option<T> {
        let replica = self.replicas.get_mut(&partition)?;
        self.touched.insert(partition);
        let mut ctx =
            Ctx { now, leases: &mut self.leases, out, settings: &self.settings, calling: &self.calling };
        Some(act(replica, &mut ctx))
    }

    /// A record that a compare-and-set has written. False if this node is a member and has no such replica
    /// yet: the driver makes one, adds it and calls again.
    pub fn configure(&mut self, now: Now, record: PartitionRecord, out: &mut Vec<Output>) -> bool {
        let partition = record.id;
        if !self.has(partition) {
            return !record.holds(&self.me);
        }
        self.with(now, partition, out, |replica, ctx| replica.configure(ctx, record));
        let connected: Vec<Member> = self.incarnations.values().copied().collect();
        self.with(now, partition, out, |replica, _| {
            if let Some(leader) = replica.role.leader_mut() {
                connected.into_iter().for_each(|incarnation| leader.on_connected(incarnation));
            }
        });
        true
    }

    /// A client's request. Exactly one [`Output::Reply`] follows, now or later.
    pub fn request(&mut self, now: Now, to: ClientRef, request: Request, out: &mut Vec<Output>) {
        let (partition, id) = (request.partition, request.id);
        if self.with(now, partition, out, |replica, ctx| replica.on_request(ctx, to, &request)).is_none() {
            let reply = Reply {
                id,
                status: Status::NotPrimary,
                lsn: types::Lsn::ZERO,
                epoch: Epoch::ZERO,
                policy: 0,
                copies: 0,
                hint: None,
                body: Body::None,
            };
            out.push(Output::Reply { partition, to, reply: Box::new(reply), valid_until: None });
        }
        self.note_aggregates(partition);
        self.note_scrub(partition);
    }

    /// True if [`Host::aggregate`] has something to do.
    pub fn aggregates(&self) -> bool {
        !self.aggregating.is_empty()
    }

    /// Goes on with one count, digest, large write or call, for a bounded number of rows or steps. A
    /// driver calls it between its other work for as long as [`Host::aggregates`] says so; [`Host::tick`]
    /// does it too, so none is forgotten. Gives the partition whose call has had the turn and goes on: the
    /// driver knows how long that took ([`Host::ran`]).
    pub fn aggregate(&mut self, now: Now, out: &mut Vec<Output>) -> Option<PartitionId> {
        let partition = self.aggregating.pop_front()?;
        let goes_on = self.with(now, partition, out, |replica, ctx| {
            if replica.role.has_replay(&replica.config, &replica.data) {
                replica.replay_slice(ctx);
                return false;
            }
            let others = !replica.readers.aggregates.is_empty() || !replica.large.is_empty();
            if replica.features.calls.take_turn(others) {
                return crate::replica::call::go_on(replica, ctx);
            }
            replica.go_on_with_large(ctx);
            replica.aggregate(ctx);
            false
        });
        self.note_aggregates(partition);
        goes_on.filter(|goes_on| *goes_on).map(|_| partition)
    }

    /// A call's slice took so long, of the processor if the driver can tell. It is the primary alone that
    /// counts it: a call that has run for too long ends with its next slice, and that is its outcome
    /// (PR-220).
    pub fn ran(&mut self, partition: PartitionId, time: Micros) {
        if let Some(replica) = self.replicas.get_mut(&partition) {
            replica.features.calls.ran(time);
        }
    }

    /// True if a call of a procedure is under way, or one waits.
    pub fn calls(&self) -> bool {
        let pending =
            |id: &PartitionId| self.replica(*id).is_some_and(|one| one.features.calls.are_pending());
        self.aggregating.iter().any(pending)
    }

    fn note_aggregates(&mut self, partition: PartitionId) {
        let aggregates = self.replica(partition).is_some_and(|replica| {
            !replica.readers.aggregates.is_empty()
                || !replica.large.is_empty()
                || replica.features.calls.are_pending()
                || replica.role.has_replay(&replica.config, &replica.data)
        });
        if aggregates && !self.aggregating.contains(&partition) {
            self.aggregating.push_back(partition);
        }
    }

    /// A message from another replica, which the connection's handshake has named.
    pub fn peer(&mut self, now: Now, message: PeerMessage, out: &mut Vec<Output>) {
        let wanted = matches!(message, PeerMessage::TransferRequest(_)).then(|| message.partition());
        self.with(now, message.partition(), out, |replica, ctx| match message {
            PeerMessage::Append(append) => replica.on_append(ctx, &append),
            PeerMessage::Ack(ack) => {
                if let Some((primary, view)) = replica.leading_mut() {
                    primary.on_ack(&view, ctx.now.mono, &ack);
                }
            }
            PeerMessage::AppendRefused(refused) => replica.on_refused(ctx, refused),
            PeerMessage::ReportRequest(request) => replica.on_report_request(ctx, &request),
            PeerMessage::LogReport(report) => replica.on_report(ctx, report),
            PeerMessage::Fetch(fetch) => replica.on_fetch(ctx, &fetch),
            PeerMessage::Fetched(fetched) => replica.on_fetched(ctx, fetched),
            PeerMessage::Copy(copy) => replica.on_copy(ctx, copy),
            PeerMessage::Copied(_) | PeerMessage::Installed(_) | PeerMessage::TransferRequest(_) => {
                replica.on_transfer(ctx, &message)
            }
            PeerMessage::Inform(inform) => {
                if let Ok(record) = inform.record.read() {
                    replica.configure(ctx, record);
                }
            }
            PeerMessage::TransferOffer(offer) => replica.on_transfer_offer(ctx, offer),
            PeerMessage::Chunk(chunk) => {
                replica.receive(ctx, |receiver| receiver.chunk(&chunk));
            }
            PeerMessage::Withdrawn(withdrawn) => replica.transfer.incoming.withdraw(&withdrawn),
            PeerMessage::FlushRequest(request) => {
                if let (Some(origin), Some(leader)) =
                    (replica.config.origin(replica.identity), replica.role.leader_mut())
                {
                    ctx.out.extend(leader.on_flush_request(&replica.data, origin, &request));
                }
            }
            PeerMessage::FlushAnswer(answer) => {
                if replica.record().is_some_and(|record| record.primary == answer.from) {
                    let persisted = replica.data.engine.persisted().lsn;
                    replica.transfer.flush.hear(ctx.now.mono, &answer, persisted);
                }
            }
            PeerMessage::StageLoad(_) | PeerMessage::StagePiece(_) | PeerMessage::Unstage(_) => {
                replica.on_staging(ctx, &message)
            }
            PeerMessage::StageAnswer(told) => replica.on_stage_answer(ctx, told),
        });
        if let Some(partition) = wanted {
            self.note_shipping(partition);
            self.ship_pieces(now, out);
        }
    }

    /// An append of which the entries find no room here, so that it is refused by the driver: what it says
    /// beside them is heard (PR-115).
    pub fn hear_positions(&mut self, now: Now, append: &Append, out: &mut Vec<Output>) {
        self.with(now, append.partition, out, |replica, ctx| replica.hear_positions(ctx, append));
    }

    /// Sends pieces of files, one of each partition in turn, as many as may be sent now. Partitions that
    /// acknowledge nothing before a copy has got its files go first: they have most of the budget, and the
    /// others wait for longer until those can acknowledge (PR-472).
    fn ship_pieces(&mut self, now: Now, out: &mut Vec<Output>) {
        let waits = |need| self.shipping.iter().any(|id| self.need_to_ship(*id) == need);
        self.shares.ship.pass(&self.look(now, self.settings.ship_bytes_per_second), waits);
        for need in Need::ALL {
            while self.shares.ship.is_left(need)
                && let Some(at) = self.shipping.iter().position(|id| self.need_to_ship(*id) == need)
                && let Some(partition) = self.shipping.remove(at)
            {
                let sent = self.with(now, partition, out, |replica, ctx| replica.send_piece(ctx));
                self.shares.ship.spend(need, sent.unwrap_or(0));
                self.note_shipping(partition);
            }
        }
    }

    fn need_to_ship(&self, partition: PartitionId) -> Need {
        let is_needed = |replica: &Replica| !replica.role.needed_members(&replica.config).is_empty();
        let urgent = self.replica(partition).is_some_and(is_needed);
        if urgent { Need::Urgent } else { Need::Other }
    }

    /// Looks at a budget of so many bytes in a second. Who waits looks each time it is called by its driver,
    /// at least every heartbeat interval.
    fn look(&self, now: Now, per_second: u64) -> Look {
        Look { now: now.mono, per_second, patience: Micros(self.settings.heartbeat.0 * TICKS_MISSED) }
    }

    fn note_shipping(&mut self, partition: PartitionId) {
        let ships = self.replica(partition).is_some_and(|replica| !replica.role.wait_for_pieces().is_empty());
        if ships && !self.shipping.contains(&partition) {
            self.shipping.push_back(partition);
        }
    }

    /// Reads files back, one piece of each partition in turn, as many as may be read now.
    fn scrub(&mut self, now: Now, out: &mut Vec<Output>) {
        let waits = |need| need == Need::Other && !self.scrubbing.is_empty();
        self.shares.scrub.pass(&self.look(now, self.settings.scrub_bytes_per_second), waits);
        for _ in 0..SCRUB_PIECES {
            if !self.shares.scrub.is_left(Need::Other) {
                return;
            }
            let Some(partition) = self.scrubbing.pop_front() else { return };
            let read = self.with(now, partition, out, |replica, ctx| {
                let whole = !replica.role.is_damaged() && !replica.role.is_copying();
                let data = &mut replica.data;
                replica.features.scrub.turn((data.engine.as_mut(), &data.log), partition, whole, ctx)
            });
            self.shares.scrub.spend(Need::Other, read.unwrap_or(0));
            self.note_scrub(partition);
        }
    }

    fn note_scrub(&mut self, partition: PartitionId) {
        let scrubs = self.replica(partition).is_some_and(|replica| replica.features.scrub.is_running());
        if scrubs && !self.scrubbing.contains(&partition) {
            self.scrubbing.push_back(partition);
        }
    }

    /// The log is full: what members are being shipped is not to keep more of it than it must.
    pub fn short_of_room(&mut self, now: Now, out: &mut Vec<Output>) {
        let partitions: Vec<PartitionId> = self.replicas.keys().copied().collect();
        for partition in partitions {
            self.with(now, partition, out, |replica, ctx| replica.offer_newer(ctx));
        }
    }

    /// The indexes that a table is to have, as its newest record says. Partitions that are led here are
    /// brought to it, a slice at each tick. `None`: the table is gone.
    pub fn want_indexes(&mut self, table: TableId, wanted: Option<Wanted>) {
        match wanted {
            Some(wanted) => drop(self.wanted.insert(table, wanted)),
            None => drop(self.wanted.remove(&table)),
        }
    }

    /// What members of a database are sent of calls, as its newest record says. Nothing rests on when it
    /// comes here: each entry says what it is.
    pub fn ship(&mut self, database: TableId, ship: Ship) {
        match ship {
            Ship::Calls => drop(self.calling.insert(database)),
            Ship::Effects => drop(self.calling.remove(&database)),
        }
    }

    /// Whether the disk is full, so that no index is built or removed for now.
    pub fn rest_indexes(&mut self, rests: bool) {
        self.rests = rests;
    }

    /// Goes on with the installation of files that [`Output::Install`] told of. True if it is to be called
    /// again when `wake` was called.
    pub fn install(&mut self, now: Now, partition: PartitionId, wake: &Wake, out: &mut Vec<Output>) -> bool {
        self.with(now, partition, out, |replica, ctx| replica.receive(ctx, |receiver| receiver.install(wake)))
            .unwrap_or(false)
    }

    /// A connection to this life of a node was made.
    pub fn connected(&mut self, now: Now, member: Member, out: &mut Vec<Output>) {
        let known = self.incarnations.entry(member.node).or_insert(member);
        if known.incarnation <= member.incarnation || known.store != member.store {
            *known = member;
        }
        let partitions: Vec<PartitionId> = self.replicas.keys().copied().collect();
        for partition in partitions {
            self.with(now, partition, out, |replica, _| {
                if let Some(leader) = replica.role.leader_mut() {
                    leader.on_connected(member);
                }
            });
        }
    }

    /// A client's connection has ended: what it waits for, and the turns that it has, are others'.
    pub fn client_gone(&mut self, now: Now, connection: u64, out: &mut Vec<Output>) {
        let of = self.replicas.values().filter(|replica| row_turns::are_of(replica, connection));
        let partitions: Vec<PartitionId> = of.map(Replica::id).collect();
        for partition in partitions {
            self.with(now, partition, out, |replica, ctx| row_turns::client_gone(replica, ctx, connection));
        }
    }

    /// The log made these durable.
    pub fn synced(&mut self, now: Now, tokens: &[(PartitionId, Durable<Position>)], out: &mut Vec<Output>) {
        for (partition, token) in tokens {
            self.with(now, *partition, out, |replica, _| replica.data.log.synced(token.get()));
        }
    }

    /// Entries came back from the log, or could not be read.
    pub fn log_read(
        &mut self,
        now: Now,
        partition: PartitionId,
        purpose: ReadFor,
        entries: Result<Vec<Entry>, String>,
        out: &mut Vec<Output>,
    ) {
        self.with(now, partition, out, |replica, ctx| replica.on_log_read(ctx, purpose, entries));
    }

    /// What became of a proposal.
    pub fn proposed(&mut self, now: Now, proposed: &Proposed, out: &mut Vec<Output>) {
        self.with(now, proposed.partition, out, |replica, ctx| replica.on_proposed(ctx, proposed));
    }

    /// A controller asks for a change.
    pub fn advise(&mut self, now: Now, advise: Advise, out: &mut Vec<Output>) {
        self.with(now, advise.partition, out, |replica, _| {
            if let Some((primary, view)) = replica.leading_mut() {
                primary.on_advice(&view, advise.epoch, advise.advice);
            }
        });
    }

    /// This node has no place in the partition any more: its primary is asked what only this replica has. To
    /// be repeated until [`Replica::is_decommissioned`].
    pub fn decommission(&mut self, now: Now, partition: PartitionId, out: &mut Vec<Output>) {
        self.with(now, partition, out, |replica, ctx| {
            ctx.out.extend(replica.config.asks_to_leave(replica.identity.me));
        });
    }

    /// Sends what the inputs since the last call have made due. A driver calls it when no input is left, so
    /// that appends, acknowledgements and replies coalesce.
    pub fn flush(&mut self, now: Now, out: &mut Vec<Output>) {
        for partition in std::mem::take(&mut self.touched) {
            let Some(replica) = self.replicas.get_mut(&partition) else { continue };
            let mut ctx =
                Ctx { now, leases: &mut self.leases, out, settings: &self.settings, calling: &self.calling };
            replica.flush(&mut ctx);
            self.note_aggregates(partition);
        }
    }

    /// Time has passed: at least every heartbeat interval.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        let mut missed: BTreeMap<Member, Missed> = BTreeMap::new();
        for replica in self.replicas.values_mut() {
            let mut ctx =
                Ctx { now, leases: &mut self.leases, out, settings: &self.settings, calling: &self.calling };
            let leads = replica.role.leader_mut().is_some_and(|leader| leader.takes_requests());
            if let Some(record) = replica.config.record().filter(|_| leads && !self.rests) {
                let (wanted, database) = (self.wanted.get(&record.table), record.is_of_database());
                if let Some(wanted) = wanted {
                    replica.write_own(&mut ctx, |writing| writing.keep_indexes(wanted));
                }
                if database {
                    replica.write_own(&mut ctx, |writing| writing.tend_tables());
                }
            }
            replica.tick(&mut ctx);
            let (identity, since, end) = (replica.identity, replica.config.since(), replica.data.log.end());
            let (Some(backup), Some(record)) = (replica.role.backup_mut(), replica.config.record()) else {
                continue;
            };
            if let Some(silent) = backup.misses(record, identity, since, &ctx) {
                let entry = missed.entry(record.primary).or_default();
                entry.0 = entry.0.max(silent);
                entry.1.push((identity.id, record.epoch, end));
            }
        }
        for (primary, (silent, partitions)) in missed {
            out.push(Output::Suspect(Suspect { by: self.me, primary, silent_us: silent.0, partitions }));
        }
        // What a tick alone has begun is noted here.
        let asides: Vec<PartitionId> =
            self.replicas.values().filter(|replica| replica.data.asides()).map(Replica::id).collect();
        asides.into_iter().for_each(|partition| self.note_aggregates(partition));
        self.aggregate(now, out);
        self.ship_pieces(now, out);
        self.scrub(now, out);
    }

    /// Every replica's progress.
    pub fn status(&self, now: Now) -> Vec<ReplicaStatus> {
        self.replicas.values().map(|replica| replica.status(now, &self.settings)).collect()
    }

    /// Checks every replica's invariants (habits 6).
    pub fn validate(&self) -> Result<(), String> {
        self.replicas.values().try_for_each(Replica::validate)
    }
}

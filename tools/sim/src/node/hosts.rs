//! The executors of a process: each has a [`Host`] with the partitions that are its own, as on a real node.
//! They share what those share: the leases, and what may be shipped and read back in a second.
//!
//! They have one turn, one log and one queue to it here. One that stands still by itself has no part in the
//! turn; what happened to it meanwhile happens to it when it goes on.

use driver::checkpoints::{LogLengths, to_put_apart};
use replica::{Budgets, ClientRef, Host, LeaseManager, Leases, Output, ReadFor, Replica, Settings};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use types::engine::Wake;
use types::index::Wanted;
use types::{
    Durable, Engine, Executors, Member, Micros, Now, PartitionId, PartitionRecord, Position, Ship, TableId,
    Term,
};
use wire::control::{Advise, Proposed, ReplicaStatus};
use wire::peer::Append;
use wire::{Entry, PeerMessage, Request};

/// The leases of a process, as each of its hosts reaches them.
#[derive(Clone)]
struct SharedLeases(Arc<Mutex<LeaseManager>>);

impl SharedLeases {
    fn lock(&self) -> MutexGuard<'_, LeaseManager> {
        self.0.lock().expect("nobody panics with the leases in hand")
    }
}

impl Leases for SharedLeases {
    fn held_until(&self, partition: PartitionId, term: Term, by: Member) -> Micros {
        self.lock().held_until(partition, term, by)
    }

    fn answered_at(&self, by: Member) -> Micros {
        self.lock().answered_at(by)
    }

    fn listening_since(&self, now: Micros) -> Micros {
        self.lock().listening_since(now)
    }

    fn heard_at(&self, partition: PartitionId, from: Member) -> Micros {
        self.lock().heard_at(partition, from)
    }

    fn promised_until(&self, partition: PartitionId, term: Term) -> Micros {
        self.lock().promised_until(partition, term)
    }

    fn know(&mut self, partition: PartitionId, term: Term) {
        self.lock().know(partition, term);
    }

    fn lead(&mut self, partition: PartitionId, term: Option<Term>) {
        self.lock().lead(partition, term);
    }
}

/// The hosts of a process. What is for a partition goes to its own, what is for all goes to all, in the order
/// of their numbers.
pub struct Hosts {
    executors: Executors,
    leases: SharedLeases,
    each: Vec<Host<SharedLeases>>,
    /// Whose turn it is to go on with what is done in slices.
    turn: usize,
    /// The one that stands still by itself.
    hung: Option<usize>,
    /// What became durable of its partitions, and who is connected, since it stands still.
    late: (Vec<(PartitionId, Durable<Position>)>, Vec<Member>),
}

impl Hosts {
    /// Those of a process that starts, without replicas.
    pub fn new(executors: Executors, me: Member, settings: &Settings, leases: LeaseManager) -> Hosts {
        let leases = SharedLeases(Arc::new(Mutex::new(leases)));
        let budgets = Budgets::default();
        let host = |_| Host::new(me, settings.clone(), leases.clone()).sharing(budgets.clone());
        let each = (0..executors.count()).map(host).collect();
        Hosts { executors, leases, each, turn: 0, hung: None, late: Default::default() }
    }

    /// One of them stands still from now on.
    pub fn hang(&mut self, executor: usize) {
        self.hung = Some(executor);
    }

    /// The one that stood still goes on: it hears what it has missed.
    pub fn unhang(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(executor) = self.hung.take() else { return };
        let (tokens, members) = std::mem::take(&mut self.late);
        let host = &mut self.each[executor];
        members.into_iter().for_each(|member| host.connected(now, member, out));
        host.synced(now, &tokens, out);
    }

    /// True if the one that has this partition stands still by itself.
    fn hangs(&self, partition: PartitionId) -> bool {
        self.hung == Some(self.executors.of(partition))
    }

    /// Those that go on.
    fn going(&mut self) -> impl Iterator<Item = &mut Host<SharedLeases>> {
        let hung = self.hung;
        let each = self.each.iter_mut().enumerate();
        each.filter(move |(number, _)| Some(*number) != hung).map(|(_, host)| host)
    }

    /// The leases.
    pub fn leases(&self) -> MutexGuard<'_, LeaseManager> {
        self.leases.lock()
    }

    fn of(&mut self, partition: PartitionId) -> &mut Host<SharedLeases> {
        &mut self.each[self.executors.of(partition)]
    }

    /// As of a host.
    pub fn add(&mut self, replica: Replica) {
        self.of(replica.id()).add(replica);
    }

    /// As of a host.
    pub fn remove(&mut self, partition: PartitionId) -> Option<Replica> {
        self.of(partition).remove(partition)
    }

    /// As of a host.
    pub fn has(&self, partition: PartitionId) -> bool {
        self.replica(partition).is_some()
    }

    /// As of a host.
    pub fn replica(&self, partition: PartitionId) -> Option<&Replica> {
        self.each[self.executors.of(partition)].replica(partition)
    }

    /// As of a host.
    pub fn replica_mut(&mut self, partition: PartitionId) -> Option<&mut Replica> {
        self.of(partition).replica_mut(partition)
    }

    /// As of a host: one executor's after the other's.
    pub fn replicas(&self) -> impl Iterator<Item = &Replica> {
        self.each.iter().flat_map(|host| host.replicas())
    }

    /// As of a host.
    pub fn status(&self, now: Now) -> Vec<ReplicaStatus> {
        self.each.iter().flat_map(|host| host.status(now)).collect()
    }

    /// As of a host.
    pub fn storage_lost(&self) -> Vec<PartitionId> {
        let lost = self.each.iter().flat_map(|host| host.storage_lost());
        lost.filter(|id| !self.hangs(*id)).collect()
    }

    /// As of a host. Each has what is its own, too.
    pub fn validate(&self) -> Result<(), String> {
        for (number, host) in self.each.iter().enumerate() {
            host.validate()?;
            if let Some(other) = host.replicas().find(|replica| self.executors.of(replica.id()) != number) {
                return Err(format!("{} is at executor {number}", other.id()));
            }
        }
        Ok(())
    }

    /// The partitions whose entries are to be put apart.
    pub fn to_put_apart(&self, log: &dyn LogLengths) -> BTreeSet<PartitionId> {
        self.each.iter().flat_map(|host| to_put_apart(host, log)).collect()
    }

    /// As of a host.
    pub fn want_indexes(&mut self, table: TableId, wanted: &Wanted) {
        self.each.iter_mut().for_each(|host| host.want_indexes(table, Some(wanted.clone())));
    }

    /// As of a host.
    pub fn ship(&mut self, database: TableId, ship: Ship) {
        self.each.iter_mut().for_each(|host| host.ship(database, ship));
    }

    /// As of a host.
    pub fn rest_indexes(&mut self, rests: bool) {
        self.going().for_each(|host| host.rest_indexes(rests));
    }

    /// As of a host.
    pub fn configure(&mut self, now: Now, record: PartitionRecord, out: &mut Vec<Output>) -> bool {
        self.of(record.id).configure(now, record, out)
    }

    /// As of a host.
    pub fn request(&mut self, now: Now, to: ClientRef, request: Request, out: &mut Vec<Output>) {
        self.of(request.partition).request(now, to, request, out);
    }

    /// As of a host.
    pub fn peer(&mut self, now: Now, message: PeerMessage, out: &mut Vec<Output>) {
        self.of(message.partition()).peer(now, message, out);
    }

    /// As of a host.
    pub fn hear_positions(&mut self, now: Now, append: &Append, out: &mut Vec<Output>) {
        self.of(append.partition).hear_positions(now, append, out);
    }

    /// As of a host.
    pub fn aggregates(&self) -> bool {
        let mut each = self.each.iter().enumerate();
        each.any(|(number, host)| Some(number) != self.hung && host.aggregates())
    }

    /// As of a host: of one of them in each turn.
    pub fn aggregate(&mut self, now: Now, out: &mut Vec<Output>) -> Option<PartitionId> {
        self.turn = (self.turn + 1) % self.each.len();
        if self.hung == Some(self.turn) {
            return None;
        }
        self.each[self.turn].aggregate(now, out)
    }

    /// As of a host.
    pub fn ran(&mut self, partition: PartitionId, time: Micros) {
        self.of(partition).ran(partition, time);
    }

    /// As of a host.
    pub fn short_of_room(&mut self, now: Now, out: &mut Vec<Output>) {
        self.going().for_each(|host| host.short_of_room(now, out));
    }

    /// As of a host.
    pub fn install(&mut self, now: Now, partition: PartitionId, wake: &Wake, out: &mut Vec<Output>) -> bool {
        self.of(partition).install(now, partition, wake, out)
    }

    /// As of a host: each has a connection of its own.
    pub fn connected(&mut self, now: Now, member: Member, out: &mut Vec<Output>) {
        self.late.1.extend(self.hung.map(|_| member));
        self.going().for_each(|host| host.connected(now, member, out));
    }

    /// As of a host: whoever stands still by itself is told later.
    pub fn client_gone(&mut self, now: Now, connection: u64, out: &mut Vec<Output>) {
        self.going().for_each(|host| host.client_gone(now, connection, out));
    }

    /// As of a host.
    pub fn synced(&mut self, now: Now, tokens: &[(PartitionId, Durable<Position>)], out: &mut Vec<Output>) {
        let hung = self.hung.map(|executor| (executor, self.executors));
        let is_late = |id: PartitionId| hung.is_some_and(|(executor, all)| all.of(id) == executor);
        self.late.0.extend(tokens.iter().filter(|(id, _)| is_late(*id)));
        self.going().for_each(|host| host.synced(now, tokens, out));
    }

    /// As of a host.
    pub fn log_read(
        &mut self,
        now: Now,
        partition: PartitionId,
        purpose: ReadFor,
        entries: Result<Vec<Entry>, String>,
        out: &mut Vec<Output>,
    ) {
        self.of(partition).log_read(now, partition, purpose, entries, out);
    }

    /// As of a host.
    pub fn proposed(&mut self, now: Now, proposed: &Proposed, out: &mut Vec<Output>) {
        self.of(proposed.partition).proposed(now, proposed, out);
    }

    /// As of a host.
    pub fn advise(&mut self, now: Now, advise: Advise, out: &mut Vec<Output>) {
        self.of(advise.partition).advise(now, advise, out);
    }

    /// As of a host.
    pub fn decommission(&mut self, now: Now, partition: PartitionId, out: &mut Vec<Output>) {
        self.of(partition).decommission(now, partition, out);
    }

    /// As of a host.
    pub fn fail(&mut self, now: Now, partition: PartitionId, reason: String, out: &mut Vec<Output>) {
        self.of(partition).fail(now, partition, reason, out);
    }

    /// As of a host.
    pub fn lose(
        &mut self,
        now: Now,
        partition: PartitionId,
        empty: Box<dyn Engine>,
        reason: String,
        out: &mut Vec<Output>,
    ) -> Option<Box<dyn Engine>> {
        self.of(partition).lose(now, partition, empty, reason, out)
    }

    /// As of a host.
    pub fn relocate(
        &mut self,
        now: Now,
        partition: PartitionId,
        engine: Box<dyn Engine>,
        out: &mut Vec<Output>,
    ) {
        self.of(partition).relocate(now, partition, engine, out);
    }

    /// As of a host.
    pub fn flush(&mut self, now: Now, out: &mut Vec<Output>) {
        self.going().for_each(|host| host.flush(now, out));
    }

    /// As of a host.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        self.going().for_each(|host| host.tick(now, out));
    }
}

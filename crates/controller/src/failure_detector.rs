//! Who is connected, who was heard when, and who misses whom.
//!
//! Nothing here is safe to rely on: it is what this controller happens to hear. It decides whether a failover
//! is asked for and who is a good candidate; whether it may happen is decided by the records.

use crate::api::ConnId;
use std::collections::{BTreeMap, BTreeSet};
use types::{Epoch, Lsn, Member, Micros, NodeId, PartitionId, PartitionRecord, Position};
use wire::control::{NodeStatus, ReplicaStatus, Role};

/// What a node has said of its executors counts for so long: if nothing comes from it any more, that is what
/// counts.
const TELLS_OF_EXECUTORS: Micros = Micros::from_millis(1_000);

/// What this controller hears.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureDetector {
    /// Connections on which something came and that are not known to be gone.
    open: BTreeSet<ConnId>,
    /// Who is at the other end of a connection, once it has said so.
    members: BTreeMap<ConnId, Member>,
    /// Connections that get every change of the cluster map.
    subscribers: BTreeSet<ConnId>,
    /// Those of them that were not told what there is not, as that was not known here (PR-161).
    owed: BTreeSet<ConnId>,
    /// Each node's newest life, and the connection that it used last.
    nodes: BTreeMap<NodeId, Heard>,
    /// Each partition's primary, if somebody misses it.
    suspicions: BTreeMap<PartitionId, Suspicion>,
}

/// What is known of one node from what it sends.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// In which life.
    pub(crate) member: Member,
    /// On which connection; none after it broke.
    pub(crate) conn: Option<ConnId>,
    /// When something came last.
    pub(crate) last: Micros,
    /// Its last status and when it came.
    pub(crate) status: Option<(NodeStatus, Micros)>,
}

/// Members of one partition that miss its primary.
#[derive(Clone, Debug)]
pub(crate) struct Suspicion {
    /// Whom they miss.
    pub(crate) primary: Member,
    /// Since when nobody is known to hear it: what [`crate::Settings::failover_wait`] counts from (PR-85).
    pub(crate) since: Micros,
    /// When the first of them asked, for the report.
    pub(crate) asked_ms: u64,
    /// When the primary was last heard by the first to ask, for the report.
    pub(crate) last_heard_ms: u64,
    /// Who misses it.
    pub(crate) by: BTreeMap<Member, Missed>,
}

/// One member's complaint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missed {
    /// When it was last repeated.
    pub(crate) at: Micros,
    /// The end of that member's log.
    pub(crate) end: Position,
}

impl FailureDetector {
    /// A node said who it is. A life that was followed by another one is let in and not heard: its
    /// registration came late.
    pub(crate) fn registered(&mut self, conn: ConnId, member: Member, now: Micros) {
        self.members.insert(conn, member);
        self.subscribers.insert(conn);
        let known = self.nodes.remove(&member.node);
        let heard = match known {
            Some(heard)
                if heard.member.same_store(&member) && heard.member.incarnation > member.incarnation =>
            {
                heard
            }
            known => {
                let status = known.filter(|heard| heard.member == member).and_then(|heard| heard.status);
                Heard { member, conn: Some(conn), last: now, status }
            }
        };
        self.nodes.insert(member.node, heard);
    }

    /// This connection wants every change, beyond a cluster map that is `whole`, or will be sent again when
    /// it can be.
    pub(crate) fn subscribe(&mut self, conn: ConnId, whole: bool) {
        self.subscribers.insert(conn);
        match whole {
            true => self.owed.remove(&conn),
            false => self.owed.insert(conn),
        };
    }

    /// Who is to be sent a whole cluster map, now that there is one.
    pub(crate) fn take_owed(&mut self) -> BTreeSet<ConnId> {
        std::mem::take(&mut self.owed)
    }

    /// Connections that want every change.
    pub(crate) fn subscribers(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.subscribers.iter().copied()
    }

    /// The connection is gone.
    pub(crate) fn disconnected(&mut self, conn: ConnId) {
        self.open.remove(&conn);
        self.subscribers.remove(&conn);
        self.owed.remove(&conn);
        if let Some(member) = self.members.remove(&conn)
            && let Some(heard) = self.nodes.get_mut(&member.node)
            && heard.conn == Some(conn)
        {
            heard.conn = None;
        }
    }

    /// True unless the connection is gone: an answer may come after it.
    pub(crate) fn is_open(&self, conn: ConnId) -> bool {
        self.open.contains(&conn)
    }

    /// Who is at the other end.
    pub(crate) fn member(&self, conn: ConnId) -> Option<Member> {
        self.members.get(&conn).copied()
    }

    /// Something came on this connection. What an older life's connection still delivers does not count. A
    /// node's connection is the one that it used last: when registrations are answered in another order than
    /// they were made, or an older connection's end is noticed late, it is not the one that was entered last.
    pub(crate) fn something_came(&mut self, conn: ConnId, now: Micros) {
        self.open.insert(conn);
        if let Some(member) = self.members.get(&conn)
            && let Some(heard) = self.nodes.get_mut(&member.node)
            && heard.member == *member
        {
            heard.conn = Some(conn);
            heard.last = now;
        }
    }

    /// A node's status came.
    pub(crate) fn status(&mut self, conn: ConnId, status: NodeStatus, now: Micros) {
        let Some(member) = self.member(conn).filter(|member| *member == status.member) else { return };
        let Some(heard) = self.nodes.get_mut(&member.node).filter(|heard| heard.member == member) else {
            return;
        };
        heard.status = Some((status, now));
    }

    /// What is known of a node.
    pub(crate) fn node(&self, node: NodeId) -> Option<&Heard> {
        self.nodes.get(&node)
    }

    /// The nodes heard of so far.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Heard> {
        self.nodes.values()
    }

    /// The connection of this very life, if it is connected.
    pub(crate) fn conn_of(&self, member: &Member) -> Option<ConnId> {
        self.nodes.get(&member.node).filter(|heard| heard.member == *member).and_then(|heard| heard.conn)
    }

    /// True if something came from this very life within `span`, and it is connected.
    pub(crate) fn hears(&self, member: &Member, now: Micros, span: Micros) -> bool {
        let heard = self.nodes.get(&member.node);
        heard.is_some_and(|heard| {
            heard.member == *member && heard.conn.is_some() && now.since(heard.last) <= span
        })
    }

    /// True if this very life of a node has said lately that its executor of this partition hangs: it says
    /// nothing itself, leads nothing, and answers nobody (PR-421).
    pub(crate) fn hangs(&self, member: &Member, partition: PartitionId, now: Micros) -> bool {
        let heard = self.nodes.get(&member.node).filter(|heard| heard.member == *member);
        let status = heard.and_then(|heard| heard.status.as_ref());
        status.is_some_and(|(status, at)| now.since(*at) <= TELLS_OF_EXECUTORS && status.hangs(partition))
    }

    /// The same as [`FailureDetector::hears`] of what this life has of a partition: its executor does not
    /// hang either.
    pub(crate) fn hears_in(
        &self,
        partition: PartitionId,
        member: &Member,
        now: Micros,
        span: Micros,
    ) -> bool {
        self.hears(member, now, span) && !self.hangs(member, partition, now)
    }

    /// When something came last from this very life of a node, however shortly it was connected. Zero: never,
    /// or it said then that its executor of this partition hangs.
    fn last_heard(&self, partition: PartitionId, member: &Member) -> Micros {
        let heard = self.nodes.get(&member.node).filter(|heard| heard.member == *member);
        let hung = |heard: &&Heard| heard.status.as_ref().is_some_and(|(status, _)| status.hangs(partition));
        heard.filter(|heard| !hung(heard)).map_or(Micros::ZERO, |heard| heard.last)
    }

    /// The end of this partition's log on a node, as last told; zero if unknown.
    pub(crate) fn end_of(&self, member: &Member, partition: PartitionId) -> Position {
        let status = self
            .nodes
            .get(&member.node)
            .filter(|heard| heard.member == *member)
            .and_then(|heard| heard.status.as_ref());
        let told = status
            .and_then(|(status, _)| status.replicas.iter().find(|replica| replica.partition == partition));
        let missed = self.suspicions.get(&partition).and_then(|suspicion| suspicion.by.get(member));
        let told = told.map_or(Position::ZERO, |replica| replica.end);
        told.max(missed.map_or(Position::ZERO, |missed| missed.end))
    }

    /// How far this partition's log is executed on a node, as last told; zero if unknown.
    pub(crate) fn applied_of(&self, member: &Member, partition: PartitionId) -> Lsn {
        let heard = self.nodes.get(&member.node).filter(|heard| heard.member == *member);
        let status = heard.and_then(|heard| heard.status.as_ref());
        let told = status
            .and_then(|(status, _)| status.replicas.iter().find(|replica| replica.partition == partition));
        told.map_or(Lsn::default(), |replica| replica.marks.applied)
    }

    /// True if this partition's primary says that it serves in its present term; none if it has said nothing
    /// of it.
    pub(crate) fn says_it_serves(&self, record: &PartitionRecord) -> Option<bool> {
        self.told_by_primary(record).map(|replica| replica.role == Role::Primary)
    }

    /// Who should lead this partition, as its primary says, which does not serve in its present term.
    pub(crate) fn yields_to(&self, record: &PartitionRecord) -> Option<Member> {
        self.told_by_primary(record).filter(|replica| replica.role != Role::Primary)?.yields_to
    }

    /// How far in-sync backups say that their partition is committed, if each that spoke within `span` has
    /// more in its log than that, or nothing of a term that does not serve; none: nobody speaks, or one has
    /// all.
    pub(crate) fn stands_at(
        &self,
        (record, serves): (&PartitionRecord, bool),
        now: Micros,
        span: Micros,
    ) -> Option<Lsn> {
        let backups = record.in_sync.iter().filter(|member| **member != record.primary);
        let heard = |member: &&Member| self.hears_in(record.id, member, now, span);
        let told = backups.filter(heard).filter_map(|member| {
            let (status, at) = self.nodes.get(&member.node)?.status.as_ref()?;
            let of_term = |replica: &&ReplicaStatus| {
                replica.partition == record.id
                    && replica.role == Role::Backup
                    && replica.epoch >= record.term.began()
            };
            status.replicas.iter().find(of_term).filter(|_| now.since(*at) <= span)
        });
        let mut furthest = None;
        for replica in told {
            if (serves || replica.end.term >= record.term) && replica.committed >= replica.end.lsn {
                return None;
            }
            furthest = furthest.max(Some(replica.committed));
        }
        furthest
    }

    /// What this partition's primary said last, if that was in its present term.
    fn told_by_primary(&self, record: &PartitionRecord) -> Option<&ReplicaStatus> {
        let heard = self.nodes.get(&record.primary.node).filter(|heard| heard.member == record.primary)?;
        let (status, _) = heard.status.as_ref()?;
        let of_term =
            |replica: &&ReplicaStatus| replica.partition == record.id && replica.epoch >= record.term.began();
        status.replicas.iter().find(of_term)
    }

    /// Up to where the log of a primary is durable, if there is more in it, and room, as it said within
    /// `span`. Before it serves, the marker of its term is what there is (PR-341). A log without room takes
    /// nothing more: there the disk owes something while it answers a write neither with yes nor with no, and
    /// the second value says for how long it has not (PR-351).
    pub(crate) fn unwritten(
        &self,
        record: &PartitionRecord,
        now: Micros,
        span: Micros,
    ) -> Option<(Lsn, Micros)> {
        let heard = self.nodes.get(&record.primary.node).filter(|heard| heard.member == record.primary)?;
        let (status, _) = heard.status.as_ref().filter(|(_, at)| now.since(*at) <= span)?;
        if status.hangs(record.id) {
            // It is not the disk.
            return None;
        }
        let leads = |replica: &&ReplicaStatus| {
            replica.partition == record.id
                && replica.epoch >= record.term.began()
                && matches!(replica.role, Role::Primary | Role::Promoting)
        };
        let replica = status.replicas.iter().find(leads)?;
        let (durable, waits) = (replica.marks.durable, Micros(status.log_waits_us));
        match status.full {
            true => (waits > Micros::ZERO).then_some((durable, waits)),
            false => (durable < replica.end.lsn).then_some((durable, Micros::ZERO)),
        }
    }

    /// True if `who` said lately that it hears `whom`.
    pub(crate) fn said_to_hear(&self, who: NodeId, whom: NodeId, now: Micros, span: Micros) -> bool {
        let status = self.nodes.get(&who).and_then(|heard| heard.status.as_ref());
        status.is_some_and(|(status, at)| {
            now.since(*at) <= span
                && status
                    .hears
                    .iter()
                    .any(|(node, ago)| *node == whom && Micros(*ago) + now.since(*at) <= span)
        })
    }

    /// True if this controller or any connected node hears this member, whose executor of the partition does
    /// not hang: heartbeats are answered all the same.
    pub(crate) fn heard_by_anyone(
        &self,
        partition: PartitionId,
        member: &Member,
        now: Micros,
        span: Micros,
    ) -> bool {
        let mut others = self.nodes.keys().filter(|node| **node != member.node);
        let heard = self.hears(member, now, span)
            || others.any(|node| self.said_to_hear(*node, member.node, now, span));
        heard && !self.hangs(member, partition, now)
    }

    /// The open suspicion about a partition's primary.
    pub(crate) fn suspicion(&self, partition: PartitionId) -> Option<&Suspicion> {
        self.suspicions.get(&partition)
    }

    /// The partitions with an open suspicion.
    pub(crate) fn suspected(&self) -> Vec<PartitionId> {
        self.suspicions.keys().copied().collect()
    }

    /// A member misses its primary. `epoch` is the configuration it knows: one of the same term counts.
    pub(crate) fn missed(
        &mut self,
        record: &PartitionRecord,
        by: Member,
        epoch: Epoch,
        missed: Missed,
        stamps: Stamps,
    ) {
        if epoch < record.term.began() || epoch > record.epoch || by == record.primary {
            return;
        }
        let fresh = || Suspicion {
            primary: record.primary,
            since: missed.at,
            asked_ms: stamps.asked_ms,
            last_heard_ms: stamps.last_heard_ms,
            by: BTreeMap::new(),
        };
        let suspicion = self.suspicions.entry(record.id).or_insert_with(fresh);
        if suspicion.primary != record.primary {
            *suspicion = fresh();
        }
        assert!(suspicion.primary == record.primary, "R1: {} is missed for another", record.primary);
        suspicion.by.insert(by, missed);
    }

    /// Forgets what is not repeated, what its own author takes back, and what is about a term that has ended.
    pub(crate) fn forget_old(
        &mut self,
        partition: PartitionId,
        record: Option<&PartitionRecord>,
        now: Micros,
        spans: Spans,
    ) {
        let Some(mut suspicion) = self.suspicions.remove(&partition) else { return };
        if record.is_none_or(|record| record.primary != suspicion.primary) {
            return;
        }
        let primary = suspicion.primary;
        suspicion.by.retain(|by, missed| {
            let status = self.nodes.get(&by.node).and_then(|heard| heard.status.as_ref());
            let newer = status.is_some_and(|(_, at)| *at > missed.at);
            let withdrawn = newer
                && !self.hangs(&primary, partition, now)
                && self.said_to_hear(by.node, primary.node, now, spans.suspect);
            now.since(missed.at) <= spans.kept && !withdrawn
        });
        if suspicion.by.is_empty() {
            return;
        }
        if self.heard_by_anyone(partition, &primary, now, spans.suspect) {
            suspicion.since = now;
        }
        // It may have been heard for a moment only, and acknowledged more in it (PR-471).
        suspicion.since = suspicion.since.max(self.last_heard(partition, &primary));
        self.suspicions.insert(partition, suspicion);
    }
}

/// Wall-clock stamps of a complaint, for the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    /// When it was made.
    pub(crate) asked_ms: u64,
    /// When the primary was last heard.
    pub(crate) last_heard_ms: u64,
}

/// The settings that forgetting needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    /// How long a complaint is kept.
    pub(crate) kept: Micros,
    /// How long a node may be silent and still count as heard.
    pub(crate) suspect: Micros,
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, LogKind, Policy, StoreId, TableId};

    #[test]
    fn r1_an_incarnation_that_is_over_is_not_heard_however_late_it_is_registered() {
        let incarnation = |incarnation| Member {
            node: NodeId(3),
            store: StoreId(30),
            incarnation: Incarnation(incarnation),
        };
        let (old, new, now) = (ConnId(1), ConnId(2), Micros::from_millis(1000));
        let mut failure_detector = FailureDetector::default();
        failure_detector.registered(new, incarnation(2), now);
        failure_detector.registered(old, incarnation(1), now);
        assert_eq!(
            (failure_detector.conn_of(&incarnation(1)), failure_detector.conn_of(&incarnation(2))),
            (None, Some(new))
        );
        failure_detector.something_came(old, Micros::from_millis(2000));
        assert!(!failure_detector.hears(
            &incarnation(2),
            Micros::from_millis(2000),
            Micros::from_millis(500)
        ));
        failure_detector.something_came(new, Micros::from_millis(2000));
        assert!(failure_detector.hears(&incarnation(2), Micros::from_millis(2000), Micros::from_millis(500)));
        // Another store is another node's place taken over: it was let in because the one before is not
        // heard.
        let other = Member { store: StoreId(31), ..incarnation(1) };
        failure_detector.registered(old, other, now);
        assert_eq!(failure_detector.conn_of(&other), Some(old));
    }

    #[test]
    fn pr471_who_was_heard_for_a_moment_is_missed_since_then() {
        let member = |node: u32| Member {
            node: NodeId(node),
            store: StoreId(node.into()),
            incarnation: Incarnation(1),
        };
        let (primary, backup, at) = (member(1), member(2), Micros::from_millis);
        let policy = Policy::preset("local", 2, LogKind::Disk).expect("a policy");
        let set = vec![primary, backup];
        let record = PartitionRecord::new(PartitionId(64), TableId(1), Epoch(1), set, policy);
        let spans = Spans { kept: at(1_000), suspect: at(120) };
        let mut failure_detector = FailureDetector::default();
        let mut missed_since = |now| {
            let missed = Missed { at: at(now), end: Position::ZERO };
            let stamps = Stamps { asked_ms: 0, last_heard_ms: 0 };
            failure_detector.missed(&record, backup, Epoch(1), missed, stamps);
            if now == 1_300 {
                // It connects and is gone again, and nobody looks meanwhile.
                failure_detector.registered(ConnId(1), primary, at(1_200));
                failure_detector.disconnected(ConnId(1));
            }
            failure_detector.forget_old(record.id, Some(&record), at(now), spans);
            failure_detector.suspicion(record.id).expect("it is missed").since
        };
        assert_eq!([missed_since(1_000), missed_since(1_100)], [at(1_000); 2]);
        assert_eq!([missed_since(1_300), missed_since(1_900)], [at(1_200); 2]);
    }
}

//! Whose reports count when a replica is to lead (R6): members that are recorded, whole logs where the policy
//! rests on disks, and all members until they fence.

use std::collections::BTreeSet;
use types::config::{Cause, PreviousTerm};
use types::policy::RestsOn;
use types::{
    Epoch, Incarnation, LogKind, Lsn, Member, Micros, NodeId, Now, PartitionId, PartitionRecord, Policy,
    Position, Rules, StoreId, TableId, Term, Watermarks,
};
use understudy_engine::MemoryEngine;
use understudy_replica::history::History;
use understudy_replica::{Host, LeaseManager, Output, Recovered, Replica, Settings};
use wire::entry::Kind;
use wire::log::Record;
use wire::peer::{LogReport, LogSummary, ReportRequest};
use wire::{Entry, Header, PeerMessage};

const P: PartitionId = PartitionId(64);

fn member(node: u32) -> Member {
    Member { node: NodeId(node), store: StoreId(u64::from(node)), incarnation: Incarnation(1) }
}

/// Two copies on disks, and one that may be behind: not offered yet, and what rests on some ranks only needs
/// the most care.
fn triplet() -> Policy {
    let local = Policy::preset("local", 3, LogKind::Disk).expect("a policy");
    let mut policy = Policy::preset("durable", 3, LogKind::Disk).expect("a policy");
    policy.ranks.push(local.ranks[1]);
    assert_eq!(policy.rests_on(), RestsOn::First(2));
    policy
}

/// The entries of a log up to LSN 5.
fn entries() -> Vec<Entry> {
    let mut log: Vec<Entry> = Vec::new();
    for lsn in 1..=5 {
        let mut header = Header::new(Kind::Configuration, P, Position::new(Term(1), Lsn(lsn)), 0);
        header.prev_crc = log.last().map_or(0, Entry::crc);
        log.push(Entry::encode(header, &[]));
    }
    log
}

/// A replica of node 2 with entries up to LSN 5, which is named primary in epoch 2.
struct Candidate {
    host: Host<LeaseManager>,
    now: Micros,
    out: Vec<Output>,
    /// The epoch in which it is named: the one before it was another term.
    epoch: Epoch,
}

impl Candidate {
    fn new(torn: bool) -> Candidate {
        let (me, log) = (member(2), entries());
        let (end, end_crc) = (log[4].at(), log[4].crc());
        let history = History::new(vec![(Term(1), Lsn(1))]).expect("ascends");
        let found = Recovered { end, end_crc, history, torn, ..Recovered::nothing() };
        let lease_manager = LeaseManager::new(me, &Settings::default(), Micros::ZERO);
        let mut host = Host::new(me, Settings::default(), lease_manager);
        let engine = Box::new(MemoryEngine::volatile());
        let mut replica = Replica::recover(me, P, Rules::ALL, engine, found);
        while let Some(from) = replica.log().to_replay() {
            replica.replay(log.iter().filter(|entry| entry.lsn() >= from).cloned().collect());
        }
        host.add(replica);
        Candidate { host, now: Micros::from_millis(1000), out: Vec::new(), epoch: Epoch(2) }
    }

    /// Names it primary of a set, after another one.
    fn named(&mut self, in_sync: &[u32], before: u32) {
        self.named_under("durable", in_sync, before);
    }

    fn named_under(&mut self, policy: &str, in_sync: &[u32], before: u32) {
        let in_sync: Vec<Member> = in_sync.iter().map(|node| member(*node)).collect();
        let policy =
            if policy == "triplet" { triplet() } else { Policy::preset(policy, 3, LogKind::Disk).unwrap() };
        let old = PreviousTerm {
            epoch: Epoch(self.epoch.0 - 1),
            term: Term(self.epoch.0 - 1),
            primary: member(before),
            handed_over: false,
            in_sync: in_sync.clone(),
        };
        let record = PartitionRecord {
            cause: Cause::Suspected,
            before: Some(old),
            failover: Some(1),
            ..PartitionRecord::new(P, TableId(1), self.epoch, in_sync, policy)
        };
        let now = self.now();
        assert!(self.host.configure(now, record, &mut self.out));
    }

    /// Names it primary under `semi` after it was started again, and has forgotten; the set of then had these
    /// members beside it, of which node 1 is what it was.
    fn restarted(&mut self, others: &[Member]) {
        let forgetful = Member { incarnation: Incarnation(0), ..member(2) };
        let set = |first: Member| [&[first], others].concat();
        let old = PreviousTerm {
            epoch: Epoch(1),
            term: Term(1),
            primary: forgetful,
            handed_over: false,
            in_sync: set(forgetful),
        };
        let policy = Policy::preset("semi", 3, LogKind::Disk).expect("a policy");
        let set = [vec![member(2)], others.iter().map(|other| member(other.node.0)).collect()].concat();
        let record = PartitionRecord {
            cause: Cause::Restarted,
            before: Some(old),
            failover: Some(1),
            lossy: true,
            ..PartitionRecord::new(P, TableId(1), self.epoch, set, policy)
        };
        let now = self.now();
        assert!(self.host.configure(now, record, &mut self.out));
    }

    /// Names it primary of a set in records that were made again without some node, so that the term is
    /// lossy. `before`: the node that led the term before.
    fn rebuilt(&mut self, in_sync: &[u32], before: u32) {
        self.named(in_sync, before);
        let record = self.host.replica(P).and_then(Replica::record).expect("it was named").clone();
        self.epoch = Epoch(3);
        let before = record.before.map(|before| PreviousTerm { epoch: Epoch(2), ..before });
        let (epoch, term) = (self.epoch, Term::of(self.epoch));
        let record = PartitionRecord { epoch, term, cause: Cause::Rebuilt, lossy: true, before, ..record };
        let now = self.now();
        assert!(self.host.configure(now, record, &mut self.out));
    }

    fn now(&self) -> Now {
        Now { mono: self.now, wall_ms: 1_000_000 }
    }

    /// A report of a log that ends at this LSN of the first term.
    fn report(&mut self, from: u32, end: u64, torn: bool) {
        self.report_of(member(from), end, torn);
    }

    fn report_of(&mut self, from: Member, end: u64, torn: bool) {
        self.report_above(0, from, end, torn);
    }

    /// The same, of one whose log begins above this LSN.
    fn report_above(&mut self, base: u64, from: Member, end: u64, torn: bool) {
        let (base, end) = (Position::new(Term(1), Lsn(base)), Position::new(Term(1), Lsn(end)));
        let log = LogSummary { base, end, history: vec![(Term(1), Lsn(1))] };
        let marks = Watermarks { received: end.lsn, durable: end.lsn, ..Watermarks::default() };
        let report = LogReport {
            partition: P,
            epoch: self.epoch,
            from,
            log,
            marks,
            committed: Lsn::ZERO,
            torn,
            code: 0,
        };
        let now = self.now();
        self.host.peer(now, PeerMessage::LogReport(report), &mut self.out);
    }

    /// Ticks for so long.
    fn wait(&mut self, ms: u64) {
        for _ in 0..ms / 20 {
            self.now = self.now + Micros::from_millis(20);
            let now = self.now();
            self.host.tick(now, &mut self.out);
        }
    }

    /// What it has done: whom it fetches from, whether it took its log for complete, what set it proposed.
    fn done(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for output in std::mem::take(&mut self.out) {
            match output {
                Output::Send { to, message: PeerMessage::Fetch(_) } => {
                    done.push(format!("fetches from {}", to.node))
                }
                Output::Log(Record::Entry(entry)) => done.push(format!("marks {}", entry.at())),
                Output::Propose(_) => done.push("proposes".into()),
                _ => {}
            }
        }
        done.dedup();
        done
    }
}

#[test]
fn pr99_who_is_not_recorded_does_not_count() {
    let mut candidate = Candidate::new(true);
    candidate.named(&[2, 1], 1);
    candidate.report(3, 9, false);
    assert_eq!(candidate.done(), [""; 0], "node 3 may have what no set ever had");
    candidate.report(1, 7, false);
    assert_eq!(candidate.done(), ["fetches from n1"]);
}

#[test]
fn pr99_an_old_primary_that_was_started_again_is_recorded() {
    // What it acknowledged alone is on its disk, whatever its life is called now.
    let mut candidate = Candidate::new(false);
    candidate.named_under("local", &[2, 1], 3);
    candidate.report(1, 5, false);
    candidate.report_of(Member { incarnation: Incarnation(2), ..member(3) }, 9, false);
    candidate.wait(1_000);
    assert!(candidate.done().contains(&"fetches from n3".into()));
}

#[test]
fn pr471_an_old_primary_that_was_started_again_is_asked_by_its_present_name() {
    let later = Member { incarnation: Incarnation(2), ..member(3) };
    let mut candidate = Candidate::new(false);
    let now = candidate.now();
    candidate.host.connected(now, later, &mut candidate.out);
    candidate.named_under("local", &[2, 1], 3);
    candidate.wait(60);
    let asks = |output: &Output| match output {
        Output::Send { to, message: PeerMessage::ReportRequest(_) } => Some(*to),
        _ => None,
    };
    let asked: BTreeSet<Member> = candidate.out.iter().filter_map(asks).collect();
    assert!(asked.contains(&later), "{asked:?}");
    // With its report all have answered: nothing is waited for before what it has more is fetched.
    candidate.done();
    candidate.report(1, 5, false);
    candidate.report_of(later, 9, false);
    assert_eq!(candidate.done(), ["fetches from n3"]);
}

#[test]
fn pr471_an_old_primary_whose_log_is_lost_reports_nothing() {
    let later = Member { incarnation: Incarnation(2), ..member(3) };
    let log = entries();
    let reported_end = |whole: bool| {
        let recovered = Recovered {
            base: log[2].at(),
            base_crc: log[2].crc(),
            end: log[4].at(),
            end_crc: log[4].crc(),
            history: History::new(vec![(Term(1), Lsn(1))]).expect("ascends"),
            damaged: Some("a file is too short".into()),
            whole,
            ..Recovered::nothing()
        };
        let engine = Box::new(MemoryEngine::volatile());
        let mut replica = Replica::recover(later, P, Rules::ALL, engine, recovered);
        while let Some(from) = replica.log().to_replay() {
            replica.replay(log.iter().filter(|entry| entry.lsn() >= from).cloned().collect());
        }
        let mut candidate = Candidate::new(false);
        let lease_manager = LeaseManager::new(later, &Settings::default(), Micros::ZERO);
        candidate.host = Host::new(later, Settings::default(), lease_manager);
        candidate.host.add(replica);
        candidate.named_under("local", &[2, 1], 3);
        let request = ReportRequest { partition: P, epoch: candidate.epoch, from: member(2) };
        let now = candidate.now();
        candidate.host.peer(now, PeerMessage::ReportRequest(request), &mut candidate.out);
        candidate.out.iter().find_map(|output| match output {
            Output::Send { message: PeerMessage::LogReport(report), .. } => Some(report.log.end),
            _ => None,
        })
    };
    assert_eq!(reported_end(true), Some(log[4].at()), "its files are damaged, and its log is not");
    assert_eq!(reported_end(false), None, "it would begin at 3 and end at 0");
}

#[test]
fn pr99_where_disks_count_a_member_counts_in_its_next_incarnation() {
    let mut candidate = Candidate::new(true);
    candidate.named(&[2, 1], 1);
    candidate.report_of(Member { incarnation: Incarnation(2), ..member(1) }, 7, false);
    candidate.wait(1_000);
    assert!(candidate.done().contains(&"fetches from n1".into()));
}

#[test]
fn pr100_a_torn_log_of_the_old_primary_fences_nothing_where_disks_count() {
    let mut candidate = Candidate::new(true);
    candidate.named(&[2, 1], 2);
    candidate.wait(400);
    assert_eq!(candidate.done(), [""; 0], "node 1 may have what was acknowledged and is torn off here");
    candidate.report(1, 7, false);
    assert_eq!(candidate.done(), ["fetches from n1"]);
}

#[test]
fn pr101_nobody_leaves_before_the_reports_fence() {
    let mut candidate = Candidate::new(true);
    candidate.named(&[2, 1, 3], 3);
    candidate.report(3, 5, true);
    candidate.wait(5_000);
    assert_eq!(candidate.done(), [""; 0], "the one that is silent may have what the torn ones lost");
    // One whole log is enough: what is silent leaves then.
    let mut candidate = Candidate::new(false);
    candidate.named(&[2, 1, 3], 3);
    candidate.wait(5_000);
    assert_eq!(candidate.done(), ["marks (2,6)", "proposes"]);
}

#[test]
fn pr103_a_term_that_never_served_fences_nothing() {
    // Rank 2 of a triplet was named once, never served, and was started again: rank 1 may have what was
    // acknowledged before.
    let named = |epoch: u64| {
        let mut candidate = Candidate::new(false);
        candidate.epoch = Epoch(epoch);
        candidate.named_under("triplet", &[2, 3], 2);
        candidate.wait(1_000);
        candidate
    };
    assert!(named(2).done().contains(&"marks (2,6)".into()), "whoever led the term itself has all of it");
    let mut candidate = named(3);
    assert_eq!(candidate.done(), [""; 0], "nothing of term 2 is in its log");
    candidate.report(3, 9, false);
    assert!(candidate.done().contains(&"fetches from n3".into()));
}

#[test]
fn pr256_a_member_that_has_forgotten_nothing_is_not_skipped() {
    // It has the more in memory that was acknowledged, and does not answer what it is asked for.
    let mut candidate = Candidate::new(false);
    candidate.restarted(&[member(1)]);
    candidate.report(1, 7, false);
    assert_eq!(candidate.done(), ["fetches from n1"]);
    candidate.wait(10_000);
    let done = candidate.done();
    assert!(done.iter().all(|one| one == "fetches from n1"), "{done:?}");
    candidate.report(1, 7, false);
    assert!(candidate.done().contains(&"fetches from n1".into()), "it is asked again");
    // One that forgot as well: the greatest of their logs that can be had is the best there is.
    let mut candidate = Candidate::new(false);
    candidate.restarted(&[Member { incarnation: Incarnation(0), ..member(1) }]);
    candidate.report(1, 7, false);
    candidate.wait(10_000);
    assert!(candidate.done().contains(&"marks (2,6)".into()));
}

#[test]
fn pr441_records_that_were_made_again_wait_for_no_damaged_member_behind_a_fence() {
    // Node 1 is damaged, and never reports. Node 2 led, and its log is whole: it has what was acknowledged.
    let mut candidate = Candidate::new(false);
    candidate.rebuilt(&[2, 1], 2);
    candidate.wait(1_000);
    assert!(candidate.done().contains(&"marks (3,6)".into()));
    // What is torn off here may be there.
    let mut candidate = Candidate::new(true);
    candidate.rebuilt(&[2, 1], 2);
    candidate.wait(5_000);
    assert_eq!(candidate.done(), [""; 0]);
    candidate.report(1, 7, false);
    assert_eq!(candidate.done(), ["fetches from n1"]);
    // Node 3 led: this log may lack what was acknowledged, since an operator may have had a copy lead that
    // did not count. Node 1 may have that.
    let mut candidate = Candidate::new(false);
    candidate.rebuilt(&[2, 1], 3);
    candidate.wait(5_000);
    assert_eq!(candidate.done(), [""; 0]);
    candidate.report(1, 7, false);
    assert_eq!(candidate.done(), ["fetches from n1"]);
}

#[test]
fn pr345_who_cannot_get_what_another_one_has_says_that_this_one_should_lead() {
    let mut candidate = Candidate::new(false);
    candidate.restarted(&[Member { incarnation: Incarnation(0), ..member(1) }]);
    let status = |candidate: &Candidate| candidate.host.status(candidate.now()).remove(0);
    assert_eq!(status(&candidate).yields_to, None);
    candidate.report_above(7, member(1), 9, false);
    assert_eq!(candidate.done(), [""; 0], "the log of node 1 begins above 7, and its own ends at 5");
    assert_eq!(status(&candidate).yields_to, Some(member(1)));
    assert_eq!(status(&candidate).waits, "n1 has more than it can get, and should lead");
    // That one has made room in the other direction since: its whole log is there again.
    candidate.report(1, 9, false);
    assert_eq!((candidate.done(), status(&candidate).yields_to), (vec!["fetches from n1".to_string()], None));
}

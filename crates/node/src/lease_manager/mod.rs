//! The thread that beats (PR-65): heartbeats and their answers on connections of their own, so that neither a
//! busy executor nor a slow disk nor a long message delays them.
//!
//! It does no file work and prints nothing. It shares [`LeaseManager`] with the executors under a lock that
//! each holds for the time of a look-up. It stops vouching for an executor's partitions when that executor
//! makes no progress, and for all of this node's when their disk makes none ([`makes_progress`]), and only
//! then (PR-395).

mod thread;

use crate::config::Config;
use crate::failure::Failure;
use crate::net::FaultInjection;
use crate::stop::{Stopper, Watched};
use driver::progress::makes_progress;
use mio::{Poll, Waker};
use replica::{LeaseManager, Leases};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use types::{ClusterId, Executors, Member, Micros, NodeId, PartitionId, Term};

/// Signs of life that an executor leaves.
#[derive(Debug, Default)]
pub struct Pulse {
    executor_us: AtomicU64,
    pending_us: AtomicU64,
}

impl Pulse {
    /// The executor is alive; its oldest pending write to a disk began at `pending`.
    pub fn leave(&self, now: Micros, pending: Option<Micros>) {
        self.pending_us.store(pending.map_or(0, |at| at.0), Ordering::Relaxed);
        self.executor_us.store(now.0, Ordering::Release);
    }

    /// For how long the executor has done nothing, if it has begun its work and hangs; zero: it goes on.
    pub fn silence(&self, now: Micros) -> Micros {
        let left_at = self.left_at();
        let hangs = left_at > Micros::ZERO && !makes_progress(left_at, None, now);
        if hangs { now.since(left_at) } else { Micros::ZERO }
    }

    /// When the executor was alive last.
    fn left_at(&self) -> Micros {
        Micros(self.executor_us.load(Ordering::Acquire))
    }

    fn pending(&self) -> Option<Micros> {
        Some(self.pending_us.load(Ordering::Relaxed)).filter(|pending| *pending > 0).map(Micros)
    }
}

/// Signs of life of all of a node's executors.
#[derive(Debug)]
pub struct Pulses {
    executors: Executors,
    each: Vec<Pulse>,
}

impl Pulses {
    /// None was left yet.
    pub fn new(executors: Executors) -> Pulses {
        Pulses { executors, each: (0..executors.threads()).map(|_| Pulse::default()).collect() }
    }

    /// Those of one executor, or of the coordinator, by its number.
    ///
    /// # Panics
    /// If there is no such executor.
    pub fn of(&self, executor: usize) -> &Pulse {
        &self.each[executor]
    }

    /// For which partitions a heartbeat may vouch that is sent now: for those of executors that make
    /// progress, and for none while the disk, which they share, does not. One that hangs does not hear that
    /// its write is done, so it has no say in that.
    pub fn vouches(&self, now: Micros) -> impl Fn(PartitionId) -> bool {
        let heard = self.each.iter().filter(|pulse| makes_progress(pulse.left_at(), None, now));
        let pending = heard.filter_map(Pulse::pending).min();
        move |partition| makes_progress(self.of(self.executors.of(partition)).left_at(), pending, now)
    }
}

/// What the two threads share.
pub struct Shared {
    lease_manager: Mutex<LeaseManager>,
    /// Signs of life.
    pub pulses: Pulses,
    /// Where other nodes' heartbeats are answered, with a number that grows with each change.
    nodes: Mutex<BTreeMap<NodeId, SocketAddr>>,
    nodes_version: AtomicU64,
    /// The cluster; 0: not known yet.
    cluster: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    /// The state of the beat.
    pub fn lease_manager(&self) -> MutexGuard<'_, LeaseManager> {
        self.lease_manager.lock().expect("a thread panicked while it held the beat")
    }
}

/// The executor's handle on leases: the shared beat, locked for each question.
#[derive(Clone)]
pub struct SharedLeases(Arc<Shared>);

impl SharedLeases {
    /// Every node heard, with when it was.
    pub fn heard_nodes(&self) -> Vec<(NodeId, Micros)> {
        self.0.lease_manager().heard_nodes()
    }

    /// Where executors leave their signs of life.
    pub fn pulses(&self) -> &Pulses {
        &self.0.pulses
    }
}

impl Leases for SharedLeases {
    fn held_until(&self, partition: PartitionId, term: Term, by: Member) -> Micros {
        self.0.lease_manager().held_until(partition, term, by)
    }

    fn answered_at(&self, by: Member) -> Micros {
        self.0.lease_manager().answered_at(by)
    }

    fn listening_since(&self, now: Micros) -> Micros {
        self.0.lease_manager().listening_since(now)
    }

    fn heard_at(&self, partition: PartitionId, from: Member) -> Micros {
        self.0.lease_manager().heard_at(partition, from)
    }

    fn promised_until(&self, partition: PartitionId, term: Term) -> Micros {
        self.0.lease_manager().promised_until(partition, term)
    }

    fn know(&mut self, partition: PartitionId, term: Term) {
        self.0.lease_manager().know(partition, term);
    }

    fn lead(&mut self, partition: PartitionId, term: Option<Term>) {
        self.0.lease_manager().lead(partition, term);
    }
}

/// The thread, as its node holds it.
pub struct HeartbeatThread {
    shared: Arc<Shared>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatThread {
    /// Starts to beat for `me`, which started now and has so many executors.
    pub fn start(
        me: Member,
        executors: Executors,
        config: &Config,
        listener: TcpListener,
        faults: Arc<FaultInjection>,
        stopper: &Stopper,
    ) -> Result<HeartbeatThread, Failure> {
        let (settings, secret) = (&config.timing, &config.secret);
        let system = |error: std::io::Error| Failure::new(1, format!("the beat cannot start: {error}"));
        let shared = Arc::new(Shared {
            lease_manager: Mutex::new(LeaseManager::new(me, settings, crate::clock::mono())),
            pulses: Pulses::new(executors),
            nodes: Mutex::default(),
            nodes_version: AtomicU64::new(0),
            cluster: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let poll = Poll::new().map_err(system)?;
        let waker = Arc::new(Waker::new(poll.registry(), thread::WAKER).map_err(system)?);
        let beater =
            thread::Beater::new(me, settings, secret.clone(), shared.clone(), poll, listener, faults)
                .map_err(system)?;
        let watched = Watched::new(stopper, "beat");
        let run = move || match beater.run() {
            Ok(()) => watched.end_well(),
            Err(error) => watched.end(&format!("the system's poll failed: {error}")),
        };
        let spawned = std::thread::Builder::new().name("beat".into()).spawn(run);
        Ok(HeartbeatThread { shared, waker, thread: Some(spawned.map_err(system)?) })
    }

    /// The executor's handle.
    pub fn leases(&self) -> SharedLeases {
        SharedLeases(self.shared.clone())
    }

    /// The nodes to beat to: all but this one.
    pub fn set_nodes(&self, cluster: ClusterId, nodes: BTreeMap<NodeId, SocketAddr>) {
        let mut known = self.shared.nodes.lock().expect("a thread panicked while it held the nodes");
        if *known == nodes && self.shared.cluster.load(Ordering::Acquire) == cluster.0 {
            return;
        }
        *known = nodes;
        self.shared.cluster.store(cluster.0, Ordering::Release);
        self.shared.nodes_version.fetch_add(1, Ordering::Release);
        drop(known);
        // Fails only if the poll is gone, and with it the thread.
        let _ = self.waker.wake();
    }
}

impl Drop for HeartbeatThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beating_thread_does_not_end_unnoticed() {
        let mut poll = Poll::new().expect("a poll");
        let stopper = Stopper::new(Arc::new(Waker::new(poll.registry(), mio::Token(0)).expect("a waker")));
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        listener.set_nonblocking(true).expect("does not block");
        let me = Member { node: NodeId(1), ..Member::default() };
        let config = Config::with(&[]).expect("a configuration");
        let lease_manager =
            HeartbeatThread::start(me, Executors::ONE, &config, listener, Arc::default(), &stopper)
                .expect("starts");
        let shared = lease_manager.shared.clone();
        let poison = std::thread::spawn(move || {
            let _held = shared.nodes.lock().expect("free");
            panic!("a thread panics while it holds the nodes");
        });
        poison.join().unwrap_err();
        lease_manager.shared.nodes_version.fetch_add(1, Ordering::Release);
        let mut events = mio::Events::with_capacity(4);
        poll.poll(&mut events, Some(std::time::Duration::from_secs(10))).expect("polls");
        let why = stopper.broken().expect("it is told");
        assert!(why.contains("'beat'"), "{why}");
    }

    #[test]
    fn f18_who_connects_for_heartbeats_and_says_nothing_is_let_go() {
        let poll = Poll::new().expect("a poll");
        let stopper = Stopper::new(Arc::new(Waker::new(poll.registry(), mio::Token(0)).expect("a waker")));
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("has one");
        listener.set_nonblocking(true).expect("does not block");
        let me = Member { node: NodeId(1), ..Member::default() };
        let config = Config::with(&[]).expect("a configuration");
        let heartbeats =
            HeartbeatThread::start(me, Executors::ONE, &config, listener, Arc::default(), &stopper)
                .expect("starts");
        let (begun, second) = (std::time::Instant::now(), std::time::Duration::from_secs(1));
        let mut silent = std::net::TcpStream::connect(address).expect("connects");
        silent.set_read_timeout(Some(10 * second)).expect("a timeout");
        assert_eq!(std::io::Read::read(&mut silent, &mut [0; 8]).expect("it is closed"), 0);
        assert!(begun.elapsed() >= second, "a handshake may take so long");
        drop(heartbeats);
    }

    #[test]
    fn n18_only_a_dead_executor_or_disk_is_not_vouched_for() {
        let pulses = Pulses::new(Executors::ONE);
        let (pulse, ms) = (pulses.of(0), Micros::from_millis);
        let alive = |now| pulses.vouches(now)(PartitionId(64));
        pulse.leave(ms(10_000), None);
        assert!(alive(ms(10_499)) && !alive(ms(10_500)));
        pulse.leave(ms(10_400), Some(ms(9_900)));
        assert!(alive(ms(10_899)));
        pulse.leave(ms(10_850), Some(ms(9_900)));
        assert!(!alive(ms(10_900)), "a write has been pending for a second");
        pulse.leave(ms(10_900), None);
        assert!(alive(ms(10_901)));
    }

    #[test]
    fn pr395_an_executor_that_hangs_takes_no_other_ones_partitions_with_it() {
        let executors = Executors::new(3).expect("so many can be");
        let (pulses, ms) = (Pulses::new(executors), Micros::from_millis);
        let config = Config::with(&[]).expect("a configuration");
        let mut lease_manager = LeaseManager::new(Member::default(), &config.timing, ms(0));
        let all: Vec<PartitionId> = (64..76).map(PartitionId).collect();
        all.iter().for_each(|id| lease_manager.lead(*id, Some(Term(1))));
        let mut named = |now: Micros| -> Vec<PartitionId> {
            let heartbeat = lease_manager.heartbeat(now, Member::default(), pulses.vouches(now));
            heartbeat.leads.into_iter().map(|(id, _)| id).collect()
        };
        (0..3).for_each(|number| pulses.of(number).leave(ms(10_000), Some(ms(9_990))));
        assert_eq!(named(ms(10_100)), all);
        [0, 2].into_iter().for_each(|number| pulses.of(number).leave(ms(10_400), None));
        let others: Vec<PartitionId> = all.iter().copied().filter(|id| executors.of(*id) != 1).collect();
        assert!(!others.is_empty() && others.len() < all.len());
        assert_eq!(named(ms(10_500)), others, "the second one has done nothing for half a second");
        let silence = |number: usize| pulses.of(number).silence(ms(10_500));
        assert_eq!([0, 1, 2].map(silence), [Micros::ZERO, ms(500), Micros::ZERO]);
        assert_eq!(pulses.of(executors.coordinator()).silence(ms(10_500)), Micros::ZERO, "it has not begun");
        [0, 2].into_iter().for_each(|number| pulses.of(number).leave(ms(10_990), None));
        assert_eq!(named(ms(11_000)), others, "what it wrote last may be done, and it has not looked");
        // Their disk is one: who waits for it in vain, and looks, speaks for all of them.
        pulses.of(2).leave(ms(11_010), Some(ms(10_000)));
        assert!(named(ms(11_020)).is_empty());
    }
}

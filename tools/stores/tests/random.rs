//! What happens by chance: steps of clients, servers and managers in any order, over a store that needs no
//! order of commits and over one that has it. Where all holes are mended, nothing that was acknowledged is
//! lost, and once everybody is well the thresholds reach the newest commit.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use types::{NodeId, PartitionId, Position};
use understudy_stores::tracking::manager::ClientId;
use understudy_stores::world::Replay;
use understudy_stores::{Ordered, Rules, Servers, Unordered, World};

const REGIONS: [PartitionId; 3] = [PartitionId(64), PartitionId(65), PartitionId(66)];
const NODES: [NodeId; 4] = [NodeId(1), NodeId(2), NodeId(3), NodeId(4)];
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Copy, Debug)]
enum Act {
    /// Client, two regions, key, whether the client is told.
    Commit(usize, (usize, usize), usize, bool),
    Flush(usize),
    ClientHeartbeat(usize),
    ServerHeartbeat(usize),
    KillClient(usize),
    StopClient(usize),
    DeclareDead(usize),
    /// With its disk or without.
    KillServer(usize, bool),
    Replay,
    ReplaceManager,
    Cut(usize, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..3_usize, (0..3_usize, 0..3_usize), 0..4_usize, any::<bool>())
            .prop_map(|(client, regions, key, told)| Act::Commit(client, regions, key, told)),
        6 => (0..3_usize).prop_map(Act::Flush),
        6 => (0..3_usize).prop_map(Act::ClientHeartbeat),
        8 => (0..4_usize).prop_map(Act::ServerHeartbeat),
        1 => (0..3_usize).prop_map(Act::KillClient),
        1 => (0..3_usize).prop_map(Act::StopClient),
        1 => (0..3_usize).prop_map(Act::DeclareDead),
        2 => (0..4_usize, any::<bool>()).prop_map(|(node, disk)| Act::KillServer(node, disk)),
        6 => Just(Act::Replay),
        1 => Just(Act::ReplaceManager),
        1 => (0..4_usize, any::<bool>()).prop_map(|(node, cut)| Act::Cut(node, cut)),
    ]
}

struct Run<S> {
    world: World<S>,
    /// Places of clients; those that were declared dead may go on for a while.
    clients: [(ClientId, bool); 3],
    replays: Vec<Replay>,
    /// A disk is lost once: the rest of the copies has to be there.
    disk_lost: bool,
}

type Copies<'a> = [(PartitionId, &'a [NodeId])];

impl<S: Servers> Run<S> {
    fn new(rules: Rules, store: fn(&Copies) -> S) -> Run<S> {
        let copies: Vec<(PartitionId, Vec<NodeId>)> = REGIONS
            .iter()
            .enumerate()
            .map(|(at, region)| (*region, (0..3).map(|next| NODES[(at + next) % 4]).collect()))
            .collect();
        let copies: Vec<(PartitionId, &[NodeId])> =
            copies.iter().map(|(region, nodes)| (*region, &nodes[..])).collect();
        let mut world = World::new(rules, store(&copies), &NODES);
        let clients = [(); 3].map(|()| (world.start_client(), true));
        Run { world, clients, replays: Vec::new(), disk_lost: false }
    }

    fn renew(&mut self, place: usize) {
        self.clients[place] = (self.world.start_client(), true);
    }

    fn act(&mut self, act: Act) {
        let world = &mut self.world;
        match act {
            Act::Commit(place, (one, other), key, told) => {
                let client = self.clients[place].0;
                let snapshot = world.begin(client).unwrap_or(world.manager.flushed_by_all());
                let mut rows = vec![(REGIONS[one], KEYS[key])];
                rows.extend((one != other).then_some((REGIONS[other], KEYS[key])));
                if let Ok(at) = world.commit(client, snapshot, &rows)
                    && told
                {
                    world.told(client, at);
                }
            }
            Act::Flush(place) => world.flush(self.clients[place].0),
            Act::ClientHeartbeat(place) => world.client_heartbeat(self.clients[place].0),
            Act::ServerHeartbeat(node) => world.server_heartbeat(NODES[node]),
            Act::KillClient(place) => {
                world.kill_client(self.clients[place].0);
                self.renew(place);
            }
            Act::StopClient(place) => {
                world.stop_client(self.clients[place].0);
                self.renew(place);
            }
            Act::DeclareDead(place) if self.clients[place].1 => {
                world.client_failed(self.clients[place].0);
                self.clients[place].1 = false;
            }
            Act::DeclareDead(place) => {
                world.end_client(self.clients[place].0);
                self.renew(place);
            }
            Act::KillServer(node, disk) => {
                let disk = disk && !self.disk_lost;
                self.disk_lost |= disk;
                let replay = world.server_failed(NODES[node], disk);
                self.replays.push(replay);
                world.start_server(NODES[node]);
            }
            Act::Replay => {
                let mut replays = std::mem::take(&mut self.replays);
                replays.retain_mut(|replay| world.replay_one(replay));
                self.replays = replays;
            }
            Act::ReplaceManager => {
                world.replace_manager();
                let resumed = world.server_deposed(NodeId(99));
                self.replays = vec![resumed];
            }
            Act::Cut(node, cut) => world.store.cut(NODES[node], cut),
        }
    }

    /// Everybody is well again: what is lost, and whether the thresholds are level.
    fn end(mut self) -> (usize, bool) {
        NODES.into_iter().for_each(|node| self.world.store.cut(node, false));
        for place in 0..3 {
            if !self.clients[place].1 {
                self.world.end_client(self.clients[place].0);
            }
        }
        for replay in std::mem::take(&mut self.replays) {
            self.world.replay(replay);
        }
        for (client, _) in self.clients {
            self.world.end_client(client);
            self.world.client_failed(client);
        }
        self.world.settle();
        let (last, manager) = (self.world.manager.last(), &self.world.manager);
        let level = manager.flushed_by_all() == last && manager.persisted_by_all() == last;
        (self.world.missing().len(), level || last == Position::ZERO)
    }
}

fn run<S: Servers>(store: fn(&Copies) -> S, rules: Rules, acts: &[Act]) -> (usize, bool) {
    let mut run = Run::new(rules, store);
    acts.iter().for_each(|act| run.act(*act));
    run.end()
}

fn ordered(copies: &Copies) -> Ordered {
    Ordered::new(copies, Position::ZERO)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_that_was_acknowledged_is_lost(acts in prop::collection::vec(act(), 1..80)) {
        prop_assert_eq!(run(Unordered::new, Rules::MENDED, &acts), (0, true));
    }

    #[test]
    fn nothing_is_lost_over_a_store_that_takes_commits_in_order(
        acts in prop::collection::vec(act(), 1..80),
    ) {
        prop_assert_eq!(run(ordered, Rules::MENDED, &acts), (0, true));
    }
}

/// Among such steps are ones in which the algorithms as printed lose commits, over either store: else the
/// tests above would say little.
#[test]
fn as_printed_the_algorithms_lose_commits_in_such_steps() {
    fn keeps_all<S: Servers>(store: fn(&Copies) -> S) -> bool {
        let mut runner = TestRunner::deterministic();
        let acts = prop::collection::vec(act(), 1..80);
        (0..200).all(|_| {
            let acts = acts.new_tree(&mut runner).expect("steps").current();
            run(store, Rules::PRINTED, &acts).0 == 0
        })
    }
    assert!(!keeps_all(Unordered::new));
    assert!(!keeps_all(ordered));
}

/// A commit whose client is not told of it and is well: a client that commits behind it waits, and nobody
/// waits any more once it was declared dead.
#[test]
fn over_a_store_with_an_order_a_client_waits_for_another_one_until_that_is_flushed_for() {
    let (copies, region) = ([(REGIONS[0], &NODES[..2])], REGIONS[0]);
    let behind = |world: &mut World<Ordered>| {
        let (first, second) = (world.start_client(), world.start_client());
        let snapshot = world.manager.flushed_by_all();
        let lost = world.commit(first, snapshot, &[(region, "a")]).expect("no conflict");
        let at = world.transact(second, &[(region, "b")]).expect("no conflict");
        world.settle();
        assert!(!world.reads((region, "a"), lost) && !world.reads((region, "b"), at));
        assert_eq!(world.missing().len(), 2);
        world.kill_client(first);
        world.settle();
        assert_eq!((world.missing(), world.manager.persisted_by_all()), (vec![], at));
    };
    behind(&mut World::new(Rules::MENDED, ordered(&copies), &NODES));
    // The other store has the second one at once.
    let mut world = World::new(Rules::MENDED, Unordered::new(&copies), &NODES);
    let (first, second) = (world.start_client(), world.start_client());
    let snapshot = world.manager.flushed_by_all();
    world.commit(first, snapshot, &[(region, "a")]).expect("no conflict");
    let at = world.transact(second, &[(region, "b")]).expect("no conflict");
    world.settle();
    assert!(world.reads((region, "b"), at));
}

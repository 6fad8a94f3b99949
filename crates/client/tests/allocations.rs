//! How often the core allocates for a write. Each of these costs every client processor time with each put.

#![expect(unsafe_code, reason = "an allocator that counts is one by no other way")]

use bytes::Bytes;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use types::{
    Epoch, LogKind, Lsn, Member, Micros, NodeId, PartitionId, PartitionRecord, Policy, TableId, Term,
};
use understudy_client::{Call, Core, CoreConfig, Effect, LaneId};
use wire::control::ClusterMap;
use wire::{Body, Message, Op, RecordText, Reply, RowOp, Status};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and how often each thread has used it.
struct Counting;

// SAFETY: the system's allocator does all of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // None: the thread ends.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: what the caller promises is what the system's allocator demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Micros = Micros::from_millis(1_000);
const PARTITION: PartitionId = PartitionId(PartitionId::FIRST_USER);

/// How often this allocates.
fn counting(step: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    step();
    COUNT.with(Cell::get) - before
}

/// A core that knows of one partition, which a node leads.
fn core() -> Core {
    let (epoch, in_sync) = (Epoch(2), vec![Member { node: NodeId(1), ..Member::default() }]);
    let policy = Policy::preset("durable", 1, LogKind::Disk).expect("a preset");
    let record = PartitionRecord::new(PARTITION, TableId(1), epoch, in_sync, policy);
    let cluster_map = ClusterMap {
        revision: 1,
        cluster: None,
        nodes: Vec::new(),
        tables: Vec::new(),
        partitions: vec![RecordText::new(&PartitionRecord { term: Term(1), ..record })],
        dropped: Vec::new(),
        whole: true,
    };
    let mut core = Core::new(CoreConfig::default());
    core.cluster_map(NOW, &cluster_map).expect("a good cluster map");
    core
}

/// Writes a row, and answers what is asked for that. How often the core allocates.
fn put(core: &mut Core, lsn: u64) -> u64 {
    let row = RowOp::Put { key: Bytes::from_static(b"key"), row: Bytes::from_static(b"row") };
    let call = Call::new(TableId(1), 1, PARTITION, Op::write(vec![row]));
    let mut counted = counting(|| {
        core.submit(NOW, LaneId(0), call);
    });
    while let Some(effect) = core.next_effect() {
        match effect {
            Effect::Connect(node) => counted += counting(|| core.connected(NOW, node)),
            Effect::Send(node, id) => {
                let Some(Message::Request(request)) = core.message(id) else { panic!("no request") };
                let body = if request.seq > 0 { Body::Affected(1) } else { Body::None };
                let (status, lsn, epoch) = (Status::Ok, Lsn(lsn), Epoch(2));
                let reply = Reply { id, status, lsn, epoch, policy: 1, copies: 1, hint: None, body };
                counted += counting(|| core.reply(NOW, node, reply));
            }
            Effect::Close(node) => panic!("{node} is closed"),
        }
    }
    let mut ended = Vec::new();
    while let Some(completed) = core.next_completed() {
        ended.push(completed.outcome.is_ok());
    }
    assert_eq!(ended, [true]);
    counted
}

#[test]
fn a_put_allocates_once() {
    let mut core = core();
    // What is kept of acknowledged writes grows up to its limit.
    for lsn in 1..3_000 {
        put(&mut core, lsn);
    }
    let counted: u64 = (3_000..4_000).map(|lsn| put(&mut core, lsn)).sum();
    assert!(counted <= 1_010, "1,000 puts allocate {counted} times");
}

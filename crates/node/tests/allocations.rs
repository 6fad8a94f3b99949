//! How often a value is allocated on its way through the nodes: counted, not estimated.
//!
//! A process has one allocator, so there is one test here. Whose an allocation is says the name of the thread
//! that makes it.

#[path = "all/common/mod.rs"]
mod common;

use common::{Cluster, create, in_sync, row, wait_for};
use std::alloc::{GlobalAlloc, Layout, System};
use std::array::from_fn;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{EngineKind, LogKind};
use wire::control::{ClusterStatus, CreateTable};

/// Bytes of each value.
const VALUE: usize = 64 << 10;
/// Puts whose allocations are counted, one after the other.
const PUTS: u64 = 64;
/// Puts before them: buffers grow to the size that they keep.
const WARM_UP: u64 = 24;
/// Allocations that buffers may still need: far fewer than one for each put.
const SLACK: u64 = PUTS / 8;
/// The most allocations of at least a value's size for each put, at the primary.
const AT_PRIMARY: u64 = 1;
/// The same at each backup.
const AT_BACKUP: u64 = 1;

/// What the logs' threads have made, and behind it what the executors of nodes 1 to 3 have.
static MADE: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// Where the logs' threads are counted.
const LOGS: usize = 0;
/// The slot of threads that are not counted.
const OTHERS: usize = usize::MAX;

thread_local! {
    /// Where this thread is counted, once that was looked up.
    static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Where a thread of this name is counted.
fn slot_of(name: Option<&str>) -> usize {
    let Some(name) = name else { return OTHERS };
    if name == "log" {
        return LOGS;
    }
    // `node-2`, and `node-2.1` for its second executor.
    let node = name.strip_prefix("node-").and_then(|rest| rest.split('.').next());
    node.and_then(|number| number.parse().ok()).unwrap_or(OTHERS)
}

/// Counts an allocation if a value would fit into it. Only then a thread's name is looked up, and what that
/// allocates is smaller.
fn note(bytes: usize) {
    if bytes < VALUE {
        return;
    }
    let slot = SLOT.with(|slot| {
        let known = slot.get().unwrap_or_else(|| slot_of(std::thread::current().name()));
        slot.set(Some(known));
        known
    });
    if let Some(made) = MADE.get(slot) {
        made.fetch_add(1, Ordering::Relaxed);
    }
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator has no safe interface; every call goes on to the system's")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: what the caller promises of the layout is what the system's allocator wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: all memory is the system allocator's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: all memory is the system allocator's.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

/// What was made so far.
fn made() -> [u64; 4] {
    from_fn(|slot| MADE[slot].load(Ordering::Relaxed))
}

/// The number of the node that leads the one partition of the table.
fn primary(status: &ClusterStatus) -> usize {
    let mut of_tables = status.partitions.iter().filter(|record| !record.id.is_system());
    of_tables.next().expect("the table's partition").primary.node.0 as usize
}

/// What [`PUTS`] puts make on a cluster with this engine, and which node leads.
fn made_by_puts(engine: EngineKind) -> ([u64; 4], usize) {
    // Patient, so that nobody is suspected because the machine is busy.
    let cluster = Cluster::with(3, &[("timing.suspect_ms", "3000")]);
    let mut client = cluster.ready();
    let wanted = CreateTable { partitions: 1, ..create("t", "durable", engine, LogKind::Disk) };
    let table = client.create_table(&wanted).expect("creates");
    wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    let value = "v".repeat(VALUE);
    let mut put = |ids: std::ops::Range<u64>| {
        for id in ids {
            client.put(&table, &row(id as i64 % 16, &value)).expect("writes");
        }
    };
    put(0..WARM_UP);
    let before = made();
    put(0..PUTS);
    let after = made();
    let status = wait_for(&mut client, "all copies", |status| in_sync(status, 3));
    (from_fn(|slot| after[slot] - before[slot]), primary(&status))
}

#[test]
fn a_value_is_allocated_no_more_often_than_it_must() {
    for engine in EngineKind::ALL {
        let (made, primary) = made_by_puts(engine);
        let told = format!("{made:?} for {PUTS} puts on {engine:?}: logs, and nodes 1 to 3; {primary} leads");
        for (slot, made) in made.into_iter().enumerate() {
            let each = match slot {
                LOGS => 0,
                node if node == primary => AT_PRIMARY,
                _ => AT_BACKUP,
            };
            assert!(made <= each * PUTS + SLACK, "{told}");
        }
        // A test that counts nothing would always pass.
        assert!(made[primary] >= PUTS - SLACK, "{told}");
    }
}

//! A closed loop: clients that ask again as soon as they have their answer; and waiting for answers where
//! something else is due soon.

use crate::cluster::WAIT_LIMIT;
use crate::error::BenchError;
use crate::subject::{Load, note};
use client::{Call, Client, Completed, LaneId, Outcome};
use std::time::{Duration, Instant};

/// A shorter time is not waited for in the kernel, which counts in milliseconds.
const SHORT: Duration = Duration::from_millis(1);
/// What is slept instead.
const NAP: Duration = Duration::from_micros(50);

/// What is asked, and what counts as an answer.
pub(crate) trait Asking {
    /// The next call.
    fn call(&mut self) -> Result<Call, BenchError>;

    /// Refuses an answer that did not do the work.
    fn check(&mut self, outcome: &Outcome) -> Result<(), BenchError>;
}

/// For this time so many clients ask, as lanes of one client.
pub(crate) fn drive(
    client: &mut Client,
    clients: u32,
    time: Duration,
    asking: &mut impl Asking,
) -> Result<Load, BenchError> {
    let mut load = Load::empty();
    let begun = Instant::now();
    for lane in 0..clients {
        client.submit(LaneId(lane), asking.call()?);
    }
    let mut open = clients;
    while open > 0 {
        let completed = client.poll(WAIT_LIMIT)?;
        if completed.is_empty() {
            return Err(BenchError::Wrong("no answer within thirty seconds under load".into()));
        }
        let over = begun.elapsed() >= time;
        for completed in completed {
            asking.check(&completed.outcome)?;
            note(&mut load.latencies, Duration::from_micros(completed.latency_us));
            load.ops += 1;
            if over {
                open -= 1;
            } else {
                client.submit(completed.lane, asking.call()?);
            }
        }
    }
    load.elapsed = begun.elapsed();
    Ok(load)
}

/// What comes within this time, or a little more than nothing if it is short.
pub(crate) fn answers(client: &mut Client, within: Duration) -> Result<Vec<Completed>, BenchError> {
    if within >= SHORT {
        return Ok(client.poll(Duration::from_millis(within.as_millis() as u64))?);
    }
    let completed = client.poll(Duration::ZERO)?;
    if completed.is_empty() {
        std::thread::sleep(within.min(NAP));
    }
    Ok(completed)
}

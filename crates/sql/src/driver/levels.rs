//! Sessions of a node that bring the partitions of a database level do so one after the other, and who has
//! waited has what the next one does. Else, when a table changes that many use, each of them would read all
//! catalogs, and write all rows of a replicated table to the same partitions.

use pg::Failure;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;
use types::TableId;

/// Whoever has waited for so long does it beside the others: a partition may not answer.
const TURN_WAIT_LIMIT: Duration = Duration::from_secs(2);

/// What was done for one database.
#[derive(Default)]
struct Gate {
    /// How often it was begun.
    begun: AtomicU64,
    /// The number of the last time that it has succeeded. Who has this does it.
    done: Mutex<u64>,
}

/// The same of all databases.
#[derive(Default)]
pub(super) struct Levels(Lock<BTreeMap<TableId, Arc<Gate>>>);

impl Levels {
    /// Does it, unless somebody does so who begins behind this call.
    pub async fn once(
        &self,
        database: TableId,
        level: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let gate = {
            let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            gates.entry(database).or_default().clone()
        };
        let before = gate.begun.load(Ordering::SeqCst);
        let Ok(mut done) = timeout(TURN_WAIT_LIMIT, gate.done.lock()).await else { return level.await };
        if *done > before {
            return Ok(());
        }
        let number = gate.begun.fetch_add(1, Ordering::SeqCst) + 1;
        level.await?;
        *done = number;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg::code;
    use std::cell::Cell;
    use tokio::runtime::Builder;
    use tokio::task::yield_now;

    #[test]
    fn who_waits_has_what_the_next_one_does() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (levels, times) = (Levels::default(), Cell::new(0));
        let (levels, times) = (&levels, &times);
        let once = move |database: u32, fails: bool| {
            levels.once(TableId(database), async move {
                times.set(times.get() + 1);
                yield_now().await;
                if fails { Err(Failure::new(code::INTERNAL, "it fails")) } else { Ok(()) }
            })
        };
        let all = runtime.block_on(async {
            tokio::join!(once(5, false), once(5, false), once(5, false), once(5, false), once(6, false))
        });
        assert_eq!(all, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(())));
        assert_eq!(times.get(), 3, "the first one, one for those who came behind it, and another database");
        let failed = runtime.block_on(async { tokio::join!(once(5, true), once(5, false), once(5, false)) });
        assert!(failed.0.is_err() && failed.1.is_ok() && failed.2.is_ok(), "{failed:?}");
        assert_eq!(times.get(), 5, "what failed is nobody else's");
    }
}

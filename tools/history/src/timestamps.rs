//! Snapshot isolation from timestamps: what each transaction must have read, whom it may not have overtaken,
//! and that timestamps follow real time. No dependency is followed. Takes `n log n` steps.
//!
//! A commit without an answer has no timestamp: it lies behind its snapshot, and not behind any snapshot that
//! showed it.

use crate::operation::At;
use crate::register::Wrong;
use crate::transaction::{Ending, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Acknowledged versions of each row by timestamp: the version and the number of its transaction.
type Rows = BTreeMap<u32, BTreeMap<At, (u64, u64)>>;

/// Greatest timestamps along time, each with the number of the transaction that it is of.
struct Known(Vec<(u64, At, u64)>);

/// A version whose commit has no timestamp: what it lies above, and what not.
#[derive(Clone, Copy)]
struct Between {
    above: At,
    up_to: Option<At>,
}

/// Checks transactions in any order.
///
/// # Errors
///
/// The first thing found wrong.
pub fn check(transactions: &[Transaction]) -> Result<(), Wrong> {
    check_time(transactions)?;
    let rows = rows(transactions)?;
    let (times, unsure) = (times(transactions), between(transactions));
    for transaction in transactions {
        check_first_committer(transaction, &rows)?;
        check_reads(transaction, &rows, &times, &unsure)?;
    }
    Ok(())
}

fn wrong<T>(sentence: String, operations: &[u64]) -> Result<T, Wrong> {
    Err(Wrong { sentence, operations: operations.to_vec() })
}

fn shown(at: At) -> String {
    format!("{}.{}", at.term, at.lsn)
}

impl Known {
    fn new(mut moments: Vec<(u64, At, u64)>) -> Known {
        moments.sort_unstable();
        let mut most: Option<(At, u64)> = None;
        for (_, at, who) in &mut moments {
            let greatest = most.map_or((*at, *who), |most| most.max((*at, *who)));
            most = Some(greatest);
            (*at, *who) = greatest;
        }
        Known(moments)
    }

    /// The greatest before a moment.
    fn before(&self, moment: u64) -> Option<(At, u64)> {
        let place = self.0.partition_point(|(when, ..)| *when < moment);
        place.checked_sub(1).map(|place| (self.0[place].1, self.0[place].2))
    }
}

/// Who begins sees what was acknowledged or shown before; who commits comes behind what was shown before.
fn check_time(transactions: &[Transaction]) -> Result<(), Wrong> {
    let snapshots = transactions.iter().map(|one| (one.started, one.snapshot, one.number));
    let commits = transactions.iter().filter_map(|one| Some((one.ended?, one.committed()?, one.number)));
    let known = Known::new(snapshots.chain(commits).collect());
    for transaction in transactions {
        let (number, snapshot) = (transaction.number, transaction.snapshot);
        if let Some((at, who)) = known.before(transaction.begun).filter(|(at, _)| *at > snapshot) {
            let sentence = format!(
                "T{number} reads at {}, and {} was known of T{who} before it began",
                shown(snapshot),
                shown(at)
            );
            return wrong(sentence, &[who, number]);
        }
        let Some(at) = transaction.committed() else { continue };
        let earlier = transaction.asked.and_then(|asked| known.before(asked)).unwrap_or((snapshot, number));
        let (other, who) = earlier.max((snapshot, number));
        if other >= at {
            let sentence =
                format!("T{number} was committed at {}, behind {} of T{who}", shown(at), shown(other));
            return wrong(sentence, &[who, number]);
        }
    }
    Ok(())
}

/// Every acknowledged version; no two commits have one timestamp.
fn rows(transactions: &[Transaction]) -> Result<Rows, Wrong> {
    let (mut rows, mut owners) = (Rows::new(), BTreeMap::new());
    for transaction in transactions {
        let (number, Some(at)) = (transaction.number, transaction.committed()) else { continue };
        if let Some(other) = owners.insert(at, number) {
            let sentence = format!("T{other} and T{number} have one timestamp, {}", shown(at));
            return wrong(sentence, &[other, number]);
        }
        for write in transaction.last_writes() {
            rows.entry(write.key).or_default().insert(at, (write.tag, number));
        }
    }
    Ok(rows)
}

/// The timestamp of each acknowledged version.
fn times(transactions: &[Transaction]) -> BTreeMap<u64, At> {
    let committed = transactions.iter().filter_map(|one| Some((one, one.committed()?)));
    committed.flat_map(|(one, at)| one.last_writes().map(move |write| (write.tag, at))).collect()
}

/// What is known of each version without a timestamp.
fn between(transactions: &[Transaction]) -> BTreeMap<u64, Between> {
    let open = transactions.iter().filter(|one| one.ending == Ending::Unknown);
    let mut unsure: BTreeMap<u64, Between> = open
        .flat_map(|one| one.writes.iter().map(|write| (write.tag, one.snapshot)))
        .map(|(tag, above)| (tag, Between { above, up_to: None }))
        .collect();
    for transaction in transactions {
        for read in &transaction.reads {
            if let Some(between) = unsure.get_mut(&read.tag) {
                let least = between.up_to.map_or(transaction.snapshot, |at| at.min(transaction.snapshot));
                between.up_to = Some(least);
            }
        }
    }
    unsure
}

/// Nobody may have written one of its rows between its snapshot and its commit.
fn check_first_committer(transaction: &Transaction, rows: &Rows) -> Result<(), Wrong> {
    let Some(at) = transaction.committed() else { return Ok(()) };
    if at <= transaction.snapshot {
        return Ok(());
    }
    for write in transaction.last_writes() {
        let own = rows.get(&write.key).into_iter();
        let meanwhile = (Excluded(transaction.snapshot), Excluded(at));
        let first = own.flat_map(|versions| versions.range(meanwhile)).next();
        if let Some((other, (_, who))) = first {
            let (number, key) = (transaction.number, write.key);
            let sentence = format!(
                "T{number} read at {} and was committed at {}, and T{who} wrote row {key} at {} between",
                shown(transaction.snapshot),
                shown(at),
                shown(*other)
            );
            return wrong(sentence, &[*who, number]);
        }
    }
    Ok(())
}

/// Each row that it read must be the newest at its snapshot.
fn check_reads(
    transaction: &Transaction,
    rows: &Rows,
    times: &BTreeMap<u64, At>,
    unsure: &BTreeMap<u64, Between>,
) -> Result<(), Wrong> {
    let (number, snapshot) = (transaction.number, transaction.snapshot);
    for read in &transaction.reads {
        let own = rows.get(&read.key);
        let newest = own.and_then(|own| own.range((Unbounded, Included(snapshot))).next_back());
        let (due, who) = newest.map_or((0, 0), |(_, (tag, who))| (*tag, *who));
        let fits = match (times.get(&read.tag), unsure.get(&read.tag)) {
            (None, Some(between)) => {
                // What lies behind all that it can be would have been seen instead.
                let not_older = newest.is_none_or(|(at, _)| between.up_to.is_none_or(|up_to| *at < up_to));
                between.above < snapshot && not_older
            }
            _ => read.tag == due,
        };
        if !fits {
            let sentence = format!(
                "T{number} reads row {} at {}, where T{who} left version {due}, and saw version {}",
                read.key,
                shown(snapshot),
                read.tag
            );
            return wrong(sentence, &if who == 0 { vec![number] } else { vec![who, number] });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::made::*;

    fn said(transactions: impl IntoIterator<Item = Transaction>) -> String {
        check(&numbered(transactions)).err().map_or(String::new(), |wrong| wrong.sentence)
    }

    #[test]
    fn what_timestamps_allow_passes() {
        let (one, two) = (row(1, 1, 0), row(2, 2, 0));
        let skew = [
            filled(),
            reader(0, &[row(1, 0, 0)]),
            commit(1, 2, &[one, two], &[row(1, 3, 1)]),
            commit(1, 3, &[one, two], &[row(2, 4, 2)]),
            reader(2, &[row(1, 3, 1), two]),
            whole(3, &[row(1, 3, 1), row(2, 4, 2)]),
        ];
        assert_eq!(said(skew), "");
        // A commit without an answer was done at any time behind its snapshot.
        let late = [
            filled(),
            unknown(1, &[one], &[row(1, 3, 1)]),
            commit(1, 4, &[two], &[row(2, 4, 2)]),
            reader(4, &[one, row(2, 4, 2)]),
            reader(5, &[row(1, 3, 1)]),
        ];
        assert_eq!(said(late), "");
    }

    #[test]
    fn what_contradicts_timestamps_is_found() {
        let (one, two, three) = (row(1, 1, 0), row(2, 2, 0), row(1, 3, 1));
        let next = commit(1, 2, &[one], &[three]);
        let stale = Transaction { begun: 25, ..reader(1, &[one, two]) };
        assert!(said([filled(), next.clone(), stale]).contains("was known of T2 before it began"));
        let behind = Transaction { asked: Some(35), ..commit(1, 2, &[], &[three]) };
        assert!(said([filled(), reader(3, &[]), behind]).contains("was committed at 1.2, behind 1.3 of T2"));
        let overtaken = commit(1, 3, &[one], &[row(1, 4, 3)]);
        assert!(said([filled(), next.clone(), overtaken]).contains("T2 wrote row 1 at 1.2 between"));
        assert!(
            said([filled(), next.clone(), reader(2, &[one])])
                .contains("T2 left version 3, and saw version 1")
        );
        assert!(said([filled(), next.clone(), reader(1, &[three])]).contains("saw version 3"));
        assert!(said([filled(), reader(1, &[row(1, 0, 0)])]).contains("saw version 0"));
        let same = commit(1, 2, &[two], &[row(2, 5, 2)]);
        assert!(said([filled(), next.clone(), same]).contains("have one timestamp, 1.2"));
        // It lies behind its snapshot, and before all that overwrote it.
        let open = unknown(2, &[], &[row(2, 6, 2)]);
        assert!(said([filled(), open.clone(), reader(2, &[row(2, 6, 2)])]).contains("saw version 6"));
        let over = commit(3, 4, &[row(2, 6, 2)], &[row(2, 7, 6)]);
        let again = reader(5, &[row(2, 6, 2)]);
        assert!(said([filled(), open, over, again]).contains("T3 left version 7, and saw version 6"));
    }
}

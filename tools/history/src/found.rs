//! Whether rows can have been there for which inserts were refused.
//!
//! Of such a row nothing is known but that it was there at some moment between the call and the answer. So
//! somebody must have written it by then; and if it was surely gone at some moment before the call, somebody
//! must have been able to write it after that. Takes `n log n` steps.

use crate::operation::{Key, Operation};
use crate::register::Wrong;

/// Moments, each with the greatest value up to it, and the operation that brought it.
struct Greatest(Vec<(u64, u64, u64)>);

impl Greatest {
    fn new(mut moments: Vec<(u64, u64, u64)>) -> Greatest {
        moments.sort_unstable();
        let mut most = (0, 0);
        for (_, value, who) in &mut moments {
            most = most.max((*value, *who));
            (*value, *who) = most;
        }
        Greatest(moments)
    }

    /// The greatest value before a moment, and whose it is.
    fn before(&self, moment: u64) -> Option<(u64, u64)> {
        let at = self.0.partition_point(|(when, ..)| *when < moment).checked_sub(1)?;
        Some((self.0[at].1, self.0[at].2))
    }
}

/// Checks the refusals of one key. `operations` are those that speak of it, in any order. What was lost must
/// have been taken out.
///
/// # Errors
///
/// The first row that cannot have been there.
pub fn check(key: Key, operations: &[&Operation]) -> Result<(), Wrong> {
    let refused = || operations.iter().filter(move |operation| operation.found.contains(&key));
    if refused().next().is_none() {
        return Ok(());
    }
    // When each value began to be written, with when that had surely ended; and when the row was surely gone,
    // with when whoever says so began.
    let (mut written, mut gone) = (Vec::new(), Vec::new());
    for operation in operations {
        let (began, number) = (operation.invoked, operation.number);
        let ended = operation.ended().unwrap_or(u64::MAX);
        for write in operation.writes.iter().filter(|write| write.key == key) {
            match write.tag {
                Some(_) => written.push((began, ended, number)),
                None => gone.push((ended, began, number)),
            }
        }
        if operation.reads.iter().any(|read| read.key == key && read.seen.is_none()) {
            gone.push((ended, began, number));
        }
    }
    let (written, gone) = (Greatest::new(written), Greatest::new(gone));
    for operation in refused() {
        let completed = operation.ended().unwrap_or(u64::MAX);
        let last = written.before(completed.saturating_add(1));
        let since = gone.before(operation.invoked);
        let sentence = match (last, since) {
            (None, _) => format!("an insert was refused as row {key} was there, which nobody had written"),
            (Some((ended, _)), Some((began, _))) if ended < began => {
                format!("an insert was refused as row {key} was there, and it was gone and not written again")
            }
            _ => continue,
        };
        let shown = [last, since].into_iter().flatten().map(|(_, number)| number);
        return Err(Wrong { sentence, operations: shown.chain([operation.number]).collect() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::made::*;

    fn verdict(operations: impl IntoIterator<Item = Operation>) -> Result<(), Vec<u64>> {
        let operations = history(operations);
        let all: Vec<&Operation> = operations.iter().collect();
        check(KEY, &all).map_err(|wrong| wrong.operations)
    }

    #[test]
    fn what_can_have_been_there_passes() {
        let good: [Vec<Operation>; 6] = [
            vec![put(1, 1, 2), refused(3, 4)],
            // The write had begun.
            vec![put(1, 3, None), refused(2, 4)],
            // The removal may have come later, or not at all.
            vec![put(1, 1, 2), delete(3, 9), refused(4, 5)],
            vec![put(1, 1, 2), delete(3, None), refused(14, 15)],
            // It was written again, perhaps behind the removal.
            vec![put(1, 1, 2), delete(3, 5), put(2, 4, 6), refused(14, 15)],
            vec![read(None, 1, 2), put(1, 2, 4), refused(5, 6)],
        ];
        for operations in good {
            assert_eq!(verdict(operations.clone()), Ok(()), "{operations:?}");
        }
    }

    #[test]
    fn what_cannot_have_been_there_is_rejected() {
        assert_eq!(verdict([refused(3, 4)]), Err(vec![1]), "nobody ever wrote it");
        assert_eq!(verdict([refused(3, 4), put(1, 5, 6)]), Err(vec![1]), "it is written later");
        assert_eq!(verdict([put(1, 1, 2), delete(3, 4), refused(5, 6)]), Err(vec![1, 2, 3]));
        let missed = [put(1, 1, 2).of(OTHER), put(2, 1, 2), delete(3, 4), read(None, 5, 6), refused(7, 8)];
        assert_eq!(verdict(missed), Err(vec![2, 4, 5]), "it was missed behind its removal");
    }
}

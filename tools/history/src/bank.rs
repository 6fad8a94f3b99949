//! A bank: transactions move amounts between rows, and never change their sum. What each snapshot of all rows
//! must show, and that what was acknowledged is there in the end.

use crate::register::Wrong;
use crate::transaction::Transaction;
use crate::verdict::{Finding, Rule};
use crate::{timestamps, versions};
use std::collections::{BTreeMap, BTreeSet};

/// What all accounts hold together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Total {
    /// How many there are.
    pub accounts: usize,
    /// Their sum.
    pub amount: i64,
}

/// Runs every checker. The last transaction that has read all rows is the one of the end: nothing was written
/// behind it.
pub fn check_bank(transactions: &[Transaction], total: Total) -> Vec<Finding> {
    let found = [
        (Rule::Isolation, versions::check(transactions)),
        (Rule::Timestamp, timestamps::check(transactions)),
        (Rule::Total, check_total(transactions, total)),
        (Rule::Loss, check_kept(transactions)),
    ];
    let finding = |(rule, found): (Rule, Result<(), Wrong>)| {
        let Wrong { sentence, operations } = found.err()?;
        Some(Finding { rule, key: None, place: None, sentence, operations })
    };
    found.into_iter().filter_map(finding).collect()
}

/// The total of every snapshot of all rows.
fn check_total(transactions: &[Transaction], total: Total) -> Result<(), Wrong> {
    for reader in transactions.iter().filter(|one| one.whole) {
        let there: Vec<i64> =
            reader.reads.iter().filter(|read| read.tag != 0).map(|read| read.amount).collect();
        let sum: i64 = there.iter().sum();
        if (there.len(), sum) != (total.accounts, total.amount) {
            let sentence = format!(
                "T{} saw {sum} in {} accounts, and there are {} in {}",
                reader.number,
                there.len(),
                total.amount,
                total.accounts
            );
            return Err(Wrong { sentence, operations: vec![reader.number] });
        }
    }
    Ok(())
}

/// Every version that was acknowledged, or seen, is one that the versions of the end go back to.
fn check_kept(transactions: &[Transaction]) -> Result<(), Wrong> {
    let Some(last) = transactions.iter().filter(|one| one.whole).max_by_key(|one| one.begun) else {
        let sentence = "nobody has read all rows".into();
        return Err(Wrong { sentence, operations: Vec::new() });
    };
    let writes = || transactions.iter().flat_map(Transaction::last_writes);
    let replaced: BTreeMap<u64, u64> = writes().map(|write| (write.tag, write.prev)).collect();
    let mut kept: BTreeSet<u64> = BTreeSet::from([0]);
    for read in &last.reads {
        let mut tag = Some(read.tag);
        while let Some(known) = tag.filter(|tag| kept.insert(*tag)) {
            tag = replaced.get(&known).copied();
        }
    }
    for transaction in transactions {
        let acknowledged = transaction.committed().is_some();
        let written = transaction.last_writes().filter(|_| acknowledged).map(|write| (write, "acknowledged"));
        let read = transaction.reads.iter().map(|read| (*read, "seen"));
        if let Some((lost, how)) = written.chain(read).find(|(version, _)| !kept.contains(&version.tag)) {
            let (number, key, tag) = (transaction.number, lost.key, lost.tag);
            let sentence =
                format!("version {tag} of row {key} was {how} by T{number}, and is lost in the end");
            return Err(Wrong { sentence, operations: vec![number, last.number] });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::made::*;
    use crate::transaction::{Ending, Version};

    const TOTAL: Total = Total { accounts: 2, amount: 20 };

    fn rules(transactions: impl IntoIterator<Item = Transaction>) -> Vec<Rule> {
        check_bank(&numbered(transactions), TOTAL).iter().map(|finding| finding.rule).collect()
    }

    /// Both rows, moved once.
    fn moved() -> Transaction {
        commit(1, 2, &[row(1, 1, 0), row(2, 2, 0)], &[row(1, 3, 1), row(2, 4, 2)])
    }

    fn end() -> Transaction {
        whole(9, &[row(1, 3, 1), row(2, 4, 2)])
    }

    #[test]
    fn each_checker_alone_rejects_what_the_others_take() {
        assert_eq!(rules([filled(), moved(), end()]), []);
        // Half of a commit whose timestamp nobody knows.
        let open = Transaction { ending: Ending::Unknown, ended: None, ..moved() };
        let half = reader(5, &[row(1, 3, 1), row(2, 2, 0)]);
        assert_eq!(rules([filled(), open.clone(), half, end()]), [Rule::Isolation]);
        // A whole state that was too old to be seen.
        let old = Transaction { begun: 35, ..reader(1, &[row(1, 1, 0), row(2, 2, 0)]) };
        assert_eq!(rules([filled(), moved(), old, end()]), [Rule::Timestamp]);
        // Amounts that were written so.
        let more = |tag, prev| Version { amount: 11, ..row(1, tag, prev) };
        let wrong = commit(1, 2, &[row(1, 1, 0)], &[more(3, 1)]);
        assert_eq!(rules([filled(), wrong, whole(9, &[more(3, 1), row(2, 2, 0)])]), [Rule::Total]);
        // It was seen, whatever its timestamp, and the end does not have it.
        let seen = reader(5, &[row(1, 3, 1), row(2, 4, 2)]);
        let without = whole(9, &[row(1, 1, 0), row(2, 2, 0)]);
        assert_eq!(rules([filled(), open, seen, without]), [Rule::Loss]);
    }

    #[test]
    fn a_commit_that_was_acknowledged_must_be_there_in_the_end() {
        let without = whole(9, &[row(1, 1, 0), row(2, 2, 0)]);
        assert!(rules([filled(), moved(), without]).contains(&Rule::Loss));
        assert_eq!(rules([filled(), moved()]), [Rule::Loss], "nobody has looked");
        let gone = rules([filled(), whole(9, &[row(1, 1, 0)])]);
        assert_eq!(gone, [Rule::Total, Rule::Loss], "an account is gone");
    }
}

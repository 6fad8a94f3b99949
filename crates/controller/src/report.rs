//! Reports about failovers: how long each part took, and what was lost (PR-29, R9).

use crate::controller::Controller;
use crate::keys::Key;
use crate::ledger::Purpose;
use crate::txn::Txn;
use types::config::{Cause, FailoverRecord, TailReport};
use wire::control::Served;

/// A change of a failover's record, repeated on whatever the record is by then.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ReportJob {
    failover: u64,
    news: News,
}

#[derive(Clone, PartialEq, Debug)]
enum News {
    Served(Served, Option<u64>),
    Tail(TailReport),
}

impl Controller {
    /// The new primary serves.
    pub(crate) fn on_served(&mut self, served: Served) {
        let answered = self.sealing.answered_ms.remove(&served.failover);
        self.report(ReportJob { failover: served.failover, news: News::Served(served, answered) });
    }

    /// A tail of an older term was set aside: it belongs to the failover that ended that term, or the first
    /// one after it. Nodes tell all that they have whenever they register, so that of an old one the failover
    /// may not be kept any more. Where the records were made anew, those of all failovers before are gone,
    /// and the rebuild's own one names what they gave up (PR-200).
    pub(crate) fn on_tail(&mut self, tail: TailReport) {
        // They are counted from 1.
        let all_kept = self.records.failovers().next().is_none_or(|oldest| oldest.id == 1);
        let of_partition = self.records.failovers().filter(|failover| failover.partition == tail.partition);
        let ended = of_partition
            .filter(|failover| failover.old_epoch >= tail.term.began())
            .min_by_key(|failover| failover.old_epoch)
            .filter(|failover| {
                all_kept || failover.old_term <= tail.term || failover.cause == Cause::Rebuilt
            });
        if let Some(failover) = ended.map(|failover| failover.id) {
            self.report(ReportJob { failover, news: News::Tail(tail) });
        }
    }

    fn report(&mut self, job: ReportJob) {
        let Some(known) = self.records.failover(job.failover) else { return };
        let mut record = known.clone();
        job.news.enter(&mut record);
        if record == *known {
            return;
        }
        let key = Key::Failover(job.failover);
        let txn = Txn::default().compare(&key, self.records.compare_with(&key)).put(&key, &record);
        self.submit(Purpose::Report(job), txn);
    }

    /// The report is in, or somebody else changed the record: then it is entered there.
    pub(crate) fn reported(&mut self, job: ReportJob, applied: bool) {
        if !applied {
            self.report(job);
        }
    }
}

impl News {
    fn enter(&self, record: &mut FailoverRecord) {
        match self {
            News::Served(served, answered_ms) if record.partition == served.partition => {
                record.reconciled_ms = Some(served.reconciled_ms);
                record.serving_ms = Some(served.serving_ms);
                record.sealed_ms = answered_ms.unwrap_or(record.sealed_ms);
                record.loss.kept = Some(served.kept.lsn);
                record.loss.kept_term = Some(served.kept.term);
                record.loss.last_heard = Some(served.last_heard);
            }
            News::Served(..) => {}
            News::Tail(tail) => {
                let same = |other: &TailReport| other.node == tail.node && other.file == tail.file;
                record.loss.tails.retain(|other| !same(other));
                record.loss.tails.push(tail.clone());
                record.loss.tails.sort_by(|a, b| (a.node, &a.file).cmp(&(b.node, &b.file)));
            }
        }
    }
}

//! What a backup does with what its primary sends.
//!
//! | file | what |
//! | --- | --- |
//! | `acks` | what the primary is told of this log, and when |
//! | `copy_in` | a copy by rows: which piece comes next |
//! | `fetch` | what a new primary lacks |
//! | `follow` | appends checked and taken in |
//! | `patience` | how often a missed primary is reported |

pub(crate) mod acks;
pub(crate) mod copy_in;
pub(crate) mod fetch;
pub(crate) mod follow;
pub(crate) mod patience;

use crate::context::{Ctx, Identity};
use crate::data::Data;
use crate::output::Output;
use acks::{Acks, Due};
use copy_in::CopyIn;
use patience::Patience;
use types::{Lsn, Member, Micros, PartitionRecord};
use wire::PeerMessage;
use wire::peer::{Ack, Append, Copy};

/// How often it is said that entries were not as they were sent.
const TELLS_GARBLED: Micros = Micros::from_millis(1_000);

/// What a backup or a catching-up replica keeps of one term.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) acks: Acks,
    pub(crate) copy: CopyIn,
    pub(crate) patience: Patience,
    /// The primary's newest `committed`, however far it is beyond this log.
    their_committed: Lsn,
    /// What the primary vouches for of our own clock: `committed` is not older than this (PR-27).
    fresh_at: Micros,
    /// When it was said last that entries were not as they were sent.
    garbled_at: Option<Micros>,
}

impl Backup {
    /// At the beginning of a term. `resend`: how long a missed primary is given before it is reported again.
    pub fn new(resend: Micros) -> Backup {
        Backup {
            acks: Acks::default(),
            copy: CopyIn::default(),
            patience: Patience::new(resend),
            their_committed: Lsn::ZERO,
            fresh_at: Micros::ZERO,
            garbled_at: None,
        }
    }

    /// Tells the primary what has changed, if that is due.
    pub fn acknowledge(
        &mut self,
        data: &Data,
        record: &PartitionRecord,
        me: Member,
        due: Due,
    ) -> Option<Output> {
        if self.copy.is_open() {
            return None;
        }
        // Who catches up is taken in when it has all that is committed at one moment: its primary is to know.
        let (rank, due) = match record.rank(&me) {
            Some(rank) => (rank, due),
            None => (record.in_sync.len(), due.at_once()),
        };
        let policies = record.next_policy.iter().chain([&record.policy]);
        let marks = self.acks.tell(data.watermarks(), (rank, policies), due)?;
        let (echo_us, number) = self.acks.echo();
        let ack = Ack {
            partition: record.id,
            epoch: record.epoch,
            from: me,
            end: data.log.end(),
            marks,
            sent_us: due.now().0,
            echo_us,
            number,
        };
        Some(Output::Send { to: record.primary, message: PeerMessage::Ack(ack) })
    }

    /// If this in-sync backup misses its primary, for how long (R6, N6). A primary that has not named the
    /// partition yet and answers otherwise may not know yet that it leads: it is given as long as one on
    /// which commits rest. `since`: when the record came.
    pub fn misses(
        &mut self,
        record: &PartitionRecord,
        identity: Identity,
        since: Micros,
        ctx: &Ctx,
    ) -> Option<Micros> {
        let (now, settings, primary) = (ctx.now.mono, ctx.settings, record.primary);
        if record.rank(&identity.me).is_none_or(|rank| rank == 0) {
            return None;
        }
        let heard = ctx.leases.heard_at(record.id, primary);
        let beginning =
            heard == Micros::ZERO && now.since(ctx.leases.answered_at(primary)) < settings.suspect;
        let alone = record.rests_alone() && identity.rules.who_is_missed_may_be_well();
        let patience = match alone || beginning {
            true => settings.suspect_alone,
            false => settings.suspect,
        };
        let (silent, back_off) = (now.since(heard.max(since)), identity.rules.losers_back_off());
        (silent >= patience && self.patience.runs_out(now, back_off)).then_some(silent)
    }

    /// A piece of a copy was taken in.
    pub fn installed(&mut self, copy: &Copy) {
        self.copy.installed(copy);
        if copy.last {
            self.begin_at(copy.at.lsn);
        }
    }

    /// The log begins again with a state of the primary's, which may be older than what was here.
    pub fn begin_at(&mut self, at: Lsn) {
        self.acks.begin_at(at);
        self.fresh_at = Micros::ZERO;
    }

    /// An append was taken in: this log is the primary's up to `last`.
    pub fn heard(&mut self, append: &Append, last: Lsn, resend: Micros) {
        self.acks.heard(append, last);
        self.patience.heard(resend);
        self.their_committed = self.their_committed.max(append.committed);
        // All that was acknowledged at that moment is at or below what the append says is committed (PR-165).
        if self.acks.matched() >= append.committed {
            self.fresh_at = self.fresh_at.max(Micros(append.echo_us));
        }
    }

    /// Entries were not as they were sent. True if that is to be said: once in [`TELLS_GARBLED`] at most.
    pub fn tells_garbled(&mut self, now: Micros) -> bool {
        let tells = self.garbled_at.is_none_or(|at| now.since(at) >= TELLS_GARBLED);
        if tells {
            self.garbled_at = Some(now);
        }
        tells
    }

    /// What an append says beside its entries, up to where this log is the primary's.
    pub fn take_positions(&self, append: &Append, data: &mut Data) {
        let end = data.log.end().lsn;
        let matched = self.acks.matched().min(end);
        data.marks.commit(append.committed.min(matched), end);
        data.marks.secure(append.secured.min(matched));
        data.marks.raise_log_floor(append.log_floor);
    }

    /// When all that was acknowledged was surely committed here, by this replica's clock.
    pub fn fresh_at(&self) -> Micros {
        self.fresh_at
    }

    /// Up to where this log is known to be the primary's, if that is all of what is committed there. `kept`:
    /// how much of it a power loss leaves.
    pub fn has_committed(&self, kept: Lsn) -> Option<Lsn> {
        let here = self.acks.matched().min(kept);
        (!self.copy.is_open() && here >= self.their_committed).then_some(here)
    }

    /// What must hold after every event.
    pub fn validate(&self) -> Result<(), String> {
        self.acks.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, PartitionId, Position};

    fn append(committed: u64, echo_us: u64) -> Append {
        Append {
            partition: PartitionId(1),
            epoch: Epoch(1),
            from: Member::default(),
            number: 1,
            prev: Position::ZERO,
            prev_crc: 0,
            committed: Lsn(committed),
            secured: Lsn(0),
            log_floor: Lsn(0),
            sent_us: 0,
            echo_us,
            entries: bytes::Bytes::new(),
        }
    }

    #[test]
    fn pr_18_what_is_committed_is_here_only_as_far_as_it_is_kept() {
        let mut backup = Backup::new(Micros(1));
        backup.heard(&append(7, 0), Lsn(5), Micros(1));
        assert_eq!(backup.has_committed(Lsn::MAX), None);
        backup.heard(&append(7, 0), Lsn(9), Micros(1));
        assert_eq!(backup.has_committed(Lsn::MAX), Some(Lsn(9)));
        assert_eq!((backup.has_committed(Lsn(7)), backup.has_committed(Lsn(6))), (Some(Lsn(7)), None));
        backup.copy.begin(1);
        assert_eq!(backup.has_committed(Lsn::MAX), None, "half a copy is no state");
        assert_eq!(backup.validate(), Ok(()));
    }

    #[test]
    fn what_is_garbled_is_said_once_in_a_second() {
        let mut backup = Backup::new(Micros(1));
        let told = [5, 1_004, 1_005, 2_004].map(|ms| backup.tells_garbled(Micros::from_millis(ms)));
        assert_eq!(told, [true, false, true, false]);
    }

    #[test]
    fn pr_27_an_older_append_makes_nothing_fresher() {
        let mut backup = Backup::new(Micros(1));
        backup.heard(&append(7, 40), Lsn(7), Micros(1));
        backup.heard(&append(6, 30), Lsn(7), Micros(1));
        assert_eq!(backup.fresh_at(), Micros(40));
    }

    #[test]
    fn pr165_who_lacks_what_is_committed_is_no_fresher() {
        let mut backup = Backup::new(Micros(1));
        backup.heard(&append(7, 40), Lsn(5), Micros(1));
        assert_eq!(backup.fresh_at(), Micros::ZERO);
        backup.heard(&append(7, 40), Lsn(7), Micros(1));
        assert_eq!(backup.fresh_at(), Micros(40));
        backup.heard(&append(9, 50), Lsn(8), Micros(1));
        assert_eq!(backup.fresh_at(), Micros(40));
        backup.begin_at(Lsn(6));
        assert_eq!(backup.fresh_at(), Micros::ZERO, "files may be older than what was here");
    }
}

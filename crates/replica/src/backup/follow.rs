//! What a backup does with an append: it is checked and taken in.

use crate::data::Data;
use crate::features::call_maker::{CallMaker, Unmade};
use crate::log_state::Compared;
use crate::output::Output;
use crate::unfit::Unfit;
use types::Lsn;
use wire::Entry;
use wire::entry::EntryError;
use wire::peer::{Append, Refusal};

/// What became of one append.
pub(crate) enum AppendOutcome {
    /// This log is the primary's up to here.
    Yes(Lsn),
    Refused(Refusal),
    /// Not for this replica as it is now; nothing is answered.
    Ignored,
    /// The entries are not as they were sent; nothing is answered, and they come again.
    Garbled(EntryError),
    /// This log is another one from behind here on, in what is published: only a copy helps.
    Other(Lsn),
    /// This replica cannot go on.
    Broken(String),
    /// Nor can it, and its log is none the worse for it.
    Differs(String),
}

impl Data {
    fn mismatch(&self) -> AppendOutcome {
        AppendOutcome::Refused(Refusal::Mismatch(self.log.summary()))
    }

    /// Takes in what a primary has sent, in its configuration. `cold`: the engine is to execute it later.
    pub fn take_append(
        &mut self,
        append: &Append,
        cold: bool,
        maker: &mut CallMaker,
        out: &mut Vec<Output>,
    ) -> AppendOutcome {
        if let Err(taken) = self.check_prev(append) {
            return taken;
        }
        let entries = match Entry::all(append.entries.clone()) {
            Ok(entries) => entries,
            Err(EntryError::Kind(kind)) => {
                return AppendOutcome::Broken(format!("an entry has the unknown kind {kind}"));
            }
            Err(garbled) => return AppendOutcome::Garbled(garbled),
        };
        // What came alone is all that its bytes keep in memory.
        let holds = (entries.len() == 1).then(|| append.entries.len());
        let mut last = append.prev.lsn;
        for entry in entries {
            if entry.header().partition != append.partition || entry.lsn() != last.next() {
                return AppendOutcome::Ignored;
            }
            if entry.at().term.began() > append.epoch {
                // No primary has entries of terms to come: this replica could lead none of them any more
                // (R6).
                return AppendOutcome::Ignored;
            }
            last = entry.lsn();
            if let Err(taken) = self.take_entry((entry, holds), cold, maker, out) {
                return taken;
            }
        }
        AppendOutcome::Yes(last)
    }

    /// True if this log has the entry just before what an append brings.
    pub fn follows(&self, append: &Append) -> bool {
        self.check_prev(append).is_ok()
    }

    /// The entry just before must be the primary's (R2, R3, F02).
    fn check_prev(&self, append: &Append) -> Result<(), AppendOutcome> {
        if append.prev.lsn > self.log.end().lsn {
            return Err(self.mismatch());
        }
        if !self.rules().tails_are_truncated() {
            return Ok(());
        }
        let (prev, crc) = (append.prev, append.prev_crc);
        match self.log.compare(prev, crc) {
            Compared::Same => Ok(()),
            Compared::Other | Compared::Missing => Err(self.mismatch()),
            Compared::Damaged(here) => Err(AppendOutcome::Broken(format!(
                "R3: {prev} has checksum {here:08x} here and {crc:08x} at the primary"
            ))),
        }
    }

    /// Takes in an entry that is a part of so many bytes in memory, if that is known.
    fn take_entry(
        &mut self,
        (mut entry, mut holds): (Entry, Option<usize>),
        cold: bool,
        maker: &mut CallMaker,
        out: &mut Vec<Output>,
    ) -> Result<(), AppendOutcome> {
        if entry.lsn() <= self.log.end().lsn {
            if !self.rules().tails_are_truncated() {
                return Ok(());
            }
            match self.log.compare(entry.at(), entry.crc()) {
                Compared::Same => return Ok(()),
                Compared::Damaged(_) => {
                    let at = entry.at();
                    return Err(AppendOutcome::Broken(format!(
                        "R3: {at} came twice with different contents"
                    )));
                }
                Compared::Other | Compared::Missing => {
                    let common = entry.lsn().prev();
                    if !self.truncate(common, out) {
                        return Err(AppendOutcome::Other(common));
                    }
                }
            }
        }
        if entry.at().term < self.log.end().term {
            // No log goes back in its epochs: whoever says so is not the primary that it names.
            return Err(AppendOutcome::Ignored);
        }
        self.name_base(&entry, out);
        if !self.log.chains(&entry) {
            return Err(self.mismatch());
        }
        let (lsn, later) = (entry.lsn(), cold || self.lags());
        if entry.is_call_alone() {
            let made = if later { Err(Unmade::NotNow) } else { maker.make(self.engine.as_ref(), &entry) };
            entry = made.map_err(|unmade| match unmade {
                Unmade::NotNow => AppendOutcome::Refused(Refusal::Effects(lsn)),
                Unmade::Differs(reason) => AppendOutcome::Differs(reason),
                Unmade::Broken(reason) => AppendOutcome::Broken(reason),
            })?;
            holds = Some(entry.bytes().len());
        }
        self.append_of(entry, later, holds, out).map_err(|unfit| match unfit {
            // It is sent again.
            Unfit::Entry(_) | Unfit::Later(_) => AppendOutcome::Ignored,
            Unfit::Unstaged(_) => AppendOutcome::Refused(Refusal::Unstaged(lsn)),
            Unfit::Here(reason) => AppendOutcome::Broken(reason),
        })
    }
}

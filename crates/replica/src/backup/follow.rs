//! The backup's side: appends are checked, taken in and acknowledged; a missed primary is reported.

use crate::log_state::Compared;
use crate::output::Output;
use crate::replica::state::Unfit;
use crate::replica::{Ctx, Replica, Role};
use types::{Epoch, Lsn, Member, Micros, PartitionId, Position, Term};
use wire::entry::EntryError;
use wire::peer::{Ack, Append, AppendRefused, Fetch, Fetched, LogSummary, Refusal, Report, ReportRequest};
use wire::{Entry, PeerMessage};

/// The log of a replica that only a copy helps: nothing in common with any, and it does not reach back.
fn unusable() -> LogSummary {
    let first = Position::new(Term::ZERO, Lsn(1));
    LogSummary { base: first, end: first, history: Vec::new() }
}

/// What became of one append.
enum AppendOutcome {
    Yes,
    Refused(Refusal),
    /// Not for this replica as it is now; nothing is answered.
    Ignored,
    /// This replica cannot go on.
    Broken(String),
}

impl Replica {
    /// Entries from a primary.
    pub(crate) fn on_append(&mut self, ctx: &mut Ctx, append: Append) {
        match self.take_append(ctx, &append) {
            AppendOutcome::Yes => {}
            AppendOutcome::Ignored => {}
            AppendOutcome::Refused(why) => {
                let refused = AppendRefused {
                    partition: self.id,
                    epoch: append.epoch,
                    from: self.me,
                    number: append.number,
                    why,
                };
                ctx.out.push(Output::Send { to: append.from, message: PeerMessage::AppendRefused(refused) });
            }
            AppendOutcome::Broken(reason) => self.fail_with_log(ctx, reason),
        }
    }

    fn take_append(&mut self, ctx: &mut Ctx, append: &Append) -> AppendOutcome {
        let Some(record) = self.config.record() else { return AppendOutcome::Refused(Refusal::NotMine) };
        if append.epoch < record.epoch {
            let text = serde_json::to_string(record).expect("a record has only text keys");
            return AppendOutcome::Refused(Refusal::OldEpoch(text));
        }
        if append.epoch > record.epoch || append.from != record.primary || !record.holds(&self.me) {
            return AppendOutcome::Refused(Refusal::NotMine);
        }
        match &self.role {
            Role::Damaged(_) if self.awaits_copy(ctx) => {
                return AppendOutcome::Refused(Refusal::Mismatch(unusable()));
            }
            Role::Damaged(_) => return AppendOutcome::Refused(Refusal::Busy),
            _ if self.wants_all(ctx) => return AppendOutcome::Refused(Refusal::Mismatch(unusable())),
            role if role.is_whole_backup() => {}
            _ => return AppendOutcome::Ignored,
        }
        if let Err(taken) = self.check_prev(append) {
            return taken;
        }
        let entries = match Entry::all(append.entries.clone()) {
            Ok(entries) => entries,
            Err(EntryError::Kind(kind)) => {
                return AppendOutcome::Broken(format!("an entry has the unknown kind {kind}"));
            }
            Err(_) => return AppendOutcome::Ignored,
        };
        let mut last = append.prev.lsn;
        for entry in entries {
            if entry.header().partition != self.id || entry.lsn() != last.next() {
                return AppendOutcome::Ignored;
            }
            if entry.at().term.began() > append.epoch {
                // No primary has entries of terms to come: this replica could lead none of them any more (R6).
                return AppendOutcome::Ignored;
            }
            last = entry.lsn();
            if let Err(taken) = self.take_entry(ctx, entry) {
                return taken;
            }
        }
        self.transfer.failback.count_log(append.entries.len() as u64);
        self.note_append(ctx, append, last);
        AppendOutcome::Yes
    }

    /// The entry just before must be the primary's (R2, R3, F02).
    fn check_prev(&self, append: &Append) -> Result<(), AppendOutcome> {
        if append.prev.lsn > self.log.end().lsn {
            return Err(AppendOutcome::Refused(Refusal::Mismatch(self.log.summary())));
        }
        if !self.rules.tails_are_truncated() {
            return Ok(());
        }
        let (prev, crc) = (append.prev, append.prev_crc);
        match self.log.compare(prev, crc) {
            Compared::Same => Ok(()),
            Compared::Other | Compared::Missing => {
                Err(AppendOutcome::Refused(Refusal::Mismatch(self.log.summary())))
            }
            Compared::Damaged(here) => Err(AppendOutcome::Broken(format!(
                "R3: {prev} has checksum {here:08x} here and {crc:08x} at the primary"
            ))),
        }
    }

    fn take_entry(&mut self, ctx: &mut Ctx, entry: Entry) -> Result<(), AppendOutcome> {
        if entry.lsn() <= self.log.end().lsn {
            if !self.rules.tails_are_truncated() {
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
                    if !self.truncate(ctx, common) {
                        return Err(match self.start_over(ctx, common) {
                            true => AppendOutcome::Refused(Refusal::Mismatch(self.log.summary())),
                            // The same append comes again.
                            false => AppendOutcome::Ignored,
                        });
                    }
                }
            }
        }
        if entry.at().term < self.log.end().term {
            // No log goes back in its epochs: whoever says so is not the primary that it names.
            return Err(AppendOutcome::Ignored);
        }
        self.name_base(ctx, &entry);
        if !self.log.chains(&entry) {
            return Err(AppendOutcome::Refused(Refusal::Mismatch(self.log.summary())));
        }
        let lsn = entry.lsn();
        self.append(ctx, entry).map_err(|unfit| match unfit {
            // It is sent again.
            Unfit::Entry(_) | Unfit::Later(_) => AppendOutcome::Ignored,
            Unfit::Unstaged(_) => AppendOutcome::Refused(Refusal::Unstaged(lsn)),
            Unfit::Here(reason) => AppendOutcome::Broken(reason),
        })
    }

    fn note_append(&mut self, ctx: &mut Ctx, append: &Append, last: Lsn) {
        let end = self.log.end().lsn;
        let Some(backup) = self.role.backup_mut() else { return };
        backup.heard(append, last, ctx.settings.resend);
        let matched = backup.acks.matched().min(end);
        self.marks.commit(append.committed.min(matched), end);
        self.marks.secure(append.secured.min(matched));
        self.marks.raise_log_floor(append.log_floor);
        self.publish(ctx);
    }

    /// Acknowledges what has changed, if the primary waits for it or `all` is asked for.
    pub(crate) fn acknowledge(&mut self, ctx: &mut Ctx, all: bool) {
        let marks = self.watermarks();
        let (Some(record), Role::Backup(backup)) = (self.config.record(), &mut self.role) else { return };
        if backup.copy.is_open() {
            return;
        }
        let rank = record.rank(&self.me).unwrap_or(record.in_sync.len());
        let policies = record.next_policy.iter().chain([&record.policy]);
        let Some(marks) = backup.acks.tell(marks, (rank, policies), all) else { return };
        let (echo_us, number) = backup.acks.echo();
        let ack = Ack {
            partition: self.id,
            epoch: record.epoch,
            from: self.me,
            end: self.log.end(),
            marks,
            sent_us: ctx.now.mono.0,
            echo_us,
            number,
        };
        ctx.out.push(Output::Send { to: record.primary, message: PeerMessage::Ack(ack) });
    }

    /// True if this replica is damaged and catching up: only a copy helps. One that was damaged on the way, by a full disk
    /// for instance, takes none for a while, and one whose engine has no place takes none at all.
    pub(crate) fn awaits_copy(&self, ctx: &Ctx) -> bool {
        let catching_up = self.config.is_catching_up(&self.me);
        catching_up && self.role.damage().is_some_and(|damage| damage.takes_copy(ctx.now.mono))
    }

    /// A primary of a newer term asks for this replica's log (R6). Whoever knows of the seal has stopped answering the
    /// old primary already: the configuration came before the request (PR-74).
    pub(crate) fn on_report_request(&mut self, ctx: &mut Ctx, request: &ReportRequest) {
        let Some(record) = self.config.record() else { return };
        if record.primary == self.me {
            return self.report_to_departing(ctx, request);
        }
        if request.epoch != record.epoch || request.from != record.primary {
            return;
        }
        let (damaged, awaits_copy) = (self.is_damaged(), self.awaits_copy(ctx));
        if damaged && !awaits_copy && record.catching_up.contains(&self.me) {
            // The primary asks as long as it gets no answer.
            return;
        }
        let report = Report {
            partition: self.id,
            epoch: request.epoch,
            from: self.me,
            log: if awaits_copy || self.wants_all(ctx) { unusable() } else { self.log.summary() },
            marks: self.watermarks(),
            committed: self.marks.committed(),
            torn: self.log.is_torn() || damaged,
        };
        ctx.out.push(Output::Send { to: request.from, message: PeerMessage::Report(report) });
    }

    /// A new primary fetches what it lacks.
    pub(crate) fn on_fetch(&mut self, ctx: &mut Ctx, fetch: &Fetch) {
        let Some(record) = self.config.record() else { return };
        if fetch.epoch != record.epoch || fetch.from != record.primary {
            return;
        }
        let agrees = self.log.holds(fetch.after);
        // Damaged or lost files are no reason to keep to itself what a whole log has.
        let of_no_use = self.is_damaged() && !self.log.is_whole();
        if !agrees || of_no_use || fetch.after.lsn < self.log.base().lsn {
            return self.send_fetched(ctx, fetch.from, fetch.epoch, fetch.after, &[]);
        }
        if fetch.after.lsn >= self.log.tail().base().lsn {
            let run = self.log.tail().run(fetch.after.lsn.next(), ctx.settings.append_bytes);
            let entries: Vec<Entry> = run.filter(|entry| entry.lsn() <= fetch.to).cloned().collect();
            return self.send_fetched(ctx, fetch.from, fetch.epoch, fetch.after, &entries);
        }
        ctx.out.push(Output::ReadLog {
            partition: self.id,
            from: fetch.after.lsn.next(),
            max_bytes: ctx.settings.append_bytes,
            purpose: crate::output::ReadFor::Fetch(*fetch),
        });
    }

    /// What was read back for a new primary. What it cannot be given is answered too: it goes on without (R6).
    pub(crate) fn fetch_read(&mut self, ctx: &mut Ctx, fetch: &Fetch, entries: Result<Vec<Entry>, String>) {
        let after = fetch.after;
        let entries = match entries {
            Ok(entries) => entries.into_iter().filter(|entry| entry.lsn() <= fetch.to).collect(),
            Err(reason) => {
                // Below the base it was given up meanwhile, and above `durable` it may not be on the disk yet.
                if (self.log.base().lsn..self.log.durable()).contains(&after.lsn) {
                    self.fail_with_log(ctx, format!("R10: the log cannot be read behind {after}: {reason}"));
                }
                Vec::new()
            }
        };
        self.send_fetched(ctx, fetch.from, fetch.epoch, after, &entries);
    }

    fn send_fetched(&self, ctx: &mut Ctx, to: Member, epoch: Epoch, after: Position, entries: &[Entry]) {
        let mut bytes = bytes::BytesMut::new();
        for entry in entries {
            bytes.extend_from_slice(entry.bytes());
        }
        let fetched = Fetched { partition: self.id, epoch, from: self.me, after, entries: bytes.freeze() };
        ctx.out.push(Output::Send { to, message: PeerMessage::Fetched(fetched) });
    }

    /// If this in-sync backup misses its primary, what it has to say about it (R6, N6). A primary that has not named the
    /// partition yet and answers otherwise may not know yet that it leads: it is given as long as one on which commits rest.
    pub(crate) fn misses_primary(
        &mut self,
        ctx: &Ctx,
    ) -> Option<(Member, Micros, (PartitionId, Epoch, Position))> {
        let (id, end, me, since) = (self.id, self.log.end(), self.me, self.config.since());
        let record = self.config.record()?;
        let (primary, epoch) = (record.primary, record.epoch);
        if record.rank(&me).is_none_or(|rank| rank == 0) {
            return None;
        }
        let back_off = self.rules.losers_back_off();
        let now = ctx.now.mono;
        let heard = ctx.leases.heard_at(id, primary);
        let beginning =
            heard == Micros::ZERO && now.since(ctx.leases.answered_at(primary)) < ctx.settings.suspect;
        let patience = match record.policy.rests_on().is_primary() || beginning {
            true => ctx.settings.suspect_alone,
            false => ctx.settings.suspect,
        };
        let silent = now.since(heard.max(since));
        let misses = self.role.backup_mut()?;
        if silent < patience || !misses.patience.runs_out(now, back_off) {
            return None;
        }
        Some((primary, silent, (id, epoch, end)))
    }
}

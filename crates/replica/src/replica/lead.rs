//! A primary beside its log and its engine: what members are sent, and how far commits reach.

use crate::backup::fetch;
use crate::context::Ctx;
use crate::output::{Output, ReadFor};
use crate::replica::{Replica, Role};
use crate::sender::{Given, Sender};
use crate::transfer::failback::kept_for_absent;
use types::{EngineError, LogKind, Lsn, Member, Micros, PartitionRecord};
use wire::control::RecordText;
use wire::peer::{AppendRefused, Inform, Refusal};
use wire::{Entry, PeerMessage};

/// Who is to lead next says what it has, while writes wait for that.
pub(crate) fn ask_successor(replica: &mut Replica, ctx: &mut Ctx) {
    let asks = replica.leading_mut().and_then(|(primary, view)| primary.asks_successor(&view));
    if let Some((to, end)) = asks {
        replica.send(ctx, to, |sender| {
            sender.tell_positions(end);
            Ok(())
        });
    }
}

/// When a replica surely led.
fn led_at(replica: &Replica, ctx: &Ctx) -> Micros {
    replica.leading().map_or(Micros::ZERO, |(primary, view)| primary.led_at(&view, ctx))
}

/// Sends something to a member by a replica that surely led at `led_at`.
fn send_as_of<T>(
    replica: &mut Replica,
    ctx: &mut Ctx,
    (to, led_at): (Member, Micros),
    act: impl FnOnce(&mut Sender) -> Result<T, EngineError>,
) -> Option<T> {
    let (origin, serves, ships) =
        (replica.config.origin(replica.identity)?, replica.serves(), replica.data.ships_files());
    let mut sender = Sender {
        to,
        progress: replica.role.progress(&to)?,
        files: &mut replica.transfer.outgoing,
        engine: replica.data.engine.as_mut(),
        log: &replica.data.log,
        marks: &replica.data.marks,
        readers: &mut replica.readers,
        record: replica.config.record()?,
        origin,
        led_at,
        now: ctx.now.mono,
        settings: ctx.settings,
        ships,
        serves,
        names_position: replica.identity.rules.copies_name_their_position(),
        out: ctx.out,
    };
    act(&mut sender).map_err(|error| replica.fail(ctx, error)).ok()
}

impl Replica {
    /// Sends something to a member; nothing if this replica does not lead, or that is no member. What the
    /// engine cannot do ends this replica.
    pub(crate) fn send<T>(
        &mut self,
        ctx: &mut Ctx,
        to: Member,
        act: impl FnOnce(&mut Sender) -> Result<T, EngineError>,
    ) -> Option<T> {
        let led_at = led_at(self, ctx);
        send_as_of(self, ctx, (to, led_at), act)
    }

    /// Sends what is due to every member. Called after each batch of inputs, so that appends coalesce.
    pub(crate) fn ship(&mut self, ctx: &mut Ctx) {
        let Role::Leader(leader) = &self.role else { return };
        let begun = leader.promotion.marker().is_some();
        let (mut cached, mut next) = (None, leader.member_above(None));
        let led_at = led_at(self, ctx);
        while let Some(member) = next {
            send_as_of(self, ctx, (member, led_at), |sender| sender.go_on(begun, &mut cached));
            let Role::Leader(leader) = &self.role else { return };
            next = leader.member_above(Some(member));
        }
    }

    /// The log is short of room.
    pub(crate) fn offer_newer(&mut self, ctx: &mut Ctx) {
        self.config.note_no_room();
        let memory = self.data.log.kind() == LogKind::Memory;
        let Role::Leader(leader) = &self.role else { return };
        let members: Vec<Member> = leader.members.keys().copied().collect();
        for member in members {
            self.send(ctx, member, |sender| {
                let marks = sender.progress.marks;
                sender.offer_newer(if memory { marks.received } else { marks.durable });
                Ok(())
            });
        }
    }

    /// A member lacks something, or has taken something in.
    pub(crate) fn on_transfer(&mut self, ctx: &mut Ctx, message: &PeerMessage) {
        let (Some(term), Some(epoch)) =
            (self.role.term(), self.config.origin(self.identity).map(|origin| origin.epoch))
        else {
            return;
        };
        let given = match message {
            PeerMessage::TransferRequest(want) if want.epoch < term.began() || want.epoch > epoch => None,
            PeerMessage::TransferRequest(want) => self.send(ctx, want.from, |sender| {
                sender.on_transfer_request(want);
                Ok(Given::Nothing)
            }),
            PeerMessage::Installed(taken) => {
                self.send(ctx, taken.from, |sender| Ok(sender.on_installed(taken)))
            }
            PeerMessage::Copied(copied) => self.send(ctx, copied.from, |sender| sender.on_copied(copied)),
            _ => None,
        };
        if given == Some(Given::Log) {
            self.ship(ctx);
        }
    }

    /// Sends one piece, to one member after the other; to those that are needed first. Gives its length.
    pub(crate) fn send_piece(&mut self, ctx: &mut Ctx) -> usize {
        let needed = self.role.needed_members(&self.config);
        let waiting = if needed.is_empty() { self.role.wait_for_pieces() } else { needed };
        let Some(member) = self.transfer.outgoing.next_in_turn(&waiting) else { return 0 };
        self.send(ctx, member, |sender| sender.send_piece()).unwrap_or(0)
    }

    /// A member did not take an append.
    pub(crate) fn on_refused(&mut self, ctx: &mut Ctx, refused: AppendRefused) {
        let from = refused.from;
        match refused.why {
            Refusal::OldEpoch(text) => {
                if let Ok(record) = serde_json::from_str::<PartitionRecord>(&text) {
                    self.configure(ctx, record);
                }
            }
            Refusal::Mismatch(summary) => {
                self.send(ctx, from, |sender| sender.realign(refused.number, &summary));
            }
            Refusal::Unstaged(lsn) => self.on_unstaged(ctx, &refused, lsn),
            Refusal::Effects(lsn) => {
                let wants = |sender: &mut Sender| {
                    sender.wants_effects(refused.number, lsn);
                    Ok(())
                };
                self.send(ctx, from, wants);
            }
            Refusal::NotMine => {
                let Some(record) = self.config.record() else { return };
                let inform = Inform { partition: self.identity.id, record: RecordText::new(record) };
                ctx.out.push(Output::Send { to: from, message: PeerMessage::Inform(inform) });
                if let Some(progress) = self.role.progress(&from) {
                    progress.again();
                }
            }
            Refusal::Busy => {
                let counts = self.config.record().is_some_and(|record| record.in_sync.contains(&from));
                match self.role.progress(&from) {
                    Some(progress) if counts => progress.health.taint(),
                    // It is in no set that it would have to leave. Once it has room, it is sent what it lacks
                    // by then.
                    Some(progress) if progress.streams() => progress.finds_no_room(ctx.now.mono),
                    Some(progress) if progress.copies(refused.number) => progress.pause(ctx.now.mono),
                    _ => {}
                }
            }
        }
    }

    /// Entries came back from the log.
    pub(crate) fn on_log_read(
        &mut self,
        ctx: &mut Ctx,
        purpose: ReadFor,
        entries: Result<Vec<Entry>, String>,
    ) {
        let lags = self.role.lags(&self.data);
        match purpose {
            ReadFor::Ship(member) => drop(self.send(ctx, member, |sender| sender.log_read(entries))),
            ReadFor::Offer { to, at } => drop(self.send(ctx, to, |sender| sender.offer_read(at, entries))),
            ReadFor::Fetch(fetch) => {
                let (entries, fault) = fetch::read(&self.data, &fetch, entries);
                if let Some(fault) = fault {
                    self.fail(ctx, fault);
                }
                if let Some(origin) = self.config.origin(self.identity) {
                    fetch::send(origin, &fetch, &entries, ctx.out);
                }
            }
            ReadFor::Replay { from } => match self.data.slice_read(lags, from, entries) {
                Some(Ok(entries)) => self.replay_entries(ctx, &entries),
                Some(Err(fault)) => self.fail(ctx, fault),
                None => {}
            },
            ReadFor::Aside { from } => self.data.aside_read(ctx, from, entries),
            ReadFor::Scrub { from } => {
                let bounds = (self.data.log.base().lsn, self.data.log.end().lsn);
                self.features.scrub.log_read(bounds, from, entries);
            }
        }
    }

    /// Moves `committed` and `secured` on and releases what they cover.
    pub(crate) fn advance(&mut self, ctx: &mut Ctx) {
        let Some((primary, view)) = self.leading() else { return };
        let no_room = self.config.no_room();
        let kept_for_nobody = no_room && view.rules.full_logs_wait_for_nobody();
        let is_gone = |member: &Member| kept_for_nobody && primary.is_silent(&view, ctx, *member);
        let (secured, kept) = primary.bounds(&view, is_gone);
        let (log, keep_bytes) = (&self.data.log, ctx.settings.failback_keep_bytes);
        let end = log.end().lsn;
        let absent = match no_room {
            true => Lsn::MAX,
            false => kept_for_absent(view.record, end, log.bytes_above(end.prev()), keep_bytes),
        };
        let kept = kept.min(absent);
        self.data.marks.secure(secured.min(end));
        self.data.marks.raise_log_floor(kept);
        let Some((primary, view)) = self.leading() else { return };
        let point = primary.commit_point(&view, ctx);
        let Role::Leader(leader) = &self.role else { return };
        let reached = leader.held_at(ctx.now.mono, self.data.marks.committed(), point);
        let marker = leader.promotion.marker();
        if self.data.commit(marker, reached, (ctx.now.mono, ctx.settings.resend)) {
            ctx.out.push(Output::Checkpoint { partition: self.identity.id });
        }
        self.publish(ctx);
        let released = self.leading_mut().map_or(0, |(primary, view)| primary.release(&view, ctx));
        self.commits += released;
        if let Some((primary, view)) = self.leading_mut() {
            primary.serve_if_ready(&view, ctx);
        }
    }
}

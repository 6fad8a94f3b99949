//! The state on its way from a primary, beside its members and its log: who is sent what, and what is kept for it.

use crate::output::Origin;
use crate::primary::{Primary, View};
use crate::replica::{Ctx, Replica, Role};
use crate::transfer::offer::{Given, Sender, Shipping};
use types::{EngineError, LogKind, Lsn, Member, PinId};
use wire::PeerMessage;

impl Role {
    fn shippings(&self) -> impl Iterator<Item = (Member, &Shipping)> {
        let members = match self {
            Role::Leader(leader) => Some(&leader.members),
            _ => None,
        };
        let all = members.into_iter().flatten();
        all.filter_map(|(member, progress)| Some((*member, progress.files.as_deref()?)))
    }

    /// The files that are on their way to members.
    pub(crate) fn pins_sent(&self) -> impl Iterator<Item = PinId> {
        self.shippings().filter_map(|(_, shipping)| shipping.pin())
    }

    /// Those who wait for a piece of a file.
    pub(crate) fn wait_for_pieces(&self) -> Vec<Member> {
        self.shippings().filter(|(_, shipping)| shipping.is_wanted()).map(|(member, _)| member).collect()
    }
}

impl Replica {
    /// Does something about the state that a member is sent; nothing if this replica does not lead, or that is no member. What the
    /// engine cannot do ends this replica.
    pub(crate) fn send_state<T>(
        &mut self,
        ctx: &mut Ctx,
        to: Member,
        act: impl FnOnce(&mut Sender) -> Result<T, EngineError>,
    ) -> Option<T> {
        let epoch = self.config.record()?.epoch;
        let origin = Origin { partition: self.id, epoch, me: self.me };
        let on_disk = self.config.log_kind() == LogKind::Disk;
        let delivers = self.engine.ships_files() && on_disk && self.serves();
        let catching_up = self.config.is_catching_up(&to);
        let Role::Leader(leader) = &mut self.role else { return None };
        let mut sender = Sender {
            to,
            progress: leader.members.get_mut(&to)?,
            files: &mut self.transfer.outgoing,
            engine: self.engine.as_mut(),
            log: &self.log,
            readers: &mut self.readers,
            origin,
            now: ctx.now.mono,
            settings: ctx.settings,
            delivers,
            catching_up,
            names_position: self.rules.copies_name_their_position(),
            out: ctx.out,
        };
        act(&mut sender).map_err(|error| self.fail(ctx, error.to_string())).ok()
    }

    /// Begins to send a member the state itself.
    pub(crate) fn start_copy(&mut self, ctx: &mut Ctx, member: Member) {
        self.send_state(ctx, member, |sender| sender.start_copy());
    }

    /// The logs agree up to here. True if the member is offered files nevertheless, since it may lack less of those.
    pub(crate) fn offers_choice(&mut self, ctx: &mut Ctx, member: Member, agreed: Lsn) -> bool {
        let ships = self.engine.ships_files() && self.config.log_kind() == LogKind::Disk;
        let offers = self.send_state(ctx, member, |sender| {
            let offers = sender.files_may_be_less(agreed, ships);
            if offers {
                sender.offer_choice(agreed)?;
            }
            Ok(offers)
        });
        // After an error there is nothing to be sent any more.
        offers.unwrap_or(true)
    }

    /// The log is short of room.
    pub(crate) fn offer_newer(&mut self, ctx: &mut Ctx) {
        self.config.note_no_room();
        let memory = self.config.log_kind() == LogKind::Memory;
        let Role::Leader(leader) = &self.role else { return };
        let members: Vec<Member> = leader.members.keys().copied().collect();
        for member in members {
            self.send_state(ctx, member, |sender| {
                let marks = sender.progress.marks;
                sender.offer_newer(if memory { marks.received } else { marks.durable });
                Ok(())
            });
        }
    }

    /// A member lacks something, or has taken something in.
    pub(crate) fn on_transfer(&mut self, ctx: &mut Ctx, message: &PeerMessage) {
        let (Some(term), Some(epoch)) = (self.role.term(), self.origin().map(|origin| origin.epoch)) else {
            return;
        };
        let given = match message {
            PeerMessage::TransferRequest(want) if want.epoch < term.began() || want.epoch > epoch => None,
            PeerMessage::TransferRequest(want) => self.send_state(ctx, want.from, |sender| {
                sender.on_transfer_request(want);
                Ok(Given::Nothing)
            }),
            PeerMessage::Installed(taken) => {
                self.send_state(ctx, taken.from, |sender| Ok(sender.on_installed(taken)))
            }
            PeerMessage::Copied(copied) => {
                self.send_state(ctx, copied.from, |sender| sender.on_copied(copied))
            }
            _ => None,
        };
        if given == Some(Given::Log) {
            self.ship(ctx);
        }
    }

    /// Sends one piece, to one member after the other. Gives its length.
    pub(crate) fn send_piece(&mut self, ctx: &mut Ctx) -> usize {
        let waiting = self.role.wait_for_pieces();
        let Some(member) = self.transfer.outgoing.next_in_turn(&waiting) else { return 0 };
        self.send_state(ctx, member, |sender| sender.send_piece()).unwrap_or(0)
    }
}

impl Primary {
    /// The lowest LSN from which on a member that catches up needs the log, because of what it has, was sent or is being sent (R8, F14).
    pub(crate) fn held(&self, view: &View) -> Lsn {
        let needs = |member: &Member| {
            let progress = self.members.get(member)?;
            Some(progress.needs.max(self.met(view, member)))
        };
        view.record.catching_up.iter().filter_map(needs).min().unwrap_or(Lsn::MAX)
    }
}

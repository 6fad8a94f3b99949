//! Changes of the set beside the log: what became of proposals, and the entry of a policy.

use crate::context::Ctx;
use crate::primary::change::Next;
use crate::replica::Replica;
use types::PartitionRecord;
use wire::control::Proposed;

impl Replica {
    /// What became of a proposal.
    pub(crate) fn on_proposed(&mut self, ctx: &mut Ctx, proposed: &Proposed) {
        let Ok(record) = proposed.record.read::<PartitionRecord>() else { return };
        let known = self.config.record().map(|known| known.epoch);
        if Some(record.epoch) > known {
            return self.configure(ctx, record);
        }
        let now = ctx.now.mono;
        if let (false, Some(leader)) = (proposed.accepted, self.role.leader_mut()) {
            leader.membership.refused(now, proposed.proposal);
        }
    }

    /// Decides what should change next, and proposes it.
    pub(crate) fn reconsider(&mut self, ctx: &mut Ctx) {
        let Some((primary, view)) = self.leading_mut() else { return };
        let mut next = primary.next_change(&view, ctx);
        if matches!(next, Next::Joins) {
            self.data.secure_with_joiner();
            let Some((primary, view)) = self.leading_mut() else { return };
            next = primary.next_beside_joins(&view, ctx);
        }
        if let Next::PolicyEntry(policy) = next
            && let Some(lsn) = self.write_own(ctx, |writing| writing.log_policy(&policy))
            && let Some(leader) = self.role.leader_mut()
        {
            leader.membership.note_policy_entry(lsn, policy);
        }
    }
}

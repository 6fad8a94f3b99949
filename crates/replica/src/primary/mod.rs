//! What a primary does in its term.
//!
//! Parts, each of which knows nothing of the others:
//!
//! | file | what |
//! | --- | --- |
//! | `promotion` | the phases of a term, and who has reported what |
//! | `membership` | what is under way at the set: a proposal, who joins, a hand-over |
//! | `hops` | who sends the log to whom |
//! | `reply_queue` | replies that wait, and what each waits for |
//! | `row_turns` | whose transaction changes a row next |
//!
//! What needs several of them, or the log and the engine:
//!
//! | file | what |
//! | --- | --- |
//! | `promote` | R6: whom to ask, whose log is the one to go on with, when to serve |
//! | `change` | what should change in the set: evictions, joins, policies, hand-overs |
//! | `lead` | what members acknowledge, which replies go |
//! | `commit` | how far `committed` and `secured` reach, on whose promises the lease rests |

pub(crate) mod change;
pub(crate) mod commit;
pub(crate) mod hops;
pub(crate) mod lead;
pub(crate) mod membership;
pub(crate) mod promote;
pub(crate) mod promotion;
pub(crate) mod reply_queue;
pub(crate) mod row_turns;

use crate::context::Identity;
use crate::data::Data;
use crate::features::pause::Pause;
use crate::primary::hops::next_hops;
use crate::primary::membership::Membership;
use crate::primary::promotion::{Own, Promotion};
use crate::primary::reply_queue::ReplyQueue;
use crate::primary::row_turns::RowTurns;
use crate::sender::progress::Progress;
use std::collections::BTreeMap;
use types::{Lsn, Member, Micros, PartitionId, PartitionRecord, Position, Rules, Term, Watermarks};

/// What a primary keeps beside the log, for one term.
pub(crate) struct Primary {
    /// That of its entries.
    pub(crate) term: Term,
    pub(crate) promotion: Promotion,
    pub(crate) membership: Membership,
    pub(crate) members: BTreeMap<Member, Progress>,
    /// The newest append that went to anyone who is no member any more (PR-108).
    numbered: u64,
    pub(crate) replies: ReplyQueue,
    pub(crate) turns: RowTurns,
    /// When members were last told of the positions, and of which `committed`.
    pub(crate) told: (Micros, Lsn),
    pub(crate) sessions_checked: Micros,
    /// `committed` is held back, or was a moment ago.
    pub(crate) pause: Pause,
}

/// What a primary looks at beside its own parts.
pub(crate) struct View<'a> {
    pub me: Member,
    pub id: PartitionId,
    pub record: &'a PartitionRecord,
    pub rules: Rules,
    /// This replica's own watermarks: `received` is the end of the log.
    pub marks: Watermarks,
    pub committed: Lsn,
    pub secured: Lsn,
    pub published: Lsn,
    /// Where the log ends.
    pub end: Position,
    /// The log's end was torn, and what that may have taken is not here again (PR-18).
    pub torn: bool,
}

impl<'a> View<'a> {
    pub fn new(identity: Identity, record: &'a PartitionRecord, data: &Data) -> View<'a> {
        View {
            me: identity.me,
            id: identity.id,
            record,
            rules: identity.rules,
            marks: data.watermarks(),
            committed: data.marks.committed(),
            secured: data.marks.secured(),
            published: data.engine.published().lsn,
            end: data.log.end(),
            torn: data.log.is_torn(),
        }
    }

    /// What its own report would say.
    pub fn own(&self) -> Own {
        Own { me: self.me, end: self.end, torn: self.torn }
    }
}

impl Primary {
    /// The lowest LSN above which some member that catches up still needs the log, to go on from what it has
    /// or from the copy that it was sent or is being sent (R8, F14).
    pub fn held(&self, view: &View) -> Lsn {
        let needs = |member: &Member| {
            let progress = self.members.get(member)?;
            Some(progress.needs.max(self.met(view, member)))
        };
        view.record.catching_up.iter().filter_map(needs).min().unwrap_or(Lsn::MAX)
    }

    /// A term begins.
    pub fn begin(now: Micros, record: &PartitionRecord, promotion: Promotion) -> Primary {
        Primary {
            term: record.term,
            promotion,
            membership: Membership::default(),
            members: next_hops(record, &record.primary)
                .map(|member| (*member, Progress::new(now, 0)))
                .collect(),
            numbered: 0,
            replies: ReplyQueue::default(),
            turns: RowTurns::default(),
            told: (now, Lsn::ZERO),
            sessions_checked: now,
            pause: Pause::default(),
        }
    }

    /// How far `committed` may go of what the policy allows: a pause holds it while the partition is served.
    /// A hand-over is not waited with.
    pub fn held_at(&self, now: Micros, committed: Lsn, point: Lsn) -> Lsn {
        match self.takes_requests() {
            true => self.pause.bound(now, committed, point),
            false => point,
        }
    }

    /// True if clients' requests are served, and not held back by a hand-over.
    pub fn takes_requests(&self) -> bool {
        self.promotion.serves() && !self.membership.holds_writes()
    }

    /// What must hold of the parts, and of one beside another.
    pub fn validate(&self, record: &PartitionRecord) -> Result<(), String> {
        self.promotion.validate()?;
        self.membership.validate(record)?;
        self.replies.validate()?;
        self.turns.validate()?;
        self.members.values().try_for_each(|progress| progress.validate())?;
        if self.membership.holds_writes() && !self.promotion.serves() {
            return Err("PR-02: it hands over what it does not serve".into());
        }
        Ok(())
    }
}

//! Turns at rows ([`RowTurns`](crate::primary::row_turns::RowTurns)) at a primary: who asks, and what passes
//! them on.

use crate::answer::{AckCondition, Answer};
use crate::context::Ctx;
use crate::output::ClientRef;
use crate::primary::row_turns::{Answered, Question, Row, RowTurns};
use crate::replica::{Replica, Role};
use types::{Lsn, Micros, TableId};
use wire::row_turn::MAX_TURN_WAIT_MS;
use wire::{Body, Op, Request, RowOp, Status, TurnAnswer, TurnOp};

/// The turns of a primary, which are told where its log ends.
fn turns_of(replica: &mut Replica) -> Option<&mut RowTurns> {
    let end = replica.data.log.end().lsn;
    let turns = &mut replica.role.leader_mut()?.turns;
    turns.log_ends_at(end);
    Some(turns)
}

/// [`Op::Turn`]. None: it is answered already, or will be.
pub(crate) fn ask(
    replica: &mut Replica,
    ctx: &mut Ctx,
    (to, request): (ClientRef, &Request),
    asked: &TurnOp,
) -> Option<Answer> {
    let now = ctx.now.mono;
    let Some(turns) = turns_of(replica) else { return Some(Answer::only(Status::NotPrimary)) };
    match asked {
        TurnOp::Ask { who, key, wait_ms } => {
            let most = u64::from((*wait_ms).min(MAX_TURN_WAIT_MS));
            let wait = match request.deadline_ms {
                0 => most,
                left => left.min(most),
            };
            let row = (request.table, key.clone());
            let asked = Question { who: *who, row, wait: Micros::from_millis(wait) };
            let answered = turns.ask(now, (to, request.clone()), asked);
            give(replica, ctx, answered);
            None
        }
        TurnOp::Release { who } => {
            let passed = turns.release(now, *who);
            give(replica, ctx, passed);
            Some(Answer::new(Status::Ok, Body::Turn(TurnAnswer::Released)))
        }
    }
}

/// A write was done, by the entry at this LSN: the turns at its rows are passed on. Whoever has the next one
/// is told when the write is committed, and then reads it (PR-377). A write that is asked for again is
/// answered with its entry of before, and passes on nothing that began behind that (PR-410).
pub(crate) fn pass(replica: &mut Replica, ctx: &mut Ctx, request: &Request, at: Lsn) {
    let now = ctx.now.mono;
    let at = if replica.identity.rules.repeats_pass_nothing() { at } else { Lsn::MAX };
    let Some(turns) = turns_of(replica).filter(|turns| !turns.is_empty()) else { return };
    // Who keeps a row as it is may have more to do with it.
    let rows = |table: TableId, ops: &[RowOp]| -> Vec<Row> {
        let changed = ops.iter().filter(|op| !matches!(op, RowOp::Keep { .. }));
        changed.map(|op| (table, op.key().clone())).collect()
    };
    let written: Vec<Row> = match &request.op {
        Op::Write { ops, .. } => rows(request.table, ops),
        Op::Transact { parts, .. } => parts.iter().flat_map(|part| rows(part.table, &part.ops)).collect(),
        _ => return,
    };
    let passed = turns.written(now, at, written.iter());
    give(replica, ctx, passed);
}

/// Time has passed.
pub(crate) fn tick(replica: &mut Replica, ctx: &mut Ctx) {
    let (now, ends) = (ctx.now.mono, replica.identity.rules.silent_turns_end());
    let over = turns_of(replica).map(|turns| {
        let mut over = turns.end_waits(now);
        if ends {
            over.extend(turns.end_silent(now));
        }
        over
    });
    give(replica, ctx, over.unwrap_or_default());
}

/// A client's connection has ended.
pub(crate) fn client_gone(replica: &mut Replica, ctx: &mut Ctx, connection: u64) {
    let now = ctx.now.mono;
    let passed = turns_of(replica).map(|turns| turns.gone(now, connection));
    give(replica, ctx, passed.unwrap_or_default());
}

/// True if somebody has turns here, or waits for one, who has asked over this connection.
pub(crate) fn are_of(replica: &Replica, connection: u64) -> bool {
    matches!(&replica.role, Role::Leader(leader) if leader.turns.are_of(connection))
}

/// The term ends, and all turns with it: who waits asks the next primary.
pub(crate) fn end_turns(replica: &mut Replica, ctx: &mut Ctx) {
    let waiting = replica.role.leader_mut().map(|leader| leader.turns.drain());
    for (to, request) in waiting.unwrap_or_default() {
        replica.give(ctx, to, &request, Answer::only(Status::NotPrimary));
    }
}

/// Answers. A turn is told when all is committed that was executed when it came: reads show what is committed
/// (PR-377). The answer names where the log ended then.
fn give(replica: &mut Replica, ctx: &mut Ctx, answered: Vec<Answered>) {
    let (end, waits) = (replica.data.log.end().lsn, replica.identity.rules.turns_wait_for_commits());
    for Answered { to, request, answer } in answered {
        let answer = match answer {
            Some(granted @ TurnAnswer::Granted { .. }) => {
                let answer = Answer::new(Status::Ok, Body::Turn(granted)).read_at(end);
                if waits { answer.covered(end, AckCondition::Entry) } else { answer }
            }
            Some(other) => Answer::new(Status::Ok, Body::Turn(other)),
            None => Answer::not_yet("the same was asked again"),
        };
        replica.give(ctx, to, &request, answer);
    }
}

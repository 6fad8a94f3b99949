//! Turns at rows ([`RowTurns`](crate::primary::row_turns::RowTurns)) at a primary: who asks, and what passes
//! them on.

use crate::answer::{AckCondition, Answer};
use crate::context::Ctx;
use crate::output::ClientRef;
use crate::primary::row_turns::{Answered, Question, Row};
use crate::replica::{Replica, Role};
use types::{Micros, TableId};
use wire::row_turn::MAX_TURN_WAIT_MS;
use wire::{Body, Op, Request, RowOp, Status, TurnAnswer, TurnOp};

/// [`Op::Turn`]. None: it is answered already, or will be.
pub(crate) fn ask(
    replica: &mut Replica,
    ctx: &mut Ctx,
    (to, request): (ClientRef, &Request),
    asked: &TurnOp,
) -> Option<Answer> {
    let now = ctx.now.mono;
    let Some(leader) = replica.role.leader_mut() else { return Some(Answer::only(Status::NotPrimary)) };
    match asked {
        TurnOp::Ask { who, key, wait_ms } => {
            let most = u64::from((*wait_ms).min(MAX_TURN_WAIT_MS));
            let wait = match request.deadline_ms {
                0 => most,
                left => left.min(most),
            };
            let row = (request.table, key.clone());
            let asked = Question { who: *who, row, wait: Micros::from_millis(wait) };
            let answered = leader.turns.ask(now, (to, request.clone()), asked);
            give(replica, ctx, answered);
            None
        }
        TurnOp::Release { who } => {
            let passed = leader.turns.release(now, *who);
            give(replica, ctx, passed);
            Some(Answer::new(Status::Ok, Body::Turn(TurnAnswer::Released)))
        }
    }
}

/// A write was done: the turns at its rows are passed on. Whoever has the next one is told when the write is
/// committed, and then reads it (PR-377).
pub(crate) fn pass(replica: &mut Replica, ctx: &mut Ctx, request: &Request) {
    let now = ctx.now.mono;
    let Some(leader) = replica.role.leader_mut().filter(|leader| !leader.turns.is_empty()) else { return };
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
    let passed = leader.turns.written(now, written.iter());
    give(replica, ctx, passed);
}

/// Time has passed.
pub(crate) fn tick(replica: &mut Replica, ctx: &mut Ctx) {
    let now = ctx.now.mono;
    let over = replica.role.leader_mut().map(|leader| leader.turns.expire(now));
    give(replica, ctx, over.unwrap_or_default());
}

/// A client's connection has ended.
pub(crate) fn client_gone(replica: &mut Replica, ctx: &mut Ctx, connection: u64) {
    let now = ctx.now.mono;
    let passed = replica.role.leader_mut().map(|leader| leader.turns.gone(now, connection));
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
/// (PR-377).
fn give(replica: &mut Replica, ctx: &mut Ctx, answered: Vec<Answered>) {
    let end = replica.data.log.end().lsn;
    for Answered { to, request, answer } in answered {
        let answer = match answer {
            Some(granted @ TurnAnswer::Granted { .. }) => {
                Answer::new(Status::Ok, Body::Turn(granted)).covered(end, AckCondition::Entry)
            }
            Some(other) => Answer::new(Status::Ok, Body::Turn(other)),
            None => Answer::not_yet("the same was asked again"),
        };
        replica.give(ctx, to, &request, answer);
    }
}

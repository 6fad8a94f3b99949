//! Calls of procedures ([`Calls`](crate::features::procedure::Calls)) at a primary: their turns.

use crate::answer::Answer;
use crate::context::Ctx;
use crate::features::procedure::SERVED_PER_TURN;
use crate::output::ClientRef;
use crate::replica::Replica;
use crate::serve::large::LookUps;
use types::EngineError;
use wire::{Request, Status};

/// Goes on with the call that is under way for a slice, and serves who waits when it has ended. True if it
/// has not.
pub(crate) fn go_on(replica: &mut Replica, ctx: &mut Ctx) -> bool {
    if let Some(call) = replica.features.calls.take() {
        let term = replica.role.term();
        let changed = || Status::NotYet("the primary changed while the call was under way".into());
        let late = call.asked.is_late(ctx.now.mono);
        let refused = late.or_else(|| replica.not_here(&call.asked.request, false));
        let refused = refused.or_else(|| (term != Some(call.term)).then(changed));
        let (to, request) = (call.asked.to, call.asked.request.clone());
        let answer = match (refused, replica.writing(ctx)) {
            (Some(status), _) => Ok(Some(Answer::only(status))),
            (None, Some(mut writing)) => writing.go_on(call),
            (None, None) => Ok(Some(Answer::only(Status::NotPrimary))),
        };
        let goes_on = matches!(answer, Ok(None));
        replica.answer(ctx, to, &request, answer);
        if goes_on {
            return true;
        }
    }
    for _ in 0..SERVED_PER_TURN {
        let Some(asked) = replica.features.calls.next_waiting() else { return false };
        let late = asked.is_late(ctx.now.mono);
        let (to, request) = asked.into_request(ctx.now.mono);
        let answer = match late.or_else(|| replica.not_here(&request, false)) {
            Some(status) => Ok(Some(Answer::only(status))),
            None => admit(replica, ctx, to, &request, false),
        };
        replica.answer(ctx, to, &request, answer);
    }
    false
}

/// Handles a request, unless it has to wait with the large writes.
pub(crate) fn admit(
    replica: &mut Replica,
    ctx: &mut Ctx,
    to: ClientRef,
    request: &Request,
    any: bool,
) -> Result<Option<Answer>, EngineError> {
    let looks = replica.config.record().map(|record| {
        let leading = (record, replica.role.term());
        LookUps::new(&mut replica.features, replica.data.engine.as_mut(), leading, ctx.settings)
    });
    match replica.large.takes(request, looks)? {
        true => Ok(replica.large.push(to, request, ctx.now.mono)),
        false => replica.handle(ctx, to, request, any),
    }
}

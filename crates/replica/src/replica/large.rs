//! Large writes ([`LargeWrites`](crate::serve::large::LargeWrites)) at a primary: their turns.

use crate::answer::Answer;
use crate::context::Ctx;
use crate::replica::Replica;
use crate::serve::large::{LookUps, Step};
use wire::Status;

impl Replica {
    /// Reads more rows of the large write that came first, or does it if all are read.
    pub(crate) fn go_on_with_large(&mut self, ctx: &mut Ctx) {
        // No write comes between two slices of a call (PR-190).
        if self.features.calls.are_pending() {
            return;
        }
        let Some(mut large) = self.large.next() else { return };
        let refused = large.is_late(ctx.now.mono).or_else(|| self.not_here(large.request(), false));
        let step = match (refused, self.config.record()) {
            (Some(status), _) => Err(Ok(status)),
            (None, None) => Err(Ok(Status::NotPrimary)),
            (None, Some(record)) => {
                let leading = (record, self.role.term());
                let engine = self.data.engine.as_mut();
                large.go_on(LookUps::new(&mut self.features, engine, leading, ctx.settings)).map_err(Err)
            }
        };
        match step {
            Ok(Step::More) => return self.large.put_back(large),
            Ok(Step::Ready) => {
                let (to, request) = large.into_request(ctx.now.mono);
                let answer = self.handle(ctx, to, &request, false);
                self.answer(ctx, to, &request, answer);
            }
            Err(why) => {
                let (to, request) = large.into_request(ctx.now.mono);
                let answer = why.map(|status| Some(Answer::only(status)));
                self.answer(ctx, to, &request, answer);
            }
        }
        self.data.engine.end_read_ahead();
    }
}

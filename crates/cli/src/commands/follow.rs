//! Progress of what the cluster does by itself: shown until nothing is left to do.

use crate::connect::Context;
use crate::interrupt;
use crate::out::note;
use client::Map;
use indicatif::{ProgressBar, ProgressStyle};
use ops::{Failure, Status};
use std::io::{IsTerminal, stderr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks at the cluster map.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How far something is.
pub(super) struct Steps {
    /// 0: done.
    pub(super) left: usize,
    /// In words.
    pub(super) says: String,
}

/// Shows progress until nothing is left. Gives up when nothing has changed for the usual time; what was begun
/// goes on.
pub(super) fn follow(
    context: &mut Context,
    what: &str,
    steps: impl Fn(&Map) -> Steps,
) -> Result<(), Failure> {
    let stop = interrupt::stop_flag();
    let bar = bar(what);
    let (mut said, mut changed, mut most) = (String::new(), Instant::now(), 0);
    let patience = context.global.timeout;
    loop {
        let now = steps(context.cluster_map()?);
        if now.left == 0 {
            break;
        }
        if now.says != said {
            (said, changed, most) = (now.says, Instant::now(), most.max(now.left));
            match &bar {
                Some(bar) => {
                    bar.set_length(most as u64);
                    bar.set_position((most - now.left) as u64);
                    bar.set_message(said.clone());
                }
                None => note(format!("{what}: {said}")),
            }
        }
        let why = match () {
            () if stop.load(Ordering::Relaxed) => "interrupted".to_string(),
            () if changed.elapsed() >= patience => {
                format!("nothing changed for {:.0} s (--timeout)", patience.as_secs_f64())
            }
            () => {
                let _ = context.client()?.poll(POLL_INTERVAL)?;
                continue;
            }
        };
        return Err(Failure::new(
            Status::Unreachable,
            format!(
                "{what}: {said}; {why}. It goes on by itself; `understudy status` shows what it waits for"
            ),
        ));
    }
    bar.into_iter().for_each(|bar| bar.finish_and_clear());
    Ok(())
}

/// A bar where a person looks; elsewhere a line is printed for each change.
fn bar(what: &str) -> Option<ProgressBar> {
    if !stderr().is_terminal() {
        return None;
    }
    let shape = "{prefix} [{bar:30}] {msg}";
    let style = ProgressStyle::with_template(shape).expect("the shape is right").progress_chars("=> ");
    let bar = ProgressBar::new(1).with_style(style);
    bar.set_prefix(what.to_string());
    Some(bar)
}

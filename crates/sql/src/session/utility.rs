//! Statements on the session and its parameters, and EXPLAIN.

use super::SqlSession;
use crate::engine::Engine;
use crate::explain;
use crate::plan::Work;
use pg::{Failure, Outcome, Rows};
use types::data::Value;

impl SqlSession {
    /// Carries such a statement out.
    pub(super) fn utility(&mut self, work: &Work) -> Result<Outcome, Failure> {
        let done = |tag: &str| Ok(Outcome::Done(tag.into()));
        match work {
            Work::Set(assignments) | Work::SetLocal(assignments) => {
                let local = matches!(work, Work::SetLocal(_));
                if local && self.open.is_none() {
                    self.warn("25P01", "SET LOCAL can only be used in transaction blocks");
                    return done("SET");
                }
                let mut told = Vec::new();
                for (name, value) in assignments {
                    told.extend(match value {
                        Some(value) => self.settings.change_for(name, value, local)?,
                        None => self.settings.reset(name)?,
                    });
                }
                self.listed.rename(&self.settings.get("application_name")?);
                Ok(Outcome::Set("SET".into(), told))
            }
            Work::SetSession(modes) => {
                if let Some(isolation) = modes.isolation {
                    self.settings.change("default_transaction_isolation", isolation.name())?;
                }
                if let Some(read_only) = modes.read_only {
                    let truth = if read_only { "on" } else { "off" };
                    let told = self.settings.change("default_transaction_read_only", truth)?;
                    return Ok(Outcome::Set("SET".into(), told));
                }
                done("SET")
            }
            Work::Reset(None, tag) => {
                self.settings.reset_all();
                match *tag {
                    "DISCARD ALL" if self.discard() => Ok(Outcome::Forget(None, (*tag).into())),
                    tag => done(tag),
                }
            }
            Work::Fetch { .. } | Work::Close(_) | Work::Prepare { .. } => self.named(work),
            Work::Deallocate(name) if self.forget(name.as_ref()) => done("DEALLOCATE"),
            Work::Deallocate(name) => {
                let tag = if name.is_some() { "DEALLOCATE" } else { "DEALLOCATE ALL" };
                Ok(Outcome::Forget(name.clone(), tag.into()))
            }
            Work::Reset(Some(name), tag) => Ok(Outcome::Set((*tag).into(), self.settings.reset(name)?)),
            Work::Explain(explained) => {
                let rows = explain::explain(&self.evaluator.handle, explained, &Engine::open()?)?;
                Ok(Outcome::Rows("EXPLAIN", Rows::of(rows)))
            }
            Work::Show(name) => {
                let value = match (name.as_str(), &self.open) {
                    ("transaction_isolation", Some(open)) => open.isolation.name().to_string(),
                    ("transaction_isolation", None) => self.settings.isolation().name().to_string(),
                    ("transaction_read_only", open) => {
                        let only = open.as_ref().map_or(self.settings.read_only(), |open| open.read_only);
                        (if only { "on" } else { "off" }).to_string()
                    }
                    _ => self.settings.get(name)?,
                };
                Ok(Outcome::Rows("SHOW", Rows::of(vec![vec![Value::Text(value)]])))
            }
            _ => unreachable!("handled by the caller"),
        }
    }
}

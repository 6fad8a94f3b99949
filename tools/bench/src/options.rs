//! What all benches have in common: how long, how often, which lines, where files may lie.

use crate::error::{BenchError, During};
use crate::generate::Workload;
use crate::subject::RoundPlan;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Options of every bench.
#[derive(Clone, Debug)]
pub struct Common {
    /// `--only NAME`: the lines wanted; a name also stands for those that begin with it. Empty: all.
    pub only: Vec<String>,
    /// `--seconds S`: length of one round.
    pub seconds: f64,
    /// `--rounds N`: rounds of each side. Fewer than five make a weak ratio.
    pub rounds: u32,
    /// `--dir DIR`: where temporary files go. Its disk is part of what is measured. `None`: the system's
    /// temporary folder.
    pub dir: Option<PathBuf>,
    /// `--plot DIR`: also draw the lines as an SVG file there.
    pub plot: Option<PathBuf>,
    /// `--seed N`: decides keys and values.
    pub seed: u64,
    /// Once true, the bench ends before its next round and stops what it started.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for Common {
    fn default() -> Common {
        Common { only: Vec::new(), seconds: 3.0, rounds: 5, dir: None, plot: None, seed: 1, stop: None }
    }
}

/// How large a load is.
#[derive(Clone, Debug)]
pub struct LoadSize {
    /// `--records N`.
    pub records: u64,
    /// `--value-bytes N`.
    pub value_bytes: usize,
    /// `--clients N`: closed-loop clients on either side.
    pub clients: u32,
    /// `--partitions N` of each table of ours.
    pub partitions: u32,
}

impl Default for LoadSize {
    fn default() -> LoadSize {
        LoadSize { records: 10_000, value_bytes: 1_024, clients: 10, partitions: 6 }
    }
}

impl LoadSize {
    /// Refuses a load of nothing.
    pub fn check(&self) -> Result<(), BenchError> {
        if self.records == 0 || self.clients == 0 || self.partitions == 0 {
            return Err(BenchError::Usage("records, clients and partitions are at least 1".into()));
        }
        Ok(())
    }

    /// The workload of this size, with keys all equally likely.
    pub fn workload(&self, update_percent: u8, seed: u64) -> Workload {
        let (records, value_bytes) = (self.records, self.value_bytes);
        Workload { records, value_bytes, update_percent, seed, ..Workload::default() }
    }
}

impl Common {
    /// True if the line of this name is wanted.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    /// Ends the bench if somebody asked for it.
    pub fn goes_on(&self) -> Result<(), BenchError> {
        let stop = self.stop.as_ref();
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) { Err(BenchError::Stopped) } else { Ok(()) }
    }

    /// True if any of these lines is wanted.
    pub fn wants_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.wants(name))
    }

    /// Checks the options, and that `only` names something among `names`.
    pub fn check(&self, names: &[&str]) -> Result<(), BenchError> {
        let usage = |sentence: String| Err(BenchError::Usage(sentence));
        if !(self.seconds.is_finite() && self.seconds > 0.0 && self.seconds <= 3_600.0) {
            return usage(format!(
                "a round takes more than 0 and at most 3600 seconds, not {}",
                self.seconds
            ));
        }
        if self.rounds == 0 {
            return usage("at least one round is needed".into());
        }
        for only in &self.only {
            // Some lines go on behind the name that is known here, with what varies.
            if !names.iter().any(|name| name.starts_with(only.as_str()) || only.starts_with(name)) {
                return usage(format!("there is no line '{only}'; choose from {}", names.join(", ")));
            }
        }
        Ok(())
    }

    /// How often and how long. The warm-up is as long as a round, but at most two seconds.
    pub fn plan(&self) -> RoundPlan {
        let time = Duration::from_secs_f64(self.seconds);
        RoundPlan {
            rounds: self.rounds,
            time,
            warm_up: time.min(Duration::from_secs(2)),
            stop: self.stop.clone(),
        }
    }

    /// Where temporary files go.
    pub fn base_dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// A new folder that is removed when the value is dropped.
    pub fn folder(&self, what: &str) -> Result<TempDir, BenchError> {
        folder_in(&self.base_dir(), what)
    }
}

/// A new folder below `base` that is removed when the value is dropped.
pub(crate) fn folder_in(base: &Path, what: &str) -> Result<TempDir, BenchError> {
    let made = tempfile::Builder::new().prefix(&format!("understudy-bench-{what}-")).tempdir_in(base);
    made.during(&format!("a temporary folder in {} cannot be made", base.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selects_by_name_or_beginning() {
        let common = Common { only: vec!["waiting".into()], ..Common::default() };
        assert!(common.wants("waiting-10") && common.wants("waiting-16"));
        assert!(!common.wants("outstanding-64"));
        assert!(common.check(&["outstanding-64", "waiting-10"]).is_ok());
        assert!(Common::default().wants("anything"));
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_a_sentence() {
        let refused = |common: Common| common.check(&["a", "b"]).expect_err("refused").to_string();
        let only = Common { only: vec!["x".into()], ..Common::default() };
        assert_eq!(refused(only), "there is no line 'x'; choose from a, b");
        assert!(refused(Common { seconds: f64::NAN, ..Common::default() }).contains("seconds"));
        assert!(refused(Common { rounds: 0, ..Common::default() }).contains("round"));
    }
}

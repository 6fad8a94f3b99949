//! What a process tells the controllers until they have surely heard it.

use types::PartitionId;
use types::config::TailReport;
use wire::control::Served;

/// A failover that was led is told with every so many reports.
const EVERY: u32 = 8;
/// And no longer than for so many.
const UNTIL: u32 = 160;

/// What is to be told.
#[derive(Debug, Default)]
pub struct Reports {
    /// Partitions that are said to be damaged.
    damaged: Vec<PartitionId>,
    /// Tails on the disk.
    tails: Vec<TailReport>,
    /// Failovers that were led, with how often a report came by since.
    served: Vec<(Served, u32)>,
}

impl Reports {
    /// Those of a process that starts, with these tails on its disk.
    pub fn new(tails: Vec<TailReport>) -> Reports {
        Reports { tails, ..Reports::default() }
    }

    /// Partitions that are said to be damaged.
    pub fn damaged(&self) -> &[PartitionId] {
        &self.damaged
    }

    /// These are damaged. True if that is news.
    pub fn damage(&mut self, damaged: Vec<PartitionId>) -> bool {
        let news = self.damaged != damaged;
        self.damaged = damaged;
        news
    }

    /// Tails on the disk.
    pub fn tails(&self) -> &[TailReport] {
        &self.tails
    }

    /// A tail is on the disk; the same one comes twice after a crash between its file and the cut.
    pub fn set_aside(&mut self, report: TailReport) {
        if !self.tails.contains(&report) {
            self.tails.push(report);
        }
    }

    /// A failover was led.
    pub fn serve(&mut self, served: Served) {
        self.served.push((served, 0));
    }

    /// Failovers that were led.
    pub fn served(&self) -> impl Iterator<Item = &Served> {
        self.served.iter().map(|(served, _)| served)
    }

    /// A report goes out: these failovers are told again with it.
    pub fn repeat(&mut self) -> Vec<Served> {
        let mut again = Vec::new();
        for (served, times) in &mut self.served {
            *times += 1;
            if times.is_multiple_of(EVERY) && *times < UNTIL {
                again.push(served.clone());
            }
        }
        again
    }
}

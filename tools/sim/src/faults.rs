//! The classes of faults, and what each needs to be allowed.

use std::fmt;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal;)*) => {
        /// A class of faults. A seed switches a random subset on.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Fault { $($(#[doc = $doc])* $name,)* }

        impl Fault {
            /// Every class.
            pub const ALL: [Fault; [$($text),*].len()] = [$(Fault::$name),*];

            /// Its name in figures.
            pub fn name(self) -> &'static str {
                match self { $(Fault::$name => $text,)* }
            }
        }
    };
}

faults! {
    /// A process dies; what it has written stays.
    Crash = "crash";
    /// A machine loses power: what was not synced may go, in part.
    Power = "power";
    /// All machines lose power at once.
    PowerAll = "power-all";
    /// A process is shut down properly and started again.
    Restart = "restart";
    /// A process stands still; its clock runs on.
    Pause = "pause";
    /// A node's executor stands still while its heartbeats go on.
    Stall = "stall";
    /// A disk is replaced by an empty one.
    DiskLoss = "disk-loss";
    /// The second directory of a node's replicas is gone, for a while or for good; node and log go on.
    DirectoryLoss = "directory-loss";
    /// A sync fails.
    SyncFails = "sync-fails";
    /// A byte on the disk changes.
    Rot = "rot";
    /// A byte of a component changes while its node runs, and nobody notices.
    QuietRot = "quiet-rot";
    /// A read gives another byte than what is on the disk.
    ReadFlip = "read-flip";
    /// A write lands elsewhere.
    Misdirect = "misdirect";
    /// A disk is full for a while.
    Full = "full";
    /// A disk is slow for a while.
    SlowDisk = "slow-disk";
    /// A disk does nothing for a while.
    StuckDisk = "stuck-disk";
    /// A clock runs fast or slow, within what the settings allow.
    ClockRate = "clock-rate";
    /// A wall clock jumps.
    ClockJump = "clock-jump";
    /// Two endpoints do not reach each other.
    Cut = "cut";
    /// Messages pass in one direction only.
    CutOneWay = "cut-one-way";
    /// One kind of connection between some nodes carries nothing: log shipping, heartbeats or control.
    CutLane = "cut-lane";
    /// A node is cut off, and then only its heartbeats pass again.
    HalfHealed = "half-healed";
    /// A node is cut off from everybody.
    Isolate = "isolate";
    /// Some links are slow.
    Clog = "clog";
    /// Messages between nodes are lost.
    Loss = "loss";
    /// Messages between nodes come twice.
    Duplication = "duplication";
    /// Messages are late.
    Delay = "delay";
    /// What broken connections still carried arrives after what the next ones brought.
    Reorder = "reorder";
    /// Connections break.
    Break = "break";
    /// A controller dies and starts again.
    ControllerCrash = "controller-crash";
    /// The metastore does not answer.
    MetaDown = "meta-down";
    /// The metastore is slow.
    MetaSlow = "meta-slow";
    /// The metastore's answers are lost, or come before the work is done.
    MetaLost = "meta-lost";
    /// A controller hears of changes late.
    MetaStale = "meta-stale";
    /// Two controllers plan at once.
    TwoLead = "two-lead";
    /// Leads are handed over by an operator.
    Switchover = "switchover";
    /// A node is drained.
    Drain = "drain";
    /// A table's policy changes.
    Alter = "alter";
    /// The disk under a node's LSM engines has no room for some of what they write, for a while.
    LsmFull = "lsm-full";
    /// A sync of a file of an LSM engine fails.
    LsmSyncFails = "lsm-sync-fails";
    /// A node's process is given no open file for some of what its LSM engines do, for a while.
    FewFiles = "few-files";
    /// Reads of a node's log fail, at a start or later; what is on the disk is right.
    ReadFails = "read-fails";
    /// A node's process is given no open file for some of what its log does, for a while.
    FewLogFiles = "few-log-files";
    /// A file of a node's log loses its end.
    LogCut = "log-cut";
    /// The metastore's disk is full for a while.
    MetaFull = "meta-full";
    /// A sync of the metastore's journal fails.
    MetaSyncFails = "meta-sync-fails";
    /// An operator takes a replica for damaged, and has it given up for a copy of the primary's.
    GiveUp = "give-up";
    /// A node comes back on an older copy of its disk, and gets an empty one when somebody has noticed.
    GoBack = "go-back";
    /// The controllers' disk is lost, and an operator makes the records anew of what nodes keep.
    RecordsLost = "records-lost";
    /// A controller of before the records were made anew starts again, on the disk that it had.
    OldController = "old-controller";
    /// A copy of a node's disk, made while nobody used that, is started beside the node.
    Cloned = "cloned";
    /// A node is started as a build that speaks another version of the protocol, for a while.
    OtherBuild = "other-build";
    /// All copies of a partition that nobody writes are damaged, and no operator recovers it.
    Strand = "strand";
    /// Two operators ask for what does not go together, at the same moment.
    Rivals = "rivals";
    /// One of several executors of a node stands still, while the others and the heartbeats go on.
    ExecutorHangs = "executor-hangs";
    /// Some writes of a node's log fail, at a start or later; a part may be there all the same.
    LogWriteFails = "log-write-fails";
    /// A file of a node's engines loses its end.
    EngineCut = "engine-cut";
    /// The file in which a node keeps the cluster's records loses its end.
    RecordsCut = "records-cut";
    /// The disk of a node's second directory does nothing for a while, and that of its log goes on.
    SecondHangs = "second-hangs";
}

impl Fault {
    /// Classes that end terms.
    pub const DEPOSING: [Fault; 6] =
        [Fault::Crash, Fault::Power, Fault::Pause, Fault::Isolate, Fault::Cut, Fault::Restart];

    /// True if it concerns one node alone, and what that does for others.
    pub fn is_of_one(self) -> bool {
        use Fault::{Alter, Break, ControllerCrash, Delay, Drain, Duplication, Loss, PowerAll, Reorder};
        use Fault::{MetaDown, MetaFull, MetaLost, MetaSlow, MetaStale, MetaSyncFails, RecordsLost};
        use Fault::{OldController, Rivals, Switchover, TwoLead};
        let of_all = matches!(self, PowerAll | Loss | Duplication | Delay | Reorder | Break)
            || matches!(self, ControllerCrash | MetaDown | MetaSlow | MetaLost | MetaStale | TwoLead)
            || matches!(self, MetaFull | MetaSyncFails | RecordsLost | Switchover | Drain | Alter | Rivals)
            || matches!(self, OldController | Fault::Strand);
        !of_all
    }

    /// True if whoever leads cannot do so any longer, and is missed at once. An executor that stands still is
    /// vouched for by its heartbeats a while longer (N18).
    pub fn takes_primary(self) -> bool {
        use Fault::{Crash, DiskLoss, Isolate, Pause, Power, Restart};
        matches!(self, Crash | Power | Restart | Pause | Isolate | DiskLoss)
    }

    /// True if it can cost what one disk holds.
    pub fn faults_disk(self) -> bool {
        use Fault::{DirectoryLoss, DiskLoss, EngineCut, GiveUp, GoBack, LogCut, Misdirect, QuietRot};
        use Fault::{ReadFails, ReadFlip, Rot};
        matches!(self, DirectoryLoss | DiskLoss | Rot | QuietRot | Misdirect | ReadFlip)
            || matches!(self, ReadFails | LogCut | GiveUp | GoBack | EngineCut)
    }

    /// True if what is on a disk, or what is read there, may not be what was written, and nobody says so.
    pub fn rots(self) -> bool {
        matches!(self, Fault::Rot | Fault::QuietRot | Fault::ReadFlip | Fault::Misdirect)
    }

    /// False for classes that only some seeds have, by their numbers: the others stay what they were.
    pub fn is_drawn(self) -> bool {
        use Fault::{DirectoryLoss, FewFiles, LsmFull, LsmSyncFails, QuietRot};
        let beside = self.is_own() || self.is_of_files();
        !matches!(self, QuietRot | DirectoryLoss | LsmFull | LsmSyncFails | FewFiles) && !beside
    }

    /// True for classes that strike beside the others, in a rhythm of their own ([`crate::plan::own`]).
    pub fn is_own(self) -> bool {
        use Fault::{Cloned, OldController, OtherBuild, ReadFails, RecordsLost, Rivals};
        use Fault::{FewLogFiles, GiveUp, GoBack, LogCut, MetaFull, MetaSyncFails};
        matches!(self, ReadFails | FewLogFiles | LogCut | MetaFull | MetaSyncFails)
            || matches!(self, GiveUp | GoBack | RecordsLost | Rivals | OldController | Cloned)
            || matches!(self, OtherBuild | Fault::ExecutorHangs)
            || self == Fault::Strand
    }

    /// True for classes that strike beside the others, in another rhythm ([`crate::plan::file_faults`]).
    pub fn is_of_files(self) -> bool {
        use Fault::{EngineCut, LogWriteFails, RecordsCut, SecondHangs};
        matches!(self, LogWriteFails | EngineCut | RecordsCut | SecondHangs)
    }

    /// True if a process forgets what was in its memory.
    pub fn forgets(self) -> bool {
        self.faults_disk()
            || matches!(
                self,
                Fault::Crash
                    | Fault::Cloned
                    | Fault::OtherBuild
                    | Fault::Power
                    | Fault::PowerAll
                    | Fault::Restart
                    | Fault::SyncFails
                    | Fault::LsmSyncFails
                    | Fault::LogWriteFails
                    | Fault::RecordsCut
            )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_tell_the_classes_apart() {
        let names: BTreeSet<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
    }

    #[test]
    fn a_class_has_one_rhythm() {
        for fault in Fault::ALL {
            assert!(!fault.is_own() || !fault.is_of_files(), "{fault}");
            assert!(!fault.is_drawn() || !fault.is_own() && !fault.is_of_files(), "{fault}");
        }
    }
}

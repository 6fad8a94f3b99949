//! The conformance suite finds what is wrong: the parts engine with one flaw at a time is rejected, by the
//! case that looks for it.

mod common;

use bytes::Bytes;
use conformance::Subject;
use std::path::Path;
use types::bulk::{LoadId, Staged, Staging};
use types::engine::{BackgroundCheckpoints, Checkpoint, Row, ShipsFiles, StagesLoads, Wake};
use types::{
    Component, ComponentSet, Engine, EngineError, Installation, Lsn, Missing, Mutation, PinId, Position,
    ReadAt,
};

/// What an engine does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// None.
    None,
    /// Every fifth row of a long scan is not in it.
    ForgetsARow,
    /// A row says that the entry behind its own wrote it.
    LsnIsOffByOne,
    /// What was deleted is still there.
    KeepsWhatIsDeleted,
    /// A read at an LSN sees the next entry.
    ReadsOneTooFar,
    /// A read below the floor is answered with what is left.
    AnswersBelowTheFloor,
    /// A scan gives one row more than the limit.
    LimitIsOffByOne,
    /// The end of a range is part of it.
    EndIsInclusive,
    /// Publishes the entry behind the last one that it is told to.
    PublishesOneTooMany,
    /// Deletions are forgotten at once.
    ForgetsDeletions,
    /// Says that a checkpoint is on disk that is not.
    LiesAboutCheckpoints,
    /// Says that a checkpoint beside other work is of the position at its end.
    LiesInTheBackground,
    /// Takes any row of a copy.
    TakesForeignRows,
    /// Damaged files are taken for none.
    StartsEmptyWhereDamaged,
    /// Says what is wrong in two lines.
    TalksTooMuch,
    /// Pieces of files are taken whatever their place.
    TakesPiecesAnywhere,
    /// Says that a set is installed, and has not looked.
    InstallsNothing,
    /// A pin is kept for ever.
    KeepsPins,
    /// A set that was given up is still wanted.
    NeverGivesUp,
    /// A load is installed before that is allowed.
    LoadsAtOnce,
    /// An entry of a load is executed, and not its load.
    LoadsNothing,
    /// A load that is given up stays.
    KeepsLoads,
    /// A truncation takes the last entry that stays with it (LE-08).
    DiscardsOneTooMany,
    /// A copy by rows keeps what was there before (LE-06).
    CopiesOverOldRows,
    /// What comes while a set is installed is forgotten (LE-05).
    ForgetsWhatComesMeanwhile,
    /// Files that are sent go when newer ones are written (LE-11).
    PinsKeepNothing,
}

/// An engine with a flaw.
struct Wrong {
    engine: Box<dyn Engine>,
    flaw: Flaw,
    /// Up to where a checkpoint is said to be.
    said: Position,
    /// Sets that were given up.
    given_up: bool,
    /// A set is being installed.
    installing: bool,
    /// The state of the files that were pinned last.
    pinned: Position,
    /// Rows from before a copy.
    old: Vec<Row>,
}

impl Wrong {
    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn read_at(&self, at: ReadAt) -> ReadAt {
        match at {
            ReadAt::Lsn(lsn) if self.is(Flaw::ReadsOneTooFar) => ReadAt::Lsn(lsn.next()),
            ReadAt::Lsn(lsn) if self.is(Flaw::AnswersBelowTheFloor) => {
                ReadAt::Lsn(lsn.max(self.engine.read_floor()))
            }
            at => at,
        }
    }

    fn files(&self) -> &dyn ShipsFiles {
        self.engine.shipping().expect("the parts engine offers that")
    }

    fn files_mut(&mut self) -> &mut dyn ShipsFiles {
        self.engine.shipping_mut().expect("the parts engine offers that")
    }

    fn loads_here(&self) -> &dyn StagesLoads {
        self.engine.staging().expect("the parts engine offers that")
    }

    fn loads_mut(&mut self) -> &mut dyn StagesLoads {
        self.engine.staging_mut().expect("the parts engine offers that")
    }
}

impl Engine for Wrong {
    fn execute(&mut self, at: Position, mutations: &[Mutation]) {
        let keeps = |mutation: &&Mutation| mutation.value.is_some() || !self.is(Flaw::KeepsWhatIsDeleted);
        let forgotten = self.installing && self.is(Flaw::ForgetsWhatComesMeanwhile);
        let mutations = if forgotten { &[] } else { mutations };
        let mutations: Vec<Mutation> = mutations.iter().filter(keeps).cloned().collect();
        self.engine.execute(at, &mutations);
    }

    fn publish(&mut self, upto: Lsn) -> Result<(), EngineError> {
        let upto = if self.is(Flaw::PublishesOneTooMany) { upto.next() } else { upto };
        self.engine.publish(upto)
    }

    fn discard_above(&mut self, to: Position) {
        let published = self.engine.published();
        if !self.is(Flaw::DiscardsOneTooMany) || to.lsn <= published.lsn {
            return self.engine.discard_above(to);
        }
        let before = Position::new(to.term, to.lsn.prev());
        self.engine.discard_above(if before.lsn == published.lsn { published } else { before });
        self.engine.execute(to, &[]);
    }

    fn applied(&self) -> Position {
        self.engine.applied()
    }

    fn published(&self) -> Position {
        self.engine.published()
    }

    fn persisted(&self) -> Position {
        self.engine.persisted().max(self.said)
    }

    fn get(&self, key: &[u8], at: ReadAt) -> Result<Option<(Lsn, Bytes)>, EngineError> {
        let found = self.engine.get(key, self.read_at(at))?;
        let shift = u64::from(self.is(Flaw::LsnIsOffByOne));
        Ok(found.map(|(lsn, value)| (Lsn(lsn.0 + shift), value)))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        at: ReadAt,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Row>, EngineError> {
        let limit = limit.saturating_add(usize::from(self.is(Flaw::LimitIsOffByOne)));
        let behind = [to, &[0]].concat();
        let to = if self.is(Flaw::EndIsInclusive) && !to.is_empty() { &behind } else { to };
        let mut rows = self.engine.scan(from, to, self.read_at(at), limit, max_bytes)?;
        if self.is(Flaw::ForgetsARow) && rows.len() > 4 {
            rows.remove(4);
        }
        Ok(rows)
    }

    fn deletions(&self, from: &[u8], to: &[u8], above: Lsn) -> Result<Vec<(Bytes, Lsn)>, EngineError> {
        match self.is(Flaw::ForgetsDeletions) {
            true => Ok(Vec::new()),
            false => self.engine.deletions(from, to, above),
        }
    }

    fn raise_read_floor(&mut self, read_floor: Lsn) {
        self.engine.raise_read_floor(read_floor);
    }

    fn read_floor(&self) -> Lsn {
        self.engine.read_floor()
    }

    fn memory_bytes(&self) -> u64 {
        self.engine.memory_bytes()
    }

    fn replay_ns(&self) -> u64 {
        self.engine.replay_ns()
    }

    fn is_persistent(&self) -> bool {
        self.engine.is_persistent()
    }

    fn checkpoint(&mut self) -> Result<Position, EngineError> {
        if self.is(Flaw::LiesAboutCheckpoints) {
            self.said = self.engine.published();
            return Ok(self.said);
        }
        self.engine.checkpoint()
    }

    fn failed_write(&self) -> Option<&str> {
        self.engine.failed_write()
    }

    fn reset(&mut self, base: Position) -> Result<(), EngineError> {
        if self.is(Flaw::CopiesOverOldRows) {
            let rows = self.engine.scan(&[], &[], ReadAt::Applied, usize::MAX, usize::MAX)?;
            self.old = rows.into_iter().filter(|row| row.lsn <= base.lsn).collect();
        }
        self.engine.reset(base)
    }

    fn install(&mut self, rows: &[Row]) -> Result<(), EngineError> {
        match self.engine.install(rows) {
            Err(EngineError::Corrupt(_)) if self.is(Flaw::TakesForeignRows) => Ok(()),
            installed => installed,
        }
    }

    fn finish_install(&mut self) -> Result<(), EngineError> {
        self.engine.install(&std::mem::take(&mut self.old))?;
        self.engine.finish_install()
    }

    fn background_checkpoints(&mut self) -> Option<&mut dyn BackgroundCheckpoints> {
        Some(self)
    }

    fn shipping(&self) -> Option<&dyn ShipsFiles> {
        Some(self)
    }

    fn shipping_mut(&mut self) -> Option<&mut dyn ShipsFiles> {
        Some(self)
    }

    fn staging(&self) -> Option<&dyn StagesLoads> {
        Some(self)
    }

    fn staging_mut(&mut self) -> Option<&mut dyn StagesLoads> {
        Some(self)
    }
}

impl BackgroundCheckpoints for Wrong {
    fn begin_checkpoint(&mut self, wake: &Wake) -> Result<Checkpoint, EngineError> {
        self.engine.begin_checkpoint(wake)
    }

    fn go_on_checkpoint(&mut self) -> Result<Checkpoint, EngineError> {
        if self.is(Flaw::LiesInTheBackground) {
            self.said = self.engine.published();
        }
        self.engine.go_on_checkpoint()
    }
}

impl ShipsFiles for Wrong {
    fn pin(&mut self) -> Result<Option<(PinId, ComponentSet)>, EngineError> {
        self.pinned = self.engine.persisted();
        self.files_mut().pin()
    }

    fn read_component(
        &self,
        pin: PinId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        match self.is(Flaw::PinsKeepNothing) && self.pinned != self.engine.persisted() {
            true => Err(EngineError::Corrupt("the file is missing".into())),
            false => self.files().read_component(pin, file, from, max_bytes),
        }
    }

    fn unpin(&mut self, pin: PinId) {
        if !self.is(Flaw::KeepsPins) {
            self.files_mut().unpin(pin);
        }
    }

    fn receive(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.given_up = false;
        self.files_mut().receive(set)
    }

    fn receive_whole(&mut self, set: ComponentSet) -> Result<bool, EngineError> {
        self.files_mut().receive_whole(set)
    }

    fn missing(&self) -> Vec<Missing> {
        match self.given_up {
            true => vec![Missing { file: 0, from: 0 }],
            false => self.files().missing(),
        }
    }

    fn receive_piece(&mut self, file: usize, from: u64, bytes: &[u8]) -> Result<bool, EngineError> {
        let taken = self.files_mut().receive_piece(file, from, bytes)?;
        Ok(taken || self.is(Flaw::TakesPiecesAnywhere))
    }

    fn begin_installation(&mut self, wake: &Wake) -> Result<Installation, EngineError> {
        if self.is(Flaw::InstallsNothing) {
            return Ok(Installation::Done);
        }
        let stands = self.files_mut().begin_installation(wake)?;
        self.installing = stands == Installation::Waiting;
        Ok(stands)
    }

    fn go_on_installation(&mut self) -> Result<Installation, EngineError> {
        let stands = self.files_mut().go_on_installation()?;
        self.installing &= stands == Installation::Waiting;
        Ok(stands)
    }

    fn stop_receiving(&mut self) -> Result<(), EngineError> {
        self.given_up = self.is(Flaw::NeverGivesUp);
        self.files_mut().stop_receiving()
    }
}

impl StagesLoads for Wrong {
    fn stage(&mut self, load: LoadId, files: &[Component]) -> Result<Staging, EngineError> {
        let staging = self.loads_mut().stage(load, files)?;
        Ok(match staging {
            Staging::Refused(why) if self.is(Flaw::TalksTooMuch) => {
                Staging::Refused(format!("{why}:\nsee above"))
            }
            staging => staging,
        })
    }

    fn stage_piece(
        &mut self,
        load: LoadId,
        file: usize,
        from: u64,
        bytes: &[u8],
    ) -> Result<bool, EngineError> {
        self.loads_mut().stage_piece(load, file, from, bytes)
    }

    fn staged(&self, load: LoadId) -> Option<Staged> {
        self.loads_here().staged(load)
    }

    fn staged_keys(&self, load: LoadId) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        self.loads_here().staged_keys(load)
    }

    fn staged_files(&self, load: LoadId) -> Vec<Component> {
        self.loads_here().staged_files(load)
    }

    fn read_staged(
        &self,
        load: LoadId,
        file: usize,
        from: u64,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, EngineError> {
        self.loads_here().read_staged(load, file, from, max_bytes)
    }

    fn loads(&self) -> Vec<LoadId> {
        self.loads_here().loads()
    }

    fn to_stage(&self) -> u64 {
        self.loads_here().to_stage()
    }

    fn unstage(&mut self, load: LoadId) -> Result<(), EngineError> {
        if self.is(Flaw::KeepsLoads) { Ok(()) } else { self.loads_mut().unstage(load) }
    }

    fn execute_load(&mut self, at: Position, load: LoadId, mutations: &[Mutation]) {
        match self.flaw {
            Flaw::LoadsNothing => return self.engine.execute(at, mutations),
            _ => self.loads_mut().execute_load(at, load, mutations),
        }
        if self.is(Flaw::LoadsAtOnce) {
            self.loads_mut().allow_load(at.lsn);
        }
    }

    fn pending_load(&self) -> Option<Position> {
        self.loads_here().pending_load()
    }

    fn allow_load(&mut self, upto: Lsn) {
        self.loads_mut().allow_load(upto);
    }
}

impl Subject for Flaw {
    fn open(&self, dir: &Path) -> Result<Box<dyn Engine>, EngineError> {
        let engine = match common::open(dir) {
            Err(EngineError::Corrupt(_)) if *self == Flaw::StartsEmptyWhereDamaged => {
                std::fs::remove_dir_all(dir)?;
                common::open(dir)?
            }
            opened => opened?,
        };
        Ok(Box::new(Wrong {
            engine,
            flaw: *self,
            said: Position::ZERO,
            given_up: false,
            installing: false,
            pinned: Position::ZERO,
            old: Vec::new(),
        }))
    }

    fn load_files(&self, _: &Path, load: LoadId, rows: &[(Bytes, Bytes)]) -> Vec<(Component, Bytes)> {
        understudy_test_engines::load_files(load, rows)
    }
}

/// Each flaw, and a case that must find it.
const FOUND: [(Flaw, &str); 25] = [
    (Flaw::ForgetsARow, "an_installed_state_is_the_senders"),
    (Flaw::LsnIsOffByOne, "tentative_entries_are_read_at_their_lsn_and_dropped"),
    (Flaw::KeepsWhatIsDeleted, "a_range_can_be_deleted_and_written_again"),
    (Flaw::ReadsOneTooFar, "publishing_changes_no_read"),
    (Flaw::AnswersBelowTheFloor, "reads_below_the_floor_are_refused"),
    (Flaw::LimitIsOffByOne, "scans_keep_to_their_limits_and_bounds"),
    (Flaw::EndIsInclusive, "scans_keep_to_their_limits_and_bounds"),
    (Flaw::PublishesOneTooMany, "random_histories_follow_the_log"),
    (Flaw::ForgetsDeletions, "r9_deletions_are_known_while_something_needs_them"),
    (Flaw::LiesAboutCheckpoints, "a_restart_finds_the_checkpoint_and_replays"),
    (Flaw::LiesInTheBackground, "a_background_checkpoint_is_of_one_position"),
    (Flaw::TakesForeignRows, "an_installation_refuses_foreign_rows"),
    (Flaw::StartsEmptyWhereDamaged, "damaged_files_are_refused_in_one_line"),
    (Flaw::TalksTooMuch, "a_file_that_is_none_is_refused_in_one_line"),
    (Flaw::TakesPiecesAnywhere, "files_sent_by_one_are_the_state_of_another"),
    (Flaw::InstallsNothing, "files_sent_by_one_are_the_state_of_another"),
    (Flaw::KeepsPins, "pinned_files_stay_as_they_are"),
    (Flaw::NeverGivesUp, "sets_of_no_use_are_not_received"),
    (Flaw::LoadsAtOnce, "a_load_is_visible_all_at_once"),
    (Flaw::LoadsNothing, "a_load_is_visible_all_at_once"),
    (Flaw::KeepsLoads, "a_staged_load_outlives_a_restart_until_it_is_given_up"),
    (Flaw::DiscardsOneTooMany, "tentative_entries_are_read_at_their_lsn_and_dropped"),
    (Flaw::CopiesOverOldRows, "an_installed_state_is_the_senders"),
    (Flaw::ForgetsWhatComesMeanwhile, "what_is_published_during_an_installation_stays"),
    (Flaw::PinsKeepNothing, "pinned_files_stay_as_they_are"),
];

#[test]
fn an_engine_with_a_flaw_is_rejected() {
    let unfound = FOUND.into_iter().filter_map(|(flaw, case)| {
        let faults = conformance::faults(&flaw);
        let names: Vec<&str> = faults.iter().map(|(name, _)| *name).collect();
        (!names.contains(&case)).then(|| format!("{flaw:?} is not found by {case}, but by {names:?}"))
    });
    let unfound: Vec<String> = unfound.collect();
    assert!(unfound.is_empty(), "{}", unfound.join("\n"));
}

#[test]
fn the_wrapper_alone_changes_nothing() {
    conformance::check(&Flaw::None);
}

//! Every engine against the log itself: random histories, read at every readable position after every step.

mod common;

use common::*;
use proptest::prelude::*;
use types::{Engine, Lsn, Mutation, Position, ReadAt, Term};

/// One step of a random history. Numbers are shares of what is there, in 256ths.
#[derive(Clone, Debug)]
enum Step {
    Execute(Vec<(u8, Option<u8>)>),
    NextTerm,
    Publish(u8),
    Discard(u8),
    RaiseReadFloor(u8),
    Checkpoint,
    Crash,
    Install,
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0u8..9, proptest::option::weighted(0.7, any::<u8>()));
    prop_oneof![
        12 => proptest::collection::vec(change, 0..4).prop_map(Step::Execute),
        1 => Just(Step::NextTerm),
        6 => any::<u8>().prop_map(Step::Publish),
        2 => any::<u8>().prop_map(Step::Discard),
        3 => any::<u8>().prop_map(Step::RaiseReadFloor),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Crash),
        1 => Just(Step::Install),
    ]
}

/// The LSN at `share` of the way from `from` to `to`.
fn between(from: Lsn, to: Lsn, share: u8) -> Lsn {
    Lsn(from.0 + (to.0 - from.0) * u64::from(share) / 255)
}

struct Run<S: Subject> {
    dir: tempfile::TempDir,
    engine: Option<S::Engine>,
    model: Model,
    term: Term,
}

impl<S: Subject> Run<S> {
    fn new() -> Run<S> {
        let dir = tempfile::tempdir().unwrap();
        let engine = Some(S::open(&dir.path().join("engine")));
        Run { dir, engine, model: Model::default(), term: Term(1) }
    }

    fn engine(&mut self) -> &mut S::Engine {
        self.engine.as_mut().unwrap()
    }

    fn take(&mut self, step: &Step) {
        let (published, applied) = (self.engine().published(), self.engine().applied());
        match step {
            Step::Execute(changes) => {
                let entry = changes.iter().map(|(name, value)| Mutation {
                    key: key(&name.to_string()),
                    value: value.map(|value| value.to_string().into()),
                });
                let at = Position::new(self.term, applied.lsn.next());
                self.model.execute(self.engine.as_mut().unwrap(), at, entry.collect());
            }
            Step::NextTerm => self.term = Term(self.term.0 + 1),
            Step::Publish(share) => {
                let upto = between(published.lsn, applied.lsn, *share);
                self.engine().publish(upto).unwrap();
            }
            Step::Discard(share) => {
                let cut = between(published.lsn, applied.lsn, *share);
                self.model.log.retain(|(at, _)| at.lsn <= cut);
                let to = self.model.applied();
                self.engine().discard_above(to);
            }
            Step::RaiseReadFloor(share) => {
                let read_floor = between(self.engine().read_floor().min(applied.lsn), applied.lsn, *share);
                self.engine().raise_read_floor(read_floor);
            }
            Step::Checkpoint => {
                let persisted = self.engine().checkpoint().unwrap();
                assert_eq!(persisted, if S::PERSISTENT { published } else { Position::ZERO });
            }
            Step::Crash => self.crash(published),
            Step::Install => self.install(published),
        }
    }

    /// Starts again from the disk and replays the log.
    fn crash(&mut self, published: Position) {
        let persisted = self.engine().persisted();
        self.engine = None;
        self.engine = Some(S::open(&self.dir.path().join("engine")));
        assert_eq!(self.engine().applied(), persisted);
        for (at, entry) in self.model.log.iter().filter(|(at, _)| at.lsn > persisted.lsn) {
            self.engine.as_mut().unwrap().execute(*at, entry);
        }
        self.engine().publish(published.lsn).unwrap();
    }

    /// Installs the state that is published, and replays what is above.
    fn install(&mut self, published: Position) {
        let rows = self.model.rows(published.lsn);
        self.engine().reset(published).unwrap();
        self.engine().install(&rows).unwrap();
        self.engine().finish_install().unwrap();
        for (at, entry) in self.model.log.iter().filter(|(at, _)| at.lsn > published.lsn) {
            self.engine.as_mut().unwrap().execute(*at, entry);
        }
    }

    fn check(&mut self) {
        let (engine, model) = (self.engine.as_ref().unwrap(), &self.model);
        assert_eq!(engine.applied(), model.applied());
        assert!(engine.persisted().lsn <= engine.published().lsn);
        assert_eq!(all(engine, ReadAt::Applied, 4), model.rows(Lsn::MAX));
        let (read_floor, applied) = (engine.read_floor(), engine.applied().lsn);
        for share in [0, 90, 200, 255] {
            let lsn = between(read_floor.min(applied), applied, share).max(read_floor);
            let rows = model.rows(lsn);
            assert_eq!(all(engine, ReadAt::Lsn(lsn), 100), rows, "at {lsn}");
            for name in 0..9 {
                let name = key(&name.to_string());
                let found = engine.get(&name, ReadAt::Lsn(lsn)).unwrap();
                let row = rows.iter().find(|row| row.key == name);
                assert_eq!(found, row.map(|row| (row.lsn, row.value.clone())));
            }
        }
    }
}

fn follows_the_log<S: Subject>(steps: &[Step]) {
    let mut run = Run::<S>::new();
    for step in steps {
        run.take(step);
        run.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_volatile_engine_follows_the_log(steps in proptest::collection::vec(step(), 1..80)) {
        follows_the_log::<Volatile>(&steps);
    }

    #[test]
    fn the_memory_engine_follows_the_log(steps in proptest::collection::vec(step(), 1..80)) {
        follows_the_log::<Persistent>(&steps);
    }
}

proptest! {
    // Each checkpoint of this engine waits for the disk a dozen times.
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_lsm_engine_follows_the_log(steps in proptest::collection::vec(step(), 1..80)) {
        follows_the_log::<Lsm>(&steps);
    }
}

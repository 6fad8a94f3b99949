//! Random histories, compared with the log after every step. The same ones every time.

use crate::{Model, Place, key};
use types::random::Random;
use types::{Engine, Lsn, Mutation, Position, Term};

/// Histories, and steps of each.
const HISTORIES: u64 = 12;
const STEPS: u64 = 60;

/// An LSN from `from` to `to`.
fn between(random: &mut Random, from: Lsn, to: Lsn) -> Lsn {
    Lsn(from.0 + random.below(to.0 - from.0 + 1))
}

struct Run<'a> {
    place: &'a Place<'a>,
    name: String,
    engine: Option<Box<dyn Engine>>,
    model: Model,
    term: Term,
    random: Random,
}

impl Run<'_> {
    fn engine(&mut self) -> &mut dyn Engine {
        self.engine.as_deref_mut().expect("open between the steps")
    }

    fn step(&mut self) {
        let (published, applied) = (self.engine().published(), self.engine().applied());
        match self.random.below(31) {
            0..12 => self.execute(applied),
            12 => self.term = Term(self.term.0 + 1),
            13..19 => {
                let upto = between(&mut self.random, published.lsn, applied.lsn);
                self.engine().publish(upto).expect("publishes");
                let now = self.engine().published().lsn;
                assert_eq!(now, upto, "published up to {upto}");
            }
            19..21 => {
                let cut = between(&mut self.random, published.lsn, applied.lsn);
                self.model.log.retain(|(at, _)| at.lsn <= cut);
                let to = self.model.applied();
                self.engine().discard_above(to);
            }
            21..24 => {
                let floor = self.engine().read_floor().min(applied.lsn);
                let floor = between(&mut self.random, floor, applied.lsn);
                self.engine().raise_read_floor(floor);
                assert!(self.engine().read_floor() >= floor, "the floor was raised to {floor}");
            }
            24..26 => {
                let is_persistent = self.engine().is_persistent();
                let persisted = self.engine().checkpoint().expect("writes");
                assert_eq!(persisted, if is_persistent { published } else { Position::ZERO });
            }
            26 => self.crash(published),
            27..29 => {
                let keys: Vec<_> = (0..5).map(|_| key(&self.random.below(9).to_string())).collect();
                self.engine().read_ahead(&keys).expect("reads");
            }
            29 => self.engine().end_read_ahead(),
            _ => self.install(published),
        }
    }

    fn execute(&mut self, applied: Position) {
        let mut entry = Vec::new();
        for _ in 0..self.random.below(4) {
            let name = self.random.below(9).to_string();
            let value = self.random.below(256);
            let value = (value < 180).then(|| value.to_string().into());
            entry.push(Mutation { key: key(&name), value });
        }
        let at = Position::new(self.term, applied.lsn.next());
        let engine = self.engine.as_deref_mut().expect("open between the steps");
        self.model.execute(engine, at, entry);
    }

    /// Starts again from the disk, and replays the log.
    fn crash(&mut self, published: Position) {
        let persisted = self.engine().persisted();
        self.engine = None;
        let mut engine = self.place.open_as(&self.name);
        assert_eq!(engine.applied(), persisted, "what a restart finds");
        self.model.replay(engine.as_mut(), Lsn::MAX);
        engine.publish(published.lsn).expect("publishes");
        self.engine = Some(engine);
    }

    /// Installs the state that is published, and replays what is above.
    fn install(&mut self, published: Position) {
        let rows = self.model.rows(published.lsn);
        let engine = self.engine.as_deref_mut().expect("open between the steps");
        engine.reset(published).expect("resets");
        engine.install(&rows).expect("installs");
        engine.finish_install().expect("ends");
        self.model.replay(engine, Lsn::MAX);
    }
}

pub fn random_histories_follow_the_log(place: &Place) {
    for seed in 1..=HISTORIES {
        let name = format!("engine {seed}");
        let engine = Some(place.open_as(&name));
        let (term, random) = (Term(1), Random::new(seed));
        let mut run = Run { place, name, engine, model: Model::default(), term, random };
        for _ in 0..STEPS {
            run.step();
            let engine = run.engine.as_deref().expect("open between the steps");
            assert!(engine.persisted().lsn <= engine.published().lsn, "persisted before it is published");
            run.model.same(engine);
        }
    }
}

//! Files sent by one engine and installed by another, of engines that offer it.

use crate::{Model, Place, WAIT_LIMIT, at, delete, history, put, waker};
use types::engine::ShipsFiles;
use types::{ComponentSet, Engine, Installation, Lsn, PinId, ReadAt, Term};

/// Bytes of a piece.
const PIECE: usize = 90;

/// One engine that sends its files, and another that takes them.
struct Pair<'a> {
    place: &'a Place<'a>,
    source: Box<dyn Engine>,
    target: Box<dyn Engine>,
    model: Model,
}

fn files(engine: &mut dyn Engine) -> &mut dyn ShipsFiles {
    engine.shipping_mut().expect("it offers that")
}

impl<'a> Pair<'a> {
    /// None if the engine does not ship files.
    fn new(place: &'a Place<'a>) -> Option<Pair<'a>> {
        let source = place.open_as("source");
        assert_eq!(source.shipping().is_some(), source.ships_files());
        let target = source.shipping().is_some().then(|| place.open_as("target"))?;
        Some(Pair { place, source, target, model: history() })
    }

    /// The source has the whole history up to here, on disk.
    fn fill(&mut self, upto: u64) {
        self.model.replay(self.source.as_mut(), Lsn(upto));
        self.source.publish(Lsn(upto)).expect("no error");
        self.source.checkpoint().expect("no error");
    }

    fn pin(&mut self) -> (PinId, ComponentSet) {
        let (pin, set) = files(self.source.as_mut()).pin().expect("no error").expect("it has files");
        assert_eq!((set.at, set.fault()), (self.source.persisted(), None));
        (pin, set)
    }

    /// Begins to send a set, and gives up to so many pieces, of which `change` may change the bytes.
    fn send(&mut self, pin: PinId, pieces: usize, change: impl Fn(usize, &mut Vec<u8>)) {
        for _ in 0..pieces {
            let target = files(self.target.as_mut());
            let Some(missing) = target.missing().first().copied() else { return };
            let source = self.source.shipping().expect("it offers that");
            let bytes = source.read_component(pin, missing.file, missing.from, PIECE);
            let mut bytes = bytes.expect("no error").expect("it is pinned").to_vec();
            assert!(!bytes.is_empty() && bytes.len() <= PIECE, "a piece of {} bytes", bytes.len());
            change(missing.file, &mut bytes);
            let elsewhere = target.receive_piece(missing.file, missing.from + 1, &bytes);
            assert!(!elsewhere.expect("no error"), "a piece is taken that is not the next one");
            assert!(target.receive_piece(missing.file, missing.from, &bytes).expect("no error"));
        }
    }

    fn ship(&mut self, pin: PinId, set: &ComponentSet) {
        assert!(files(self.target.as_mut()).receive(set.clone()).expect("no error"), "it is of use");
        self.send(pin, usize::MAX, |_, _| {});
    }

    fn install(&mut self) -> Installation {
        self.install_while(|_| {})
    }

    /// The same, with something done to the target after it has begun.
    fn install_while(&mut self, act: impl FnOnce(&mut dyn Engine)) -> Installation {
        let (wake, woken) = waker();
        let mut stands = files(self.target.as_mut()).begin_installation(&wake).expect("begins");
        act(self.target.as_mut());
        let target = files(self.target.as_mut());
        while stands == Installation::Waiting {
            woken.recv_timeout(WAIT_LIMIT).expect("it is woken while it waits");
            stands = target.go_on_installation().expect("goes on");
        }
        stands
    }

    /// The target is the set's state, and a restart finds it.
    fn is_installed(&mut self, set: &ComponentSet) {
        assert_eq!((self.target.persisted(), self.target.read_floor()), (set.at, set.at.lsn));
        let at = ReadAt::Lsn(set.at.lsn);
        assert_eq!(self.target.digest(at).expect("reads"), self.source.digest(at).expect("reads"));
        self.restart();
        assert_eq!([self.target.applied(), self.target.persisted()], [set.at; 2]);
        let rows = crate::all(self.target.as_ref(), ReadAt::Applied, 5);
        assert_eq!(rows, self.model.rows(set.at.lsn));
    }

    fn restart(&mut self) {
        // One directory has one engine at a time.
        self.target = self.place.open_as("elsewhere");
        self.target = self.place.open_as("target");
    }
}

pub fn nothing_is_shipped_before_there_are_files(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    assert!(files(pair.source.as_mut()).pin().expect("no error").is_none());
    assert!(files(pair.target.as_mut()).missing().is_empty());
    assert!(matches!(pair.install(), Installation::Refused(_)));
}

pub fn files_sent_by_one_are_the_state_of_another(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    for upto in [20, 41, 60] {
        pair.fill(upto);
        let (pin, set) = pair.pin();
        pair.ship(pin, &set);
        assert_eq!(pair.install(), Installation::Done, "the state at {upto}");
        assert_eq!([pair.target.applied(), pair.target.published()], [set.at; 2]);
        pair.is_installed(&set);
        files(pair.source.as_mut()).unpin(pin);
    }
    // It goes on by itself.
    let position = types::Position::new(Term(9), Lsn(61));
    pair.model.execute(pair.target.as_mut(), position, vec![put("own", "1"), delete("row 3")]);
    pair.target.publish(Lsn(61)).expect("no error");
    pair.target.checkpoint().expect("no error");
    pair.restart();
    pair.model.same(pair.target.as_ref());
}

pub fn what_is_above_a_set_stays(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    pair.fill(30);
    for (published, applied) in [(10, 35), (33, 50)] {
        pair.model.replay(pair.target.as_mut(), Lsn(applied));
        pair.target.publish(Lsn(published)).expect("no error");
        let (pin, set) = pair.pin();
        if set.at <= pair.target.persisted() {
            break;
        }
        pair.ship(pin, &set);
        let before = pair.target.digest(ReadAt::Applied).expect("reads");
        assert_eq!(pair.install(), Installation::Done);
        assert_eq!(pair.target.digest(ReadAt::Applied).expect("reads"), before);
        assert_eq!(pair.target.applied().lsn, Lsn(applied));
        assert_eq!(pair.target.published().lsn, Lsn(published.max(set.at.lsn.0)));
        files(pair.source.as_mut()).unpin(pin);
        pair.fill(45);
    }
    pair.model.replay(pair.target.as_mut(), Lsn(60));
    pair.model.same(pair.target.as_ref());
}

pub fn what_is_published_during_an_installation_stays(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    pair.fill(30);
    let (pin, set) = pair.pin();
    pair.model.replay(pair.target.as_mut(), Lsn(40));
    pair.target.publish(Lsn(10)).expect("no error");
    pair.ship(pin, &set);
    let model = &pair.model.log;
    let log: Vec<_> = model.iter().filter(|(at, _)| at.lsn > Lsn(40)).cloned().collect();
    let stands = pair.install_while(|target| {
        log.iter().for_each(|(at, entry)| target.execute(*at, entry));
        target.publish(Lsn(50)).expect("no error");
    });
    assert_eq!(stands, Installation::Done);
    assert_eq!([pair.target.published().lsn, pair.target.applied().lsn], [Lsn(50), Lsn(60)]);
    pair.model.same(pair.target.as_ref());
}

pub fn a_set_that_came_in_part_goes_on_after_a_restart(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    pair.fill(60);
    let (pin, set) = pair.pin();
    assert!(files(pair.target.as_mut()).receive(set.clone()).expect("no error"));
    pair.send(pin, 3, |_, _| {});
    assert!(matches!(pair.install(), Installation::Refused(_)), "half a set is no state");
    pair.restart();
    assert_eq!(pair.target.applied().lsn, Lsn::ZERO, "half a set is no state");
    pair.ship(pin, &set);
    assert_eq!(pair.install(), Installation::Done);
    pair.is_installed(&set);
}

pub fn files_that_changed_on_their_way_are_wanted_again(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    pair.fill(60);
    let (pin, set) = pair.pin();
    assert!(files(pair.target.as_mut()).receive(set.clone()).expect("no error"));
    pair.send(pin, usize::MAX, |file, bytes| {
        if file == 0 {
            bytes[0] ^= 1;
        }
    });
    assert_eq!(pair.install(), Installation::Tainted(vec![0]));
    assert_eq!(pair.target.applied().lsn, Lsn::ZERO, "nothing of it counts");
    let missing = files(pair.target.as_mut()).missing();
    assert_eq!(missing.iter().map(|missing| (missing.file, missing.from)).collect::<Vec<_>>(), [(0, 0)]);
    pair.send(pin, usize::MAX, |_, _| {});
    assert_eq!(pair.install(), Installation::Done);
    pair.is_installed(&set);
}

pub fn pinned_files_stay_as_they_are(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    pair.fill(30);
    let (pin, set) = pair.pin();
    pair.fill(60);
    pair.source.raise_read_floor(Lsn(60));
    pair.ship(pin, &set);
    let source = files(pair.source.as_mut());
    assert_eq!(
        source.read_component(pin, 0, set.files[0].bytes, PIECE).expect("no error"),
        Some(Default::default())
    );
    assert_eq!(source.read_component(pin, set.files.len(), 0, PIECE).expect("no error"), None);
    source.unpin(pin);
    assert_eq!(source.read_component(pin, 0, 0, PIECE).expect("no error"), None);
    assert_eq!(pair.install(), Installation::Done);
    assert_eq!(pair.target.applied(), set.at);
    assert_eq!(crate::all(pair.target.as_ref(), ReadAt::Applied, 5), pair.model.rows(set.at.lsn));
}

pub fn pinned_files_outlive_what_takes_their_place(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    pair.fill(10);
    let (pin, set) = pair.pin();
    // Many small files: an engine that merges does so.
    for upto in (12..=60).step_by(2) {
        pair.source.raise_read_floor(Lsn(upto));
        pair.fill(upto);
    }
    pair.ship(pin, &set);
    assert_eq!(pair.install(), Installation::Done);
    assert_eq!(pair.target.applied(), set.at);
    assert_eq!(crate::all(pair.target.as_ref(), ReadAt::Applied, 5), pair.model.rows(set.at.lsn));
}

pub fn sets_of_no_use_are_not_received(place: &Place) {
    let Some(mut pair) = Pair::new(place) else { return };
    pair.fill(30);
    let (_, old) = pair.pin();
    pair.fill(60);
    let (_, new) = pair.pin();
    let garbage = ComponentSet { order: b"no engine wrote this".to_vec(), ..new.clone() };
    assert!(!files(pair.target.as_mut()).receive(garbage).expect("no error"), "garbage");
    assert!(!files(pair.source.as_mut()).receive(old).expect("no error"), "an older state");
    assert!(files(pair.target.as_mut()).receive(new).expect("no error"));
    files(pair.target.as_mut()).stop_receiving().expect("no error");
    assert!(files(pair.target.as_mut()).missing().is_empty(), "it was given up");
    pair.target.execute(at(1), &[put("a", "1")]);
    pair.target.publish(Lsn(1)).expect("no error");
    pair.target.checkpoint().expect("no error");
    pair.restart();
    assert_eq!(crate::read(pair.target.as_ref(), "a", ReadAt::Applied), "1@1");
}

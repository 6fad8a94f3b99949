//! Checkpoints beside other work, of engines that offer them.

use crate::{Place, WAIT_LIMIT, all, at, delete, history, put, waker};
use types::engine::Checkpoint;
use types::{Lsn, ReadAt};

pub fn a_background_checkpoint_is_of_one_position(place: &Place) {
    let mut engine = place.open();
    if engine.background_checkpoints().is_none() {
        return;
    }
    let mut model = history();
    model.replay(engine.as_mut(), Lsn(60));
    engine.publish(Lsn(50)).expect("no error");
    let (begun_at, is_persistent) = (engine.published(), engine.is_persistent());
    let (wake, woken) = waker();
    let mut stands = engine.begin_checkpoint(&wake).expect("begins");
    let mut next = 61;
    while stands != Checkpoint::Idle {
        // Rows change, and some go, while it is written.
        let change = vec![put(&format!("row {}", next % 7), "newer"), delete(&format!("row {}", next % 5))];
        let position = types::Position::new(model.applied().term, at(next).lsn);
        model.execute(engine.as_mut(), position, change);
        engine.publish(Lsn(next)).expect("no error");
        next += 1;
        if stands == Checkpoint::Waiting {
            woken.recv_timeout(WAIT_LIMIT).expect("it is woken while it waits");
        }
        stands = engine.go_on_checkpoint().expect("goes on");
    }
    assert_eq!(all(engine.as_ref(), ReadAt::Applied, 9), model.rows(Lsn::MAX));
    let persisted = engine.persisted();
    if is_persistent {
        assert_eq!(persisted, begun_at);
    }
    engine = place.reopen(engine);
    assert_eq!([engine.applied(), engine.persisted()], [persisted; 2]);
    assert_eq!(all(engine.as_ref(), ReadAt::Applied, 9), model.rows(persisted.lsn));
}

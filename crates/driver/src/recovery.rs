//! What a node that starts makes of what its log and its disks have of a replica.

use replica::history::History;
use replica::{Note, Recovered, Replica};
use std::fmt::Display;
use types::{Engine, Lsn, Member, PartitionId, Rules};
use wal::RecoveredPartition;
use wire::Entry;

/// What the log has of a replica that is opened.
#[derive(Clone, Copy, Debug)]
pub enum InLog<'a> {
    /// This.
    Found(&'a RecoveredPartition),
    /// Nothing, but its files were there: all of it was lost, or nothing was ever acknowledged.
    Nothing,
    /// Nothing, and the opening found damage that may have taken it.
    Lost,
    /// Nothing, and the opening cut a torn end off that may have held all of it (PR-18).
    Torn,
    /// Nothing: the replica is new.
    New,
}

/// An engine, and what became of the one on the disk.
pub struct OpenEngine {
    /// What the replica begins with.
    pub engine: Box<dyn Engine>,
    /// Why the one on the disk cannot be used: this is an empty one.
    pub broken: Option<String>,
    /// There is no place for it: this one keeps nothing.
    pub storage_lost: bool,
}

/// A replica that is open.
pub struct Reopened {
    /// It has executed what its log has, as far as that can be read.
    pub replica: Replica,
    /// Why the rest cannot be read. It is damaged then anyhow.
    pub unread: Option<String>,
}

/// What the log has of a replica with files, which was not made just now: whether damage may have cost all
/// of it ([`wal::Recovered::unknown_damaged`]), or a torn end ([`wal::Recovered::may_have_torn`]).
pub fn in_log(found: Option<&RecoveredPartition>, (lost, torn): (bool, bool)) -> InLog<'_> {
    match found {
        Some(found) => InLog::Found(found),
        None if lost => InLog::Lost,
        None if torn => InLog::Torn,
        None => InLog::Nothing,
    }
}

/// Opens a replica, and executes what its log has above the engine's files. `read` gives entries from an LSN
/// on, at least one. The error says why entries that are needed cannot be read.
pub fn open<E: Display>(
    (me, id, rules): (Member, PartitionId, Rules),
    engine: OpenEngine,
    in_log: InLog<'_>,
    mut read: impl FnMut(Lsn) -> Result<Vec<Entry>, E>,
) -> Result<Reopened, String> {
    let OpenEngine { engine, broken, storage_lost } = engine;
    let recovered = Recovered { storage_lost, ..recovered(in_log, engine.persisted().lsn, broken) };
    let mut replica = Replica::recover(me, id, rules, engine, recovered);
    let mut unread = None;
    while let Some(next) = replica.log().to_replay() {
        match read(next) {
            Ok(entries) => replica.replay(entries),
            Err(error) if replica.is_damaged() => {
                unread = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(Reopened { replica, unread })
}

/// What the replica is told. `persisted`: how far the engine's files go. `broken`: what is wrong with them.
fn recovered(in_log: InLog<'_>, persisted: Lsn, broken: Option<String>) -> Recovered {
    let mut recovered = match in_log {
        InLog::Found(found) => translate(found),
        InLog::Nothing | InLog::Lost | InLog::Torn | InLog::New => Recovered::nothing(),
    };
    recovered.torn |= match in_log {
        InLog::Torn => true,
        // An engine's files without a word in the log: whatever followed them there is gone (PR-18).
        InLog::Nothing => persisted > Lsn::ZERO,
        _ => false,
    };
    if matches!(in_log, InLog::Lost) {
        recovered.damaged = Some("what the log had of it is lost".into());
    }
    recovered.damaged = recovered.damaged.or(broken);
    recovered
}

fn translate(found: &RecoveredPartition) -> Recovered {
    let custom = |note: Note| found.custom.get(&(note as u16));
    let mut damaged = found.damaged.as_ref().map(ToString::to_string);
    let mut history = match custom(Note::History).map(|bytes| History::decode(bytes)) {
        Some(Ok(history)) => history,
        Some(Err(error)) => {
            damaged.get_or_insert(error);
            History::default()
        }
        None => History::default(),
    };
    // The note may have come further than the entries when the end of the log was torn.
    history.truncate(found.end.lsn);
    Recovered {
        base: found.base,
        base_crc: found.base_crc,
        end: found.end,
        end_crc: found.end_crc,
        history,
        secured: custom(Note::Secured).map_or(Lsn::ZERO, |bytes| lsn(bytes).min(found.end.lsn)),
        torn: found.torn_end,
        damaged,
        whole: found.damaged.is_none(),
        storage_lost: false,
    }
}

fn lsn(bytes: &[u8]) -> Lsn {
    bytes.first_chunk().map_or(Lsn::ZERO, |eight| Lsn(u64::from_le_bytes(*eight)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use types::{Epoch, Position, Term};

    fn found(end: u64, custom: &[(Note, Vec<u8>)]) -> RecoveredPartition {
        let value = |(note, bytes): &(Note, Vec<u8>)| (*note as u16, bytes.clone().into());
        RecoveredPartition {
            base: Position::ZERO,
            base_crc: 0,
            end: Position::new(Term(2), Lsn(end)),
            end_crc: 7,
            promised: Epoch(2),
            custom: custom.iter().map(value).collect(),
            damaged: None,
            torn_end: false,
        }
    }

    #[test]
    fn pr18_what_the_log_does_not_have_is_torn_or_damage_or_nothing() {
        // What the log has, how far the files go, and whether the end is torn and the replica damaged.
        let whole = found(5, &[]);
        let cases = [
            (InLog::Found(&whole), 3, (false, false)),
            (InLog::Nothing, 0, (false, false)),
            (InLog::Nothing, 3, (true, false)),
            (InLog::Torn, 0, (true, false)),
            (InLog::Torn, 3, (true, false)),
            (InLog::Lost, 0, (false, true)),
            (InLog::Lost, 3, (false, true)),
            (InLog::New, 3, (false, false)),
        ];
        for (in_log, persisted, expected) in cases {
            let told = recovered(in_log, Lsn(persisted), None);
            assert_eq!((told.torn, told.damaged.is_some()), expected, "{in_log:?} {persisted}");
            let broken = recovered(in_log, Lsn(persisted), Some("its files are broken".into()));
            assert!(broken.damaged.is_some(), "{in_log:?} {persisted}");
        }
    }

    #[test]
    fn notes_that_came_further_than_the_entries_are_truncated() {
        let mut history = History::new(vec![(Term(1), Lsn(1)), (Term(2), Lsn(9))]).expect("in order");
        let notes =
            [(Note::History, history.encode().to_vec()), (Note::Secured, 8u64.to_le_bytes().to_vec())];
        let told = recovered(InLog::Found(&found(5, &notes)), Lsn::ZERO, None);
        assert_eq!(told.secured, Lsn(5));
        history.truncate(Lsn(5));
        assert_eq!(told.history, history);
        let nonsense = [(Note::History, vec![1, 2, 3])];
        assert!(recovered(InLog::Found(&found(5, &nonsense)), Lsn::ZERO, None).damaged.is_some());
    }

    #[test]
    fn r10_what_may_have_been_lost_as_a_whole_is_not_taken_for_what_was_never_there() {
        let (p, q) = (PartitionId(64), PartitionId(65));
        let log = BTreeMap::from([(p, found(5, &[]))]);
        assert!(matches!(in_log(log.get(&p), (true, true)), InLog::Found(_)));
        assert!(matches!(in_log(log.get(&q), (true, true)), InLog::Lost));
        assert!(matches!(in_log(log.get(&q), (false, true)), InLog::Torn));
        assert!(matches!(in_log(log.get(&q), (false, false)), InLog::Nothing));
    }
}

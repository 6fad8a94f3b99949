//! Bulk loads (`types::bulk`, PR-39): the files are staged on every replica that counts, one entry marks
//! them, and each replica installs them at the entry's turn.
//!
//! A replica takes the entry only with the files of the load durable beside its engine, so `received` means
//! staged. Until the files are part of the engine's own state, nothing from the entry on is published. The
//! primary installs them by a flush once the entry is committed and secured, and only then does its
//! `committed` pass the entry: what is told and read as committed is in the files. Members follow by the
//! primary's next set, of which they have the load's files already. A primary that dies after the entry was
//! committed leaves it to the next one, which has the files, too.

use crate::marks::Marks;
use crate::output::{ClientRef, Origin, Output};
use crate::unfit::Unfit;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use types::bulk::load_key;
use types::engine::{mutation_fault, space};
use types::{
    Component, Engine, EngineError, KeySpace, LoadId, Lsn, Member, Micros, Mutation, ReadAt, Rules, Staging,
};
use wire::bulk::{LoadMark, StageAnswer, StageLoad, StagePiece};
use wire::entry::Kind;
use wire::{Entry, Op, PeerMessage, Request, Status};

/// So many loads are staged at once.
pub(crate) const MAX_LOADS: usize = 8;
/// Members are waited for so long.
const ANSWERS: Micros = Micros::from_millis(1_000);
/// What a member said holds for so long.
const FRESH: Micros = Micros::from_millis(5_000);
/// A load waits so long for merges that run.
const SETTLES: Micros = Micros::from_millis(10_000);

/// Names what a primary stages at a member by itself, in place of a number.
pub(crate) const OURS: u64 = 0;
/// A piece of a file that it sends then, in bytes, and how many at once.
pub(crate) const PIECE: usize = 256 << 10;
const MAX_PIECES_IN_FLIGHT: usize = 8;

/// What a replica knows of loads beside its engine's files.
///
/// Invariants (`validate`): the loads that entries name are in the order of those entries, and none is behind
/// the log's end.
#[derive(Debug, Default)]
pub(crate) struct BulkLoads {
    /// When each was last asked for.
    touched: BTreeMap<LoadId, Micros>,
    /// Those that entries of the log name. An engine that follows its log later does not know of them.
    named: Vec<(Lsn, LoadId)>,
    /// A primary's: what members said, and who waits for it.
    asked: BTreeMap<LoadId, Asked>,
    number: u64,
    /// Since when loads wait for the engine.
    unsettled: Option<Micros>,
    /// When a checkpoint was last asked for, and what was persisted then.
    checkpoint: (Micros, Lsn),
}

#[derive(Debug)]
struct Asked {
    number: u64,
    since: Micros,
    told: BTreeMap<Member, Staging>,
    waiting: Vec<(ClientRef, Request)>,
}

impl BulkLoads {
    /// Stages the files of a load here.
    pub fn stage(
        &mut self,
        engine: &mut dyn Engine,
        now: Micros,
        (load, files): (LoadId, &[Component]),
    ) -> Result<(), EngineError> {
        self.touched.insert(load, now);
        stage(engine, load, files).map(|_| ())
    }

    /// A client waits for what the members say of a load. Gives the number of the question to them.
    pub fn ask(&mut self, now: Micros, load: LoadId, who: (ClientRef, Request)) -> u64 {
        self.number += 1;
        let number = self.number;
        let asked = self.asked.remove(&load);
        let mut waiting = asked.map(|asked| asked.waiting).unwrap_or_default();
        waiting.push(who);
        self.asked.insert(load, Asked { number, since: now, told: BTreeMap::new(), waiting });
        number
    }

    /// How far a load is on all of `members` and here, and who waits to hear it; none before all of them have
    /// said it.
    pub fn staged_everywhere(
        &mut self,
        engine: &mut dyn Engine,
        members: &BTreeSet<Member>,
        load: LoadId,
    ) -> Result<Option<(Staging, Waiting)>, EngineError> {
        let Some(asked) = self.asked.get_mut(&load) else { return Ok(None) };
        let told: Option<Vec<Staging>> =
            members.iter().map(|member| asked.told.get(member).cloned()).collect();
        let files = asked.waiting.iter().find_map(|(_, request)| match &request.op {
            Op::Stage { files, .. } => Some(files),
            _ => None,
        });
        let (Some(told), Some(files)) = (told, files) else { return Ok(None) };
        let own = match stage(engine, load, files) {
            Ok(own) => own,
            Err(EngineError::Full(_) | EngineError::Later(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let staging = told.into_iter().fold(own, least);
        Ok(Some((staging, std::mem::take(&mut asked.waiting))))
    }

    /// A piece of a staged file.
    pub fn take_piece(
        &mut self,
        engine: &mut dyn Engine,
        now: Micros,
        (load, file, at, bytes): (LoadId, u32, u64, &Bytes),
    ) -> Result<(), EngineError> {
        self.touched.insert(load, now);
        let Some(staging) = engine.staging_mut() else { return Ok(()) };
        staging.stage_piece(load, file as usize, at, bytes).map(|_| ())
    }

    /// Why the entry cannot be made now, if so.
    pub fn not_staged(
        &mut self,
        engine: &dyn Engine,
        now: Micros,
        (load, digest): (LoadId, [u8; 16]),
        (members, first): (&BTreeSet<Member>, bool),
    ) -> Option<NotStaged> {
        if engine.pending_load().is_some() {
            return Some(NotStaged::Another);
        }
        if engine.staging().is_some_and(|staging| !staging.is_settled()) {
            let since = *self.unsettled.get_or_insert(now);
            if now.since(since) < SETTLES {
                return Some(NotStaged::Unsettled);
            }
        }
        self.unsettled = None;
        let own = engine.staged(load).is_some_and(|staged| staged.digest == digest);
        let ready = |asked: &&Asked| {
            let ready = |told: Option<&Staging>| matches!(told, Some(Staging::Ready(staged)) if staged.digest == digest);
            now.since(asked.since) < FRESH && members.iter().all(|member| ready(asked.told.get(member)))
        };
        let everywhere = self.asked.get(&load).filter(ready).is_some();
        let staged = own && (everywhere || !first);
        (!staged).then_some(NotStaged::Somewhere)
    }

    /// How far `committed` may go of what is reached: not past a load that is not in the files here. One that
    /// is committed and secured is installed: true if a checkpoint is to be begun for it now.
    pub fn bound(
        &mut self,
        engine: &mut dyn Engine,
        marks: &Marks,
        marker: Option<Lsn>,
        reached: Lsn,
        (now, again): (Micros, Micros),
    ) -> (Lsn, bool) {
        let Some(at) = engine.pending_load() else { return (reached, false) };
        let covered = marker.is_some_and(|marker| reached >= marker) && reached >= at.lsn;
        let mut due = false;
        // What an older term is known to have committed stays so, whoever may commit now.
        if marks.secured() >= at.lsn && (covered || marks.committed() >= at.lsn) {
            if let Some(staging) = engine.staging_mut() {
                staging.allow_load(at.lsn);
            }
            let persisted = engine.persisted().lsn;
            let (asked_at, before) = self.checkpoint;
            due = persisted != before || now.since(asked_at) >= again;
            if due {
                self.checkpoint = (now, persisted);
            }
        }
        (reached.min(at.lsn.prev()), due)
    }

    /// An entry was taken in: the files that it names stay until they are part of the engine's own.
    pub fn note(&mut self, entry: &Entry) {
        if entry.header().kind == Kind::Bulk
            && let Ok(mark) = LoadMark::decode(entry.payload())
        {
            assert!(
                self.named.last().is_none_or(|(lsn, _)| *lsn < entry.lsn()),
                "PR-39: {} names a load that is noted already",
                entry.at()
            );
            self.named.push((entry.lsn(), mark.load));
        }
    }

    /// Entries above `to` are gone.
    pub fn forget_above(&mut self, to: Lsn) {
        self.named.retain(|(lsn, _)| *lsn <= to);
    }

    /// Removes the files of a load that no entry of the log names.
    pub fn remove(&mut self, engine: &mut dyn Engine, load: LoadId) -> Result<(), EngineError> {
        let persisted = engine.persisted().lsn;
        self.named.retain(|(lsn, _)| *lsn > persisted);
        match self.named.iter().any(|(_, named)| *named == load) {
            true => Ok(()),
            false => engine.staging_mut().map_or(Ok(()), |staging| staging.unstage(load)),
        }
    }

    /// The load that the entry at `lsn` names.
    pub fn named_at(&self, lsn: Lsn) -> Option<LoadId> {
        self.named.iter().find(|(at, _)| *at == lsn).map(|(_, load)| *load)
    }

    /// A primary has files staged here: how far that is, if it is to be told. What an entry of its log names
    /// has to come in, however much is staged here (PR-356): this member's log ends below that entry until
    /// then, and what would make room may wait for this very member.
    pub fn take_stage(
        &mut self,
        engine: &mut dyn Engine,
        now: Micros,
        (number, load, files): (u64, LoadId, &[Component]),
    ) -> Result<Option<Staging>, EngineError> {
        let known = engine.loads();
        let too_many = number != OURS && !known.contains(&load) && known.len() >= 2 * MAX_LOADS;
        let staging = match loaded_at(engine, load) {
            Ok(Some(_)) => return Ok(None),
            Ok(None) if too_many => Staging::Refused("a member has too many loads already".into()),
            Ok(None) => match stage(engine, load, files) {
                Ok(staging) => staging,
                Err(EngineError::Full(error)) => Staging::Refused(format!("a member has no room: {error}")),
                // It is asked again.
                Err(EngineError::Later(_)) => return Ok(None),
                Err(error) => return Err(error),
            },
            Err(EngineError::Later(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.touched.insert(load, now);
        Ok(Some(staging))
    }

    /// A member says how far it is. False if it answers an older question.
    pub fn hear(&mut self, told: StageAnswer) -> bool {
        let asked = self.asked.get_mut(&told.load).filter(|asked| asked.number == told.number);
        asked.map(|asked| asked.told.insert(told.from, told.staging)).is_some()
    }

    /// Time has passed: what nobody wants is removed. Gives who waits for members that do not answer.
    pub fn tick(
        &mut self,
        engine: &mut dyn Engine,
        now: Micros,
        unasked: Micros,
    ) -> Result<Waiting, EngineError> {
        let known = engine.loads();
        self.touched.retain(|load, _| known.contains(load));
        for load in known {
            let touched = *self.touched.entry(load).or_insert(now);
            if now.since(touched) >= unasked {
                self.remove(engine, load)?;
            }
        }
        let late = |asked: &&mut Asked| now.since(asked.since) >= ANSWERS;
        let late = self.asked.values_mut().filter(late);
        let waiting = late.flat_map(|asked| std::mem::take(&mut asked.waiting)).collect();
        self.asked.retain(|_, asked| !asked.waiting.is_empty() || now.since(asked.since) < FRESH);
        Ok(waiting)
    }

    /// This replica leads no more. Gives all who wait.
    pub fn stop(&mut self) -> Waiting {
        std::mem::take(&mut self.asked).into_values().flat_map(|asked| asked.waiting).collect()
    }

    /// What must hold of them in a log that ends at `end`.
    pub fn validate(&self, end: Lsn) -> Result<(), String> {
        if self.named.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(format!("loads are not named in the order of the log: {:?}", self.named));
        }
        if let Some((lsn, load)) = self.named.last().filter(|(lsn, _)| *lsn > end) {
            return Err(format!("load {load} is named by entry {lsn}, behind the log's end {end}"));
        }
        match self.asked.values().find(|asked| asked.number > self.number) {
            Some(asked) => Err(format!("question {} about a load is not asked yet", asked.number)),
            None => Ok(()),
        }
    }
}

/// Stages files, where that can be done.
fn stage(engine: &mut dyn Engine, load: LoadId, files: &[Component]) -> Result<Staging, EngineError> {
    match engine.staging_mut() {
        Some(staging) => staging.stage(load, files),
        None => Ok(Staging::Refused("this engine has no files".into())),
    }
}

/// Clients that wait for an answer.
pub(crate) type Waiting = Vec<(ClientRef, Request)>;

/// Why the entry of a load cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotStaged {
    Another,
    Unsettled,
    Somewhere,
}

impl NotStaged {
    pub fn words(self, load: LoadId) -> String {
        match self {
            NotStaged::Another => "another bulk load is being installed".into(),
            NotStaged::Unsettled => "what is in memory is written to disk first".into(),
            NotStaged::Somewhere => format!("load {load} is not staged on every replica that counts"),
        }
    }
}

/// Where a load became part of the state, as executed so far.
pub(crate) fn loaded_at(engine: &dyn Engine, load: LoadId) -> Result<Option<Lsn>, EngineError> {
    Ok(engine.get(&load_key(load), ReadAt::Applied)?.map(|(lsn, _)| lsn))
}

/// Why writes have to wait, if a load is on its way into the engine's files: they would be evaluated on a
/// state without its rows. In a database all that its tables write waits (PR-448).
pub(crate) fn loading(engine: &dyn Engine) -> Option<Status> {
    let why = || Status::NotYet("a bulk load is being installed".into());
    engine.pending_load().map(|_| why())
}

/// True if all rows of a load that is staged are of the table with these keys (PR-449). What is not staged
/// has no rows.
pub(crate) fn is_of_table(engine: &dyn Engine, load: LoadId, keys: KeySpace) -> Result<bool, EngineError> {
    let range = engine.staging().map_or(Ok(None), |staging| staging.staged_keys(load))?;
    Ok(range.is_none_or(|(lowest, highest)| keys.has(&lowest) && keys.has(&highest)))
}

/// What reads may see of what is committed.
pub(crate) fn readable(engine: &dyn Engine, committed: Lsn) -> Lsn {
    engine.pending_load().map_or(committed, |at| committed.min(at.lsn.prev()))
}

/// The entry's load, if it is staged here (PR-39).
pub(crate) fn staged_load(engine: &dyn Engine, rules: Rules, entry: &Entry) -> Result<LoadMark, Unfit> {
    let mark = LoadMark::decode(entry.payload()).map_err(Unfit::Entry)?;
    let fits = |mutation: &Mutation| {
        mutation.key.first() == Some(&space::PARTITION) && mutation_fault(mutation).is_none()
    };
    if !mark.effects.mutations.iter().all(fits) {
        let at = entry.at();
        return Err(Unfit::Entry(format!("the entry at {at} about a load changes something else")));
    }
    let staged = engine.staged(mark.load).is_some_and(|staged| staged.digest == mark.digest);
    if !staged && rules.loads_are_staged_first() {
        return Err(Unfit::Unstaged(format!("PR-39: the files of load {} are not here", mark.load)));
    }
    Ok(mark)
}

/// What a primary stages at a member by itself, if it has the files of this load.
pub(crate) fn stage_of_ours(engine: &dyn Engine, from: &Origin, load: LoadId) -> Option<PeerMessage> {
    let files = engine.staging()?.staged_files(load);
    let stage = || from.stage(OURS, load, files.clone());
    (!files.is_empty()).then(stage)
}

/// The next pieces of what a primary stages at a member by itself.
pub(crate) fn pieces_of_ours(
    engine: &mut dyn Engine,
    from: &Origin,
    told: &StageAnswer,
    most: usize,
    out: &mut Vec<Output>,
) -> Result<(), EngineError> {
    let Staging::Wants { file, from: first } = told.staging else { return Ok(()) };
    let Some(staging) = engine.staging() else { return Ok(()) };
    let mut at = first;
    for _ in 0..MAX_PIECES_IN_FLIGHT {
        let bytes = match staging.read_staged(told.load, file as usize, at, most) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(EngineError::Later(_)) => break,
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            break;
        }
        let next = at + bytes.len() as u64;
        let piece = from.stage_piece(told.load, (file, at), bytes);
        out.push(Output::Send { to: told.from, message: piece });
        at = next;
    }
    if let Some(message) = stage_of_ours(engine, from, told.load) {
        out.push(Output::Send { to: told.from, message });
    }
    Ok(())
}

impl Origin {
    pub(crate) fn stage(&self, number: u64, load: LoadId, files: Vec<Component>) -> PeerMessage {
        let Origin { partition, epoch, me: from } = *self;
        PeerMessage::StageLoad(StageLoad { partition, epoch, from, number, load, files })
    }

    pub(crate) fn stage_piece(&self, load: LoadId, (file, at): (u32, u64), bytes: Bytes) -> PeerMessage {
        let Origin { partition, epoch, me: from } = *self;
        PeerMessage::StagePiece(StagePiece { partition, epoch, from, load, file, at, bytes })
    }
}

/// The one of two that is less far.
fn least(one: Staging, other: Staging) -> Staging {
    match (one, other) {
        (Staging::Refused(why), _) | (_, Staging::Refused(why)) => Staging::Refused(why),
        (Staging::Wants { file, from }, Staging::Wants { file: other, from: behind }) => {
            let (file, from) = (file, from).min((other, behind));
            Staging::Wants { file, from }
        }
        (Staging::Wants { file, from }, _) | (_, Staging::Wants { file, from }) => {
            Staging::Wants { file, from }
        }
        (Staging::Checking, _) | (_, Staging::Checking) => Staging::Checking,
        (Staging::Ready(one), Staging::Ready(_)) => Staging::Ready(one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeEngine, at};
    use types::engine::StagesLoads;
    use types::{NodeId, PartitionId, Staged};
    use wire::{Effects, Header};

    const LOAD: LoadId = LoadId(LoadId::LEAST);
    const READY: Staged = Staged { digest: [1; 16], rows: 3 };

    fn member() -> Member {
        Member { node: NodeId(2), ..crate::fake::member() }
    }

    fn asks(loads: &mut BulkLoads, engine: &mut FakeEngine, now: Micros) -> u64 {
        let op = Op::Stage { load: LOAD, files: Vec::new() };
        let who = (ClientRef { connection: 1, request: 1 }, crate::fake::request(op));
        loads.stage(engine, now, (LOAD, &[])).expect("it has room");
        loads.ask(now, LOAD, who)
    }

    fn tells(number: u64, staging: Staging) -> StageAnswer {
        let (partition, epoch) = (PartitionId(1), types::Epoch(1));
        StageAnswer { partition, epoch, from: member(), number, load: LOAD, staging }
    }

    fn entry(lsn: u64) -> Entry {
        let (request_hash, confirmed, outcome, affected, mutations) = (0, 0, 0, 0, Vec::new());
        let effects = Effects { request_hash, confirmed, outcome, affected, mutations };
        let mark = LoadMark { load: LOAD, digest: READY.digest, effects };
        Entry::encode(Header::new(Kind::Bulk, PartitionId(1), at(lsn), 0), &mark.encode())
    }

    #[test]
    fn who_asks_hears_the_least_of_what_all_members_say() {
        let (mut loads, mut engine) = (BulkLoads::default(), FakeEngine::new());
        let members = BTreeSet::from([member()]);
        let old = asks(&mut loads, &mut engine, Micros(1));
        let number = asks(&mut loads, &mut engine, Micros(2));
        assert!(!loads.hear(tells(old, Staging::Checking)), "it answers an older question");
        assert!(loads.staged_everywhere(&mut engine, &members, LOAD).expect("no error").is_none());
        engine.loads = vec![(LOAD, Staging::Ready(READY))];
        assert!(loads.hear(tells(number, Staging::Checking)));
        let staged = loads.staged_everywhere(&mut engine, &members, LOAD).expect("no error");
        let (staging, waiting) = staged.expect("all have answered");
        assert_eq!((staging, waiting.len()), (Staging::Checking, 2));
        loads.validate(Lsn::ZERO).expect("valid");
    }

    #[test]
    fn pr39_the_entry_waits_until_all_who_count_are_ready() {
        let (mut loads, mut engine) = (BulkLoads::default(), FakeEngine::new());
        let members = BTreeSet::from([member()]);
        let number = asks(&mut loads, &mut engine, Micros(1));
        engine.loads = vec![(LOAD, Staging::Ready(READY))];
        let load = (LOAD, READY.digest);
        let why = |loads: &mut BulkLoads, engine: &FakeEngine, now: Micros| {
            loads.not_staged(engine, now, load, (&members, true))
        };
        assert_eq!(why(&mut loads, &engine, Micros(2)), Some(NotStaged::Somewhere));
        loads.hear(tells(number, Staging::Ready(READY)));
        assert_eq!(why(&mut loads, &engine, Micros(2)), None);
        assert_eq!(why(&mut loads, &engine, Micros(1) + FRESH), Some(NotStaged::Somewhere), "long ago");
        engine.settled = false;
        assert_eq!(why(&mut loads, &engine, Micros(2)), Some(NotStaged::Unsettled));
        assert_eq!(why(&mut loads, &engine, Micros(2) + SETTLES), Some(NotStaged::Somewhere));
        engine.pending = Some(at(4));
        assert_eq!(why(&mut loads, &engine, Micros(2)), Some(NotStaged::Another));
    }

    #[test]
    fn what_an_entry_names_stays_until_it_is_in_the_files() {
        let (mut loads, mut engine) = (BulkLoads::default(), FakeEngine::new());
        asks(&mut loads, &mut engine, Micros(1));
        loads.note(&entry(4));
        assert_eq!(loads.named_at(Lsn(4)), Some(LOAD));
        loads.remove(&mut engine, LOAD).expect("no error");
        assert_eq!(engine.loads(), [LOAD]);
        loads.validate(Lsn(4)).expect("valid");
        assert!(loads.validate(Lsn(3)).is_err(), "the entry is not in the log");
        loads.forget_above(Lsn(3));
        loads.remove(&mut engine, LOAD).expect("no error");
        assert_eq!(engine.loads(), []);
    }

    #[test]
    fn pr356_what_the_primarys_log_names_is_staged_however_much_is_here() {
        let (mut loads, mut engine) = (BulkLoads::default(), FakeEngine::new());
        let others = (1..=2 * MAX_LOADS as u64).map(|other| LoadId(LoadId::LEAST + other));
        engine.loads = others.map(|other| (other, Staging::Ready(READY))).collect();
        let mut stage =
            |number: u64| loads.take_stage(&mut engine, Micros(1), (number, LOAD, &[])).expect("no error");
        assert!(matches!(stage(1), Some(Staging::Refused(_))), "a client's load can wait");
        assert_eq!(stage(OURS), Some(Staging::Wants { file: 0, from: 0 }));
        assert_eq!(stage(1), Some(Staging::Wants { file: 0, from: 0 }), "it is here now");
    }

    #[test]
    fn nobody_waits_for_ever_and_what_nobody_wants_goes() {
        let (mut loads, mut engine) = (BulkLoads::default(), FakeEngine::new());
        asks(&mut loads, &mut engine, Micros(1));
        let unasked = Micros(ANSWERS.0 * 2);
        assert_eq!(loads.tick(&mut engine, Micros(2), unasked).expect("no error").len(), 0);
        assert_eq!(loads.tick(&mut engine, Micros(1) + ANSWERS, unasked).expect("no error").len(), 1);
        assert_eq!(engine.loads(), [LOAD]);
        assert_eq!(loads.tick(&mut engine, Micros(1) + unasked, unasked).expect("no error").len(), 0);
        assert_eq!(engine.loads(), []);
        asks(&mut loads, &mut engine, Micros(9));
        assert_eq!(loads.stop().len(), 1);
    }

    #[test]
    fn pr39_committed_stops_below_a_load_that_is_installed_once_it_may_be() {
        let (mut loads, mut engine) = (BulkLoads::default(), FakeEngine::new());
        let mut bound = |engine: &mut FakeEngine, secured: u64, marker: Option<Lsn>, now: u64| {
            let marks = Marks::new(Lsn(3), Lsn(secured));
            loads.bound(engine, &marks, marker, Lsn(9), (Micros(now), Micros(100)))
        };
        let marker = Some(Lsn(2));
        assert_eq!(bound(&mut engine, 9, marker, 200), (Lsn(9), false), "there is none");
        engine.pending = Some(at(5));
        assert_eq!(bound(&mut engine, 4, marker, 200), (Lsn(4), false), "it is not secured");
        assert_eq!(bound(&mut engine, 9, None, 200), (Lsn(4), false), "the term has committed nothing");
        assert_eq!(engine.allowed, Lsn::ZERO);
        assert_eq!(bound(&mut engine, 9, marker, 200), (Lsn(4), true));
        assert_eq!(engine.allowed, Lsn(5));
        assert_eq!(bound(&mut engine, 9, marker, 201), (Lsn(4), false), "it was asked for just now");
        assert_eq!(bound(&mut engine, 9, marker, 300), (Lsn(4), true));
    }
}

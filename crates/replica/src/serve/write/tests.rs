//! Tests of what requests make of the log, one by one.

use super::*;
use crate::answer::When;
use crate::context::Identity;
use crate::fake::{FakeEngine, at, member, request};
use crate::recovered::Recovered;
use types::config::{Cause, FORMAT};
use types::{Epoch, LogKind, NodeId, PartitionId, ProposalId, SessionId, TableId};

fn record() -> PartitionRecord {
    PartitionRecord {
        format: FORMAT,
        id: PartitionId(1),
        table: TableId(1),
        epoch: Epoch(1),
        primary: member(),
        term: Term(1),
        in_sync: vec![member()],
        catching_up: Vec::new(),
        policy: Policy::preset("sync", 1, LogKind::Disk).expect("a preset"),
        next_policy: None,
        proposal: ProposalId(0),
        cause: Cause::InSync,
        before: None,
        failover: None,
        lossy: false,
        unknown: Default::default(),
    }
}

fn with<T>(record: &PartitionRecord, data: &mut Data, act: impl FnOnce(&mut Writing) -> T) -> T {
    let (mut indexes, settings) = (KnownIndexes::default(), Settings::default());
    let mut catalog = KnownCatalog::default();
    act(&mut Writing {
        record,
        term: record.term,
        rules: Rules::ALL,
        data,
        indexes: &mut indexes,
        catalog: &mut catalog,
        commits: &mut Default::default(),
        calls: &mut Calls::default(),
        ships_calls: false,
        waiting: 0,
        now: Now::default(),
        settings: &settings,
        out: &mut Vec::new(),
    })
}

fn data() -> Data {
    data_in(FakeEngine::new())
}

fn data_in(engine: FakeEngine) -> Data {
    let identity = Identity { me: member(), id: PartitionId(1), rules: Rules::ALL };
    Data::recover(identity, Box::new(engine), &Recovered::nothing(), false)
}

#[test]
fn n7_an_answer_tells_of_its_entry_and_waits_for_it_and_a_retry_is_told_the_same() {
    let (record, mut data) = (record(), data());
    let opened = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    assert_eq!((opened.entry, opened.when), (Some(at(1)), When::Covered(at(1).lsn, AckCondition::Entry)));
    let mut asked = request(Op::OpenSession);
    (asked.session, asked.seq) = (SessionId(at(1)), 1);
    let ops = [RowOp::Put { key: "k".into(), row: "row".into() }];
    let mut write = || with(&record, &mut data, |writing| writing.write(&asked, &ops, (None, None)));
    let written = write().expect("no error");
    assert_eq!((written.status.clone(), written.entry), (Status::Ok, Some(at(2))));
    let again = write().expect("no error");
    assert_eq!((again.status, again.body, again.entry), (written.status, written.body, written.entry));
    assert_eq!(data.log.end(), at(2), "a retry makes no entry");
}

#[test]
fn pr21_too_few_copies_make_no_entry() {
    let (mut record, mut data) = (record(), data());
    (record.policy.min_in_sync, record.policy.below) = (2, types::policy::Below::Strict);
    let refused = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let Status::TooFewCopies(why) = &refused.status else { panic!("{refused:?}") };
    assert!(why.contains("(on n1); start the other nodes if they do not run"), "{why}");
    assert_eq!(data.log.end(), Position::ZERO);
    // Who is waited for is named.
    record.catching_up.push(Member { node: NodeId(7), ..member() });
    let refused = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let Status::TooFewCopies(why) = &refused.status else { panic!("{refused:?}") };
    assert!(why.contains("(on n1); n7 is catching up: wait for it"), "{why}");
}

#[test]
fn pr120_a_stale_write_takes_its_number_and_a_retry_is_told_the_same() {
    let (record, mut data) = (record().of_database(), data());
    let columns = vec![types::data::Column::new("k", types::data::ColumnType::Int)];
    let schema = types::data::Schema::new(columns, &["k"], 1, false).expect("valid");
    let table = types::CatalogTable::new(TableId(7), "pets", schema, 0);
    let make = [TableChange::Create(wire::RecordText::new(&table))];
    let opened = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let session = SessionId(opened.entry.expect("an entry"));
    let asked = |table: u32, schema: u32, seq: u64| wire::Request {
        table: TableId(table),
        schema,
        session,
        seq,
        ..request(Op::OpenSession)
    };
    let made = |writing: &mut Writing| writing.transact(&asked(1, 0, 1), (&make, &[]), None);
    assert_eq!(with(&record, &mut data, made).expect("no error").status, Status::Ok);
    let ops = [RowOp::Put { key: "k".into(), row: "row".into() }];
    let mut write = |asked: wire::Request| {
        with(&record, &mut data, |writing| writing.write(&asked, &ops, (None, None))).expect("no error")
    };
    let stale = Status::Refused(Outcome::Stale);
    let refused = write(asked(7, 2, 2));
    assert_eq!(refused.status, stale);
    assert_eq!(write(asked(7, 2, 2)).entry, refused.entry, "a retry makes no entry");
    assert_eq!(write(asked(8, 1, 3)).status, stale, "no such table");
    assert_eq!(write(asked(7, 1, 4)).status, Status::Ok);
    let other = write(asked(8, 1, 4)).status;
    assert!(matches!(other, Status::Bad(_)), "the hash is of the table, too: {other:?}");
}

#[test]
fn pr400_rows_of_a_table_that_moves_are_not_written_and_who_copies_them_is_told_when() {
    let (mut record, mut data) = (record(), data());
    let opened = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let session = SessionId(opened.entry.expect("an entry"));
    let ops = [RowOp::Put { key: "k".into(), row: "row".into() }];
    let write = |record: &PartitionRecord, data: &mut Data, seq: u64| {
        let asked = wire::Request { session, seq, ..request(Op::OpenSession) };
        with(record, data, |writing| writing.write(&asked, &ops, (None, None))).expect("no error")
    };
    let confirmed = |record: &PartitionRecord, data: &mut Data, number: u32, closed: bool| {
        let confirm = |writing: &mut Writing| writing.confirm_hold(TableId(number), closed);
        let answer = with(record, data, confirm).expect("no error");
        assert!(matches!(answer.status, Status::Ok | Status::NotYet(_)), "{answer:?}");
        answer.entry
    };
    let read = |record: &PartitionRecord, data: &Data| {
        let of = (TableId(1), 1);
        let scope = Scope::of(data.engine.as_ref(), (record, Rules::ALL), of, ReadAt::Applied);
        scope.expect("no error").is_ok()
    };
    let before = record.policy.clone();
    let of = |version: u32, closed: bool| {
        let moves = types::Moves { number: TableId(7), into: None, closed };
        Policy { version, moves: Some(moves), ..before.clone() }
    };
    assert_eq!(write(&record, &mut data, 1).status, Status::Ok);
    // It is on its way: from here on nothing is written, and a retry is told the same.
    (record.epoch, record.next_policy) = (Epoch(2), Some(of(2, false)));
    let refused = write(&record, &mut data, 2);
    assert_eq!(refused.status, Status::Refused(Outcome::Stale));
    assert_eq!(write(&record, &mut data, 2).entry, refused.entry);
    assert_eq!(confirmed(&record, &mut data, 7, false), None, "the record may still be another one");
    (record.epoch, record.policy, record.next_policy) = (Epoch(3), of(2, false), None);
    let end = data.log.end();
    let at = confirmed(&record, &mut data, 7, false).expect("an entry");
    assert!(at > end && read(&record, &data));
    assert_eq!(write(&record, &mut data, 3).status, Status::Refused(Outcome::Stale));
    let load = (LoadId(1), [0; 16]);
    let asked = request(Op::OpenSession);
    let loaded = with(&record, &mut data, |writing| writing.load(&asked, load, &BTreeSet::new()));
    assert!(matches!(loaded.expect("no error").status, Status::NotYet(why) if why.contains("being copied")));
    for (number, closed) in [(7, true), (8, false)] {
        assert_eq!(confirmed(&record, &mut data, number, closed), None, "{number} {closed}");
    }
    // PR-403: nobody reads them any more either, from the configuration on that says so first.
    (record.epoch, record.next_policy) = (Epoch(4), Some(of(3, true)));
    assert!(!read(&record, &data) && confirmed(&record, &mut data, 7, true).is_none());
    (record.epoch, record.policy, record.next_policy) = (Epoch(5), of(3, true), None);
    assert!(!read(&record, &data) && confirmed(&record, &mut data, 7, true).is_some());
    // It is freed once that is in force.
    (record.epoch, record.next_policy) = (Epoch(6), Some(Policy { version: 4, ..before.clone() }));
    assert_eq!(write(&record, &mut data, 4).status, Status::Refused(Outcome::Stale));
    (record.epoch, record.policy, record.next_policy) = (Epoch(7), Policy { version: 4, ..before }, None);
    assert!(read(&record, &data) && confirmed(&record, &mut data, 7, false).is_none());
    assert_eq!(write(&record, &mut data, 5).status, Status::Ok);
}

#[test]
fn pr150_a_refusal_names_the_constraint_and_a_retry_is_told_the_same() {
    use types::data::{Column, ColumnType, Constraint, Demand, Row, Schema, Value};
    let (record, mut data) = (record().of_database(), data());
    let columns = vec![Column::new("k", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
    let unique = Constraint::new(77, "v", Demand::Unique(vec![1]));
    let schema = Schema::new(columns, &["k"], 1, false).expect("valid");
    let schema = schema.with_constraints(vec![unique]).expect("valid");
    let put = |key: i64, value: i64| {
        let row = Row::new(vec![Value::Int(key), Value::Int(value)]);
        let key = types::data::encode_key(&schema, &row.values[..1]).expect("a key");
        let row = types::data::encode_row(&schema, &row).expect("a row");
        RowOp::Put { key: key.into(), row: row.into() }
    };
    let table = types::CatalogTable::new(TableId(7), "pets", schema.clone(), 0);
    let make = [TableChange::Create(wire::RecordText::new(&table))];
    let opened = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let session = SessionId(opened.entry.expect("an entry"));
    let asked = |table: u32, seq: u64| {
        let schema = u32::from(table == 7);
        wire::Request { table: TableId(table), schema, session, seq, ..request(Op::OpenSession) }
    };
    let made = |writing: &mut Writing| writing.transact(&asked(1, 1), (&make, &[]), None);
    assert_eq!(with(&record, &mut data, made).expect("no error").status, Status::Ok);
    let mut write = |seq: u64, ops: Vec<RowOp>| {
        let write = |writing: &mut Writing| writing.write(&asked(7, seq), &ops, (None, None));
        with(&record, &mut data, write).expect("no error")
    };
    assert_eq!(write(2, vec![put(1, 10)]).status, Status::Ok);
    let refused = write(3, vec![put(2, 20), put(3, 10)]);
    assert_eq!(refused.status, Status::Refused(Outcome::Violates));
    assert_eq!(refused.body, Body::Affected(77));
    let at = refused.entry.expect("it takes its number");
    assert_eq!(
        refused.when,
        When::Covered(at.lsn, AckCondition::Entry),
        "PR-23: it shows what is not committed"
    );
    let again = write(3, vec![put(2, 20), put(3, 10)]);
    assert_eq!((again.status, again.body, again.entry), (refused.status, refused.body, Some(at)));
    assert_eq!(write(4, vec![put(2, 20)]).status, Status::Ok, "nothing of it was done");
}

/// A database with a table `pets` (7) whose column `v` is unique by constraint 77, and another one (8) alike
/// without it; a session; and how a row of them is put.
fn bank() -> (PartitionRecord, Data, SessionId, impl Fn(i64, i64) -> RowOp) {
    bank_in(FakeEngine::new())
}

fn bank_in(engine: FakeEngine) -> (PartitionRecord, Data, SessionId, impl Fn(i64, i64) -> RowOp) {
    use types::data::{Column, ColumnType, Constraint, Demand, Row, Schema, Value};
    let (record, mut data) = (record().of_database(), data_in(engine));
    let columns = vec![Column::new("k", ColumnType::Int).not_null(), Column::new("v", ColumnType::Int)];
    let plain = Schema::new(columns, &["k"], 1, false).expect("valid");
    let unique = Constraint::new(77, "v", Demand::Unique(vec![1]));
    let schema = plain.clone().with_constraints(vec![unique]).expect("valid");
    let make = [(7, "pets", &schema), (8, "towns", &plain)].map(|(id, name, schema)| {
        let table = types::CatalogTable::new(TableId(id), name, schema.clone(), 0);
        TableChange::Create(wire::RecordText::new(&table))
    });
    let opened = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let session = SessionId(opened.entry.expect("an entry"));
    let asked = asked_in(session, 1, 1, Op::OpenSession);
    let made = with(&record, &mut data, |writing| writing.transact(&asked, (&make, &[]), None));
    assert_eq!(made.expect("no error").status, Status::Ok);
    let put = move |key: i64, value: i64| {
        let row = Row::new(vec![Value::Int(key), Value::Int(value)]);
        let key = types::data::encode_key(&schema, &row.values[..1]).expect("a key");
        let row = types::data::encode_row(&schema, &row).expect("a row");
        RowOp::Put { key: key.into(), row: row.into() }
    };
    (record, data, session, put)
}

fn asked_in(session: SessionId, table: u32, seq: u64, op: Op) -> Request {
    Request { table: TableId(table), schema: u32::from(table > 1), session, seq, ..request(op) }
}

#[test]
fn pr181_records_of_a_job_keep_the_constraints_of_their_table_and_lie_in_it() {
    let (record, mut data, session, put) = bank();
    let job = JobId::new(1, 5);
    let piece = |table: u32, seq: u64, after: u64, rows: &[(i64, i64)]| {
        let record = |(at, (key, value)): (usize, &(i64, i64))| wire::job::JobRecord {
            number: after + 1 + at as u64,
            op: put(*key, *value),
        };
        let records = rows.iter().enumerate().map(record).collect();
        asked_in(session, table, seq, Op::Job { job, after, records })
    };
    let mut ask = |asked: &Request| with(&record, &mut data, |writing| writing.job(asked)).expect("no error");
    let done = |answer: &Answer| match answer.body {
        Body::Job(status) => status,
        ref other => panic!("{other:?}"),
    };
    // What a piece leaves behind counts: rows 1 and 2 have the same value for a moment.
    let first = ask(&piece(7, 2, 0, &[(1, 10), (2, 10), (1, 11)]));
    assert_eq!((first.status.clone(), done(&first).through), (Status::Ok, 3));
    let refused = piece(7, 3, 3, &[(4, 40), (5, 10), (6, 60)]);
    let answer = ask(&refused);
    assert_eq!(answer.status, Status::Refused(Outcome::Stopped));
    let told = done(&answer);
    assert_eq!((told.records, told.through), (4, 4), "record 4 is done, 5 and 6 are not");
    let why = told.refused.map(|refused| (refused.number, refused.outcome, refused.constraint));
    assert_eq!(why, Some((5, Outcome::Violates, 77)));
    let again = ask(&refused);
    let retried = done(&again);
    assert_eq!((again.status, retried), (answer.status, told), "a retry is told the same");
    let other = ask(&piece(8, 3, 3, &[(4, 40), (5, 10), (6, 60)]));
    assert!(matches!(other.status, Status::Bad(_)), "the hash is of the table, too: {other:?}");
    let gone = ask(&piece(9, 4, 4, &[(5, 50)]));
    assert_eq!((done(&gone).through, gone.status), (4, Status::Refused(Outcome::Stale)));
    let end = asked_in(session, 9, 5, Op::EndJob { job, through: 6, abort: true });
    assert_eq!(ask(&end).status, Status::Ok, "a table that is gone keeps no job from ending");
    let keys = |table: u32| {
        let (from, to) = KeySpace::Table(TableId(table)).range(&[], &[]);
        data.engine.scan(&from, &to, ReadAt::Applied, 100, usize::MAX).expect("reads").len()
    };
    assert_eq!((keys(7), keys(8)), (3, 0));
}

#[test]
fn pr180_a_feeds_position_is_of_its_table() {
    let (record, mut data, session, put) = bank();
    let feed = types::FeedId(5);
    let mut fed = |table: u32, seq: u64, position: u64| {
        let (ops, mark) = (vec![put(seq as i64, seq as i64)], Some(FeedMark { feed, position }));
        let asked = asked_in(session, table, seq, Op::Write { ops: ops.clone(), mark, since: None });
        let written = with(&record, &mut data, |writing| writing.write(&asked, &ops, (mark, None)));
        assert_eq!(written.expect("no error").status, Status::Ok);
    };
    fed(7, 2, 20);
    fed(8, 3, 1);
    fed(7, 4, 30);
    let position = |table: u32| {
        let row = data.engine.get(&KeySpace::Table(TableId(table)).feed_key(feed), ReadAt::Applied);
        let value = row.expect("reads").expect("a position").1;
        u64::from_le_bytes(value[..].try_into().expect("eight bytes"))
    };
    assert_eq!((position(7), position(8)), (30, 1), "the same name, and two feeds");
    // It goes with its table, by entries that every replica takes.
    let drop = [TableChange::Drop { table: TableId(7), schema: 1 }];
    let asked = asked_in(session, 1, 5, Op::OpenSession);
    let dropped = with(&record, &mut data, |writing| writing.transact(&asked, (&drop, &[]), None));
    assert_eq!(dropped.expect("no error").status, Status::Ok);
    for _ in 0..4 {
        let end = data.log.end().lsn;
        data.marks.commit(end, end);
        assert!(with(&record, &mut data, |writing| writing.tend_tables()).is_ok());
    }
    let (from, to) = KeySpace::Bare.feed_range();
    let left = data.engine.scan(&from, &to, ReadAt::Applied, 9, usize::MAX).expect("reads");
    let other = KeySpace::Table(TableId(8)).feed_key(feed);
    assert_eq!(left.iter().map(|row| &row.key).collect::<Vec<_>>(), [&other]);
}

/// The same database under global transactions. What its tables are like is in no log of the manager.
#[test]
fn pr362_a_change_of_tables_under_global_transactions_is_told_when_it_is_secured() {
    let (record, mut data, session, _) = bank();
    let mut global = record.clone();
    global.unknown.insert(PartitionRecord::TRANSACTIONS.into(), types::config::GLOBAL.into());
    assert!(global.is_global() && !record.is_global());
    let mut drops = |record: &PartitionRecord, table: u32, seq: u64| {
        let drop = [TableChange::Drop { table: TableId(table), schema: 1 }];
        let asked = asked_in(session, 1, seq, Op::OpenSession);
        let dropped = with(record, &mut data, |writing| writing.transact(&asked, (&drop, &[]), None));
        dropped.expect("no error")
    };
    let dropped = drops(&global, 7, 2);
    let at = dropped.entry.expect("an entry");
    let secured = When::Covered(at.lsn, AckCondition::Secured);
    assert_eq!((dropped.status, dropped.when), (Status::Ok, secured));
    assert_eq!(drops(&global, 7, 2).when, secured, "a retry is told no earlier");
    let plain = drops(&record, 8, 3);
    let at = plain.entry.expect("an entry");
    assert_eq!(plain.when, When::Covered(at.lsn, AckCondition::Entry), "elsewhere as its policy has it");
}

/// Who takes another client's session for its own, with its number, has not committed anything.
#[test]
fn pr47_two_clients_with_one_identity_do_not_get_each_others_commits() {
    use wire::ManagerOp;
    use wire::commit::{CommitAnswer, CommitRequest, PartitionWrites};
    let (mut record, mut data) = (record(), data());
    record.policy.factor = 1;
    let opened = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let session = SessionId(opened.entry.expect("an entry"));
    let commit = |key: &'static str| {
        let ops = vec![RowOp::Put { key: key.into(), row: "row".into() }];
        let part = TablePart { table: TableId(7), schema: 1, ops, seen: Vec::new() };
        let writes = vec![PartitionWrites { partition: PartitionId(64), parts: vec![part] }];
        CommitRequest { snapshot: Position::ZERO, writes }
    };
    let mut ask = |key: &'static str, seq: u64| {
        let asked = asked_in(session, 1, seq, Op::OpenSession);
        with(&record, &mut data, |writing| writing.commit(&asked, &ManagerOp::Commit(commit(key))))
            .expect("no error")
    };
    let first = ask("mine", 1);
    assert_eq!(first.status, Status::Ok);
    let other = ask("yours", 1);
    assert!(matches!(other.status, Status::Bad(_)), "{other:?}");
    let again = ask("mine", 1);
    assert_eq!((again.status, again.entry, &again.body), (Status::Ok, first.entry, &first.body));
    let previous = vec![(PartitionId(64), Position::ZERO)];
    assert_eq!(first.body, Body::Commit(CommitAnswer::Committed(previous)));
    let next = ask("yours", 2);
    assert!(next.status == Status::Ok && next.entry > first.entry);
}

/// A client that heard no answer to a commit asks for it: a copy that comes later than that does nothing.
#[test]
fn pr361_what_became_of_a_commit_is_told_and_what_was_not_executed_never_is() {
    use wire::ManagerOp;
    use wire::commit::{CommitRequest, PartitionWrites};
    let (mut record, mut data) = (record(), data());
    record.policy.factor = 1;
    let opened = with(&record, &mut data, |writing| writing.open_session()).expect("no error");
    let session = SessionId(opened.entry.expect("an entry"));
    let mut say = |(asked, op): (Request, ManagerOp)| {
        with(&record, &mut data, |writing| writing.commit(&asked, &op)).expect("no error")
    };
    let commit = |key: &'static str, seq: u64| {
        let ops = vec![RowOp::Put { key: key.into(), row: "row".into() }];
        let part = TablePart { table: TableId(7), schema: 1, ops, seen: Vec::new() };
        let writes = vec![PartitionWrites { partition: PartitionId(64), parts: vec![part] }];
        let op = ManagerOp::Commit(CommitRequest { snapshot: Position::ZERO, writes });
        (asked_in(session, 1, seq, Op::OpenSession), op)
    };
    let of = |session: SessionId, seq: u64| (request(Op::OpenSession), ManagerOp::Outcome { session, seq });
    let made = say(commit("made", 1));
    let told = say(of(session, 1));
    assert_eq!((told.status, told.entry, &told.body), (Status::Ok, made.entry, &made.body));
    let lost = say(of(session, 2));
    assert_eq!(lost.status, Status::Refused(Outcome::Changed));
    let at = lost.entry.expect("its number is used up");
    assert_eq!(lost.when, When::Covered(at.lsn, AckCondition::Entry), "nothing is sure before that");
    let late = say(commit("late", 2));
    assert!(matches!(late.status, Status::Bad(_)) && late.entry.is_none(), "{late:?}");
    let again = say(of(session, 2));
    assert_eq!((again.status, again.entry), (lost.status, lost.entry), "one entry is enough");
    assert_eq!(say(commit("next", 3)).status, Status::Ok);
    let strange = say(of(SessionId(Position::new(Term(9), Lsn(9))), 1));
    assert!(matches!(strange.status, Status::TooOld(_)), "{strange:?}");
    let far = say(of(session, u64::MAX));
    assert!(matches!(far.status, Status::Bad(_)), "{far:?}");
}

const LOAD: LoadId = LoadId(LoadId::LEAST);
const DIGEST: [u8; 16] = [1; 16];

/// The same database. A load is staged here, with rows of the tables from one to another.
fn loading_bank(from: u32, to: u32) -> (PartitionRecord, Data, SessionId, impl Fn(i64, i64) -> RowOp) {
    let mut engine = FakeEngine::new();
    engine.loads = vec![(LOAD, types::Staging::Ready(types::Staged { digest: DIGEST, rows: 3 }))];
    let key = |table: u32, key: &[u8]| KeySpace::Table(TableId(table)).row_key(key);
    engine.staged_keys = Some((key(from, b"a"), key(to, b"z")));
    let (record, mut data, session, put) = bank_in(engine);
    let who = crate::output::ClientRef { connection: 1, request: 1 };
    data.loads.ask(types::Micros(1), LOAD, (who, request(Op::Stage { load: LOAD, files: Vec::new() })));
    (record, data, session, put)
}

fn load(record: &PartitionRecord, data: &mut Data, asked: &Request) -> Answer {
    with(record, data, |writing| writing.load(asked, (LOAD, DIGEST), &BTreeSet::new())).expect("no error")
}

#[test]
fn pr449_a_bulk_load_is_of_rows_of_its_table_as_that_is_and_of_one_without_constraints() {
    let asked = |session: SessionId, table: u32, schema: u32| Request {
        schema,
        ..asked_in(session, table, 2, Op::Load { load: LOAD, digest: DIGEST })
    };
    for ((table, schema), (from, to), says) in [
        ((7, 1), (7, 7), "table `pets` has constraints or indexes"),
        ((8, 1), (8, 9), "has rows of other tables"),
        ((8, 1), (7, 8), "has rows of other tables"),
        ((8, 1), (7, 7), "has rows of other tables"),
    ] {
        let (record, mut data, session, _) = loading_bank(from, to);
        let end = data.log.end();
        let answer = load(&record, &mut data, &asked(session, table, schema));
        assert!(matches!(&answer.status, Status::Bad(why) if why.contains(says)), "{answer:?}");
        assert_eq!(data.log.end(), end, "no entry was made");
    }
    for (table, schema) in [(8, 2), (9, 1)] {
        let (record, mut data, session, _) = loading_bank(table, table);
        let refused = load(&record, &mut data, &asked(session, table, schema));
        assert_eq!(refused.status, Status::Refused(Outcome::Stale));
        let again = load(&record, &mut data, &asked(session, table, schema));
        assert_eq!((again.status, again.entry), (refused.status, refused.entry), "a retry is told the same");
    }
    let (record, mut data, session, _) = loading_bank(8, 8);
    assert_eq!(load(&record, &mut data, &asked(session, 8, 1)).status, Status::Ok);
    assert_eq!(data.engine.pending_load(), Some(data.log.end()));
}

#[test]
fn pr448_what_a_database_writes_waits_until_a_bulk_load_is_in_its_files() {
    let (record, mut data, session, put) = loading_bank(8, 8);
    // Rows of a table that was dropped are to go.
    let drop = [TableChange::Drop { table: TableId(7), schema: 1 }];
    let asked = asked_in(session, 1, 2, Op::OpenSession);
    let dropped = with(&record, &mut data, |writing| writing.transact(&asked, (&drop, &[]), None));
    assert_eq!(dropped.expect("no error").status, Status::Ok);
    let asked = asked_in(session, 8, 3, Op::Load { load: LOAD, digest: DIGEST });
    assert_eq!(load(&record, &mut data, &asked).status, Status::Ok);
    let end = data.log.end();
    data.marks.commit(end.lsn, end.lsn);
    let waits = |answer: Answer| {
        let why = "a bulk load is being installed";
        assert!(matches!(&answer.status, Status::NotYet(said) if said == why), "{answer:?}");
    };
    let ops = vec![put(1, 10)];
    let asked = asked_in(session, 8, 4, Op::OpenSession);
    let written = with(&record, &mut data, |writing| writing.write(&asked, &ops, (None, None)));
    waits(written.expect("no error"));
    let parts = [TablePart { table: TableId(8), schema: 1, ops, seen: Vec::new() }];
    let asked = asked_in(session, 1, 4, Op::OpenSession);
    let written = with(&record, &mut data, |writing| writing.transact(&asked, (&[], &parts), None));
    waits(written.expect("no error"));
    let call = wire::CallRequest {
        procedure: TableId(9),
        version: 1,
        arguments: Bytes::new(),
        route: Bytes::new(),
        read_only: false,
    };
    let who = crate::output::ClientRef { connection: 1, request: 1 };
    let called = with(&record, &mut data, |writing| writing.call(who, &asked, &call));
    waits(called.expect("no error").expect("at once"));
    assert!(with(&record, &mut data, |writing| writing.tend_tables()).is_ok());
    assert_eq!(data.log.end(), end, "no entry was made");
}

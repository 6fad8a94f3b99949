//! SQL that writes, on a cluster of this process: scripts of several sessions, random transactions against a
//! model, and sessions that race for the same rows.

use crate::common::talk::{Talk, service};
use crate::common::{Cluster, LONG};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Instant;

#[test]
fn statements_that_write_do_what_postgresql_does() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut first = Talk::new(&service);
    first.good("CREATE TABLE t (id bigint PRIMARY KEY, v bigint, s text) WITH (partitions = 1)");
    first.good("CREATE TABLE p (k text PRIMARY KEY, n numeric NOT NULL) WITH (partitions = 1)");
    first.good("CREATE TABLE many (id bigint PRIMARY KEY, v bigint) WITH (partitions = 8, policy = semi)");
    let scripts = [
        include_str!("../../../sql/tests/scripts/writes.txt"),
        include_str!("../../../sql/tests/scripts/own.txt"),
    ];
    are_answered(&scripts, true, || Talk::new(&service));
}

#[test]
fn statements_over_partitions_do_what_postgresql_does() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service)
        .good("CREATE DATABASE ledger WITH (partitions = 4, transactions = global, policy = async)");
    let session = || Talk::within(&service, "ledger").expect("a session");
    let mut first = session();
    first.good("CREATE TABLE t (id bigint PRIMARY KEY, v bigint, s text)");
    first.good("CREATE TABLE p (k text PRIMARY KEY, n numeric NOT NULL)");
    are_answered(&[include_str!("../../../sql/tests/scripts/writes.txt")], false, session);
}

fn are_answered(scripts: &[&str], ordered: bool, session: impl Fn() -> Talk) {
    let mut talks: BTreeMap<&str, Talk> = BTreeMap::new();
    let mut wrong = Vec::new();
    for script in scripts {
        for case in script.split("\n\n") {
            let lines = case.trim().lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
            let case = lines.join("\n");
            let Some((question, expected)) = case.split_once("\n=>") else { continue };
            let (who, text) = question.split_once(": ").unwrap_or_else(|| panic!("{case}: who says it?"));
            let talk = talks.entry(who.to_string().leak()).or_insert_with(&session);
            let found = talk.say(text);
            let text_orders = ordered || text.contains("ORDER BY");
            // Rows of several partitions come in no order, unless one is asked for.
            let sorted = |text: &str| {
                let mut lines: Vec<String> = text.trim().lines().map(str::to_string).collect();
                lines.sort_by(|one, other| if text_orders { Ordering::Equal } else { one.cmp(other) });
                lines
            };
            if sorted(&found) != sorted(expected) {
                wrong.push(format!("{text}\n=> {found}\n-- expected {}", expected.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A row's value and the commit that wrote it, also of rows that are gone.
type Kept = BTreeMap<i64, (Option<i64>, u64)>;

/// A transaction as the model has it.
#[derive(Clone, Default)]
struct Tx {
    snapshot: Kept,
    /// What it has written: whether the row was there in the snapshot, and what it is now.
    own: BTreeMap<i64, Option<i64>>,
    locked: std::collections::BTreeSet<i64>,
    saved: Vec<Tx>,
}

impl Tx {
    fn see(&self, id: i64) -> Option<i64> {
        match self.own.get(&id) {
            Some(own) => *own,
            None => self.snapshot.get(&id).and_then(|(value, _)| *value),
        }
    }

    fn all(&self) -> BTreeMap<i64, i64> {
        let ids = self.snapshot.keys().chain(self.own.keys());
        ids.filter_map(|id| Some((*id, self.see(*id)?))).collect()
    }
}

#[derive(Default)]
struct Model {
    /// Transactions are global: all that was written behind the snapshot is in the way.
    global: bool,
    kept: Kept,
    commits: u64,
    open: BTreeMap<usize, Tx>,
}

impl Model {
    /// The transaction of a session; outside of one, a fresh one.
    fn tx(&self, who: usize) -> Tx {
        self.open.get(&who).cloned().unwrap_or_else(|| Tx { snapshot: self.kept.clone(), ..Tx::default() })
    }

    fn done(&mut self, who: usize, tx: Tx) -> Result<(), &'static str> {
        if let Some(open) = self.open.get_mut(&who) {
            *open = tx;
            return Ok(());
        }
        self.commit(&tx)
    }

    fn commit_global(&mut self, tx: &Tx) -> Result<(), &'static str> {
        let before = |id: &i64| tx.snapshot.get(id).copied().unwrap_or_default();
        let locked = tx.locked.iter().map(|id| (*id, before(id).0));
        let mut writes: BTreeMap<i64, Option<i64>> = locked.collect();
        writes.extend(tx.own.iter().map(|(id, value)| (*id, *value)));
        writes.retain(|id, value| value.is_some() || before(id).0.is_some());
        let by = |kept: &Kept, id: &i64| kept.get(id).copied().unwrap_or_default().1;
        if writes.keys().any(|id| by(&self.kept, id) != by(&tx.snapshot, id)) {
            return Err("40001");
        }
        self.commits += 1;
        self.kept.extend(writes.into_iter().map(|(id, value)| (id, (value, self.commits))));
        Ok(())
    }

    fn commit(&mut self, tx: &Tx) -> Result<(), &'static str> {
        if self.global {
            return self.commit_global(tx);
        }
        let touched: std::collections::BTreeSet<i64> = tx.own.keys().chain(&tx.locked).copied().collect();
        for id in &touched {
            let before = tx.snapshot.get(id).and_then(|(value, _)| *value);
            let (now, by) = self.kept.get(id).copied().unwrap_or_default();
            let (_, then) = tx.snapshot.get(id).copied().unwrap_or_default();
            match (before, tx.own.get(id)) {
                // All inserts have ON CONFLICT, which would have met what came meanwhile.
                (None, Some(Some(_))) if now.is_some() => return Err("40001"),
                (Some(_), _) if by != then => return Err("40001"),
                _ => {}
            }
        }
        self.commits += 1;
        for (id, value) in &tx.own {
            let before = tx.snapshot.get(id).and_then(|(value, _)| *value);
            if before.is_some() || value.is_some() {
                self.kept.insert(*id, (*value, self.commits));
            }
        }
        Ok(())
    }

    /// What a statement on the transaction itself must give; `None`: it is none.
    fn ends(&mut self, who: usize, step: Step) -> Option<String> {
        Some(match step {
            Step::Begin => {
                self.open.insert(who, Tx { snapshot: self.kept.clone(), ..Tx::default() });
                "BEGIN".into()
            }
            Step::Commit => {
                let tx = self.open.remove(&who).expect("open");
                self.commit(&tx).map_or_else(str::to_string, |()| "COMMIT".into())
            }
            Step::Rollback => {
                self.open.remove(&who);
                "ROLLBACK".into()
            }
            Step::Save => {
                let open = self.open.get_mut(&who).expect("open");
                let now = open.clone();
                open.saved.push(now);
                "SAVEPOINT".into()
            }
            Step::Back => {
                let open = self.open.get_mut(&who).expect("open");
                let saved = open.saved.last().cloned().expect("saved");
                let marks = open.saved.clone();
                *open = Tx { saved: marks, ..saved };
                "ROLLBACK".into()
            }
            _ => return None,
        })
    }

    /// What a statement must give.
    fn expect(&mut self, who: usize, step: Step) -> String {
        if let Some(said) = self.ends(who, step) {
            return said;
        }
        let mut tx = self.tx(who);
        let said = match step {
            Step::Insert(id, value) => match tx.see(id) {
                Some(_) => "INSERT 0 0".into(),
                None => {
                    tx.own.insert(id, Some(value));
                    "INSERT 0 1".to_string()
                }
            },
            Step::Upsert(id, value) => {
                let new = tx.see(id).map_or(value, |old| old + value);
                tx.own.insert(id, Some(new));
                new.to_string()
            }
            Step::Add(id, value) => match tx.see(id) {
                None => "UPDATE 0".into(),
                Some(old) => {
                    tx.own.insert(id, Some(old + value));
                    "UPDATE 1".to_string()
                }
            },
            Step::AddAll(from, value) => {
                let all: Vec<_> = tx.all().into_iter().filter(|(id, _)| *id >= from).collect();
                for (id, old) in &all {
                    tx.own.insert(*id, Some(old + value));
                }
                format!("UPDATE {}", all.len())
            }
            Step::Delete(id) => match tx.see(id) {
                None => "DELETE 0".into(),
                Some(old) => {
                    tx.own.insert(id, None);
                    old.to_string()
                }
            },
            Step::Sum => {
                let all = tx.all();
                let sum = all.values().sum::<i64>();
                if all.is_empty() { "0|-".into() } else { format!("{}|{sum}", all.len()) }
            }
            Step::Count(from) => tx.all().keys().filter(|id| **id >= from).count().to_string(),
            Step::Lock(id) => match tx.see(id) {
                None => "SELECT 0".into(),
                Some(value) => {
                    tx.locked.insert(id);
                    value.to_string()
                }
            },
            other => panic!("{other:?} ends here"),
        };
        tx.own.retain(|id, own| own.is_some() || tx.snapshot.get(id).is_some_and(|(old, _)| old.is_some()));
        if self.open.contains_key(&who) || !matches!(step, Step::Lock(_)) {
            self.done(who, tx).expect("alone nothing is in the way");
        }
        said
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    Commit,
    Rollback,
    Save,
    Back,
    Insert(i64, i64),
    Upsert(i64, i64),
    Add(i64, i64),
    AddAll(i64, i64),
    Delete(i64),
    Sum,
    Count(i64),
    Lock(i64),
}

impl Step {
    fn draw(random: &mut Random, open: Option<&Tx>) -> Step {
        let (id, value) = (random.below(8) as i64, random.below(100) as i64);
        match (random.below(24), open) {
            (0 | 1, None) => Step::Begin,
            (0 | 1, Some(_)) => Step::Commit,
            (2, Some(_)) => Step::Rollback,
            (3 | 4, Some(open)) if open.saved.len() < 3 => Step::Save,
            (5 | 6, Some(open)) if !open.saved.is_empty() => Step::Back,
            (7..=9, _) => Step::Insert(id, value),
            (10 | 11, _) => Step::Upsert(id, value),
            (12..=14, _) => Step::Add(id, value),
            (15, _) => Step::AddAll(id, value),
            (16 | 17, _) => Step::Delete(id),
            (18 | 19, _) => Step::Count(id),
            (20, _) => Step::Lock(id),
            _ => Step::Sum,
        }
    }

    fn text(self) -> String {
        match self {
            // The model takes its snapshot at once: so does the first statement.
            Step::Begin => "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM r".into(),
            Step::Commit => "COMMIT".into(),
            Step::Rollback => "ROLLBACK".into(),
            Step::Save => "SAVEPOINT s".into(),
            Step::Back => "ROLLBACK TO s".into(),
            Step::Insert(id, value) => format!("INSERT INTO r VALUES ({id}, {value}) ON CONFLICT DO NOTHING"),
            Step::Upsert(id, value) => format!(
                "INSERT INTO r VALUES ({id}, {value}) ON CONFLICT (id) DO UPDATE SET v = r.v + EXCLUDED.v RETURNING v"
            ),
            Step::Add(id, value) => format!("UPDATE r SET v = v + {value} WHERE id = {id}"),
            Step::AddAll(from, value) => format!("UPDATE r SET v = v + {value} WHERE id >= {from}"),
            Step::Delete(id) => format!("DELETE FROM r WHERE id = {id} RETURNING v"),
            Step::Sum => "SELECT count(*), sum(v) FROM r".into(),
            Step::Count(from) => format!("SELECT count(*) FROM r WHERE id >= {from}"),
            Step::Lock(id) => format!("SELECT v FROM r WHERE id = {id} FOR UPDATE"),
        }
    }
}

#[test]
fn random_transactions_do_what_a_model_does() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let talks = (0..3).map(|_| Talk::new(&service)).collect();
    do_what_a_model_does(talks, " WITH (partitions = 1, policy = semi)", false);
}

#[test]
fn random_transactions_over_partitions_do_what_a_model_does() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    Talk::new(&service)
        .good("CREATE DATABASE ledger WITH (partitions = 4, transactions = global, policy = async)");
    let talks = (0..3).map(|_| Talk::within(&service, "ledger").expect("a session")).collect();
    do_what_a_model_does(talks, "", true);
}

fn do_what_a_model_does(mut talks: Vec<Talk>, options: &str, global: bool) {
    let (mut random, mut lost) = (Random(0x9E37_79B9_7F4A_7C15), BTreeMap::new());
    for round in 0..4 {
        talks[0].good(&format!("CREATE TABLE r (id bigint PRIMARY KEY, v bigint){options}"));
        let (mut model, mut steps) = (Model { global, ..Model::default() }, Vec::new());
        for _ in 0..250 {
            let who = random.below(3) as usize;
            let step = Step::draw(&mut random, model.open.get(&who));
            steps.push((who, step));
            let expected = model.expect(who, step);
            let found = talks[who].say(&step.text());
            let found = match step {
                Step::Begin => "BEGIN".to_string(),
                Step::Commit => found.split(' ').next().unwrap_or_default().to_string(),
                _ => found,
            };
            assert_eq!(found, expected, "round {round}, {who}: {} after {steps:?}", step.text());
            if matches!(step, Step::Commit) {
                *lost.entry(found).or_insert(0) += 1;
            }
        }
        for who in model.open.keys() {
            talks[*who].good("ROLLBACK");
        }
        talks[0].good("DROP TABLE r");
    }
    assert!(lost.len() > 1, "transactions are in each other's way: {lost:?}");
}

#[test]
fn what_many_add_to_one_row_is_all_in_it() {
    const EACH: i64 = 12;
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut first = Talk::new(&service);
    first.good("CREATE TABLE c (id bigint PRIMARY KEY, n bigint NOT NULL, s text) WITH (partitions = 1, policy = semi)");
    first.good("INSERT INTO c VALUES (1, 0), (2, 0)");
    let start = Barrier::new(10);
    let again: u64 = std::thread::scope(|scope| {
        let adders: Vec<_> = (0..10)
            .map(|number: i64| {
                let (service, start) = (&service, &start);
                scope.spawn(move || {
                    let mut talk = Talk::new(service);
                    start.wait();
                    let mut again = 0;
                    for _ in 0..EACH {
                        // Half of them let the statement find out, half read first and try again.
                        if number % 2 == 0 {
                            assert_eq!(talk.good("UPDATE c SET n = n + 1 WHERE id = 1"), "UPDATE 1");
                            continue;
                        }
                        while !add(&mut talk) {
                            again += 1;
                        }
                    }
                    again
                })
            })
            .collect();
        adders.into_iter().map(|adder| adder.join().expect("no panic")).sum()
    });
    assert_eq!(first.good("SELECT n FROM c WHERE id = 1"), (10 * EACH).to_string());
    assert_eq!(first.good("SELECT n FROM c WHERE id = 2"), (5 * EACH).to_string());
    println!("{again} transactions were done again");
}

/// Adds one to both rows, from what was read. False: somebody else was first.
fn add(talk: &mut Talk) -> bool {
    talk.good("BEGIN");
    let mut numbers = [0; 2];
    for (id, number) in (1..).zip(&mut numbers) {
        *number = talk.good(&format!("SELECT n FROM c WHERE id = {id}")).parse().expect("a number");
        let next: i64 = *number + 1;
        assert_eq!(talk.good(&format!("UPDATE c SET n = {next} WHERE id = {id}")), "UPDATE 1");
    }
    match talk.say("COMMIT") {
        said if said == "COMMIT" => true,
        said if said.starts_with("40001") => false,
        said => panic!("{said}"),
    }
}

#[test]
fn a_transaction_that_was_idle_too_long_has_failed() {
    let cluster = Cluster::with(1, &[]);
    drop(cluster.ready());
    let service = service(&cluster);
    let mut talk = Talk::new(&service);
    talk.good("CREATE TABLE i (id bigint PRIMARY KEY, v bigint) WITH (partitions = 1, factor = 1)");
    talk.good("SET idle_in_transaction_session_timeout = '20ms'");
    talk.good("BEGIN");
    talk.good("INSERT INTO i VALUES (1, 1)");
    // The session's timer runs on its runtime, which here turns only while something is asked of it.
    assert_eq!(talk.overdue(crate::common::LONG).as_deref(), Some("25P03"));
    // Who is faster with its next statement is told so by that.
    assert!(talk.say("SELECT v FROM i WHERE id = 1").starts_with("25P03"));
    assert!(talk.say("SELECT 1").starts_with("25P02"));
    assert_eq!(talk.say("COMMIT"), "ROLLBACK");
    assert_eq!(talk.say("SELECT count(*) FROM i"), "0");
}

#[test]
fn an_index_changes_no_answer() {
    let cluster = Cluster::start();
    drop(cluster.ready());
    let service = service(&cluster);
    let mut talk = Talk::new(&service);
    talk.good("CREATE TABLE people (id bigint PRIMARY KEY, town text, age bigint) WITH (partitions = 4)");
    for id in 0..120 {
        let town = if id % 7 == 0 { "NULL".into() } else { format!("'{}'", ["a", "b", "c"][id % 3]) };
        talk.good(&format!("INSERT INTO people VALUES ({id}, {town}, {})", id % 10));
    }
    let questions = [
        "SELECT id, town, age FROM people WHERE town = 'a' ORDER BY id",
        "SELECT count(*), sum(age) FROM people WHERE town > 'a' AND age = 3",
        "SELECT id FROM people WHERE age BETWEEN 2 AND 4 AND town <= 'b' ORDER BY id",
        "SELECT p.id, q.id FROM people p JOIN people q ON p.age = q.id WHERE p.age = 9 ORDER BY 1, 2",
        "SELECT count(*) FROM people WHERE town = NULL",
        "SELECT id FROM people WHERE id = 5 AND town = 'c'",
    ];
    let before: Vec<String> = questions.iter().map(|question| talk.good(question)).collect();
    assert_eq!(talk.good("CREATE INDEX by_town ON people (town, age)"), "CREATE INDEX");
    assert_eq!(talk.good("CREATE INDEX ON people (age)"), "CREATE INDEX");
    assert_eq!(talk.good("CREATE INDEX IF NOT EXISTS by_town ON people (age)"), "CREATE INDEX");
    for (question, before) in questions.iter().zip(&before) {
        assert_eq!(talk.good(question), *before, "{question}");
    }
    let plan = |talk: &mut Talk, at: usize| talk.good(&format!("EXPLAIN {}", questions[at]));
    assert!(plan(&mut talk, 0).contains("Scan of people by index by_town"), "{}", plan(&mut talk, 0));
    assert!(plan(&mut talk, 2).contains("by index"), "{}", plan(&mut talk, 2));
    assert!(!plan(&mut talk, 5).contains("by index"), "the key pins the row: {}", plan(&mut talk, 5));
    let listed = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'people' ORDER BY 1";
    let expected = "by_town|CREATE INDEX by_town ON public.people USING btree (town, age)\n\
                    people_age_idx|CREATE INDEX people_age_idx ON public.people USING btree (age)\n\
                    people_pkey|CREATE UNIQUE INDEX people_pkey ON public.people USING btree (id)";
    assert_eq!(talk.good(listed), expected);

    // A transaction finds what it has written, and nothing that it has changed or removed.
    talk.good("BEGIN");
    let old = talk.good("SELECT town FROM people WHERE id = 3");
    talk.good("UPDATE people SET town = 'zoo', age = 77 WHERE id = 3");
    assert_eq!(talk.good("SELECT id FROM people WHERE town = 'zoo'"), "3");
    let mine = format!("SELECT count(*) FROM people WHERE town = '{old}' AND id = 3");
    assert_eq!(talk.good(&mine), "0");
    talk.good("COMMIT");
    assert_eq!(talk.good("SELECT id FROM people WHERE age = 77"), "3");
    talk.good("DELETE FROM people WHERE age = 77");
    assert_eq!(talk.good("SELECT id FROM people WHERE town = 'zoo'"), "SELECT 0");

    let long = format!("INSERT INTO people VALUES (500, '{}', 1)", "x".repeat(40_000));
    assert!(talk.say(&long).starts_with("54000"), "{}", talk.say(&long));
    assert_eq!(talk.good("DROP INDEX by_town, people_age_idx"), "DROP INDEX");
    assert!(!plan(&mut talk, 0).contains("by index"));
    // The primaries take it over soon.
    let began = Instant::now();
    while talk.say(&long) != "INSERT 0 1" {
        assert!(began.elapsed() < LONG, "the dropped index still refuses a row");
    }
    assert!(
        talk.say("CREATE INDEX by_town ON people (town)").starts_with("54000"),
        "a row is too long for it"
    );
}

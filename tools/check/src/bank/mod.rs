//! A bank on a database of global transactions: transfers between accounts of any partitions, readers that
//! take snapshots of all of them, and faults also of the transaction manager's primary and of the controller.

mod load;

use crate::faults::Round;
use crate::options::CheckOptions;
use crate::recorder::Shared;
use crate::report::{Bank, CheckReport, Counts};
use crate::run::{self, FaultStage, StopOnDrop, Targets};
use crate::sql::{self, Gateways};
use crate::{gaps, scene, wrong};
use client::{Client, ClientError, Database, Table};
use history::bank::Total;
use history::{Ending, Finding, Rule, Transaction};
use load::{Accounts, Role, Seen, Teller};
use local::{Cluster, LocalError, Progress};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use types::data::{Column, ColumnType, Schema};
use types::system::COMMITS;
use wire::control::{AdminCommand, CreateTable};

/// The database's name.
const DATABASE: &str = "bank";
/// The table's.
const TABLE: &str = "accounts";
/// Partitions of the database.
const PARTITIONS: u32 = 4;
/// Who transfers, and who reads all.
const ROLES: [Role; 6] =
    [Role::Transfer, Role::Transfer, Role::Transfer, Role::Transfer, Role::Snapshot, Role::Snapshot];
/// How long a call of the load may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the snapshot of the end may take.
const END_WITHIN: Duration = Duration::from_secs(60);

/// Plays the bank, and checks what its clients saw.
pub fn check(
    options: &CheckOptions,
    output: &Path,
    out: &mut dyn Progress,
) -> Result<CheckReport, LocalError> {
    let dir = output.join("cluster");
    let mut cluster = scene::start(options, &dir)?;
    let mut client = scene::connect(&cluster, options.seed)?;
    let (database, table) = create(&mut client, options)?;
    let accounts = Accounts { database, table };
    let shared = Shared::default();
    let mut history = vec![load::fill(&mut client, &accounts, &shared)?];
    let faults: Vec<String> = options.faults.iter().map(ToString::to_string).collect();
    let (policy, seconds) = (&options.policy, options.seconds);
    out.step(&format!("policy {policy}: global transactions for {seconds} s, with {}", faults.join(", ")));
    let mut playing = Playing { options, cluster: &mut cluster, client: &mut client, accounts: &accounts };
    let (tellers, rounds, end) = playing.play(&shared, out)?;
    out.step("wait until every partition serves, and read every account once more");
    history.extend(tellers);
    let (last, why) = last_snapshot(&mut client, &accounts, &shared)?;
    history.extend(last.clone());
    let failovers = failovers(&mut client)?;
    drop(cluster);
    history.sort_by_key(|transaction| (transaction.begun, transaction.client));
    for (number, transaction) in (1..).zip(&mut history) {
        transaction.number = number;
    }
    let mut report = report(options, &history, &rounds, failovers);
    report.gaps = gaps::of_acks(acks(&history, |key| accounts.place(key)), &rounds, end);
    let started = Instant::now();
    report.findings = history::check_bank(&history, load::total());
    if last.is_none() {
        let sentence = format!("no snapshot of all accounts could be read in the end: {why}");
        report.findings.push(load_finding(sentence));
    }
    report.findings.extend(idle(&report));
    report.checked_in_s = started.elapsed().as_secs_f64();
    tell(report, &history, (output, &dir), out)
}

/// Says what was found, and takes away what nobody needs.
fn tell(
    mut report: CheckReport,
    history: &[Transaction],
    (output, dir): (&Path, &Path),
    out: &mut dyn Progress,
) -> Result<CheckReport, LocalError> {
    report.history = wrong::write(output, &report.findings, history)?;
    out.line(&report.tables());
    for finding in &report.findings {
        out.line(&format!("WRONG: {}", finding.sentence));
    }
    out.line(&report.verdict());
    if report.is_good() {
        std::fs::remove_dir_all(dir).map_err(|error| LocalError::Io { path: dir.into(), error })?;
    }
    Ok(report)
}

fn create(client: &mut Client, options: &CheckOptions) -> Result<(Database, Table), LocalError> {
    let policy = options.policy()?;
    let asked = CreateTable {
        factor: Some(policy.factor),
        partitions: PARTITIONS,
        ..CreateTable::database(DATABASE, &policy.name)
    };
    let database = scene::once_heard(client, |client| client.create_global_database(&asked))?;
    let int = |name| Column::new(name, ColumnType::Int).not_null();
    let columns = ["id", "tag", "prev", "amount"].map(int).to_vec();
    let schema = Schema::new(columns, &["id"], 1, false).expect("the key is among the columns");
    let table = client.create_table_in(&database, TABLE, schema)?;
    Ok((database, table))
}

struct Playing<'a> {
    options: &'a CheckOptions,
    cluster: &'a mut Cluster,
    client: &'a mut Client,
    accounts: &'a Accounts,
}

impl Playing<'_> {
    /// What clients did, the rounds of faults, and when the load ended.
    fn play(
        &mut self,
        shared: &Shared,
        out: &mut dyn Progress,
    ) -> Result<(Vec<Transaction>, Vec<Round>, u64), LocalError> {
        let Playing { options, cluster, client, accounts } = self;
        let gateways: Gateways = Mutex::new(sql::gateways(&cluster.sql_url()?)?);
        let tellers: Vec<Teller<'_>> = (1..)
            .zip(ROLES)
            .map(|(number, role)| {
                let seed = options.seed.wrapping_add(u64::from(number));
                let client = scene::connect_within(cluster, seed, CALL_TIMEOUT)?;
                Ok(Teller::new(number, role, client, accounts, shared, seed))
            })
            .collect::<Result<_, LocalError>>()?;
        let manager = client.cluster_map().table(COMMITS).map(|record| record.first_partition);
        let targets = Targets { partitions: accounts.table.partitions().collect(), manager };
        std::thread::scope(|scope| {
            let stop = StopOnDrop(shared);
            let threads: Vec<_> =
                tellers.into_iter().map(|teller| scope.spawn(move || teller.run())).collect();
            let broken = || threads.iter().any(|thread| thread.is_finished());
            let stage = FaultStage { options, cluster, client, shared, gateways: &gateways, targets };
            let rounds = stage.play(&broken, out);
            drop(stop);
            let end = shared.now();
            let mut all = Vec::new();
            for thread in threads {
                all.extend(thread.join().expect("a teller does not panic")?);
            }
            Ok((all, rounds?, end))
        })
    }
}

/// Reads every account, as soon as that can be done; or why it cannot.
fn last_snapshot(
    client: &mut Client,
    accounts: &Accounts,
    shared: &Shared,
) -> Result<(Option<Transaction>, String), LocalError> {
    let deadline = Instant::now() + END_WITHIN;
    loop {
        match load::snapshot(client, accounts, shared, u32::MAX)? {
            Seen::All(transaction) => return Ok((Some(transaction), String::new())),
            Seen::Some(_, why) | Seen::Nothing(why) if Instant::now() >= deadline => return Ok((None, why)),
            _ => drop(client.poll(Duration::from_millis(50))?),
        }
    }
}

fn failovers(client: &mut Client) -> Result<u64, LocalError> {
    let text = client.admin(AdminCommand::Failovers)?;
    let all: Vec<types::FailoverRecord> = serde_json::from_str(&text)
        .map_err(|error| ClientError::Protocol(format!("the list of failovers cannot be read: {error}")))?;
    Ok(all.len() as u64)
}

fn report(options: &CheckOptions, history: &[Transaction], rounds: &[Round], failovers: u64) -> CheckReport {
    let count = |wanted: fn(&Transaction) -> bool| history.iter().filter(|one| wanted(one)).count() as u64;
    let Total { accounts, amount } = load::total();
    let bank = Bank {
        accounts: accounts as u64,
        total: amount,
        committed: count(|one| one.committed().is_some()),
        aborted: count(|one| one.ending == Ending::Aborted),
        snapshots: count(|one| one.whole),
    };
    let unknown = count(|one| one.ending == Ending::Unknown);
    let transfers = bank.committed + bank.aborted + unknown;
    let by_kind = BTreeMap::from([("transfer".into(), transfers), ("snapshot".into(), bank.snapshots)]);
    CheckReport {
        policy: options.policy.clone(),
        seconds: options.seconds,
        injected: run::injected(rounds),
        failovers,
        counts: Counts {
            operations: history.len() as u64,
            unknown,
            not_done: bank.aborted,
            rows: bank.accounts,
            by_kind,
            ..Counts::default()
        },
        bank: Some(bank),
        lost: None,
        gaps: Vec::new(),
        missed_goals: Vec::new(),
        findings: Vec::new(),
        history: None,
        checked_in_s: 0.0,
    }
}

/// When commits were acknowledged that have read and written in each partition: it served then. `place` says
/// where an account lies.
fn acks(history: &[Transaction], place: impl Fn(u32) -> u32) -> BTreeMap<u32, Vec<u64>> {
    let mut acks: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for one in history.iter().filter(|one| one.committed().is_some()) {
        let places: BTreeSet<u32> = one.writes.iter().map(|write| place(write.key)).collect();
        for place in places {
            acks.entry(place).or_default().extend(one.ended);
        }
    }
    acks
}

/// A bank in which nothing was done shows nothing.
fn idle(report: &CheckReport) -> Option<Finding> {
    let bank = report.bank.as_ref()?;
    // One commit has filled it, and one snapshot is of the end.
    let idle = bank.committed < 2 || bank.snapshots < 2;
    idle.then(|| load_finding("nothing was transferred, or nobody saw a snapshot".into()))
}

fn load_finding(sentence: String) -> Finding {
    Finding { rule: Rule::Load, key: None, place: None, sentence, operations: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use history::{At, Version};

    #[test]
    fn a_commit_is_acknowledged_in_the_partitions_that_it_writes_and_nowhere_else() {
        let write = |key: u32| Version { key, tag: 1, prev: 0, amount: 1 };
        let one = |ended: u64, ending: Ending, keys: &[u32]| Transaction {
            number: 0,
            client: 1,
            begun: 0,
            started: 0,
            asked: Some(1),
            ended: Some(ended),
            snapshot: At { term: 1, lsn: 1 },
            whole: false,
            reads: vec![write(9)],
            writes: keys.iter().map(|key| write(*key)).collect(),
            ending,
        };
        let committed = Ending::Committed(At { term: 1, lsn: 2 });
        let history = [
            one(10, committed, &[0, 1, 4]),
            one(20, Ending::Aborted, &[2]),
            one(30, committed, &[3]),
            one(40, Ending::Unknown, &[0]),
        ];
        let found = acks(&history, |key| key % 4);
        assert_eq!(found, BTreeMap::from([(0, vec![10]), (1, vec![10]), (3, vec![30])]));
    }
}

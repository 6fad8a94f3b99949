//! `bench`.

use crate::args::bench::{
    BenchCommand, CallsArgs, CommonArgs, CompareArgs, DatabasesArgs, ExecutorsArgs, GleambookArgs, LoadArgs,
    LogArgs, SqlArgs, TpccArgs, TpccByArg, TxnArgs, YcsbArgs,
};
use crate::args::cluster::{EngineArg, LogArg};
use crate::connect::Context;
use bench::cluster::TableKind;
use bench::gleambook::Progress;
use bench::{
    BenchError, CallsOptions, Common, CompareOptions, CustomTable, DatabasesOptions, ExecutorsOptions,
    GleambookOptions, Line, LoadSize, LogOptions, Offer, SqlOptions, Sweep, TpccOptions, TxnOptions,
    YcsbOptions,
};
use ops::Failure;
use std::io::stderr;
use types::{EngineKind, LogKind};

/// Runs a bench and prints its lines as they come.
pub fn run(command: BenchCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        BenchCommand::Gleambook(args) => gleambook(args, context),
        BenchCommand::Txn(args) => txn(args, context),
        command => lines(command, context),
    }
}

/// Benches that have lines.
fn lines(command: BenchCommand, context: &mut Context) -> Result<(), Failure> {
    let mut emit = |line: &Line| {
        context.out.either(line, || line.in_full());
        // A bench takes minutes: each line is to be read at once.
        context.out.flush();
    };
    let ended = match command {
        BenchCommand::Log(args) => bench::log(&log(args), &mut stderr(), &mut emit),
        BenchCommand::Ycsb(args) => bench::ycsb(&ycsb(args), &mut stderr(), &mut emit),
        BenchCommand::Sql(args) => bench::sql(&sql(args), &mut stderr(), &mut emit),
        BenchCommand::Tpcc(args) => bench::tpcc(&tpcc(args), &mut stderr(), &mut emit),
        BenchCommand::Calls(args) => bench::calls(&calls(args), &mut stderr(), &mut emit),
        BenchCommand::Executors(args) => bench::executors(&executors(args), &mut stderr(), &mut emit),
        BenchCommand::Databases(args) => bench::databases(&databases(args), &mut stderr(), &mut emit),
        BenchCommand::Compare(args) => bench::compare(&compare(args), &mut stderr(), &mut emit),
        BenchCommand::Gleambook(_) | BenchCommand::Txn(_) => {
            unreachable!("they have no lines and were taken above")
        }
    };
    ended.map(drop).map_err(|error| failure(&error))
}

/// Prints points as objects, or experiments as tables.
fn gleambook(args: GleambookArgs, context: &mut Context) -> Result<(), Failure> {
    let options = GleambookOptions {
        common: common_or(args.common, 2.0, 2),
        records: args.records,
        sizes: args.sizes,
        partitions: args.partitions,
        moves: args.moves,
        standby: args.standby.into(),
        ..GleambookOptions::default()
    };
    let ended = bench::gleambook(&options, &mut stderr(), &mut |told| tell(told, context));
    ended.map(drop).map_err(|error| failure(&error))
}

/// Points or tables as they come.
fn tell(told: Progress, context: &mut Context) {
    match told {
        Progress::Point(point) if context.out.json => context.out.object(point),
        Progress::Table(table) if !context.out.json => {
            context.out.line(&table.title);
            let head: Vec<&str> = table.head.iter().map(String::as_str).collect();
            context.out.table(&head, table.rows.iter().cloned());
            table.remarks.iter().for_each(|remark| context.out.line(remark));
            context.out.line("");
        }
        _ => {}
    }
    context.out.flush();
}

/// Prints points as objects, or experiments as tables.
fn txn(args: TxnArgs, context: &mut Context) -> Result<(), Failure> {
    let options = TxnOptions {
        common: common_or(args.common, 2.0, 3),
        rows: args.rows,
        value_bytes: args.value_bytes,
        clients: args.clients,
        servers: args.servers,
        factor: args.factor,
        partitions: args.partitions,
        operations: args.operations,
        updates: args.updates,
        intervals: args.intervals,
        rate: args.rate,
        write_set_bytes: args.write_set_bytes,
        flying: args.flying,
        check: args.check,
        paper: args.paper,
        ..TxnOptions::default()
    };
    let ended = bench::txn(&options, &mut stderr(), &mut |told| tell(told, context));
    ended.map(drop).map_err(|error| failure(&error))
}

fn failure(error: &BenchError) -> Failure {
    Failure { status: error.exit_status(), sentence: error.to_string() }
}

fn common(args: CommonArgs) -> Common {
    common_or(args, 3.0, 5)
}

/// The same, where rounds are others unless options say how long and how many.
fn common_or(args: CommonArgs, seconds: f64, rounds: u32) -> Common {
    Common {
        only: args.only,
        seconds: args.seconds.unwrap_or(seconds),
        rounds: args.rounds.unwrap_or(rounds),
        dir: args.work_dir,
        plot: args.plot,
        seed: args.seed,
        stop: Some(crate::interrupt::stop_flag()),
    }
}

fn size(args: LoadArgs) -> LoadSize {
    LoadSize {
        records: args.records,
        value_bytes: args.value_bytes,
        clients: args.clients,
        partitions: args.partitions.unwrap_or(6),
    }
}

fn log(args: LogArgs) -> LogOptions {
    LogOptions { common: common(args.common), raft_engine: args.raft_engine }
}

fn ycsb(args: YcsbArgs) -> YcsbOptions {
    let (seconds, rounds, partitions) = (args.common.seconds, args.common.rounds, args.load.partitions);
    let (mut common, mut load) = (common(args.common), size(args.load));
    if args.sweep {
        // As in the document: with more, each node leads some and backs the others.
        load.partitions = partitions.unwrap_or(1);
        // Forty-two points take three minutes.
        (common.seconds, common.rounds) = (seconds.unwrap_or(1.0), rounds.unwrap_or(3));
    }
    let table = CustomTable {
        factor: args.factor,
        policy: args.policy,
        engine: args.engine.map(engine),
        log: args.log.map(log_kind),
    };
    YcsbOptions {
        common,
        load,
        updates: args.updates,
        distribution: args.distribution.map(Into::into),
        letters: args.workload,
        table,
        offer: Offer { asking: args.by, rate: args.rate, ship: args.ship.into(), quota: args.cpu_quota },
        sweep: match (args.sweep, args.paper_times) {
            (false, _) => None,
            (true, false) => Some(Sweep::Short),
            (true, true) => Some(Sweep::Paper),
        },
        ..YcsbOptions::default()
    }
}

fn engine(engine: EngineArg) -> EngineKind {
    match engine {
        EngineArg::Lsm => EngineKind::Lsm,
        EngineArg::Memory => EngineKind::Memory,
    }
}

fn log_kind(log: LogArg) -> LogKind {
    match log {
        LogArg::Disk => LogKind::Disk,
        LogArg::Memory => LogKind::Memory,
    }
}

fn calls(args: CallsArgs) -> CallsOptions {
    let policy = args.policy.unwrap_or_else(|| if args.factor == 1 { "none" } else { "semi" }.into());
    let kind = TableKind {
        policy,
        factor: args.factor,
        engine: engine(args.engine),
        log: log_kind(args.log),
        partitions: 1,
        ship: args.ship.into(),
    };
    CallsOptions {
        common: common(args.common),
        rows: args.rows,
        clients: args.clients,
        kind,
        ..CallsOptions::default()
    }
}

fn executors(args: ExecutorsArgs) -> ExecutorsOptions {
    let (records, value_bytes, clients, partitions) =
        (args.records, args.value_bytes, args.clients, args.partitions);
    let load = LoadSize { records, value_bytes, clients, partitions };
    ExecutorsOptions { common: common(args.common), load, ..ExecutorsOptions::default() }
}

fn databases(args: DatabasesArgs) -> DatabasesOptions {
    let (records, value_bytes, clients) = (args.records, args.value_bytes, args.clients);
    DatabasesOptions {
        common: common(args.common),
        load: LoadSize { records, value_bytes, clients, partitions: 1 },
        scale: args.scale,
        tables: args.tables,
        policy: args.policy,
        ..DatabasesOptions::default()
    }
}

fn sql(args: SqlArgs) -> SqlOptions {
    SqlOptions {
        common: common(args.common),
        load: size(args.load),
        rows: args.rows,
        ..SqlOptions::default()
    }
}

fn tpcc(args: TpccArgs) -> TpccOptions {
    TpccOptions {
        common: common(args.common),
        scale: bench::Scale { warehouses: args.warehouses, customers: args.customers, items: args.items },
        clients: args.clients,
        partitions: args.partitions,
        policy: args.policy,
        engine: args.engine.map_or(EngineKind::Lsm, engine),
        by: match args.by {
            TpccByArg::Sql => bench::By::Sql,
            TpccByArg::Procedure => bench::By::Procedure,
        },
        ship: args.ship.into(),
        faults: args.faults,
        remote: args.remote,
        ..TpccOptions::default()
    }
}

fn compare(args: CompareArgs) -> CompareOptions {
    CompareOptions { common: common(args.common), load: size(args.load), ..CompareOptions::new(args.peer) }
}

//! Commands that run processes.

use super::{nodes, rebuild};
use crate::args::process::{
    CheckArgs, ConfigCommand, ControllerArgs, ControllerCommand, DemoArgs, DevArgs, FaultArg, FaultCommand,
    InitArgs, MetastoreArg, NodeArgs, RunArgs,
};
use crate::connect::{Context, failure};
use check::CheckOptions;
use local::demo::Fault;
use local::{DemoOptions, DevCommand, DevOptions, Metastore, Terminal};
use node::config::{Config, Sources};
use node::datadir::{self, Kind, Ports};
use ops::Failure;
use types::NodeId;

/// `demo`.
pub fn demo(args: DemoArgs, context: &mut Context) -> Result<(), Failure> {
    let options = DemoOptions {
        policy: args.policy,
        nodes: args.nodes,
        seconds: args.seconds,
        clients: args.clients,
        partitions: args.partitions,
        fault: match args.fault {
            FaultArg::Kill => Fault::Kill,
            FaultArg::Stop => Fault::Stop,
            FaultArg::Cut => Fault::Cut,
            FaultArg::Power => Fault::Power,
        },
        short: args.short,
        data: args.data,
        key: args.key,
        null: args.null,
        users: args.users,
        seed: args.seed,
        journal: args.journal,
        output: args.output,
        metastore: metastore(args.metastore),
        settings: args.set,
        ..DemoOptions::default()
    };
    let report = local::demo(options, &mut Terminal::new(context.out.json)).map_err(failure)?;
    if context.out.json {
        context.out.object(&report.to_json());
    }
    match report.exit_status() {
        0 => Ok(()),
        status => Err(Failure {
            status,
            sentence: "something is missing that was promised, or a loss was not reported exactly; the table above says \
                       what"
            .into(),
        }),
    }
}

/// `check`.
pub fn check(args: CheckArgs, context: &mut Context) -> Result<(), Failure> {
    let faults: Result<Vec<Fault>, _> = args.faults.iter().map(|fault| fault.parse()).collect();
    let options = CheckOptions {
        policy: args.policy,
        seconds: args.seconds,
        faults: faults.map_err(failure)?,
        seed: args.seed,
        output: args.output,
        global: args.transactions.is_some(),
        goals: !args.no_goals,
        settings: args.set,
        ..CheckOptions::default()
    };
    let report = check::check(&options, &mut Terminal::new(context.out.json)).map_err(failure)?;
    if context.out.json {
        context.out.object(&report.to_json());
    }
    match report.why_not() {
        None => Ok(()),
        Some(sentence) => Err(Failure { status: report.exit_status(), sentence }),
    }
}

/// `dev`.
pub fn dev(args: DevArgs, context: &mut Context) -> Result<(), Failure> {
    let dir = context.global.dir.clone();
    if let Some(faults) = args.faults {
        let said = local::dev_command(&dir, &fault_command(faults)).map_err(failure)?;
        context.out.either(&serde_json::json!({ "done": said }), || said.clone());
        return Ok(());
    }
    let options = DevOptions {
        dir,
        nodes: args.nodes,
        data_dirs: args.data_dirs,
        reset: args.reset,
        metastore: args.metastore.map(metastore),
        json: context.out.json,
        ..DevOptions::default()
    };
    local::dev(&options, &mut Terminal::new(context.out.json)).map_err(failure)
}

fn fault_command(command: FaultCommand) -> DevCommand {
    match command {
        FaultCommand::Kill { node } => DevCommand::Kill(node),
        FaultCommand::Stop { node } => DevCommand::Stop(node),
        FaultCommand::Cut { node } => DevCommand::Cut(node),
        FaultCommand::Heal { node } => DevCommand::Heal(node),
        FaultCommand::Restart { node, full, no_wait } => DevCommand::Restart { node, full, wait: !no_wait },
        FaultCommand::PowerLoss => DevCommand::PowerLoss,
    }
}

fn metastore(which: MetastoreArg) -> Metastore {
    match which {
        MetastoreArg::Embedded => Metastore::Embedded,
        MetastoreArg::Etcd => Metastore::Etcd,
    }
}

/// `node`: the process, or a verb.
pub fn node(args: NodeArgs, context: &mut Context) -> Result<(), Failure> {
    match args.command {
        Some(command) => nodes::run(command, context),
        None => {
            let mut run = args.run;
            if args.full_failback {
                run.set.push(("failback.full".into(), "true".into()));
            }
            // What workloads have compiled in is in every node of this program.
            let config = load(&run, "node")?.with_programs(bench::tpcc_programs());
            node::run_node(config, |ports| listening(ports, context)).map_err(stopped)
        }
    }
}

/// `controller`: the process, or a verb.
pub fn controller(args: ControllerArgs, context: &mut Context) -> Result<(), Failure> {
    if let Some(ControllerCommand::Rebuild(args)) = args.command {
        return rebuild::run(&args, context);
    }
    let config = load(&args.run, "controller")?;
    node::run_controller(config, |ports| listening(ports, context)).map_err(stopped)
}

/// Says where the process listens: ports may have been chosen by the system.
fn listening(ports: &Ports, context: &mut Context) {
    context.out.either(ports, || {
        let listeners: Vec<String> =
            ports.listen.iter().map(|(name, address)| format!("{name} {address}")).collect();
        let who = if ports.role == "node" { format!("node {}", ports.node) } else { ports.role.clone() };
        format!("{who} listens: {} (pid {})", listeners.join(", "), ports.pid)
    });
    context.out.flush();
}

/// The configuration of a process. Without a file it would run with defaults in the working directory: that
/// is never meant.
pub(super) fn load(args: &RunArgs, what: &str) -> Result<Config, Failure> {
    if args.config.is_none() && args.set.is_empty() {
        return Err(Failure::usage(format!(
            "name the configuration: understudy {what} --config FILE (or run a whole cluster with `understudy dev`)"
        )));
    }
    Config::load(&sources(args)).map_err(stopped)
}

fn sources(args: &RunArgs) -> Sources {
    // What is not text cannot be a setting of ours.
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut flags = args.set.clone();
    if args.insecure {
        flags.extend(
            ["node.insecure", "controller.insecure"].map(|name| (name.to_string(), "true".to_string())),
        );
    }
    Sources { file: args.config.clone(), env: std::env::vars_os().filter_map(text).collect(), flags }
}

/// `init`.
pub fn init(args: &InitArgs, context: &mut Context) -> Result<(), Failure> {
    let (kind, node) = match args.node {
        Some(node) => (Kind::Node, NodeId(node)),
        None => (Kind::Controller, NodeId(0)),
    };
    let identity = datadir::init(&args.data_dir, kind, node).map_err(stopped)?;
    context.out.either(&identity, || match identity.cluster {
        Some(cluster) => {
            format!("{} is ready for a controller of the new cluster {cluster}", args.data_dir.display())
        }
        None => format!("{} is ready for node {}", args.data_dir.display(), node.0),
    });
    Ok(())
}

/// `config`.
pub fn config(command: &ConfigCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(run) => {
            let config = Config::load(&sources(run)).map_err(stopped)?;
            config.check_listeners().map_err(stopped)?;
            context
                .out
                .either(&serde_json::json!({ "good": true }), || "the configuration is right".to_string());
        }
        ConfigCommand::Show { run, origin } => {
            let config = Config::load(&sources(run)).map_err(stopped)?;
            for shown in config.show_origin() {
                let from = shown.origin.to_string();
                let object = serde_json::json!({
                    "name": shown.name, "value": shown.value, "origin": from, "about": shown.about,
                });
                context.out.either(&object, || match origin {
                    true => format!("{} = {}  ({from}: {})", shown.name, shown.value, shown.about),
                    false => format!("{} = {}", shown.name, shown.value),
                });
            }
        }
    }
    Ok(())
}

fn stopped(failure: node::failure::Failure) -> Failure {
    Failure { status: failure.status, sentence: failure.sentence }
}

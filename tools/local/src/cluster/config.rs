//! The configuration files of the processes, in TOML.

use super::options::Metastore;
use super::plan::LaunchPlan;
use crate::error::LocalError;
use std::path::Path;
use toml::{Table, Value};
use types::Executors;

/// Writes a node's configuration.
pub(super) fn write_node(plan: &LaunchPlan, id: u32, path: &Path) -> Result<(), LocalError> {
    let at = &plan.nodes[id as usize - 1];
    let mut node = Table::new();
    node.insert("id".into(), Value::Integer(id.into()));
    node.insert("data_dir".into(), text(plan.node_dir(id).display()));
    let further: Vec<Value> = plan.further_dirs(id).map(|dir| text(dir.display())).collect();
    if !further.is_empty() {
        node.insert("data_dirs".into(), further.into());
    }
    node.insert("controllers".into(), plan.controllers.iter().map(text).collect::<Vec<_>>().into());
    for (key, address) in
        [("client", &at.client), ("peer", &at.peer), ("heartbeat", &at.heartbeat), ("http", &at.http)]
    {
        node.insert(format!("listen_{key}"), text(address));
    }
    node.insert("executors".into(), Value::Integer(executors(plan.options.nodes)));
    node.insert("operator_token_file".into(), text(plan.token_file.display()));
    node.insert("harm".into(), plan.options.faults.into());
    node.insert("volatile".into(), plan.options.volatile.into());
    let mut sql = Table::new();
    sql.insert("listen".into(), text(&plan.sql[id as usize - 1]));
    if let Some(file) = &plan.password_file {
        sql.insert("password_file".into(), text(file.display()));
    }
    write(path, [("node", node), ("sql", sql)])
}

/// How many executors each of so many nodes has: they share the cores of this machine.
fn executors(nodes: u32) -> i64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Executors::for_cores(cores / nodes.max(1) as usize).count() as i64
}

/// Writes a controller's configuration.
pub(super) fn write_controller(plan: &LaunchPlan, number: u32, path: &Path) -> Result<(), LocalError> {
    let mut controller = Table::new();
    controller.insert("data_dir".into(), text(plan.controller_dir(number).display()));
    controller.insert("listen".into(), text(&plan.controllers[number as usize - 1]));
    match plan.options.metastore {
        Metastore::Embedded => controller.insert("metastore".into(), text("embedded")),
        Metastore::Etcd => {
            let endpoints: Vec<Value> = plan.etcd.iter().map(|(client, _)| text(client)).collect();
            controller.insert("endpoints".into(), endpoints.into());
            controller.insert("metastore".into(), text("etcd"))
        }
    };
    if let Some(ms) = plan.options.failover_wait_ms {
        controller.insert("failover_wait_ms".into(), Value::Integer(ms as i64));
    }
    write(path, [("controller", controller)])
}

fn text(value: impl ToString) -> Value {
    Value::String(value.to_string())
}

fn write<const N: usize>(path: &Path, sections: [(&str, Table); N]) -> Result<(), LocalError> {
    let file = Table::from_iter(sections.map(|(name, section)| (name.to_string(), Value::Table(section))));
    super::file::write_atomic(path, file.to_string().as_bytes())
}

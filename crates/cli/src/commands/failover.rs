//! `failover list`.

use crate::connect::Context;
use ops::Failure;
use ops::failovers::{Line, lines, table_name};
use ops::secured::read;
use types::FailoverRecord;
use types::data::Value;
use wire::control::AdminCommand;

/// Failovers, newest last.
pub fn list(context: &mut Context) -> Result<(), Failure> {
    let records: Vec<FailoverRecord> = read(&context.admin(AdminCommand::Failovers)?)?;
    let map = context.cluster_map()?;
    let lines = lines(&records, |partition| table_name(map, partition));
    if context.out.json {
        lines.iter().for_each(|line| context.out.object(line));
        return Ok(());
    }
    if lines.is_empty() {
        context.out.line("no failovers");
        return Ok(());
    }
    let head = [
        "failover",
        "last heard",
        "partition",
        "table",
        "cause",
        "from",
        "to",
        "detect",
        "seal",
        "reconcile",
        "serve",
        "total",
        "lost",
    ];
    let ms = |ms: Option<u64>| ms.map_or_else(|| "-".to_string(), |ms| format!("{ms} ms"));
    let row = |line: &Line| {
        vec![
            line.id.to_string(),
            when(line.at_ms),
            line.partition.to_string(),
            line.table.clone(),
            line.cause.clone(),
            line.from.to_string(),
            line.to.to_string(),
            ms(Some(line.detect_ms)),
            ms(Some(line.seal_ms)),
            ms(line.reconcile_ms),
            ms(line.serve_ms),
            ms(line.total_ms),
            line.loss.clone(),
        ]
    };
    context.out.table(&head, lines.iter().map(row));
    Ok(())
}

/// A moment, given in milliseconds since 1970.
pub fn when(ms: u64) -> String {
    Value::Timestamp(ms as i64 * 1000).to_string()
}

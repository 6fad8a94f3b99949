//! Effects as lines for people, and tables for tests.

use super::World;
use metastore::Change;
use types::config::FailoverRecord;
use types::data::{Column, ColumnType, Schema};
use types::{EngineKind, LogKind, Member, PartitionRecord};
use understudy_controller::ConnId;
use wire::Message;
use wire::control::{AdminCommand, Advice, CreateTable};

/// A partition's record in one line.
pub fn describe(record: &PartitionRecord) -> String {
    let list = |members: &[Member]| members.iter().map(Member::to_string).collect::<Vec<_>>().join(" ");
    let mut line = format!("{} {} [{}]", record.id, record.epoch, list(&record.in_sync));
    if !record.catching_up.is_empty() {
        line += &format!(" catching up [{}]", list(&record.catching_up));
    }
    line += &format!(" {:?}", record.cause);
    if record.lossy {
        line += " LOSSY";
    }
    if let Some(term) = &record.before {
        line += &format!(", after {} {}", term.primary, term.epoch);
    }
    if let Some(next) = &record.next_policy {
        line += &format!(", {} and {}", record.policy.name, next.name);
    }
    line
}

/// The request for a table with one key column.
pub fn table(name: &str, policy: &str, log: LogKind, factor: Option<u8>, partitions: u32) -> CreateTable {
    let schema = Schema::new(vec![Column::new("k", ColumnType::Text).not_null()], &["k"], 1, false).unwrap();
    let engine = if log == LogKind::Disk { EngineKind::Lsm } else { EngineKind::Memory };
    CreateTable { engine, log, factor, partitions, ..CreateTable::new(name, schema, policy) }
}

impl World {
    /// Starts nodes 1 to `nodes` and creates a table.
    pub fn with_table(&mut self, nodes: u32, request: CreateTable) {
        for node in 1..=nodes {
            self.start(node, 1, u64::from(node) * 10);
        }
        self.pass(100);
        let id = self.admin(AdminCommand::CreateTable(wire::RecordText::new(&request)));
        self.answered(id).expect("answered").as_ref().expect("created");
        self.pass(100);
        self.take_lines();
    }

    pub(super) fn note_message(&mut self, index: usize, conn: ConnId, message: &Message) {
        let whom = self.whose(conn);
        let whom = if self.controllers.len() > 1 { format!("{whom} (by {index})") } else { whom };
        let line = match message {
            Message::Advise(advise) => {
                let what = match &advise.advice {
                    Advice::Admit(member) => format!("admit {member}"),
                    Advice::Remove(member) => format!("remove {member}"),
                    Advice::HandOver(member) => format!("hand over to {member}"),
                    Advice::Policy(text) => format!("policy {}", text.read::<types::Policy>().unwrap()),
                };
                format!("-> {whom} {} {}: {what}", advise.partition, advise.epoch)
            }
            Message::Proposed(proposed) => {
                let record: PartitionRecord = proposed.record.read().unwrap();
                let decision = if proposed.accepted { "accepted" } else { "refused" };
                format!("-> {whom} {decision}, {} in force", record.epoch)
            }
            Message::AdminAnswer(answer) => match &answer.result {
                Ok(text) if text.len() > 200 => format!("-> {whom} ok"),
                Ok(text) => format!("-> {whom} ok {text}"),
                Err((status, why)) => format!("-> {whom} exit {status}: {why}"),
            },
            _ => return,
        };
        self.lines.push(line);
    }

    pub(super) fn note_changes(&mut self, changes: &[Change]) {
        for change in changes {
            let Some(value) = &change.value else {
                self.lines.push(format!("{} removed", change.key));
                continue;
            };
            let line = match change.key.split('/').next().unwrap_or_default() {
                "partition" => describe(&serde_json::from_slice(value).unwrap()),
                "failover" => {
                    let failover: FailoverRecord = serde_json::from_slice(value).unwrap();
                    let served = if failover.serving_ms.is_some() { ", serves" } else { "" };
                    let tails = failover.loss.tails.len();
                    let tails = if tails > 0 { format!(", {tails} tails") } else { String::new() };
                    format!(
                        "failover {} of {}: {} to {}{served}{tails}",
                        failover.id, failover.partition, failover.old_primary, failover.new_primary
                    )
                }
                _ => format!("{} written", change.key),
            };
            self.lines.push(line);
        }
    }
}

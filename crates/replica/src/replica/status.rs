//! What a replica says of itself, for people and for planning. Safety never rests on it.

use crate::data::Data;
use crate::primary::promotion::Phase;
use crate::replica::{Replica, Role};
use crate::sender::progress::Mode;
use crate::settings::Settings;
use crate::transfer::Transfer;
use types::{Micros, Now};
use wire::control::{ReplicaStatus, Role as Shown};

impl Replica {
    /// This replica's progress now.
    pub fn status(&self, now: Now, settings: &Settings) -> ReplicaStatus {
        let (me, record) = (self.identity.me, self.config.record());
        let role = match &self.role {
            Role::Idle => Shown::Idle,
            Role::Leader(leader) if leader.promotion.serves() => Shown::Primary,
            Role::Leader(_) => Shown::Promoting,
            Role::Backup(_) if record.is_some_and(|record| record.in_sync.contains(&me)) => Shown::Backup,
            Role::Backup(_) => Shown::CatchingUp,
            Role::Damaged(_) => Shown::Damaged,
        };
        let mut status = ReplicaStatus {
            partition: self.identity.id,
            epoch: record.map(|record| record.epoch).unwrap_or_default(),
            role,
            end: self.data.log.end(),
            marks: self.data.watermarks(),
            committed: self.data.marks.committed(),
            waits: waits(&self.role, &self.data, &self.transfer),
            replay_ns: self.data.engine.replay_ns(),
            failback: self.transfer.failback(now.mono, self.role.is_copying()),
            ..ReplicaStatus::default()
        };
        if let Role::Leader(leader) = &self.role {
            if status.waits.is_empty() {
                let worth = (settings.commits_alarm, settings.commits_alarm_after);
                status.waits = self.features.commits.alarm(leader.term, now.wall_ms, worth);
            }
            status.yields_to = leader.promotion.yields_to();
            let end = self.data.log.end().lsn;
            for (member, progress) in &leader.members {
                let oldest = progress.flight.oldest().unwrap_or(now.mono);
                let lag = if progress.marks.received >= end { Micros::ZERO } else { now.mono.since(oldest) };
                let bytes = self.data.log.bytes_above(progress.marks.received);
                status.members.push((*member, progress.marks, bytes, lag.0));
                if let Some(shipping) = &progress.files {
                    let (have, all) = shipping.progress();
                    status.shipping.push((*member, have, all));
                }
            }
        }
        status
    }

    /// True while files are on their way from here or to here.
    pub fn is_shipping(&self) -> bool {
        self.role.sends_files() || self.transfer.incoming.is_receiving()
    }
}

/// What it waits for, in a few words.
fn waits(role: &Role, data: &Data, transfer: &Transfer) -> String {
    let leader = match role {
        Role::Leader(leader) => leader,
        Role::Damaged(damage) => return format!("damaged: {}", damage.reason()),
        Role::Backup(backup) if backup.copy.is_open() => return "taking in a copy".into(),
        _ => return transfer.incoming.words().unwrap_or_default(),
    };
    let shipping = leader.members.iter().find_map(|(member, progress)| {
        let (have, all) = progress.files.as_ref()?.progress();
        Some(format!("ships files to {}, which has {have} of {all} bytes", member.node))
    });
    let copying = leader.members.values().any(|progress| matches!(progress.mode(), Mode::Copying(_)));
    match leader.promotion.phase() {
        Phase::Reconciling { .. } => {
            let torn = match data.log.is_torn() {
                true => "; its own was torn in a crash: if theirs are lost, an operator has to recover it",
                false => "",
            };
            match leader.promotion.yields_to() {
                Some(other) => format!("{} has more than it can get, and should lead{torn}", other.node),
                None => format!("has {} reports of the others' logs{torn}", leader.promotion.report_count()),
            }
        }
        Phase::Fetching { from, to, .. } => format!("fetches up to {to} from {}", from.node),
        Phase::Replaying => {
            format!("replays its log: at {} of {}", data.engine.applied(), data.log.end())
        }
        Phase::Marking(marker) if marker.lsn > data.marks.committed() => {
            format!("its first entry {} is not committed yet", marker.lsn)
        }
        Phase::Marking(_) => "waits for its promise to the old primary to run out".into(),
        Phase::Serving(_) if leader.membership.is_changing() => "a change of its set is being decided".into(),
        Phase::Serving(_) if shipping.is_some() => shipping.unwrap_or_default(),
        Phase::Serving(_) if copying => "copies the state to a returning replica".into(),
        Phase::Serving(_) => String::new(),
    }
}

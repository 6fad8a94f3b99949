//! What a replica says of itself, for people and for planning. Safety never rests on it.

use crate::data::Data;
use crate::primary::Primary;
use crate::primary::promotion::Phase;
use crate::replica::{Replica, Role};
use crate::sender::progress::{Mode, Progress};
use crate::settings::Settings;
use types::{Member, Micros, NodeId, Now, PartitionRecord};
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
            waits: waits(self, now.mono),
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
fn waits(replica: &Replica, now: Micros) -> String {
    let leader = match &replica.role {
        Role::Leader(leader) => leader,
        Role::Damaged(damage) => return format!("damaged: {}", damage.reason()),
        Role::Backup(backup) if backup.copy.is_open() => return "taking in a copy".into(),
        _ => return replica.transfer.incoming.words().unwrap_or_default(),
    };
    if let Some(words) = before_serving(leader, &replica.data) {
        return words;
    }
    if leader.membership.is_changing() {
        return "a change of its set is being decided".into();
    }
    let record = replica.config.record();
    if let Some(node) = record.and_then(|record| late(leader, &replica.data, record, now)) {
        return format!("{node}, which has got no further for half a second");
    }
    let shipping = leader.members.iter().find_map(|(member, progress)| {
        let (have, all) = progress.files.as_ref()?.progress();
        Some(format!("ships files to {}, which has {have} of {all} bytes", member.node))
    });
    let copying = leader.members.values().any(|progress| matches!(progress.mode(), Mode::Copying(_)));
    match shipping {
        Some(words) => words,
        None if copying => "copies the state to a returning replica".into(),
        None => String::new(),
    }
}

/// What a primary that does not serve yet waits for, in a few words; none if it serves.
pub(super) fn before_serving(leader: &Primary, data: &Data) -> Option<String> {
    Some(match leader.promotion.phase() {
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
        Phase::Serving(_) => return None,
    })
}

/// A member that commits wait for, and that has got no further for so long, is named.
const LATE: Micros = Micros::from_millis(500);

/// A member that holds up what is not committed, if one has for long.
fn late(leader: &Primary, data: &Data, record: &PartitionRecord, now: Micros) -> Option<NodeId> {
    if data.marks.committed() >= data.log.end().lsn {
        return None;
    }
    let counts = |member: &Member| record.rank(member).is_some_and(|rank| record.policy.waits_for(rank));
    let hangs = |progress: &Progress| progress.health.hangs(now, progress.flight.oldest(), LATE);
    let mut members = leader.members.iter();
    members.find(|(member, progress)| counts(member) && hangs(progress)).map(|(member, _)| member.node)
}

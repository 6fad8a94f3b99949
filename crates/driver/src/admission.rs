//! What is let in to a replica while its node has no room: reads, flushes and truncation go on (F20), and a
//! partition that is held back ([`crate::BlockedOutputs`]) hears nothing but configurations.

use types::{Lsn, Member, PartitionRecord};
use wire::peer::{AppendRefused, Refusal};
use wire::request::Hint;
use wire::{Body, PeerMessage, Reply, Request, Status};

/// What becomes of a message of another replica.
#[derive(Clone, PartialEq, Debug)]
pub enum Admission {
    /// The replica is given it.
    Given,
    /// It is lost, as on a network.
    Lost,
    /// Its sender, a primary, is told: it goes on without this copy until there is room again.
    Refused(Member, AppendRefused),
    /// As refused, and the replica hears what the append says beside its entries
    /// ([`replica::Host::hear_positions`]): how much of the log nobody needs any more (PR-115).
    Heard(Member, AppendRefused),
}

/// What becomes of a message of another replica. `held`: its partition waits for room for a tail. `full`:
/// there is no room for more of this partition.
pub fn of_peer(message: &PeerMessage, me: Member, held: bool, full: bool) -> Admission {
    match message {
        PeerMessage::Append(append) if !append.entries.is_empty() && (held || full) => {
            let refused = AppendRefused {
                partition: append.partition,
                epoch: append.epoch,
                from: me,
                number: append.number,
                why: Refusal::Busy,
            };
            match held {
                true => Admission::Refused(append.from, refused),
                false => Admission::Heard(append.from, refused),
            }
        }
        PeerMessage::Inform(_) => Admission::Given,
        _ if held => Admission::Lost,
        _ => Admission::Given,
    }
}

/// What a client is told whose request is not let in; none if it is. `record` is the newest configuration
/// that is known of the partition, `full` the place in which there is no room for more of it.
pub fn of_client(
    request: &Request,
    me: Member,
    record: Option<&PartitionRecord>,
    held: bool,
    full: Option<&str>,
) -> Option<Status> {
    let node = me.node.0;
    if held {
        // If another node leads, that one is named.
        let leads = record.is_some_and(|record| record.primary == me);
        let why = format!("node {node} waits for room to set a divergent tail aside");
        return Some(if leads { Status::NotYet(why) } else { Status::NotPrimary });
    }
    let place = full.filter(|_| request.op.makes_entries())?;
    let why = format!("the disk of node {node} is full: free space in {place}, or hand its partitions over");
    Some(Status::Full(why))
}

/// The answer to a request that no replica was asked; nothing was done. Who is told that another leads is
/// told who.
pub fn turned_away(request: &Request, status: Status, record: Option<&PartitionRecord>) -> Reply {
    let elsewhere = status == Status::NotPrimary;
    Reply {
        id: request.id,
        status,
        lsn: Lsn::ZERO,
        epoch: record.map(|record| record.epoch).unwrap_or_default(),
        policy: record.map_or(0, |record| record.policy.version),
        copies: 0,
        hint: record.filter(|_| elsewhere).map(|record| Box::new(Hint::new(record))),
        body: Body::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use types::config::Cause;
    use types::{Epoch, LogKind, NodeId, PartitionId, Policy, Position, TableId, Term};
    use wire::Op;
    use wire::control::RecordText;
    use wire::peer::{Append, Fetch, Inform};

    const P: PartitionId = PartitionId(64);

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), ..Member::default() }
    }

    fn record() -> PartitionRecord {
        PartitionRecord {
            term: Term(2),
            cause: Cause::CatchingUp,
            ..PartitionRecord::new(
                P,
                TableId(1),
                Epoch(3),
                vec![member(1), member(2)],
                Policy::preset("sync", 2, LogKind::Disk).expect("a preset"),
            )
        }
    }

    fn append(entries: &'static [u8]) -> PeerMessage {
        PeerMessage::Append(Append {
            partition: P,
            epoch: Epoch(3),
            from: member(1),
            number: 7,
            prev: Position::ZERO,
            prev_crc: 0,
            committed: Lsn::ZERO,
            secured: Lsn::ZERO,
            log_floor: Lsn::ZERO,
            sent_us: 0,
            echo_us: 0,
            entries: Bytes::from_static(entries),
        })
    }

    #[test]
    fn f20_who_has_no_room_takes_no_entries_and_who_waits_hears_of_configurations_alone() {
        let inform = PeerMessage::Inform(Inform { partition: P, record: RecordText::new(&record()) });
        let (epoch, from, after, to) = (Epoch(3), member(1), Position::ZERO, Lsn(1));
        let fetch = PeerMessage::Fetch(Fetch { partition: P, epoch, from, after, to });
        let why = Refusal::Busy;
        let busy = AppendRefused { partition: P, epoch, from: member(2), number: 7, why };
        let refused = || Admission::Refused(member(1), busy.clone());
        let heard = || Admission::Heard(member(1), busy.clone());
        // The message, and what becomes of it where nothing is wrong, where there is no room, and where a
        // tail waits for some.
        let cases = [
            (append(b"entries"), [Admission::Given, heard(), refused()]),
            (append(b""), [Admission::Given, Admission::Given, Admission::Lost]),
            (fetch, [Admission::Given, Admission::Given, Admission::Lost]),
            (inform, [Admission::Given, Admission::Given, Admission::Given]),
        ];
        for (message, expected) in cases {
            let found = [(false, false), (false, true), (true, false)]
                .map(|(held, full)| of_peer(&message, member(2), held, full));
            assert_eq!(found, expected, "{message:?}");
        }
    }

    #[test]
    fn f20_clients_read_without_room_and_are_sent_on_where_a_tail_waits_for_some() {
        let read = Request::new(TableId(1), 1, P, Op::Digest);
        let write = Request { op: Op::Write { ops: Vec::new(), mark: None, since: None }, ..read.clone() };
        let record = record();
        let told =
            |request: &Request, node, held, full| of_client(request, member(node), Some(&record), held, full);
        for node in [1, 2] {
            assert_eq!(told(&read, node, false, Some("there")), None);
            assert_eq!(told(&write, node, false, None), None);
            let Some(Status::Full(why)) = told(&write, node, false, Some("there")) else { panic!("let in") };
            assert!(why.contains("there"), "{why}");
        }
        for request in [&read, &write] {
            assert!(matches!(told(request, 1, true, None), Some(Status::NotYet(_))), "nobody else leads");
            assert_eq!(told(request, 2, true, None), Some(Status::NotPrimary));
        }
        let sent_on = turned_away(&read, Status::NotPrimary, Some(&record));
        assert_eq!((sent_on.hint, sent_on.epoch), (Some(Box::new(Hint::new(&record))), Epoch(3)));
        assert_eq!(turned_away(&read, Status::NotYet("so".into()), Some(&record)).hint, None);
    }
}

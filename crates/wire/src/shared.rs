//! Requests whose rows are parts of the frame that brought them, so that a large value is copied into its
//! entry and nowhere before.
//!
//! They decode from the same bytes as all others: what stands here is how those of a write lie in them.
//! Anything else is decoded as usual.

use crate::request::{FeedMark, Op, ReadLevel, Request, RowOp};
use bytes::Bytes;
use serde::Deserialize;
use types::engine::LARGE_VALUE_BYTES;
use types::{PartitionId, Position, SessionId, TableId};

/// The number of [`crate::Message::Request`].
const REQUEST: u16 = 10;
/// Where [`Op::Write`] stands among the variants of [`Op`].
const WRITE: u32 = 5;
/// More than what stands in a write beside its operations, in bytes.
const BESIDE: usize = 256;
/// More than what stands beside the bytes of an operation.
const BESIDE_OP: usize = 16;

/// A [`Request`] up to the variant of its operation.
#[derive(Deserialize)]
struct Head {
    id: u64,
    session: SessionId,
    seq: u64,
    confirmed: u64,
    deadline_ms: u64,
    table: TableId,
    schema: u32,
    partition: PartitionId,
    read: ReadLevel,
    trace: u64,
    op: u32,
}

/// What follows it in a write: the fields of [`Op::Write`].
#[derive(Deserialize)]
struct Write<'a> {
    #[serde(borrow)]
    ops: Vec<Row<'a>>,
    mark: Option<FeedMark>,
    since: Option<Position>,
}

/// A [`RowOp`] in a frame.
#[derive(Deserialize)]
enum Row<'a> {
    Put { key: &'a [u8], row: &'a [u8] },
    Insert { key: &'a [u8], row: &'a [u8] },
    Delete { key: &'a [u8] },
    Update { key: &'a [u8], row: &'a [u8] },
    Keep { key: &'a [u8] },
}

impl Row<'_> {
    fn shared(self, body: &Bytes) -> RowOp {
        let part = |bytes: &[u8]| body.slice_ref(bytes);
        match self {
            Row::Put { key, row } => RowOp::Put { key: part(key), row: part(row) },
            Row::Insert { key, row } => RowOp::Insert { key: part(key), row: part(row) },
            Row::Delete { key } => RowOp::Delete { key: part(key) },
            Row::Update { key, row } => RowOp::Update { key: part(key), row: part(row) },
            Row::Keep { key } => RowOp::Keep { key: part(key) },
        }
    }
}

/// True if what a message of this number and length brings may be parts of its frame.
pub(crate) fn may_share(number: u16, length: usize) -> bool {
    number == REQUEST && length >= LARGE_VALUE_BYTES
}

/// The request in the body of a frame, if it is a write.
pub(crate) fn write_in(body: &Bytes) -> Option<Request> {
    let (head, rest) = postcard::take_from_bytes::<Head>(body).ok()?;
    if head.op != WRITE {
        return None;
    }
    let (write, rest) = postcard::take_from_bytes::<Write<'_>>(rest).ok()?;
    let ops = write.ops.into_iter().map(|row| row.shared(body)).collect();
    rest.is_empty().then_some(Request {
        id: head.id,
        session: head.session,
        seq: head.seq,
        confirmed: head.confirmed,
        deadline_ms: head.deadline_ms,
        table: head.table,
        schema: head.schema,
        partition: head.partition,
        read: head.read,
        trace: head.trace,
        op: Op::Write { ops, mark: write.mark, since: write.since },
    })
}

impl Request {
    /// With rows in memory of their own, where they may be parts of a connection's buffer: for whoever does
    /// not do it at once.
    pub fn detached(mut self) -> Request {
        if let Op::Write { ops, .. } = &mut self.op {
            let length = |op: &RowOp| op.key().len() + op.row().map_or(0, Bytes::len) + BESIDE_OP;
            if BESIDE + ops.iter().map(length).sum::<usize>() >= LARGE_VALUE_BYTES {
                ops.iter_mut().for_each(detach);
            }
        }
        self
    }
}

fn detach(op: &mut RowOp) {
    let own = |bytes: &mut Bytes| *bytes = Bytes::copy_from_slice(bytes);
    match op {
        RowOp::Put { key, row } | RowOp::Insert { key, row } | RowOp::Update { key, row } => {
            own(key);
            own(row);
        }
        RowOp::Delete { key } | RowOp::Keep { key } => own(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use types::{FeedId, Lsn, Term};

    /// A write with every kind of operation.
    fn write(row: usize) -> Request {
        let (key, row) = (Bytes::from_static(b"key"), Bytes::from(vec![7; row]));
        let ops = vec![
            RowOp::Put { key: key.clone(), row: row.clone() },
            RowOp::Insert { key: key.clone(), row: row.clone() },
            RowOp::Delete { key: key.clone() },
            RowOp::Update { key: key.clone(), row: Bytes::new() },
            RowOp::Keep { key },
        ];
        let mark = Some(FeedMark { feed: FeedId(3), position: 9 });
        let since = Some(Position::new(Term(2), Lsn(300)));
        let op = Op::Write { ops, mark, since };
        let session = SessionId(Position::new(Term(1), Lsn(4)));
        let read = ReadLevel::Any { max_lag_ms: 7, min_lsn: Lsn(8) };
        let request = Request::new(TableId(70), 2, PartitionId(64), op);
        Request { id: 1, session, seq: 500, confirmed: 6, deadline_ms: 90_000, read, trace: 11, ..request }
    }

    fn body(request: &Request) -> Bytes {
        let message = Message::Request(request.clone());
        assert_eq!(message.number(), REQUEST);
        message.encode_body(Vec::new()).expect("numbers and bytes").into()
    }

    #[test]
    fn a_write_decodes_to_the_same_as_ever_and_shares_the_frame() {
        for row in [0, 9, 300, LARGE_VALUE_BYTES] {
            let request = write(row);
            let body = body(&request);
            let shared = write_in(&body).expect("a write");
            assert_eq!(shared, request);
            let Op::Write { ops, .. } = &shared.op else { panic!("{shared:?}") };
            let is_part = |bytes: &Bytes| body.as_ptr_range().contains(&bytes.as_ptr());
            assert!(ops.iter().all(|op| is_part(op.key())), "keys are parts of the frame");
            assert!(row == 0 || ops[0].row().is_some_and(is_part), "and so are rows");
            let detached = shared.clone().detached();
            assert_eq!(detached, request);
            let Op::Write { ops, .. } = &detached.op else { panic!("{detached:?}") };
            assert_eq!(is_part(ops[0].key()), row < LARGE_VALUE_BYTES, "short frames are not shared");
        }
    }

    #[test]
    fn what_is_no_write_or_not_whole_is_left_to_others() {
        let body = body(&write(30));
        for length in 0..body.len() {
            assert_eq!(write_in(&body.slice(..length)), None, "{length} bytes");
        }
        assert_eq!(write_in(&Bytes::from([&body[..], b"more"].concat())), None);
        let others = [Op::OpenSession, Op::Digest, Op::Feed { feed: FeedId(3) }];
        for op in others {
            let request = Request::new(TableId(70), 2, PartitionId(64), op);
            assert_eq!(write_in(&self::body(&request)), None);
        }
    }
}

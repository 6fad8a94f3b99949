//! What a transaction has written, and how much that may be.

use super::*;
use crate::txn::memory::NodeMemory;

fn edit(key: &str, existed: bool, after: Option<&str>) -> Edit {
    let after = after.map_or(After::Gone, |row| After::Row(Bytes::copy_from_slice(row.as_bytes())));
    Edit::new(Bytes::copy_from_slice(key.as_bytes()), existed, after)
}

fn shown(buffer: &Buffer) -> String {
    let one = |op: &RowOp| {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let sign = match op {
            RowOp::Update { .. } => '=',
            RowOp::Delete { .. } => '-',
            RowOp::Keep { .. } => '!',
            _ => '+',
        };
        format!("{sign}{}{}", text(op.key()), op.row().map_or(String::new(), text))
    };
    buffer
        .operations()
        .expect("read")
        .iter()
        .flat_map(|written| &written.ops)
        .map(one)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_first_write_of_a_row_says_whether_it_was_there() {
    let (mut buffer, mut undo) = (Buffer::default(), UndoLog::default());
    let here = (TableId(1), PartitionId(7));
    let steps: &[(Edit, &str)] = &[
        (edit("a", true, Some("1")), "=a1"),
        (edit("b", false, Some("2")), "=a1 +b2"),
        (edit("b", true, Some("3")), "=a1 +b3"),
        (edit("a", true, None), "-a +b3"),
        (edit("b", true, None), "-a"),
        (edit("a", false, Some("4")), "=a4"),
        (Edit { after: After::Same, ..edit("a", true, None) }, "=a4"),
        (Edit { after: After::Same, ..edit("c", true, None) }, "=a4 !c"),
        (edit("c", true, Some("5")), "=a4 =c5"),
    ];
    let mut states = vec![(0, buffer.clone())];
    for (step, expected) in steps {
        buffer.take(here, vec![step.clone()], (Limit::WRITE, Some(&mut undo))).expect("room");
        assert_eq!(shown(&buffer), *expected, "{step:?}");
        states.push((undo.len(), buffer.clone()));
    }
    let (from, to) = (Bytes::new(), Bytes::from_static(b"c"));
    assert_eq!(buffer.range(TableId(1), (&from, &to), 9).map(|rows| rows.len()), Ok(1));
    assert_eq!(buffer.range(TableId(1), (&from, &to), 0).map(|rows| rows.len()), Ok(0));
    assert_eq!(buffer.range(TableId(2), (&from, &to), 9).map(|rows| rows.len()), Ok(0));
    assert_eq!(buffer.row((TableId(2), PartitionId(7)), b"a"), Ok(None));
    assert_eq!(buffer.row(here, b"a"), Ok(Some(Some(Bytes::from_static(b"4")))));
    assert_eq!(buffer.row((TableId(1), PartitionId(8)), b"a"), Ok(None));
    while let Some((length, state)) = states.pop() {
        buffer.back(&mut undo, length);
        assert_eq!((buffer.operations(), buffer.bytes), (state.operations(), state.bytes));
        assert_eq!(buffer.rows, state.rows);
    }
    assert_eq!((buffer.bytes, undo.memory), (0, 0));
}

const PETS: TableId = TableId(1);
const HERE: (TableId, PartitionId) = (PETS, PartitionId(7));

#[test]
fn what_is_too_much_is_refused_as_a_whole() {
    let (mut buffer, mut undo) = (Buffer::default(), UndoLog::default());
    let long = "x".repeat(MAX_WRITE_BYTES / 2);
    let mut take = |edits: &[Edit], limit: Limit| {
        let taken = buffer.take(HERE, edits.to_vec(), (limit, Some(&mut undo)));
        let grown = buffer.grown(PETS, (&Bytes::new(), &Bytes::new())).expect("read");
        (taken.map_err(|failure| failure.code), grown, undo.len(), buffer.bytes)
    };
    let both = [edit("a", false, Some(&long)), edit("b", false, Some(&long))];
    assert_eq!(take(&both, Limit::WRITE), (Err("54000"), 0, 0, 0));
    let one = both[0].bytes();
    assert_eq!(take(&both[..1], Limit::WRITE), (Ok(()), 1, 1, one));
    // What takes the place of what is there is not counted twice.
    assert_eq!(take(&both[..1], Limit::WRITE), (Ok(()), 1, 2, one));
    assert_eq!(take(&both[1..], Limit::WRITE), (Err("54000"), 1, 2, one));
    assert_eq!(take(&both[1..], Limit::LARGE), (Ok(()), 2, 3, 2 * one));
    assert_eq!(take(&[edit("a", true, None), edit("b", true, None)], Limit::WRITE), (Ok(()), 0, 5, 0));
    let few = Limit { rows: 2, bytes: usize::MAX };
    let three = ["a", "b", "c"].map(|key| edit(key, false, Some("1")));
    assert_eq!(take(&three, few).0, Err("54000"));
    assert_eq!(take(&three[..2], few).0, Ok(()));
    assert_eq!(take(&three[..2], few).0, Ok(()), "no more rows than before");
}

#[test]
fn a_large_transaction_has_its_memory_from_the_node() {
    let memory = Arc::new(NodeMemory::of(1_000));
    let mut buffer = Buffer::with_room(Room::new(&memory, 0));
    let mut undo = UndoLog::default();
    let mut take = |key: &str, undo: Option<&mut UndoLog>| {
        let taken = buffer.take(HERE, vec![edit(key, false, Some("1"))], (Limit::LARGE, undo));
        taken.map_err(|failure| failure.code)
    };
    assert_eq!(take("a", None), Ok(()));
    assert_eq!(take("b", Some(&mut undo)), Ok(()));
    assert_eq!(take("c", Some(&mut undo)), Err("53200"), "what is kept to go back counts");
    buffer.back(&mut undo, 0);
    buffer.settle(Some(&undo));
    let other = Room::new(&memory, 0);
    assert!(other.hold(600).is_ok() && other.hold(900).is_err());
    drop(buffer);
    assert!(other.hold(1_000).is_ok());
}

#[test]
fn who_still_reads_keeps_what_he_reads_by_and_that_is_counted() {
    let memory = Arc::new(NodeMemory::of(700));
    let mut buffer = Arc::new(Buffer::with_room(Room::new(&memory, 0)));
    let write = |buffer: &mut Arc<Buffer>, key: &str| {
        let edits = vec![edit(key, false, Some("1"))];
        Buffer::writable(buffer)?.take(HERE, edits, (Limit::LARGE, None))
    };
    write(&mut buffer, "a").expect("room");
    let reader = buffer.clone();
    assert_eq!(write(&mut buffer, "b").map_err(|failure| failure.code), Err("53200"), "a copy, and a row");
    assert_eq!((reader.rows, buffer.rows), (1, 1));
    drop(reader);
    write(&mut buffer, "b").expect("nobody reads");
    let reader = buffer.clone();
    assert_eq!(write(&mut buffer, "c").map_err(|failure| failure.code), Err("53200"), "no copy at all");
    assert_eq!(reader.row(HERE, b"b"), Ok(Some(Some(Bytes::from_static(b"1")))));
    assert_eq!(buffer.row(HERE, b"c"), Ok(None));
}

#[test]
fn who_looks_ahead_sees_what_is_below() {
    let mut below = Buffer::default();
    let there = vec![edit("a", true, Some("1")), edit("b", true, None), edit("c", false, Some("3"))];
    below.take(HERE, there, (Limit::WRITE, None)).expect("room");
    let mut above = Buffer::over(&Arc::new(below));
    let more = vec![
        edit("b", false, Some("2")),
        edit("c", true, None),
        Edit { after: After::Same, ..edit("a", true, None) },
        edit("d", false, Some("4")),
    ];
    above.take(HERE, more, (Limit::WRITE, None)).expect("room");
    let (from, to) = (Bytes::new(), Bytes::new());
    let rows = above.range(PETS, (&from, &to), 9).expect("read");
    let seen: Vec<u8> = rows.iter().flat_map(|(key, row)| [key[0], row[0]]).collect();
    assert_eq!(seen, b"a1b2d4");
    assert_eq!(above.row(HERE, b"a"), Ok(Some(Some(Bytes::from_static(b"1")))));
    assert_eq!((above.row(HERE, b"c"), above.row(HERE, b"e")), (Ok(Some(None)), Ok(None)));
    // One goes, and two come that were not there before the transaction or had gone in it.
    assert_eq!(above.grown(PETS, (&from, &to)), Ok(1));
    assert!(!above.is_empty() && !Buffer::over(&Arc::new(above)).is_empty());
}

#[test]
fn what_must_be_as_it_was_is_asked_in_pieces() {
    let mut buffer = Buffer::default();
    let key = |n: usize| format!("{n:06}");
    let rows = (0..MAX_OPS + 2).map(|n| edit(&key(n), n != 1, Some("1"))).collect();
    buffer.take(HERE, rows, (Limit::LARGE, None)).expect("room");
    let unchanged = |passed| buffer.unchanged(passed).expect("read");
    let first = unchanged(0);
    assert_eq!((first.len(), first[0].ops.len()), (1, MAX_OPS));
    let last = unchanged(MAX_OPS);
    assert_eq!(last[0].ops, [RowOp::Keep { key: Bytes::from(key(MAX_OPS + 1)) }]);
    assert!(unchanged(MAX_OPS + 1).is_empty());
    assert!(!buffer.fits_a_write(|_| false) && buffer.fits_a_write(|table| table == PETS));
}

/// The largest writes: many short rows, and few long ones.
#[test]
fn a_write_of_16_mb_is_within_the_limits_of_a_request_and_of_an_entry() {
    let most = Position::new(types::Term(u64::MAX >> 4), types::Lsn(u64::MAX >> 4));
    for rows in [MAX_OPS, 10_000, 16, 2] {
        let each = MAX_WRITE_BYTES / rows - OVERHEAD - 8;
        let row = "x".repeat(each);
        let mut buffer = Buffer::default();
        let edits =
            (0..rows).map(|at| Edit { since: Some(most), ..edit(&format!("{at:08}"), false, Some(&row)) });
        buffer.take(HERE, edits.collect(), (Limit::WRITE, None)).expect("as much as one write has");
        assert!(buffer.fits_a_write(|_| false) && buffer.bytes + rows > MAX_WRITE_BYTES - OVERHEAD);
        let Written { table, ops, seen } = buffer.written(PETS).expect("read");
        let space = types::KeySpace::Table(table);
        let mutations =
            ops.iter().map(|op| types::Mutation { key: space.row_key(op.key()), value: op.row().cloned() });
        let entry = wire::Effects::encoded_len(&mutations.collect::<Vec<_>>());
        // What the executor adds beside rows.
        assert!(entry + (64 << 10) <= wire::entry::MAX_PAYLOAD_BYTES, "{rows} rows: {entry} bytes");
        let part = wire::TablePart { table, schema: u32::MAX, ops, seen };
        let op = wire::Op::Transact { changes: Vec::new(), parts: vec![part], since: Some(most) };
        let request = wire::Request::new(table, u32::MAX, HERE.1, op);
        let message = wire::Message::Request(request);
        let mut frame = Vec::new();
        assert_eq!(wire::frame::encode(&message, &mut frame), Ok(()), "{rows} rows");
    }
}

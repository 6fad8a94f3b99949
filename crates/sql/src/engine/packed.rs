//! `pack_(...)`, an aggregate that makes one value of all rows of a query, and `unpackN_(value)`, a table
//! with these rows. The engine knows no subquery in FROM that sees what stands beside it; the argument of a
//! table is an expression, and expressions do. `pack_row_(...)` makes one value of its arguments, where a
//! query gives other columns for each of its rows (MERGE).

use super::encode::{decode, encode};
use super::{FLAGS, failed};
use crate::ty::Ty;
use pg::{Failure, Row, code};
use rusqlite::functions::{Aggregate, Context as Arguments};
use rusqlite::types::{Value as Kept, ValueRef};
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
};
use rusqlite::{Connection, Error, Result, ffi};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use types::data::Value;

/// Tables of so many columns each. One takes the smallest that has room.
const WIDTHS: [usize; 4] = [4, 16, 64, 256];
/// Columns of a subquery that sees what stands beside it.
pub const MOST_COLUMNS: usize = WIDTHS[WIDTHS.len() - 1];
/// Bytes of all rows that it gives for one row beside it.
const MOST_BYTES: usize = 64 << 20;

/// The width of the smallest table with room for so many columns.
pub fn packed_width(columns: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width >= columns).unwrap_or(MOST_COLUMNS)
}

/// Makes them known to a connection.
pub fn register(connection: &Connection) -> Result<()> {
    const MODULE: Module<Rows> = Module::eponymous_only_module();
    connection.create_aggregate_function("pack_", -1, FLAGS, Pack)?;
    connection.create_scalar_function("pack_row_", -1, FLAGS, pack_row)?;
    for width in WIDTHS {
        let name = CString::new(format!("unpack{width}_")).expect("no zero byte");
        connection.create_module(name.as_c_str(), &MODULE, Some(width))?;
    }
    Ok(())
}

/// Rows as bytes: for each the number of its values, for each value its kind, its length and itself.
struct Pack;

impl Aggregate<Vec<u8>, Option<Vec<u8>>> for Pack {
    fn init(&self, _: &mut Arguments<'_>) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn step(&self, context: &mut Arguments<'_>, rows: &mut Vec<u8>) -> Result<()> {
        add_all(rows, context);
        if rows.len() > MOST_BYTES {
            let message = format!("a LATERAL subquery gives more than {MOST_BYTES} bytes for one row");
            return Err(failed(Failure::new(code::LIMIT, message)));
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Arguments<'_>, rows: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        Ok(rows)
    }
}

/// One row as bytes.
fn pack_row(context: &Arguments<'_>) -> Result<Vec<u8>> {
    let mut row = Vec::new();
    add_all(&mut row, context);
    Ok(row)
}

/// Puts a row behind others.
fn add_all(rows: &mut Vec<u8>, context: &Arguments<'_>) {
    rows.extend((context.len() as u32).to_le_bytes());
    for at in 0..context.len() {
        add(rows, context.get_raw(at));
    }
}

/// Puts a value behind others.
fn add(rows: &mut Vec<u8>, value: ValueRef<'_>) {
    let number: [u8; 8];
    let (kind, bytes): (u8, &[u8]) = match value {
        ValueRef::Null => (0, &[]),
        ValueRef::Integer(value) => {
            number = value.to_le_bytes();
            (1, &number)
        }
        ValueRef::Real(value) => {
            number = value.to_le_bytes();
            (2, &number)
        }
        ValueRef::Text(bytes) => (3, bytes),
        ValueRef::Blob(bytes) => (4, bytes),
    };
    rows.push(kind);
    rows.extend((bytes.len() as u32).to_le_bytes());
    rows.extend(bytes);
}

/// Rows that are there, as such a table reads them. Others of the statement have so many bytes already.
pub fn pack(rows: &[Row], others: usize) -> std::result::Result<Vec<u8>, Failure> {
    let mut packed = Vec::new();
    for row in rows {
        packed.extend((row.len() as u32).to_le_bytes());
        for value in row {
            add(&mut packed, ValueRef::from(&encode(value)));
        }
        if others + packed.len() > MOST_BYTES {
            let message = format!("parts of WITH give more than {MOST_BYTES} bytes of rows");
            return Err(Failure::new(code::LIMIT, message).hint("name the columns that are used"));
        }
    }
    Ok(packed)
}

/// The rows that were packed. None: these bytes are none.
fn unpacked(mut bytes: &[u8]) -> Option<Vec<Vec<Kept>>> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let width = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let row: Option<Vec<Kept>> = (0..width).map(|_| value(&mut bytes)).collect();
        rows.push(row?);
    }
    Some(rows)
}

/// The number that `pack_row_` has put first, and the values behind it. `types` gives theirs by that number.
/// The error: these bytes are no such row.
pub fn unpack_row(
    bytes: &[u8],
    types: impl FnOnce(usize) -> Option<Vec<Ty>>,
) -> std::result::Result<(usize, Vec<Value>), Failure> {
    let wrong = || Failure::new(code::INTERNAL, "a packed row cannot be read");
    let mut row = unpacked(bytes).and_then(|rows| rows.into_iter().next()).ok_or_else(wrong)?.into_iter();
    let Some(Kept::Integer(number)) = row.next() else { return Err(wrong()) };
    let number = usize::try_from(number).map_err(|_| wrong())?;
    let types = types(number).filter(|types| types.len() == row.len()).ok_or_else(wrong)?;
    let values = row.zip(types).map(|(kept, ty)| decode(ValueRef::from(&kept), ty));
    Ok((number, values.collect::<std::result::Result<_, _>>()?))
}

fn value(bytes: &mut &[u8]) -> Option<Kept> {
    let kind = *bytes.split_off_first()?;
    let length = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
    let value = bytes.split_off(..length as usize)?;
    Some(match kind {
        0 => Kept::Null,
        1 => Kept::Integer(i64::from_le_bytes(value.try_into().ok()?)),
        2 => Kept::Real(f64::from_le_bytes(value.try_into().ok()?)),
        3 => Kept::Text(std::str::from_utf8(value).ok()?.to_string()),
        4 => Kept::Blob(value.to_vec()),
        _ => return None,
    })
}

#[repr(C)]
struct Rows {
    /// First, as the engine demands.
    base: ffi::sqlite3_vtab,
    width: usize,
}

#[expect(
    unsafe_code,
    reason = "the engine's interface for tables; `base` is the first field of a repr(C) struct"
)]
// SAFETY: as the trait demands, the struct is repr(C) and begins with the engine's own.
unsafe impl<'vtab> VTab<'vtab> for Rows {
    type Aux = usize;
    type Cursor = Cursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&usize>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Rows)> {
        let width = aux.copied().unwrap_or(WIDTHS[0]);
        db.config(VTabConfig::Innocuous)?;
        let columns: Vec<String> = (0..width).map(|at| format!("o{at}")).collect();
        let declared = format!("CREATE TABLE x({}, packed HIDDEN)", columns.join(", "));
        let declared = CString::new(declared).expect("no zero byte");
        Ok((Cow::Owned(declared), Rows { base: ffi::sqlite3_vtab::default(), width }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let hidden = self.width as c_int;
        let wanted = info.constraints().enumerate().find_map(|(at, constraint)| {
            let equal = constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            (constraint.column() == hidden && equal).then_some((at, constraint.is_usable()))
        });
        let Some((at, true)) = wanted else { return Ok(false) };
        let mut usage = info.constraint_usage(at);
        usage.set_argv_index(1);
        usage.set_omit(true);
        info.set_estimated_cost(100.0);
        info.set_estimated_rows(100);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        Ok(Cursor { base: ffi::sqlite3_vtab_cursor::default(), rows: Vec::new(), at: 0, table: PhantomData })
    }
}

#[repr(C)]
struct Cursor<'vtab> {
    /// First, as the engine demands.
    base: ffi::sqlite3_vtab_cursor,
    rows: Vec<Vec<Kept>>,
    at: usize,
    table: PhantomData<&'vtab Rows>,
}

#[expect(
    unsafe_code,
    reason = "the engine's interface for tables; `base` is the first field of a repr(C) struct"
)]
// SAFETY: as the trait demands, the struct is repr(C) and begins with the engine's own.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, _: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let packed = args.get::<Option<Vec<u8>>>(0)?.unwrap_or_default();
        (self.rows, self.at) = (unpacked(&packed).ok_or(Error::InvalidQuery)?, 0);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.at >= self.rows.len()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        match self.rows.get(self.at).and_then(|row| row.get(column as usize)) {
            Some(value) => context.set_result(value),
            None => context.set_result(&Kept::Null),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.at as i64)
    }
}

//! `rows_(n)`: a table of the engine with the numbers from 1 to n, for functions that give several rows.

use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
};
use rusqlite::{Connection, Result, ffi};
use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;

/// Makes it known to a connection.
pub fn register(connection: &Connection) -> Result<()> {
    const MODULE: Module<Numbers> = Module::eponymous_only_module();
    connection.create_module(c"rows_", &MODULE, None)
}

#[repr(C)]
struct Numbers {
    /// First, as the engine demands.
    base: ffi::sqlite3_vtab,
}

#[expect(
    unsafe_code,
    reason = "the engine's interface for tables; `base` is the first field of a repr(C) struct"
)]
// SAFETY: as the trait demands, the struct is repr(C) and begins with the engine's own.
unsafe impl<'vtab> VTab<'vtab> for Numbers {
    type Aux = ();
    type Cursor = Cursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        _aux: Option<&()>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Numbers)> {
        db.config(VTabConfig::Innocuous)?;
        Ok((Cow::Borrowed(c"CREATE TABLE x(k, n HIDDEN)"), Numbers { base: ffi::sqlite3_vtab::default() }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let wanted = info.constraints().enumerate().find_map(|(at, constraint)| {
            let equal = constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            (constraint.column() == 1 && equal).then_some((at, constraint.is_usable()))
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
        Ok(Cursor { base: ffi::sqlite3_vtab_cursor::default(), at: 1, last: 0, table: PhantomData })
    }
}

#[repr(C)]
struct Cursor<'vtab> {
    /// First, as the engine demands.
    base: ffi::sqlite3_vtab_cursor,
    at: i64,
    last: i64,
    table: PhantomData<&'vtab Numbers>,
}

#[expect(
    unsafe_code,
    reason = "the engine's interface for tables; `base` is the first field of a repr(C) struct"
)]
// SAFETY: as the trait demands, the struct is repr(C) and begins with the engine's own.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, _: Option<&str>, args: &Filters<'_>) -> Result<()> {
        (self.at, self.last) = (1, args.get::<Option<i64>>(0)?.unwrap_or(0));
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.at > self.last
    }

    fn column(&self, context: &mut Context, _: c_int) -> Result<()> {
        context.set_result(self.at)
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.at)
    }
}

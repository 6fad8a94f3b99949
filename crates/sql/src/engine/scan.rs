//! The cluster's tables as tables of the engine: a scan gives the rows of one source of the running
//! statement, page by page.

use super::{RUNNING, fail};
use pg::{Failure, code};
use rusqlite::types::Value as Kept;
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
};
use rusqlite::{Connection, Error, Result, ffi};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;

/// Scans for so many columns each. One takes the smallest that has room.
const WIDTHS: [usize; 5] = [4, 16, 64, 256, 1024];

/// The width of the smallest scan with room for so many columns.
pub fn scan_width(columns: usize) -> usize {
    WIDTHS.into_iter().find(|width| *width >= columns).unwrap_or(WIDTHS[WIDTHS.len() - 1])
}

/// Where the rows of a source come from.
pub trait Pages {
    /// The next rows, each with the source's columns in their order; `None`: there are no more.
    fn next(&mut self) -> Result<Option<Vec<Vec<Kept>>>, Failure>;
}

/// Makes the scans known to a connection.
pub fn register(connection: &Connection) -> Result<()> {
    const MODULE: Module<Table> = Module::eponymous_only_module();
    for width in WIDTHS {
        let name = CString::new(format!("scan{width}_")).expect("no zero byte");
        connection.create_module(name.as_c_str(), &MODULE, Some(width))?;
    }
    Ok(())
}

#[repr(C)]
struct Table {
    /// First, as the engine demands.
    base: ffi::sqlite3_vtab,
    width: usize,
}

#[expect(
    unsafe_code,
    reason = "the engine's interface for tables; `base` is the first field of a repr(C) struct"
)]
// SAFETY: as the trait demands, the struct is repr(C) and begins with the engine's own.
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = usize;
    type Cursor = Cursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&usize>,
        _module: &[u8],
        _database: &[u8],
        _table: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Table)> {
        let width = aux.copied().unwrap_or(WIDTHS[0]);
        db.config(VTabConfig::Innocuous)?;
        let columns: Vec<String> = (0..width).map(|at| format!("c{at}")).collect();
        let declared = format!("CREATE TABLE x({}, source HIDDEN)", columns.join(", "));
        let declared = CString::new(declared).expect("no zero byte");
        Ok((Cow::Owned(declared), Table { base: ffi::sqlite3_vtab::default(), width }))
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
        info.set_estimated_cost(1e6);
        info.set_estimated_rows(1_000_000);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        Ok(Cursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            pages: None,
            page: Vec::new(),
            at: 0,
            row: 0,
            over: true,
            table: PhantomData,
        })
    }
}

#[repr(C)]
struct Cursor<'vtab> {
    /// First, as the engine demands.
    base: ffi::sqlite3_vtab_cursor,
    pages: Option<Box<dyn Pages>>,
    page: Vec<Vec<Kept>>,
    at: usize,
    row: i64,
    over: bool,
    table: PhantomData<&'vtab Table>,
}

impl Cursor<'_> {
    /// Turns pages until there is a row.
    fn settle(&mut self) -> Result<()> {
        while !self.over && self.at >= self.page.len() {
            let next = match &mut self.pages {
                Some(pages) => pages.next(),
                None => Ok(None),
            };
            match next {
                Ok(Some(page)) => (self.page, self.at) = (page, 0),
                Ok(None) => self.over = true,
                Err(failure) => return Err(failed(failure)),
            }
        }
        Ok(())
    }
}

fn failed(failure: Failure) -> Error {
    let message = failure.message.clone();
    fail(failure);
    Error::ModuleError(message)
}

#[expect(
    unsafe_code,
    reason = "the engine's interface for tables; `base` is the first field of a repr(C) struct"
)]
// SAFETY: as the trait demands, the struct is repr(C) and begins with the engine's own.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, _: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let source = args.get::<u32>(0)? as usize;
        let opened = RUNNING.with_borrow(|running| match running {
            Some(running) => running.reader.open(source),
            None => Err(Failure::new(code::INTERNAL, "a scan outside of a statement")),
        });
        self.pages = Some(opened.map_err(failed)?);
        (self.page, self.at, self.row, self.over) = (Vec::new(), 0, 0, false);
        self.settle()
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        self.row += 1;
        self.settle()
    }

    fn eof(&self) -> bool {
        self.over
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        match self.page.get(self.at).and_then(|row| row.get(column as usize)) {
            Some(value) => context.set_result(value),
            None => context.set_result(&Kept::Null),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row)
    }
}

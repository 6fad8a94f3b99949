//! Another number of partitions for a table that has partitions of its own.
//!
//! | step | where | interrupted behind it |
//! | --- | --- | --- |
//! | 1. the table is held | its record, then its partitions | it is freed when that is old |
//! | 2. a table for the rows is made, called by the number of the move | records | as above, and it is dropped |
//! | 3. rows are copied | its partitions | as above |
//! | 4. the hold is closed: the rows are read no more where they were | as 1 | as above |
//! | 5. the table is dropped, and the one with the rows gets its name | records | |
//!
//! The fifth step is one transaction of the metastore, and decides: it compares both records, so it fails if
//! anybody has ended the hold. So there is one table of the name at any time.

use super::copying::{CopiedRows, copy_held};
use super::filling::Filled;
use super::{MovePlan, refuse_bare};
use crate::fault;
use crate::held::bare::{BareHold, refused};
use client::Client;
use pg::{Cancel, Failure};
use sqlparser::ast::SqlOption;
use std::time::Instant;
use types::{TableId, system};
use wire::control::AdminCommand;
use wire::moves::MoveStep;

/// Spreads the rows of the table with this id in the way that the options say. [`crate::held::bare::IN_USE`]:
/// somebody else holds it, or has ended the hold, and nothing was done.
pub fn respread(
    client: &mut Client,
    (table, options): (TableId, &[SqlOption]),
    cancel: &Cancel,
) -> Result<Filled, Failure> {
    let began = Instant::now();
    let number = TableId(client.numbers(1).map_err(fault::of_client)?);
    let mut hold = BareHold::begin(client, table, (number, None))?;
    let copied = copy_all(client, &mut hold, options, cancel);
    let decided = match copied {
        Ok(rows) => hold.ask(client, MoveStep::Replace).map(|_| rows).map_err(refused),
        Err(ref why) => Err(why.clone()),
    };
    let why = match decided {
        Ok(rows) => return Ok(Filled { rows, took: began.elapsed() }),
        Err(why) => why,
    };
    match (hold.free(client), copied) {
        // It is sure that nothing was decided, and never will be. If that fails, somebody else does it.
        (Ok(true), _) => drop(client.admin(AdminCommand::DropTable(system::moving(number)))),
        // It may have been done, and the answer was lost: that is asked again.
        (Ok(false), Ok(rows)) if hold.ask(client, MoveStep::Replace).is_ok() => {
            return Ok(Filled { rows, took: began.elapsed() });
        }
        _ => {}
    }
    Err(why)
}

/// All steps but the first and the last. How many rows there are.
fn copy_all(
    client: &mut Client,
    hold: &mut BareHold,
    options: &[SqlOption],
    cancel: &Cancel,
) -> Result<u64, Failure> {
    hold.confirm(client)?;
    // It may have changed since somebody looked.
    refuse_bare(hold.table().record())?;
    let plan = MovePlan::of(hold.table().record(), options)?;
    let mut copied = CopiedRows::begin(client, hold.number(), &plan)?;
    copy_held(client, hold, &mut copied, cancel)?;
    hold.close(client)?;
    Ok(copied.count)
}

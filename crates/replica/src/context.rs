//! What every input is handled with.

use crate::lease::Leases;
use crate::output::Output;
use crate::settings::Settings;
use std::collections::BTreeSet;
use types::{Member, Now, PartitionId, Rules, TableId};

/// The time, the leases, the settings, and where outputs go.
pub(crate) struct Ctx<'a> {
    pub now: Now,
    pub leases: &'a mut dyn Leases,
    pub out: &'a mut Vec<Output>,
    pub settings: &'a Settings,
    /// The databases whose members are sent calls.
    pub calling: &'a BTreeSet<TableId>,
}

/// Which replica it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub me: Member,
    pub id: PartitionId,
    pub rules: Rules,
}

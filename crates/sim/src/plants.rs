//! Planted bugs: which faults bring each to light, and the first seed that finds it.

use crate::plan::Plan;
use crate::random::Stream;
use types::Finding;

/// Biases a plan towards what brings this finding to light.
pub fn bias(_plan: &mut Plan, _finding: Finding, _random: &mut Stream) {}

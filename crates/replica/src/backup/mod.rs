//! What a backup does with what its primary sends.
//!
//! | file | what |
//! | --- | --- |
//! | `follow` | appends taken in, checked, acknowledged |
//! | `fresh` | how old a read may be |
//! | `replay` | engines that follow their log later: cold standbys |

pub(crate) mod follow;
pub(crate) mod fresh;
pub(crate) mod replay;

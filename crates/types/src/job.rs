//! Jobs: many records over many partitions, each committed for itself, told of at the end (document, section
//! 4.2.1).
//!
//! What a job has done in a partition is a row of that partition, [`job_key`], at the same LSN as what it did
//! there.

use crate::engine::{PartitionRows, space};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Begins the keys of rows about jobs within [`space::PARTITION`].
const JOB: u8 = PartitionRows::Jobs as u8;
/// Digits of a job's name that tell jobs of one millisecond apart, in bits.
const SPREAD: u32 = 20;

/// A job's name may be of a time so far ahead of a partition's clock, in milliseconds. What is further ahead
/// is refused: when its row is forgotten, everything older would be taken for forgotten, too.
pub const MOST_AHEAD_MS: u64 = 24 * 60 * 60 * 1000;

/// Names a job in all its partitions. Ascends with the time at which jobs begin: a partition that forgets old
/// jobs knows from the name that a job is older than those (as PR-46 has it for sessions). 0 is no job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl JobId {
    /// A job that begins at this time, milliseconds since 1970, told apart from others by a random number.
    pub fn new(wall_ms: u64, random: u64) -> JobId {
        let spread = random & ((1 << SPREAD) - 1);
        JobId((wall_ms.max(1) & (u64::MAX >> SPREAD)) << SPREAD | spread)
    }

    /// When the job began, by its client's clock, milliseconds since 1970.
    pub fn wall_ms(self) -> u64 {
        self.0 >> SPREAD
    }

    /// True if a client may have made it.
    pub fn is_valid(self) -> bool {
        self.wall_ms() > 0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<JobId, String> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| digits).map(JobId);
        number.filter(|job| job.is_valid()).ok_or_else(|| {
            format!(
                "'{text}' is no job: a job's report names it, such as {}",
                JobId::new(1_700_000_000_000, 7)
            )
        })
    }
}

/// The stored key of the row that says what a job has done in its partition.
pub fn job_key(job: JobId) -> Bytes {
    let mut key = BytesMut::with_capacity(10);
    key.put_slice(&[space::PARTITION, JOB]);
    key.put_u64(job.0);
    key.freeze()
}

/// The stored key of the row that says up to which name jobs may have been forgotten.
pub fn horizon_key() -> Bytes {
    job_key(JobId(0))
}

/// Every job's row has a key from the first on and below the second.
pub fn job_range() -> (Bytes, [u8; 2]) {
    (job_key(JobId(1)), [space::PARTITION, JOB + 1])
}

/// The job of such a row.
pub fn job_of(key: &[u8]) -> Option<JobId> {
    let rest = key.strip_prefix(&[space::PARTITION, JOB])?;
    rest.try_into().ok().map(|bytes| JobId(u64::from_be_bytes(bytes))).filter(|job| job.0 > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ascend_with_time_and_read_back() {
        let (one, other) = (JobId::new(1_000, u64::MAX), JobId::new(1_001, 0));
        assert!(one < other && one.is_valid() && JobId::new(0, 0).is_valid());
        assert_eq!(one.to_string().parse(), Ok(one));
        for wrong in ["", "7", "000000000000000g", "0000000000000000", "00000000000fffff", "+00000003e8fffff"]
        {
            let said = wrong.parse::<JobId>().expect_err(wrong);
            assert!(said.contains("is no job"), "{said}");
        }
        assert_eq!(job_of(&job_key(one)), Some(one));
        assert_eq!((job_of(&horizon_key()), job_of(b"other")), (None, None));
        let (from, to) = job_range();
        assert!(horizon_key() < from && job_key(one) >= from && job_key(JobId(u64::MAX))[..] < to[..]);
    }
}

//! What a call may use.

use types::Micros;

/// What one call may use. Whoever runs it sets them; what comes of them is part of the call's outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Steps of the program, about one for each instruction; what is asked of tables counts as many as it
    /// takes time. The default is what takes about 10 ms.
    pub steps: u64,
    /// How long it runs, as whoever runs it measures it ([`crate::Running::ran`]); zero: as long as its steps
    /// take. Nothing here reads a clock.
    pub time: Micros,
    /// The memory of the program, in bytes.
    pub memory_bytes: usize,
    /// Rows that are read, and bytes that are copied into the program, together in bytes.
    pub read_bytes: usize,
    /// Rows that are written, in bytes.
    pub written_bytes: usize,
    /// Rows that are written, by number.
    pub written_rows: usize,
    /// Rows that are given, in bytes.
    pub result_bytes: usize,
}

impl Limits {
    /// Of who makes a call that has ended elsewhere, where it might read so many bytes: none but that, since
    /// what is found of a range ends there. That the call ends follows from its code.
    pub fn of_repeated(read_bytes: usize) -> Limits {
        let (many, most) = (u64::from(u32::MAX) << 16, usize::MAX >> 2);
        Limits {
            steps: many,
            time: Micros::ZERO,
            memory_bytes: most,
            read_bytes,
            written_bytes: most,
            written_rows: most,
            result_bytes: most,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            steps: 30_000_000,
            time: Micros::from_millis(10),
            memory_bytes: 4 << 20,
            read_bytes: 8 << 20,
            written_bytes: 2 << 20,
            written_rows: 10_000,
            result_bytes: 64 << 10,
        }
    }
}

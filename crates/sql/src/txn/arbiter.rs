//! By what a row was looked for before it was inserted ([`super::met`]).

/// By what ON CONFLICT has looked for another row before it inserted one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Arbiter {
    /// By nothing: another statement has written the row.
    #[default]
    None,
    /// By its key.
    Key,
    /// By the unique constraint with this number.
    Unique(u32),
    /// By its key, and by all unique constraints.
    Any,
}

impl Arbiter {
    /// True if it is the key, among others.
    pub fn is_key(self) -> bool {
        matches!(self, Arbiter::Key | Arbiter::Any)
    }

    /// True if it is the unique constraint with this number, among others.
    pub fn is_unique(self, number: u32) -> bool {
        self == Arbiter::Any || self == Arbiter::Unique(number)
    }
}

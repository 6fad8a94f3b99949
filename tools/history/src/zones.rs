//! Whether units of operations can be put one after the other (Gibbons and Korach).
//!
//! A unit is a value with its write and its reads, or several values of which it is known that they followed
//! each other. It must come wholly before or wholly after another. One that ended something before another
//! began something cannot come after it: two units that both say so of each other have no order. No other
//! circle is possible without such a pair.

/// What of a unit matters for its place among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// When the first of its operations ended.
    pub first_end: u64,
    /// When the last of its operations began.
    pub last_begin: u64,
}

impl Span {
    /// True if the unit must have lasted from the one to the other.
    pub fn is_forced(&self) -> bool {
        self.first_end < self.last_begin
    }
}

/// Two units that have no order, by their places in `spans`; the first that is found. Takes `n log n` steps.
pub fn conflict(spans: &[Span]) -> Option<(usize, usize)> {
    let mut forced: Vec<usize> = (0..spans.len()).filter(|at| spans[*at].is_forced()).collect();
    forced.sort_by_key(|at| spans[*at].first_end);
    // Spans that must have lasted do not overlap; so with the first that begins too early both are known.
    for pair in forced.windows(2) {
        if spans[pair[1]].first_end < spans[pair[0]].last_begin {
            return Some((pair[0], pair[1]));
        }
    }
    (0..spans.len()).filter(|at| !spans[*at].is_forced()).find_map(|at| {
        let span = &spans[at];
        let before = forced.partition_point(|other| spans[*other].first_end < span.last_begin);
        let other = *forced.get(before.checked_sub(1)?)?;
        (span.first_end < spans[other].last_begin).then_some((other, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first_end: u64, last_begin: u64) -> Span {
        Span { first_end, last_begin }
    }

    /// Every pair, one by one.
    fn slowly(spans: &[Span]) -> bool {
        let mut pairs = spans
            .iter()
            .enumerate()
            .flat_map(|(at, one)| spans[at + 1..].iter().map(move |other| (one, other)));
        pairs.any(|(one, other)| one.first_end < other.last_begin && other.first_end < one.last_begin)
    }

    #[test]
    fn the_fast_way_finds_what_the_slow_way_finds() {
        // Every three spans with ends below six.
        let all: Vec<Span> = (0..36).map(|n| span(n / 6, n % 6)).collect();
        let (mut with, mut without) = (0, 0);
        for one in &all {
            for two in &all {
                for three in &all {
                    let spans = [*one, *two, *three];
                    let found = conflict(&spans);
                    assert_eq!(found.is_some(), slowly(&spans), "{spans:?}");
                    if let Some((a, b)) = found {
                        assert!(slowly(&[spans[a], spans[b]]), "{spans:?}");
                    }
                    *(if found.is_some() { &mut with } else { &mut without }) += 1;
                }
            }
        }
        assert!(with > 1000 && without > 1000);
    }
}

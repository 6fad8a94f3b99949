//! PR-39: a bulk load is in a state as a whole or not at all, and its rows are those of its entry.

use crate::rows;
use types::engine::{Engine, space};
use types::{Lsn, ReadAt};

/// Rows of each load that only loads write.
pub const OWN_ROWS: usize = 4;

/// Looks at the rows that only loads write, of a state that has no load pending at or below `at`. The error
/// is a sentence. None: the state cannot be read now.
pub fn check(engine: &dyn Engine, at: Lsn) -> Option<Result<(), String>> {
    let all = engine.scan(&[space::ROW], &[space::ROW + 1], ReadAt::Lsn(at), 1 << 20, 1 << 30).ok()?;
    let own: Vec<(String, Lsn)> = all
        .iter()
        .map(|row| (rows::name_of(&row.key[1..]), row.lsn))
        .filter(|(name, _)| name.starts_with('l'))
        .collect();
    let whole = own.is_empty() || own.len() == OWN_ROWS && own.iter().all(|(_, lsn)| *lsn == own[0].1);
    Some(if whole { Ok(()) } else { Err(format!("a part of a load is there: {own:?}")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::MemoryEngine;
    use types::Term;
    use types::{Mutation, Position};

    #[test]
    fn half_a_load_is_rejected() {
        let put = |row: usize| {
            let key = [&[space::ROW], &rows::key(&format!("l{row}"), false)[..]].concat();
            Mutation { key: key.into(), value: Some(rows::row("l", 7, false)) }
        };
        let verdict = |entries: &[&[usize]]| {
            let mut engine = MemoryEngine::volatile();
            for (lsn, rows) in (1..).zip(entries) {
                let change: Vec<Mutation> = rows.iter().map(|row| put(*row)).collect();
                engine.execute(Position::new(Term(1), Lsn(lsn)), &change);
            }
            check(&engine, Lsn(entries.len() as u64)).expect("it can be read")
        };
        assert_eq!(verdict(&[&[]]), Ok(()));
        assert_eq!(verdict(&[&[0, 1, 2, 3]]), Ok(()));
        assert_eq!(verdict(&[&[0, 1, 2, 3], &[0, 1, 2, 3]]), Ok(()));
        assert!(verdict(&[&[0, 1, 3]]).is_err());
        assert!(verdict(&[&[0, 1, 2, 3], &[0, 1, 2]]).is_err());
    }
}

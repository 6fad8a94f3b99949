//! Where a write was committed, as text that can be handed on: whoever reads with it sees the write.

use std::fmt;
use std::str::FromStr;
use types::{Lsn, PartitionId, Position, Term};

/// The position of a write in its partition. As text `PARTITION:EPOCH:LSN`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Where it was written.
    pub partition: PartitionId,
    /// The epoch and LSN of its acknowledgement.
    pub at: Position,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.partition.0, self.at.term.0, self.at.lsn.0)
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Token, String> {
        let wrong = || format!("'{text}' is no token: a write's answer has one, such as 64:3:120");
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(wrong);
        let (partition, epoch, lsn) = (next()?, next()?, next()?);
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong());
        let partition = partition.parse().map(PartitionId).map_err(|_| wrong())?;
        let at = Position { term: Term(number(epoch)?), lsn: Lsn(number(lsn)?) };
        match parts.next() {
            None => Ok(Token { partition, at }),
            Some(_) => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Term;

    #[test]
    fn tokens_read_back_and_nothing_else_is_one() {
        let token: Token = "64:3:120".parse().expect("a token");
        assert_eq!((token.partition, token.at.term, token.at.lsn), (PartitionId(64), Term(3), Lsn(120)));
        assert_eq!(token.to_string(), "64:3:120");
        for wrong in ["", "64", "64:3", "64:3:120:1", "a:3:120", "64:3:-1", "64:3:99999999999999999999"] {
            let said = wrong.parse::<Token>().expect_err(wrong);
            assert!(said.contains("is no token"), "{said}");
        }
    }
}

//! SET CONSTRAINTS: when a transaction looks at constraints that are deferrable.
//!
//! A transaction is one entry, so COMMIT looks at all of them, whatever is set. IMMEDIATE has what was
//! written until then looked at, and what each statement writes from then on; behind DEFERRED COMMIT alone
//! looks.

use crate::bind::parts;
use crate::catalog::Catalog;
use pg::Failure;
use sqlparser::ast::ObjectName;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;
use std::collections::{BTreeMap, BTreeSet};
use types::data::constraint::{Constraint, Demand, Reference};

/// SET CONSTRAINTS as it is written.
#[derive(Clone, Debug)]
pub struct SetConstraints {
    /// The constraints' names; none: ALL.
    names: Vec<ObjectName>,
    /// DEFERRED.
    deferred: bool,
}

/// The same with the constraints that there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The constraints' numbers; `None`: all that are deferrable.
    numbers: Option<Vec<u32>>,
    deferred: bool,
}

/// What a transaction has said of constraints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timing {
    /// Of all: true: COMMIT alone looks at them.
    all: Option<bool>,
    /// Behind that of some, by their numbers.
    named: BTreeMap<u32, bool>,
}

impl SetConstraints {
    /// Finds the constraints. The error: there is none of a name, or it is not deferrable.
    pub fn resolve(&self, catalog: &Catalog) -> Result<Setting, Failure> {
        let mut numbers = Vec::new();
        for name in &self.names {
            let name = parts(name)?.pop().unwrap_or_default();
            let of_table = |one: &&Constraint| one.name == name && !matches!(one.demand, Demand::Index(_));
            let all = catalog.all().flat_map(|table| table.schema.constraints());
            let found: Vec<&Constraint> = all.filter(of_table).collect();
            if found.is_empty() && !is_key(catalog, &name) {
                return Err(Failure::new("42704", format!("constraint \"{name}\" does not exist")));
            }
            if self.deferred && !found.iter().any(|one| is_deferrable(one)) {
                return Err(Failure::new("42809", format!("constraint \"{name}\" is not deferrable")));
            }
            numbers.extend(found.iter().filter(|one| is_deferrable(one)).map(|one| one.number));
        }
        let numbers = (!self.names.is_empty()).then_some(numbers);
        Ok(Setting { numbers, deferred: self.deferred })
    }
}

impl Timing {
    /// True if COMMIT alone looks at this constraint. Of what is unique it is so only where that was named,
    /// since a table does not keep whether it was declared to be deferrable.
    pub fn defers(&self, constraint: &Constraint) -> bool {
        let named = self.named.get(&constraint.number).copied();
        match &constraint.demand {
            Demand::Foreign(Reference { deferred: Some(initially), .. }) => {
                named.or(self.all).unwrap_or(*initially)
            }
            Demand::Unique(_) => named == Some(true),
            Demand::Foreign(_) | Demand::Check(_) | Demand::Index(_) => false,
        }
    }

    /// From now on it is so. The numbers of those among these constraints that were deferred and are not any
    /// more: what was written until now is to be looked at.
    pub fn set<'a>(
        &mut self,
        setting: &Setting,
        constraints: impl Iterator<Item = &'a Constraint>,
    ) -> BTreeSet<u32> {
        let before = self.clone();
        match &setting.numbers {
            None => *self = Timing { all: Some(setting.deferred), named: BTreeMap::new() },
            Some(numbers) => self.named.extend(numbers.iter().map(|number| (*number, setting.deferred))),
        }
        let turned = constraints.filter(|one| before.defers(one) && !self.defers(one));
        turned.map(|one| one.number).collect()
    }
}

fn is_deferrable(constraint: &Constraint) -> bool {
    match &constraint.demand {
        Demand::Foreign(reference) => reference.deferred.is_some(),
        Demand::Unique(_) => true,
        Demand::Check(_) | Demand::Index(_) => false,
    }
}

/// True if a table's primary key is called so.
fn is_key(catalog: &Catalog, name: &str) -> bool {
    let of = |table: &str| format!("{}_pkey", catalog.placed(table).1);
    catalog.all().any(|table| !table.schema.has_hidden_key() && of(&table.name) == name)
}

/// Such a statement, if this is one. Otherwise the parser stays where it was.
pub fn parse(parser: &mut Parser<'_>) -> Result<Option<SetConstraints>, ParserError> {
    let next = parser.peek_nth_token_ref(1);
    let is_it = matches!(&next.token, Token::Word(word) if word.value.eq_ignore_ascii_case("CONSTRAINTS"));
    if !is_it || !parser.parse_keyword(Keyword::SET) {
        return Ok(None);
    }
    parser.advance_token();
    let names = match parser.parse_keyword(Keyword::ALL) {
        true => Vec::new(),
        false => parser.parse_comma_separated(|parser| parser.parse_object_name(false))?,
    };
    let timing = parser.expect_one_of_keywords(&[Keyword::DEFERRED, Keyword::IMMEDIATE])?;
    Ok(Some(SetConstraints { names, deferred: timing == Keyword::DEFERRED }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::TableId;
    use types::data::constraint::Action;

    fn foreign(number: u32, deferred: Option<bool>) -> Constraint {
        let (on_delete, on_update) = (Action::None, Action::None);
        let (columns, parent_columns) = (vec![1], vec![0]);
        let parent = TableId(1);
        let reference = Reference { columns, parent, parent_columns, on_delete, on_update, deferred };
        Constraint::new(number, "f", Demand::Foreign(reference))
    }

    #[test]
    fn what_is_deferred_is_what_was_declared_until_it_is_said_otherwise() {
        let all = [
            foreign(1, None),
            foreign(2, Some(false)),
            foreign(3, Some(true)),
            Constraint::new(4, "u", Demand::Unique(vec![1])),
        ];
        let mut timing = Timing::default();
        let mut set = |numbers: Option<&[u32]>, deferred: bool| {
            let setting = Setting { numbers: numbers.map(<[u32]>::to_vec), deferred };
            let turned: Vec<u32> = timing.set(&setting, all.iter()).into_iter().collect();
            let left = all.iter().filter(|one| timing.defers(one)).map(|one| one.number);
            (left.collect::<Vec<u32>>(), turned)
        };
        assert_eq!(set(Some(&[]), false), (vec![3], vec![]));
        assert_eq!(set(None, true), (vec![2, 3], vec![]));
        assert_eq!(set(Some(&[3]), false), (vec![2], vec![3]));
        assert_eq!(set(Some(&[3, 4]), true), (vec![2, 3, 4], vec![]));
        assert_eq!(set(None, false), (vec![], vec![2, 3, 4]));
    }
}

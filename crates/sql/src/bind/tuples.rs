//! Rows that are written out: `(a, b) < (1, 2)`, `(a, b) IN ((1, 2), (3, 4))` and `(a, b) IN (SELECT ...)`.
//! Columns are compared from left to right, and the first that differ decide; where one of these is null, so
//! is the whole.

use super::{Binder, Comparison, Form, Typed};
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{BinaryOperator, Expr, Query};

/// The sign of an operator that compares, and what a scan makes of it.
fn sign(op: &BinaryOperator) -> Option<(&'static str, Option<Comparison>)> {
    Some(match op {
        BinaryOperator::Eq => ("=", Some(Comparison::Equal)),
        BinaryOperator::NotEq => ("<>", None),
        BinaryOperator::Lt => ("<", Some(Comparison::Less)),
        BinaryOperator::LtEq => ("<=", Some(Comparison::AtMost)),
        BinaryOperator::Gt => (">", Some(Comparison::Greater)),
        BinaryOperator::GtEq => (">=", Some(Comparison::AtLeast)),
        _ => return None,
    })
}

impl Binder<'_> {
    fn all(&mut self, exprs: &[Expr]) -> Result<Vec<Typed>, Failure> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    /// Two rows that are compared. Conditions on their first columns narrow what is read.
    pub(super) fn rows_compared(
        &mut self,
        left: &[Expr],
        op: &BinaryOperator,
        right: &[Expr],
    ) -> Result<Typed, Failure> {
        let Some((sign, comparison)) = sign(op) else {
            return Err(Failure::unsupported(format!("the operator {op} of rows"), "see docs/sql.md"));
        };
        let (left, right) = (self.all(left)?, self.all(right)?);
        if ["=", "<>"].contains(&sign) {
            let same = self.rows_equal(&left, &right)?;
            return Ok(match sign {
                "=" => same,
                _ => Typed::engine(format!("(NOT {})", self.text(&same)), Ty::Bool),
            });
        }
        check_widths(&left, &right)?;
        let (strict, strictly, loose, loosely) = match sign {
            "<" | "<=" => ("<", Comparison::Less, "<=", Comparison::AtMost),
            _ => (">", Comparison::Greater, ">=", Comparison::AtLeast),
        };
        let mut pairs: Vec<_> = left.into_iter().zip(right).collect();
        let (one, two) = pairs.pop().expect("a row has columns");
        let mut before = Vec::new();
        for (one, two) in pairs {
            let differs = self.compare(one.clone(), strict, Some(strictly), two.clone())?;
            let same = self.compare(one.clone(), "=", Some(Comparison::Equal), two.clone())?;
            let narrows = self.compare(one, loose, Some(loosely), two)?.conditions;
            before.push((self.text(&differs), self.text(&same), narrows));
        }
        let mut whole = self.compare(one, sign, comparison, two)?;
        for (differs, same, narrows) in before.into_iter().rev() {
            let rest = self.text(&whole);
            whole = Typed::engine(format!("({differs} OR ({same} AND {rest}))"), Ty::Bool);
            whole.conditions = narrows;
        }
        Ok(whole)
    }

    fn rows_equal(&mut self, left: &[Typed], right: &[Typed]) -> Result<Typed, Failure> {
        check_widths(left, right)?;
        let mut whole: Option<Typed> = None;
        for (one, two) in left.iter().zip(right) {
            let same = self.compare(one.clone(), "=", Some(Comparison::Equal), two.clone())?;
            whole = Some(match whole {
                Some(before) => self.joined(&before, "AND", &same),
                None => same,
            });
        }
        Ok(whole.expect("a row has columns"))
    }

    /// A row that is looked for in a list of rows.
    pub(super) fn row_in_list(
        &mut self,
        row: &[Expr],
        list: &[Expr],
        negated: bool,
    ) -> Result<Typed, Failure> {
        let row = self.all(row)?;
        let mut whole: Option<Typed> = None;
        for item in list {
            let Expr::Tuple(item) = item else {
                let message = "a row can be compared only with another one";
                return Err(Failure::new(code::SYNTAX, message).hint("write (a, b) IN ((1, 2), (3, 4))"));
            };
            let item = self.all(item)?;
            let same = self.rows_equal(&row, &item)?;
            whole = Some(match whole {
                Some(before) => self.joined(&before, "OR", &same),
                None => same,
            });
        }
        let whole = whole.ok_or_else(|| Failure::new(code::SYNTAX, "syntax error at or near \")\""))?;
        match negated {
            false => Ok(whole),
            true => Ok(Typed::engine(format!("(NOT {})", self.text(&whole)), Ty::Bool)),
        }
    }

    /// A row that is looked for among those of a query.
    pub(super) fn row_in_subquery(
        &mut self,
        row: &[Expr],
        query: &Query,
        negated: bool,
    ) -> Result<Typed, Failure> {
        let row = self.all(row)?;
        let (text, output) = self.subquery(query)?;
        if row.len() != output.len() {
            let much = if row.len() < output.len() { "many" } else { "few" };
            return Err(Failure::new(code::SYNTAX, format!("subquery has too {much} columns")));
        }
        let (mut given, mut found) = (Vec::new(), Vec::new());
        for (at, (one, (_, ty))) in row.into_iter().zip(&output).enumerate() {
            let (one, two, common) = self.alike(one, Typed::engine(format!("o{at}"), *ty))?;
            self.comparable(common, "=")?;
            let Form::Engine(two) = &two.form else { unreachable!("a column is the engine's") };
            given.push(self.text(&one));
            found.push(two.clone());
        }
        let word = if negated { "NOT IN" } else { "IN" };
        let (given, found) = (given.join(", "), found.join(", "));
        Ok(Typed::engine(format!("(({given}) {word} (SELECT {found} FROM ({text})))"), Ty::Bool))
    }
}

fn check_widths(left: &[Typed], right: &[Typed]) -> Result<(), Failure> {
    match left.len() == right.len() {
        true => Ok(()),
        false => Err(Failure::new(code::SYNTAX, "unequal number of entries in row expressions")),
    }
}

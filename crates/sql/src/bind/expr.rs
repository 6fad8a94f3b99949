//! Expressions.

use super::{Binder, Comparison, Form, Quick, Relation, Scope, Slot, Typed, Visible, What, folded};
use crate::ty::{Ty, common};
use pg::{Failure, code};
use sqlparser::ast::{BinaryOperator, CaseWhen, Expr, Ident, UnaryOperator, Value as Literal};
use types::data::Value;

impl Binder<'_> {
    /// An expression. In a grouped SELECT a column may stand only in an aggregate, or as part of what is
    /// grouped by.
    pub(crate) fn expr(&mut self, expr: &Expr) -> Result<Typed, Failure> {
        let scope = self.scope();
        let grouped = scope.groups.is_some() && !scope.in_aggregate;
        if grouped && !matches!(expr, Expr::Value(_)) {
            // What is grouped by as a whole need not be looked into.
            let groups = self.scope().groups.take();
            let whole = self.plain(expr);
            self.scope().groups = groups;
            if let Ok(Typed { form: Form::Engine(text), .. }) = &whole
                && self.scope().groups.iter().flatten().any(|group| group == text)
            {
                return whole;
            }
        }
        self.plain(expr)
    }

    fn plain(&mut self, expr: &Expr) -> Result<Typed, Failure> {
        match expr {
            Expr::Identifier(name) => self.column(&[], name),
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [table @ .., name] if (1..=2).contains(&table.len()) => self.column(table, name),
                _ => Err(unknown(expr)),
            },
            Expr::Value(value) => self.literal(&value.value),
            Expr::Nested(inner) => self.expr(inner),
            Expr::AtTimeZone { timestamp, time_zone } => self.at_zone(timestamp, time_zone),
            Expr::UnaryOp { op, expr } => self.unary(op, expr),
            Expr::BinaryOp { left, op, right } => match (left.as_ref(), right.as_ref()) {
                (Expr::Tuple(left), Expr::Tuple(right)) => self.rows_compared(left, op, right),
                _ => self.binary(left, op, right),
            },
            Expr::IsNull(inner) => self.is_null(inner, "IS NULL"),
            Expr::IsNotNull(inner) => self.is_null(inner, "IS NOT NULL"),
            Expr::IsTrue(inner) => self.is_truth(inner, "IS 1"),
            Expr::IsNotTrue(inner) => self.is_truth(inner, "IS NOT 1"),
            Expr::IsFalse(inner) => self.is_truth(inner, "IS 0"),
            Expr::IsNotFalse(inner) => self.is_truth(inner, "IS NOT 0"),
            Expr::IsUnknown(inner) => self.is_truth(inner, "IS NULL"),
            Expr::IsNotUnknown(inner) => self.is_truth(inner, "IS NOT NULL"),
            Expr::IsDistinctFrom(one, two) => self.distinct(one, two, "IS NOT"),
            Expr::IsNotDistinctFrom(one, two) => self.distinct(one, two, "IS"),
            Expr::Between { expr, negated, low, high } => self.between(expr, *negated, low, high),
            Expr::InList { expr, list, negated } => match expr.as_ref() {
                Expr::Tuple(row) => self.row_in_list(row, list, *negated),
                _ => self.in_list(expr, list, *negated),
            },
            Expr::InSubquery { expr, subquery, negated } => match expr.as_ref() {
                Expr::Tuple(row) => self.row_in_subquery(row, subquery, *negated),
                _ => self.in_subquery(expr, subquery, *negated),
            },
            Expr::Exists { subquery, negated } => self.exists(subquery, *negated),
            Expr::Subquery(query) => self.scalar(query),
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like("like", expr, pattern, escape_char.as_ref().map(|escape| &escape.value), *negated)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like("ilike", expr, pattern, escape_char.as_ref().map(|escape| &escape.value), *negated)
            }
            Expr::Collate { expr: inner, collation } => {
                let name = super::parts(collation)?;
                match name.last().map(String::as_str) {
                    Some("C" | "POSIX" | "default") => self.expr(inner),
                    _ => Err(Failure::unsupported(
                        format!("collation {collation}"),
                        "text is ordered by its bytes, as collation \"C\" has it",
                    )),
                }
            }
            other => self.special(other),
        }
    }

    /// A column by its name. Its table may stand before it, and the table's schema before that.
    fn column(&mut self, table: &[Ident], name: &Ident) -> Result<Typed, Failure> {
        let (wanted, name) = (table.iter().map(folded).collect::<Vec<_>>(), folded(name));
        for level in (0..self.scopes.len()).rev() {
            if let Some(found) = self.column_at(level, &wanted, &name)? {
                let (relation, visible) = found;
                if level + 1 < self.scopes.len() && self.scope().in_aggregate {
                    // It might be the outer SELECT's aggregate.
                    let what = format!("the outer column \"{name}\" in an aggregate");
                    return Err(Failure::unsupported(
                        what,
                        "aggregate in a subquery of its own, or in a join",
                    ));
                }
                return self.visible(level, relation, &visible);
            }
        }
        if table.is_empty()
            && [
                "current_date",
                "current_timestamp",
                "current_user",
                "session_user",
                "user",
                "current_role",
                "current_catalog",
                "current_schema",
            ]
            .contains(&&*name)
        {
            return self.keyword(&name);
        }
        let mut relations = self.scopes.iter().flat_map(|scope| &scope.relations);
        let Some(table) = wanted.last() else {
            return Err(Failure::new("42703", format!("column \"{name}\" does not exist")));
        };
        if !relations.any(|relation| relation.is_called(&wanted)) {
            return Err(Failure::new("42P01", format!("missing FROM-clause entry for table \"{table}\"")));
        }
        let qualified = format!("{table}.{name}");
        Err(Failure::new("42703", format!("column {qualified} does not exist")))
    }

    fn column_at(
        &self,
        level: usize,
        table: &[String],
        name: &str,
    ) -> Result<Option<(Option<usize>, Visible)>, Failure> {
        let scope = &self.scopes[level];
        if table.is_empty()
            && let Some(merged) = scope.merged.iter().find(|column| column.name == name)
        {
            return Ok(Some((None, merged.clone())));
        }
        let mut found = None;
        for (at, relation) in scope.relations.iter().enumerate() {
            if !relation.is_called(table) {
                continue;
            }
            for column in relation.columns.iter().filter(|column| column.name == name) {
                if found.is_some() {
                    return Err(Failure::new("42702", format!("column reference \"{name}\" is ambiguous")));
                }
                found = Some((Some(at), column.clone()));
            }
        }
        if found.is_none() && name == "tableoid" {
            return catalog_number(scope, table);
        }
        Ok(found)
    }

    /// What a visible column is for the engine.
    pub(super) fn visible(
        &mut self,
        level: usize,
        relation: Option<usize>,
        column: &Visible,
    ) -> Result<Typed, Failure> {
        let relation: Option<Relation> = relation.map(|at| self.scopes[level].relations[at].clone());
        let typed = match (&column.what, &relation) {
            (What::Column(index), Some(Relation { alias, of: Some(of), .. })) => {
                let columns = &mut self.sources[of.source].columns;
                let place = columns.iter().position(|known| known == index).unwrap_or_else(|| {
                    columns.push(*index);
                    columns.len() - 1
                });
                let mut typed = Typed::engine(format!("{alias}.c{place}"), column.ty);
                typed.column = Some((*of, *index));
                typed.with(Some(Quick::Column(*index)))
            }
            (What::Text(text), _) => Typed::engine(text.clone(), column.ty),
            (What::Column(_), _) => unreachable!("only tables have columns of their own"),
        };
        let scope = &self.scopes[level];
        if let (Some(groups), false, Form::Engine(text)) = (&scope.groups, scope.in_aggregate, &typed.form)
            && !groups.contains(text)
        {
            let name =
                relation.map_or(column.name.clone(), |relation| format!("{}.{}", relation.name, column.name));
            let message = format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            );
            return Err(Failure::new("42803", message));
        }
        Ok(typed)
    }

    fn literal(&mut self, literal: &Literal) -> Result<Typed, Failure> {
        Ok(match literal {
            Literal::Number(digits, false) => number(digits)?,
            Literal::SingleQuotedString(text) | Literal::EscapedStringLiteral(text) => {
                Typed::slot(Slot::Const(Value::Text(text.clone())), None)
            }
            Literal::DollarQuotedString(quoted) => {
                Typed::slot(Slot::Const(Value::Text(quoted.value.clone())), None)
            }
            Literal::Boolean(truth) => Typed::constant(Value::Bool(*truth), Ty::Bool),
            Literal::Null => Typed::slot(Slot::Const(Value::Null), None),
            Literal::Placeholder(name) => self.parameter(name)?,
            other => {
                return Err(Failure::unsupported(
                    format!("the literal {other}"),
                    "write it in single quotes",
                ));
            }
        })
    }

    /// An expression that must be true or false.
    pub(crate) fn condition(&mut self, expr: &Expr, place: &str) -> Result<Typed, Failure> {
        let typed = self.expr(expr)?;
        self.truth(typed, place)
    }

    fn truth(&mut self, typed: Typed, place: &str) -> Result<Typed, Failure> {
        match typed.ty {
            None | Some(Ty::Bool) => self.becoming(typed, Ty::Bool),
            Some(ty) => {
                let message = format!("argument of {place} must be type boolean, not type {}", ty.name());
                Err(Failure::new("42804", message))
            }
        }
    }

    fn unary(&mut self, op: &UnaryOperator, inner: &Expr) -> Result<Typed, Failure> {
        match op {
            UnaryOperator::Not => {
                let typed = self.condition(inner, "NOT")?;
                let text = self.text(&typed);
                Ok(Typed::engine(format!("(NOT {text})"), Ty::Bool))
            }
            UnaryOperator::Minus => {
                // -9223372036854775808 is one literal.
                if let Expr::Value(value) = inner
                    && let Literal::Number(digits, false) = &value.value
                {
                    return number(&format!("-{digits}"));
                }
                let typed = self.expr(inner)?;
                self.function("-", vec![typed])
            }
            UnaryOperator::Plus => self.expr(inner),
            other => Err(Failure::unsupported(format!("the operator {other}"), "see docs/sql.md")),
        }
    }

    fn binary(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Typed, Failure> {
        use BinaryOperator as Op;
        match op {
            Op::And | Op::Or => {
                let place = if *op == Op::And { "AND" } else { "OR" };
                let (one, two) = (self.condition(left, place)?, self.condition(right, place)?);
                Ok(self.joined(&one, place, &two))
            }
            Op::Eq => self.comparison(left, "=", Some(Comparison::Equal), right),
            Op::NotEq => self.comparison(left, "<>", None, right),
            Op::Lt => self.comparison(left, "<", Some(Comparison::Less), right),
            Op::LtEq => self.comparison(left, "<=", Some(Comparison::AtMost), right),
            Op::Gt => self.comparison(left, ">", Some(Comparison::Greater), right),
            Op::GtEq => self.comparison(left, ">=", Some(Comparison::AtLeast), right),
            Op::PGLikeMatch => self.like("like", left, right, None, false),
            Op::PGNotLikeMatch => self.like("like", left, right, None, true),
            Op::PGILikeMatch => self.like("ilike", left, right, None, false),
            Op::PGNotILikeMatch => self.like("ilike", left, right, None, true),
            Op::PGCustomBinaryOperator(path) => match custom(path) {
                Some(operator) => self.binary(left, &operator, right),
                None => Err(Failure::unsupported(format!("the operator {op}"), "see docs/sql.md")),
            },
            Op::Plus
            | Op::Minus
            | Op::Multiply
            | Op::Divide
            | Op::Modulo
            | Op::StringConcat
            | Op::PGExp
            | Op::BitwiseAnd
            | Op::BitwiseOr
            | Op::PGRegexMatch
            | Op::PGRegexIMatch
            | Op::PGRegexNotMatch
            | Op::PGRegexNotIMatch
            | Op::Arrow
            | Op::LongArrow
            | Op::HashArrow
            | Op::HashLongArrow
            | Op::HashMinus
            | Op::AtArrow
            | Op::ArrowAt
            | Op::Question
            | Op::QuestionAnd
            | Op::QuestionPipe => {
                let arguments = vec![self.expr(left)?, self.expr(right)?];
                self.operator(&op.to_string(), arguments)
            }
            other => Err(Failure::unsupported(format!("the operator {other}"), "see docs/sql.md")),
        }
    }

    /// AND and OR have three values in the engine as in PostgreSQL.
    pub(super) fn joined(&mut self, one: &Typed, word: &str, two: &Typed) -> Typed {
        let text = format!("({} {word} {})", self.text(one), self.text(two));
        let mut typed = Typed::engine(text, Ty::Bool);
        if word == "AND" {
            typed.conditions = [one.conditions.clone(), two.conditions.clone()].concat();
            typed.exact = one.exact && two.exact;
        }
        typed
    }

    fn comparison(
        &mut self,
        left: &Expr,
        sign: &str,
        comparison: Option<Comparison>,
        right: &Expr,
    ) -> Result<Typed, Failure> {
        let (one, two) = (self.expr(left)?, self.expr(right)?);
        self.compare(one, sign, comparison, two)
    }

    fn is_null(&mut self, inner: &Expr, word: &str) -> Result<Typed, Failure> {
        let typed = self.expr(inner)?;
        let typed = self.decided(typed)?;
        Ok(Typed::engine(format!("({} {word})", self.text(&typed)), Ty::Bool))
    }

    fn is_truth(&mut self, inner: &Expr, word: &str) -> Result<Typed, Failure> {
        let typed = self.condition(inner, "IS")?;
        Ok(Typed::engine(format!("({} {word})", self.text(&typed)), Ty::Bool))
    }

    fn distinct(&mut self, one: &Expr, two: &Expr, word: &str) -> Result<Typed, Failure> {
        let (one, two) = (self.expr(one)?, self.expr(two)?);
        let (one, two, _) = self.alike(one, two)?;
        Ok(Typed::engine(format!("({} {word} {})", self.text(&one), self.text(&two)), Ty::Bool))
    }

    fn between(&mut self, expr: &Expr, negated: bool, low: &Expr, high: &Expr) -> Result<Typed, Failure> {
        let typed = self.expr(expr)?;
        let (low, high) = (self.expr(low)?, self.expr(high)?);
        let above = self.compare(typed.clone(), ">=", Some(Comparison::AtLeast), low)?;
        let below = self.compare(typed, "<=", Some(Comparison::AtMost), high)?;
        let both = self.joined(&above, "AND", &below);
        match negated {
            false => Ok(both),
            true => Ok(Typed::engine(format!("(NOT {})", self.text(&both)), Ty::Bool)),
        }
    }

    /// The whole list is brought to one type, as PostgreSQL does.
    fn in_list(&mut self, expr: &Expr, list: &[Expr], negated: bool) -> Result<Typed, Failure> {
        let mut all = vec![self.expr(expr)?];
        for item in list {
            all.push(self.expr(item)?);
        }
        let all = self.unified(all, "IN")?;
        self.comparable(all[0].ty.expect("unified"), "=")?;
        let texts: Vec<String> = all.iter().map(|typed| self.text(typed)).collect();
        let word = if negated { "NOT IN" } else { "IN" };
        let text = format!("({} {word} ({}))", texts[0], texts[1..].join(", "));
        Ok(Typed::engine(text, Ty::Bool))
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
    ) -> Result<Typed, Failure> {
        let operand = operand.map(|operand| self.expr(operand)).transpose()?;
        let (mut tests, mut results) = (Vec::new(), Vec::new());
        for when in conditions {
            let test = self.expr(&when.condition)?;
            let test = match &operand {
                None => self.truth(test, "CASE/WHEN")?,
                Some(operand) => self.compare(operand.clone(), "=", None, test)?,
            };
            tests.push(self.text(&test));
            results.push(self.expr(&when.result)?);
        }
        results.push(match otherwise {
            Some(otherwise) => self.expr(otherwise)?,
            None => Typed::slot(Slot::Const(Value::Null), None),
        });
        let results = self.unified(results, "CASE")?;
        let ty = results[0].ty.expect("unified");
        let mut text = String::from("(CASE");
        for (test, result) in tests.iter().zip(&results) {
            text.push_str(&format!(" WHEN {test} THEN {}", self.text(result)));
        }
        let last = results.last().expect("there is an ELSE");
        text.push_str(&format!(" ELSE {} END)", self.text(last)));
        Ok(Typed::engine(text, ty))
    }

    fn like(
        &mut self,
        name: &str,
        expr: &Expr,
        pattern: &Expr,
        escape: Option<&Literal>,
        negated: bool,
    ) -> Result<Typed, Failure> {
        let mut arguments = vec![self.expr(expr)?, self.expr(pattern)?];
        if let Some(escape) = escape {
            arguments.push(self.literal(escape)?);
        }
        let typed = self.function(name, arguments)?;
        match negated {
            false => Ok(typed),
            true => {
                let text = self.text(&typed);
                Ok(Typed::engine(format!("(NOT {text})"), Ty::Bool))
            }
        }
    }

    /// Brings expressions to one type.
    pub(super) fn unified(&mut self, all: Vec<Typed>, place: &str) -> Result<Vec<Typed>, Failure> {
        let mut ty = None;
        for typed in &all {
            ty = match (ty, typed.ty) {
                (None, found) => found,
                (known, None) => known,
                (Some(one), Some(two)) => Some(common(one, two).ok_or_else(|| {
                    let message =
                        format!("{place} types {} and {} cannot be matched", one.name(), two.name());
                    Failure::new("42804", message)
                })?),
            };
        }
        let ty = ty.unwrap_or(Ty::Text);
        all.into_iter().map(|typed| self.becoming(typed, ty)).collect()
    }

    /// An expression whose type nothing decides is text.
    pub(super) fn decided(&mut self, typed: Typed) -> Result<Typed, Failure> {
        match typed.ty {
            Some(_) => Ok(typed),
            None => self.becoming(typed, Ty::Text),
        }
    }
}

/// A number as it is written: the smallest whole type that holds it, else numeric.
fn number(digits: &str) -> Result<Typed, Failure> {
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    if plain.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(number) = digits.parse::<i64>()
    {
        let ty = if i32::try_from(number).is_ok() { Ty::Int4 } else { Ty::Int8 };
        return Ok(Typed::constant(Value::Int(number), ty));
    }
    let decimal = digits.parse().map_err(|_| {
        Failure::new(code::OUT_OF_RANGE, format!("the number {digits} cannot be kept exactly"))
            .hint("numbers have at most 38 digits; as double precision write it in quotes: '1e300'::float8")
    })?;
    Ok(Typed::constant(Value::Decimal(decimal), Ty::Numeric))
}

/// An operator that is written with its schema: `OPERATOR(pg_catalog.=)`.
fn custom(path: &[String]) -> Option<BinaryOperator> {
    use BinaryOperator as Op;
    let name = match path {
        [name] => name,
        [schema, name] if schema == "pg_catalog" => name,
        _ => return None,
    };
    Some(match name.as_str() {
        "=" => Op::Eq,
        "<>" => Op::NotEq,
        "<" => Op::Lt,
        "<=" => Op::LtEq,
        ">" => Op::Gt,
        ">=" => Op::GtEq,
        "+" => Op::Plus,
        "-" => Op::Minus,
        "*" => Op::Multiply,
        "/" => Op::Divide,
        "||" => Op::StringConcat,
        "~" => Op::PGRegexMatch,
        "~*" => Op::PGRegexIMatch,
        "!~" => Op::PGRegexNotMatch,
        "!~*" => Op::PGRegexNotIMatch,
        "~~" => Op::PGLikeMatch,
        "!~~" => Op::PGNotLikeMatch,
        _ => return None,
    })
}

pub(super) fn unknown(expr: &Expr) -> Failure {
    let text: String = expr.to_string().chars().take(80).collect();
    Failure::unsupported(format!("the expression {text}"), "docs/sql.md lists what is understood")
}

/// The column `tableoid` of a system table: its number, and null where an outer join has no row of it.
fn catalog_number(scope: &Scope, table: &[String]) -> Result<Option<(Option<usize>, Visible)>, Failure> {
    let named = |relation: &&Relation| relation.is_called(table);
    let mut numbered =
        scope.relations.iter().filter(named).filter_map(|relation| Some((relation, relation.number?)));
    let Some((relation, number)) = numbered.next() else { return Ok(None) };
    if numbered.next().is_some() {
        return Err(Failure::new("42702", "column reference \"tableoid\" is ambiguous"));
    }
    // The first column of a catalog is never null.
    let text = format!("(CASE WHEN {}.c0 IS NOT NULL THEN {number} END)", relation.alias);
    Ok(Some((None, Visible { name: "tableoid".into(), ty: Ty::Oid, what: What::Text(text) })))
}

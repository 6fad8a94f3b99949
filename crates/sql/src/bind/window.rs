//! Window functions. The engine has them with PostgreSQL's meaning; what it lacks is refused.

use super::calls::arguments;
use super::is_aggregate;
use super::{Binder, Form, Slot, Typed};
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    Expr, Function, Value as Literal, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
};
use types::data::Value;

impl Binder<'_> {
    /// A call with OVER.
    pub(super) fn window(
        &mut self,
        name: &str,
        function: &Function,
        over: &WindowType,
    ) -> Result<Typed, Failure> {
        let scope = self.scope();
        if !scope.windows_allowed || scope.in_aggregate {
            let message = format!("window functions are not allowed here: {name}");
            return Err(
                Failure::new("42P20", message).hint("they stand in the list of a SELECT and in ORDER BY")
            );
        }
        let WindowType::WindowSpec(spec) = over else {
            return Err(Failure::unsupported("a named window", "write OVER (...)"));
        };
        if function.null_treatment.is_some() || !function.within_group.is_empty() {
            return Err(Failure::unsupported(
                format!("this call of {name}"),
                "leave NULLS and WITHIN GROUP out",
            ));
        }
        self.scope().windows_allowed = false;
        let bound = self.windowed(name, function, spec);
        let scope = self.scope();
        (scope.windows_allowed, scope.windows_used) = (true, true);
        bound
    }

    fn windowed(&mut self, name: &str, function: &Function, spec: &WindowSpec) -> Result<Typed, Failure> {
        let (call, ty) = match is_aggregate(name) {
            true => self.aggregate_over(name, function)?,
            false => self.own_window(name, function)?,
        };
        let mut parts = Vec::new();
        if spec.window_name.is_some() {
            return Err(Failure::unsupported("a named window", "write OVER (...)"));
        }
        if !spec.partition_by.is_empty() {
            let mut texts = Vec::new();
            for expr in &spec.partition_by {
                let typed = self.expr(expr)?;
                let typed = self.decided(typed)?;
                self.comparable(typed.ty.expect("decided"), "=")?;
                texts.push(self.text(&typed));
            }
            parts.push(format!("PARTITION BY {}", texts.join(", ")));
        }
        if !spec.order_by.is_empty() {
            let keys =
                spec.order_by.iter().map(|key| self.aggregate_key(key)).collect::<Result<Vec<_>, _>>()?;
            parts.push(format!("ORDER BY {}", keys.join(", ")));
        }
        if let Some(frame) = &spec.window_frame {
            parts.push(framed(frame)?);
        }
        Ok(Typed::engine(format!("{call} OVER ({})", parts.join(" ")), ty))
    }

    fn aggregate_over(&mut self, name: &str, function: &Function) -> Result<(String, Ty), Failure> {
        if !["count", "min", "max", "bool_and", "bool_or", "every"].contains(&name) {
            return Err(Failure::unsupported(
                format!("{name} as a window function"),
                "count, min and max are; aggregate the others in a subquery",
            ));
        }
        let typed = self.aggregated(name, function)?;
        let Form::Engine(text) = typed.form else { unreachable!("an aggregate is the engine's") };
        Ok((text, typed.ty.expect("typed")))
    }

    fn own_window(&mut self, name: &str, function: &Function) -> Result<(String, Ty), Failure> {
        if function.filter.is_some() {
            let message = "FILTER is not implemented for non-aggregate window functions";
            return Err(Failure::new(code::UNSUPPORTED, message));
        }
        let mut given = Vec::new();
        for argument in arguments(function)? {
            given.push(self.expr(argument)?);
        }
        let count = given.len();
        let mut given = given.into_iter();
        Ok(match (name, count) {
            ("row_number" | "rank" | "dense_rank", 0) => (format!("{name}()"), Ty::Int8),
            ("ntile", 1) => (format!("ntile({})", whole(given.next(), 1)?), Ty::Int4),
            ("first_value" | "last_value", 1) => {
                let typed = self.decided(given.next().expect("counted"))?;
                (format!("{name}({})", self.text(&typed)), typed.ty.expect("decided"))
            }
            ("nth_value", 2) => {
                let typed = self.decided(given.next().expect("counted"))?;
                let text = format!("nth_value({}, {})", self.text(&typed), whole(given.next(), 1)?);
                (text, typed.ty.expect("decided"))
            }
            ("lag" | "lead", 1..=3) => {
                let value = given.next().expect("counted");
                let offset = if count > 1 { whole(given.next(), 0)? } else { 1 };
                let mut both = vec![value];
                both.extend(given.next());
                let both = self.unified(both, name)?;
                let texts: Vec<String> = both.iter().map(|typed| self.text(typed)).collect();
                let default = texts.get(1).map_or(String::new(), |default| format!(", {default}"));
                (format!("{name}({}, {offset}{default})", texts[0]), both[0].ty.expect("unified"))
            }
            _ => {
                let what = format!("the window function {name}");
                return Err(Failure::unsupported(what, "docs/sql.md lists those that are"));
            }
        })
    }
}

/// A number that is written in the statement, as the engine wants it.
fn whole(typed: Option<Typed>, least: i64) -> Result<i64, Failure> {
    match typed.map(|typed| typed.form) {
        Some(Form::Slot(Slot::Const(Value::Int(number)))) if number >= least => Ok(number),
        _ => Err(Failure::unsupported(
            "this argument of a window function",
            format!("write a number of at least {least} there"),
        )),
    }
}

fn framed(frame: &WindowFrame) -> Result<String, Failure> {
    let units = match frame.units {
        WindowFrameUnits::Rows => "ROWS",
        WindowFrameUnits::Range => "RANGE",
        WindowFrameUnits::Groups => "GROUPS",
    };
    let bound = |bound: &WindowFrameBound| -> Result<String, Failure> {
        let number = |expr: &Expr| match expr {
            Expr::Value(value) => match &value.value {
                Literal::Number(digits, false) if units != "RANGE" => digits.parse::<u32>().ok(),
                _ => None,
            },
            _ => None,
        };
        let refuse = || Failure::unsupported("this frame of a window", "count rows: ROWS 1 PRECEDING");
        Ok(match bound {
            WindowFrameBound::CurrentRow => "CURRENT ROW".into(),
            WindowFrameBound::Preceding(None) => "UNBOUNDED PRECEDING".into(),
            WindowFrameBound::Following(None) => "UNBOUNDED FOLLOWING".into(),
            WindowFrameBound::Preceding(Some(expr)) => {
                format!("{} PRECEDING", number(expr).ok_or_else(refuse)?)
            }
            WindowFrameBound::Following(Some(expr)) => {
                format!("{} FOLLOWING", number(expr).ok_or_else(refuse)?)
            }
        })
    };
    let end = frame.end_bound.as_ref().map_or(Ok("CURRENT ROW".into()), bound)?;
    Ok(format!("{units} BETWEEN {} AND {end}", bound(&frame.start_bound)?))
}

//! Window functions. The engine has them with PostgreSQL's meaning; what it lacks is refused.

use super::calls::arguments;
use super::json::of_json;
use super::{Binder, Form, Slot, Typed};
use super::{folded, is_aggregate};
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArguments, Ident, NamedWindowDefinition, NamedWindowExpr,
    Value as Literal, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType,
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
        let spec = match over {
            WindowType::WindowSpec(spec) => self.whole_window(spec)?,
            WindowType::NamedWindow(name) => self.named_window(name)?,
        };
        if function.null_treatment.is_some() || !function.within_group.is_empty() {
            return Err(Failure::unsupported(
                format!("this call of {name}"),
                "leave NULLS and WITHIN GROUP out",
            ));
        }
        self.scope().windows_allowed = false;
        let bound = self.windowed(name, function, &spec);
        let scope = self.scope();
        (scope.windows_allowed, scope.windows_used) = (true, true);
        bound
    }

    /// The windows of a SELECT's WINDOW clause, each perhaps based on one before it.
    pub(super) fn name_windows(&mut self, windows: &[NamedWindowDefinition]) -> Result<(), Failure> {
        for NamedWindowDefinition(name, window) in windows {
            let spec = match window {
                NamedWindowExpr::NamedWindow(other) => self.named_window(other)?,
                NamedWindowExpr::WindowSpec(spec) => self.whole_window(spec)?,
            };
            let name = folded(name);
            if self.scope().windows.iter().any(|(known, _)| *known == name) {
                return Err(Failure::new("42P20", format!("window \"{name}\" is already defined")));
            }
            self.scope().windows.push((name, spec));
        }
        Ok(())
    }

    fn named_window(&mut self, name: &Ident) -> Result<WindowSpec, Failure> {
        let name = folded(name);
        let found = self.scope().windows.iter().find(|(known, _)| *known == name);
        let found = found.map(|(_, spec)| spec.clone());
        found.ok_or_else(|| Failure::new("42704", format!("window \"{name}\" does not exist")))
    }

    /// A window with what it takes from the one that it is based on.
    fn whole_window(&mut self, spec: &WindowSpec) -> Result<WindowSpec, Failure> {
        let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
        let base = self.named_window(name)?;
        let refuse = |what: &str| {
            let message = format!("cannot {what} of window \"{}\"", folded(name));
            Err(Failure::new("42P20", message))
        };
        if !spec.partition_by.is_empty() {
            return refuse("override PARTITION BY clause");
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return refuse("override ORDER BY clause");
        }
        if base.window_frame.is_some() {
            let message = format!("cannot copy window \"{}\" because it has a frame clause", folded(name));
            return Err(Failure::new("42P20", message));
        }
        let order_by = if spec.order_by.is_empty() { base.order_by } else { spec.order_by.clone() };
        let window_frame = spec.window_frame.clone();
        Ok(WindowSpec { window_name: None, partition_by: base.partition_by, order_by, window_frame })
    }

    fn windowed(&mut self, name: &str, function: &Function, spec: &WindowSpec) -> Result<Typed, Failure> {
        let (call, ty) = match is_aggregate(name) {
            true => self.aggregate_over(name, function)?,
            false => self.own_window(name, function)?,
        };
        let mut parts = Vec::new();
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
        let text = format!("{call} OVER ({})", parts.join(" "));
        // What the engine computes as a float of its own is kept as other floats are.
        let own_float = ["percent_rank", "cume_dist"].contains(&name);
        Ok(Typed::engine(if own_float { format!("float_({text})") } else { text }, ty))
    }

    fn aggregate_over(&mut self, name: &str, function: &Function) -> Result<(String, Ty), Failure> {
        let distinct = matches!(&function.args, FunctionArguments::List(list)
            if list.duplicate_treatment == Some(DuplicateTreatment::Distinct));
        if distinct {
            let message = "DISTINCT is not implemented for window functions";
            return Err(Failure::new(code::UNSUPPORTED, message));
        }
        if ["string_agg", "array_agg"].contains(&name) || of_json(name).is_some() {
            return Err(Failure::unsupported(
                format!("{name} as a window function"),
                "the other aggregates are; use this one in a subquery",
            ));
        }
        let typed = self.aggregated(name, function)?;
        let Form::Engine(text) = typed.form else { unreachable!("an aggregate is the engine's") };
        // Floats that leave a window cannot be subtracted.
        let floats = text.starts_with("sum_float_") || text.starts_with("avg_float_");
        let text = if floats { format!("moving_{text}") } else { text };
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
            ("percent_rank" | "cume_dist", 0) => (format!("{name}()"), Ty::Float8),
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

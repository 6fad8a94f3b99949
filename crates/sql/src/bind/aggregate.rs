//! Aggregates. Their results have PostgreSQL's types: the sum of `bigint` is `numeric`, and so is every
//! average of numbers that are exact.

use super::calls::arguments;
use super::json::of_json;
use super::{Binder, Typed, is_aggregate};
use crate::ty::Ty;
use pg::{Failure, code};
use sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, SelectItem,
};

impl Binder<'_> {
    /// A call of an aggregate.
    pub(super) fn aggregate(&mut self, name: &str, function: &Function) -> Result<Typed, Failure> {
        let scope = self.scope();
        if let Some(place) = scope.no_aggregates {
            return Err(Failure::new("42803", format!("aggregate functions are not allowed in {place}")));
        }
        if scope.in_aggregate {
            return Err(Failure::new("42803", "aggregate function calls cannot be nested"));
        }
        if scope.groups.is_none() {
            let message = format!("the aggregate {name} is not supported here");
            return Err(
                Failure::new(code::UNSUPPORTED, message).hint("use it in the list of a SELECT, or in HAVING")
            );
        }
        scope.in_aggregate = true;
        let typed = self.aggregated(name, function);
        self.scope().in_aggregate = false;
        typed
    }

    pub(super) fn aggregated(&mut self, name: &str, function: &Function) -> Result<Typed, Failure> {
        let filter = match &function.filter {
            None => String::new(),
            Some(filter) => {
                let filter = self.condition(filter, "FILTER")?;
                format!(" FILTER (WHERE {})", self.text(&filter))
            }
        };
        if name == "count" && is_star(function) {
            return Ok(Typed::engine(format!("count(*){filter}"), Ty::Int8));
        }
        let distinct = match &function.args {
            FunctionArguments::List(list) => match list.duplicate_treatment {
                Some(DuplicateTreatment::Distinct) => "DISTINCT ",
                _ => "",
            },
            _ => "",
        };
        let mut typed = Vec::new();
        for argument in arguments(function)? {
            let one = self.expr(argument)?;
            let one = self.decided(one)?;
            let textual = name == "string_agg" && one.ty.is_some_and(|ty| ty.becomes(Ty::Text));
            typed.push(if textual { self.becoming(one, Ty::Text)? } else { one });
        }
        let order = self.inner_order(function)?;
        if let Some(engine) = json_aggregate(name, typed.len()) {
            if !distinct.is_empty() {
                return Err(Failure::unsupported(
                    format!("{name} with DISTINCT"),
                    "use a subquery with DISTINCT",
                ));
            }
            let value = typed.pop().expect("one or two");
            let named = match typed.pop() {
                None => String::new(),
                Some(name) => {
                    let name = self.cast_to(name, Ty::Text)?;
                    format!("{}, ", self.text(&name))
                }
            };
            let text = format!("{engine}({named}{}{order}){filter}", self.valued(value)?);
            return Ok(Typed::engine(text, Ty::Json));
        }
        let types: Vec<Ty> = typed.iter().filter_map(|typed| typed.ty).collect();
        let (engine, result) = chosen(name, &types)?;
        if !distinct.is_empty() && (types.len() > 1 || !types[0].equates()) {
            return Err(Failure::unsupported(
                format!("{name} with DISTINCT here"),
                "use a subquery with DISTINCT",
            ));
        }
        let texts: Vec<String> = typed.iter().map(|typed| self.text(typed)).collect();
        if name == "array_agg" {
            let text = format!("gather_({distinct}{}, {}{order}){filter}", texts[0], result as u8);
            return match distinct.is_empty() {
                true => Ok(Typed::engine(text, result)),
                false => {
                    Err(Failure::unsupported("array_agg with DISTINCT", "use ARRAY(SELECT DISTINCT ...)"))
                }
            };
        }
        Ok(Typed::engine(format!("{engine}({distinct}{}{order}){filter}", texts.join(", ")), result))
    }

    /// The order in which an aggregate takes its arguments.
    fn inner_order(&mut self, function: &Function) -> Result<String, Failure> {
        let FunctionArguments::List(list) = &function.args else { return Ok(String::new()) };
        let mut keys = Vec::new();
        for clause in &list.clauses {
            let FunctionArgumentClause::OrderBy(order) = clause else {
                return Err(Failure::unsupported(
                    format!("{clause} in an aggregate"),
                    "give plain arguments",
                ));
            };
            for key in order {
                keys.push(self.aggregate_key(key)?);
            }
        }
        match (keys.is_empty(), &list.duplicate_treatment) {
            (true, _) => Ok(String::new()),
            (false, None) => Ok(format!(" ORDER BY {}", keys.join(", "))),
            (false, Some(_)) => {
                Err(Failure::unsupported("an aggregate with DISTINCT and ORDER BY", "use a subquery"))
            }
        }
    }
}

/// The engine's aggregate that makes JSON of a group; none: it is another one.
fn json_aggregate(name: &str, arguments: usize) -> Option<&'static str> {
    match (of_json(name)?, arguments) {
        ("agg", 1) => Some("gather_list_"),
        ("object_agg", 2) => Some("gather_object_"),
        _ => None,
    }
}

/// The engine's aggregate for these types, and the type of its result.
fn chosen(name: &str, types: &[Ty]) -> Result<(&'static str, Ty), Failure> {
    Ok(match (name, types) {
        ("count", [_]) => ("count", Ty::Int8),
        ("min", [ty]) if ty.compares() && *ty != Ty::Bool && *ty != Ty::Bytea => ("min", *ty),
        ("max", [ty]) if ty.compares() && *ty != Ty::Bool && *ty != Ty::Bytea => ("max", *ty),
        ("sum", [Ty::Int4]) => ("sum_int4_", Ty::Int8),
        ("sum", [Ty::Int8]) => ("sum_int8_", Ty::Numeric),
        ("sum", [Ty::Numeric]) => ("sum_numeric_", Ty::Numeric),
        ("sum", [Ty::Float8]) => ("sum_float_", Ty::Float8),
        ("avg", [Ty::Int4 | Ty::Int8]) => ("avg_int_", Ty::Numeric),
        ("avg", [Ty::Numeric]) => ("avg_numeric_", Ty::Numeric),
        ("avg", [Ty::Float8 | Ty::Float4]) => ("avg_float_", Ty::Float8),
        ("sum", [Ty::Float4]) => ("sum_float_", Ty::Float4),
        ("bool_and" | "every", [Ty::Bool]) => ("min", Ty::Bool),
        ("bool_or", [Ty::Bool]) => ("max", Ty::Bool),
        ("string_agg", [Ty::Text, Ty::Text]) => ("string_agg_", Ty::Text),
        ("sum", [Ty::Int2]) => ("sum_int4_", Ty::Int8),
        ("avg", [Ty::Int2]) => ("avg_int_", Ty::Numeric),
        ("array_agg", [ty]) => ("gather_", super::arrays::array_type(*ty)?),
        (name, types) => {
            let shown: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
            let message = format!("function {name}({}) does not exist", shown.join(", "));
            return Err(Failure::new("42883", message).hint(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            ));
        }
    })
}

fn is_star(function: &Function) -> bool {
    match &function.args {
        FunctionArguments::List(list) => matches!(
            (list.args.as_slice(), list.duplicate_treatment),
            ([FunctionArg::Unnamed(FunctionArgExpr::Wildcard)], None)
        ),
        _ => false,
    }
}

/// True if an aggregate of this SELECT stands in its list.
pub(super) fn item_aggregates(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => aggregates(expr),
        _ => false,
    }
}

/// True if an aggregate stands in the expression. What stands in a subquery is that one's own.
pub(super) fn aggregates(expr: &Expr) -> bool {
    use sqlparser::ast::{Visit, Visitor};
    use std::ops::ControlFlow;
    #[derive(Default)]
    struct Search {
        /// Subqueries that the search is in.
        inside: usize,
    }
    impl Visitor for Search {
        type Break = ();
        fn pre_visit_query(&mut self, _: &sqlparser::ast::Query) -> ControlFlow<()> {
            self.inside += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &sqlparser::ast::Query) -> ControlFlow<()> {
            self.inside -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function)
                    if self.inside == 0
                        && function.over.is_none()
                        && is_aggregate(&function.name.to_string()) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Search::default()).is_break()
}

//! Arrays: constructors, subscripts, ANY and ALL, and functions that take arrays of any type.

use super::{Binder, Typed, folded};
use crate::ty::{Ty, common};
use pg::{Failure, code};
use sqlparser::ast::{AccessExpr, BinaryOperator, Expr, Ident, Query, Subscript};

/// The functions of this module.
const NAMES: [&str; 10] = [
    "array_to_string",
    "array_length",
    "array_upper",
    "array_lower",
    "array_ndims",
    "cardinality",
    "array_cat",
    "array_append",
    "array_remove",
    "array_position",
];

/// True for functions that take arrays of any type.
pub(super) fn takes_arrays(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The error where an array is expected.
fn no_array(typed: &Typed) -> Failure {
    let of = typed.ty.map_or("unknown", Ty::name);
    Failure::new("42804", format!("an array is expected, not an expression of type {of}"))
}

impl Binder<'_> {
    /// An array and its type. A literal without a type is an array of texts.
    pub(super) fn array(&mut self, typed: Typed) -> Result<(Typed, Ty), Failure> {
        let typed = match typed.ty {
            None => self.becoming(typed, Ty::TextArray)?,
            Some(_) => typed,
        };
        match typed.ty.filter(|ty| ty.element().is_some()) {
            Some(ty) => Ok((typed, ty)),
            None => Err(no_array(&typed)),
        }
    }

    /// `ARRAY[...]`.
    pub(super) fn array_of(&mut self, elements: &[Expr]) -> Result<Typed, Failure> {
        let mut all = Vec::new();
        for element in elements {
            all.push(self.expr(element)?);
        }
        if all.is_empty() {
            let hint = "Explicitly cast to the desired type, for example ARRAY[]::integer[].";
            return Err(Failure::new("42P18", "cannot determine type of empty array").hint(hint));
        }
        let all = self.unified(all, "ARRAY")?;
        let element = all[0].ty.expect("unified");
        let ty = array_type(element)?;
        let texts: Vec<String> = all.iter().map(|typed| self.text(typed)).collect();
        Ok(Typed::engine(format!("array_({}, {})", ty as u8, texts.join(", ")), ty))
    }

    /// `ARRAY(SELECT ...)`.
    pub(super) fn array_query(&mut self, query: &Query) -> Result<Typed, Failure> {
        let (text, output) = self.subquery(query)?;
        let [(_, element)] = output.as_slice() else {
            return Err(Failure::new(code::SYNTAX, "subquery must return only one column"));
        };
        let ty = array_type(*element)?;
        Ok(Typed::engine(format!("(SELECT coalesce(gather_(o0, {}), '{{}}') FROM ({text}))", ty as u8), ty))
    }

    /// `value operator ANY (array)`, or ALL.
    pub(super) fn any(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
        every: bool,
    ) -> Result<Typed, Failure> {
        let sign = match operator {
            BinaryOperator::Eq => "=",
            BinaryOperator::NotEq => "<>",
            BinaryOperator::Lt => "<",
            BinaryOperator::LtEq => "<=",
            BinaryOperator::Gt => ">",
            BinaryOperator::GtEq => ">=",
            other => {
                let what = format!("{other} with ANY or ALL");
                return Err(Failure::unsupported(what, "use a comparison"));
            }
        };
        if let Expr::Subquery(query) = right {
            return match (sign, every) {
                ("=", false) => self.in_subquery(left, query, false),
                ("<>", true) => self.in_subquery(left, query, true),
                _ => {
                    Err(Failure::unsupported("this comparison with a subquery", "use IN, EXISTS, min or max"))
                }
            };
        }
        let (left, mut right) = (self.expr(left)?, self.expr(right)?);
        if right.ty.is_none() {
            let of = left.ty.map_or(Some(Ty::TextArray), |ty| {
                if ty.is_textual() { Some(Ty::TextArray) } else { ty.array() }
            });
            right = self.becoming(right, of.unwrap_or(Ty::TextArray))?;
        }
        let (right, ty) = self.array(right)?;
        let element = ty.element().expect("it is an array");
        let left = if left.ty.is_none() { self.becoming(left, element)? } else { left };
        let of = left.ty.expect("decided");
        let shared = common(of, element).ok_or_else(|| {
            let message = format!("operator does not exist: {} {sign} {}", of.name(), element.name());
            Failure::new("42883", message).hint("You might need to add explicit type casts.")
        })?;
        self.comparable(shared, if ["=", "<>"].contains(&sign) { "=" } else { sign })?;
        let (one, two) = (self.text(&left), self.text(&right));
        let text = format!(
            "any_({one}, {}, '{sign}', {two}, {}, {}, {})",
            of as u8,
            ty as u8,
            shared as u8,
            u8::from(every)
        );
        Ok(Typed::engine(text, Ty::Bool))
    }

    /// Subscripts and fields: `array[1]`, `(row).field`, and names whose path a subscript ends.
    pub(super) fn access(&mut self, root: &Expr, chain: &[AccessExpr]) -> Result<Typed, Failure> {
        let mut path: Vec<Ident> = Vec::new();
        if let Expr::Identifier(name) = root {
            path.push(name.clone());
        }
        let mut rest = chain;
        while let (false, [AccessExpr::Dot(Expr::Identifier(name)), after @ ..]) = (path.is_empty(), rest) {
            path.push(name.clone());
            rest = after;
        }
        let mut typed = match path.as_slice() {
            [] => self.expr(root)?,
            [one] => self.expr(&Expr::Identifier(one.clone()))?,
            many => self.expr(&Expr::CompoundIdentifier(many.to_vec()))?,
        };
        for step in rest {
            typed = match step {
                AccessExpr::Subscript(Subscript::Index { index }) => self.element(typed, index)?,
                AccessExpr::Dot(Expr::Identifier(field)) => self.field(typed, &folded(field))?,
                other => return Err(Failure::unsupported(format!("{other}"), "name one element: array[1]")),
            };
        }
        Ok(typed)
    }

    fn element(&mut self, typed: Typed, index: &Expr) -> Result<Typed, Failure> {
        if typed.ty == Some(Ty::Name) {
            // A name is an array of letters, counted from 0.
            let index = self.expr(index)?;
            let index = self.becoming(index, Ty::Int4)?;
            let (name, index) = (self.text(&typed), self.text(&index));
            return Ok(Typed::engine(format!("substr({name}, {index} + 1, 1)"), Ty::Char));
        }
        if typed.ty.is_none_or(|ty| ty.element().is_none()) {
            let of = typed.ty.map_or("unknown", Ty::name);
            let message = format!("cannot subscript type {of} because it does not support subscripting");
            return Err(Failure::new("42804", message));
        }
        let (typed, ty) = self.array(typed)?;
        let index = self.expr(index)?;
        let index = self.becoming(index, Ty::Int4)?;
        let text = format!("elem_({}, {}, {})", self.text(&typed), ty as u8, self.text(&index));
        Ok(Typed::engine(text, ty.element().expect("it is an array")))
    }

    fn field(&mut self, typed: Typed, field: &str) -> Result<Typed, Failure> {
        let at = ["x", "n"].iter().position(|known| *known == field);
        match (typed.ty, at) {
            (Some(Ty::Member), Some(at)) => {
                let ty = if at == 0 { Ty::Int2 } else { Ty::Int4 };
                Ok(Typed::engine(format!("member_({}, {at})", self.text(&typed)), ty))
            }
            (Some(Ty::Member), None) => {
                Err(Failure::new("42703", format!("column \"{field}\" not found in data type record")))
            }
            _ => {
                Err(Failure::unsupported(format!("the field {field} of a value"), "name a column of a table"))
            }
        }
    }

    /// A call of one of this module's functions.
    pub(super) fn array_function(&mut self, name: &str, mut given: Vec<Typed>) -> Result<Typed, Failure> {
        let wrong = |given: &[Typed]| {
            let types: Vec<&str> = given.iter().map(|typed| typed.ty.map_or("unknown", Ty::name)).collect();
            Failure::new("42883", format!("function {name}({}) does not exist", types.join(", ")))
        };
        if given.is_empty() || given[0].ty.is_some_and(|ty| ty.element().is_none()) {
            return Err(wrong(&given));
        }
        let (array, ty) = self.array(given.remove(0))?;
        let (text, number) = (self.text(&array), ty as u8);
        match (name, given.len()) {
            ("cardinality", 0) => Ok(Typed::engine(format!("len_({text}, {number})"), Ty::Int4)),
            ("array_ndims", 0) => {
                Ok(Typed::engine(format!("(CASE WHEN len_({text}, {number}) > 0 THEN 1 END)"), Ty::Int4))
            }
            ("array_length" | "array_upper" | "array_lower", 1) => {
                let dimension = self.becoming(given.remove(0), Ty::Int4)?;
                let dimension = self.text(&dimension);
                let length = format!("nullif(len_({text}, {number}), 0)");
                let value = match name {
                    "array_length" => length,
                    "array_upper" => format!("({length} + {})", ty.first_index() - 1),
                    _ => format!("(CASE WHEN {length} IS NOT NULL THEN {} END)", ty.first_index()),
                };
                Ok(Typed::engine(format!("(CASE {dimension} WHEN 1 THEN {value} END)"), Ty::Int4))
            }
            ("array_to_string", 1 | 2) => {
                let between = self.becoming(given.remove(0), Ty::Text)?;
                let between = self.text(&between);
                let null = match given.pop() {
                    None => "NULL".to_string(),
                    Some(null) => {
                        let null = self.becoming(null, Ty::Text)?;
                        self.text(&null)
                    }
                };
                Ok(Typed::engine(format!("join_({text}, {number}, {between}, {null})"), Ty::Text))
            }
            ("array_cat", 1) => self.concatenated(array, given.remove(0)),
            ("array_append", 1) => {
                let element = self.becoming(given.remove(0), ty.element().expect("it is an array"))?;
                let added = format!("array_({number}, {})", self.text(&element));
                Ok(Typed::engine(format!("cat_({text}, {added}, {number})"), ty))
            }
            ("array_remove", 1) => {
                let element = self.becoming(given.remove(0), ty.element().expect("it is an array"))?;
                let (element, first) = (self.text(&element), ty.first_index() - 1);
                let members = format!(
                    "SELECT elem_({text}, {number}, k + {first}) AS e FROM rows_(coalesce(len_({text}, {number}), 0))"
                );
                let rest = format!(
                    "SELECT coalesce(gather_(e, {number}), '{{}}') FROM ({members}) WHERE e IS NOT {element}"
                );
                Ok(Typed::engine(format!("(CASE WHEN {text} IS NOT NULL THEN ({rest}) END)"), ty))
            }
            ("array_position", 1) => {
                Err(Failure::unsupported("function array_position", "use = ANY (array)"))
            }
            _ => Err(wrong(&given)),
        }
    }

    /// Two arrays of one type, one behind the other.
    pub(super) fn concatenated(&mut self, one: Typed, two: Typed) -> Result<Typed, Failure> {
        let ty = one.ty.or(two.ty).filter(|ty| ty.element().is_some());
        let ty = match ty {
            Some(ty) => ty,
            None => {
                return Err(Failure::unsupported("an element added to an array with ||", "use array_append"));
            }
        };
        let (one, two) = (self.becoming(one, ty), self.becoming(two, ty));
        let (Ok(one), Ok(two)) = (one, two) else {
            return Err(Failure::unsupported(
                "|| of this array and something else",
                "use array_append or array_cat",
            ));
        };
        Ok(Typed::engine(format!("cat_({}, {}, {})", self.text(&one), self.text(&two), ty as u8), ty))
    }
}

/// The type of arrays of such elements.
pub(super) fn array_type(element: Ty) -> Result<Ty, Failure> {
    element.array().ok_or_else(|| {
        Failure::unsupported(
            format!("an array of {}", element.name()),
            "docs/sql.md lists the types of arrays",
        )
    })
}

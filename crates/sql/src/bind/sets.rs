//! Functions that give several rows, in FROM and in the list of a SELECT.
//!
//! Each is two texts of the engine: how many rows there are, and what the k-th of them is. In FROM the
//! numbers from 1 are joined; in a list all such functions count together, and those that have fewer rows
//! give null, as in PostgreSQL.

use super::json::of_json;
use super::{Binder, Relation, Typed, Visible, What, folded};
use crate::eval::json::{LIST_SIZE, MEMBER, NAME, OBJECT_SIZE, TEXT};
use crate::ty::Ty;
use pg::Failure;
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, TableAlias};

/// A call of such a function.
struct Call {
    /// How many rows: the engine's text, never null.
    count: String,
    /// Its columns, with the text of the k-th row's, where `@k` is k.
    columns: Vec<(&'static str, String, Ty)>,
    /// What it is as one value, if it has several columns.
    whole: Option<(String, Ty)>,
}

/// The functions in the list of one SELECT.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    /// The engine's name of the numbers.
    alias: String,
    counts: Vec<String>,
}

impl Sets {
    /// The engine's text of the numbers, for FROM.
    pub fn text(&self) -> String {
        let count = match self.counts.as_slice() {
            [one] => one.clone(),
            many => format!("max({})", many.join(", ")),
        };
        format!("rows_({count}) AS {}", self.alias)
    }
}

/// True for functions of this module.
pub(super) fn gives_rows(name: &str) -> bool {
    if let Some(of_json) = of_json(name) {
        return ["array_elements", "array_elements_text", "each", "each_text", "object_keys"]
            .contains(&of_json);
    }
    [
        "unnest",
        "generate_series",
        "generate_subscripts",
        "_pg_expandarray",
        "pg_options_to_table",
        "pg_partition_ancestors",
    ]
    .contains(&name)
}

impl Binder<'_> {
    fn set_call(&mut self, name: &str, given: Vec<Typed>) -> Result<Call, Failure> {
        let types: Vec<&str> = given.iter().map(|typed| typed.ty.map_or("unknown", Ty::name)).collect();
        let wrong = Failure::new("42883", format!("function {name}({}) does not exist", types.join(", ")));
        if name == "unnest" && given.len() > 1 {
            let (mut counts, mut columns) = (Vec::new(), Vec::new());
            for array in given {
                let (count, element, ty) = self.members(array)?;
                counts.push(count);
                columns.push(("unnest", element, ty));
            }
            return Ok(Call { count: format!("max({})", counts.join(", ")), columns, whole: None });
        }
        if let (Some(of_json), [tree]) = (of_json(name), given.as_slice()) {
            return self.json_rows(of_json, tree.clone());
        }
        let mut given = given.into_iter();
        match (name, given.next(), given.next(), given.next(), given.next()) {
            ("unnest", Some(array), None, None, None) => {
                let (count, element, ty) = self.members(array)?;
                Ok(Call { count, columns: vec![("unnest", element, ty)], whole: None })
            }
            ("generate_subscripts", Some(array), Some(dimension), None, None) => {
                let (array, ty) = self.array(array)?;
                let dimension = self.becoming(dimension, Ty::Int4)?;
                let (array, dimension) = (self.text(&array), self.text(&dimension));
                let count =
                    format!("coalesce(CASE {dimension} WHEN 1 THEN len_({array}, {}) END, 0)", ty as u8);
                let value = format!("(@k + {})", ty.first_index() - 1);
                Ok(Call { count, columns: vec![("generate_subscripts", value, Ty::Int4)], whole: None })
            }
            ("_pg_expandarray", Some(array), None, None, None) => {
                let (count, element, ty) = self.members(array)?;
                if ty != Ty::Int2 {
                    let what = "_pg_expandarray of this array";
                    return Err(Failure::unsupported(what, "it is understood for int2vector and smallint[]"));
                }
                let whole = Some((format!("('(' || {element} || ',' || @k || ')')"), Ty::Member));
                let columns = vec![("x", element, ty), ("n", "@k".into(), Ty::Int4)];
                Ok(Call { count, columns, whole })
            }
            ("pg_options_to_table", Some(options), None, None, None) => {
                let (count, option, _) = self.members(options)?;
                let name = format!("substr({option}, 1, instr({option}, '=') - 1)");
                let value = format!("substr({option}, instr({option}, '=') + 1)");
                let columns = vec![("option_name", name, Ty::Text), ("option_value", value, Ty::Text)];
                Ok(Call { count, columns, whole: None })
            }
            ("generate_series", Some(from), Some(to), step, None) => self.series(from, to, step),
            ("pg_partition_ancestors", Some(_), None, None, None) => {
                // No table here is part of another one.
                Ok(Call {
                    count: "0".into(),
                    columns: vec![("relid", "NULL".into(), Ty::Regclass)],
                    whole: None,
                })
            }
            _ => Err(wrong),
        }
    }

    /// Members of a list or of an object.
    fn json_rows(&mut self, of_json: &str, tree: Typed) -> Result<Call, Failure> {
        let tree = self.becoming(tree, Ty::Json)?;
        let text = self.text(&tree);
        let tree = || Typed::engine(text.clone(), Ty::Json);
        let k = || Typed::engine("@k".into(), Ty::Int8);
        let mut function = |name, arguments| {
            let typed = self.function(name, arguments)?;
            Ok::<String, Failure>(self.text(&typed))
        };
        let sized = if of_json.starts_with("array") { LIST_SIZE } else { OBJECT_SIZE };
        let count = format!("coalesce({}, 0)", function(sized, vec![tree()])?);
        let key = function(NAME, vec![tree(), k()])?;
        let value = function(MEMBER, vec![tree(), k()])?;
        let plain = function(TEXT, vec![Typed::engine(value.clone(), Ty::Json)])?;
        let columns = match of_json {
            "array_elements" => vec![("value", value, Ty::Json)],
            "array_elements_text" => vec![("value", plain, Ty::Text)],
            "each" => vec![("key", key, Ty::Text), ("value", value, Ty::Json)],
            "each_text" => vec![("key", key, Ty::Text), ("value", plain, Ty::Text)],
            _ => vec![("", key, Ty::Text)],
        };
        Ok(Call { count, columns, whole: None })
    }

    /// An array: how many members, the k-th, and their type.
    fn members(&mut self, array: Typed) -> Result<(String, String, Ty), Failure> {
        let (array, ty) = self.array(array)?;
        let (text, number) = (self.text(&array), ty as u8);
        let element = format!("elem_({text}, {number}, @k + {})", ty.first_index() - 1);
        Ok((format!("coalesce(len_({text}, {number}), 0)"), element, ty.element().expect("it is an array")))
    }

    fn series(&mut self, from: Typed, to: Typed, step: Option<Typed>) -> Result<Call, Failure> {
        let one = Typed::constant(types::data::Value::Int(1), Ty::Int4);
        let all = self.unified(vec![from, to, step.unwrap_or(one)], "generate_series")?;
        let ty = match all[0].ty.expect("unified") {
            Ty::Int2 | Ty::Int4 => Ty::Int4,
            Ty::Int8 => Ty::Int8,
            other => {
                let what = format!("generate_series of {}", other.name());
                return Err(Failure::unsupported(what, "it is understood for whole numbers"));
            }
        };
        let texts: Vec<String> = all.iter().map(|typed| self.text(typed)).collect();
        let count = format!("steps_({})", texts.join(", "));
        let value = format!("({} + (@k - 1) * {})", texts[0], texts[2]);
        Ok(Call { count, columns: vec![("generate_series", value, ty)], whole: None })
    }

    /// Such a function in the list of a SELECT.
    pub(super) fn set_in_list(&mut self, name: &str, given: Vec<Typed>) -> Result<Typed, Failure> {
        let scope = self.scope();
        if !scope.sets_allowed || scope.in_aggregate || scope.groups.is_some() {
            let what = format!("the set-returning function {name} here");
            return Err(Failure::unsupported(
                what,
                "use it in FROM, or in the list of a SELECT without groups",
            ));
        }
        let call = self.set_call(name, given)?;
        if call.columns.len() > 1 && call.whole.is_none() {
            return Err(Failure::unsupported(format!("{name} in the list of a SELECT"), "use it in FROM"));
        }
        if self.scope().sets.is_none() {
            let alias = self.alias();
            self.scope().sets = Some(Sets { alias, counts: Vec::new() });
        }
        let sets = self.scope().sets.as_mut().expect("just made");
        if !sets.counts.contains(&call.count) {
            sets.counts.push(call.count.clone());
        }
        let k = format!("{}.k", sets.alias);
        let (text, ty) = match call.whole {
            Some(whole) => whole,
            None => (call.columns[0].1.clone(), call.columns[0].2),
        };
        let text = format!("(CASE WHEN {k} <= {} THEN {} END)", call.count, text.replace("@k", &k));
        Ok(Typed::engine(text, ty))
    }

    /// Such a function in FROM. It sees what stands before it.
    pub(super) fn set_in_from(
        &mut self,
        name: &str,
        arguments: &[FunctionArg],
        alias: Option<&TableAlias>,
        numbered: bool,
    ) -> Result<String, Failure> {
        let mut given = Vec::new();
        for argument in arguments {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
                return Err(Failure::unsupported(format!("this call of {name}"), "give plain arguments"));
            };
            let expr: &Expr = expr;
            given.push(self.expr(expr)?);
        }
        let call = self.set_call(name, given)?;
        let engine = self.alias();
        let k = format!("{engine}.k");
        let mut columns: Vec<Visible> = call
            .columns
            .iter()
            .map(|(name, text, ty)| Visible {
                name: (*name).into(),
                ty: *ty,
                what: What::Text(text.replace("@k", &k)),
            })
            .collect();
        if numbered {
            columns.push(Visible { name: "ordinality".into(), ty: Ty::Int8, what: What::Text(k) });
        }
        // The only column of a function is called as the function is, if it has no name of its own.
        if let [(column, ..)] = call.columns.as_slice()
            && (column.is_empty() || *column == name)
        {
            columns[0].name = alias.map_or_else(|| name.to_string(), |alias| folded(&alias.name));
        }
        let name = alias.map_or_else(|| name.to_string(), |alias| folded(&alias.name));
        let relation =
            Relation { schema: "".into(), name, alias: engine.clone(), columns, number: None, of: None };
        self.add(relation, alias)?;
        Ok(format!("rows_({}) AS {engine}", call.count))
    }
}

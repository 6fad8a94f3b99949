//! EXPLAIN: where each part of a query runs.

use crate::bind::{Bound, Condition, Slot, Source};
use crate::driver::Handle;
use crate::engine::Engine;
use crate::range::range;
use crate::system;
use client::{Map, Table};
use pg::{Failure, Row};
use serde_json::{Value as Tree, json};
use sqlparser::ast::{AnalyzeFormat, AnalyzeFormatKind, Expr, Statement, UtilityOption, Value as Literal};
use std::sync::Arc;
use types::PartitionId;
use types::data::Value;

/// Partitions that are named one by one.
const NAMED: usize = 8;

/// What is to be explained.
pub struct Explained {
    /// The query.
    pub bound: Arc<Bound>,
    /// As JSON.
    pub json: bool,
}

/// The statement of an EXPLAIN, and whether JSON is asked for.
pub fn asked(statement: &Statement) -> Result<Option<(&Statement, bool)>, Failure> {
    let Statement::Explain { analyze, query_plan, estimate, statement, format, options, .. } = statement
    else {
        return Ok(None);
    };
    let refuse = |what: String| Err(Failure::unsupported(what, "write EXPLAIN or EXPLAIN (FORMAT JSON)"));
    if *analyze || *query_plan || *estimate {
        return refuse("EXPLAIN ANALYZE".into());
    }
    let mut json = match format {
        None => false,
        Some(AnalyzeFormatKind::Keyword(kind) | AnalyzeFormatKind::Assignment(kind)) => match kind {
            AnalyzeFormat::JSON => true,
            AnalyzeFormat::TEXT => false,
            other => return refuse(format!("EXPLAIN with the format {other}")),
        },
    };
    for UtilityOption { name, arg } in options.iter().flatten() {
        let word = arg.as_ref().map_or("on".into(), |arg| arg.to_string().to_ascii_lowercase());
        let off = matches!(arg, Some(Expr::Value(value)) if value.value == Literal::Boolean(false))
            || word == "off";
        match (name.value.to_ascii_lowercase().as_str(), word.as_str()) {
            ("format", "json") => json = true,
            ("format", "text") => {}
            ("costs" | "verbose" | "summary" | "settings", _) => {}
            (_, _) if off => {}
            (other, _) => return refuse(format!("EXPLAIN ({})", other.to_uppercase())),
        }
    }
    Ok(Some((statement, json)))
}

/// The rows of an EXPLAIN.
pub fn explain(handle: &Handle, explained: &Explained, engine: &Engine) -> Result<Vec<Row>, Failure> {
    let tree = plan(&handle.map(), &explained.bound, engine)?;
    if explained.json {
        let whole = json!([{ "Plan": tree }]);
        let text = serde_json::to_string_pretty(&whole).unwrap_or_default();
        return Ok(vec![vec![Value::Text(text)]]);
    }
    let mut lines = Vec::new();
    write(&tree, 0, &mut lines);
    Ok(lines.into_iter().map(|line| vec![Value::Text(line)]).collect())
}

/// A node's line, its other members indented below, then what it reads from.
fn write(tree: &Tree, depth: usize, lines: &mut Vec<String>) {
    let indent = if depth == 0 { String::new() } else { format!("{}->  ", " ".repeat(6 * depth - 4)) };
    lines.push(format!("{indent}{}", tree["Node Type"].as_str().unwrap_or_default()));
    for (name, value) in tree.as_object().into_iter().flatten() {
        let text = match value {
            Tree::String(text) => text.clone(),
            Tree::Array(parts) if name != "Plans" => {
                let parts: Vec<&str> = parts.iter().filter_map(Tree::as_str).collect();
                parts.join("; ")
            }
            Tree::Number(number) => number.to_string(),
            _ => continue,
        };
        if name != "Node Type" {
            lines.push(format!("{}{name}: {text}", " ".repeat(6 * depth + 2)));
        }
    }
    for child in tree["Plans"].as_array().into_iter().flatten() {
        write(child, depth + 1, lines);
    }
}

fn plan(map: &Map, bound: &Bound, engine: &Engine) -> Result<Tree, Failure> {
    if let Some(point) = &bound.point {
        let source = &bound.sources[0];
        let table = Table::new(source.table.clone());
        let names: Vec<String> = source
            .table
            .schema
            .key_columns()
            .zip(&point.key)
            .map(|(column, slot)| format!("{} = {}", column.name, shown(slot)))
            .collect();
        let key: Option<Vec<Value>> = point.key.iter().map(constant).collect();
        let partition = key.and_then(|key| table.partition_of(&table.key(&key).ok()?).ok());
        let place = match partition {
            Some(partition) => at(map, partition),
            None => "known when it is executed".into(),
        };
        return Ok(json!({
            "Node Type": format!("Point Read of {} at the row's primary", source.table.name),
            "Key": names.join(" AND "),
            "Partition": place,
        }));
    }
    let mut plans: Vec<Tree> = bound.sources.iter().map(|source| scan(map, source, bound.counts)).collect();
    if bound.counts && plans.first().is_some_and(|plan| plan["Exact"] == Tree::Bool(true)) {
        return Ok(json!({ "Node Type": "Sum of what the partitions have counted", "Plans": plans }));
    }
    plans.iter_mut().for_each(|plan| plan["Node Type"] = json!(plan["Scan"].as_str().unwrap_or_default()));
    plans.iter_mut().filter_map(Tree::as_object_mut).for_each(|plan| drop(plan.remove("Scan")));
    for system in &bound.systems {
        let table = &system::all()[*system];
        plans.push(
            json!({ "Node Type": format!("Rows of {}.{}, made on this node", table.schema, table.name) }),
        );
    }
    let steps = engine.describe(&bound.text)?;
    Ok(json!({
        "Node Type": "Evaluation on this node",
        "Engine": steps.iter().map(|step| readable(step, bound)).collect::<Vec<_>>(),
        "Plans": plans,
    }))
}

/// A step of the engine with the statement's names instead of the engine's.
fn readable(step: &str, bound: &Bound) -> String {
    let word = |word: &str| match bound.names.iter().find(|(alias, _)| alias == word) {
        Some((_, name)) if !name.is_empty() => name.clone(),
        _ => match word.strip_prefix('m').and_then(|at| at.parse::<usize>().ok()) {
            Some(at) if at < bound.sources.len() => bound.sources[at].table.name.clone(),
            Some(at) if at >= system::FIRST => {
                system::all().get(at - system::FIRST).map_or(word.into(), |table| table.name.into())
            }
            _ => word.to_string(),
        },
    };
    let step = step.split(" VIRTUAL TABLE").next().unwrap_or(step);
    step.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn scan(map: &Map, source: &Source, counts: bool) -> Tree {
    let table = Table::new(source.table.clone());
    let all: Vec<PartitionId> = table.partitions().collect();
    let values: Option<Vec<Value>> =
        source.conditions.iter().map(|condition| constant(&condition.slot)).collect();
    let part = values.as_ref().map(|values| range(&table, source, values));
    let (partitions, exact, empty) = match &part {
        None => (None, false, false),
        Some(None) => (Some(Vec::new()), true, true),
        Some(Some(part)) => (Some(part.partitions.clone()), part.exact, false),
    };
    let words = match &partitions {
        None => format!("of {}, known when it is executed", all.len()),
        Some(_) if empty => "none: no row meets the conditions".into(),
        Some(some) => format!("{} of {}: {}", some.len(), all.len(), places(map, some)),
    };
    let by = part.iter().flatten().find_map(|part| part.by.as_ref()).map(|entries| entries.name.clone());
    let scan = match &by {
        Some(index) => format!("Scan of {} by index {index}", source.table.name),
        None => format!("Scan of {}", source.table.name),
    };
    let verb = if counts { "Count in the partitions of" } else { "Scan of" };
    let mut tree = json!({
        "Node Type": format!("{verb} {}", source.table.name),
        "Scan": scan,
        "Partitions": words,
    });
    let conditions: Vec<String> =
        source.conditions.iter().map(|condition| in_words(condition, source)).collect();
    if !conditions.is_empty() {
        tree[if by.is_some() { "Index Range" } else { "Key Range" }] = json!(conditions.join(" AND "));
    }
    if !source.columns.is_empty() {
        let columns = source.table.schema.columns();
        let names =
            source.columns.iter().filter_map(|at| columns.get(*at)).map(|column| column.name.as_str());
        tree["Columns"] = json!(names.collect::<Vec<_>>().join(", "));
    }
    tree["Exact"] = json!(exact);
    tree
}

fn places(map: &Map, partitions: &[PartitionId]) -> String {
    let mut named: Vec<String> = partitions.iter().take(NAMED).map(|partition| at(map, *partition)).collect();
    if partitions.len() > NAMED {
        named.push("...".into());
    }
    named.join(", ")
}

/// A partition and its primary's node.
fn at(map: &Map, partition: PartitionId) -> String {
    match map.primary(partition) {
        Some(node) => format!("{} at {node}", partition.0),
        None => format!("{} without a primary", partition.0),
    }
}

fn constant(slot: &Slot) -> Option<Value> {
    match slot {
        Slot::Const(value) => Some(value.clone()),
        _ => None,
    }
}

fn shown(slot: &Slot) -> String {
    match slot {
        Slot::Const(Value::Text(text)) => format!("'{}'", text.replace('\'', "''")),
        Slot::Const(value) => pg::text::to_text(value),
        Slot::Param(number) => format!("${}", number + 1),
        Slot::Now => "now()".into(),
        Slot::Today => "current_date".into(),
        Slot::Random => "gen_random_uuid()".into(),
    }
}

fn in_words(condition: &Condition, source: &Source) -> String {
    let sign = condition.comparison.sign();
    let columns = source.table.schema.columns();
    let name = columns.get(condition.column).map_or("?", |column| column.name.as_str());
    format!("{name} {sign} {}", shown(&condition.slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;

    #[test]
    fn options_are_read_and_what_would_run_the_query_is_refused() {
        let asked = |text: &str| {
            let parsed = Parser::parse_sql(&PostgreSqlDialect {}, text).expect("reads");
            asked(&parsed[0]).map(|found| found.map(|(_, json)| json)).map_err(|failure| failure.code)
        };
        assert_eq!(asked("EXPLAIN SELECT 1"), Ok(Some(false)));
        assert_eq!(asked("EXPLAIN (FORMAT JSON) SELECT 1"), Ok(Some(true)));
        assert_eq!(asked("EXPLAIN (COSTS off, VERBOSE) SELECT 1"), Ok(Some(false)));
        assert_eq!(asked("EXPLAIN ANALYZE SELECT 1"), Err("0A000"));
        assert_eq!(asked("EXPLAIN (ANALYZE) SELECT 1"), Err("0A000"));
        assert_eq!(asked("SELECT 1"), Ok(None));
    }
}

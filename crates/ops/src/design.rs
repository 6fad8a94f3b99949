//! A new table from a command's options: columns, key, placement.

use crate::failure::Failure;
use types::data::{Column, Schema, parse_columns};
use types::policy::Standby;
use types::{EngineKind, Holds, LogKind, NodeId, Scheme, Ship};
use wire::control::CreateTable;

/// Everything about a new table but its name and columns.
#[derive(Clone, PartialEq, Debug)]
pub struct Choices {
    /// How many leading columns of the key choose the partition; `None`: all.
    pub partition_by: Option<usize>,
    /// Whether rows may have fields that are not columns.
    pub open: bool,
    /// Partitions.
    pub partitions: u32,
    /// Copies; `None`: 3, or as many as there are nodes.
    pub factor: Option<u8>,
    /// The policy's name.
    pub policy: String,
    /// Fewest copies with which commits go on; `None`: the policy's.
    pub min_in_sync: Option<u8>,
    /// Go on below that.
    pub available: bool,
    /// Engine.
    pub engine: EngineKind,
    /// Log.
    pub log: LogKind,
    /// Nodes per partition; empty: by the scheme.
    pub placement: Vec<Vec<NodeId>>,
    /// How copies are placed where nothing explicit is said.
    pub scheme: Scheme,
    /// What backups do; `None`: the default, hot.
    pub standby: Option<Standby>,
    /// At most so many milliseconds of log are to be replayed in a failover.
    pub failover_target_ms: Option<u64>,
}

impl Choices {
    /// The request that creates the table.
    pub fn table(&self, name: &str, schema: Schema) -> Result<CreateTable, Failure> {
        if !self.placement.is_empty() && self.placement.len() != self.partitions as usize {
            return Err(Failure::usage(format!(
                "the placement has {} partitions, but `{name}` is to have {}",
                self.placement.len(),
                self.partitions
            )));
        }
        Ok(CreateTable {
            name: name.to_string(),
            schema,
            engine: self.engine,
            log: self.log,
            policy: self.policy.clone(),
            factor: self.factor,
            min_in_sync: self.min_in_sync,
            available: self.available,
            partitions: self.partitions,
            placement: self.placement.clone(),
            scheme: self.scheme,
            standby: self.standby,
            failover_target_ms: self.failover_target_ms,
            holds: Holds::Table,
            global: false,
            ship: Ship::Effects,
            ranges: types::Ranges::default(),
        })
    }

    /// The request that creates a database.
    pub fn database(&self, name: &str) -> Result<CreateTable, Failure> {
        let table = self.table(name, types::database::catalog_schema())?;
        Ok(CreateTable { holds: Holds::Database, ..table })
    }

    /// A schema from `id:int,name:text`. Columns in the key are not null, and so is one whose type ends in
    /// `!`.
    pub fn schema(&self, columns: &str, key: &[String]) -> Result<Schema, Failure> {
        let strict: Vec<bool> = columns.split(',').map(|item| item.trim_end().ends_with('!')).collect();
        let plain: Vec<&str> = columns.split(',').map(|item| item.trim_end().trim_end_matches('!')).collect();
        let parsed = parse_columns(&plain.join(",")).map_err(|error| Failure::usage(error.to_string()))?;
        let column = |((name, column_type), strict): ((String, _), bool)| {
            let column = Column::new(name, column_type);
            if strict || key.contains(&column.name) { column.not_null() } else { column }
        };
        let columns = parsed.into_iter().zip(strict).map(column).collect();
        let schema = Schema::new(columns, key, self.partition_by.unwrap_or(key.len()), self.open);
        schema.map_err(|error| Failure::usage(error.to_string()))
    }
}

/// Reads a placement: a JSON list with a list of node ids per partition, or a line of node ids per partition.
/// The first node of a partition leads when it can.
pub fn parse_placement(text: &str) -> Result<Vec<Vec<NodeId>>, Failure> {
    let plan: Vec<Vec<u32>> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|error| {
            Failure::usage(format!("the placement is not a list of lists of node ids: {error}"))
        })?
    } else {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
        let lines = lines.filter(|line| !line.is_empty()).map(|line| {
            let words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
            let ids = words.map(|word| {
                let digits = word.strip_prefix('n').unwrap_or(word);
                digits.parse().map_err(|_| {
                    Failure::usage(format!("`{word}` in the placement is not a node id (`{line}`)"))
                })
            });
            ids.collect()
        });
        lines.collect::<Result<_, _>>()?
    };
    if plan.is_empty() || plan.iter().any(Vec::is_empty) {
        return Err(Failure::usage("the placement names no nodes for some partition"));
    }
    if let Some(copies) = plan.iter().find(|copies| copies.len() != plan[0].len()) {
        return Err(Failure::usage(format!(
            "the placement gives one partition {} copies and another {}",
            plan[0].len(),
            copies.len()
        )));
    }
    Ok(plan.into_iter().map(|copies| copies.into_iter().map(NodeId).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Choices {
        Choices {
            partition_by: None,
            open: false,
            partitions: 2,
            factor: None,
            policy: "durable".into(),
            min_in_sync: None,
            available: false,
            engine: EngineKind::Lsm,
            log: LogKind::Disk,
            placement: Vec::new(),
            scheme: Scheme::default(),
            standby: None,
            failover_target_ms: None,
        }
    }

    #[test]
    fn placements_are_lines_or_json() {
        let expected = vec![vec![NodeId(1), NodeId(2)], vec![NodeId(2), NodeId(3)]];
        for text in ["1 2\n2 3\n", "# two partitions\nn1,n2\n\nn2, n3 # last", "[[1,2],[2,3]]"] {
            assert_eq!(parse_placement(text).as_ref(), Ok(&expected), "{text}");
        }
        for text in ["", "1 x", "1 2\n3", "[1,2]", "[[]]"] {
            assert_eq!(parse_placement(text).expect_err("bad").status, 2, "{text}");
        }
        let wrong = Choices { partitions: 3, placement: expected, ..choices() };
        let schema = wrong.schema("id:int", &["id".into()]).expect("valid");
        assert_eq!(wrong.table("t", schema).expect_err("2 of 3").status, 2);
    }

    #[test]
    fn key_columns_are_not_null_and_a_mark_makes_others_so() {
        let schema = choices().schema("id:int, name:text!, note:text", &["id".into()]).expect("valid");
        let nullable: Vec<bool> = schema.columns().iter().map(|column| column.nullable).collect();
        assert_eq!(nullable, [false, false, true]);
        assert!(choices().schema("id:int", &["no".into()]).is_err());
        assert!(choices().schema("id:number", &["id".into()]).is_err());
    }
}

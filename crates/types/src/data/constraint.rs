//! Constraints of a table of a database: what its rows must be, beside each other and beside rows of other
//! tables.
//!
//! They are part of the table's columns ([`Schema`]), so whoever names a version of these names them, too.
//! Each has a number that no other constraint of the cluster ever had. Those that need one have an index:
//! rows of the partition under the table's id and that number ([`crate::KeySpace::index_range`]).

use super::schema::Schema;
use crate::ids::TableId;
use crate::index::MAX_INDEX_COLUMNS;
use serde::{Deserialize, Serialize};

/// The most constraints of a table, those among them that are being removed.
pub const MAX_CONSTRAINTS: usize = 64;
/// The longest text of a check, in bytes.
pub const MAX_CHECK_BYTES: usize = 4 << 10;

/// One constraint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Constraint {
    /// Never used again in the cluster.
    pub number: u32,
    /// Its name, unique among those of its table that are not being removed.
    pub name: String,
    /// What it demands.
    pub demand: Demand,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Standing::is_valid")]
    pub standing: Standing,
    /// Why it failed, in words; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Where transactions are global: rows that were there before it may be against it, since nobody has
    /// looked at those of all partitions yet. Its index may have all of them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unchecked: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(it: &bool) -> bool {
    !*it
}

/// What a constraint demands. Columns are indexes into the columns of their table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// This condition in SQL is not false. Only SQL looks at it.
    Check(String),
    /// No two rows have the same values here. Null is like nothing, not even like null.
    Unique(Vec<usize>),
    /// A row of another table has these values, unless one of them is null.
    Foreign(Reference),
    /// Nothing: rows are found by these columns.
    Index(Vec<usize>),
}

/// A foreign key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reference {
    /// The columns.
    pub columns: Vec<usize>,
    /// The table that has the rows.
    pub parent: TableId,
    /// Its columns, one for each: all of its key, or all of a unique constraint.
    pub parent_columns: Vec<usize>,
    /// What becomes of a row when the other one is removed.
    #[serde(default, skip_serializing_if = "Action::is_none")]
    pub on_delete: Action,
    /// What becomes of a row when the other one gets other values.
    #[serde(default, skip_serializing_if = "Action::is_none")]
    pub on_update: Action,
    /// As it was declared: `None`: not deferrable; `Some(true)`: initially deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred: Option<bool>,
}

/// What becomes of rows that refer to one that goes. SQL carries it out; a partition refuses what leaves one
/// behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing: it must not go.
    #[default]
    None,
    /// The same, also if another one comes in its place at once.
    Restrict,
    /// They go, too.
    Cascade,
    /// They refer to none.
    SetNull,
    /// They have what their columns have by default.
    SetDefault,
}

impl Action {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_none(&self) -> bool {
        *self == Action::None
    }

    /// True if it is seen to with the statement, also where COMMIT alone looks at the constraint.
    pub fn is_at_once(self) -> bool {
        self != Action::None
    }

    /// True if it changes the rows that refer.
    pub fn changes_rows(self) -> bool {
        matches!(self, Action::Cascade | Action::SetNull | Action::SetDefault)
    }
}

/// How far a constraint is. In each state but the last whatever is written keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Every row keeps it.
    #[default]
    Valid,
    /// Rows that were there before it are being looked at.
    Building,
    /// A row that was there before it does not keep it.
    Failed,
    /// It demands nothing any more, and rows of its index are being removed.
    Dropping,
}

impl Standing {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_valid(&self) -> bool {
        *self == Standing::Valid
    }
}

impl Constraint {
    /// One that every row keeps.
    pub fn new(number: u32, name: &str, demand: Demand) -> Constraint {
        let (standing, note) = (Standing::Valid, String::new());
        Constraint { number, name: name.into(), demand, standing, note, unchecked: false }
    }

    /// The same in another state.
    pub fn turned(self, standing: Standing) -> Constraint {
        Constraint { standing, ..self }
    }

    /// True if every row keeps it.
    pub fn is_kept(&self) -> bool {
        self.standing == Standing::Valid && !self.unchecked
    }

    /// True if it demands something of what is written.
    pub fn is_enforced(&self) -> bool {
        self.standing != Standing::Dropping
    }

    /// True if it forbids a partition nothing: rows are found by it, or SQL alone looks at it.
    pub fn forbids_nothing(&self) -> bool {
        matches!(self.demand, Demand::Index(_) | Demand::Check(_))
    }

    /// The columns of its index; `None`: it has none.
    pub fn indexed(&self) -> Option<&[usize]> {
        match &self.demand {
            Demand::Check(_) => None,
            Demand::Unique(columns) | Demand::Index(columns) => Some(columns),
            Demand::Foreign(reference) => Some(&reference.columns),
        }
    }

    /// The foreign key that it is.
    pub fn reference(&self) -> Option<&Reference> {
        match &self.demand {
            Demand::Foreign(reference) => Some(reference),
            Demand::Check(_) | Demand::Unique(_) | Demand::Index(_) => None,
        }
    }

    /// The columns that are unique by it.
    pub fn unique(&self) -> Option<&[usize]> {
        match &self.demand {
            Demand::Unique(columns) => Some(columns),
            Demand::Check(_) | Demand::Foreign(_) | Demand::Index(_) => None,
        }
    }

    /// True if it demands nothing, and is there for finding rows.
    pub fn is_index(&self) -> bool {
        matches!(self.demand, Demand::Index(_))
    }

    /// The columns of the index that has its name: of what is unique, or of an index by itself.
    pub fn named_index(&self) -> Option<&[usize]> {
        match &self.demand {
            Demand::Unique(columns) | Demand::Index(columns) => Some(columns),
            Demand::Check(_) | Demand::Foreign(_) => None,
        }
    }

    /// What is wrong with it among these columns, as a sentence.
    pub(super) fn fault(&self, width: usize, may_be_key: impl Fn(usize) -> bool) -> Option<String> {
        let good = (1..=63).contains(&self.name.len()) && !self.name.contains(char::is_control);
        if !good || self.number == 0 {
            return Some("a constraint has a number, and a name of 1 to 63 bytes, all printable".into());
        }
        if let Demand::Check(text) = &self.demand {
            let long = text.len() > MAX_CHECK_BYTES;
            return long.then(|| format!("a check has at most {MAX_CHECK_BYTES} bytes"));
        }
        let columns = self.indexed().unwrap_or_default();
        let several = columns.iter().enumerate().any(|(place, at)| columns[..place].contains(at));
        if columns.is_empty() || columns.len() > MAX_INDEX_COLUMNS || several {
            return Some(format!("it is of 1 to {MAX_INDEX_COLUMNS} columns, none of them twice"));
        }
        if columns.iter().any(|at| *at >= width || !may_be_key(*at)) {
            return Some("it is of columns that there are, and not of type json or interval".into());
        }
        match self.reference() {
            Some(reference) if reference.parent_columns.len() != columns.len() => {
                Some("as many columns refer as are referred to".into())
            }
            _ => None,
        }
    }
}

/// How a row of a table is found by some of its columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// By its key: the places of the key's columns among those.
    Key(Vec<usize>),
    /// By a constraint with this number: the places of its columns among those.
    Unique(u32, Vec<usize>),
}

impl Schema {
    /// By what a row of the table is found that has given values in these columns; `None`: several rows may
    /// have them.
    pub fn target(&self, columns: &[usize]) -> Option<Target> {
        let places = |of: &[usize]| -> Option<Vec<usize>> {
            let place = |at: &usize| columns.iter().position(|column| column == at);
            (of.len() == columns.len()).then(|| of.iter().map(place).collect()).flatten()
        };
        if let Some(places) = places(self.key()) {
            return Some(Target::Key(places));
        }
        let kept = self.constraints().iter().filter(|constraint| constraint.is_kept());
        kept.filter_map(|constraint| Some((constraint.number, constraint.unique()?)))
            .find_map(|(number, of)| Some(Target::Unique(number, places(of)?)))
    }

    /// The constraint with this name, of those that demand something.
    pub fn constraint_named(&self, name: &str) -> Option<&Constraint> {
        self.constraints().iter().find(|constraint| constraint.is_enforced() && constraint.name == name)
    }
}

/// What a table's constraints are behind a change of its columns: `wanted` are those that the change names,
/// `before` those that there were. How far a constraint is that was there before says the state; what it is
/// called, and whether its rows were looked at, says the change. One that is new is built, and one that is
/// named no more is removed. Checks are whoever's who looks at them.
pub fn settled(before: &[Constraint], wanted: &[Constraint]) -> Vec<Constraint> {
    let known = |number: u32| before.iter().find(|constraint| constraint.number == number);
    let settle = |constraint: &Constraint| match (known(constraint.number), constraint.indexed()) {
        (_, None) => constraint.clone(),
        (Some(before), Some(_)) if before.is_enforced() || !constraint.is_enforced() => {
            Constraint { standing: before.standing, note: before.note.clone(), ..constraint.clone() }
        }
        // It was to go, and is there again: a first partition of a database has lost that it was dropped
        // (PR-172). What is left of its index is built anew.
        (Some(before), Some(_)) => before.clone().turned(Standing::Building),
        (None, Some(_)) => constraint.clone().turned(Standing::Building),
    };
    // One that is removed may be gone meanwhile.
    let there = |one: &&Constraint| one.is_enforced() || known(one.number).is_some();
    let mut all: Vec<Constraint> = wanted.iter().filter(there).map(settle).collect();
    let named = |number: u32| wanted.iter().any(|constraint| constraint.number == number);
    let gone = before.iter().filter(|known| known.indexed().is_some() && !named(known.number));
    all.extend(gone.cloned().map(|constraint| constraint.turned(Standing::Dropping)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Column, ColumnType, SchemaError, SchemaParts};

    fn schema(constraints: Vec<Constraint>) -> Result<Schema, SchemaError> {
        let columns = vec![
            Column::new("id", ColumnType::Int).not_null(),
            Column::new("part", ColumnType::Int).not_null(),
            Column::new("mail", ColumnType::Text),
            Column::new("tree", ColumnType::Json),
        ];
        Schema::from_parts(SchemaParts {
            columns,
            key: vec![1, 0],
            partition_by: 1,
            open: false,
            version: 1,
            constraints,
            kind: None,
            replicated: false,
        })
    }

    fn unique(number: u32, name: &str, columns: &[usize]) -> Constraint {
        Constraint::new(number, name, Demand::Unique(columns.to_vec()))
    }

    fn foreign(columns: &[usize], parent_columns: &[usize]) -> Constraint {
        let reference = Reference {
            columns: columns.to_vec(),
            parent: TableId(9),
            parent_columns: parent_columns.to_vec(),
            on_delete: Action::Cascade,
            on_update: Action::None,
            deferred: Some(false),
        };
        Constraint::new(7, "f", Demand::Foreign(reference))
    }

    #[test]
    fn constraints_read_back_and_a_table_without_any_is_written_as_before() {
        let all = vec![
            unique(5, "u", &[2]),
            foreign(&[0, 2], &[1, 3]),
            Constraint::new(8, "c", Demand::Check("id > 0".into())).turned(Standing::Building),
            Constraint::new(9, "i", Demand::Index(vec![2, 0])),
        ];
        let with = schema(all).expect("valid");
        let text = serde_json::to_string(&with).expect("serialises");
        assert_eq!(serde_json::from_str::<Schema>(&text).expect("reads"), with, "{text}");
        let without = serde_json::to_string(&schema(Vec::new()).expect("valid")).expect("serialises");
        assert!(!without.contains("constraints"), "{without}");
    }

    #[test]
    fn what_cannot_be_a_constraint_is_refused() {
        let twice = unique(5, "u", &[2]);
        for wrong in [
            vec![unique(0, "u", &[2])],
            vec![unique(5, "", &[2])],
            vec![unique(5, "u", &[])],
            vec![unique(5, "u", &[2, 2])],
            vec![unique(5, "u", &[4])],
            vec![unique(5, "u", &[3])],
            vec![foreign(&[0, 2], &[1])],
            vec![twice.clone(), unique(6, "u", &[0])],
            vec![twice.clone(), unique(5, "v", &[0])],
            vec![Constraint::new(5, "c", Demand::Check("x".repeat(MAX_CHECK_BYTES + 1)))],
        ] {
            assert!(schema(wrong.clone()).is_err(), "{wrong:?}");
        }
        let gone = twice.clone().turned(Standing::Dropping);
        schema(vec![gone, unique(6, "u", &[0])]).expect("the name is free");
    }

    #[test]
    fn a_row_is_found_by_the_whole_key_or_by_what_is_unique() {
        let with = schema(vec![unique(5, "u", &[2, 0])]).expect("valid");
        assert_eq!(with.target(&[0, 1]), Some(Target::Key(vec![1, 0])));
        assert_eq!(with.target(&[1, 0]), Some(Target::Key(vec![0, 1])));
        assert_eq!(with.target(&[0, 2]), Some(Target::Unique(5, vec![1, 0])));
        assert_eq!((with.target(&[0]), with.target(&[2])), (None, None));
        let unchecked = Constraint { unchecked: true, ..unique(5, "u", &[2]) };
        assert_eq!(schema(vec![unchecked]).expect("valid").target(&[2]), None, "two rows may have it");
        for standing in [Standing::Building, Standing::Failed, Standing::Dropping] {
            let other = schema(vec![unique(5, "u", &[2]).turned(standing)]).expect("valid");
            assert_eq!(other.target(&[2]), None);
        }
    }

    #[test]
    fn how_far_a_constraint_is_says_the_state_and_not_whoever_changes_the_table() {
        let check = Constraint::new(8, "c", Demand::Check("id > 0".into()));
        let before = [unique(5, "u", &[2]).turned(Standing::Failed), unique(6, "v", &[0]), check.clone()];
        let wanted = [
            Constraint { unchecked: true, ..unique(5, "renamed", &[2]) },
            unique(7, "w", &[0]),
            check.clone().turned(Standing::Building),
        ];
        let after = settled(&before, &wanted);
        let standings: Vec<_> = after.iter().map(|one| (one.number, one.standing)).collect();
        assert_eq!(
            standings,
            [
                (5, Standing::Failed),
                (7, Standing::Building),
                (8, Standing::Building),
                (6, Standing::Dropping)
            ]
        );
        assert!(after[0].name == "renamed" && after[0].unchecked, "what else it says is the change's");
        assert!(settled(&[check], &[]).is_empty(), "a check has no rows");
        let removed = unique(9, "x", &[0]).turned(Standing::Dropping);
        assert!(settled(&[], &[removed]).is_empty(), "it does not come back");
        let again = settled(&after, &[]);
        assert!(again.iter().all(|one| one.standing == Standing::Dropping) && again.len() == 3);
    }
}

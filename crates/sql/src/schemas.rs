//! CREATE SCHEMA and DROP SCHEMA. A schema is a name in the catalog of a database that ends with a point; the
//! names of what is in it begin with that. What is in `public` has no such beginning.

use crate::altering;
use crate::bind::{folded, parts};
use crate::catalog::{Catalog, SCHEMAS};
use pg::Failure;
use sqlparser::ast::{ObjectType, Owner, SchemaName, Statement};

/// A statement on schemas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaStatement {
    /// Makes one.
    Create {
        /// Its name.
        name: String,
        /// One of this name may be there, and stays.
        if_not_exists: bool,
    },
    /// Drops some.
    Drop {
        /// Their names.
        names: Vec<String>,
        /// One that there is not is skipped.
        if_exists: bool,
        /// With what is in them.
        cascade: bool,
    },
}

/// A statement on schemas; `None`: it says something that is not known here.
pub fn read(catalog: &Catalog, statement: &Statement) -> Result<Option<SchemaStatement>, Failure> {
    let found = match statement {
        Statement::CreateSchema {
            schema_name,
            if_not_exists,
            with: None,
            options: None,
            default_collate_spec: None,
            clone: None,
        } => {
            let name = match schema_name {
                SchemaName::Simple(name) => parts(name)?,
                SchemaName::UnnamedAuthorization(role) => {
                    altering::owner(&Owner::Ident(role.clone()))?;
                    vec![folded(role)]
                }
                SchemaName::NamedAuthorization(name, role) => {
                    altering::owner(&Owner::Ident(role.clone()))?;
                    parts(name)?
                }
            };
            let [name] = name.as_slice() else { return Ok(None) };
            check(name)?;
            SchemaStatement::Create { name: name.clone(), if_not_exists: *if_not_exists }
        }
        Statement::Drop { object_type: ObjectType::Schema, names, if_exists, cascade, .. } => {
            let names = names.iter().map(|name| Ok(parts(name)?.join("."))).collect::<Result<Vec<_>, _>>()?;
            if let Some(name) = names.iter().find(|name| SCHEMAS.contains(&name.as_str())) {
                return Err(Failure::unsupported(format!("DROP SCHEMA {name}"), "it is always there"));
            }
            SchemaStatement::Drop { names, if_exists: *if_exists, cascade: *cascade }
        }
        _ => return Ok(None),
    };
    if !catalog.is_of_database() {
        return Err(Failure::unsupported("a schema outside of databases", "make it in a database"));
    }
    Ok(Some(found))
}

/// Refuses what no schema is called.
fn check(name: &str) -> Result<(), Failure> {
    if name.starts_with("pg_") {
        return Err(Failure::new("42939", format!("unacceptable schema name \"{name}\""))
            .detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    match name.contains('.') {
        true => Err(Failure::unsupported(format!("the name \"{name}\""), "leave the point out")),
        false => Ok(()),
    }
}

impl SchemaStatement {
    /// What the client is told is done.
    pub fn tag(&self) -> &'static str {
        match self {
            SchemaStatement::Create { .. } => "CREATE SCHEMA",
            SchemaStatement::Drop { .. } => "DROP SCHEMA",
        }
    }
}

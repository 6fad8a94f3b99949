//! A procedure as its catalog row defines it, checked against the tables that are there.

use crate::builtin::{Builtin, BuiltinCall};
use crate::limits::Limits;
use crate::running::{Inner, Running};
use crate::shape::Shape;
use crate::wasm::{Program, WasmRuntime};
use crate::work::Work;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::data::kind::Language;
use types::data::{Column, Signature};
use types::procedure::{Failure, FailureKind};
use types::{CatalogTable, TableId};

/// What the primary gives a call beside its arguments. Everybody who makes the same call with the same of it
/// comes to the same.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Given {
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
    /// Something to draw numbers from.
    pub seed: u64,
    /// The policy in force, by its name or as it is written.
    pub policy: String,
    /// How many copies the partition has that count.
    pub copies: u8,
    /// Of a database of several partitions: what the encoded keys of all rows that the call may touch begin
    /// with. Empty: it has one partition.
    pub route: Bytes,
}

/// Makes procedures ready to be called: the interpreter, and what is compiled in. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    wasm: WasmRuntime,
    builtins: Arc<BTreeMap<String, Arc<dyn Builtin>>>,
}

impl Default for Runtime {
    fn default() -> Runtime {
        Runtime::with(Vec::new())
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("builtins", &self.builtins.keys()).finish_non_exhaustive()
    }
}

impl Runtime {
    /// With these programs compiled in beside those that every node has, each under its name.
    pub fn with(builtins: Vec<(String, Arc<dyn Builtin>)>) -> Runtime {
        let all = crate::builtin::bundled().into_iter().chain(builtins);
        Runtime { wasm: WasmRuntime::new(), builtins: Arc::new(all.collect()) }
    }

    /// The procedure that a definition says. `find` knows the tables of the database by their names. The
    /// error is a sentence: why it can be none.
    pub fn prepare(
        &self,
        table: &CatalogTable,
        find: &dyn Fn(&str) -> Option<Shape>,
    ) -> Result<Prepared, String> {
        let Some((parameters, procedure)) = table.schema.procedure() else {
            return Err(format!("`{}` is not a procedure", table.name));
        };
        let signature = |columns: &[Column]| Signature::new(columns).map_err(|error| error.to_string());
        let arguments = signature(parameters)?;
        let results = (!procedure.results.is_empty()).then(|| signature(&procedure.results)).transpose()?;
        let (code, shapes) = match procedure.language {
            Language::Wasm => {
                let (program, shapes) = self.wasm.program(procedure, parameters, find)?;
                (Code::Wasm(program), shapes)
            }
            Language::Builtin => {
                let name = procedure.source.trim();
                let found =
                    self.builtins.get(name).ok_or_else(|| format!("no program `{name}` is compiled in"))?;
                let shapes = found.shapes(parameters, &procedure.results, find)?;
                (Code::Builtin(found.clone()), shapes)
            }
        };
        Ok(Prepared {
            id: table.id,
            version: table.schema.version(),
            arguments,
            results,
            read_only: procedure.read_only,
            shapes: shapes.into(),
            code,
        })
    }
}

#[derive(Clone)]
enum Code {
    Wasm(Program),
    Builtin(Arc<dyn Builtin>),
}

/// A procedure that can be called.
#[derive(Clone)]
pub struct Prepared {
    id: TableId,
    version: u32,
    arguments: Signature,
    results: Option<Signature>,
    read_only: bool,
    shapes: Arc<[Shape]>,
    code: Code,
}

impl Prepared {
    /// Its id in the catalog, and the version of its definition.
    pub fn identity(&self) -> (TableId, u32) {
        (self.id, self.version)
    }

    /// True if it changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Begins a call with these arguments, as the parameters' [`Signature`] encodes them. The error: they are
    /// others than it takes.
    pub fn begin(&self, arguments: &[u8], given: Given, limits: Limits) -> Result<Running, Failure> {
        let refused =
            |why: &dyn std::fmt::Display| Failure::new(FailureKind::Arguments, format!("arguments: {why}"));
        let arguments = self.arguments.decode(arguments).map_err(|error| refused(&error))?;
        let results = (self.results.clone(), self.read_only);
        let work = Work::new(self.shapes.clone(), results, given, limits.clone());
        let inner = match &self.code {
            Code::Wasm(program) => Inner::Wasm(Box::new(program.begin(work, arguments)?)),
            Code::Builtin(builtin) => {
                Inner::Builtin(Box::new(BuiltinCall::new(builtin.clone(), work, arguments)))
            }
        };
        Ok(Running::new(inner, &limits))
    }
}

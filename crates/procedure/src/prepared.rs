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
use xxhash_rust::xxh3::xxh3_64;

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
    code: u64,
}

/// The interpreter, as `Cargo.lock` has it: a test looks.
const INTERPRETER: &str = "wasmi 2.0.0";
/// Another number wherever a call comes to something else than before, or counts its steps otherwise: host
/// functions, values, the order of what is written, rows of indexes and results.
const EDITION: u32 = 1;

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
        let builtins: BTreeMap<String, Arc<dyn Builtin>> = all.collect();
        let editions = builtins.iter().map(|(name, builtin)| format!("{name} {}", builtin.edition()));
        let parts = [INTERPRETER.to_string(), EDITION.to_string()].into_iter().chain(editions);
        let code = xxh3_64(parts.collect::<Vec<_>>().join("\n").as_bytes()).max(1);
        Runtime { wasm: WasmRuntime::new(), builtins: Arc::new(builtins), code }
    }

    /// Says with what code calls are made here: the interpreter, what programs are given, and what is
    /// compiled in. Where two are equal, the same call comes to the same. Never 0.
    pub fn code(&self) -> u64 {
        self.code
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

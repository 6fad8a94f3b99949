//! Programs in WebAssembly. A module exports `run`, which takes and gives nothing, and `memory`, if it has
//! one. What it may import is in `imports`. The interpreter counts its steps, refuses floats and start
//! functions, and stops where a host function needs rows; then the call goes on when they are there.

mod host;
mod imports;

use crate::rows::Found;
use crate::running::{Step, too_long};
use crate::shape::Shape;
use crate::work::Work;
use host::{HostState, Wanted};
use types::data::kind::Procedure;
use types::data::{Column, Value};
use types::procedure::{Failure, FailureKind};
use wasmi::{
    CompilationMode, Config, Engine, Error, Func, Linker, Module, ResumableCall, ResumableCallHostTrap,
    ResumableCallOutOfFuel, Store, StoreLimitsBuilder, TrapCode, Val,
};

/// The export that is called.
const RUN: &str = "run";
/// Calls within a program are nested so deep at most.
const MAX_DEPTH: usize = 512;
/// The most entries of a program's tables of functions.
const MAX_TABLE_ELEMENTS: usize = 10_000;

/// The interpreter.
#[derive(Clone)]
pub(crate) struct WasmRuntime {
    engine: Engine,
}

impl WasmRuntime {
    pub fn new() -> WasmRuntime {
        let mut config = Config::default();
        config.consume_fuel(true).floats(false).allow_start_fn(false).set_max_recursion_depth(MAX_DEPTH);
        config.wasm_multi_memory(false).ignore_custom_sections(true);
        // Translated when it is first called, a function would take its steps from that call, and none later.
        config.compilation_mode(CompilationMode::Eager);
        WasmRuntime { engine: Engine::new(&config) }
    }

    /// A program, and the tables that it names. The error is a sentence.
    pub fn program(
        &self,
        procedure: &Procedure,
        parameters: &[Column],
        find: &dyn Fn(&str) -> Option<Shape>,
    ) -> Result<(Program, Vec<Shape>), String> {
        let bytes = bytes_of(&procedure.source)?;
        let no_module = |error: Error| format!("it is no module that can run here: {}", one_line(&error));
        let module = Module::new(&self.engine, &bytes[..]).map_err(no_module)?;
        let (linker, shapes) = imports::link(&self.engine, &module, (parameters, procedure.read_only), find)?;
        let runs = module.get_export(RUN).and_then(|export| export.func().cloned());
        match runs {
            Some(run) if run.params().is_empty() && run.results().is_empty() => {}
            _ => return Err("it exports no function `run` without parameters and results".into()),
        }
        let program = Program { module, linker };
        program
            .instance(HostState::of_nothing(), crate::Limits::default().memory_bytes)
            .map_err(no_module)?;
        Ok((program, shapes))
    }
}

/// The bytes of a module, from its text or from hexadecimal digits.
fn bytes_of(source: &str) -> Result<Vec<u8>, String> {
    let Some(digits) = source.trim().strip_prefix("\\x") else {
        return wat::parse_str(source)
            .map_err(|error| format!("its text cannot be read: {}", one_line(&error)));
    };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| "behind `\\x` there are hexadecimal digits, two for each byte".into())
}

fn one_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A checked program.
#[derive(Clone)]
pub(crate) struct Program {
    module: Module,
    linker: Linker<HostState>,
}

impl Program {
    fn instance(&self, mut state: HostState, memory_bytes: usize) -> Result<(Store<HostState>, Func), Error> {
        let limits = StoreLimitsBuilder::new().memory_size(memory_bytes).memories(1).instances(1);
        state.limits = limits.table_elements(MAX_TABLE_ELEMENTS).trap_on_grow_failure(true).build();
        let mut store = Store::new(self.module.engine(), state);
        store.limiter(|state| &mut state.limits);
        // Data segments are copied at the beginning.
        store.set_fuel(u64::from(u32::MAX))?;
        let instance = self.linker.instantiate_and_start(&mut store, &self.module)?;
        let run = instance.get_func(&store, RUN).ok_or_else(|| Error::new("it exports no function `run`"))?;
        Ok((store, run))
    }

    pub fn begin(&self, work: Work, arguments: Vec<Value>) -> Result<WasmCall, Failure> {
        let memory_bytes = work.limits.memory_bytes;
        let state = HostState::new(work, arguments);
        let (store, run) = self.instance(state, memory_bytes).map_err(|error| failure_of(&error))?;
        Ok(WasmCall { store, at: Some(At::Start(run)) })
    }
}

/// Where a call goes on.
enum At {
    Start(Func),
    Fuel(ResumableCallOutOfFuel),
    Host(ResumableCallHostTrap),
}

/// A call of such a program.
pub(crate) struct WasmCall {
    store: Store<HostState>,
    /// None: it has ended.
    at: Option<At>,
}

impl WasmCall {
    /// Goes on for so many steps, or as many as it takes to go on at all, `left` at most. Gives how many were
    /// taken.
    pub fn step(&mut self, steps: u64, left: u64, found: Option<Found>) -> (u64, Step) {
        let Some(at) = self.at.take() else { panic!("a call that has ended goes on") };
        let steps = match &at {
            At::Fuel(call) => steps.max(call.required_fuel()),
            _ => steps,
        };
        if steps > left {
            return (left, Step::Ended(Err(too_long())));
        }
        self.store.set_fuel(steps).expect("the interpreter counts");
        let went = match at {
            At::Start(run) => run.call_resumable(&mut self.store, &[], &mut []),
            At::Fuel(call) => call.resume(&mut self.store, &mut []),
            At::Host(call) => match self.answer(found) {
                Ok(answer) => call.resume(&mut self.store, answer.as_slice(), &mut []),
                Err(failure) => return (0, Step::Ended(Err(failure))),
            },
        };
        let used = steps - self.store.get_fuel().expect("the interpreter counts").min(steps);
        (used, self.went(went))
    }

    fn went(&mut self, went: Result<ResumableCall, Error>) -> Step {
        match went {
            Ok(ResumableCall::Finished) => Step::Ended(Ok(self.store.data_mut().work.finish())),
            Ok(ResumableCall::OutOfFuel(call)) => {
                self.at = Some(At::Fuel(call));
                Step::More
            }
            Ok(ResumableCall::HostTrap(call)) => {
                let state = self.store.data_mut();
                if let Some(failure) = state.failed.take() {
                    return Step::Ended(Err(failure));
                }
                let Some(wanted) = &state.wanted else {
                    return Step::Ended(Err(failure_of(call.host_error())));
                };
                let look = wanted.look();
                self.at = Some(At::Host(call));
                Step::Look(look)
            }
            Err(error) => Step::Ended(Err(failure_of(&error))),
        }
    }

    /// What the host function gives that waited for rows.
    fn answer(&mut self, found: Option<Found>) -> Result<[Val; 1], Failure> {
        let state = self.store.data_mut();
        let wanted: Wanted = state.wanted.take().expect("a call waits for what it wants");
        let found = found.expect("a call that waits for rows is given them");
        Ok([Val::I32(state.found(wanted, found)?)])
    }
}

/// What the interpreter says, as a failure.
fn failure_of(error: &Error) -> Failure {
    let text = one_line(error);
    let kind = match error.as_trap_code() {
        Some(TrapCode::StackOverflow) => FailureKind::Depth,
        Some(TrapCode::OutOfFuel) => FailureKind::Steps,
        Some(TrapCode::GrowthOperationLimited | TrapCode::OutOfSystemMemory) => FailureKind::Memory,
        _ => FailureKind::Trap,
    };
    Failure::new(kind, format!("the program was stopped: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_texts_or_digits() {
        let bytes = bytes_of("(module)").expect("a module");
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes_of(&format!("\\x{digits}")), Ok(bytes));
        assert!(bytes_of("\\x0").is_err() && bytes_of("\\xzz").is_err() && bytes_of("(mod").is_err());
    }
}

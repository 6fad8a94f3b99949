//! Commands on procedures, and calls of them.

use crate::args::procedure::{CallArgs, LanguageArg, ProcedureCommand};
use crate::connect::Context;
use client::{Client, ClientError, Database, Procedure};
use ops::Failure;
use ops::calls::Caller;
use serde::Serialize;
use std::path::Path;
use types::data::kind::{Language, Procedure as Definition};
use types::data::{Column, Value, parse_columns};
use types::database::SHARED;

/// A procedure as it is shown.
#[derive(Serialize)]
struct Shown {
    procedure: String,
    language: &'static str,
    parameters: String,
    returns: String,
    read_only: bool,
}

impl Shown {
    fn new(procedure: &Procedure) -> Shown {
        let definition = procedure.definition();
        Shown {
            procedure: procedure.name().into(),
            language: definition.language.name(),
            parameters: texts(procedure.parameters()),
            returns: texts(&definition.results),
            read_only: definition.read_only,
        }
    }
}

fn texts(columns: &[Column]) -> String {
    let text = |column: &Column| format!("{}:{}", column.name, column.column_type);
    columns.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Columns from their text; none of an empty one.
fn columns(text: &str) -> Result<Vec<Column>, Failure> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let read = parse_columns(text).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(read.into_iter().map(|(name, of)| Column::new(name, of)).collect())
}

/// `understudy procedure`.
pub fn run(command: ProcedureCommand, context: &mut Context) -> Result<(), Failure> {
    match command {
        ProcedureCommand::Create { file, database, name, parameters, returns, read_only, language } => {
            let stem = Path::new(&file).file_stem().map(|stem| stem.to_string_lossy().to_string());
            let name = name.or(stem).ok_or_else(|| Failure::usage("the procedure needs a --name"))?;
            let (language, source) = match language {
                LanguageArg::Builtin => (Language::Builtin, file),
                LanguageArg::Wasm => (Language::Wasm, source_of(&file)?),
            };
            let results = columns(&returns)?;
            let definition = Definition { language, source, results, read_only, checked: false };
            create(&database, &name, &columns(&parameters)?, definition, context)
        }
        ProcedureCommand::List { database } => list(&database, context),
        ProcedureCommand::Drop { name, database } => {
            let client = context.client()?;
            let known = client.database(&database)?;
            let procedure = client.procedure(&known, &name)?;
            client.drop_procedure(&procedure)?;
            let object = serde_json::json!({ "dropped": name });
            context.out.either(&object, || format!("procedure {name} is dropped"));
            Ok(())
        }
    }
}

/// The text of a module, from a file that has it or the module itself.
fn source_of(file: &str) -> Result<String, Failure> {
    let bytes =
        std::fs::read(file).map_err(|error| Failure::usage(format!("cannot read {file}: {error}")))?;
    if bytes.starts_with(b"\0asm") {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        return Ok(format!("\\x{digits}"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{file} is neither a module nor the text of one")))
}

fn database_of(client: &mut Client, name: &str) -> Result<Database, ClientError> {
    if name == SHARED { client.shared_database() } else { client.database(name) }
}

fn create(
    database: &str,
    name: &str,
    parameters: &[Column],
    definition: Definition,
    context: &mut Context,
) -> Result<(), Failure> {
    let client = context.client()?;
    let known = database_of(client, database)?;
    let made =
        client.create_procedure(&known, name, parameters, definition).map_err(|error| match error {
            ClientError::NameTaken => {
                Failure::failed(format!("there is a `{name}` in database {database} already"))
            }
            other => other.into(),
        })?;
    let shown = Shown::new(&made);
    context.out.either(&shown, || format!("procedure {name} is in database {database}"));
    Ok(())
}

fn list(database: &str, context: &mut Context) -> Result<(), Failure> {
    let client = context.client()?;
    let known = client.database(database)?;
    let all: Vec<Shown> = client.procedures_of(&known)?.iter().map(Shown::new).collect();
    if context.out.json {
        all.iter().for_each(|one| context.out.object(one));
        return Ok(());
    }
    if all.is_empty() {
        context.out.line("no procedures; `understudy procedure create` makes one");
        return Ok(());
    }
    let changes = |shown: &Shown| if shown.read_only { "read only" } else { "writes" };
    let row = |shown: &Shown| {
        let Shown { procedure, language, parameters, returns, .. } = shown;
        let changes = changes(shown);
        vec![procedure.clone(), parameters.clone(), returns.clone(), changes.into(), (*language).into()]
    };
    context.out.table(&["procedure", "parameters", "returns", "changes", "language"], all.iter().map(row));
    Ok(())
}

/// `understudy call`.
pub fn call(args: &CallArgs, context: &mut Context) -> Result<(), Failure> {
    let client = context.client()?;
    let known = client.database(&args.database)?;
    let procedure = client.procedure(&known, &args.procedure)?;
    let (wanted, given) = (procedure.parameters().len(), args.arguments.len());
    if wanted != given {
        let parameters = texts(procedure.parameters());
        let why = format!("{} takes {wanted} arguments ({parameters}), not {given}", args.procedure);
        return Err(Failure::usage(why));
    }
    let value = |(column, text): (&Column, &String)| match text.as_str() {
        "NULL" => Ok(Value::Null),
        text => column
            .column_type
            .parse(text)
            .map_err(|error| Failure::usage(format!("argument `{}`: {error}", column.name))),
    };
    let arguments =
        procedure.parameters().iter().zip(&args.arguments).map(value).collect::<Result<_, _>>()?;
    let rows = Caller::new(client, &known)?.call(client, &procedure, arguments)?;
    let columns = &procedure.definition().results;
    if context.out.json {
        for row in &rows {
            let named = columns.iter().zip(row).map(|(column, value)| (column.name.clone(), value.to_json()));
            context.out.object(&named.collect::<serde_json::Map<_, _>>());
        }
        return Ok(());
    }
    if columns.is_empty() {
        context.out.line("done");
        return Ok(());
    }
    let text = |value: &Value| if value.is_null() { "NULL".into() } else { value.to_string() };
    let head: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    context.out.table(&head, rows.iter().map(|row| row.iter().map(text).collect()));
    Ok(())
}

//! The `understudy` binary: argument parsing and printing, nothing else. What commands do is in the crates
//! below.

mod args;
mod commands;
mod connect;
mod interrupt;
mod out;
mod progress;
mod terminal;

use clap::Parser;
use clap::error::ErrorKind;
use ops::Failure;
use std::io::Write;
use std::process::ExitCode;

/// A node allocates and frees each entry several times, some of it on another thread: ARCHITECTURE.md has
/// what this one saves.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let mut context = connect::Context::new(&cli.global);
    let ended = commands::run(cli.command, &mut context);
    // What was printed belongs in front of what went wrong.
    context.out.flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

/// One line on standard error, and the exit status.
fn fail(failure: &Failure) -> ExitCode {
    // Nobody may be reading: that is no reason to say more.
    let _ = writeln!(std::io::stderr(), "understudy: {}", one_line(&failure.sentence));
    ExitCode::from(failure.status)
}

/// A wrong command line. Help and version are no errors and go to standard output.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(ops::Status::Usage as u8)
        }
        _ => fail(&Failure::usage(args::sentence(error))),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

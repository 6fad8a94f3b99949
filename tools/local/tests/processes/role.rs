//! What this program is when a cluster starts it: a node, a controller, or a `dev` in the foreground.

use node::config::{Config, Sources};
use std::process::ExitCode;
use understudy_local::{DevOptions, Terminal, dev};

/// Plays the role that the arguments ask for; none if they ask for no role.
pub fn run(arguments: &[String]) -> Option<ExitCode> {
    let (role, rest) = arguments.split_first()?;
    let ended = match role.as_str() {
        "node" => config(rest)
            .and_then(|config| node::run_node(config, |_| ()).map_err(|failure| failure.to_string())),
        "controller" => config(rest)
            .and_then(|config| node::run_controller(config, |_| ()).map_err(|failure| failure.to_string())),
        "dev" => keep(rest),
        _ => return None,
    };
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(5)
        }
    })
}

fn config(arguments: &[String]) -> Result<Config, String> {
    let mut sources = Sources::default();
    for pair in arguments.chunks(2) {
        match pair {
            [flag, path] if flag == "--config" => sources.file = Some(path.into()),
            [flag, setting] if flag == "--set" => {
                let (name, value) = setting.split_once('=').ok_or("a setting has a value")?;
                sources.flags.push((name.into(), value.into()));
            }
            other => return Err(format!("{other:?} is no argument")),
        }
    }
    Config::load(&sources).map_err(|failure| failure.to_string())
}

fn keep(arguments: &[String]) -> Result<(), String> {
    let dir = arguments.first().ok_or("no directory")?;
    let options = DevOptions { dir: dir.into(), ..DevOptions::default() };
    dev(&options, &mut Terminal::new(false)).map_err(|error| error.to_string())
}

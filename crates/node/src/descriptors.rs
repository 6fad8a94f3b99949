//! How many files and sockets the process may have open, and what of that connections may take.

use crate::config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of components that engines keep open, and the heartbeats' connections: 512 each at most.
const FIXED: u64 = 1024;
/// Beside them: the log's segments, what merges and copies read, listeners, connections to others, people at
/// the HTTP port.
const OTHERS: u64 = 512;
/// So many connections are let in however low the limit is.
const LEAST: usize = 64;

/// Raises the limit of open files as far as this process may, and gives it. Where it cannot be raised it
/// stays.
pub fn raise_limit() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    if limits.current != limits.maximum {
        // Refused by some systems if the maximum says that there is none.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, maximum: limits.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many native connections fit below this limit, at most as many as are configured for each executor:
/// a client has a connection for each, and each has one to every other node. A lower number is said.
pub fn connections(config: &Config, limit: u64) -> usize {
    let wanted = config.node.max_connections.saturating_mul(config.node.executors.count());
    let sql = if config.sql.listen.is_some() { config.sql.max_connections as u64 } else { 0 };
    let room = limit.saturating_sub(FIXED + OTHERS + sql);
    let fitting = usize::try_from(room).unwrap_or(usize::MAX).max(LEAST).min(wanted);
    if fitting < wanted {
        eprintln!(
            "this process may have {limit} files open: {fitting} connections are let in, not the {wanted} of \
             node.max_connections for each executor (`ulimit -Hn` says how many there may be)"
        );
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_files() {
        let with = |executors: &str| {
            let settings =
                [("node.max_connections", "4096"), ("sql.listen", "off"), ("node.executors", executors)];
            Config::with(&settings).expect("good")
        };
        let config = with("1");
        assert_eq!(connections(&config, u64::MAX), 4096);
        assert_eq!(
            connections(&with("3"), u64::MAX),
            3 * 4096,
            "a client has a connection for each executor"
        );
        assert_eq!(connections(&config, 4096), 4096 - 1536);
        assert_eq!(connections(&config, 1024), 64);
        let few = [("node.max_connections", "8"), ("node.executors", "2")];
        assert_eq!(connections(&Config::with(&few).expect("good"), 1024), 16);
    }
}

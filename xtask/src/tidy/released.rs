//! What is released has every rule in force: the feature that lets tests take one out is not in its tree.
//!
//! `cargo run --release` works features out over all default members, not for the binary alone: one of them
//! whose normal dependency asks for the feature would bring it into the binary. So it is their trees that are
//! looked at, without dev-dependencies.

use std::path::Path;
use std::process::Command;

/// What is wrong with the trees of the default members, if anything is.
pub fn fault(root: &Path) -> Option<String> {
    let tree = Command::new("cargo")
        // No package is named: those are the default members.
        .args(["tree", "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p} [{f}]"])
        .current_dir(root)
        .output();
    match tree {
        Ok(tree) if tree.status.success() => fault_of(&String::from_utf8_lossy(&tree.stdout)),
        Ok(tree) => Some(format!("`cargo tree` failed: {}", String::from_utf8_lossy(&tree.stderr))),
        Err(error) => Some(format!("`cargo tree` cannot be run: {error}")),
    }
}

/// The same of trees of packages, each with its features in brackets.
fn fault_of(tree: &str) -> Option<String> {
    for package in ["understudy-cli ", "understudy-types "] {
        if !tree.lines().any(|line| line.starts_with(package)) {
            return Some(format!("`cargo tree` does not show {package}among the default members"));
        }
    }
    let has = |line: &&str| {
        let features = line.rsplit_once('[').map_or("", |(_, features)| features);
        line.starts_with("understudy-") && features.split(']').next().is_some_and(is_asked_for)
    };
    let package = tree.lines().find(has)?.split(' ').next().unwrap_or("");
    Some(format!(
        "{package} has the feature `mutants` in the tree of the default members, and so in the released \
         binary: only dev-dependencies may ask for it"
    ))
}

fn is_asked_for(features: &str) -> bool {
    features.split(',').any(|feature| feature == "mutants")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_binary_without_a_rule_is_found() {
        let tree = |features: &str| {
            format!("understudy-cli v0.1.0 (x) []\nunderstudy-types v0.1.0 (x) [{features}] (*)\n")
        };
        assert_eq!(fault_of(&tree("")), None);
        assert_eq!(fault_of(&tree("default,mutantsx")), None);
        assert!(
            fault_of(&tree("default,mutants")).is_some_and(|fault| fault.starts_with("understudy-types"))
        );
        assert!(fault_of("bytes v1 []").is_some_and(|fault| fault.contains("does not show")));
    }

    #[test]
    fn another_member_that_brings_it_is_found_too() {
        let beside = "understudy-cli v0.1.0 (x) []\nunderstudy-types v0.1.0 (x) []\n\n\
                      understudy-sim v0.1.0 (x) [default,mutants]\nunderstudy-types v0.1.0 (x) [mutants] (*)\n";
        assert!(fault_of(beside).is_some_and(|fault| fault.starts_with("understudy-sim")));
    }
}

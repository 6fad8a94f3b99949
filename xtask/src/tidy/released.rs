//! What is released has every rule in force: the feature that lets tests take one out is not in its tree.

use std::path::Path;
use std::process::Command;

/// What is wrong with the tree of the released binary, if anything is.
pub fn fault(root: &Path) -> Option<String> {
    let tree = Command::new("cargo")
        .args(["tree", "--package", "understudy-cli", "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p} [{f}]"])
        .current_dir(root)
        .output();
    match tree {
        Ok(tree) if tree.status.success() => fault_of(&String::from_utf8_lossy(&tree.stdout)),
        Ok(tree) => Some(format!("`cargo tree` failed: {}", String::from_utf8_lossy(&tree.stderr))),
        Err(error) => Some(format!("`cargo tree` cannot be run: {error}")),
    }
}

/// The same of a tree of packages, each with its features in brackets.
fn fault_of(tree: &str) -> Option<String> {
    let mut types = tree.lines().filter(|line| line.starts_with("understudy-types ")).peekable();
    if types.peek().is_none() {
        return Some("`cargo tree` does not show understudy-types below understudy-cli".into());
    }
    let features = |line: &str| line.rsplit_once('[').map(|(_, features)| features.to_owned());
    let has = types.filter_map(features).any(|features| features.contains("mutants"));
    has.then(|| "the released binary has the feature `mutants`: only dev-dependencies may ask for it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_binary_without_a_rule_is_found() {
        let tree = |features: &str| {
            format!("understudy-cli v0.1.0 (x)\nunderstudy-types v0.1.0 (x) [{features}] (*)\n")
        };
        assert_eq!(fault_of(&tree("")), None);
        assert!(fault_of(&tree("default,mutants")).is_some_and(|fault| fault.contains("mutants")));
        assert!(fault_of("bytes v1 []").is_some_and(|fault| fault.contains("does not show")));
    }
}

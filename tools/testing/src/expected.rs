//! Files that say what a test is to find. With `UPDATE=1` in the environment they are written anew: then look
//! at the difference.

use std::fs;
use std::path::Path;

/// What `find` makes of the file's text is the text again.
pub fn check(path: &Path, find: impl FnOnce(&str) -> String) {
    if let Some(difference) = difference(path, find) {
        panic!("{difference}");
    }
}

/// The same of every file in a folder.
pub fn check_all(folder: &Path, find: impl Fn(&str) -> String) {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    let differences: Vec<String> = paths.iter().filter_map(|path| difference(path, &find)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn difference(path: &Path, find: impl FnOnce(&str) -> String) -> Option<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = find(&text);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, found).expect("writable");
        return None;
    }
    (text != found)
        .then(|| format!("{} differs (UPDATE=1 writes it): {}", path.display(), first(&text, &found)))
}

/// The first lines that differ, with those before them.
fn first(text: &str, found: &str) -> String {
    let (text, found): (Vec<&str>, Vec<&str>) = (text.lines().collect(), found.lines().collect());
    let same = text.iter().zip(&found).take_while(|(one, two)| one == two).count();
    let before = text[same.saturating_sub(3)..same].join("\n");
    let line = |lines: &[&str]| lines.get(same).map_or("(it ends)".to_string(), |line| line.to_string());
    format!("line {}\n{before}\n- {}\n+ {}", same + 1, line(&text), line(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_shown() {
        assert_eq!(first("a\nb\nc\n", "a\nb\nd\n"), "line 3\na\nb\n- c\n+ d");
        assert_eq!(first("a\n", "a\nb\n"), "line 2\na\n- (it ends)\n+ b");
    }
}

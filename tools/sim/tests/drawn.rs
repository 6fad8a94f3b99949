//! Seeds that nobody has run: other ones with every change of what is simulated.

use std::path::{Path, PathBuf};
use std::{fs, io};
use understudy_sim::run_range;
use xxhash_rust::xxh3::Xxh3;

/// So many seeds are drawn.
const DRAWN: u64 = 300;
/// Where drawing begins: below it are the seeds that people name.
const FROM: u64 = 1 << 32;

/// The files with sources below `dir`, in order.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// A hash of all sources: it chooses the seeds, so that nobody does. It rests on what is committed and on
/// nothing else, so a commit that is amended or moved draws no other ones.
fn hash_of_sources() -> u64 {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for part in ["crates", "tools"] {
        sources(&root.join(part), &mut found).expect("the sources are readable");
    }
    assert!(found.len() > 500, "{} sources", found.len());
    let mut hash = Xxh3::new();
    for path in found {
        hash.update(path.strip_prefix(&root).expect("below it").to_string_lossy().as_bytes());
        hash.update(&fs::read(&path).expect("readable"));
    }
    hash.digest()
}

/// A failing one is mended, or the checker is, and it joins the recorded seeds of `seeds.rs`.
#[test]
fn seeds_that_the_sources_choose_keep_every_promise() {
    let first = FROM + hash_of_sources() % FROM * DRAWN;
    println!("seeds {first}..{}", first + DRAWN);
    let summary = run_range(first..first + DRAWN, None, |_, _| {}, 2);
    for violation in &summary.violations {
        println!("seed {} {}: {}", violation.seed, violation.id, violation.sentence);
        violation.trace.iter().for_each(|line| println!("    {line}"));
    }
    assert_eq!(summary.seeds, DRAWN);
    assert!(summary.violations.is_empty(), "{} violations", summary.violations.len());
}

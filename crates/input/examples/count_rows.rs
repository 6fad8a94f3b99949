//! Counts the rows of a file as a feed would see them, and how long reading takes.
//!
//! `cargo run --release --example count_rows -- FILE KEY[,KEY...] [NULL]` prints the inferred types, up to
//! ten bad rows, and one JSON object with the counts.

use std::path::Path;
use std::time::Instant;
use understudy_input::{Input, Item, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(file), Some(key)) = (arguments.first(), arguments.get(1)) else {
        return Err("usage: count_rows FILE KEY[,KEY...] [NULL]".into());
    };
    let started = Instant::now();
    let options = Options { null: arguments.get(2).cloned(), ..Options::default() };
    let mut input = Input::open(Path::new(file), options)?;
    let inferred = input.infer()?;
    eprint!("{inferred}");
    let key: Vec<&str> = key.split(',').collect();
    let schema = inferred.schema(&key, key.len(), false)?;
    let mut reader = input.reader(&schema)?;
    let (mut rows, mut bad, mut bytes) = (0u64, 0u64, 0usize);
    for item in &mut reader {
        match item? {
            Item::Row(record) => {
                rows += 1;
                bytes += record.key.len() + record.value.len();
            }
            Item::Bad(row) => {
                bad += 1;
                if bad <= 10 {
                    eprintln!("{row}\n    {}", row.raw_text(200));
                }
            }
        }
    }
    let read = reader.progress().read();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{{\"rows\":{rows},\"bad\":{bad},\"bytes_read\":{read},\"bytes_encoded\":{bytes},\"seconds\":{seconds:.3}}}"
    );
    Ok(())
}

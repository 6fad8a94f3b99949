//! `docs/databases.md` as whoever types it along: each statement and command of it is run on a cluster of
//! real processes, and what comes is compared with what the page shows.

mod common;

use common::{Cluster, Ran, understudy};
use std::io::Write;
use std::process::Stdio;

const PAGE: &str = include_str!("../../../docs/databases.md");

/// The longest page that is read and typed in ten minutes.
const MAX_WORDS: usize = 2_000;

/// A fenced block: the line that it begins at, what it is of, and what is in it.
struct Block<'a> {
    line: usize,
    of: &'a str,
    lines: Vec<&'a str>,
}

/// The fenced blocks of a page.
fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (at, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(of), None) => open = Some(Block { line: at + 1, of, lines: Vec::new() }),
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    found
}

/// What the page has somebody do.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked {
    /// Statements that are typed in a shell in this database.
    Statements(String, String),
    /// A command, by the words behind `understudy`.
    Command(Vec<String>),
}

/// One of these, the line of the page, and what is shown for it.
struct Step<'a> {
    line: usize,
    asked: Asked,
    shown: Vec<&'a str>,
}

/// All that the page has somebody do, in order.
fn steps(page: &str) -> Vec<Step<'_>> {
    let (mut steps, mut database) = (Vec::new(), None);
    let mut all = blocks(page).into_iter();
    while let Some(Block { line, of, lines }) = all.next() {
        match of {
            "sh" => assert_eq!(lines, ["understudy dev"], "line {line}: what the test has started itself"),
            "sql" => {
                let within: &String = database.as_ref().unwrap_or_else(|| panic!("line {line}: no shell"));
                let asked = Asked::Statements(within.clone(), lines.join("\n"));
                let answer = all.next().filter(|next| next.of == "text");
                let answer = answer.unwrap_or_else(|| panic!("line {line}: no answer is shown"));
                steps.push(Step { line, asked, shown: answer.lines });
            }
            "console" => {
                for (at, text) in lines.iter().enumerate() {
                    let Some(command) = text.strip_prefix("$ understudy ") else { continue };
                    let words: Vec<String> = command.split_whitespace().map(String::from).collect();
                    let next = lines[at + 1..].iter().take_while(|line| !line.starts_with("$ "));
                    let (line, shown) = (line + 1 + at, next.copied().collect::<Vec<_>>());
                    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                        ["sql"] => database = Some("understudy".to_string()),
                        ["sql", "--database", name] => database = Some(name.to_string()),
                        _ => steps.push(Step { line, asked: Asked::Command(words), shown }),
                    }
                }
                assert!(lines[0].starts_with("$ understudy "), "line {line}: no command");
            }
            other => panic!("line {line}: a block of `{other}`"),
        }
    }
    steps
}

/// True for what is said beside results: it comes by another way, so its order among them is not looked at.
fn is_said(line: &str) -> bool {
    ["ERROR: ", "NOTICE: ", "WARNING: ", "understudy: "].iter().any(|start| line.starts_with(start))
}

/// True if a line is what the page shows, where `...` is anything.
fn line_fits(shown: &str, line: &str) -> bool {
    let parts: Vec<&str> = shown.trim_end().split("...").collect();
    let Some(mut rest) = line.trim_end().strip_prefix(parts[0]) else { return false };
    let Some((last, between)) = parts[1..].split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// True if lines are what the page shows, where a line `...` is any number of lines.
fn lines_fit(shown: &[&str], found: &[&str]) -> bool {
    match shown.split_first() {
        None => found.is_empty(),
        Some((&"...", rest)) => (0..=found.len()).any(|skipped| lines_fit(rest, &found[skipped..])),
        Some((first, rest)) => {
            found.split_first().is_some_and(|(line, more)| line_fits(first, line) && lines_fit(rest, more))
        }
    }
}

/// What is wrong with what the page shows for this, if anything.
fn fault(step: &Step<'_>, ran: &Ran) -> Option<String> {
    let (said, results): (Vec<&str>, Vec<&str>) = step.shown.iter().copied().partition(|line| is_said(line));
    let (mut err, out): (Vec<&str>, Vec<&str>) = (ran.err.lines().collect(), ran.out.lines().collect());
    match step.asked {
        Asked::Statements(..) => {
            let bare = |line: &mut &str| *line = line.strip_prefix("understudy: ").unwrap_or(*line);
            err.iter_mut().for_each(bare);
        }
        // What a command says of its progress is not compared.
        Asked::Command(_) => err.retain(|line| is_said(line)),
    }
    let fails = said.iter().any(|line| line.starts_with("ERROR: ") || line.starts_with("understudy: "));
    let fits = lines_fit(&results, &out) && lines_fit(&said, &err) && fails == (ran.status != 0);
    let Step { line, asked, .. } = step;
    (!fits).then(|| format!("line {line}: {asked:?} ended with {}:\n{}\n{}", ran.status, ran.out, ran.err))
}

/// Has a cluster do it.
fn does(cluster: &Cluster, asked: &Asked) -> Ran {
    let (words, text) = match asked {
        Asked::Command(words) => (words.iter().map(String::as_str).collect(), ""),
        Asked::Statements(database, text) => (vec!["sql", "--database", database], text.as_str()),
    };
    let mut command = understudy(cluster.dir.path());
    command.args(&words);
    // The machine may be busy.
    if words[0] != "dev" && !words.contains(&"--timeout") {
        command.args(["--timeout", "60s"]);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // Who ended early does not read the rest.
    let _ = child.stdin.take().expect("piped").write_all(text.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    if words[..] == ["dev", "restart", "1"] {
        cluster.in_sync();
    }
    let utf8 = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran { status: output.status.code().unwrap_or(-1), out: utf8(output.stdout), err: utf8(output.stderr) }
}

#[test]
fn the_tutorial_does_what_it_shows() {
    let words = PAGE.split_whitespace().count();
    assert!(words <= MAX_WORDS, "{words} words are no ten minutes");
    let steps = steps(PAGE);
    assert!(steps.len() > 30, "{} statements and commands", steps.len());
    let cluster = Cluster::start();
    let faults: Vec<String> =
        steps.iter().filter_map(|step| fault(step, &does(&cluster, &step.asked))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_page_that_shows_something_else_is_wrong() {
    let page = "```sh\nunderstudy dev\n```\n```console\n$ understudy count t\n2\n$ understudy sql --database bank\n```\n\
                ```sql\nSELECT 1\n  AS one;\n```\n```text\nNOTICE: ... rows in ... s...\n...\n(1 row)\n```\n";
    let steps = steps(page);
    let asked: Vec<&Asked> = steps.iter().map(|step| &step.asked).collect();
    let count = Asked::Command(vec!["count".into(), "t".into()]);
    let select = Asked::Statements("bank".into(), "SELECT 1\n  AS one;".into());
    assert_eq!(asked, [&count, &select]);
    assert_eq!(steps.iter().map(|step| step.line).collect::<Vec<_>>(), [5, 9]);
    let ran = |status: i32, out: &str, err: &str| Ran { status, out: out.into(), err: err.into() };
    assert_eq!(fault(&steps[0], &ran(0, "2\n", "")), None);
    for wrong in [
        ran(0, "3\n", ""),
        ran(0, "", ""),
        ran(1, "2\n", ""),
        ran(0, "2\n2\n", ""),
        ran(0, "2\n", "understudy: x"),
    ] {
        assert!(fault(&steps[0], &wrong).is_some_and(|fault| fault.contains("line 5")), "{wrong:?}");
    }
    let rows = " one\n-----\n   1\n(1 row)\n";
    assert_eq!(fault(&steps[1], &ran(0, rows, "NOTICE: 10 rows in 0.1 s [00000]\n")), None);
    assert!(fault(&steps[1], &ran(0, "(2 rows)\n", "NOTICE: 10 rows in 0.1 s\n")).is_some());
    assert!(fault(&steps[1], &ran(0, rows, "NOTICE: 10 rows\n")).is_some());
    assert!(fault(&steps[1], &ran(1, rows, "NOTICE: 10 rows in 0.1 s\nERROR: no [42P01]\n")).is_some());
}

//! What a worker has said so far, and what must therefore be true of the files that it leaves.

use types::Lsn;

/// A line that a worker writes for whoever records it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// It is about to make files that hold the state at this position.
    Aim(Lsn),
    /// It was told that a restart finds at least this.
    Persisted(Lsn),
    /// It is about to give its state up.
    Reset,
    /// It was told that all files of the load are staged.
    Staged,
    /// It is about to give the staged files up, or has made them part of the state.
    Unstaged,
    /// The engine answered with an error: it found no room.
    Full,
    /// The engine answered with another error.
    Failed,
    /// It has opened the engine, which says that this is persisted.
    Opened(Lsn),
}

impl Note {
    /// The line of text.
    pub fn line(self) -> String {
        match self {
            Note::Aim(lsn) => format!("aim {lsn}\n"),
            Note::Persisted(lsn) => format!("persisted {lsn}\n"),
            Note::Opened(lsn) => format!("opened {lsn}\n"),
            Note::Reset => "reset\n".into(),
            Note::Staged => "staged\n".into(),
            Note::Unstaged => "unstaged\n".into(),
            Note::Full => "full\n".into(),
            Note::Failed => "failed\n".into(),
        }
    }

    /// The note that a line is.
    pub fn read(line: &str) -> Option<Note> {
        let (word, lsn) = line.split_once(' ').unwrap_or((line, ""));
        let lsn = lsn.parse().ok().map(Lsn);
        Some(match word {
            "aim" => Note::Aim(lsn?),
            "persisted" => Note::Persisted(lsn?),
            "opened" => Note::Opened(lsn?),
            "reset" => Note::Reset,
            "staged" => Note::Staged,
            "unstaged" => Note::Unstaged,
            "full" => Note::Full,
            "failed" => Note::Failed,
            _ => return None,
        })
    }
}

/// Where an engine may be that is opened now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Promise {
    /// At one of these.
    pub positions: Vec<Lsn>,
    /// It has the load's files, unless they are part of the state.
    pub staged: bool,
}

impl Default for Promise {
    fn default() -> Promise {
        Promise { positions: vec![Lsn::ZERO], staged: false }
    }
}

impl Promise {
    /// The worker says something.
    pub fn note(&mut self, note: Note) {
        match note {
            Note::Aim(lsn) => self.positions.push(lsn),
            Note::Persisted(lsn) | Note::Opened(lsn) => self.positions = vec![lsn],
            Note::Reset => self.positions.push(Lsn::ZERO),
            Note::Staged => self.staged = true,
            Note::Unstaged => self.staged = false,
            Note::Full | Note::Failed => {}
        }
    }
}

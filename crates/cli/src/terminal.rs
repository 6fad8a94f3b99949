//! Lines that a person types, with completion of words and a history that is kept in a file.

use crate::out::note;
use ops::Failure;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor, Helper};
use std::path::PathBuf;

/// What came of asking for a line.
pub enum Typed {
    /// A line.
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// The input is at its end.
    End,
}

/// An editor of lines; `W` knows the words.
pub struct Terminal<W: Helper> {
    editor: Editor<W, FileHistory>,
    history: Option<PathBuf>,
}

impl<W: Helper> Terminal<W> {
    /// With what was typed before, if a history is kept.
    pub fn open(words: W, history: Option<PathBuf>) -> Result<Terminal<W>, Failure> {
        let config = Config::builder().auto_add_history(true).build();
        let mut editor = Editor::with_config(config)
            .map_err(|error| Failure::failed(format!("the terminal cannot be used: {error}")))?;
        editor.set_helper(Some(words));
        if let Some(path) = &history {
            // The first time there is none.
            let _ = editor.load_history(path);
        }
        Ok(Terminal { editor, history })
    }

    /// The words, to learn more.
    pub fn words(&mut self) -> &mut W {
        self.editor.helper_mut().expect("set when it was opened")
    }

    /// The next line.
    pub fn read(&mut self, prompt: &str) -> Result<Typed, Failure> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupted),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(Failure::failed(format!("the terminal cannot be read: {error}"))),
        }
    }

    /// Keeps the history.
    pub fn close(mut self) {
        if let Some(path) = &self.history
            && let Err(error) = self.editor.save_history(path)
        {
            note(format!("understudy: the history cannot be kept in {}: {error}", path.display()));
        }
    }
}

/// The file of this name in the home directory.
pub fn in_home(name: &str) -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(name))
}

//! What is sent to one member: the log, or the state itself where the log does not reach back. Whoever has
//! members that it sends to keeps a [`Progress`] of each and lends it to a [`Sender`], with the parts that it
//! needs. Nothing here knows of a term.
//!
//! | file | what |
//! | --- | --- |
//! | `progress` | what is known of one member |
//! | `shipping`, `copy_out` | what is on its way to it beside the log |
//! | `echo` | how fresh what it reads is |
//! | `calls` | whether it makes calls of procedures itself |
//! | `log` | appends, and where two logs agree |
//! | `files` | the state itself, by files |
//! | `rows` | the same by rows |

pub(crate) mod calls;
pub(crate) mod copy_out;
pub(crate) mod echo;
pub(crate) mod files;
pub(crate) mod log;
pub(crate) mod progress;
pub(crate) mod rows;
pub(crate) mod shipping;

use crate::log_state::LogState;
use crate::marks::Marks;
use crate::output::{Origin, Output};
use crate::readers::Readers;
use crate::sender::log::{Run, ask_report};
use crate::sender::progress::{Mode, Progress};
use crate::sender::shipping::FilesOut;
use crate::settings::Settings;
use types::{Engine, EngineError, Member, Micros, PartitionRecord};
use wire::PeerMessage;

/// What is to be done after a member was given something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Given {
    Nothing,
    /// The member goes on with the log.
    Log,
}

/// What goes to one member, with all that is needed for it.
pub(crate) struct Sender<'a> {
    pub to: Member,
    pub progress: &'a mut Progress,
    pub files: &'a mut FilesOut,
    pub engine: &'a mut dyn Engine,
    pub log: &'a LogState,
    pub marks: &'a Marks,
    pub readers: &'a mut Readers,
    pub record: &'a PartitionRecord,
    pub origin: Origin,
    /// When the sender surely led; zero: never.
    pub led_at: Micros,
    pub now: Micros,
    pub settings: &'a Settings,
    /// The engine's files can be those of all members.
    pub ships: bool,
    /// Clients are served.
    pub serves: bool,
    /// F14: an offer names the position of its files.
    pub names_position: bool,
    pub out: &'a mut Vec<Output>,
}

impl Sender<'_> {
    fn send(&mut self, message: PeerMessage) {
        self.out.push(Output::Send { to: self.to, message });
    }

    fn probe(&mut self) {
        self.progress.probe(Micros::ZERO);
    }

    fn catching_up(&self) -> bool {
        self.record.catching_up.contains(&self.to)
    }

    /// Sends what is due. The log goes out only when it `begun` the sender's term.
    pub fn go_on(&mut self, begun: bool, cached: &mut Option<Run>) -> Result<(), EngineError> {
        match self.progress.mode() {
            Mode::Probe { asked_at } if self.now.since(*asked_at) >= self.settings.resend => {
                self.progress.probe(self.now);
                ask_report(self.record, self.origin.me, self.to, self.out);
                Ok(())
            }
            Mode::Stream if begun => {
                self.ship_log(cached)?;
                self.deliver()
            }
            Mode::Copying(_) => self.copy_on(),
            Mode::Shipping => self.ship_on(),
            _ => Ok(()),
        }
    }
}

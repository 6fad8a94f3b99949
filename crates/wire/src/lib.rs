//! Layer 2: messages and codec. The frame on a connection ([`frame`]), what was received and not yet taken
//! ([`inbox`]), the messages in it ([`message`]), the request and reply envelopes ([`request`]), outcomes
//! of writes ([`outcome`]), global transactions ([`commit`]), what nodes tell each other ([`peer`]) and the
//! controllers ([`control`]), the handshake ([`hello`]), how files are shipped ([`ship`]), loaded
//! ([`bulk`]) and read back ([`scrub`]), jobs ([`job`]), calls of procedures ([`procedure`]), turns at rows
//! ([`row_turn`]), what nodes keep of the cluster's records ([`kept`]), the newest configuration in a reply
//! ([`hint`]), steps of tables that move ([`moves`]), and the entry of a partition's log ([`entry`],
//! [`effects`], [`call_entry`]).

pub mod bulk;
pub mod call_entry;
pub mod commit;
pub mod control;
pub mod effects;
pub mod entry;
pub mod frame;
pub mod hello;
pub mod hint;
pub mod inbox;
pub mod job;
pub mod kept;
pub mod log;
pub mod message;
pub mod moves;
pub mod outcome;
pub mod peer;
pub mod procedure;
pub mod request;
pub mod row_turn;
pub mod scrub;
mod shared;
pub mod ship;
pub mod spread;

pub use call_entry::CallMark;
pub use commit::{CommitAnswer, CommitRequest, Flush, FlushState, ManagerOp};
pub use control::RecordText;
pub use effects::Effects;
pub use entry::{Entry, Header, Kind};
pub use inbox::Inbox;
pub use kept::KeptRecords;
pub use message::Message;
pub use peer::PeerMessage;
pub use procedure::{CallRequest, CallResult};
pub use request::{Body, Op, Outcome, ReadLevel, Reply, Request, RowOp, Status, TableChange, TablePart};
pub use row_turn::{TurnAnswer, TurnHolder, TurnOp};

//! The handshake: the first message in each direction on every connection.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::hint::black_box;
use types::{ClusterId, Executors, Generation, Member};

/// The protocol version that this build speaks. Another number wherever a message has another form, or a
/// record has a field that whoever does not know it would act wrongly without.
///
/// 2: [`crate::peer::LogReport`] says with what code calls are made, and databases have ranges.
///
/// 3: [`crate::control::Register`] says how many executors a node has, and [`crate::control::NodeStatus`] how
/// they are; a frame's checksum leaves out the entries of an append.
///
/// 4: [`crate::control::NodeStatus`] says which databases clients of the SQL gateway are in.
///
/// 5: two nodes send to each other on one connection ([`HelloRole::Pair`]).
pub const PROTOCOL: u32 = 5;

/// What the other side wants to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HelloRole {
    /// A native client.
    Client,
    /// Another node, for log shipping: whoever opened the connection sends, and is sent nothing.
    Peer,
    /// Another node, for heartbeats.
    Heartbeat,
    /// A node to a controller.
    Node,
    /// An operator's command to a controller.
    Operator,
    /// Another node, for log shipping in both directions, between executors of the same number. Where the
    /// other node has another count of executors, it sends nothing on this connection, as if
    /// [`HelloRole::Peer`] had been said.
    Pair {
        /// Which executor of the sender has this connection, counted from 0.
        executor: u8,
        /// How many the sender has.
        executors: Executors,
    },
}

/// Who connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// As what.
    pub role: HelloRole,
    /// [`PROTOCOL`] of the sender.
    pub protocol: u32,
    /// The cluster it means; `None`: whichever is there (clients and operators).
    pub cluster: Option<ClusterId>,
    /// For nodes: which, in which life.
    pub member: Option<Member>,
    /// The cluster's shared secret, where one is set.
    pub secret: Option<String>,
    /// What it is, for logs: `understudy 0.1.0 demo`.
    pub agent: String,
}

impl Hello {
    /// Checks that an executor that is named exists. The error is a sentence.
    pub fn validate(&self) -> Result<(), String> {
        match self.role {
            HelloRole::Pair { executor, executors } if usize::from(executor) >= executors.count() => {
                Err(format!("executor {executor} is named, and there are {}", executors.count()))
            }
            _ => Ok(()),
        }
    }
}

/// What everyone who connects must know, if there is one. It protects against mistakes and strangers on a
/// trusted network; it crosses the wire as it is.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Option<String>);

impl Secret {
    /// What a refused connection is told.
    pub const REFUSAL: &str =
        "the secret is missing or wrong: set UNDERSTUDY_SECRET to the one that the cluster was started with";

    /// This secret; an empty one is none.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(Some(text.into()).filter(|text| !text.is_empty()))
    }

    /// What to say in a [`Hello`].
    pub fn said(&self) -> Option<String> {
        self.0.clone()
    }

    /// True if whoever says this may come in. Takes equally long for every wrong secret of the same length.
    pub fn admits(&self, said: Option<&str>) -> bool {
        let Some(known) = self.0.as_deref().map(str::as_bytes) else { return true };
        let said = said.unwrap_or_default().as_bytes();
        let differing = known.iter().enumerate().fold(0u8, |differing, (at, byte)| {
            black_box(differing | (byte ^ said.get(at).copied().unwrap_or_default()))
        });
        differing == 0 && known.len() == said.len()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Secret(set)" } else { "Secret(none)" })
    }
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Welcome {
    /// Come in.
    Accepted {
        /// The cluster.
        cluster: ClusterId,
        /// The answering node, unless it is a controller.
        member: Option<Member>,
    },
    /// One sentence why not; the connection is closed.
    Refused(String),
    /// Come in: this is a controller whose records were made anew from the nodes (PR-107).
    Rebuilt {
        /// The cluster.
        cluster: ClusterId,
        /// How often they were.
        generation: Generation,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_admits_only_itself_and_is_not_shown() {
        let secret = Secret::new("open sesame");
        assert!(secret.admits(Some("open sesame")));
        for wrong in
            [None, Some(""), Some("open"), Some("open sesamf"), Some("open sesame!"), Some("open sesame\0")]
        {
            assert!(!secret.admits(wrong), "{wrong:?}");
        }
        assert!(Secret::new("").admits(None) && Secret::default().admits(Some("whatever")));
        assert!(!format!("{secret:?}").contains("sesame"));
        assert_eq!((secret.said().as_deref(), Secret::new("").said()), (Some("open sesame"), None));
    }
}

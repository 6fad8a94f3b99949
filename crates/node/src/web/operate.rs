//! What an operator may do from the page: drain a node, end that, hand a partition's lead over. Each request
//! brings the token in a header of its own, which no page from elsewhere can make a browser send.

use super::desk::Desk;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use std::time::Duration;
use types::{NodeId, PartitionId};
use wire::control::AdminCommand;
use wire::hello::Secret;

/// The header with the token.
const TOKEN: &str = "x-understudy-token";
/// How long a controller may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
enum Action {
    Drain { node: u32 },
    Undrain { node: u32 },
    Switchover { partition: u32, to: u32 },
}

impl Action {
    fn command(&self) -> AdminCommand {
        match *self {
            Action::Drain { node } => AdminCommand::Drain(NodeId(node)),
            Action::Undrain { node } => AdminCommand::Add(NodeId(node)),
            Action::Switchover { partition, to } => {
                AdminCommand::Switchover { partition: Some(PartitionId(partition)), to: Some(NodeId(to)) }
            }
        }
    }

    fn done(&self) -> String {
        match self {
            Action::Drain { node } => format!("node {node} hands over what it leads"),
            Action::Undrain { node } => format!("node {node} may lead again"),
            Action::Switchover { partition, to } => {
                format!("partition p{partition} is being handed over to node {to}")
            }
        }
    }
}

/// Does it, or says why not.
pub(super) async fn run(
    desk: &Desk,
    token: Option<&Secret>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<String, (StatusCode, String)> {
    allowed(token, headers)?;
    let action: Action = serde_json::from_slice(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("this is no command: {error}")))?;
    match desk.ask(action.command(), COMMAND_TIMEOUT).await {
        Ok(Ok(_)) => Ok(action.done()),
        Ok(Err(why)) => Err((StatusCode::CONFLICT, why)),
        Err(_) => Err((StatusCode::SERVICE_UNAVAILABLE, "this node is going down".into())),
    }
}

fn allowed(token: Option<&Secret>, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    let no = |code, why: &str| Err((code, why.to_string()));
    let Some(token) = token else {
        return no(StatusCode::NOT_FOUND, "this page only shows: the node has no node.operator_token_file");
    };
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return no(StatusCode::FORBIDDEN, "a page from elsewhere may not do this");
    }
    match token.admits(text(TOKEN)) {
        true => Ok(()),
        false => no(StatusCode::FORBIDDEN, "the operator's token is missing or wrong"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_and_only_from_this_page() {
        let token = Secret::new("a long token of ours");
        let ask = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("text")));
            allowed(Some(&token), &HeaderMap::from_iter(pairs)).map_err(|(code, _)| code.as_u16())
        };
        assert_eq!(ask(&[(TOKEN, "a long token of ours")]), Ok(()));
        assert_eq!(ask(&[(TOKEN, "a long token of ours"), ("sec-fetch-site", "same-origin")]), Ok(()));
        assert_eq!(ask(&[(TOKEN, "a long token of ours"), ("sec-fetch-site", "cross-site")]), Err(403));
        assert_eq!(ask(&[(TOKEN, "a long token of theirs")]), Err(403));
        assert_eq!(ask(&[]), Err(403));
        assert_eq!(allowed(None, &HeaderMap::new()).map_err(|(code, _)| code.as_u16()), Err(404));
    }

    #[test]
    fn commands_are_few_and_exact() {
        let read = |text: &str| serde_json::from_str::<Action>(text).ok();
        assert_eq!(read(r#"{"action":"drain","node":2}"#), Some(Action::Drain { node: 2 }));
        assert_eq!(
            read(r#"{"action":"switchover","partition":64,"to":3}"#),
            Some(Action::Switchover { partition: 64, to: 3 })
        );
        for wrong in [
            r#"{"action":"remove","node":2}"#,
            r#"{"action":"drain"}"#,
            "[]",
            "",
            r#"{"action":"drain","node":-1}"#,
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

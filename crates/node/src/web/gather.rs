//! The task that puts the cluster map together: this node's records, every node's status and past, a
//! controller's failovers. It asks nobody while nobody looks.

use super::desk::Answer;
use super::history::{History, SECONDS, Sample};
use super::look::{Look, Series};
use super::page::Page;
use super::{Web, peers};
use crate::clock;
use client::Map;
use client::view::failovers::{lines, table_name};
use client::view::overview::{SILENT_MS, overview};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use types::{FailoverRecord, Micros, NodeId};
use wire::control::{AdminCommand, ClusterStatus, NodeStatus};

/// Between two cluster maps.
const EVERY: Micros = Micros::from_millis(500);
/// The same for each node there is, so that a large cluster is not kept busy by being looked at.
const EVERY_PER_NODE: Micros = Micros::from_millis(10);
/// Nodes that are asked at once.
const MAX_ASKED_NODES: usize = 64;
/// How long the executor may take to put its records up.
const RECORDS: Micros = Micros::from_millis(1_000);
/// How long a controller may take to tell the failovers, and between two questions when nothing has changed.
const FAILOVERS: Duration = Duration::from_secs(2);
/// A first cluster map waits so long for the failovers.
const FIRST_FAILOVERS: Duration = Duration::from_secs(1);

/// What is known of a node.
#[derive(Default)]
struct Seen {
    status: Option<NodeStatus>,
    heard: Option<Micros>,
    history: History,
}

/// What another node said: its status, and its past if that was asked for.
type Said = (NodeStatus, Option<History>);

#[derive(Default)]
struct Gather {
    seen: BTreeMap<NodeId, Seen>,
    failovers: Option<Vec<FailoverRecord>>,
    /// Why the failovers are not known, or not known anew.
    no_failovers: Option<String>,
    asked: Option<oneshot::Receiver<Answer>>,
    next_ask: Micros,
    /// The sum of all epochs when failovers were asked for.
    epochs: u64,
}

/// Goes on as long as the node lives.
pub(super) async fn run(web: &Arc<Web>) {
    loop {
        while !web.is_watched() {
            web.newest.send_replace(None);
            web.looked.notified().await;
        }
        let mut gather = Gather::default();
        while web.is_watched() {
            let began = clock::mono();
            let map = records(web).await;
            gather.ask_nodes(web, &map).await;
            gather.ask_failovers(web, &map).await;
            web.newest.send_replace(Some(Arc::new(gather.page(web, &map))));
            let every = EVERY.max(Micros(EVERY_PER_NODE.0 * gather.seen.len() as u64));
            let left = (began + every).since(clock::mono());
            tokio::time::sleep(Duration::from_micros(left.0.max(10_000))).await;
        }
    }
}

/// The records as the executor has them; empty if no controller has told it any.
async fn records(web: &Web) -> Arc<Map> {
    let began = clock::mono();
    web.shared_status.watch(began);
    loop {
        if let Some(map) = web.shared_status.cluster_map() {
            return map;
        }
        if clock::mono().since(began) > RECORDS {
            return Arc::default();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Gather {
    async fn ask_nodes(&mut self, web: &Arc<Web>, map: &Map) {
        let me = web.shared_status.me.node;
        self.seen.retain(|node, _| map.node(*node).is_some());
        let own = self.seen.entry(me).or_default();
        own.status = Some((*web.shared_status.status()).clone());
        own.heard = Some(clock::mono());
        own.history = web.history().clone();
        let places = Arc::new(Semaphore::new(MAX_ASKED_NODES));
        let mut asked = JoinSet::new();
        let second = clock::now().wall_ms / 1000;
        for node in map.nodes().filter(|node| node.id != me) {
            let known = self.seen.entry(node.id).or_default().history.newest();
            let since = (known + 1 < second).then_some(known);
            let (id, address, places) = (node.id, node.addresses.http.clone(), places.clone());
            asked.spawn(async move {
                let _place = places.acquire().await;
                (id, ask(id, &address, since).await)
            });
        }
        while let Some(answer) = asked.join_next().await {
            // A node that does not answer is shown by its age; a task does not panic, and is not cancelled.
            let Ok((id, Ok((status, history)))) = answer else { continue };
            let seen = self.seen.entry(id).or_default();
            seen.status = Some(status);
            seen.heard = Some(clock::mono());
            if let Some(history) = history {
                seen.history.extend(history);
            }
        }
    }

    /// Asks a controller when something may have changed, and takes in what it said.
    async fn ask_failovers(&mut self, web: &Web, map: &Map) {
        let now = clock::mono();
        let epochs = map.partitions().map(|record| record.epoch.0).sum();
        let unfinished =
            |records: &Vec<FailoverRecord>| records.iter().any(|record| record.serving_ms.is_none());
        let news = epochs != self.epochs || self.failovers.as_ref().is_some_and(unfinished);
        if self.asked.is_none() && (news || now >= self.next_ask) {
            (self.epochs, self.next_ask) = (epochs, now + Micros(FAILOVERS.as_micros() as u64));
            self.asked = Some(web.desk.ask(AdminCommand::Failovers, FAILOVERS));
        }
        let wait = if self.failovers.is_none() && self.no_failovers.is_none() {
            FIRST_FAILOVERS
        } else {
            Duration::ZERO
        };
        let Some(asked) = &mut self.asked else { return };
        let Ok(answer) = tokio::time::timeout(wait, asked).await else { return };
        self.asked = None;
        let read = |text: String| serde_json::from_str(&text).map_err(|error| error.to_string());
        let going = |_| "this node is going down".to_string();
        match answer.map_err(going).flatten().and_then(read) {
            Ok(records) => (self.failovers, self.no_failovers) = (Some(records), None),
            Err(why) => self.no_failovers = Some(why),
        }
    }

    fn page(&self, web: &Web, map: &Map) -> Page {
        let status = self.status(clock::mono());
        let failovers = self.failovers.as_deref().unwrap_or_default();
        let look = Look {
            me: web.shared_status.me.node.0,
            at_ms: clock::now().wall_ms,
            overview: overview(map, &status),
            http: map.nodes().map(|node| (node.id.0, node.addresses.http.clone())).collect(),
            failovers: lines(failovers, |partition| table_name(map, partition)),
            no_failovers: self.no_failovers.clone(),
            series: self.series(),
            operable: web.token.is_some(),
        };
        Page::draw(&look)
    }

    /// Every node's status with its age. A node that answers us, but whom no other node hears, is cut off
    /// from them.
    fn status(&self, now: Micros) -> ClusterStatus {
        let age = |seen: &Seen| seen.heard.map_or(u64::MAX, |at| now.since(at).0 / 1000);
        let heard_by_others = |node: NodeId| {
            let others = self.seen.iter().filter(|(other, seen)| **other != node && age(seen) < SILENT_MS);
            let hears = others.filter_map(|(_, seen)| seen.status.as_ref()).flat_map(|status| &status.hears);
            hears.filter(|(heard, _)| *heard == node).map(|(_, us)| us / 1000).min()
        };
        let nodes = self.seen.iter().filter_map(|(node, seen)| {
            let status = seen.status.clone()?;
            Some((status, age(seen).max(heard_by_others(*node).unwrap_or(0))))
        });
        ClusterStatus { nodes: nodes.collect(), ..ClusterStatus::default() }
    }

    /// The last minutes of all nodes together. The running second is left out: not every node has told it.
    fn series(&self) -> Series {
        let end = clock::now().wall_ms / 1000 - 1;
        let begin = end + 1 - SECONDS as u64;
        let mut series = Series { begin, ..Series::default() };
        series.commits.resize(SECONDS, None);
        series.lag_us.resize(SECONDS, None);
        series.lag_bytes.resize(SECONDS, None);
        let all = self.seen.values().flat_map(|seen| seen.history.samples());
        for Sample { at, commits, lag_us, lag_bytes } in
            all.filter(|sample| (begin..=end).contains(&sample.at))
        {
            let place = (at - begin) as usize;
            let grow =
                |slot: &mut Option<u64>, value: &dyn Fn(u64) -> u64| *slot = Some(value(slot.unwrap_or(0)));
            grow(&mut series.commits[place], &|sum| sum.saturating_add(*commits));
            grow(&mut series.lag_us[place], &|most| most.max(*lag_us));
            grow(&mut series.lag_bytes[place], &|most| most.max(*lag_bytes));
        }
        series
    }
}

/// Asks one node. `since`: its past after that second is asked for, too.
async fn ask(node: NodeId, address: &str, since: Option<u64>) -> Result<Said, String> {
    let status: NodeStatus = read(&peers::get(address, "/status.json").await?)?;
    if status.member.node != node {
        return Err(format!("{address} is node {} now", status.member.node));
    }
    let Some(since) = since else { return Ok((status, None)) };
    // A node of an older release has no past to tell.
    let history = peers::get(address, &format!("/history.json?since={since}")).await;
    Ok((status, history.and_then(|text| read(&text)).ok()))
}

fn read<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Member;

    fn seen(node: u32, heard_ms: u64, hears: &[(u32, u64)]) -> (NodeId, Seen) {
        let member = Member { node: NodeId(node), ..Member::default() };
        let hears = hears.iter().map(|(node, us)| (NodeId(*node), *us)).collect();
        let status = NodeStatus { member, hears, ..NodeStatus::default() };
        let heard = Some(Micros::from_millis(heard_ms));
        (NodeId(node), Seen { status: Some(status), heard, history: History::default() })
    }

    fn ages(seen: [(NodeId, Seen); 3]) -> Vec<u64> {
        let gather = Gather { seen: BTreeMap::from(seen), ..Gather::default() };
        gather.status(Micros::from_millis(10_000)).nodes.iter().map(|(_, age)| *age).collect()
    }

    #[test]
    fn a_node_that_only_we_reach_is_not_live() {
        let fresh = ages([
            seen(1, 10_000, &[(2, 900), (3, 20_000)]),
            seen(2, 9_990, &[(3, 900)]),
            seen(3, 9_990, &[(2, 10)]),
        ]);
        assert_eq!(fresh, [0, 10, 10]);
        let cut =
            ages([seen(1, 10_000, &[(3, 900)]), seen(2, 10_000, &[]), seen(3, 10_000, &[(2, 9_000_000)])]);
        assert_eq!(cut, [0, 9_000, 0], "node 2 answers us, and node 3 has not heard it for nine seconds");
        let gone = ages([seen(1, 10_000, &[(2, 20_000)]), seen(2, 2_000, &[]), seen(3, 10_000, &[])]);
        assert_eq!(gone, [0, 8_000, 0]);
    }
}

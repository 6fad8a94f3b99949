//! The connections between an executor of this node and one other node: which of them is written to, when
//! this node opens one, and when one too many is closed. Pure: nothing is opened or closed here.
//!
//! Of two nodes the one with the lower number opens the connection, and both send on it. The other one opens
//! one if it has had none for a while, as the first one may be unable to reach it. So there can be two for a
//! moment. Then both sides prefer the same one, and the other is closed once nothing can be on its way there
//! any more. Each message is queued on one connection; what a connection loses is sent again by the protocol
//! of the replicas.

use types::{Member, Micros};

/// The longest that a node waits for the other one to open a connection. A node that can reach this one has
/// tried again by then (`LONGEST_RECONNECT_DELAY` of `peers.rs`).
const OPEN_ANYWAY_AFTER: Micros = Micros::from_millis(100);
/// A connection that is not written to any more is read for so long. The other side stops writing to it with
/// the handshake of the connection that is preferred.
const LINGER: Micros = Micros::from_millis(1000);

/// How a connection came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// This node opened it, and it alone sends there.
    OneWay,
    /// This node opened it, for both.
    Ours,
    /// The other node opened it, for both.
    Theirs,
}

/// A connection on which this node may send.
#[derive(Debug)]
struct Link {
    key: u64,
    /// Whom the handshake named.
    member: Member,
    kind: Kind,
    /// A newer member of its node is known.
    outdated: bool,
    /// It is not written to, and is closed at this time.
    close_at: Option<Micros>,
}

/// The connections to one other node.
#[derive(Debug)]
pub struct Pair {
    /// This node has the lower number of the two.
    opens_first: bool,
    /// In the order in which they came.
    links: Vec<Link>,
    /// The newest member of the node that is known.
    newest: Option<Member>,
    /// Since when no connection is written to, if none is.
    alone_since: Option<Micros>,
}

impl Pair {
    /// No connection yet. `opens_first`: this node has the lower number of the two.
    pub fn new(opens_first: bool, now: Micros) -> Pair {
        Pair { opens_first, links: Vec::new(), newest: None, alone_since: Some(now) }
    }

    /// The node's record names this member. Nothing is sent to the members before it any more (PR-516). True
    /// if it was not known yet.
    pub fn on_record(&mut self, member: Member, now: Micros) -> bool {
        if self.newest == Some(member) || self.is_outdated(member) {
            return false;
        }
        self.newest = Some(member);
        for link in &mut self.links {
            let is_newer = link.member.same_store(&member) && link.member.incarnation >= member.incarnation;
            link.outdated |= !is_newer;
        }
        self.settle(now);
        true
    }

    /// A handshake is over: the connection leads to this member. False: a newer one is known, so the
    /// connection is to be closed (PR-516).
    pub fn add(&mut self, key: u64, member: Member, kind: Kind, now: Micros) -> bool {
        if self.is_outdated(member) {
            return false;
        }
        for link in &mut self.links {
            link.outdated |= link.member.same_store(&member) && link.member.incarnation < member.incarnation;
        }
        // Which of two stores is the newer one, only the record says.
        if self.newest.is_none_or(|newest| newest.same_store(&member)) {
            self.newest = Some(member);
        }
        self.links.push(Link { key, member, kind, outdated: false, close_at: None });
        self.settle(now);
        true
    }

    /// A connection is gone. Gives its member if another connection leads there: what was on its way is to be
    /// sent again (PR-517). Where there is none, that begins with the next one.
    pub fn remove(&mut self, key: u64, now: Micros) -> Option<Member> {
        let at = self.links.iter().position(|link| link.key == key)?;
        let member = self.links.remove(at).member;
        self.settle(now);
        self.to(member).map(|_| member)
    }

    /// The connection on which messages to this very member go (PR-515).
    pub fn to(&self, member: Member) -> Option<u64> {
        self.preferred(member).map(|link| link.key)
    }

    /// True if it is time for this node to open a connection. `for_both`: the other one would use it too.
    pub fn opens(&self, for_both: bool, now: Micros) -> bool {
        let waits = for_both && !self.opens_first;
        self.alone_since.is_some_and(|since| !waits || now >= since + OPEN_ANYWAY_AFTER)
    }

    /// The connections that are to be closed by now, as others are written to.
    pub fn due(&self, now: Micros) -> Vec<u64> {
        let due = self.links.iter().filter(|link| link.close_at.is_some_and(|at| now >= at));
        due.map(|link| link.key).collect()
    }

    /// All connections.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.links.iter().map(|link| link.key)
    }

    /// Whom messages can be sent to.
    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.links.iter().filter(|link| link.close_at.is_none()).map(|link| link.member)
    }

    /// True if there is no connection.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    fn is_outdated(&self, member: Member) -> bool {
        self.newest
            .is_some_and(|newest| newest.same_store(&member) && member.incarnation < newest.incarnation)
    }

    /// Both nodes come to the same one, if both know of all: the first node's, and the newest of these. One
    /// that the other node does not use does not replace one that both use.
    fn preferred(&self, member: Member) -> Option<&Link> {
        let rank = |link: &&Link| match (link.kind, self.opens_first) {
            (Kind::OneWay, _) => 0,
            (Kind::Ours, true) | (Kind::Theirs, false) => 2,
            (Kind::Ours, false) | (Kind::Theirs, true) => 1,
        };
        self.links.iter().filter(|link| link.member == member && !link.outdated).max_by_key(rank)
    }

    /// Notes from when on which connection is not written to.
    fn settle(&mut self, now: Micros) {
        let used: Vec<bool> = self.links.iter().map(|link| self.to(link.member) == Some(link.key)).collect();
        for (link, is_used) in self.links.iter_mut().zip(&used) {
            let close_at = link.close_at.unwrap_or(now + LINGER);
            link.close_at = (!is_used).then_some(close_at);
        }
        let is_alone = !used.contains(&true);
        let since = self.alone_since.unwrap_or(now);
        self.alone_since = is_alone.then_some(since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, NodeId, StoreId};

    const NOW: Micros = Micros::from_millis(7);

    fn member(store: u64, incarnation: u64) -> Member {
        Member { node: NodeId(2), store: StoreId(store), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn pr517_the_lower_number_opens_at_once_and_the_other_one_when_it_has_waited() {
        let (first, mut other) = (Pair::new(true, NOW), Pair::new(false, NOW));
        assert!(first.opens(true, NOW) && !other.opens(true, NOW));
        assert!(other.opens(false, NOW), "a connection that only one uses is nobody else's business");
        let late = NOW + OPEN_ANYWAY_AFTER;
        assert!(!other.opens(true, Micros(late.0 - 1)) && other.opens(true, late));
        assert!(other.add(1, member(1, 1), Kind::Theirs, late));
        assert!(
            !other.opens(true, late + OPEN_ANYWAY_AFTER) && !other.opens(false, late + OPEN_ANYWAY_AFTER)
        );
        assert_eq!(other.remove(1, late), None);
        assert!(!other.opens(true, late), "it waits once more when the connection is gone");
        assert!(other.opens(true, late + OPEN_ANYWAY_AFTER));
    }

    #[test]
    fn pr517_of_two_connections_both_sides_keep_the_same_and_neither_closes_it_while_it_is_written_to() {
        let (first, other) = (member(1, 1), member(2, 1));
        // Which of the two handshakes ends first differs from side to side.
        for (at_first, at_other) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (mut one, mut two) = (Pair::new(true, NOW), Pair::new(false, NOW));
            let added = |pair: &mut Pair, to: Member, begins: usize, kinds: [Kind; 2]| {
                let ways = [(10, kinds[0]), (20, kinds[1])];
                for (key, kind) in [ways[begins], ways[1 - begins]] {
                    assert!(pair.add(key, to, kind, NOW));
                }
                (pair.to(to), pair.due(Micros(NOW.0 + LINGER.0 - 1)), pair.due(NOW + LINGER))
            };
            // 10 is what the first node opened, 20 what the other one did.
            let kept = (Some(10), vec![], vec![20]);
            assert_eq!(added(&mut one, other, at_first, [Kind::Ours, Kind::Theirs]), kept);
            assert_eq!(added(&mut two, first, at_other, [Kind::Theirs, Kind::Ours]), kept);
            // The end of either has what was on its way sent again by the one that is left.
            assert_eq!((one.remove(20, NOW), two.remove(10, NOW)), (Some(other), Some(first)));
            assert_eq!((one.to(other), two.to(first)), (Some(10), Some(20)));
            assert!(one.due(NOW + LINGER).is_empty() && two.due(NOW + LINGER).is_empty(), "both are used");
            assert_eq!((one.remove(10, NOW), one.remove(10, NOW)), (None, None));
        }
    }

    #[test]
    fn pr517_a_connection_of_one_direction_gives_way_to_one_of_both() {
        let other = member(2, 1);
        let mut pair = Pair::new(true, NOW);
        assert!(pair.add(1, other, Kind::OneWay, NOW) && pair.add(2, other, Kind::Theirs, NOW));
        assert_eq!((pair.to(other), pair.due(NOW + LINGER)), (Some(2), vec![1]));
        // A newer one of the same kind takes the place of one whose end was not told.
        assert!(pair.add(3, other, Kind::Theirs, NOW));
        assert_eq!((pair.to(other), pair.due(NOW + LINGER)), (Some(3), vec![1, 2]));
    }

    #[test]
    fn pr515_a_message_goes_to_the_very_member_that_it_is_for() {
        let mut pair = Pair::new(true, NOW);
        assert!(pair.add(1, member(1, 3), Kind::Ours, NOW) && pair.add(2, member(2, 1), Kind::Theirs, NOW));
        let to = |store, incarnation| pair.to(member(store, incarnation));
        assert_eq!([to(1, 3), to(2, 1)], [Some(1), Some(2)]);
        assert_eq!([to(1, 2), to(1, 4), to(2, 3), to(3, 1)], [None; 4]);
        let another = Member { node: NodeId(3), ..member(1, 3) };
        assert_eq!(pair.to(another), None);
    }

    #[test]
    fn pr516_nothing_is_sent_to_an_incarnation_before_the_newest() {
        let mut pair = Pair::new(false, NOW);
        assert!(pair.add(1, member(1, 3), Kind::Theirs, NOW));
        assert!(pair.members().eq([member(1, 3)]));
        assert!(!pair.on_record(member(1, 2), NOW) && !pair.on_record(member(1, 3), NOW));
        assert_eq!(pair.to(member(1, 3)), Some(1), "the record is behind");
        // By a handshake.
        assert!(pair.add(2, member(1, 4), Kind::Theirs, NOW));
        assert_eq!((pair.to(member(1, 3)), pair.to(member(1, 4))), (None, Some(2)));
        assert!(!pair.add(3, member(1, 3), Kind::Theirs, NOW), "what the old process left behind");
        assert!(pair.members().eq([member(1, 4)]) && pair.due(NOW + LINGER) == [1]);
        // By the record, which also says that another store has taken the place of this one.
        assert!(pair.on_record(member(1, 5), NOW));
        assert!(pair.to(member(1, 4)).is_none() && pair.opens(true, NOW + OPEN_ANYWAY_AFTER));
        assert!(pair.add(4, member(1, 5), Kind::Theirs, NOW) && pair.add(5, member(2, 1), Kind::Ours, NOW));
        assert_eq!((pair.to(member(1, 5)), pair.to(member(2, 1))), (Some(4), Some(5)));
        assert!(pair.on_record(member(2, 1), NOW));
        assert_eq!((pair.to(member(1, 5)), pair.to(member(2, 1))), (None, Some(5)));
        assert_eq!(pair.due(NOW + LINGER), [1, 2, 4]);
    }
}

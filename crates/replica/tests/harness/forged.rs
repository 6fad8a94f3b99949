//! Messages that no sound node sends.

use super::{P, T, World, link, member};
use bytes::Bytes;
use types::engine::space;
use types::{Lsn, Mutation, Position, Term};
use wire::entry::Kind;
use wire::peer::Append;
use wire::ship::{Chunk, DESCRIPTION, Installed, Outcome, Piece, TransferOffer, TransferRequest, Withdrawn};
use wire::{Effects, Entry, Header, PeerMessage};

impl World {
    /// An append that no sound primary sends.
    pub fn forge(&mut self, words: &[&str]) {
        let (from, to) = link(words[1]);
        let tail = self.nodes[&to].host.replica(P).expect("a replica").log().tail();
        let at = Position::new(Term(words[2].parse().expect("an epoch")), tail.end().lsn.next());
        let mut header = Header::new(Kind::Rows, P, at, tail.end_crc());
        header.table = T;
        let key =
            Bytes::from_static(if words.contains(&"space") { &[space::POSITION] } else { &[space::ROW, 1] });
        let mutations = vec![Mutation { key, value: Some(Bytes::new()) }];
        let effects = Effects { request_hash: 0, confirmed: 0, outcome: 0, affected: 1, mutations };
        let mut entries = Entry::encode(header, &effects.encode()).bytes().to_vec();
        if words.contains(&"garbled") {
            entries[0] ^= 2;
        }
        let append = Append {
            partition: P,
            epoch: self.record.as_ref().expect("created").epoch,
            from: member(from),
            number: 1000,
            prev: tail.end(),
            prev_crc: tail.end_crc(),
            committed: Lsn::ZERO,
            secured: Lsn::ZERO,
            log_floor: Lsn::ZERO,
            sent_us: 0,
            echo_us: 0,
            entries: entries.into(),
        };
        self.with(to, |host, now, out| host.peer(now, PeerMessage::Append(append), out));
    }

    /// Messages about files that no sound node sends, as a node's own frame layer would let them through.
    pub fn garbage(&mut self, name: &str, count: u64) {
        let (from, to) = link(name);
        let epoch = self.record.as_ref().expect("created").epoch;
        let mut random = 0x9e37_79b9_u64 ^ count;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..count {
            let newest = self.now.0 + 2;
            let number =
                [draw(3), newest, newest.saturating_sub(draw(2_000_000)), u64::MAX][draw(4) as usize];
            let number = if number == u64::MAX { 7 } else { number };
            let piece = Piece {
                file: [0, 1, 5, DESCRIPTION, DESCRIPTION - 1][draw(5) as usize],
                from: [0, 1, 60, u64::MAX][draw(4) as usize],
            };
            let bytes: Vec<u8> = (0..draw(90)).map(|_| draw(256) as u8).collect();
            let crc = if draw(4) == 0 { 1 } else { Chunk::checksum(&bytes) };
            let at = Position::new(Term(draw(3)), Lsn(draw(9)));
            let (partition, me) = (P, member(from));
            let message = match draw(5) {
                0 => PeerMessage::TransferOffer(TransferOffer {
                    partition,
                    epoch,
                    from: me,
                    number,
                    at,
                    at_crc: 0,
                    history: vec![(Term(draw(3)), Lsn(draw(9))); draw(3) as usize],
                    description_bytes: [0, 1, 50, 95, u64::MAX][draw(5) as usize],
                    piece_bytes: [0, 1, 60, u32::MAX][draw(4) as usize],
                    beside: draw(2) == 0,
                    log_alone: (draw(2) == 0).then_some(7),
                    log_above: 3,
                }),
                1 => {
                    let pieces = vec![piece; draw(9) as usize];
                    PeerMessage::TransferRequest(TransferRequest {
                        partition,
                        epoch,
                        from: me,
                        number,
                        pieces,
                        have: draw(9),
                        tainted: draw(2),
                    })
                }
                2 => PeerMessage::Chunk(Chunk {
                    partition,
                    epoch,
                    from: me,
                    number,
                    piece,
                    crc,
                    bytes: bytes.into(),
                }),
                3 => {
                    let outcome = Outcome::Refused("garbage".into());
                    PeerMessage::Installed(Installed { partition, epoch, from: me, number: draw(9), outcome })
                }
                _ => PeerMessage::Withdrawn(Withdrawn { partition, epoch, from: me, number: draw(9) }),
            };
            self.with(to, |host, now, out| host.peer(now, message, out));
        }
    }
}

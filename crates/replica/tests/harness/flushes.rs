//! A partition that global transactions write, in scripts.

use super::{P, T, World, member, numbers, position};
use bytes::Bytes;
use types::config::GLOBAL;
use types::{Epoch, LogKind, PartitionRecord, Policy, Position};
use wire::request::ReadSnapshot;
use wire::{Flush, Op};

impl World {
    /// `global POLICY N..`: the first configuration of such a partition, told to its members · `flush N
    /// COMMIT PREVIOUS`: a commit without rows, each of both as TERM,LSN · `keep-at N COMMIT`: the snapshot
    /// is held · `read-at N COMMIT [any]`.
    pub fn run_flushes(&mut self, words: &[&str]) -> bool {
        let commit = |at: usize| ReadSnapshot::Commit { at: position(words[at]), after: Position::ZERO };
        let op = match words[0] {
            "global" => {
                self.create_global(words[1], &numbers(&words[2..]));
                return true;
            }
            "flush" => {
                let (commit, previous) = (position(words[2]), position(words[3]));
                Op::Flush(Flush { commit, previous, parts: Vec::new() })
            }
            "keep-at" => Op::Hold { at: commit(2) },
            "read-at" => Op::Get { key: Bytes::from_static(b"k"), at: commit(2) },
            _ => return false,
        };
        self.ask(words[1].parse().expect("a node"), op, words);
        true
    }

    fn create_global(&mut self, policy: &str, nodes: &[u32]) {
        let policy = Policy::preset(policy, nodes.len() as u8, LogKind::Disk).expect("a policy");
        let members = nodes.iter().map(|node| member(*node)).collect();
        let mut record = PartitionRecord::new(P, T, Epoch(1), members, policy);
        record.unknown.insert(PartitionRecord::TRANSACTIONS.into(), GLOBAL.into());
        self.record = Some(record);
        nodes.iter().for_each(|node| self.tell(*node));
    }
}

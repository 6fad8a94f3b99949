//! A client that loads in bulk (PR-39): it stages the files of a load piece by piece at whoever leads, and
//! then has it made part of the state. Each load writes a register that other clients write too, and rows of
//! its own.

use crate::check::history::{Action, Answer, Operation};
use crate::check::lineage::Change;
use crate::check::loads::OWN_ROWS;
use crate::client::ClientEffect;
use crate::network::Conn;
use crate::plan::RunPlan;
use crate::random::Stream;
use crate::rows;
use bytes::Bytes;
use engine::lsm::write_load;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use test_engines::load_files;
use types::bulk::files_digest;
use types::engine::space;
use types::{Component, LoadId, LogKind, PartitionId, SessionId, Staging, TableId};
use wire::{Body, Op, Reply, Request, Status};

/// An attempt without an answer is given up after this.
const ATTEMPT: u64 = 1_200_000;
/// A load that is not decided by then is given up: nothing came of it, or nobody knows.
const WAIT_LIMIT_US: u64 = 6_000_000;
/// A piece of a file, in bytes.
const PIECE: usize = 40;
/// The same of a tree's files, which are longer.
const TREE_PIECE: usize = 700;

/// What a load's own rows hold: nobody else writes these.
fn own(number: u64, row: usize) -> u64 {
    number | 1 << 30 | (row as u64) << 24
}

/// The key of one of a load's own rows.
fn own_key(row: usize) -> String {
    format!("l{row}")
}

/// What is done next.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Open,
    Ask,
    Piece { file: u32, from: u64 },
    Load,
}

/// A load under way.
struct Load {
    operation: Operation,
    load: LoadId,
    files: Vec<(Component, Bytes)>,
    piece: usize,
    step: Step,
    flight: Option<(u64, u64)>,
    retry_at: u64,
    turn: u32,
    deadline: u64,
    sent: bool,
}

/// The loader. Has one connection per node.
pub struct LoadClient {
    id: u32,
    nodes: u32,
    random: Stream,
    typed: bool,
    partitions: Vec<(PartitionId, TableId)>,
    /// Those whose engines are on real files.
    trees: BTreeSet<PartitionId>,
    /// Where files of trees are made.
    scratch: Option<PathBuf>,
    links: BTreeMap<u32, Option<Conn>>,
    next_number: u64,
    next_at: u64,
    open: Option<Load>,
    history: Vec<Operation>,
    /// What each load changes, until that was taken.
    made: Vec<(LoadId, Vec<Change>)>,
}

impl LoadClient {
    /// A loader of the plan's partitions that have engines with files.
    pub fn new(id: u32, random: Stream, plan: &RunPlan, scratch: Option<PathBuf>) -> LoadClient {
        let ships =
            |number: u32| plan.copies.ships.contains(&(number % 2)) || plan.is_lsm(PartitionId(number));
        let partitions: Vec<_> = plan
            .partitions()
            .filter(|(id, _, table)| table.log == LogKind::Disk && table.is_plain() && ships(id.0))
            .map(|(partition, number, _)| (partition, number))
            .collect();
        let trees = partitions.iter().map(|(id, _)| *id).filter(|id| plan.is_lsm(*id)).collect();
        LoadClient {
            id,
            nodes: plan.nodes,
            random,
            typed: plan.workload.indexes,
            partitions,
            trees,
            scratch,
            links: BTreeMap::new(),
            next_number: 0,
            next_at: 0,
            open: None,
            history: Vec::new(),
            made: Vec::new(),
        }
    }

    /// Loads that ended.
    pub fn history(&self) -> &[Operation] {
        &self.history
    }

    /// What loads change that were begun since the last call.
    pub fn take_made(&mut self) -> Vec<(LoadId, Vec<Change>)> {
        std::mem::take(&mut self.made)
    }

    /// The run is over.
    pub fn abandon(&mut self, now: u64) {
        self.end(now, Answer::Unknown);
    }

    /// A connection was made, or not, or broke.
    pub fn linked(&mut self, node: u32, conn: Option<Conn>) {
        match conn {
            Some(conn) => drop(self.links.insert(node, Some(conn))),
            None => {
                self.links.remove(&node);
                if let Some(open) = &mut self.open {
                    (open.flight, open.turn) = (None, open.turn + 1);
                }
            }
        }
    }

    /// Does what is due. Nothing new is begun unless `goes_on`.
    pub fn step(&mut self, now: u64, goes_on: bool) -> Vec<ClientEffect> {
        if self.open.is_none() && goes_on && now >= self.next_at && !self.partitions.is_empty() {
            self.invent(now);
        }
        if self.open.as_ref().is_some_and(|open| now >= open.deadline) {
            self.end(now, Answer::Unknown);
        }
        let Some(open) = &mut self.open else { return Vec::new() };
        if open.flight.is_some_and(|(_, since)| now >= since + ATTEMPT) {
            (open.flight, open.turn) = (None, open.turn + 1);
        }
        if open.flight.is_some() || now < open.retry_at {
            return Vec::new();
        }
        let node = 1 + (open.operation.partition.0 + open.turn) % self.nodes;
        match self.links.get(&node) {
            Some(Some(conn)) => {
                let conn = *conn;
                vec![ClientEffect::Send(conn, Box::new(self.request(now)))]
            }
            Some(None) => Vec::new(),
            None => {
                self.links.insert(node, None);
                vec![ClientEffect::Dial(node, 0)]
            }
        }
    }

    fn invent(&mut self, now: u64) {
        self.next_number += 1;
        let number = u64::from(self.id) << 32 | self.next_number;
        let partition = self.random.pick(&self.partitions).expect("not empty").0;
        let load = LoadId::from_random(self.random.between(0, 1 << 50));
        let key = format!("r{}", self.random.below(4));
        let mut changes: Vec<Change> = vec![(key.clone(), Some(number))];
        changes.extend((0..OWN_ROWS).map(|row| (own_key(row), Some(own(number, row)))));
        let stored = |(name, value): &Change| {
            let key = [&[space::ROW], &rows::key(name, self.typed)[..]].concat();
            (Bytes::from(key), rows::row(name, value.expect("loads delete nothing"), self.typed))
        };
        let mut all: Vec<(Bytes, Bytes)> = changes.iter().map(stored).collect();
        all.sort();
        let operation = Operation {
            number,
            client: self.id,
            partition,
            key,
            action: Action::Put(number),
            session: None,
            invoked: now,
            completed: 0,
            told: Answer::Unknown,
        };
        self.made.push((load, changes));
        self.open = Some(Load {
            operation,
            load,
            files: self.files(partition, load, &all),
            piece: if self.trees.contains(&partition) { TREE_PIECE } else { PIECE },
            step: Step::Open,
            flight: None,
            retry_at: now,
            turn: 0,
            deadline: now + WAIT_LIMIT_US,
            sent: false,
        });
    }

    /// The files of a load with these rows.
    fn files(
        &self,
        partition: PartitionId,
        load: LoadId,
        rows: &[(Bytes, Bytes)],
    ) -> Vec<(Component, Bytes)> {
        let Some(scratch) = self.scratch.as_ref().filter(|_| self.trees.contains(&partition)) else {
            return load_files(load, rows);
        };
        let rows = rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
        let made = write_load(scratch, load, rows).expect("there is room");
        let read = |(file, path): (Component, PathBuf)| (file, fs::read(path).expect("just written").into());
        let files = made.into_iter().map(read).collect();
        fs::remove_dir_all(scratch).expect("nobody else uses it");
        files
    }

    fn request(&mut self, now: u64) -> Request {
        self.next_number += 1;
        let id = u64::from(self.id) << 32 | self.next_number;
        let open = self.open.as_mut().expect("looked at by the caller");
        open.flight = Some((id, now));
        let files: Vec<Component> = open.files.iter().map(|(file, _)| *file).collect();
        let load = open.load;
        let op = match open.step {
            Step::Open => Op::OpenSession,
            Step::Ask => Op::Stage { load, files },
            Step::Piece { file, from } => {
                let content =
                    open.files.get(file as usize).map(|(_, content)| content.clone()).unwrap_or_default();
                let from_byte = (from as usize).min(content.len());
                let bytes = content.slice(from_byte..content.len().min(from_byte + open.piece));
                Op::StagePiece { load, file, from, bytes }
            }
            Step::Load => {
                open.sent = true;
                Op::Load { load, digest: files_digest(&files) }
            }
        };
        let session = open.operation.session.filter(|_| open.step == Step::Load);
        let partition = open.operation.partition;
        let table = self.partitions.iter().find(|(of, _)| *of == partition).expect("it is one of them").1;
        Request {
            id,
            session: session.map_or(SessionId::NONE, |(session, _)| session),
            seq: session.map_or(0, |(_, seq)| seq),
            trace: open.operation.number,
            ..Request::new(table, 1, partition, op)
        }
    }

    /// A reply came.
    pub fn hear(&mut self, now: u64, reply: &Reply) {
        let wait = self.random.between(5_000, 40_000);
        let Some(open) = self.open.as_mut() else { return };
        if open.flight.is_none_or(|(request, _)| request != reply.id) {
            return;
        }
        open.flight = None;
        open.retry_at = now;
        let at = reply.position();
        match (&reply.status, &open.step, &reply.body) {
            (Status::Ok, Step::Open, _) => {
                open.operation.session = Some((SessionId(at), 1));
                open.step = Step::Ask;
            }
            (Status::Ok, Step::Ask, Body::Load(status)) => match &status.staging {
                _ if status.loaded.is_some() => open.step = Step::Load,
                Staging::Wants { file, from } => open.step = Step::Piece { file: *file, from: *from },
                Staging::Checking => open.retry_at = now + wait,
                Staging::Ready(_) => open.step = Step::Load,
                Staging::Refused(_) => self.end(now, Answer::Unknown),
            },
            (Status::Ok, Step::Piece { file, from }, _) => {
                let (file, next) = (*file, from + open.piece as u64);
                let more = open.files.get(file as usize).is_some_and(|(of, _)| next < of.bytes);
                open.step = if more { Step::Piece { file, from: next } } else { Step::Ask };
            }
            (Status::Ok, Step::Load, Body::Affected(0)) => self.end(now, Answer::Unknown),
            (Status::Ok, Step::Load, _) => self.end(now, Answer::Done { at, copies: reply.copies }),
            (Status::Unknown(_) | Status::Bad(_) | Status::Refused(_) | Status::Expected(_), ..) => {
                self.end(now, Answer::Unknown);
            }
            (Status::NotYet(_), Step::Load, _) => {
                // Who leads now may lack something.
                (open.step, open.retry_at) = (Step::Ask, now + wait);
            }
            (status, ..) => {
                open.turn += u32::from(!matches!(status, Status::NotYet(_)));
                open.retry_at = now + wait;
            }
        }
    }

    fn end(&mut self, now: u64, told: Answer) {
        let Some(open) = self.open.take() else { return };
        let mut operation = open.operation;
        operation.completed = now;
        operation.told = if open.sent { told } else { Answer::NotDone };
        if !open.sent {
            operation.session = None;
        }
        self.next_at = now + self.random.between(50_000, 900_000);
        self.history.push(operation);
    }
}

//! Which seeds have global transactions: a transaction manager, and a database of several partitions under
//! it.

use super::{Part, RunPlan, TablePlan};
use crate::random::{Concern, Stream};
use types::LogKind;
use types::system::COMMITS;

/// The name of the database.
pub const LEDGER: &str = "ledger";

/// The name of another one, into which backups of it are restored.
pub const COPY: &str = "copy";

/// Remainders of the numbers of seeds with global transactions: none of the seeds that found something before
/// there were any has one of them, so that those are what they were.
const SEEDS: [u64; 14] = [2, 10, 13, 32, 33, 34, 52, 70, 72, 74, 76, 79, 80, 82];
const OF: u64 = 97;

/// True if a seed has global transactions.
pub fn has_transactions(seed: u64) -> bool {
    SEEDS.contains(&(seed % OF))
}

/// True if the tables of a seed's database under global transactions are changed meanwhile. None of the seeds
/// that found something has such a number.
pub fn has_spread(seed: u64) -> bool {
    has_transactions(seed) && [4, 5].contains(&(seed / OF % 7))
}

/// True if such a database may be a lazy one. None of the seeds that found something before there were any
/// has such a number.
pub fn has_lazy_spread(seed: u64) -> bool {
    has_spread(seed) && seed / OF % 7 == 5
}

/// True if a seed's database has tables with unique values and references. None of the seeds that found
/// something before there were such tables has such a number.
pub fn has_claims(seed: u64) -> bool {
    has_transactions(seed) && [5, 8, 10].contains(&(seed / OF % 11))
}

/// True if rows of such a database refer to others by unique values, too: two thirds of these seeds. None of
/// the seeds that found something before they did has such a number.
pub fn has_references_by_value(seed: u64) -> bool {
    has_claims(seed) && !(seed / OF).is_multiple_of(3)
}

/// True if clients of a seed's global transactions die in the middle of them, and the recovery manager in the
/// middle of its passes. None of the seeds that found something before they did has such a number.
pub fn has_deaths(seed: u64) -> bool {
    has_transactions(seed) && [4, 6, 10].contains(&(seed / OF % 13))
}

/// True if clients of a seed's global transactions die with a commit on its way too, or with flushes, and
/// sessions are asked what became of it: a third. None of the seeds that found something before has such a
/// number.
pub fn has_doubts(seed: u64) -> bool {
    has_transactions(seed) && [5, 7, 8, 9, 12, 15, 17, 20, 26, 28, 30, 34].contains(&(seed / OF % 37))
}

/// True if clients of a seed's global transactions read what all copies have secured, too. None of the seeds
/// that found something before they did has such a number.
pub fn has_stale(seed: u64) -> bool {
    has_transactions(seed) && [3, 7, 11, 12, 14].contains(&(seed / OF % 17))
}

/// True if an operator has a copy lead that lacks what all had secured, and gives that up (`txn skip`). What
/// clients see then does not fit what rows demand of each other, and nobody changes tables. None of the seeds
/// that found something before there was such an operator has such a number.
pub fn has_skips(seed: u64) -> bool {
    let plain = has_transactions(seed) && !has_claims(seed) && !has_spread(seed);
    plain && [2, 6, 13, 17].contains(&(seed / OF % 19))
}

/// True if an operator has a copy of the transaction manager's partition lead that lacks commits, and lets
/// the manager go on behind what partitions have of these (`txn recover`). None of the seeds that found
/// something before there was such an operator has such a number.
pub fn has_recoveries(seed: u64) -> bool {
    let plain = has_transactions(seed) && !has_claims(seed) && !has_spread(seed) && !has_skips(seed);
    plain && [4, 6, 9, 15].contains(&(seed / OF % 23))
}

/// True if backups are made of a seed's database under global transactions, and restored into another one.
/// None of the seeds that found something before there were such backups has such a number.
pub fn has_copies(seed: u64) -> bool {
    let plain = has_transactions(seed) && !has_claims(seed) && !has_spread(seed);
    plain && !has_skips(seed) && !has_recoveries(seed) && [3, 9, 18, 28].contains(&(seed / OF % 29))
}

/// True if the copies of a seed's database under global transactions are cold, or hot in turn. None of the
/// seeds that found something before they could be has such a number.
pub fn has_cold_copies(seed: u64) -> bool {
    let plain = has_transactions(seed) && !has_claims(seed) && !has_spread(seed);
    let plain = plain && !has_skips(seed) && !has_recoveries(seed) && !has_copies(seed);
    plain && [2, 6, 8, 21].contains(&(seed / OF % 31))
}

/// When clients of global transactions die, and others take their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Deaths {
    /// Never, but behind a commit as if they had.
    #[default]
    None,
    /// Between begin and commit too; and so does the recovery manager, at any step, and at times there are
    /// two of these.
    Between,
    /// The same, and with a commit on its way, or flushes. Some do not wait for its answer. Its session is
    /// asked what became of it.
    Anywhere,
}

impl Deaths {
    /// When they die in a seed.
    fn of(seed: u64) -> Deaths {
        match (has_doubts(seed), has_deaths(seed)) {
            (true, _) => Deaths::Anywhere,
            (false, true) => Deaths::Between,
            (false, false) => Deaths::None,
        }
    }

    /// They die in the middle of transactions.
    pub fn are_any(self) -> bool {
        self != Deaths::None
    }

    /// They die with commits and flushes on their way, too.
    pub fn are_anywhere(self) -> bool {
        self == Deaths::Anywhere
    }
}

/// What comes after an operator had a copy lead that lacks what all had secured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sequel {
    /// Nothing more.
    #[default]
    None,
    /// The same once more, of the same partition.
    Again,
    /// A copy that counted beside it is handed the lead, before the old primary is back, which has been
    /// started again meanwhile.
    HandOver,
}

/// What comes after that in a seed: two fifths have it once more, one fifth a hand-over. None of the seeds
/// that found something before there was such a sequel has one.
pub fn sequel(seed: u64) -> Sequel {
    match (has_skips(seed), seed / OF / 19 % 5) {
        (true, 0 | 1) => Sequel::Again,
        (true, 4) => Sequel::HandOver,
        _ => Sequel::None,
    }
}

/// What clients of global transactions do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxnPlan {
    /// So many there are; none where there are no global transactions.
    pub clients: u32,
    /// They change the tables of their database, too.
    pub spread: bool,
    /// The policy of a database whose tables are changed is drawn; else it is one under which nothing that
    /// is acknowledged there is lost. What is told of tables is not lost in any case (PR-362).
    pub lazy: bool,
    /// They write rows with unique values, and rows that refer to others.
    pub claims: bool,
    /// Some of these refer to others by their unique values.
    pub by_value: bool,
    /// What all partitions have secured is kept by the manager for a moment only.
    pub brief: bool,
    /// Some of their transactions read what all copies have secured, at any of these.
    pub stale: bool,
    /// An operator has a copy lead that lacks what all had secured, and gives that up.
    pub skips: bool,
    /// What comes after it was made to lead.
    pub sequel: Sequel,
    /// An operator has a copy of the manager's partition lead that lacks commits, and lets the manager go on.
    pub recovers: bool,
    /// Backups are made of the database, and restored into another one under the same manager.
    pub copies: bool,
    /// When they die, and the recovery manager.
    pub deaths: Deaths,
}

impl TxnPlan {
    /// What they do in a seed with global transactions. How many there are is drawn with the database.
    pub fn of(seed: u64) -> TxnPlan {
        let (spread, lazy) = (has_spread(seed), has_lazy_spread(seed));
        let (claims, by_value) = (has_claims(seed), has_references_by_value(seed));
        let (stale, deaths) = (has_stale(seed), Deaths::of(seed));
        let (skips, sequel) = (has_skips(seed), sequel(seed));
        let (recovers, copies) = (has_recoveries(seed), has_copies(seed));
        // As long as something is kept it is brought, and nothing is to be given up.
        let brief = skips;
        TxnPlan {
            clients: 0,
            spread,
            lazy,
            claims,
            by_value,
            brief,
            stale,
            skips,
            sequel,
            recovers,
            copies,
            deaths,
        }
    }
}

impl RunPlan {
    /// A transaction manager and a database under it, besides the tables, and clients of them.
    pub(super) fn add_transactions(&mut self, seed: u64, plan: TxnPlan) {
        let mut random = Stream::new(seed, Concern::Shape, 7);
        let drawn = super::table(&mut random, 0, self.nodes);
        let factor = 3.min(self.nodes as u8);
        let plain = TablePlan { factor, min_in_sync: factor.min(2), available: false, lsm: false, ..drawn };
        self.tables.push(TablePlan {
            name: COMMITS.into(),
            policy: "durable",
            log: LogKind::Disk,
            // Its primary goes on alone, so that there is something to be lost.
            min_in_sync: if plan.recovers { 1 } else { plain.min_in_sync },
            partitions: 1,
            part: Part::Manager,
            ..plain.clone()
        });
        self.tables.push(TablePlan {
            name: LEDGER.into(),
            policy: match (random.pick(&["durable", "semi", "async", "async"]), plan.spread && !plan.lazy) {
                (_, true) => "durable",
                (drawn, false) => drawn.expect("not empty"),
            },
            log: LogKind::Disk,
            min_in_sync: 1,
            partitions: random.between(2, 3) as u32,
            database: true,
            part: Part::Written,
            ..plain.clone()
        });
        if plan.copies {
            // What is acknowledged there of rows that no transaction has written rests on disks.
            self.tables.push(TablePlan {
                name: COPY.into(),
                policy: "durable",
                log: LogKind::Disk,
                min_in_sync: 1,
                partitions: 2,
                database: true,
                part: Part::Written,
                ..plain
            });
        }
        self.workload.forces |= plan.skips || plan.recovers;
        self.workload.transactions = TxnPlan { clients: random.between(2, 4) as u32, ..plan };
    }

    /// The partition of the transaction manager, and those that its commits write.
    pub fn transactional(&self) -> crate::check::lineage::Transactional {
        let of = |part: Part| {
            let of =
                move |(partition, _, table): (_, _, &TablePlan)| (table.part == part).then_some(partition);
            self.partitions().filter_map(of)
        };
        crate::check::lineage::Transactional {
            manager: of(Part::Manager).next(),
            written: of(Part::Written).collect(),
        }
    }
}

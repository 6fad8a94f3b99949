//! The consistency conditions (TPC-C 5.11, clause 3.3.2) of the rows that one replica has, computed from
//! these rows and from nothing else: neither SQL nor a program of ours takes part.

use super::programs::{int, money};
use super::schema;
use crate::cluster::{Ours, WAIT_LIMIT};
use crate::error::BenchError;
use client::{Client, ScanOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use types::data::Value;
use types::procedure::Failure;
use types::{NodeId, PartitionId};
use wire::{Op, ReadLevel};

/// A warehouse and a district, or these and a customer or an order.
type Two = (i64, i64);
pub(super) type Three = (i64, i64, i64);

/// How long a replica may lag, in milliseconds, when it is asked for what the primary has already.
const MAX_LAG_MS: u64 = 10_000;

#[derive(Default, Clone, Debug)]
struct Order {
    customer: i64,
    is_carried: bool,
    lines: i64,
}

/// The lines of an order.
#[derive(Default, Clone, Debug)]
struct Lines {
    count: i64,
    delivered: i64,
    /// Of those that are delivered.
    owed: i64,
}

/// What the conditions are about. Sums are hundredths.
#[derive(Default, Clone, Debug)]
pub(super) struct Facts {
    houses: BTreeMap<i64, i64>,
    /// What each district was paid, and its next order.
    districts: BTreeMap<Two, (i64, i64)>,
    /// What each customer owes, and has paid.
    customers: BTreeMap<Three, (i64, i64)>,
    orders: BTreeMap<Three, Order>,
    open: BTreeSet<Three>,
    lines: BTreeMap<Three, Lines>,
    paid_by: BTreeMap<Three, i64>,
    paid_to: BTreeMap<Two, i64>,
    /// Customers as they are found by names, and their last orders; None: no such tables.
    named: Option<BTreeSet<Three>>,
    last: Option<BTreeMap<Three, i64>>,
}

/// The tables that have something to do with the conditions.
const TABLES: [&str; 7] =
    ["warehouse", "district", "customer", "history", "orders", "new_order", "order_line"];

impl Facts {
    /// Takes in a row of a table.
    fn row(&mut self, table: &str, row: &[Value]) -> Result<(), Failure> {
        let of = |at: usize| int(&row[at]);
        let two = || Ok::<Two, Failure>((of(0)?, of(1)?));
        let three = || Ok::<Three, Failure>((of(0)?, of(1)?, of(2)?));
        match table {
            "warehouse" => drop(self.houses.insert(of(0)?, money(&row[8])?)),
            "district" => drop(self.districts.insert(two()?, (money(&row[9])?, of(10)?))),
            "customer" => drop(self.customers.insert(three()?, (money(&row[16])?, money(&row[17])?))),
            "history" => {
                let (w, amount) = (of(0)?, money(&row[6])?);
                // Where customers pay at other warehouses, whose they are.
                let whose = if row.len() > 8 { of(8)? } else { w };
                *self.paid_by.entry((whose, of(3)?, of(2)?)).or_default() += amount;
                *self.paid_to.entry((w, of(4)?)).or_default() += amount;
            }
            "orders" => {
                let order = Order { customer: of(3)?, is_carried: !row[5].is_null(), lines: of(6)? };
                self.orders.insert(three()?, order);
            }
            "new_order" => drop(self.open.insert(three()?)),
            "order_line" => {
                let lines = self.lines.entry(three()?).or_default();
                lines.count += 1;
                if !row[6].is_null() {
                    lines.delivered += 1;
                    lines.owed += money(&row[8])?;
                }
            }
            "customer_name" => {
                self.named.get_or_insert_default().insert((of(0)?, of(1)?, of(4)?));
            }
            "last_order" => drop(self.last.get_or_insert_default().insert(three()?, of(3)?)),
            _ => {}
        }
        Ok(())
    }

    /// True if it has the order.
    pub fn has_order(&self, order: &Three) -> bool {
        self.orders.contains_key(order)
    }

    /// The first condition that does not hold, in words.
    pub fn broken(&self) -> Option<String> {
        let told = |number: u32, place: String| format!("consistency condition {number} of TPC-C at {place}");
        let house = self.houses.iter().find_map(|(w, ytd)| {
            let of_house = self.districts.iter().filter(|((house, _), _)| house == w);
            let districts: i64 = of_house.map(|(_, (ytd, _))| ytd).sum();
            let paid: i64 =
                self.paid_to.iter().filter(|((house, _), _)| house == w).map(|(_, paid)| paid).sum();
            let number = if *ytd != districts { 1 } else { 8 };
            (*ytd != districts || *ytd != paid).then(|| told(number, format!("warehouse {w}")))
        });
        let district = || {
            self.districts.iter().find_map(|(at, facts)| {
                self.of_district(*at, *facts).map(|number| told(number, format!("district {at:?}")))
            })
        };
        let order = || {
            self.orders.iter().find_map(|(at, order)| {
                self.of_order(at, order).map(|number| told(number, format!("order {at:?}")))
            })
        };
        house.or_else(district).or_else(order).or_else(|| self.of_customers())
    }

    fn of_district(&self, (w, d): Two, (ytd, next): (i64, i64)) -> Option<u32> {
        let (from, to) = ((w, d, i64::MIN), (w, d, i64::MAX));
        let last = self.orders.range(from..=to).next_back().map(|(at, _)| at.2);
        let mut open = self.open.range(from..=to).map(|at| at.2);
        let (first_open, count) = (open.next(), self.open.range(from..=to).count() as i64);
        let last_open = open.next_back().or(first_open);
        let ordered: i64 = self.orders.range(from..=to).map(|(_, order)| order.lines).sum();
        let lines: i64 = self.lines.range(from..=to).map(|(_, lines)| lines.count).sum();
        let checks = [
            (2, last != Some(next - 1) || last_open.is_some_and(|last| last != next - 1)),
            (3, first_open.zip(last_open).is_some_and(|(first, last)| last - first + 1 != count)),
            (4, ordered != lines),
            (9, ytd != self.paid_to.get(&(w, d)).copied().unwrap_or(0)),
        ];
        checks.into_iter().find(|(_, broken)| *broken).map(|(number, _)| number)
    }

    fn of_order(&self, at: &Three, order: &Order) -> Option<u32> {
        let lines = self.lines.get(at).cloned().unwrap_or_default();
        let delivered = if order.is_carried { lines.count } else { 0 };
        let checks = [
            (5, order.is_carried == self.open.contains(at)),
            (6, order.lines != lines.count),
            (7, lines.delivered != delivered),
        ];
        checks.into_iter().find(|(_, broken)| *broken).map(|(number, _)| number)
    }

    fn of_customers(&self) -> Option<String> {
        let (mut owed, mut last) = (BTreeMap::<Three, i64>::new(), BTreeMap::<Three, i64>::new());
        for (at, order) in &self.orders {
            let customer = (at.0, at.1, order.customer);
            *owed.entry(customer).or_default() += self.lines.get(at).map_or(0, |lines| lines.owed);
            last.insert(customer, at.2);
        }
        for (at, (balance, paid)) in &self.customers {
            let owed = owed.get(at).copied().unwrap_or(0);
            let paid_by = self.paid_by.get(at).copied().unwrap_or(0);
            let number = match (*balance == owed - paid_by, balance + paid == owed) {
                (true, true) => continue,
                (false, _) => 10,
                (true, false) => 12,
            };
            return Some(format!("consistency condition {number} of TPC-C at customer {at:?}"));
        }
        let named = self.named.as_ref().is_none_or(|named| named.iter().eq(self.customers.keys()));
        let lasting = self.last.as_ref().is_none_or(|kept| *kept == last);
        let kept = if named { "last_order" } else { "customer_name" };
        (!named || !lasting).then(|| format!("table `{kept}` is not what the other tables say"))
    }
}

/// What one replica has of a partition, as soon as it has all that its primary had when it was asked.
fn facts(
    client: &mut Client,
    database: &str,
    kept: bool,
    (node, partitions): (NodeId, &[PartitionId]),
) -> Result<Facts, BenchError> {
    let mut facts = Facts::default();
    let more = if kept { &schema::KEPT_NAMES[..] } else { &[] };
    for name in TABLES.iter().chain(more) {
        let table = client.table(&format!("{database}.{name}"))?;
        for partition in partitions {
            let level = client.call(table.call(*partition, Op::Digest))?.lsn;
            let options = ScanOptions {
                read: ReadLevel::Any { max_lag_ms: MAX_LAG_MS, min_lsn: level },
                node: Some(node),
                ..ScanOptions::default()
            };
            for found in client.scan_partitions(&table, vec![*partition], options) {
                let found = found?;
                let row = table.decode(&found.key, &found.stored)?;
                facts.row(name, &row.values).map_err(|failure| BenchError::Wrong(failure.to_string()))?;
            }
        }
    }
    Ok(facts)
}

/// Refuses a cluster of which a replica has rows that break a condition, lacks an order that was
/// acknowledged, or differs from its primary. Nobody may write meanwhile. Gives how many replicas were looked
/// at. `kept`: it has the tables that programs keep.
pub(super) fn check(
    ours: &mut Ours,
    database: &str,
    kept: bool,
    acknowledged: &BTreeSet<Three>,
) -> Result<usize, BenchError> {
    let client = ours.client();
    let table = client.table(&format!("{database}.warehouse"))?;
    let (mut replicas, mut found) = (0, BTreeSet::new());
    // A warehouse lies in one partition; where transactions are global, its rows lie in all of them.
    let all: Vec<PartitionId> = table.partitions().collect();
    let groups = if table.is_global() { vec![all] } else { all.into_iter().map(|one| vec![one]).collect() };
    for partitions in groups {
        let map = client.cluster_map();
        let of = |partition: &PartitionId| -> BTreeSet<NodeId> {
            let record = map.partition(*partition);
            record.iter().flat_map(|record| &record.in_sync).map(|member| member.node).collect()
        };
        let every = partitions.iter().map(of).reduce(|one, other| &one & &other);
        for (at, node) in every.unwrap_or_default().into_iter().enumerate() {
            let facts = facts(client, database, kept, (node, &partitions))?;
            if let Some(broken) = facts.broken() {
                return Err(BenchError::Wrong(format!("{broken}, on node {node}")));
            }
            let orders: BTreeSet<&Three> =
                acknowledged.iter().filter(|order| facts.has_order(order)).collect();
            match at {
                0 => found.extend(orders.into_iter().copied()),
                _ if orders.iter().all(|order| found.contains(*order)) => {}
                _ => return Err(BenchError::Wrong(format!("node {node} has other orders than the others"))),
            }
            replicas += partitions.len();
        }
    }
    if let Some((w, d, o)) = acknowledged.difference(&found).next() {
        return Err(BenchError::Wrong(format!("order {o} of district {d} of warehouse {w} is lost")));
    }
    let more = if kept { &schema::KEPT_NAMES[..] } else { &[] };
    for table in schema::NAMES.iter().chain(more) {
        ours.check_replicas(&format!("{database}.{table}"))?;
    }
    Ok(replicas)
}

/// Waits until all copies of the database are in sync.
pub(super) fn wait_in_sync(ours: &mut Ours, database: &str, copies: usize) -> Result<(), BenchError> {
    let begun = Instant::now();
    let client = ours.client();
    let table = client.table(&format!("{database}.warehouse"))?;
    loop {
        client.poll(std::time::Duration::from_millis(50))?;
        let map = client.cluster_map();
        let level = |id| map.partition(id).is_some_and(|record| record.in_sync.len() >= copies);
        if table.partitions().all(level) {
            return Ok(());
        }
        if begun.elapsed() > WAIT_LIMIT {
            return Err(BenchError::Wrong("not all copies are in sync within thirty seconds".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A warehouse with one district, one customer and two orders, the first of which is delivered.
    fn good() -> Facts {
        let mut facts = Facts::default();
        facts.houses.insert(1, 1_000);
        facts.districts.insert((1, 1), (1_000, 3));
        facts.customers.insert((1, 1, 1), (500, 1_000));
        facts.paid_by.insert((1, 1, 1), 1_000);
        facts.paid_to.insert((1, 1), 1_000);
        facts.orders.insert((1, 1, 1), Order { customer: 1, is_carried: true, lines: 2 });
        facts.orders.insert((1, 1, 2), Order { customer: 1, is_carried: false, lines: 1 });
        facts.open.insert((1, 1, 2));
        facts.lines.insert((1, 1, 1), Lines { count: 2, delivered: 2, owed: 1_500 });
        facts.lines.insert((1, 1, 2), Lines { count: 1, delivered: 0, owed: 0 });
        facts.named = Some(BTreeSet::from([(1, 1, 1)]));
        facts.last = Some(BTreeMap::from([((1, 1, 1), 2)]));
        facts
    }

    #[test]
    fn each_condition_finds_what_breaks_it_in_the_rows_of_a_replica() {
        assert_eq!(good().broken(), None);
        type Breaks = fn(&mut Facts);
        let breaks: [(&str, Breaks); 14] = [
            ("condition 1 ", |facts| *facts.houses.get_mut(&1).expect("one") += 1),
            ("condition 2 ", |facts| facts.districts.get_mut(&(1, 1)).expect("one").1 += 1),
            ("condition 2 ", |facts| {
                facts.open.remove(&(1, 1, 2));
                facts.open.insert((1, 1, 1));
            }),
            ("condition 3 ", |facts| assert!(facts.open.insert((1, 1, 0)))),
            ("condition 4 ", |facts| facts.orders.get_mut(&(1, 1, 1)).expect("one").lines = 3),
            ("condition 5 ", |facts| assert!(facts.open.insert((1, 1, 1)))),
            ("condition 6 ", |facts| {
                facts.orders.get_mut(&(1, 1, 1)).expect("one").lines = 1;
                facts.orders.get_mut(&(1, 1, 2)).expect("one").lines = 2;
            }),
            ("condition 7 ", |facts| facts.lines.get_mut(&(1, 1, 1)).expect("one").delivered = 1),
            ("condition 8 ", |facts| {
                *facts.houses.get_mut(&1).expect("one") += 1;
                facts.districts.get_mut(&(1, 1)).expect("one").0 += 1;
            }),
            ("condition 9 ", |facts| {
                let _ = facts.districts.insert((1, 2), (0, 1));
                let _ = facts.orders.insert((1, 2, 0), Order { customer: 1, is_carried: true, lines: 0 });
                facts.paid_to.insert((1, 1), 999);
                facts.paid_to.insert((1, 2), 1);
            }),
            ("condition 10 ", |facts| facts.customers.get_mut(&(1, 1, 1)).expect("one").0 += 1),
            ("condition 12 ", |facts| facts.customers.get_mut(&(1, 1, 1)).expect("one").1 += 1),
            ("`customer_name`", |facts| facts.named = Some(BTreeSet::new())),
            ("`last_order`", |facts| facts.last = Some(BTreeMap::from([((1, 1, 1), 1)]))),
        ];
        for (said, broken) in breaks {
            let mut facts = good();
            broken(&mut facts);
            let found = facts.broken().unwrap_or_default();
            assert!(found.contains(said), "{said}: {found}");
        }
    }
}

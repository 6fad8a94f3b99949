//! The first population (TPC-C 5.11, clause 4.3.3), as lines of COPY.

use super::draw::{Draw, money};
use super::schema::{INDEXES, KEPT, NAMES, REMOTE, TABLES};
use super::{By, DISTRICTS, Scale};
use crate::error::BenchError;
use crate::peers::session::Session;
use std::io::Write;

/// What was loaded has this time.
const LOADED_AT: &str = "2026-01-01 00:00:00";
/// Of ten orders so many are delivered.
const DELIVERED: u64 = 7;

/// Makes tables and rows in the database that the session is in, and what transactions that are run so find
/// rows by.
pub fn load(
    session: &mut Session,
    (by, remote): (By, bool),
    (scale, seed): (Scale, u64),
    progress: &mut dyn Write,
) -> Result<(), BenchError> {
    let kept = if by == By::Procedure { &KEPT[..] } else { &[] };
    for table in TABLES.iter().chain(kept) {
        session.simple(table)?;
    }
    if remote {
        session.simple(REMOTE)?;
    }
    for warehouse in 1..=scale.warehouses {
        let _ = writeln!(progress, "tpcc: loads warehouse {warehouse} of {}", scale.warehouses);
        let draw = Draw::new(seed ^ warehouse << 32, scale);
        let mut loader = Loader { draw, scale, warehouse, remote, names: Vec::new(), last: Vec::new() };
        for table in NAMES {
            loader.copy(session, table)?;
        }
        if by == By::Procedure {
            session.copy("customer_name", &mut loader.names.drain(..))?;
            session.copy("last_order", &mut loader.last.drain(..))?;
        }
    }
    for index in INDEXES.iter().filter(|_| by == By::Sql) {
        session.simple(index)?;
    }
    Ok(())
}

/// One warehouse.
struct Loader {
    draw: Draw,
    scale: Scale,
    warehouse: u64,
    /// `history` says whose customers have paid.
    remote: bool,
    /// Lines of the tables that programs keep.
    names: Vec<String>,
    last: Vec<String>,
}

impl Loader {
    fn copy(&mut self, session: &mut Session, table: &str) -> Result<(), BenchError> {
        let scale = self.scale;
        match table {
            "warehouse" => session.copy(table, &mut std::iter::once_with(|| self.warehouse()))?,
            "district" => {
                session.copy(table, &mut (1..=DISTRICTS).map(|district| self.district(district)))?
            }
            "item" => session.copy(table, &mut (1..=scale.items).map(|item| self.item(item)))?,
            "stock" => session.copy(table, &mut (1..=scale.items).map(|item| self.stock(item)))?,
            // What belongs to one district is one transaction of its own.
            _ => {
                for district in 1..=DISTRICTS {
                    self.copy_of_district(session, table, district)?;
                }
            }
        }
        Ok(())
    }

    fn copy_of_district(
        &mut self,
        session: &mut Session,
        table: &str,
        district: u64,
    ) -> Result<(), BenchError> {
        let customers = self.scale.customers;
        match table {
            "customer" => {
                session
                    .copy(table, &mut (1..=customers).map(|customer| self.customer(district, customer)))?;
            }
            "history" => {
                session.copy(table, &mut (1..=customers).map(|customer| self.history(district, customer)))?;
            }
            // Their lines, whose number the order says.
            "order_line" | "new_order" => {}
            _ => {
                let of = self.draw.shuffled(customers);
                let orders: Vec<Order> =
                    of.iter().zip(1..).map(|(customer, id)| self.order(district, id, *customer)).collect();
                let (warehouse, open) = (self.warehouse, |order: &&Order| !order.is_delivered(customers));
                let new = |order: &Order| format!("{warehouse}\t{district}\t{}\n", order.id);
                session.copy("orders", &mut orders.iter().map(|order| order.line.clone()))?;
                session.copy("new_order", &mut orders.iter().filter(open).map(new))?;
                let mut lines = orders.iter().flat_map(|order| self.order_lines(district, order));
                session.copy("order_line", &mut lines)?;
            }
        }
        Ok(())
    }

    fn address(&mut self) -> String {
        let draw = &mut self.draw;
        let (one, two, city) = (draw.text(10, 20), draw.text(10, 20), draw.text(10, 20));
        format!("{one}\t{two}\t{city}\t{}\t{}", draw.text(2, 2), draw.zip())
    }

    fn tax(&mut self) -> String {
        format!("0.{:04}", self.draw.number(0, 2_000))
    }

    fn warehouse(&mut self) -> String {
        let (name, address, tax) = (self.draw.text(6, 10), self.address(), self.tax());
        format!("{}\t{name}\t{address}\t{tax}\t{}\n", self.warehouse, money(self.paid() * DISTRICTS as i64))
    }

    /// What the customers of a district have paid when they are loaded, in hundredths: 10.00 each.
    fn paid(&self) -> i64 {
        self.scale.customers as i64 * 1_000
    }

    fn district(&mut self, district: u64) -> String {
        let (name, address, tax) = (self.draw.text(6, 10), self.address(), self.tax());
        let (paid, next) = (money(self.paid()), self.scale.customers + 1);
        format!("{}\t{district}\t{name}\t{address}\t{tax}\t{paid}\t{next}\n", self.warehouse)
    }

    fn customer(&mut self, district: u64, customer: u64) -> String {
        let last = self.draw.loaded_name(customer);
        let (first, address) = (self.draw.text(8, 16), self.address());
        let draw = &mut self.draw;
        let (phone, credit) = (draw.digits(16), if draw.percent(10) { "BC" } else { "GC" });
        let discount = format!("0.{:04}", draw.number(0, 5_000));
        let data = draw.text(300, 500);
        self.names.push(format!("{}\t{district}\t{last}\t{first}\t{customer}\n", self.warehouse));
        format!(
            "{}\t{district}\t{customer}\t{first}\tOE\t{last}\t{address}\t{phone}\t{LOADED_AT}\t{credit}\t50000.00\t\
             {discount}\t-10.00\t10.00\t1\t0\t{data}\n",
            self.warehouse
        )
    }

    fn history(&mut self, district: u64, customer: u64) -> String {
        let id = (district - 1) * self.scale.customers + customer;
        let data = self.draw.text(12, 24);
        let warehouse = self.warehouse;
        let of = if self.remote { format!("\t{warehouse}") } else { String::new() };
        format!("{warehouse}\t{id}\t{customer}\t{district}\t{district}\t{LOADED_AT}\t10.00\t{data}{of}\n")
    }

    fn order(&mut self, district: u64, id: u64, customer: u64) -> Order {
        let lines = self.draw.number(5, 15);
        // Each customer has one order when it is loaded.
        self.last.push(format!("{}\t{district}\t{customer}\t{id}\n", self.warehouse));
        let carrier = self.draw.number(1, 10).to_string();
        let order = Order { id, lines, line: String::new() };
        let carrier = if order.is_delivered(self.scale.customers) { carrier } else { "\\N".into() };
        let line =
            format!("{}\t{district}\t{id}\t{customer}\t{LOADED_AT}\t{carrier}\t{lines}\t1\n", self.warehouse);
        Order { line, ..order }
    }

    fn order_lines(&mut self, district: u64, order: &Order) -> Vec<String> {
        let delivered = order.is_delivered(self.scale.customers);
        let lines = (1..=order.lines).map(|number| {
            let (item, dist) = (self.draw.number(1, self.scale.items), self.draw.text(24, 24));
            let (at, amount) = match delivered {
                true => (LOADED_AT, money(0)),
                false => ("\\N", money(self.draw.number(1, 999_999) as i64)),
            };
            let warehouse = self.warehouse;
            format!(
                "{warehouse}\t{district}\t{}\t{number}\t{item}\t{warehouse}\t{at}\t5\t{amount}\t{dist}\n",
                order.id
            )
        });
        lines.collect()
    }

    fn item(&mut self, item: u64) -> String {
        let draw = &mut self.draw;
        let (image, name) = (draw.number(1, 10_000), draw.text(14, 24));
        let (price, data) = (money(draw.number(100, 10_000) as i64), draw.data());
        format!("{}\t{item}\t{image}\t{name}\t{price}\t{data}\n", self.warehouse)
    }

    fn stock(&mut self, item: u64) -> String {
        let draw = &mut self.draw;
        let quantity = draw.number(10, 100);
        let dists: Vec<String> = (0..DISTRICTS).map(|_| draw.text(24, 24)).collect();
        format!("{}\t{item}\t{quantity}\t{}\t0\t0\t0\t{}\n", self.warehouse, dists.join("\t"), draw.data())
    }
}

/// An order that is loaded.
struct Order {
    id: u64,
    lines: u64,
    line: String,
}

impl Order {
    fn is_delivered(&self, orders: u64) -> bool {
        self.id <= orders * DELIVERED / 10
    }
}

//! The five transactions as SQL (TPC-C 5.11, clauses 2.4 to 2.8), at READ COMMITTED: what must not change
//! between a statement and the next is changed by the first of them.

use super::draw::{Draw, money};
use super::{DISTRICTS, Scale};
use crate::peers::session::{Refused, Rows, Session};

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// It is committed.
    Committed,
    /// It was rolled back as the specification wants it: one new order of a hundred names no item.
    RolledBack,
}

/// Transactions of one terminal.
pub struct Terminal {
    pub session: Session,
    pub draw: Draw,
    pub scale: Scale,
    pub warehouse: u64,
    /// Of a hundred payments so many are of another warehouse's customers, and of 1,500 order lines so many
    /// are supplied by another warehouse; at 15 as the specification has it.
    pub remote: u64,
    /// The number of its next row of `history`, which nobody else gives out.
    pub history: u64,
}

/// A value of a row, which must be there.
fn value(rows: &Rows, at: usize) -> Result<&str, Refused> {
    let found = rows.first().and_then(|row| row.get(at)?.as_deref());
    found.ok_or_else(|| Refused { code: "02000".into(), message: "a row is not there".into() })
}

fn number(rows: &Rows, at: usize) -> Result<i64, Refused> {
    let text = value(rows, at)?;
    let wrong = || Refused { code: "22P02".into(), message: format!("`{text}` is no number") };
    text.parse().map_err(|_| wrong())
}

/// A sum of money in hundredths.
fn hundredths(rows: &Rows, at: usize) -> Result<i64, Refused> {
    let text = value(rows, at)?;
    let wrong = || Refused { code: "22P02".into(), message: format!("`{text}` is no sum of money") };
    let (whole, part) = text.split_once('.').unwrap_or((text, "00"));
    let sum: i64 = format!("{whole}{part:0<2}").parse().map_err(|_| wrong())?;
    Ok(sum)
}

impl Terminal {
    /// One transaction, of the mix that the specification asks for at least: 45 % new orders, 43 % payments,
    /// and 4 % of each of the others. It ends whatever was begun.
    pub fn step(&mut self) -> Result<Done, Refused> {
        let kind = self.draw.number(1, 100);
        self.session.run("BEGIN", &[])?;
        let done = match kind {
            1..=45 => self.new_order(),
            46..=88 => self.payment(),
            89..=92 => self.order_status(),
            93..=96 => self.delivery(),
            _ => self.stock_level(),
        };
        match done {
            Ok(Done::Committed) => self.session.run("COMMIT", &[]).map(|_| Done::Committed),
            Ok(Done::RolledBack) => self.session.run("ROLLBACK", &[]).map(|_| Done::RolledBack),
            Err(refused) => {
                self.session.run("ROLLBACK", &[])?;
                Err(refused)
            }
        }
    }

    fn new_order(&mut self) -> Result<Done, Refused> {
        let (w, d, c) = (self.warehouse, self.draw.number(1, DISTRICTS), self.draw.customer());
        let lines = self.draw.number(5, 15);
        let session = &mut self.session;
        session.run("SELECT w_tax FROM warehouse WHERE w_id = $1", &[&w])?;
        let next = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE w_id = $1 AND d_id = $2 RETURNING \
                    d_next_o_id - 1, d_tax";
        let order = number(&session.run(next, &[&w, &d])?, 0)?;
        let customer =
            "SELECT c_discount, c_last, c_credit FROM customer WHERE w_id = $1 AND d_id = $2 AND c_id = $3";
        session.run(customer, &[&w, &d, &c])?;
        // Where several lines name an item their order of locks must be everybody's.
        let unused = self.draw.percent(1);
        let mut items: Vec<(u64, u64)> = (0..lines).map(|_| (self.supplier(), self.draw.item())).collect();
        items.sort();
        if unused {
            items.pop();
            items.push((w, self.scale.items + 1));
        }
        let local = i32::from(items.iter().all(|(supplier, _)| *supplier == w));
        let session = &mut self.session;
        let insert = "INSERT INTO orders VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP, NULL, $5, $6)";
        session.run(insert, &[&w, &d, &order, &c, &lines, &local])?;
        session.run("INSERT INTO new_order VALUES ($1, $2, $3)", &[&w, &d, &order])?;
        for (line, item) in items.into_iter().enumerate() {
            if self.order_line((d, order), line as u64 + 1, item)? == Done::RolledBack {
                return Ok(Done::RolledBack);
            }
        }
        Ok(Done::Committed)
    }

    /// The warehouse that supplies an item (clause 2.4.1.5).
    fn supplier(&mut self) -> u64 {
        let is_remote = self.remote > 0 && self.draw.number(1, 1_500) <= self.remote;
        if is_remote { self.other_warehouse() } else { self.warehouse }
    }

    /// Any but the terminal's own.
    fn other_warehouse(&mut self) -> u64 {
        let other = self.draw.number(1, self.scale.warehouses - 1);
        if other < self.warehouse { other } else { other + 1 }
    }

    fn order_line(
        &mut self,
        (d, order): (u64, i64),
        line: u64,
        (supplier, item): (u64, u64),
    ) -> Result<Done, Refused> {
        let (w, quantity) = (self.warehouse, self.draw.number(1, 10));
        let remote = i32::from(supplier != w);
        let select = "SELECT i_price, i_name, i_data FROM item WHERE w_id = $1 AND i_id = $2";
        let found = self.session.run(select, &[&w, &item])?;
        if found.is_empty() {
            return Ok(Done::RolledBack);
        }
        let amount = money(hundredths(&found, 0)? * quantity as i64);
        let taken = self.session.run(TAKE[d as usize - 1], &[&supplier, &item, &quantity, &remote])?;
        let insert = "INSERT INTO order_line VALUES ($1, $2, $3, $4, $5, $9, NULL, $6, $7, $8)";
        let dist = value(&taken, 1)?.to_string();
        self.session.run(insert, &[&w, &d, &order, &line, &item, &quantity, &amount, &dist, &supplier])?;
        Ok(Done::Committed)
    }

    /// A customer of a warehouse's district: two of five by number, the others by last name, of which it is
    /// the one in the middle by first name.
    fn customer(&mut self, (w, d): (u64, u64)) -> Result<i64, Refused> {
        if self.draw.percent(40) {
            return Ok(self.draw.customer() as i64);
        }
        let last = self.draw.last_name();
        let by_name =
            "SELECT c_id FROM customer WHERE w_id = $1 AND d_id = $2 AND c_last = $3 ORDER BY c_first";
        let found = self.session.run(by_name, &[&w, &d, &last])?;
        let middle = found.len().div_ceil(2).saturating_sub(1);
        number(&found.into_iter().skip(middle).take(1).collect(), 0)
    }

    fn payment(&mut self) -> Result<Done, Refused> {
        let (w, d) = (self.warehouse, self.draw.number(1, DISTRICTS));
        let amount = money(self.draw.number(100, 500_000) as i64);
        let house = "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 RETURNING w_name, w_street_1, w_street_2, \
                     w_city, w_state, w_zip";
        let house = self.session.run(house, &[&w, &amount])?;
        let district = "UPDATE district SET d_ytd = d_ytd + $3 WHERE w_id = $1 AND d_id = $2 RETURNING d_name, d_street_1, \
                        d_street_2, d_city, d_state, d_zip";
        let district = self.session.run(district, &[&w, &d, &amount])?;
        // Clause 2.5.1.2.
        let (cw, cd) = match self.remote > 0 && self.draw.percent(self.remote) {
            true => (self.other_warehouse(), self.draw.number(1, DISTRICTS)),
            false => (w, d),
        };
        let c = self.customer((cw, cd))?;
        let pay = "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = \
                   c_payment_cnt + 1 WHERE w_id = $1 AND d_id = $2 AND c_id = $3 RETURNING c_credit, c_first, c_last, \
                   c_balance";
        let paid = self.session.run(pay, &[&cw, &cd, &c, &amount])?;
        if value(&paid, 0)? == "BC" {
            let note = "UPDATE customer SET c_data = substr($4 || c_data, 1, 500) WHERE w_id = $1 AND d_id = $2 AND \
                        c_id = $3";
            let data = format!("{c} {cd} {cw} {d} {w} {amount} ");
            self.session.run(note, &[&cw, &cd, &c, &data])?;
        }
        let data = format!("{}    {}", value(&house, 0)?, value(&district, 0)?);
        self.history += 1;
        if self.remote > 0 {
            let insert = "INSERT INTO history VALUES ($1, $2, $3, $7, $4, CURRENT_TIMESTAMP, $5, $6, $8)";
            self.session.run(insert, &[&w, &self.history, &c, &d, &amount, &data, &cd, &cw])?;
        } else {
            let insert = "INSERT INTO history VALUES ($1, $2, $3, $4, $4, CURRENT_TIMESTAMP, $5, $6)";
            self.session.run(insert, &[&w, &self.history, &c, &d, &amount, &data])?;
        }
        Ok(Done::Committed)
    }

    fn order_status(&mut self) -> Result<Done, Refused> {
        let (w, d) = (self.warehouse, self.draw.number(1, DISTRICTS));
        let c = self.customer((w, d))?;
        let customer = "SELECT c_balance, c_first, c_middle, c_last FROM customer WHERE w_id = $1 AND d_id = $2 AND \
                        c_id = $3";
        self.session.run(customer, &[&w, &d, &c])?;
        let last = "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE w_id = $1 AND d_id = $2 AND o_c_id = $3 ORDER \
                    BY o_id DESC LIMIT 1";
        let order = number(&self.session.run(last, &[&w, &d, &c])?, 0)?;
        let lines = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line WHERE w_id = $1 \
                     AND d_id = $2 AND o_id = $3";
        let lines = self.session.run(lines, &[&w, &d, &order])?;
        value(&lines, 0)?;
        Ok(Done::Committed)
    }

    fn delivery(&mut self) -> Result<Done, Refused> {
        let (w, carrier) = (self.warehouse, self.draw.number(1, 10));
        for d in 1..=DISTRICTS {
            let oldest = "SELECT min(o_id) FROM new_order WHERE w_id = $1 AND d_id = $2";
            let oldest = self.session.run(oldest, &[&w, &d])?;
            // A district without open orders is left out (clause 2.7.4.2).
            let Ok(order) = number(&oldest, 0) else { continue };
            let take = "DELETE FROM new_order WHERE w_id = $1 AND d_id = $2 AND o_id = $3 RETURNING o_id";
            if self.session.run(take, &[&w, &d, &order])?.is_empty() {
                // Another delivery was faster.
                continue;
            }
            let carried = "UPDATE orders SET o_carrier_id = $4 WHERE w_id = $1 AND d_id = $2 AND o_id = $3 RETURNING \
                           o_c_id";
            let c = number(&self.session.run(carried, &[&w, &d, &order, &carrier])?, 0)?;
            let delivered = "UPDATE order_line SET ol_delivery_d = CURRENT_TIMESTAMP WHERE w_id = $1 AND d_id = $2 AND \
                             o_id = $3";
            self.session.run(delivered, &[&w, &d, &order])?;
            let sum = "SELECT sum(ol_amount) FROM order_line WHERE w_id = $1 AND d_id = $2 AND o_id = $3";
            let sum = money(hundredths(&self.session.run(sum, &[&w, &d, &order])?, 0)?);
            let owed = "UPDATE customer SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1 WHERE w_id = $1 \
                        AND d_id = $2 AND c_id = $3";
            self.session.run(owed, &[&w, &d, &c, &sum])?;
        }
        Ok(Done::Committed)
    }

    fn stock_level(&mut self) -> Result<Done, Refused> {
        let (w, d) = (self.warehouse, self.draw.number(1, DISTRICTS));
        let least = self.draw.number(10, 20);
        let next = "SELECT d_next_o_id FROM district WHERE w_id = $1 AND d_id = $2";
        let next = number(&self.session.run(next, &[&w, &d])?, 0)?;
        let from = next - 20;
        let low = "SELECT count(DISTINCT s.i_id) FROM order_line l JOIN stock s ON s.w_id = l.w_id AND s.i_id = l.ol_i_id \
                   WHERE l.w_id = $1 AND l.d_id = $2 AND l.o_id >= $3 AND l.o_id < $4 AND s.w_id = $1 AND s.s_quantity < \
                   $5";
        let low = self.session.run(low, &[&w, &d, &from, &next, &least])?;
        number(&low, 0)?;
        Ok(Done::Committed)
    }
}

macro_rules! take {
    ($dist:literal) => {
        concat!(
            "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= $3 + 10 THEN s_quantity - $3 ELSE s_quantity - $3 + 91 ",
            "END, s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $4 WHERE w_id = $1 ",
            "AND i_id = $2 RETURNING s_quantity, ",
            $dist,
            ", s_data"
        )
    };
}

/// What takes an item out of stock, for each district.
const TAKE: [&str; DISTRICTS as usize] = [
    take!("s_dist_01"),
    take!("s_dist_02"),
    take!("s_dist_03"),
    take!("s_dist_04"),
    take!("s_dist_05"),
    take!("s_dist_06"),
    take!("s_dist_07"),
    take!("s_dist_08"),
    take!("s_dist_09"),
    take!("s_dist_10"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_to_the_hundredth() {
        let read = |text: &str| hundredths(&vec![vec![Some(text.into())]], 0);
        assert_eq!(
            [read("12.34"), read("-0.10"), read("7"), read("1.5")],
            [Ok(1234), Ok(-10), Ok(700), Ok(150)]
        );
        assert!(read("x").is_err() && hundredths(&Rows::new(), 0).is_err());
    }
}

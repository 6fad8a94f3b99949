//! Customers pay, and orders are delivered.

use super::{
    CUSTOMER, CUSTOMER_NAME, DISTRICT, HISTORY, Known, NEW_ORDER, ORDER_LINE, ORDERS, Transaction, WAREHOUSE,
    add, customer, found, int, money, now, pay, text,
};
use crate::tpcc::DISTRICTS;
use procedure::Tables;
use types::data::{ColumnType, Row, Value};
use types::procedure::{Failure, FailureKind};

/// The longest note on a customer, in characters.
const MAX_NOTE: usize = 500;
/// The most lines that an order has.
const MAX_LINES: usize = 15;

fn wrong() -> Failure {
    Failure::new(FailureKind::Arguments, "the arguments are none of this transaction")
}

/// A customer pays (clause 2.5): by number, or by name.
pub struct Payment;

impl Transaction for Payment {
    const NAME: &'static str = "tpcc_payment";
    const PARAMETERS: &'static [(&'static str, ColumnType)] = &[
        ("w", ColumnType::Int),
        ("d", ColumnType::Int),
        ("c", ColumnType::Int),
        ("last", ColumnType::Text),
        ("amount", ColumnType::Decimal),
        ("history_id", ColumnType::Int),
    ];
    const RESULTS: &'static [(&'static str, ColumnType)] =
        &[("c", ColumnType::Int), ("balance", ColumnType::Decimal)];
    const TABLES: &'static [Known] = &[WAREHOUSE, DISTRICT, CUSTOMER, CUSTOMER_NAME, HISTORY];

    fn run(tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let [w, d, number, last, amount, history] = arguments else { return Err(wrong()) };
        let paid = money(amount)?;
        let mut house = found(tables.get(0, vec![w.clone()])?, &WAREHOUSE)?;
        pay(&mut house, 8, paid)?;
        let mut district = found(tables.get(1, vec![w.clone(), d.clone()])?, &DISTRICT)?;
        pay(&mut district, 9, paid)?;
        let c = customer(tables, 3, (w, d), (number, last))?;
        let mut payer = found(tables.get(2, vec![w.clone(), d.clone(), c.clone()])?, &CUSTOMER)?;
        pay(&mut payer, 16, -paid)?;
        pay(&mut payer, 17, paid)?;
        add(&mut payer, 18, 1)?;
        if text(&payer.values[13]) == "BC" {
            let note = format!("{c} {d} {w} {d} {w} {amount} {}", text(&payer.values[20]));
            payer.values[20] = Value::Text(note.chars().take(MAX_NOTE).collect());
        }
        let data = format!("{}    {}", text(&house.values[1]), text(&district.values[2]));
        let date = now(tables);
        let balance = payer.values[16].clone();
        let note = [w, history, &c, d, d, &date, amount].map(Value::clone).into_iter();
        tables.put(4, Row::new(note.chain([Value::Text(data)]).collect()))?;
        tables.put(0, house)?;
        tables.put(1, district)?;
        tables.put(2, payer)?;
        tables.give(vec![c, balance])
    }
}

/// The oldest open order of each district is delivered (clause 2.7).
pub struct Delivery;

impl Transaction for Delivery {
    const NAME: &'static str = "tpcc_delivery";
    const PARAMETERS: &'static [(&'static str, ColumnType)] =
        &[("w", ColumnType::Int), ("carrier", ColumnType::Int)];
    const RESULTS: &'static [(&'static str, ColumnType)] =
        &[("d", ColumnType::Int), ("order_id", ColumnType::Int)];
    const TABLES: &'static [Known] = &[NEW_ORDER, ORDERS, ORDER_LINE, CUSTOMER];

    fn run(tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let [w, carrier] = arguments else { return Err(wrong()) };
        int(carrier)?;
        for d in 1..=DISTRICTS as i64 {
            let d = Value::Int(d);
            let oldest = tables.range(0, (vec![w.clone(), d.clone()], 2), 1)?.pop();
            // A district without open orders is left out (clause 2.7.4.2).
            let Some(oldest) = oldest else { continue };
            let key = oldest.values;
            tables.delete(0, key.clone())?;
            let mut order = found(tables.get(1, key.clone())?, &ORDERS)?;
            order.values[5] = carrier.clone();
            let c = order.values[3].clone();
            tables.put(1, order)?;
            let (at, mut sum) = (now(tables), 0);
            for mut line in tables.range(2, (key.clone(), 3), MAX_LINES)? {
                sum += money(&line.values[8])?;
                line.values[6] = at.clone();
                tables.put(2, line)?;
            }
            let mut payer = found(tables.get(3, vec![w.clone(), d.clone(), c])?, &CUSTOMER)?;
            pay(&mut payer, 16, sum)?;
            add(&mut payer, 19, 1)?;
            tables.put(3, payer)?;
            tables.give(vec![d, key[2].clone()])?;
        }
        Ok(())
    }
}

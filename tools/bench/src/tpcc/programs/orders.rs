//! New orders, what became of an order, and how much is in stock.

use super::{
    CUSTOMER, CUSTOMER_NAME, DISTRICT, ITEM, Known, LAST_ORDER, NEW_ORDER, ORDER_LINE, ORDERS, STOCK,
    Transaction, WAREHOUSE, add, customer, decimal, found, int, money, now, raised, text, units,
};
use procedure::Tables;
use std::collections::BTreeSet;
use types::data::{ColumnType, Decimal, Row, Value};
use types::procedure::{Failure, FailureKind};

/// The most lines that an order has (clause 2.4.1.3).
const MAX_LINES: usize = 15;

/// A customer orders (clause 2.4). The items are a text: `item quantity item quantity ...`.
pub struct NewOrder;

impl Transaction for NewOrder {
    const NAME: &'static str = "tpcc_new_order";
    const PARAMETERS: &'static [(&'static str, ColumnType)] = &[
        ("w", ColumnType::Int),
        ("d", ColumnType::Int),
        ("c", ColumnType::Int),
        ("items", ColumnType::Text),
    ];
    const RESULTS: &'static [(&'static str, ColumnType)] =
        &[("order_id", ColumnType::Int), ("total", ColumnType::Decimal)];
    const TABLES: &'static [Known] =
        &[WAREHOUSE, DISTRICT, CUSTOMER, ORDERS, NEW_ORDER, ITEM, STOCK, ORDER_LINE, LAST_ORDER];

    fn run(tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let [w, d, c, items] = arguments else { return Err(wrong()) };
        let items = lines(text(items))?;
        let house = found(tables.get(0, vec![w.clone()])?, &WAREHOUSE)?;
        let mut district = found(tables.get(1, vec![w.clone(), d.clone()])?, &DISTRICT)?;
        let order = district.values[10].clone();
        add(&mut district, 10, 1)?;
        let taxes = units(&house.values[7], 4)? + units(&district.values[8], 4)?;
        tables.put(1, district)?;
        let buyer = found(tables.get(2, vec![w.clone(), d.clone(), c.clone()])?, &CUSTOMER)?;
        let discount = units(&buyer.values[15], 4)?;
        let mut sum = 0i64;
        for (line, (item, quantity)) in items.iter().enumerate() {
            let at = (order.clone(), line as i64 + 1);
            sum += order_line(tables, (w, d), at, (*item, *quantity))?;
        }
        let head = |rest: [Value; 5]| {
            let key = [w.clone(), d.clone(), order.clone()];
            Row::new(key.into_iter().chain(rest).collect())
        };
        let many = Value::Int(items.len() as i64);
        let entered = now(tables);
        tables.put(3, head([c.clone(), entered, Value::Null, many, Value::Int(1)]))?;
        tables.put(4, Row::new(vec![w.clone(), d.clone(), order.clone()]))?;
        tables.put(8, Row::new(vec![w.clone(), d.clone(), c.clone(), order.clone()]))?;
        let total = i128::from(sum) * i128::from(10_000 - discount) * i128::from(10_000 + taxes);
        let total = Decimal::new(total, 10).ok_or_else(|| raised("a sum is too large"))?;
        tables.give(vec![order, Value::Decimal(total)])
    }
}

fn wrong() -> Failure {
    Failure::new(FailureKind::Arguments, "the arguments are none of this transaction")
}

fn lines(text: &str) -> Result<Vec<(i64, i64)>, Failure> {
    let numbers: Result<Vec<i64>, _> = text.split_ascii_whitespace().map(str::parse).collect();
    let numbers = numbers.map_err(|_| wrong())?;
    let pairs: Vec<(i64, i64)> = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let fits = numbers.len().is_multiple_of(2)
        && (1..=MAX_LINES).contains(&pairs.len())
        && pairs.iter().all(|(_, quantity)| (1..=10).contains(quantity));
    if fits { Ok(pairs) } else { Err(wrong()) }
}

/// One line: its amount in hundredths.
fn order_line(
    tables: &mut Tables<'_>,
    (w, d): (&Value, &Value),
    (order, line): (Value, i64),
    (item, quantity): (i64, i64),
) -> Result<i64, Failure> {
    let key = vec![w.clone(), Value::Int(item)];
    let Some(goods) = tables.get(5, key.clone())? else { return Err(raised("item number is not valid")) };
    let mut stock = found(tables.get(6, key)?, &STOCK)?;
    let left = int(&stock.values[2])?;
    let after = if left >= quantity + 10 { left - quantity } else { left - quantity + 91 };
    stock.values[2] = Value::Int(after);
    add(&mut stock, 13, quantity)?;
    add(&mut stock, 14, 1)?;
    let dist = usize::try_from(int(d)?).ok().filter(|d| (1..=10).contains(d)).ok_or_else(wrong)?;
    let dist = stock.values[2 + dist].clone();
    tables.put(6, stock)?;
    let amount = money(&goods.values[4])? * quantity;
    let values = vec![
        w.clone(),
        d.clone(),
        order,
        Value::Int(line),
        Value::Int(item),
        w.clone(),
        Value::Null,
        Value::Int(quantity),
        decimal(amount, 2),
        dist,
    ];
    tables.put(7, Row::new(values))?;
    Ok(amount)
}

/// A customer's last order (clause 2.6).
pub struct OrderStatus;

impl Transaction for OrderStatus {
    const NAME: &'static str = "tpcc_order_status";
    const READ_ONLY: bool = true;
    const PARAMETERS: &'static [(&'static str, ColumnType)] =
        &[("w", ColumnType::Int), ("d", ColumnType::Int), ("c", ColumnType::Int), ("last", ColumnType::Text)];
    const RESULTS: &'static [(&'static str, ColumnType)] = &[
        ("order_id", ColumnType::Int),
        ("carrier", ColumnType::Int),
        ("item", ColumnType::Int),
        ("amount", ColumnType::Decimal),
        ("delivered", ColumnType::Timestamp),
    ];
    const TABLES: &'static [Known] = &[CUSTOMER, CUSTOMER_NAME, LAST_ORDER, ORDERS, ORDER_LINE];

    fn run(tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let [w, d, number, last] = arguments else { return Err(wrong()) };
        let c = customer(tables, 1, (w, d), (number, last))?;
        let key = vec![w.clone(), d.clone(), c];
        found(tables.get(0, key.clone())?, &CUSTOMER)?;
        let last = found(tables.get(2, key)?, &LAST_ORDER)?;
        let key = vec![w.clone(), d.clone(), last.values[3].clone()];
        let order = found(tables.get(3, key.clone())?, &ORDERS)?;
        for line in tables.range(4, (key, 3), MAX_LINES)? {
            let of = |at: usize| line.values[at].clone();
            tables.give(vec![of(2), order.values[5].clone(), of(4), of(8), of(6)])?;
        }
        Ok(())
    }
}

/// How many of the items of a district's last twenty orders are nearly out of stock (clause 2.8).
pub struct StockLevel;

impl Transaction for StockLevel {
    const NAME: &'static str = "tpcc_stock_level";
    const READ_ONLY: bool = true;
    const PARAMETERS: &'static [(&'static str, ColumnType)] =
        &[("w", ColumnType::Int), ("d", ColumnType::Int), ("least", ColumnType::Int)];
    const RESULTS: &'static [(&'static str, ColumnType)] = &[("low", ColumnType::Int)];
    const TABLES: &'static [Known] = &[DISTRICT, ORDER_LINE, STOCK];

    fn run(tables: &mut Tables<'_>, arguments: &[Value]) -> Result<(), Failure> {
        let [w, d, least] = arguments else { return Err(wrong()) };
        let district = found(tables.get(0, vec![w.clone(), d.clone()])?, &DISTRICT)?;
        let from = int(&district.values[10])? - 20;
        let key = vec![w.clone(), d.clone(), Value::Int(from)];
        let mut items = BTreeSet::new();
        for line in tables.range(1, (key, 2), 20 * MAX_LINES)? {
            items.insert(int(&line.values[4])?);
        }
        let (least, mut low) = (int(least)?, 0);
        for item in items {
            let stock = found(tables.get(2, vec![w.clone(), Value::Int(item)])?, &STOCK)?;
            low += i64::from(int(&stock.values[2])? < least);
        }
        tables.give(vec![Value::Int(low)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_an_order_are_pairs_and_not_too_many() {
        assert_eq!(lines("7 1 9 10"), Ok(vec![(7, 1), (9, 10)]));
        let many = "1 1 ".repeat(16);
        for bad in ["", "7", "7 x", "7 0", "7 11", "7 1 9", many.as_str()] {
            assert!(lines(bad).is_err(), "{bad}");
        }
    }
}

//! What terminals ask for when the transactions are procedures: the same mix and the same draws as in SQL.

use super::draw::{Draw, money};
use super::{DISTRICTS, Scale, TpccOptions};
use types::data::{ColumnType, Value};

/// Which transaction, as [`super::programs::all`] counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// Transactions of one terminal.
pub struct Terminal {
    draw: Draw,
    scale: Scale,
    pub warehouse: u64,
    /// Of the new order that was asked for last.
    district: u64,
    /// The number of its next row of `history`, which nobody else gives out.
    history: u64,
}

fn number(number: u64) -> Value {
    Value::Int(number as i64)
}

impl Terminal {
    /// They are counted from 0.
    pub fn new(options: &TpccOptions, terminal: u64) -> Terminal {
        let (scale, seed) = (options.scale, options.common.seed);
        Terminal {
            draw: Draw::new(seed ^ (terminal + 1) << 40, scale),
            scale,
            warehouse: terminal % scale.warehouses + 1,
            district: 1,
            // Behind what was loaded, and each terminal's own.
            history: scale.customers * DISTRICTS + (terminal + 1) * (1 << 40),
        }
    }

    /// The next transaction, of the mix that the specification asks for at least.
    pub fn next(&mut self) -> (Kind, Vec<Value>) {
        let w = number(self.warehouse);
        match self.draw.number(1, 100) {
            1..=45 => (Kind::NewOrder, self.new_order(w)),
            46..=88 => (Kind::Payment, self.payment(w)),
            89..=92 => (Kind::OrderStatus, self.order_status(w)),
            93..=96 => (Kind::Delivery, vec![w, number(self.draw.number(1, 10))]),
            _ => {
                let d = number(self.draw.number(1, DISTRICTS));
                (Kind::StockLevel, vec![w, d, number(self.draw.number(10, 20))])
            }
        }
    }

    /// The district of the new order that was asked for last.
    pub fn district(&self) -> u64 {
        self.district
    }

    fn new_order(&mut self, w: Value) -> Vec<Value> {
        let (d, c) = (self.draw.number(1, DISTRICTS), self.draw.customer());
        self.district = d;
        let lines = self.draw.number(5, 15);
        let mut items: Vec<u64> = (0..lines).map(|_| self.draw.item()).collect();
        if self.draw.percent(1)
            && let Some(last) = items.last_mut()
        {
            // It is rolled back, as the specification wants it: there is no such item.
            *last = self.scale.items + 1;
        }
        let pairs: Vec<String> =
            items.into_iter().map(|item| format!("{item} {}", self.draw.number(1, 10))).collect();
        vec![w, number(d), number(c), Value::Text(pairs.join(" "))]
    }

    /// Two of five by number, the others by last name.
    fn customer(&mut self) -> [Value; 2] {
        match self.draw.percent(40) {
            true => [number(self.draw.customer()), Value::Null],
            false => [Value::Null, Value::Text(self.draw.last_name())],
        }
    }

    fn payment(&mut self, w: Value) -> Vec<Value> {
        let d = number(self.draw.number(1, DISTRICTS));
        let amount = money(self.draw.number(100, 500_000) as i64);
        let amount = ColumnType::Decimal.parse(&amount).expect("a sum of money is a decimal");
        let [c, last] = self.customer();
        self.history += 1;
        vec![w, d, c, last, amount, number(self.history)]
    }

    fn order_status(&mut self, w: Value) -> Vec<Value> {
        let d = number(self.draw.number(1, DISTRICTS));
        let [c, last] = self.customer();
        vec![w, d, c, last]
    }
}
